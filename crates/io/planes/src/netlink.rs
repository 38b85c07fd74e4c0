//! Netlink: messages to the kernel, their attributes, and the answers.
//!
//! Generic netlink and the protocol of netfilter have four bytes in front of the attributes, that of routes has more.

use netlink_packet_core::{
    DefaultNla, Emitable as _, NLA_F_NESTED, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader,
    NetlinkMessage, NetlinkPayload, NetlinkSerializable, NlasIterator,
};
use netlink_sys::{Socket, SocketAddr as NetlinkAddr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use std::io;
use std::time::Duration;

/// Bytes of one answer of the kernel.
const BUFFER: usize = 64 << 10;
/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes in front of the value of an attribute.
const HEADER: usize = 4;

/// Message with attributes, and `N` bytes in front of them.
#[derive(Debug)]
pub(crate) struct Message<const N: usize = 4> {
    pub(crate) kind: u16,
    pub(crate) header: [u8; N],
    pub(crate) attributes: Vec<u8>,
}

impl<const N: usize> NetlinkSerializable for Message<N> {
    fn message_type(&self) -> u16 {
        self.kind
    }

    fn buffer_len(&self) -> usize {
        N + self.attributes.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer[..N].copy_from_slice(&self.header);
        buffer[N..].copy_from_slice(&self.attributes);
    }
}

impl<const N: usize> NetlinkDeserializable for Message<N> {
    type Error = netlink_packet_core::DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, Self::Error> {
        let Some((head, attributes)) = payload.split_first_chunk() else {
            return Err("a message without the bytes in front of its attributes".into());
        };
        Ok(Self {
            kind: header.message_type,
            header: *head,
            attributes: attributes.to_vec(),
        })
    }
}

impl<const N: usize> From<Message<N>> for NetlinkPayload<Message<N>> {
    fn from(message: Message<N>) -> Self {
        Self::InnerMessage(message)
    }
}

/// Socket to a part of the kernel.
pub(crate) struct Netlink {
    socket: Socket,
}

impl Netlink {
    pub(crate) fn open(protocol: isize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&NetlinkAddr::new(0, 0))?;
        // An answer that is lost is a failure, and no wait for ever.
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
        Ok(Self { socket })
    }

    /// Sends a message and calls `each` with the answers, until the kernel has acknowledged or a list is at its end.
    pub(crate) fn exchange<const N: usize>(
        &mut self,
        message: Message<N>,
        flags: u16,
        mut each: impl FnMut(Message<N>),
    ) -> io::Result<()> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        let mut message = NetlinkMessage::new(header, message.into());
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let mut buffer = vec![0; BUFFER];
        loop {
            let received = self.socket.recv(&mut &mut buffer[..], 0)?;
            let mut rest = &buffer[..received];
            while !rest.is_empty() {
                let message = NetlinkMessage::<Message<N>>::deserialize(rest);
                let message = message.map_err(|error| io::Error::other(error.to_string()))?;
                match message.payload {
                    NetlinkPayload::Done(_) => return Ok(()),
                    NetlinkPayload::Error(error) if error.code.is_none() => return Ok(()),
                    NetlinkPayload::Error(error) => return Err(error.to_io()),
                    NetlinkPayload::InnerMessage(answer) => each(answer),
                    _ => {}
                }
                // Messages begin at multiples of four bytes.
                let length = message.header.length.next_multiple_of(4) as usize;
                match rest.get(length..) {
                    Some(next) if length > 0 => rest = next,
                    _ => break,
                }
            }
        }
    }
}

/// Returns attributes as bytes.
pub(crate) fn bytes(attributes: &[DefaultNla]) -> Vec<u8> {
    let mut bytes = vec![0; attributes.buffer_len()];
    attributes.emit(&mut bytes);
    bytes
}

/// Returns an attribute that holds others.
pub(crate) fn nested(kind: u16, inner: &[DefaultNla]) -> DefaultNla {
    DefaultNla::new(kind | NLA_F_NESTED, bytes(inner))
}

/// Returns the value of the attribute `kind` among `bytes`.
pub(crate) fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    let mut all = NlasIterator::new(bytes).map_while(Result::ok);
    let found = all.find(|attribute| attribute.kind() == kind)?;
    let length = usize::from(found.length());
    found.into_inner().get(HEADER..length)
}
