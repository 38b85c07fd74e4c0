//! IPVS of the kernel, over generic netlink.

use super::attribute::{self, named, named_target, text};
use crate::error::PlaneError;
use crate::netlink::{self, Message, Netlink, find};
use netlink_packet_core::{DefaultNla, NLM_F_ACK, NLM_F_DUMP};
use netlink_sys::protocols::NETLINK_GENERIC;
use rustix::io::Errno;
use std::io;
use std::net::SocketAddr;

pub(super) use super::attribute::Target;

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

/// IPVS of the kernel.
pub(super) struct Kernel {
    netlink: Netlink,
    family: u16,
}

impl Kernel {
    /// Opens it; the kernel loads its module if it can.
    pub(super) fn open() -> Result<Self, PlaneError> {
        let netlink = Netlink::open(NETLINK_GENERIC).map_err(|error| PlaneError::Kernel {
            what: "a socket of generic netlink",
            error,
        })?;
        let mut kernel = Self {
            netlink,
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
        let message = Message {
            kind: self.family,
            // Command, version, two bytes that are reserved.
            header: [command, 1, 0, 0],
            attributes: netlink::bytes(attributes),
        };
        let mut answers = Vec::new();
        let each = |answer| answers.push(answer);
        self.netlink.exchange(message, flags, each)?;
        Ok(answers)
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
