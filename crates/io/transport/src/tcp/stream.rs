//! The socket of one connection, of either family: what the rest does with it is the same.

use super::address::Address;
use mio::event::Source;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use socket2::{SockAddr, Socket};
use std::io::{self, IoSliceMut, Read};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// A stream socket that does not block.
#[derive(Debug)]
pub(crate) struct Stream {
    socket: Socket,
    is_unix: bool,
}

impl Stream {
    /// `socket` goes to `peer`, or comes from where `peer` is listened at.
    pub(crate) fn new(socket: Socket, peer: &Address) -> Self {
        let is_unix = matches!(peer, Address::Unix(_));
        Self { socket, is_unix }
    }

    /// Returns whether the peer is on this machine. Over a network it is then in this network namespace, too: a
    /// stream to an address of our own goes nowhere.
    pub(crate) fn is_local(&self) -> bool {
        let ip = |address: SockAddr| address.as_socket().map(|address| address.ip());
        match (self.socket.peer_addr(), self.socket.local_addr()) {
            _ if self.is_unix => true,
            (Ok(peer), Ok(own)) => ip(peer) == ip(own),
            _ => false,
        }
    }

    pub(crate) fn peer_addr(&self) -> io::Result<SockAddr> {
        self.socket.peer_addr()
    }

    pub(crate) fn local_addr(&self) -> io::Result<SockAddr> {
        self.socket.local_addr()
    }

    pub(crate) fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.socket.take_error()
    }

    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.socket.shutdown(how)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Read for &Stream {
    fn read(&mut self, place: &mut [u8]) -> io::Result<usize> {
        (&self.socket).read(place)
    }

    fn read_vectored(&mut self, places: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        Ok(rustix::io::readv(&self.socket, places)?)
    }
}

impl Source for Stream {
    fn register(&mut self, to: &Registry, token: Token, interest: Interest) -> io::Result<()> {
        SourceFd(&self.socket.as_raw_fd()).register(to, token, interest)
    }

    fn reregister(&mut self, to: &Registry, token: Token, interest: Interest) -> io::Result<()> {
        SourceFd(&self.socket.as_raw_fd()).reregister(to, token, interest)
    }

    fn deregister(&mut self, from: &Registry) -> io::Result<()> {
        SourceFd(&self.socket.as_raw_fd()).deregister(from)
    }
}
