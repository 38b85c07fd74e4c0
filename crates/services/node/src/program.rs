//! Program that a process runs: what it is, and how it is started once more.

use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Program that a process runs, as its page and its metrics tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Build {
    /// Version of the release.
    pub version: &'static str,
    /// Commit of the sources; `unknown` where they were no checkout.
    pub commit: &'static str,
}

impl Default for Build {
    fn default() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            commit: "unknown",
        }
    }
}

type Find = Box<dyn Fn() -> io::Result<PathBuf> + Send + Sync>;

static FIND: OnceLock<Find> = OnceLock::new();

/// Makes [`path`] return what `find` does: the path of a program that does what this one does with the same words.
///
/// For a process that is an interpreter, whose own path does not tell the program. The first call counts.
pub fn set_path(find: impl Fn() -> io::Result<PathBuf> + Send + Sync + 'static) {
    FIND.get_or_init(|| Box::new(find));
}

/// Returns the path of this program, to start it once more.
///
/// # Errors
///
/// If it cannot be found.
pub fn path() -> io::Result<PathBuf> {
    FIND.get().map_or_else(std::env::current_exe, |find| find())
}

/// Returns the path of this program, for another machine that is to have it.
///
/// # Errors
///
/// If it cannot be found, or is no file that runs elsewhere.
pub fn path_to_copy() -> io::Result<PathBuf> {
    if FIND.get().is_some() {
        let why =
            "found an interpreter that runs it, expected one file that runs on other machines";
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    std::env::current_exe()
}
