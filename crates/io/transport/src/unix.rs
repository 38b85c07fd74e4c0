//! A Unix socket that leaves no file behind and is not kept out by one that a crash has left.

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Bytes of the longest path of a Unix socket: its address (`sockaddr_un`) has 108, the last of which is zero.
pub const PATH_BYTES_MAX: usize = 107;

/// Prefix of the address of a Unix socket.
pub(crate) const PREFIX: &str = "unix:";

/// Connections that may wait to be accepted, as std has it for streams.
const BACKLOG: i32 = 128;

/// Error of a path behind `unix:` that other nodes could not use.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UnixPathError {
    /// Other processes have other working directories.
    #[error("a path that does not begin with \"/\"")]
    Relative,
    /// Path that does not fit the address of a socket.
    #[error("a path of {found} bytes, more than the {PATH_BYTES_MAX} of a Unix socket")]
    TooLong {
        /// Length in bytes.
        found: usize,
    },
    /// Addresses stand in lists and in lines of text.
    #[error("a path with {found:?}")]
    Character {
        /// The first character that is not allowed.
        found: char,
    },
}

impl UnixPathError {
    /// Allowed form, for messages.
    pub const EXPECTED: &str =
        "unix:PATH, an absolute path of at most 107 letters, digits and ./_-+@=~:";
}

/// Returns the path of the address of a Unix socket; `None` if `text` is another kind of address.
///
/// # Errors
///
/// [`UnixPathError`] if it begins like one and other nodes could not use it.
pub fn unix_path(text: &str) -> Option<Result<&Path, UnixPathError>> {
    let path = text.strip_prefix(PREFIX)?;
    let allowed = |c: &char| c.is_ascii_alphanumeric() || "./_-+@=~:".contains(*c);
    Some(if !path.starts_with('/') {
        Err(UnixPathError::Relative)
    } else if path.len() > PATH_BYTES_MAX {
        Err(UnixPathError::TooLong { found: path.len() })
    } else if let Some(found) = path.chars().find(|c| !allowed(c)) {
        Err(UnixPathError::Character { found })
    } else {
        Ok(Path::new(path))
    })
}

/// Error of binding a Unix socket.
#[derive(Debug, Error)]
pub enum UnixBindError {
    /// The path does not fit the address of a socket. A shorter one does.
    #[error("the path has {found} bytes, a Unix socket has at most {PATH_BYTES_MAX}")]
    TooLong {
        /// Length in bytes.
        found: usize,
    },
    /// Missing folder of the socket. It is not created, because its owner decides which users can connect.
    #[error("there is no folder {}", folder.display())]
    NoFolder {
        /// The folder.
        folder: PathBuf,
    },
    /// Another process, or this one, listens there.
    #[error("another process listens there")]
    Taken,
    /// Something that is no socket has the name. It stays.
    #[error("a file is there that is no socket")]
    NotASocket,
    /// The operating system refuses.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<UnixBindError> for io::Error {
    fn from(error: UnixBindError) -> Self {
        let kind = match &error {
            UnixBindError::Io(_) => None,
            UnixBindError::TooLong { .. } => Some(io::ErrorKind::InvalidInput),
            UnixBindError::NoFolder { .. } => Some(io::ErrorKind::NotFound),
            UnixBindError::Taken | UnixBindError::NotASocket => Some(io::ErrorKind::AddrInUse),
        };
        match (kind, error) {
            (None, UnixBindError::Io(error)) => error,
            (kind, error) => Self::new(kind.unwrap_or(io::ErrorKind::Other), error),
        }
    }
}

/// Listens at a path, and takes the path away when it is dropped.
#[derive(Debug)]
pub struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the socket, to know it from one that another process has put there since.
    file: (u64, u64),
}

impl UnixSocket {
    /// Listens at `path`. A socket there without a listener is replaced.
    ///
    /// # Errors
    ///
    /// [`UnixBindError`]; whatever lies at `path` then stays.
    pub fn bind(path: &Path) -> Result<Self, UnixBindError> {
        Self::bind_with(path, |path| UnixListener::bind(path))
    }

    /// As [`bind`](Self::bind), for sockets that keep packets apart (`SOCK_SEQPACKET`).
    ///
    /// # Errors
    ///
    /// As [`bind`](Self::bind).
    pub fn bind_packets(path: &Path) -> Result<Self, UnixBindError> {
        Self::bind_with(path, |path| {
            let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
            let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
            rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
            rustix::net::listen(&socket, BACKLOG)?;
            Ok(socket.into())
        })
    }

    fn bind_with(
        path: &Path,
        open: impl Fn(&Path) -> io::Result<UnixListener>,
    ) -> Result<Self, UnixBindError> {
        let found = path.as_os_str().len();
        if found > PATH_BYTES_MAX {
            return Err(UnixBindError::TooLong { found });
        }
        let bound = match open(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                make_way(path)?;
                open(path)
            }
            bound => bound,
        };
        let listener = bound.map_err(|error| match (error.kind(), path.parent()) {
            (io::ErrorKind::AddrInUse, _) => UnixBindError::Taken,
            (io::ErrorKind::NotFound, Some(folder)) if !folder.exists() => {
                let folder = folder.to_owned();
                UnixBindError::NoFolder { folder }
            }
            _ => error.into(),
        })?;
        listener.set_nonblocking(true)?;
        let found = std::fs::symlink_metadata(path)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            file: (found.dev(), found.ino()),
        })
    }

    /// Returns the next connection, if there is one now. Its reads and writes block.
    ///
    /// # Errors
    ///
    /// Error of the operating system, [`WouldBlock`](io::ErrorKind::WouldBlock) if no connection waits.
    pub fn accept(&self) -> io::Result<UnixStream> {
        Ok(self.listener.accept()?.0)
    }

    /// Returns where it listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
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

/// Takes away a socket that a dead process has left.
fn make_way(path: &Path) -> Result<(), UnixBindError> {
    let found = match std::fs::symlink_metadata(path) {
        Ok(found) => found,
        // The listener has gone meanwhile, and has removed the file.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if !found.file_type().is_socket() {
        return Err(UnixBindError::NotASocket);
    }
    if !is_left_over(path)? {
        return Err(UnixBindError::Taken);
    }
    Ok(std::fs::remove_file(path)?)
}

/// Returns whether no process has the socket at `path`.
///
/// Asked with a socket of another type, which a listener refuses without hearing of it; one that is bound and does not
/// listen yet would refuse a stream like one without a listener.
fn is_left_over(path: &Path) -> io::Result<bool> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let asks = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    match rustix::net::connect(&asks, &SocketAddrUnix::new(path)?) {
        Err(Errno::CONNREFUSED) => Ok(true),
        // A file of another user says nothing about who listens.
        Err(error @ (Errno::ACCESS | Errno::PERM)) => Err(error.into()),
        Ok(()) | Err(_) => Ok(false),
    }
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
        assert!(matches!(taken, UnixBindError::Taken), "{taken}");
        // The listener does not notice the probe.
        let empty = socket.accept().unwrap_err();
        assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn what_is_not_ours_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        std::fs::write(&path, "a file").unwrap();
        let refused = UnixSocket::bind(&path).unwrap_err();
        assert!(matches!(refused, UnixBindError::NotASocket), "{refused}");
        assert_eq!(std::fs::read(&path).unwrap(), b"a file");
        std::fs::remove_file(&path).unwrap();
        let socket = UnixSocket::bind(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "another").unwrap();
        drop(socket);
        assert!(path.exists());
    }

    #[test]
    fn a_path_that_cannot_be_is_refused_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("no").join("s");
        let refused = UnixSocket::bind(&missing).unwrap_err().to_string();
        let expected = format!("there is no folder {}/no", folder.path().display());
        assert_eq!(refused, expected);
        let longest = |bytes: usize| {
            let rest = bytes - folder.path().as_os_str().len() - 1;
            folder.path().join("s".repeat(rest))
        };
        UnixSocket::bind(&longest(107)).unwrap();
        let refused = UnixSocket::bind(&longest(108)).unwrap_err().to_string();
        let expected = "the path has 108 bytes, a Unix socket has at most 107";
        assert_eq!(refused, expected);
    }
}
