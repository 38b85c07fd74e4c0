//! An FLP in this process.

use crate::Home;
use crate::errors::{self, BadConfig, RunOver};
use crate::format;
use crate::wait::{self, Signals};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyMemoryView, PyTuple};
use sheaf_node::config::FarmConfig;
use sheaf_node::readout::{Heartbeat, Patience, Readout, ReadoutError, ReadoutOptions, SendError};
use sheaf_protocol::{FlpId, TfId};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The readout of one FLP, in this process: the farm file has `flp.source.kind = "program"`, and this object stands
/// where another farm has a process `sheaf run flp`. It takes STFs from the first call on; the run begins when all
/// nodes that it needs are there. Leave it with `close()`, or use it as a context manager: both wait until each STF is
/// decided.
#[pyclass(frozen, module = "sheaf")]
pub(crate) struct Source {
    flp: u16,
    home: Home,
    readout: Mutex<Option<Readout>>,
}

impl Source {
    /// Calls `work` with the readout and without the GIL. An interrupt ends its wait.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        timeout: Option<Duration>,
        work: impl FnOnce(&mut Readout, Patience<'_>) -> Result<T, ReadoutError> + Send,
    ) -> PyResult<T> {
        self.home.check("source")?;
        let mut signals = Signals::default();
        let done = py.detach(|| {
            let mut readout = self.readout.lock().unwrap_or_else(PoisonError::into_inner);
            let readout = readout.as_mut()?;
            let mut goes_on = || signals.look();
            Some(work(readout, Patience::new(timeout, &mut goes_on)))
        });
        match done {
            None => Err(RunOver::new_err("the source is closed")),
            Some(done) => done.map_err(|error| raised(&error, &mut signals)),
        }
    }
}

/// Returns the exception that a handler of signals has raised, or that of `error`.
fn raised(error: &ReadoutError, signals: &mut Signals) -> PyErr {
    let interrupt = match error {
        ReadoutError::Send(SendError::Interrupted) => signals.take(),
        _ => None,
    };
    interrupt.unwrap_or_else(|| errors::of_readout(error))
}

#[pymethods]
impl Source {
    /// Starts FLP `index` of the farm file `farm`. `metrics` is an address for its page of metrics, `events` a file for
    /// its event log. Raises BadConfig if the farm file is no good or has another source, SourceError if something that
    /// the FLP needs cannot be had.
    #[new]
    #[pyo3(signature = (farm, index = 0, *, metrics = None, events = None))]
    fn new(
        py: Python<'_>,
        farm: PathBuf,
        index: u16,
        metrics: Option<String>,
        events: Option<PathBuf>,
    ) -> PyResult<Self> {
        let config = FarmConfig::load(&farm);
        let config = config.map_err(|error| BadConfig::new_err(error.to_string()))?;
        let options = ReadoutOptions {
            metrics,
            events,
            ..ReadoutOptions::default()
        };
        let started = py.detach(|| Readout::start(config, FlpId(index), options));
        let readout = started.map_err(|error| errors::of_readout(&error))?;
        Ok(Self {
            flp: index,
            home: Home::here(),
            readout: Mutex::new(Some(readout)),
        })
    }

    /// Index of the FLP.
    #[getter]
    fn index(&self) -> u16 {
        self.flp
    }

    /// Sends the STF of TF `tf_id`: `data` is a buffer (bytes, bytearray, memoryview, NumPy array, Arrow buffer) or a
    /// list of buffers, which follow one another. It is copied once, before the call returns. Waits for at most
    /// `timeout` seconds while the farm takes nothing, for ever without one. Returns True if the farm has it; if False,
    /// nothing was taken, and the same STF can be sent again. Ids go up; those that are left out count as
    /// source-overrun.
    #[pyo3(signature = (tf_id, data, *, timeout = None, format = "opaque"))]
    fn send(
        &self,
        py: Python<'_>,
        tf_id: u64,
        data: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        format: &str,
    ) -> PyResult<bool> {
        let format = format::of_word(format)?;
        let timeout = wait::timeout(timeout)?;
        let parts = parts_of(data)?;
        let bytes = parts.iter().map(|part| part.len_bytes()).sum();
        let fill = |place: &mut [u8]| Python::attach(|py| copy(py, &parts, place));
        self.with(py, timeout, move |readout, patience| {
            readout.send_with(TfId(tf_id), format, bytes, fill, patience)
        })
    }

    /// Waits for the next TF that the ICN calls for, in a farm with icn.scheduler.mode = "paced", for at most `timeout`
    /// seconds. Returns its id; None if there was none in time. Raises RunOver when the run is over.
    #[pyo3(signature = (timeout = None))]
    fn next_heartbeat(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<u64>> {
        let timeout = wait::timeout(timeout)?;
        match self.with(py, timeout, Readout::next_heartbeat)? {
            Heartbeat::Tf(tf) => Ok(Some(tf.0)),
            Heartbeat::Nothing => Ok(None),
            Heartbeat::Over => Err(RunOver::new_err("the run is over")),
        }
    }

    /// Returns an iterator over the TFs that the ICN calls for, which ends with the run.
    fn heartbeats(slf: Py<Self>) -> Heartbeats {
        Heartbeats { source: slf }
    }

    /// Ends the source, and waits until each of its STFs is decided, for at most `timeout` seconds. Returns True if
    /// that has come. A second call does nothing.
    #[pyo3(signature = (timeout = None))]
    fn close(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        self.home.check("source")?;
        let timeout = wait::timeout(timeout)?;
        let mut signals = Signals::default();
        let closed = py.detach(|| {
            let readout = self
                .readout
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            let mut goes_on = || signals.look();
            readout.map(|readout| readout.close(Patience::new(timeout, &mut goes_on)))
        });
        match closed {
            None => Ok(true),
            Some(closed) => closed.map_err(|error| raised(&error, &mut signals)),
        }
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    /// After an exception the FLP drains without being waited for.
    #[pyo3(signature = (exception = None, *_args))]
    fn __exit__(
        &self,
        py: Python<'_>,
        exception: Option<&Bound<'_, PyAny>>,
        _args: &Bound<'_, PyTuple>,
    ) -> PyResult<()> {
        let timeout = exception.map(|_| 0.0);
        self.close(py, timeout).map(|_| ())
    }

    fn __repr__(&self) -> String {
        format!("<sheaf.Source of flp:{}>", self.flp)
    }
}

/// Iterator over the TFs that the ICN calls for.
#[pyclass(frozen, module = "sheaf")]
pub(crate) struct Heartbeats {
    source: Py<Source>,
}

#[pymethods]
impl Heartbeats {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        let source = self.source.get();
        match source.with(py, None, Readout::next_heartbeat)? {
            Heartbeat::Tf(tf) => Ok(Some(tf.0)),
            Heartbeat::Nothing | Heartbeat::Over => Ok(None),
        }
    }
}

/// Returns the buffers of `data`, which is one or a list of them, as bytes.
fn parts_of(data: &Bound<'_, PyAny>) -> PyResult<Vec<PyBuffer<u8>>> {
    let mut parts = Vec::new();
    if data.is_instance_of::<PyList>() || data.is_instance_of::<PyTuple>() {
        for item in data.try_iter()? {
            parts.extend(part_of(&item?)?);
        }
    } else {
        parts.extend(part_of(data)?);
    }
    Ok(parts)
}

/// Returns `data` as bytes; `None` if it has none.
fn part_of(data: &Bound<'_, PyAny>) -> PyResult<Option<PyBuffer<u8>>> {
    let view = PyMemoryView::from(data).map_err(|_| {
        let found = data.get_type().to_string();
        PyTypeError::new_err(format!(
            "found {found}, expected a buffer (bytes, bytearray, memoryview, NumPy array) or a list of buffers"
        ))
    })?;
    if view.getattr("nbytes")?.extract::<usize>()? == 0 {
        return Ok(None);
    }
    if !view.getattr("c_contiguous")?.extract::<bool>()? {
        return Err(PyValueError::new_err(
            "found a buffer that is not contiguous, such as a slice of an array with a step; expected one in order: \
             numpy.ascontiguousarray(array)",
        ));
    }
    let bytes = view.call_method1("cast", ("B",))?;
    PyBuffer::get(&bytes).map(Some)
}

/// Copies `parts` into `place`, one behind the other. They are locked: their length is that of before.
fn copy(py: Python<'_>, parts: &[PyBuffer<u8>], place: &mut [u8]) {
    let mut rest = place;
    for part in parts {
        let (front, behind) = rest.split_at_mut(part.len_bytes());
        part.copy_to_slice(py, front)
            .expect("a contiguous buffer of bytes of this length");
        rest = behind;
    }
}
