//! Files of TFs.

use crate::errors::FileError;
use crate::tf::Tf;
use pyo3::prelude::*;
use sheaf_formats::tf_file::{NextTf, next_tf};
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The TFs of one file, in order: an iterator, which reads one at a time and compares every checksum.
#[pyclass(frozen, module = "sheaf")]
pub(crate) struct TfFile {
    path: PathBuf,
    reader: Mutex<(BufReader<File>, u64)>,
}

#[pymethods]
impl TfFile {
    /// Opens `path`: a file of the sinks `file` and `streams`. Raises FileError if it cannot be read.
    #[new]
    fn new(path: PathBuf) -> PyResult<Self> {
        let file = File::open(&path).map_err(|error| {
            FileError::new_err(format!("cannot read {}: {error}", path.display()))
        })?;
        let reader = Mutex::new((BufReader::with_capacity(1 << 20, file), 0));
        Ok(Self { path, reader })
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    /// Raises FileError where the bytes are no whole TF, with their offset.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Tf>> {
        let (next, offset) = py.detach(|| {
            let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
            let (reader, offset) = &mut *reader;
            let begin = *offset;
            let next = next_tf(reader);
            if let Ok(NextTf::Whole(_, bytes)) = &next {
                *offset += bytes;
            }
            (next, begin)
        });
        let path = self.path.display();
        match next {
            Ok(NextTf::Whole(tf, _)) => Ok(Some(Tf::own(tf))),
            Ok(NextTf::End) => Ok(None),
            Ok(NextTf::Broken(error)) => Err(FileError::new_err(format!(
                "{path}: byte {offset}: {error}"
            ))),
            Err(error) => Err(FileError::new_err(format!("cannot read {path}: {error}"))),
        }
    }

    fn __repr__(&self) -> String {
        format!("<sheaf.TfFile {}>", self.path.display())
    }
}
