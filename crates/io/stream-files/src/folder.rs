//! Folder of a writer on some disk: that of the machine, or a simulated one.
//!
//! All that an engine and a recovery do to files goes through these two traits, step by step, so a simulation can let
//! each step fail, tear a write, or end the process between two of them.

use crate::label::Label;
use std::fmt;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// End of the name of a file that is not closed.
pub(crate) const PART: &str = ".part";

/// Bytes that are read and written again at once.
const REWRITE_BYTES: usize = 1 << 20;

/// Files of one folder, by their names.
pub trait Folder: fmt::Debug + Send + Sync {
    /// Makes a file that is not there; direct writes are tried if `is_direct`.
    ///
    /// # Errors
    ///
    /// [`AlreadyExists`](io::ErrorKind::AlreadyExists) if the name is taken, or an error of the operating system.
    fn create(&self, name: &str, is_direct: bool) -> io::Result<Box<dyn StoredFile>>;

    /// Opens a file for reading and cutting.
    ///
    /// # Errors
    ///
    /// Error of the operating system.
    fn open(&self, name: &str) -> io::Result<Box<dyn StoredFile>>;

    /// Returns whether a file, or anything else, has this name.
    ///
    /// # Errors
    ///
    /// Error of the operating system.
    fn exists(&self, name: &str) -> io::Result<bool>;

    /// Returns all names.
    ///
    /// # Errors
    ///
    /// Error of the operating system.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Renames a file to a name that no file has.
    ///
    /// # Errors
    ///
    /// [`AlreadyExists`](io::ErrorKind::AlreadyExists) if there is one: nothing is overwritten. Else an error of the
    /// operating system.
    fn rename_new(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    ///
    /// Error of the operating system.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes names survive a cut of power.
    ///
    /// # Errors
    ///
    /// Error of the operating system.
    fn sync(&self) -> io::Result<()>;

    /// Writes the checksums of a file that has its final name beside it, where programs look for them that do not read
    /// the catalogue.
    ///
    /// # Errors
    ///
    /// Error of the operating system; it can be tried again.
    fn label(&self, _label: &Label<'_>) -> io::Result<()> {
        Ok(())
    }

    /// Is called before each commit of the catalogue, which may be refused.
    ///
    /// # Errors
    ///
    /// Error that the commit shall have.
    fn before_commit(&self) -> io::Result<()> {
        Ok(())
    }

    /// Waits before a step that failed is tried again. Returns `false` if nothing will work any more.
    fn pause(&self, pause: Duration) -> bool {
        std::thread::park_timeout(pause);
        true
    }
}

/// File of a folder.
pub trait StoredFile: fmt::Debug + Send + Sync {
    /// Sets space aside for `bytes` bytes from `from`; the file gets so long.
    ///
    /// # Errors
    ///
    /// Error of the operating system.
    fn set_aside(&self, from: u64, bytes: u64) -> io::Result<()>;

    /// Writes all of `bytes` at `at`. `is_whole` says that they are whole blocks, aligned in the file and in memory.
    ///
    /// # Errors
    ///
    /// Error of the operating system; any part of the bytes may be written.
    fn write_at(&self, bytes: &[u8], at: u64, is_whole: bool) -> io::Result<()>;

    /// Returns the descriptor of the file for direct writes, if it has one.
    fn direct(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Begins to write a range out that was written through a cache, if there is one, and does not wait for it.
    fn begin_write_back(&self, _range: Range<u64>) {}

    /// Reads from `at`, and returns the number of bytes; 0 at the end of the file.
    ///
    /// # Errors
    ///
    /// Error of the operating system.
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize>;

    /// Returns the length of the file.
    ///
    /// # Errors
    ///
    /// Error of the operating system.
    fn bytes(&self) -> io::Result<u64>;

    /// Cuts the file behind `bytes`.
    ///
    /// # Errors
    ///
    /// Error of the operating system.
    fn cut(&self, bytes: u64) -> io::Result<()>;

    /// Makes content and length survive a cut of power. A kernel that has failed to write something out forgets so: a
    /// second call may succeed although nothing was written.
    ///
    /// # Errors
    ///
    /// Error of the operating system.
    fn sync(&self) -> io::Result<()>;
}

/// Writes bytes of a file again that the kernel may have in memory alone.
pub(crate) fn rewrite(file: &dyn StoredFile, range: Range<u64>) -> io::Result<()> {
    let mut bytes = vec![0; REWRITE_BYTES];
    let mut at = range.start;
    while at < range.end {
        let left = usize::try_from(range.end - at).unwrap_or(usize::MAX);
        let count = file.read_at(&mut bytes[..left.min(REWRITE_BYTES)], at)?;
        if count == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        file.write_at(&bytes[..count], at, false)?;
        at += count as u64;
    }
    Ok(())
}
