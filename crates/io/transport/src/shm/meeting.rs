//! How two processes come to share memory: a Unix socket beside the stream.
//!
//! The accepting side of a stream offers a name and a token, sent on the stream itself, so that the process with the
//! token is at its other end. The connecting side brings it to the socket of that name, with the memory. Names are of
//! the abstract kind, which belong to a network namespace and need no deletion.

use super::lendable::Lendable;
use crate::mapping::{Mapping, read_only};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Magic of a hello.
const MAGIC: [u8; 8] = *b"SHEFSHM\x01";
/// Pieces of memory that are shared beside the lane itself.
pub(crate) const REGIONS_MAX: usize = 7;
/// Meetings that may wait to be accepted.
const BACKLOG: i32 = 128;
/// A hello: magic, token, bytes of the lane, and of each region.
const HELLO_BYTES_MAX: usize = 8 + Token::SIZE + 8 * (1 + REGIONS_MAX);
/// The answer to a hello.
const WELCOME: u8 = b'Y';

/// Secret that identifies a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Token([u8; Self::SIZE]);

impl Token {
    const SIZE: usize = 16;

    pub(crate) fn new() -> io::Result<Self> {
        let mut bytes = [0; Self::SIZE];
        let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        if filled < bytes.len() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(Self(bytes))
    }
}

/// Where and with what to come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) token: Token,
    pub(crate) name: Vec<u8>,
}

impl Offer {
    pub(crate) fn encode(&self) -> Vec<u8> {
        [self.token.0.as_slice(), &self.name].concat()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (token, name) = bytes.split_first_chunk()?;
        let token = Token(*token);
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
        let Token(random) = Token::new()?;
        let hex: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
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
    let lane_file = lane.file().ok_or(ErrorKind::InvalidInput)?;
    let mut hello = [MAGIC.as_slice(), &offer.token.0].concat();
    hello.extend_from_slice(&(lane.len() as u64).to_le_bytes());
    let mut read_only_files = Vec::new();
    for region in regions {
        let (file, bytes) = region.arena.file().ok_or(ErrorKind::InvalidInput)?;
        hello.extend_from_slice(&(bytes as u64).to_le_bytes());
        read_only_files.push(read_only(file)?);
    }
    let mut files = vec![lane_file];
    files.extend(read_only_files.iter().map(AsFd::as_fd));
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(REGIONS_MAX + 1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(&socket, &[IoSlice::new(&hello)], &mut control, flags)?;
    Ok(socket)
}

/// Memory that the connecting side brings.
pub(crate) struct Hello {
    pub(crate) token: Token,
    pub(crate) lane: Mapping,
    pub(crate) regions: Vec<Mapping>,
}

/// Returns the hello of a peer, whose lane has `lane_bytes`; `None` if it has not said it yet.
pub(crate) fn receive(socket: BorrowedFd<'_>, lane_bytes: usize) -> io::Result<Option<Hello>> {
    let refused = |what: &str| io::Error::new(ErrorKind::InvalidData, what);
    let mut bytes = [0; HELLO_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(REGIONS_MAX + 1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let slices = &mut [IoSliceMut::new(&mut bytes)];
    let received = match rustix::net::recvmsg(socket, slices, &mut control, flags) {
        Ok(received) => received.bytes,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = message {
            files.extend(some);
        }
    }
    if received == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let said = bytes[..received]
        .strip_prefix(&MAGIC)
        .and_then(|rest| rest.split_first_chunk::<{ Token::SIZE }>());
    let (token, sizes) = said.ok_or_else(|| refused("not the hello of a lane"))?;
    let (sizes, rest) = sizes.as_chunks::<8>();
    if sizes.len() != files.len() || !rest.is_empty() || files.is_empty() {
        return Err(refused("a lane needs a file for each size"));
    }
    let mut mappings = Vec::new();
    for (index, (file, size)) in files.into_iter().zip(sizes).enumerate() {
        let size = usize::try_from(u64::from_le_bytes(*size))
            .map_err(|_| refused("memory does not fit the address space"))?;
        mappings.push(Mapping::of_peer(file, size, index == 0)?);
    }
    let lane = mappings.remove(0);
    if lane.len() != lane_bytes {
        return Err(refused("a lane of another size"));
    }
    Ok(Some(Hello {
        token: Token(*token),
        lane,
        regions: mappings,
    }))
}

/// Tells a peer that its lane stands.
pub(crate) fn welcome(socket: BorrowedFd<'_>) -> io::Result<()> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::send(socket, &[WELCOME], flags)?;
    Ok(())
}

/// Wakes the other end. If that cannot be said now, many a wake is waiting there already.
pub(crate) fn wake(socket: BorrowedFd<'_>) {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let _ = rustix::net::send(socket, &[0], flags);
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
        let mut word = [0_u8; 1];
        match rustix::net::recv(socket, word.as_mut_slice(), RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Signal::Gone,
            Ok(_) if word[0] == WELCOME => signal = Signal::Welcome,
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return signal,
            Err(_) => return Signal::Gone,
        }
    }
}
