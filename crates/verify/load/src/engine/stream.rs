//! Connection of a client: a socket, with TLS on it or not.

use super::socket::{self, BAD_TLS};
use crate::plan::{Load, Target};
use rustix::io::Errno;
use rustls::ClientConnection;
use rustls::client::ClientConfig;
use rustls::pki_types::ServerName;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Connection of a client.
#[derive(Debug)]
pub(super) struct Stream {
    socket: OwnedFd,
    tls: Option<Box<ClientConnection>>,
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Stream {
    /// Begins a connection to `target`, with TLS by `config` if it asks for it.
    pub(super) fn connect(
        target: &Target,
        load: &Load,
        config: Option<&Arc<ClientConfig>>,
    ) -> Result<Self, Errno> {
        let tls = match config.filter(|_| target.is_tls) {
            None => None,
            Some(config) => {
                let name = ServerName::try_from(target.name().to_owned()).map_err(|_| BAD_TLS)?;
                let connection = ClientConnection::new(config.clone(), name);
                Some(Box::new(connection.map_err(|_| BAD_TLS)?))
            }
        };
        Ok(Self {
            socket: socket::connect(target.address, load)?,
            tls,
        })
    }

    /// Returns whether the connection was made.
    pub(super) fn check(&self) -> Result<(), Errno> {
        socket::check(&self.socket)
    }

    /// Whether bytes may be there that no event tells of.
    pub(super) fn has_buffer(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether bytes wait for the socket.
    pub(super) fn wants_write(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        let Some(tls) = &mut self.tls else {
            return socket::send(&self.socket, bytes);
        };
        // It takes what its buffer has room for.
        let taken = tls.writer().write(bytes).map_err(|error| errno(&error))?;
        flush(tls, &self.socket)?;
        if taken == 0 {
            Err(Errno::AGAIN)
        } else {
            Ok(taken)
        }
    }

    /// Sends what waits for the socket.
    pub(super) fn flush(&mut self) -> Result<(), Errno> {
        match &mut self.tls {
            Some(tls) => flush(tls, &self.socket),
            None => Ok(()),
        }
    }

    pub(super) fn receive(&mut self, bytes: &mut [u8]) -> Result<usize, Errno> {
        match &mut self.tls {
            Some(tls) => receive(tls, &self.socket, bytes),
            None => socket::receive(&self.socket, bytes),
        }
    }

    /// Takes at most `most` bytes that are of no interest. Without TLS the kernel discards them; with it they have to
    /// be decrypted, into `sink`.
    pub(super) fn discard(&mut self, sink: &mut [u8], most: usize) -> Result<usize, Errno> {
        match &mut self.tls {
            Some(tls) => {
                let most = most.min(sink.len());
                receive(tls, &self.socket, &mut sink[..most])
            }
            None => socket::discard(&self.socket, sink, most),
        }
    }
}

fn flush(tls: &mut ClientConnection, socket: &OwnedFd) -> Result<(), Errno> {
    while tls.wants_write() {
        match tls.write_tls(&mut Raw(socket)) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(errno(&error)),
        }
    }
    Ok(())
}

fn receive(tls: &mut ClientConnection, socket: &OwnedFd, bytes: &mut [u8]) -> Result<usize, Errno> {
    loop {
        match tls.reader().read(bytes) {
            Ok(read) => return Ok(read),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            // A connection that ends without saying so; the length tells whether the body is whole.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
            Err(error) => return Err(errno(&error)),
        }
        tls.read_tls(&mut Raw(socket))
            .map_err(|error| errno(&error))?;
        let processed = tls.process_new_packets();
        // An alert tells the server why.
        let flushed = flush(tls, socket);
        processed.map_err(|_| BAD_TLS)?;
        flushed?;
    }
}

fn errno(error: &io::Error) -> Errno {
    match error.kind() {
        ErrorKind::WouldBlock => Errno::AGAIN,
        _ => Errno::from_io_error(error).unwrap_or(BAD_TLS),
    }
}

/// The socket below TLS.
struct Raw<'a>(&'a OwnedFd);

impl io::Read for Raw<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        Ok(socket::receive(self.0, bytes)?)
    }
}

impl io::Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(socket::send(self.0, bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
