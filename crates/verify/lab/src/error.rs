//! Errors of experiments.

mod host;

pub use host::HostError;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why an experiment could not be made. What a farm does wrong under a fault is a result, not an error.
#[derive(Debug, Error)]
pub enum LabError {
    /// Somebody asked to end. Everything that was changed on the machine is undone.
    #[error("asked to end")]
    Interrupted,
    /// A file, a process or a socket.
    #[error("cannot {what}: {source}")]
    Io {
        /// Action that failed.
        what: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A process that does not start.
    #[error(transparent)]
    Start(#[from] sheaf_farm::StartError),
    /// A tool of the system did not do its work.
    #[error("`{command}` ended with {status}: {stderr}")]
    Tool {
        /// Command line.
        command: String,
        /// How it ended.
        status: String,
        /// Standard error of the command.
        stderr: String,
    },
    /// The farm did not come to where the experiment begins.
    #[error("{0}")]
    Farm(String),
    /// There is no such cell.
    #[error("cell {found:?} does not exist, expected one of: {known}")]
    Cell {
        /// The name found.
        found: String,
        /// All names.
        known: String,
    },
    /// A file cannot be used.
    #[error(transparent)]
    Input(#[from] crate::input::InputError),
    /// A host is not as it has to be.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A figure cannot be drawn.
    #[error(transparent)]
    Plot(#[from] sheaf_figures::plot::PlotError),
    /// A folder of results that is none, or belongs to something else. Nothing in it was changed.
    #[error("{}: {why}", folder.display())]
    Results {
        /// The folder.
        folder: PathBuf,
        /// Reason of the refusal.
        why: String,
    },
    /// Results of which no point was both measured and simulated.
    #[error(
        "{}: found {live} live and {simulated} simulated points, expected two of a kind that ask the same",
        folder.display()
    )]
    Unpaired {
        /// The folder.
        folder: PathBuf,
        /// Live points in it.
        live: usize,
        /// Simulated ones.
        simulated: usize,
    },
    /// Something that the machine lacks, where skipping is not allowed.
    #[error("this cannot run here: {0}")]
    Missing(String),
}

impl LabError {
    /// For `map_err`: the operating system refused `what`.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
