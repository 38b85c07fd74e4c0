//! Error of the operating system, with the action that met it.

use std::io;
use thiserror::Error;

/// Refusal of the operating system: a file, a process, a socket or a system call.
#[derive(Debug, Error)]
#[error("cannot {what}: {source}")]
pub struct IoError {
    /// Action that failed.
    pub what: String,
    /// Error of the operating system.
    pub source: io::Error,
}

impl IoError {
    /// Returns a closure for `map_err`: the operating system refused `what`.
    pub fn of(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self { what, source }
    }
}
