//! How two processes come to share memory: a Unix socket beside the stream.
//!
//! The accepting side of a stream offers a name and a token, sent on the stream itself, so that the process with the
//! token is at its other end. The connecting side brings it to the socket of that name, with the memory. Names are of
//! the abstract kind, which belong to a network namespace and need no deletion.

use super::lendable::Lendable;
use super::message::{self, ControlMessage, Received, Token};
use crate::mapping::{Mapping, read_only};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Pieces of memory that are shared beside the lane itself.
pub(crate) const REGIONS_MAX: usize = 7;
/// Meetings that may wait to be accepted.
const BACKLOG: i32 = 128;

/// Where and with what to come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) token: Token,
    pub(crate) name: Vec<u8>,
}

impl Offer {
    pub(crate) fn encode(&self) -> Vec<u8> {
        [self.token.bytes().as_slice(), &self.name].concat()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (token, name) = Token::split_off(bytes)?;
        let is_name = name.len() <= 64 && name.starts_with(b"sheaf-");
        is_name.then(|| Self {
            token,
            name: name.to_vec(),
        })
    }
}

/// Listener for the peers of offered lanes.
pub(crate) struct LaneListener {
    socket: OwnedFd,
    pub(crate) name: Vec<u8>,
}

impl LaneListener {
    pub(crate) fn open() -> io::Result<Self> {
        let random = Token::new()?;
        let hex: String = random
            .bytes()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let name = format!("sheaf-{hex}").into_bytes();
        let socket = socket()?;
        rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(&name)?)?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(Self { socket, name })
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns the next peer of our own user; others are shown out.
    pub(crate) fn accept(&self) -> io::Result<Option<OwnedFd>> {
        loop {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match rustix::net::accept_with(&self.socket, flags) {
                Ok(peer) if is_ours(peer.as_fd()) => return Ok(Some(peer)),
                Ok(_) | Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

pub(crate) fn socket() -> rustix::io::Result<OwnedFd> {
    rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )
}

/// Returns whether the process at the other end runs as the user that we run as.
pub(crate) fn is_ours(socket: BorrowedFd<'_>) -> bool {
    socket_peercred(socket).is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

/// Brings the memory of a lane to where `offer` says.
pub(crate) fn connect(offer: &Offer, lane: &Mapping, regions: &[Lendable]) -> io::Result<OwnedFd> {
    let socket = socket()?;
    rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(&offer.name)?)?;
    if !is_ours(socket.as_fd()) {
        return Err(ErrorKind::PermissionDenied.into());
    }
    let send = |message, file: BorrowedFd<'_>| {
        let is_sent = message::send(socket.as_fd(), message, &[file])?;
        is_sent
            .then_some(())
            .ok_or_else(|| io::Error::from(ErrorKind::WouldBlock))
    };
    let join = ControlMessage::Join {
        token: offer.token,
        bytes: lane.len() as u64,
        regions: u8::try_from(regions.len()).map_err(|_| ErrorKind::InvalidInput)?,
    };
    send(join, lane.file().ok_or(ErrorKind::InvalidInput)?)?;
    for (number, region) in (0..).zip(regions) {
        let (file, bytes) = region.arena.file().ok_or(ErrorKind::InvalidInput)?;
        let bytes = bytes as u64;
        let file = read_only(file)?;
        send(ControlMessage::Region { number, bytes }, file.as_fd())?;
    }
    Ok(socket)
}

/// A peer that brings a lane, until all of its memory is here.
pub(crate) struct Joining {
    socket: OwnedFd,
    hello: Option<Hello>,
    regions: usize,
}

/// Memory that the connecting side brings, and the stream that it is for.
pub(crate) struct Hello {
    pub(crate) token: Token,
    pub(crate) lane: Mapping,
    pub(crate) regions: Vec<Mapping>,
}

impl Joining {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            hello: None,
            regions: 0,
        }
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(crate) fn into_socket(self) -> OwnedFd {
        self.socket
    }

    /// Returns what the peer brings, whose lane has `lane_bytes`; `None` if it has not sent all of it yet.
    pub(crate) fn receive(&mut self, lane_bytes: usize) -> io::Result<Option<Hello>> {
        let refused = |what: &str| io::Error::new(ErrorKind::InvalidData, what);
        loop {
            let is_whole = |hello: &mut Hello| hello.regions.len() == self.regions;
            if let Some(hello) = self.hello.take_if(is_whole) {
                return Ok(Some(hello));
            }
            let (message, files) = match message::receive(self.socket.as_fd()) {
                Received::Nothing => return Ok(None),
                Received::Gone => return Err(ErrorKind::UnexpectedEof.into()),
                Received::Message(message, files) => (message, files),
                Received::Other(_) => return Err(refused("not the hello of a lane")),
            };
            let file = files.into_iter().next();
            match (message, file, &mut self.hello) {
                (
                    ControlMessage::Join {
                        token,
                        bytes,
                        regions,
                    },
                    Some(file),
                    None,
                ) => {
                    if bytes != lane_bytes as u64 || usize::from(regions) > REGIONS_MAX {
                        return Err(refused("a lane of another size"));
                    }
                    self.regions = regions.into();
                    self.hello = Some(Hello {
                        token,
                        lane: Mapping::of_peer(file, lane_bytes, true)?,
                        regions: Vec::new(),
                    });
                }
                (ControlMessage::Region { number, bytes }, Some(file), Some(hello))
                    if number as usize == hello.regions.len() =>
                {
                    let bytes = usize::try_from(bytes)
                        .map_err(|_| refused("memory does not fit the address space"))?;
                    hello.regions.push(Mapping::of_peer(file, bytes, false)?);
                }
                _ => return Err(refused("not the memory of a lane")),
            }
        }
    }
}

/// Tells a peer that its lane stands.
pub(crate) fn welcome(socket: BorrowedFd<'_>) -> io::Result<()> {
    match message::send(socket, ControlMessage::Welcome, &[])? {
        true => Ok(()),
        false => Err(ErrorKind::WouldBlock.into()),
    }
}

/// Result of reading the socket of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Nothing but wakes.
    Wakes,
    /// The lane stands.
    Welcome,
    /// The other end is gone, with all it had borrowed.
    Gone,
}

/// Takes in all that lies in the socket of a lane.
pub(crate) fn listen(socket: BorrowedFd<'_>) -> Signal {
    let mut signal = Signal::Wakes;
    loop {
        match message::receive(socket) {
            Received::Message(ControlMessage::Welcome, _) => signal = Signal::Welcome,
            Received::Message(..) | Received::Other(_) => {}
            Received::Nothing => return signal,
            Received::Gone => return Signal::Gone,
        }
    }
}
