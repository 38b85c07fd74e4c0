//! One STF within a TF, as Python sees it: a buffer in the memory where it lies.

use crate::format;
use bytes::Bytes;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;

/// The STF of one FLP within a TF. It is a read-only buffer of bytes without a copy: `memoryview(part)`, `bytes(part)`
/// and `numpy.frombuffer(part, dtype)` take it. The EPN waits for that memory until the part, and all that looks at it,
/// is gone.
#[pyclass(frozen, module = "sheaf")]
pub(crate) struct Part {
    /// Index of the FLP.
    #[pyo3(get)]
    flp: u16,
    /// Incarnation of the FLP: its start in ns since 1970.
    #[pyo3(get)]
    incarnation: u64,
    /// Payload format: opaque, rdh, km3net, xtc2 or o2-blocks.
    #[pyo3(get)]
    format: &'static str,
    /// CRC-32C that the FLP took when the data arrived.
    #[pyo3(get)]
    digest: u32,
    payload: Bytes,
}

impl Part {
    /// Returns `part` for Python.
    pub(crate) fn of(part: &sheaf_protocol::Part<Bytes>) -> Self {
        Self {
            flp: part.source.flp.0,
            incarnation: part.source.incarnation.0,
            format: format::word(part.format),
            digest: part.digest,
            payload: part.payload.clone(),
        }
    }
}

#[pymethods]
impl Part {
    /// Payload as a memoryview of unsigned bytes, without a copy.
    #[getter]
    fn data(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        let view = pyo3::types::PyMemoryView::from(slf.as_any())?;
        Ok(view.into_any().unbind())
    }

    /// Payload as a one-dimensional NumPy array of `dtype`, read-only and without a copy. Raises ValueError if the
    /// bytes are no whole number of items.
    #[pyo3(signature = (dtype = "uint8"))]
    fn array(slf: &Bound<'_, Self>, dtype: &str) -> PyResult<Py<PyAny>> {
        let numpy = slf.py().import("numpy")?;
        Ok(numpy.call_method1("frombuffer", (slf, dtype))?.unbind())
    }

    /// Returns whether the bytes still have the CRC-32C that the FLP took.
    fn is_intact(&self) -> bool {
        sheaf_protocol::crc32c(&self.payload) == self.digest
    }

    fn __len__(&self) -> usize {
        self.payload.len()
    }

    fn __bytes__(&self) -> &[u8] {
        &self.payload
    }

    fn __repr__(&self) -> String {
        let (flp, bytes, format) = (self.flp, self.payload.len(), self.format);
        format!("<sheaf.Part of flp:{flp}, {bytes} bytes of {format}>")
    }

    /// Fills `view` for the buffer protocol.
    #[expect(
        unsafe_code,
        reason = "the buffer protocol of Python has no safe interface"
    )]
    unsafe fn __getbuffer__(
        slf: PyRef<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("the view is null"));
        }
        let bytes: &[u8] = &slf.payload;
        let length = ffi::Py_ssize_t::try_from(bytes.len())
            .map_err(|_| PyBufferError::new_err("the payload is too large for a buffer"))?;
        // SAFETY: `view` is that of the caller and not null. The bytes do not move and are not freed while `slf` lives,
        // since a frozen class keeps its `Bytes`; the call puts a reference to `slf` into the view, which lives until
        // the view is released. The view is read-only.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(
                view,
                slf.as_ptr(),
                bytes.as_ptr().cast_mut().cast(),
                length,
                1,
                flags,
            )
        };
        match filled {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }
}
