//! Locks that keep a second program off a folder.

use std::fs::{File, TryLockError};
use std::path::Path;

/// Lock on a file, released when this is dropped.
///
/// A process that is forked meanwhile has a copy of the open file until it executes its program. The lock is released
/// for all copies, so that it never outlives its owner by the time that takes.
#[derive(Debug)]
pub struct FileLock(File);

impl Drop for FileLock {
    fn drop(&mut self) {
        // If that fails, the lock ends with the last copy of the open file.
        let _ = self.0.unlock();
    }
}

/// Locks a file, which is made if it is not there, for as long as the result lives.
///
/// # Errors
///
/// [`TryLockError::WouldBlock`] if another process has the lock, or an error of the operating system.
pub fn lock_file(path: &Path) -> Result<FileLock, TryLockError> {
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(TryLockError::Error)?;
    file.try_lock()?;
    Ok(FileLock(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_with_its_owner_though_a_forked_process_has_the_file_open() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("lock");
        let lock = lock_file(&path).expect("free");
        let copy = lock.0.try_clone().expect("copied");
        assert!(matches!(lock_file(&path), Err(TryLockError::WouldBlock)));
        drop(lock);
        let again = lock_file(&path).expect("free again");
        drop((again, copy));
    }
}
