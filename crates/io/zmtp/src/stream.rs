//! The sockets of the operating system beneath: TCP or Unix, none of which ever waits.

use crate::endpoint::Endpoint;
use rustix::net::Shutdown;
use socket2::{Domain, SockRef, TcpKeepalive, Type};
use std::io::{self, IoSlice, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A peer that is gone without a word is noticed after this much silence, and three probes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 3;
/// Connections that wait to be accepted. A farm of 268 FLPs connects at once.
const BACKLOG: i32 = 1024;

/// One connection.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Begins to connect to `address`. Whether it stands is known when it can be written to.
    pub(crate) fn begin(address: SocketAddr, buffer_bytes: Option<usize>) -> io::Result<Self> {
        let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        prepare(&SockRef::from(&socket), buffer_bytes)?;
        match socket.connect(&address.into()) {
            Err(error)
                if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) =>
            {
                Err(error)
            }
            _ => Ok(Self::Tcp(socket.into())),
        }
    }

    /// Connects to the Unix socket at `path`.
    pub(crate) fn unix(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_nonblocking(true)?;
        Ok(Self::Unix(stream))
    }

    /// Returns what went wrong while it connected, if anything did.
    pub(crate) fn take_error(&self) -> io::Result<()> {
        let error = match self {
            Self::Tcp(stream) => stream.take_error()?,
            Self::Unix(stream) => stream.take_error()?,
        };
        error.map_or(Ok(()), Err)
    }

    /// Tells the peer that nothing more comes.
    pub(crate) fn end(&self) {
        // A peer that is gone need not be notified.
        let _ = rustix::net::shutdown(self, Shutdown::Write);
    }
}

/// Options of every TCP connection.
fn prepare(socket: &SockRef<'_>, buffer_bytes: Option<usize>) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    socket.set_tcp_keepalive(&keepalive)?;
    if let Some(bytes) = buffer_bytes {
        socket.set_send_buffer_size(bytes)?;
        socket.set_recv_buffer_size(bytes)?;
    }
    Ok(())
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write_vectored(slices),
            Self::Unix(stream) => stream.write_vectored(slices),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A place where peers connect to.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp {
        listener: TcpListener,
        buffer_bytes: Option<usize>,
    },
    Unix {
        listener: UnixListener,
        path: PathBuf,
        /// Device and inode of the socket, to know it from one that another process has put there since.
        file: (u64, u64),
    },
}

impl Listener {
    /// Listens at `endpoint`. A Unix socket there without a listener is replaced.
    pub(crate) fn bind(endpoint: &Endpoint, buffer_bytes: Option<usize>) -> io::Result<Self> {
        match endpoint {
            Endpoint::Tcp { host, port } => {
                let mut last = io::ErrorKind::NotFound.into();
                for address in Endpoint::resolve(host, *port)? {
                    match bind_tcp(address) {
                        Ok(listener) => {
                            return Ok(Self::Tcp {
                                listener,
                                buffer_bytes,
                            });
                        }
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
            Endpoint::Ipc(path) => {
                let listener = match UnixListener::bind(path) {
                    Err(error)
                        if error.kind() == io::ErrorKind::AddrInUse && is_left_over(path) =>
                    {
                        std::fs::remove_file(path)?;
                        UnixListener::bind(path)
                    }
                    bound => bound,
                }?;
                listener.set_nonblocking(true)?;
                let found = std::fs::symlink_metadata(path)?;
                Ok(Self::Unix {
                    listener,
                    path: path.clone(),
                    file: (found.dev(), found.ino()),
                })
            }
        }
    }

    /// Returns where it listens, with the actual port.
    pub(crate) fn endpoint(&self) -> io::Result<Endpoint> {
        match self {
            Self::Tcp { listener, .. } => Ok(listener.local_addr()?.into()),
            Self::Unix { path, .. } => Ok(Endpoint::Ipc(path.clone())),
        }
    }

    /// Returns the next peer and who it is, if there is one now.
    pub(crate) fn accept(&self) -> io::Result<(Stream, String)> {
        match self {
            Self::Tcp {
                listener,
                buffer_bytes,
            } => {
                let (stream, peer) = listener.accept()?;
                stream.set_nonblocking(true)?;
                prepare(&SockRef::from(&stream), *buffer_bytes)?;
                Ok((Stream::Tcp(stream), Endpoint::from(peer).to_string()))
            }
            Self::Unix { listener, path, .. } => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok((
                    Stream::Unix(stream),
                    format!("a process at {}", path.display()),
                ))
            }
        }
    }
}

fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp { listener, .. } => listener.as_fd(),
            Self::Unix { listener, .. } => listener.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix { path, file, .. } = self
            && let Ok(found) = std::fs::symlink_metadata(&*path)
            && (found.dev(), found.ino()) == *file
        {
            // A file that cannot be removed is replaced by the next one who listens there.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn is_left_over(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
        && UnixStream::connect(path)
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}
