//! The program whose processes are the nodes of a farm.

use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;

type Find = Box<dyn Fn() -> io::Result<PathBuf> + Send + Sync>;

static FIND: OnceLock<Find> = OnceLock::new();

/// Makes [`this_program`] return what `find` does: the path of a program that does what this one does with the same
/// words.
///
/// For a process that is an interpreter, whose own path does not tell the program. The first call counts.
pub fn set_this_program(find: impl Fn() -> io::Result<PathBuf> + Send + Sync + 'static) {
    FIND.get_or_init(|| Box::new(find));
}

/// Returns the path of this program, to start it once more.
///
/// # Errors
///
/// If it cannot be found.
pub fn this_program() -> io::Result<PathBuf> {
    FIND.get().map_or_else(std::env::current_exe, |find| find())
}
