//! The Python package `sheaf`: sources, consumers and readers of files, as classes.
//!
//! Python names are those of Rust, with one file for a type. The GIL is released wherever a call waits; waits without a
//! bound look at signals 20 times a second, so that an interrupt ends them.

#![expect(
    clippy::needless_pass_by_value,
    reason = "arguments of functions for Python are converted into values"
)]
#![expect(
    clippy::redundant_closure_for_method_calls,
    reason = "a method of Python<'_> is one of a single lifetime, and attach takes one of any"
)]

mod consumer;
mod errors;
mod file;
mod format;
mod part;
mod policy;
mod program;
mod simulate;
mod source;
mod tf;
mod wait;

use pyo3::prelude::*;

/// Native part of the package `sheaf`; its names are documented in the package.
#[pymodule(name = "_sheaf")]
mod module {
    #[pymodule_export]
    use crate::consumer::Consumer;
    #[pymodule_export]
    use crate::errors::{
        BadConfig, ConsumerError, FileError, ForkError, PolicyError, ReturnedError, RunOver,
        SheafError, SourceError,
    };
    #[pymodule_export]
    use crate::file::TfFile;
    #[pymodule_export]
    use crate::part::Part;
    #[pymodule_export]
    use crate::policy::{PyJob, PyTarget, PyTargets};
    #[pymodule_export]
    use crate::program::{check_policy, register_policy, run_words};
    #[pymodule_export]
    use crate::simulate::{points_of, simulate_point};
    #[pymodule_export]
    use crate::source::Source;
    #[pymodule_export]
    use crate::tf::Tf;

    use pyo3::prelude::*;
    use tracing_subscriber::filter::LevelFilter;

    /// Writes log lines of nodes in this process to the standard error, from `level` on: error, warn, info, debug or
    /// trace.
    #[pyfunction]
    fn log_to_stderr(level: &str) -> PyResult<()> {
        let parsed: Result<LevelFilter, _> = level.parse();
        let level = parsed.map_err(|_| {
            pyo3::exceptions::PyValueError::new_err(format!(
                "found level {level:?}, expected one of: error warn info debug trace off"
            ))
        })?;
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_writer(std::io::stderr);
        subscriber.try_init().map_err(|_| {
            pyo3::exceptions::PyRuntimeError::new_err(
                "the log of this process has its level already",
            )
        })
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

/// Process that an object was made in, and refuses to be used in another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home(u32);

impl Home {
    /// Returns this process.
    pub(crate) fn here() -> Self {
        Self(std::process::id())
    }

    /// Raises `ForkError` in another process than that of `what`: threads and sockets of it are not there.
    pub(crate) fn check(self, what: &str) -> PyResult<()> {
        let here = std::process::id();
        if self.0 == here {
            return Ok(());
        }
        Err(errors::ForkError::new_err(format!(
            "the {what} was made in process {}, and this is process {here}: a fork copies neither its threads nor its \
             place in the farm. Make it in the process that uses it, as multiprocessing does with the start method \
             \"spawn\"",
            self.0
        )))
    }
}
