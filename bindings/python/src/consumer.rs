//! A consumer of one EPN.

use crate::Home;
use crate::errors::{self, ConsumerError};
use crate::tf::Tf;
use crate::wait;
use pyo3::prelude::*;
use sheaf_node::consume::{self, Next};
use std::os::fd::{AsRawFd as _, RawFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// A consumer of the sink `shm` of one EPN, on the same machine. Several processes can share an EPN: a TF goes to one
/// of them. It is an iterator over TFs, which ends when the EPN has ended and all that it had offered is taken.
#[pyclass(frozen, module = "sheaf")]
pub(crate) struct Consumer {
    path: PathBuf,
    home: Home,
    has_ended: AtomicBool,
    consumer: Mutex<Option<consume::Consumer>>,
    /// The TF whose turn it is.
    current: Mutex<Option<Py<Tf>>>,
}

/// Result of one look.
enum Looked {
    Tf(Tf),
    End,
    Closed,
}

impl Consumer {
    /// Returns the TF whose turn it is; there is none from now on.
    fn take_current(&self) -> Option<Py<Tf>> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.take()
    }

    /// Ends the turn of the TF before.
    fn end_turn(&self) {
        if let Some(tf) = self.take_current() {
            tf.get().end_turn();
        }
    }
}

#[pymethods]
impl Consumer {
    /// Connects to the EPN whose farm file has `path` as `epn.sink.path`; it has `timeout` seconds to answer. Raises
    /// ConsumerError if no EPN is there, or it runs as another user, or has as many consumers as it takes.
    #[new]
    #[pyo3(signature = (path, timeout = 5.0))]
    fn new(py: Python<'_>, path: PathBuf, timeout: f64) -> PyResult<Self> {
        let timeout = wait::timeout(Some(timeout))?.unwrap_or_default();
        let connected = py.detach(|| consume::Consumer::connect(&path, timeout));
        let consumer = connected.map_err(|error| errors::of_consumer(&error))?;
        Ok(Self {
            path,
            home: Home::here(),
            has_ended: AtomicBool::new(false),
            consumer: Mutex::new(Some(consumer)),
            current: Mutex::new(None),
        })
    }

    /// Waits for the next TF for at most `timeout` seconds, for ever without one. Returns None if there was none in
    /// time, or the EPN has ended (`ended` is True then). The TF before goes back, unless it was kept.
    #[pyo3(signature = (timeout = None))]
    fn next(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Py<Tf>>> {
        self.home.check("consumer")?;
        let timeout = wait::timeout(timeout)?;
        self.end_turn();
        let looked = wait::until(py, timeout, errors::of_consumer, |slice| {
            let mut consumer = self.consumer.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(consumer) = &mut *consumer else {
                return Ok(Some(Looked::Closed));
            };
            Ok(match consumer.next(Some(slice))? {
                Next::Tf(lent) => Some(Looked::Tf(Tf::lent(lent))),
                Next::Nothing => None,
                Next::End => Some(Looked::End),
            })
        })?;
        match looked {
            Some(Looked::Tf(tf)) => {
                let tf = Py::new(py, tf)?;
                let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
                *current = Some(tf.clone_ref(py));
                Ok(Some(tf))
            }
            Some(Looked::End) => {
                self.has_ended.store(true, Ordering::Relaxed);
                Ok(None)
            }
            Some(Looked::Closed) if !self.ended() => {
                Err(ConsumerError::new_err("the consumer is closed"))
            }
            Some(Looked::Closed) | None => Ok(None),
        }
    }

    /// True when the EPN has ended, and all that it had offered is taken.
    #[getter]
    fn ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// Returns a descriptor that becomes readable when there is a TF after `next` has returned None, for select and
    /// asyncio; -1 if the consumer is closed.
    fn fileno(&self) -> RawFd {
        let consumer = self.consumer.lock().unwrap_or_else(PoisonError::into_inner);
        consumer
            .as_ref()
            .map_or(-1, |consumer| consumer.socket().as_raw_fd())
    }

    /// Leaves the EPN. What was offered to this consumer goes to another one; TFs that it has given stay valid for as
    /// long as something refers to them.
    fn close(&self) {
        self.take_current();
        let mut consumer = self.consumer.lock().unwrap_or_else(PoisonError::into_inner);
        drop(consumer.take());
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<Tf>>> {
        self.next(py, None)
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, _args: &Bound<'_, pyo3::types::PyTuple>) {
        self.close();
    }

    fn __repr__(&self) -> String {
        format!("<sheaf.Consumer of {}>", self.path.display())
    }
}
