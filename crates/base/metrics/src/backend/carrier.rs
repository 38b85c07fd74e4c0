//! Ways of payloads to a back end: datagrams, streams, the standard output.
//!
//! A carrier may wait, but only for a bounded time: it has a thread of its own.

use std::io::{self, Write};
use std::net::{TcpStream, ToSocketAddrs, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

/// Time for a connection to come about.
pub(super) const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// Time for a payload to be taken.
pub(super) const SEND_WITHIN: Duration = Duration::from_secs(5);
/// Time for a datagram to be taken by a local receiver whose queue is full.
const DATAGRAM_WITHIN: Duration = Duration::from_millis(100);

/// Way to a back end.
pub(crate) trait Carrier: Send {
    /// Sends a payload. After an error the next call begins from the start.
    fn send(&mut self, payload: &[u8]) -> Result<(), CarryError>;
}

/// Why a payload was not sent.
#[derive(Debug, Error)]
pub(crate) enum CarryError {
    /// Lost: a datagram is not sent again.
    #[error("{0}")]
    Lost(io::Error),
    /// Another attempt may succeed.
    #[error("{0}")]
    Later(String),
    /// The back end does not take this payload, now or later.
    #[error("{0}")]
    Refused(String),
}

/// Datagrams over UDP. The name of the host is looked up again after an error.
#[derive(Debug)]
pub(crate) struct Udp {
    address: String,
    socket: Option<UdpSocket>,
}

impl Udp {
    pub(crate) fn new(address: String) -> Self {
        Self {
            address,
            socket: None,
        }
    }

    fn open(address: &str) -> io::Result<UdpSocket> {
        let target = first(address)?;
        let any = if target.is_ipv4() {
            "0.0.0.0:0"
        } else {
            "[::]:0"
        };
        let socket = UdpSocket::bind(any)?;
        // Connected, so that the kernel says when nothing listens there.
        socket.connect(target)?;
        socket.set_write_timeout(Some(DATAGRAM_WITHIN))?;
        Ok(socket)
    }
}

impl Carrier for Udp {
    fn send(&mut self, payload: &[u8]) -> Result<(), CarryError> {
        let open = || Self::open(&self.address);
        send_datagram(&mut self.socket, open, |socket| socket.send(payload))
    }
}

/// Sends a datagram over the socket in `slot`, which is opened if there is none. A socket that failed is not kept.
fn send_datagram<S>(
    slot: &mut Option<S>,
    open: impl FnOnce() -> io::Result<S>,
    send: impl FnOnce(&S) -> io::Result<usize>,
) -> Result<(), CarryError> {
    let socket = slot.take().map_or_else(open, Ok);
    let socket = socket.map_err(CarryError::Lost)?;
    send(&socket).map_err(CarryError::Lost)?;
    *slot = Some(socket);
    Ok(())
}

/// Datagrams to a Unix socket. A receiver that was started again is found by its path.
#[derive(Debug)]
pub(crate) struct Unix {
    path: PathBuf,
    socket: Option<UnixDatagram>,
}

impl Unix {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, socket: None }
    }

    fn open(path: &Path) -> io::Result<UnixDatagram> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        socket.set_write_timeout(Some(DATAGRAM_WITHIN))?;
        Ok(socket)
    }
}

impl Carrier for Unix {
    fn send(&mut self, payload: &[u8]) -> Result<(), CarryError> {
        let open = || Self::open(&self.path);
        send_datagram(&mut self.socket, open, |socket| socket.send(payload))
    }
}

/// Stream over TCP.
#[derive(Debug)]
pub(crate) struct Tcp {
    address: String,
    stream: Option<TcpStream>,
}

impl Tcp {
    pub(crate) fn new(address: String) -> Self {
        Self {
            address,
            stream: None,
        }
    }

    fn open(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&first(&self.address)?, CONNECT_WITHIN)?;
        stream.set_write_timeout(Some(SEND_WITHIN))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

impl Carrier for Tcp {
    fn send(&mut self, payload: &[u8]) -> Result<(), CarryError> {
        let later = |error: io::Error| CarryError::Later(error.to_string());
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.open().map_err(later)?,
        };
        // A payload that was cut is sent again as a whole: the same samples twice are harmless.
        stream.write_all(payload).map_err(later)?;
        self.stream = Some(stream);
        Ok(())
    }
}

/// Standard output of the process.
#[derive(Debug)]
pub(crate) struct Stdout;

impl Carrier for Stdout {
    fn send(&mut self, payload: &[u8]) -> Result<(), CarryError> {
        let mut out = io::stdout().lock();
        let written = out.write_all(payload).and_then(|()| out.flush());
        written.map_err(CarryError::Lost)
    }
}

/// First address of a host and port.
fn first(address: &str) -> io::Result<std::net::SocketAddr> {
    let none = || {
        let text = format!("found no address of {address}");
        io::Error::new(io::ErrorKind::NotFound, text)
    };
    address.to_socket_addrs()?.next().ok_or_else(none)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;

    #[test]
    fn udp_carries_datagrams_as_they_are() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut udp = Udp::new(receiver.local_addr().unwrap().to_string());
        let mut buffer = [0; 100];
        for payload in [&b"one"[..], b"two two"] {
            udp.send(payload).unwrap();
            let length = receiver.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], payload);
        }
    }

    #[test]
    fn a_unix_receiver_that_comes_back_is_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let mut unix = Unix::new(path.clone());
        assert!(matches!(unix.send(b"x"), Err(CarryError::Lost(_))));
        for _ in 0..2 {
            let receiver = UnixDatagram::bind(&path).unwrap();
            // The first attempt after the restart meets the old socket.
            let _ = unix.send(b"old");
            unix.send(b"new").unwrap();
            let mut buffer = [0; 10];
            let mut length = receiver.recv(&mut buffer).unwrap();
            if &buffer[..length] == b"old" {
                length = receiver.recv(&mut buffer).unwrap();
            }
            assert_eq!(&buffer[..length], b"new");
            drop(receiver);
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_stream_is_connected_anew_after_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut tcp = Tcp::new(listener.local_addr().unwrap().to_string());
        let mut buffer = [0; 4];
        tcp.send(b"one\n").unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut buffer).unwrap();
        drop(stream);
        // The kernel tells of the end by an error, at one of the next payloads.
        while tcp.send(b"two\n").is_ok() {}
        tcp.send(b"six\n").unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut buffer).unwrap();
        assert_eq!(&buffer, b"six\n");
    }
}
