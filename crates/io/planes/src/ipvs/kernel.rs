//! IPVS of the kernel, over generic netlink.

use super::attribute::{self, find, named, named_target, text};
use crate::error::PlaneError;
use netlink_packet_core::{
    DefaultNla, Emitable as _, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable,
    NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
};
use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{Socket, SocketAddr as NetlinkAddr};
use rustix::io::Errno;
use std::io;
use std::net::SocketAddr;

pub(super) use super::attribute::Target;

/// Bytes of one answer of the kernel.
const BUFFER: usize = 64 << 10;
/// Bytes of the header of generic netlink.
const HEADER: usize = 4;
/// Controller of generic netlink, which knows the number of a family.
const CONTROLLER: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const NEW_SERVICE: u8 = 1;
const SET_SERVICE: u8 = 2;
const DEL_SERVICE: u8 = 3;
const NEW_TARGET: u8 = 5;
const SET_TARGET: u8 = 6;
const DEL_TARGET: u8 = 7;
const GET_TARGET: u8 = 8;

/// Message of generic netlink.
#[derive(Debug)]
struct Message {
    family: u16,
    command: u8,
    attributes: Vec<u8>,
}

impl NetlinkSerializable for Message {
    fn message_type(&self) -> u16 {
        self.family
    }

    fn buffer_len(&self) -> usize {
        HEADER + self.attributes.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        // Command, version, two bytes that are reserved.
        buffer[..HEADER].copy_from_slice(&[self.command, 1, 0, 0]);
        buffer[HEADER..].copy_from_slice(&self.attributes);
    }
}

impl NetlinkDeserializable for Message {
    type Error = netlink_packet_core::DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, Self::Error> {
        let Some((head, attributes)) = payload.split_at_checked(HEADER) else {
            return Err("a message of generic netlink without its header".into());
        };
        Ok(Self {
            family: header.message_type,
            command: head[0],
            attributes: attributes.to_vec(),
        })
    }
}

impl From<Message> for NetlinkPayload<Message> {
    fn from(message: Message) -> Self {
        Self::InnerMessage(message)
    }
}

/// IPVS of the kernel.
pub(super) struct Kernel {
    socket: Socket,
    family: u16,
}

impl Kernel {
    /// Opens it; the kernel loads its module if it can.
    pub(super) fn open() -> Result<Self, PlaneError> {
        let connect = || {
            let mut socket = Socket::new(NETLINK_GENERIC)?;
            socket.bind_auto()?;
            socket.connect(&NetlinkAddr::new(0, 0))?;
            Ok(socket)
        };
        let socket = connect().map_err(|error| PlaneError::Kernel {
            what: "a socket of generic netlink",
            error,
        })?;
        let mut kernel = Self {
            socket,
            family: CONTROLLER,
        };
        let answers = kernel
            .exchange(GET_FAMILY, NLM_F_ACK, &[text(FAMILY_NAME, "IPVS")])
            .map_err(|error| match error.raw_os_error() {
                Some(code) if code == Errno::NOENT.raw_os_error() => PlaneError::NoIpvs,
                _ => PlaneError::Kernel {
                    what: "the family IPVS of generic netlink",
                    error,
                },
            })?;
        let mut ids = answers.iter().filter_map(|answer| {
            let bytes = find(&answer.attributes, FAMILY_ID)?;
            Some(u16::from_ne_bytes(bytes.try_into().ok()?))
        });
        kernel.family = ids.next().ok_or(PlaneError::NoIpvs)?;
        Ok(kernel)
    }

    /// Sends a command and returns the answers.
    fn exchange(
        &mut self,
        command: u8,
        flags: u16,
        attributes: &[DefaultNla],
    ) -> io::Result<Vec<Message>> {
        let mut bytes = vec![0; attributes.buffer_len()];
        attributes.emit(&mut bytes);
        let message = Message {
            family: self.family,
            command,
            attributes: bytes,
        };
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        let mut message = NetlinkMessage::new(header, message.into());
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        self.answers()
    }

    /// Receives until the kernel has acknowledged, or the list is at its end.
    fn answers(&mut self) -> io::Result<Vec<Message>> {
        let mut buffer = vec![0; BUFFER];
        let mut answers = Vec::new();
        loop {
            let received = self.socket.recv(&mut &mut buffer[..], 0)?;
            let mut rest = &buffer[..received];
            while !rest.is_empty() {
                let message = NetlinkMessage::<Message>::deserialize(rest);
                let message = message.map_err(|error| io::Error::other(error.to_string()))?;
                match message.payload {
                    NetlinkPayload::Done(_) => return Ok(answers),
                    NetlinkPayload::Error(error) if error.code.is_none() => return Ok(answers),
                    NetlinkPayload::Error(error) => return Err(error.to_io()),
                    NetlinkPayload::InnerMessage(answer) => answers.push(answer),
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

    fn order(
        &mut self,
        command: u8,
        attributes: &[DefaultNla],
        what: &'static str,
    ) -> Result<(), PlaneError> {
        let done = self.exchange(command, NLM_F_ACK, attributes);
        done.map(drop)
            .map_err(|error| PlaneError::Kernel { what, error })
    }

    /// Adds a service, or brings one that is there into order. Returns whether it is new.
    pub(super) fn add_service(&mut self, service: SocketAddr) -> Result<bool, PlaneError> {
        let attributes = [attribute::service(service)];
        match self.exchange(NEW_SERVICE, NLM_F_ACK, &attributes) {
            Ok(_) => Ok(true),
            Err(error) if error.raw_os_error() == Some(Errno::EXIST.raw_os_error()) => {
                self.order(SET_SERVICE, &attributes, "a service with the scheduler mh")?;
                Ok(false)
            }
            Err(error) => Err(PlaneError::Kernel {
                what: "a service with the scheduler mh (modprobe ip_vs_mh)",
                error,
            }),
        }
    }

    /// Removes a service; one that is not there is removed already.
    pub(super) fn remove_service(&mut self, service: SocketAddr) -> Result<(), PlaneError> {
        match self.exchange(DEL_SERVICE, NLM_F_ACK, &[named(service)]) {
            Ok(_) => Ok(()),
            Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Ok(()),
            Err(error) => Err(PlaneError::Kernel {
                what: "the end of a service",
                error,
            }),
        }
    }

    /// Returns the servers of a service; none if it is not there.
    pub(super) fn targets(&mut self, service: SocketAddr) -> Result<Vec<Target>, PlaneError> {
        let answers = self.exchange(GET_TARGET, NLM_F_DUMP, &[named(service)]);
        let answers = answers.map_err(|error| PlaneError::Kernel {
            what: "the list of servers",
            error,
        })?;
        let read = |answer: &Message| attribute::read_target(&answer.attributes);
        let targets: Option<Vec<Target>> = answers.iter().map(read).collect();
        targets.ok_or_else(|| PlaneError::Output {
            tool: "the kernel's IPVS",
            text: "a server without address, port or weight".to_owned(),
        })
    }

    pub(super) fn add_target(
        &mut self,
        service: SocketAddr,
        target: SocketAddr,
        weight: u32,
    ) -> Result<(), PlaneError> {
        let attributes = [named(service), attribute::target(target, weight)];
        self.order(NEW_TARGET, &attributes, "a further server")
    }

    pub(super) fn set_target(
        &mut self,
        service: SocketAddr,
        target: SocketAddr,
        weight: u32,
    ) -> Result<(), PlaneError> {
        let attributes = [named(service), attribute::target(target, weight)];
        self.order(SET_TARGET, &attributes, "the weight of a server")
    }

    pub(super) fn remove_target(
        &mut self,
        service: SocketAddr,
        target: SocketAddr,
    ) -> Result<(), PlaneError> {
        let attributes = [named(service), named_target(target)];
        self.order(DEL_TARGET, &attributes, "the end of a server")
    }
}
