//! Interface to the files of one directory, with as few operations as a log needs.

use std::io;
use std::path::PathBuf;

/// A directory of files with plain names. Clones are the same directory.
///
/// A write is durable when [`sync`](Self::sync) of the file, and for its name
/// [`sync_names`](Self::sync_names), have returned; until then a power failure may keep any part of it.
pub trait Disk: Clone + Send + 'static {
    /// Returns the names of all files, in any order.
    ///
    /// # Errors
    ///
    /// The error of the system, here and in all others.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Returns up to `bytes_max` bytes from `offset`; fewer only at the end of the file.
    ///
    /// # Errors
    ///
    /// [`NotFound`](io::ErrorKind::NotFound) if there is no such file.
    fn read_at(&self, name: &str, offset: u64, bytes_max: usize) -> io::Result<Vec<u8>>;

    /// Writes all of `bytes` at `offset`; creates the file if there is none. A failed write may leave some of it.
    ///
    /// # Errors
    ///
    /// Also when only a part could be written.
    fn write_at(&self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes the content of the file durable. After an error the state of all writes since the last sync is unknown.
    ///
    /// # Errors
    ///
    /// Also for writes of the past that could not reach the disk.
    fn sync(&self, name: &str) -> io::Result<()>;

    /// Cuts the file to `bytes`.
    ///
    /// # Errors
    ///
    /// As [`sync`](Self::sync).
    fn truncate(&self, name: &str, bytes: u64) -> io::Result<()>;

    /// Renames a file; a file of the new name is replaced atomically.
    ///
    /// # Errors
    ///
    /// As [`sync`](Self::sync).
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file; it is no error if there is none.
    ///
    /// # Errors
    ///
    /// As [`sync`](Self::sync).
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes new names, renames and removals durable.
    ///
    /// # Errors
    ///
    /// As [`sync`](Self::sync).
    fn sync_names(&self) -> io::Result<()>;

    /// Returns the path of the file, for people.
    fn path(&self, name: &str) -> PathBuf;
}
