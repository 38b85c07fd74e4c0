//! Locks that keep a second program off a folder.

use std::fs::{File, TryLockError};
use std::path::Path;

/// Locks a file, which is made if it is not there, for as long as the result lives.
///
/// # Errors
///
/// [`TryLockError::WouldBlock`] if another process has the lock, or an error of the operating system.
pub fn lock_file(path: &Path) -> Result<File, TryLockError> {
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(TryLockError::Error)?;
    file.try_lock()?;
    Ok(file)
}
