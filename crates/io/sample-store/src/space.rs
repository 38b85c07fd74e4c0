//! How much room is left on the disk of a store?

use std::io;
use std::path::Path;

/// Answers for free space; another implementation stands in for a disk that fills up.
pub trait Space: Send + Sync {
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
