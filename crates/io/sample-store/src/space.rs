//! The disk of a store, as far as it may refuse: how much room is left, and each step that changes files.

use std::io;
use std::path::Path;

/// A step that changes what is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// A file of the log begins, and its name is made durable.
    LogBegin(&'a Path),
    /// Bytes are written behind the first `length` of a file of the log.
    LogWrite {
        /// The file.
        file: &'a Path,
        /// Bytes that it has.
        length: u64,
    },
    /// A file of the log is synced: its bytes survive a loss of power from then on.
    LogSync(&'a Path),
    /// A file of the log is cut to so many bytes, and synced.
    LogCut {
        /// The file.
        file: &'a Path,
        /// Bytes that stay.
        length: u64,
    },
    /// A file of the log is removed; its name may come back after a loss of power.
    LogRemove(&'a Path),
    /// Records go into the table of this name, durable when the step is done.
    Tables(&'a str),
    /// The table of this name is removed with all its records.
    TableRemove(&'a str),
}

/// Answers of a disk; another implementation stands in for one that fills up, is slow, or loses power.
pub trait Space: Send + Sync {
    /// Called before each step. An error is the answer of the disk, and the step does not happen; of `LogSync` it is
    /// the answer to the sync of bytes that were written.
    ///
    /// # Errors
    ///
    /// Whatever the disk answers.
    fn before(&self, _step: Step<'_>) -> io::Result<()> {
        Ok(())
    }

    /// Returns the bytes that this process may still write in `dir`.
    ///
    /// # Errors
    ///
    /// If the operating system does not tell.
    fn free_bytes(&self, dir: &Path) -> io::Result<u64>;
}

/// The file system that a directory is on.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileSystem;

impl Space for FileSystem {
    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        let found = rustix::fs::statvfs(dir)?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }
}
