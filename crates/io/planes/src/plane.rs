//! Contract of planes, and the table of them.

use crate::{nft, userspace};
use serde::{Deserialize, Serialize};
use sheaf_serve::{Flow, Wanted};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Way in which the machine carries services out.
pub trait Plane: Send {
    /// Makes the machine follow `wanted`. What was there of the service before is replaced as a whole, except that
    /// connections that began while their slot was on the move stay known until it has moved.
    ///
    /// # Errors
    ///
    /// Why not; the machine follows what it followed before.
    fn apply(&mut self, wanted: &Wanted) -> Result<(), PlaneError>;

    /// Reads from the machine what it follows; `None` if it has nothing of the service.
    ///
    /// # Errors
    ///
    /// Why it cannot be read.
    fn read_back(&mut self, service: &str) -> Result<Option<Installed>, PlaneError>;

    /// Counts what has gone to each server, by name.
    ///
    /// # Errors
    ///
    /// Why it cannot be read.
    fn counters(&mut self, service: &str) -> Result<BTreeMap<String, Counted>, PlaneError>;

    /// Whether what was carried out last is out of date on the side of the machine, for instance because a server has
    /// another network card now, and has to be applied again.
    ///
    /// # Errors
    ///
    /// Why it cannot be read.
    fn is_out_of_date(&mut self, _service: &str) -> Result<bool, PlaneError> {
        Ok(false)
    }

    /// Removes all that the plane made of the service.
    ///
    /// # Errors
    ///
    /// Why something is left.
    fn undo(&mut self, service: &str) -> Result<(), PlaneError>;
}

/// Options of planes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlaneConfig {
    /// Network interface at which packets of clients come in.
    pub interface: String,
    /// Longest time in seconds that connections may stay known whose slot is on the move.
    pub fresh_s: u64,
}

/// What a machine follows, by names of servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Installed {
    /// Server of each slot.
    pub slots: Vec<String>,
    /// Slots on the move.
    pub moving: BTreeMap<u32, String>,
    /// Connections that stay where they are, and those that began while their slot was on the move.
    pub flows: BTreeMap<Flow, String>,
}

/// What has gone to a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Counted {
    /// Packets from clients, or connections where a plane sees no packets.
    pub packets: u64,
    /// Bytes from clients.
    pub bytes: u64,
}

/// Failure of a plane.
#[derive(Debug, thiserror::Error)]
pub enum PlaneError {
    /// Name that no plane has.
    #[error("found plane {found:?}, expected one of {expected}")]
    Unknown {
        /// Name as found.
        found: String,
        /// Names of planes.
        expected: String,
    },
    /// A program that a plane needs and that is not there.
    #[error("{tool} cannot be started ({error}); on Debian: apt-get install {package}")]
    Missing {
        /// Program.
        tool: &'static str,
        /// Package of Debian.
        package: &'static str,
        /// Error of the operating system.
        error: std::io::Error,
    },
    /// A program that has refused.
    #[error("{tool} refused: {text}")]
    Refused {
        /// Program.
        tool: &'static str,
        /// Its own words.
        text: String,
    },
    /// Output that is not as documented.
    #[error("the output of {tool} cannot be read: {text}")]
    Output {
        /// Program.
        tool: &'static str,
        /// What was found.
        text: String,
    },
    /// Server whose network card does not answer.
    #[error(
        "server {server:?} at {address} does not answer for its hardware address on {interface}"
    )]
    NoNeighbor {
        /// Name of the server.
        server: String,
        /// Address.
        address: IpAddr,
        /// Interface that was asked.
        interface: String,
    },
    /// Server whose port is not that of the service, in a plane that rewrites none.
    #[error("server {server:?} has port {found}, expected {expected}: the plane rewrites no ports")]
    Port {
        /// Name of the server.
        server: String,
        /// Its port.
        found: u16,
        /// Port of the service.
        expected: u16,
    },
    /// Virtual address that cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// Address and port.
        address: std::net::SocketAddr,
        /// Error of the operating system.
        error: std::io::Error,
    },
    /// Thread or runtime that does not start.
    #[error("a thread of the plane cannot be started: {0}")]
    Thread(std::io::Error),
}

/// Row of the table of planes.
pub struct Registration {
    /// Name in configurations.
    pub name: &'static str,
    /// One line of help.
    pub summary: &'static str,
    /// Whether it needs rights over the network of the machine.
    pub needs_root: bool,
    /// Whether packets of servers go to clients past the director.
    pub is_direct_return: bool,
    make: fn(&PlaneConfig) -> Box<dyn Plane>,
}

/// All planes.
#[must_use]
pub fn planes() -> &'static [Registration] {
    &[
        Registration {
            name: "nft",
            summary: "rules of nftables: hardware addresses rewritten at ingress, direct return",
            needs_root: true,
            is_direct_return: true,
            make: |config| Box::new(nft::Nft::new(config)),
        },
        Registration {
            name: "userspace",
            summary: "a proxy with splice, without any rights",
            needs_root: false,
            is_direct_return: false,
            make: |_| Box::new(userspace::Userspace::new()),
        },
    ]
}

/// Creates the plane with this name.
///
/// # Errors
///
/// [`PlaneError::Unknown`].
pub fn named(name: &str, config: &PlaneConfig) -> Result<Box<dyn Plane>, PlaneError> {
    let mut all = planes().iter();
    all.find(|row| row.name == name)
        .map(|row| (row.make)(config))
        .ok_or_else(|| {
            let names: Vec<&str> = planes().iter().map(|row| row.name).collect();
            PlaneError::Unknown {
                found: name.to_owned(),
                expected: names.join(", "),
            }
        })
}
