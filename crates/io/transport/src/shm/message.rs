//! Messages between the two sides of a lane or of a hand-over, on their socket.

use super::answer::Answers;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Magic of the first message of a lender; the last byte is the version.
const MAGIC: [u8; 8] = *b"SHEFTAK\x02";
/// Magic of the first message of the sender of a lane; the last byte is the version.
const LANE_MAGIC: [u8; 8] = *b"SHEFSHM\x02";
const REGION: u8 = b'R';
const FORGET: u8 = b'F';
const LEAVE: u8 = b'L';
const PRODUCT: u8 = b'P';
const WELCOME: u8 = b'Y';
const WAKE: u8 = 0;

/// Descriptors that come with one message.
const FILES_MAX: usize = 2;
const MESSAGE_BYTES_MAX: usize = 40;

impl From<ControlMessage> for Vec<u8> {
    /// Returns the bytes of a message, for an error that names what was found.
    fn from(message: ControlMessage) -> Self {
        message.encode().as_slice().to_vec()
    }
}

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

    pub(super) fn bytes(&self) -> &[u8; Self::SIZE] {
        &self.0
    }

    /// Reads a token, and returns what is behind it.
    pub(super) fn split_off(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (token, rest) = bytes.split_first_chunk()?;
        Some((Self(*token), rest))
    }
}

/// Message on the socket, without its descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ControlMessage {
    /// The rings, of so many bytes, and which answers are taken.
    Hello {
        bytes: u64,
        answers: Option<Answers>,
    },
    /// The rings of a lane, of so many bytes, for the stream that the token identifies; so many regions follow.
    Join {
        token: Token,
        bytes: u64,
        regions: u8,
    },
    /// The lane stands.
    Welcome,
    /// Memory in which bodies lie, as records name it.
    Region { number: u32, bytes: u64 },
    /// End of a region: no later record names it.
    Forget { number: u32 },
    /// Look at the rings.
    Wake,
    /// End of the borrower: it claims nothing any more.
    Leave,
    /// Memory with a product, as a record that comes back names it.
    Product { number: u32, bytes: u64 },
}

/// Bytes of one message.
#[derive(Clone, Copy, Debug)]
struct Packet {
    bytes: [u8; MESSAGE_BYTES_MAX],
    len: usize,
}

impl Packet {
    fn of(parts: &[&[u8]]) -> Self {
        let mut packet = Self {
            bytes: [0; MESSAGE_BYTES_MAX],
            len: 0,
        };
        for part in parts {
            packet.bytes[packet.len..][..part.len()].copy_from_slice(part);
            packet.len += part.len();
        }
        packet
    }

    fn numbered(kind: u8, number: u32, bytes: u64) -> Self {
        Self::of(&[&[kind], &number.to_le_bytes(), &bytes.to_le_bytes()])
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Reads what [`Packet::numbered`] has written behind the kind.
fn read_numbered(rest: &[u8]) -> Option<(u32, u64)> {
    let (number, rest) = rest.split_first_chunk()?;
    let bytes = u64::from_le_bytes(rest.try_into().ok()?);
    Some((u32::from_le_bytes(*number), bytes))
}

impl ControlMessage {
    fn encode(self) -> Packet {
        match self {
            Self::Hello { bytes, answers } => {
                let product = answers.map_or(0, |answers| answers.product_bytes_max);
                let takes = [u8::from(answers.is_some())];
                Packet::of(&[&MAGIC, &bytes.to_le_bytes(), &takes, &product.to_le_bytes()])
            }
            Self::Join {
                token,
                bytes,
                regions,
            } => Packet::of(&[&LANE_MAGIC, token.bytes(), &bytes.to_le_bytes(), &[regions]]),
            Self::Welcome => Packet::of(&[&[WELCOME]]),
            Self::Region { number, bytes } => Packet::numbered(REGION, number, bytes),
            Self::Product { number, bytes } => Packet::numbered(PRODUCT, number, bytes),
            Self::Forget { number } => Packet::of(&[&[FORGET], &number.to_le_bytes()]),
            Self::Wake => Packet::of(&[&[WAKE]]),
            Self::Leave => Packet::of(&[&[LEAVE]]),
        }
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        if let Some(rest) = bytes.strip_prefix(&MAGIC) {
            let (bytes, rest) = rest.split_first_chunk()?;
            let ([takes], product) = rest.split_first_chunk()?;
            let product_bytes_max = u64::from_le_bytes(product.try_into().ok()?);
            let answers = match (*takes, product_bytes_max) {
                (0, 0) => None,
                (1, product_bytes_max) => Some(Answers { product_bytes_max }),
                _ => return None,
            };
            let bytes = u64::from_le_bytes(*bytes);
            return Some(Self::Hello { bytes, answers });
        }
        if let Some(rest) = bytes.strip_prefix(&LANE_MAGIC) {
            let (token, rest) = Token::split_off(rest)?;
            let (bytes, rest) = rest.split_first_chunk()?;
            let &[regions] = rest else { return None };
            let bytes = u64::from_le_bytes(*bytes);
            return Some(Self::Join {
                token,
                bytes,
                regions,
            });
        }
        Some(match bytes {
            [WELCOME] => Self::Welcome,
            [REGION, rest @ ..] => {
                let (number, bytes) = read_numbered(rest)?;
                Self::Region { number, bytes }
            }
            [PRODUCT, rest @ ..] => {
                let (number, bytes) = read_numbered(rest)?;
                Self::Product { number, bytes }
            }
            [FORGET, rest @ ..] => Self::Forget {
                number: u32::from_le_bytes(rest.try_into().ok()?),
            },
            [WAKE] => Self::Wake,
            [LEAVE] => Self::Leave,
            _ => return None,
        })
    }
}

/// Sends `message` with `files`; returns `false` if there is no room for it now.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    message: ControlMessage,
    files: &[BorrowedFd<'_>],
) -> io::Result<bool> {
    let packet = message.encode();
    let slices = [IoSlice::new(packet.as_slice())];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    loop {
        match rustix::net::sendmsg(socket, &slices, &mut control, flags) {
            Ok(_) => return Ok(true),
            Err(Errno::AGAIN) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Result of reading the socket.
#[derive(Debug)]
pub(crate) enum Received {
    /// A message, with its descriptors.
    Message(ControlMessage, Vec<OwnedFd>),
    /// Bytes that are no message.
    Other(Vec<u8>),
    /// Nothing now.
    Nothing,
    /// The other end is gone.
    Gone,
}

/// Receives the next message.
pub(crate) fn receive(socket: BorrowedFd<'_>) -> Received {
    let mut bytes = [0; MESSAGE_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = loop {
        let slices = &mut [IoSliceMut::new(&mut bytes)];
        match rustix::net::recvmsg(socket, slices, &mut control, flags) {
            Ok(received) => break received.bytes,
            // The second: the other end has closed without having read all of ours. That is reported once, before what
            // it had sent.
            Err(Errno::INTR | Errno::CONNRESET) => {}
            Err(Errno::AGAIN) => return Received::Nothing,
            Err(_) => return Received::Gone,
        }
    };
    if received == 0 {
        return Received::Gone;
    }
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = message {
            files.extend(some);
        }
    }
    let bytes = &bytes[..received];
    match ControlMessage::decode(bytes) {
        Some(message) => Received::Message(message, files),
        None => Received::Other(bytes.to_vec()),
    }
}

/// Wakes the other end. If that cannot be sent now, many a wake is waiting there already; if it is gone, its socket
/// reports so.
pub(crate) fn wake(socket: BorrowedFd<'_>) {
    let _ = send(socket, ControlMessage::Wake, &[]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    use std::os::fd::AsFd;

    #[test]
    fn what_was_said_is_heard_from_one_who_has_closed_and_not_heard_us() {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (near, far) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
                .unwrap();
        assert!(send(far.as_fd(), ControlMessage::Leave, &[]).unwrap());
        assert!(send(near.as_fd(), ControlMessage::Wake, &[]).unwrap());
        drop(far);
        let received = receive(near.as_fd());
        assert!(
            matches!(received, Received::Message(ControlMessage::Leave, _)),
            "{received:?}"
        );
        assert!(matches!(receive(near.as_fd()), Received::Gone));
    }

    #[test]
    fn words_come_back_as_they_were_said() {
        for message in [
            ControlMessage::Hello {
                bytes: 1 << 40,
                answers: None,
            },
            ControlMessage::Hello {
                bytes: 7,
                answers: Some(Answers {
                    product_bytes_max: 0,
                }),
            },
            ControlMessage::Product {
                number: 1,
                bytes: u64::MAX,
            },
            ControlMessage::Region {
                number: 7,
                bytes: 9,
            },
            ControlMessage::Forget { number: u32::MAX },
            ControlMessage::Wake,
            ControlMessage::Leave,
            ControlMessage::Join {
                token: Token::new().unwrap(),
                bytes: 1 << 33,
                regions: 7,
            },
            ControlMessage::Welcome,
        ] {
            let packet = message.encode();
            let bytes = packet.as_slice();
            assert_eq!(ControlMessage::decode(bytes), Some(message));
            assert_eq!(ControlMessage::decode(&[bytes, b"x"].concat()), None);
        }
        assert_eq!(ControlMessage::decode(b"RxF"), None);
        assert_eq!(ControlMessage::decode(b"SHEFTAK\x01\0\0\0\0\0\0\0\0"), None);
        assert_eq!(
            ControlMessage::decode(b"SHEFTAK\x02\0\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\0"),
            None,
            "answers are taken or not"
        );
    }
}
