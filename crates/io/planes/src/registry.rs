//! Table of planes.

use crate::error::PlaneError;
use crate::plane::{Plane, PlaneConfig};
use crate::{haproxy, ipvs, nft, tc, userspace};

/// Row of the table of planes.
pub struct Registration {
    /// Name in configurations.
    pub name: &'static str,
    /// One line of help.
    pub summary: &'static str,
    /// Whether it needs rights over the network of the machine.
    pub needs_root: bool,
    /// Whether it has to know the interface at which packets of clients come in.
    pub needs_interface: bool,
    /// Whether packets of servers go to clients past the director.
    pub is_direct_return: bool,
    /// Whether the plane lists connections of clients ([`Plane::connections`]), so that drains need no agents.
    pub lists_connections: bool,
    /// Whether a connection goes to the server of its slot; else slots are shares alone.
    pub follows_slots: bool,
    /// Whether it can send all connections of a client to one server.
    pub keeps_clients: bool,
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
            needs_interface: true,
            is_direct_return: true,
            lists_connections: false,
            follows_slots: true,
            keeps_clients: true,
            make: |config| Box::new(nft::Nft::new(config)),
        },
        Registration {
            name: "nft-nat",
            summary: "rules of nftables with NAT, for servers without the virtual address",
            needs_root: true,
            needs_interface: false,
            is_direct_return: false,
            lists_connections: true,
            follows_slots: true,
            keeps_clients: false,
            make: |_| Box::new(nft::nat::Nat::default()),
        },
        Registration {
            name: "tc",
            summary: "a BPF program at ingress, as tc or XDP: as nft, for fast cards",
            needs_root: true,
            needs_interface: true,
            is_direct_return: true,
            lists_connections: false,
            follows_slots: true,
            keeps_clients: true,
            make: |config| Box::new(tc::Tc::new(config)),
        },
        Registration {
            name: "ipvs",
            summary: "IPVS of the kernel with its own Maglev table, direct return",
            needs_root: true,
            needs_interface: false,
            is_direct_return: true,
            lists_connections: false,
            follows_slots: false,
            keeps_clients: false,
            make: |config| Box::new(ipvs::Ipvs::new(config)),
        },
        Registration {
            name: "haproxy",
            summary: "an HAProxy that the director runs, tables and drains by its socket",
            needs_root: false,
            needs_interface: false,
            is_direct_return: false,
            lists_connections: true,
            follows_slots: true,
            keeps_clients: false,
            make: |config| Box::new(haproxy::Haproxy::new(config)),
        },
        Registration {
            name: "userspace",
            summary: "a proxy with splice, without any rights",
            needs_root: false,
            needs_interface: false,
            is_direct_return: false,
            lists_connections: true,
            follows_slots: true,
            keeps_clients: true,
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
