//! Waits that release the GIL and end at an interrupt.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::time::{Duration, Instant};

/// Longest wait between two looks at signals.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Returns a timeout of Python in seconds as a time; `None` waits for ever.
pub(crate) fn timeout(seconds: Option<f64>) -> PyResult<Option<Duration>> {
    let Some(seconds) = seconds else {
        return Ok(None);
    };
    let timeout = Duration::try_from_secs_f64(seconds).map_err(|_| {
        PyValueError::new_err(format!(
            "found timeout={seconds}, expected seconds from 0 on, or None to wait for ever"
        ))
    })?;
    Ok(Some(timeout))
}

/// Looks at signals from within a wait that has released the GIL; keeps the exception that a handler has raised.
#[derive(Default)]
pub(crate) struct Signals(Option<PyErr>);

impl Signals {
    /// Returns whether the wait may go on.
    pub(crate) fn look(&mut self) -> bool {
        self.0 = Python::attach(|py| py.check_signals()).err();
        self.0.is_none()
    }

    /// Returns the exception, if there was one.
    pub(crate) fn take(&mut self) -> Option<PyErr> {
        self.0.take()
    }
}

/// Calls `step` with the time that it may wait, without the GIL, until it gives something or `timeout` is over.
pub(crate) fn until<T: Send, E: Send>(
    py: Python<'_>,
    timeout: Option<Duration>,
    raise: impl Fn(&E) -> PyErr,
    mut step: impl FnMut(Duration) -> Result<Option<T>, E> + Send,
) -> PyResult<Option<T>> {
    let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let slice = left.unwrap_or(LOOK_EVERY).min(LOOK_EVERY);
        let given = py.detach(|| step(slice)).map_err(|error| raise(&error))?;
        if given.is_some() || left.is_some_and(|left| left <= slice) {
            return Ok(given);
        }
        py.check_signals()?;
    }
}
