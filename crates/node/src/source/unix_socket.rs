//! A Unix socket that leaves no file behind and is not kept out by one that a crash has left.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Listens at a path, and takes the path away when it is dropped.
#[derive(Debug)]
pub(crate) struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the socket, to know it from one that another process has put there since.
    file: (u64, u64),
}

impl UnixSocket {
    /// Listens at `path`. A socket there that nobody listens at is replaced.
    ///
    /// # Errors
    ///
    /// What the operating system says; [`io::ErrorKind::AddrInUse`] if somebody listens there, or if the file
    /// there is no socket.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_left_over(path) => {
                std::fs::remove_file(path)?;
                UnixListener::bind(path)
            }
            bound => bound,
        }?;
        listener.set_nonblocking(true)?;
        let found = std::fs::symlink_metadata(path)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            file: (found.dev(), found.ino()),
        })
    }

    /// The next connection, if there is one now. Its reads and writes block.
    pub(crate) fn accept(&self) -> io::Result<UnixStream> {
        Ok(self.listener.accept()?.0)
    }
}

impl AsFd for UnixSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        if let Ok(found) = std::fs::symlink_metadata(&self.path)
            && (found.dev(), found.ino()) == self.file
        {
            // A file that cannot be removed is replaced by the next one who listens there.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn is_left_over(path: &Path) -> bool {
    let is_socket =
        std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    is_socket
        && UnixStream::connect(path)
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_left_over_socket_is_replaced_and_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let socket = UnixSocket::bind(&path).unwrap();
        let taken = UnixSocket::bind(&path).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn what_is_not_ours_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        std::fs::write(&path, "a file").unwrap();
        assert_eq!(
            UnixSocket::bind(&path).unwrap_err().kind(),
            io::ErrorKind::AddrInUse
        );
        std::fs::remove_file(&path).unwrap();
        let socket = UnixSocket::bind(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "another").unwrap();
        drop(socket);
        assert!(path.exists());
    }
}
