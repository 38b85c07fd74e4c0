//! Messages as O2-Balancer2 laid them out (`O2Data` and `O2Channel` of tag experiment-2): 24 bytes each, little-endian.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};

/// Bytes of a heartbeat, of a channel, and of what nodes say to the ICN.
pub(super) const MESSAGE: usize = 24;
/// Overhead of ZeroMQ before the two parts of a data message: 2 bytes before a short part, 9 before a long one.
pub(super) const FRAMING: usize = 2 + 9;
/// Congestion control of every connection: what a Raspberry Pi has.
const CONGESTION: &[u8] = b"cubic";

/// Messages between the ICN and the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// ICN to FLP: send heartbeat `heartbeat` to channel `channel`.
    Heartbeat { heartbeat: u64, channel: u64 },
    /// ICN to FLP: so many channels follow.
    Channels { count: u64 },
    /// An EPN and where it listens: to the ICN when it comes, to FLPs when the run begins.
    Channel { index: u64, address: SocketAddrV4 },
    /// FLP to ICN: it is there, or has all its connections.
    Flp { index: u64, is_ready: bool },
    /// EPN to ICN: a set is whole. The prior system sent its own number, and not the heartbeat.
    Ack { heartbeat: u64 },
    /// ICN to FLP: no more heartbeats; and back, when all that waited is sent.
    End,
}

impl Message {
    fn tag(self) -> u8 {
        match self {
            Self::Heartbeat { .. } => 0,
            Self::Channels { .. } => 1,
            Self::Channel { .. } => 2,
            Self::Flp { .. } => 3,
            Self::Ack { .. } => 4,
            Self::End => 5,
        }
    }

    /// The 24 bytes: two numbers, what it is, and padding.
    pub(super) fn encode(self) -> [u8; MESSAGE] {
        let (a, b) = match self {
            Self::Heartbeat { heartbeat, channel } => (heartbeat, channel),
            Self::Channels { count } => (count, 0),
            Self::Channel { index, address } => {
                let port = u64::from(address.port());
                (index, u64::from(u32::from(*address.ip())) << 16 | port)
            }
            Self::Flp { index, is_ready } => (index, is_ready.into()),
            Self::Ack { heartbeat } => (heartbeat, 0),
            Self::End => (0, 0),
        };
        let mut bytes = [0; MESSAGE];
        bytes[..8].copy_from_slice(&a.to_le_bytes());
        bytes[8..16].copy_from_slice(&b.to_le_bytes());
        bytes[16] = self.tag();
        bytes
    }

    /// # Errors
    ///
    /// `InvalidData` for a tag that is none.
    pub(super) fn decode(bytes: &[u8; MESSAGE]) -> io::Result<Self> {
        let number = |at: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(eight)
        };
        let (a, b) = (number(0), number(8));
        Ok(match bytes[16] {
            0 => Self::Heartbeat {
                heartbeat: a,
                channel: b,
            },
            1 => Self::Channels { count: a },
            2 => Self::Channel {
                index: a,
                address: SocketAddrV4::new(Ipv4Addr::from((b >> 16) as u32), b as u16), // 32 and 16 bits were packed
            },
            3 => Self::Flp {
                index: a,
                is_ready: b != 0,
            },
            4 => Self::Ack { heartbeat: a },
            5 => Self::End,
            tag => {
                return Err(invalid(format!(
                    "a message with tag {tag}, expected 0 to 5"
                )));
            }
        })
    }

    pub(super) fn write(self, mut to: impl Write) -> io::Result<()> {
        to.write_all(&self.encode())
    }

    /// The next message; `None` at the end of the stream.
    pub(super) fn read(mut from: impl Read) -> io::Result<Option<Self>> {
        let mut bytes = [0; MESSAGE];
        match from.read_exact(&mut bytes) {
            Ok(()) => Self::decode(&bytes).map(Some),
            Err(error) if is_end(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

pub(super) fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Whether the other end is gone, in order or not.
pub(super) fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(
        error.kind(),
        UnexpectedEof | BrokenPipe | ConnectionReset | ConnectionAborted
    )
}

/// A connection as ZeroMQ has them: no delay for small messages.
pub(super) fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = socket2::Socket::new(
        socket2::Domain::IPV4,
        socket2::Type::STREAM,
        Some(socket2::Protocol::TCP),
    )?;
    socket.set_tcp_congestion(CONGESTION)?;
    socket.set_tcp_nodelay(true)?;
    socket.connect_timeout(&address.into(), std::time::Duration::from_secs(5))?;
    Ok(socket.into())
}

/// Listens; connections that come have the same options.
pub(super) fn listen(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = socket2::Socket::new(
        socket2::Domain::IPV4,
        socket2::Type::STREAM,
        Some(socket2::Protocol::TCP),
    )?;
    socket.set_tcp_congestion(CONGESTION)?;
    socket.set_reuse_address(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.bind(&address.into())?;
    socket.listen(512)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_comes_back_as_it_was_sent() {
        let address = SocketAddrV4::new(Ipv4Addr::new(10, 100, 0, 8), 5555);
        for message in [
            Message::Heartbeat {
                heartbeat: u64::MAX,
                channel: 3,
            },
            Message::Channels { count: 6 },
            Message::Channel { index: 5, address },
            Message::Flp {
                index: 1,
                is_ready: true,
            },
            Message::Ack { heartbeat: 9 },
            Message::End,
        ] {
            let bytes = message.encode();
            assert_eq!(Message::decode(&bytes).unwrap(), message);
            assert_eq!(Message::read(&bytes[..]).unwrap(), Some(message));
        }
        assert_eq!(
            Message::read(&[0_u8; 7][..]).unwrap(),
            None,
            "a stream that was cut"
        );
        let error = Message::decode(&[9; MESSAGE]).unwrap_err().to_string();
        assert!(error.contains("tag 9, expected 0 to 5"), "{error}");
    }
}
