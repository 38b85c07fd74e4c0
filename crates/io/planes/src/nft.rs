//! Plane of nftables: packets get the hardware address of their server at ingress, answers go past the director.
//!
//! A table of family `netdev` for each service. The fast path is a hash and a look-up, without state of connections:
//!
//! ```text
//! packet to the virtual address
//!   ├─ pinned connection? ──────────────────────────────► its server      (only while there are pins)
//!   ├─ slot on the move?                                                  (only while slots are)
//!   │    ├─ SYN: noted with the new server ─────────────► new server
//!   │    └─ noted before? ──────────────────────────────► where it began
//!   └─ slot ────────────────────────────────────────────► its server
//! ```
//!
//! With the affinity of clients the hash is that of the address, clients are pinned as a whole, and first packets of
//! slots on the move are dropped, as those of clients whose pin may end: clients repeat them a second later.
//!
//! Rules that have nothing to do are left out. A change is one transaction of `nft`, of elements that differ.

pub(crate) mod nat;
mod read;
mod render;

use crate::error::PlaneError;
use crate::plane::{Counted, Installed, Plane, PlaneConfig};
use crate::tool::{IP, NFT};
use render::Macs;
use sheaf_serve::{Affinity, Flow, ServerPlace, Wanted};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::{Duration, Instant};
use tracing::warn;

/// Longest wait for the hardware address of a server.
const NEIGHBOR_WAIT: Duration = Duration::from_millis(500);

/// Service as it was carried out.
#[derive(Clone, Debug)]
struct Applied {
    wanted: Wanted,
    macs: Macs,
}

/// Rules of nftables.
#[derive(Debug)]
pub(crate) struct Nft {
    interface: String,
    fresh_s: u64,
    applied: BTreeMap<String, Applied>,
}

impl Nft {
    pub(crate) fn new(config: &PlaneConfig) -> Self {
        Self {
            interface: config.interface.clone(),
            fresh_s: config.fresh_s,
            applied: BTreeMap::new(),
        }
    }

    /// Returns the hardware address of each server of `wanted`, and under the id 0xffff_ffff that of the interface.
    fn macs(&self, wanted: &Wanted) -> Result<Macs, PlaneError> {
        let mut macs = Macs {
            own: self.own_mac()?,
            servers: BTreeMap::new(),
        };
        let mut known = self.neighbors()?;
        for (id, place) in &wanted.servers {
            if place.port != wanted.port {
                return Err(PlaneError::Port {
                    server: place.name.clone(),
                    found: place.port,
                    expected: wanted.port,
                });
            }
            let found = place
                .addresses
                .iter()
                .find_map(|own| known.get(own).cloned());
            let mac = match found {
                Some(mac) => mac,
                None => self.ask_neighbor(place, &mut known)?,
            };
            macs.servers.insert(*id, mac);
        }
        Ok(macs)
    }

    fn own_mac(&self) -> Result<String, PlaneError> {
        let found = IP.json(&["-j", "link", "show", "dev", &self.interface])?;
        let address = found[0]["address"].as_str();
        address
            .map(str::to_owned)
            .ok_or_else(|| PlaneError::Output {
                tool: IP.name,
                text: format!("no hardware address of {}", self.interface),
            })
    }

    /// Returns the hardware addresses that the kernel knows on the interface.
    fn neighbors(&self) -> Result<BTreeMap<IpAddr, String>, PlaneError> {
        let found = IP.json(&["-j", "neigh", "show", "dev", &self.interface])?;
        let rows = found.as_array().map(Vec::as_slice).unwrap_or_default();
        let known = rows.iter().filter_map(|row| {
            let address = row["dst"].as_str()?.parse().ok()?;
            Some((address, row["lladdr"].as_str()?.to_owned()))
        });
        Ok(known.collect())
    }

    /// Has the kernel ask for the hardware address of a server, by a datagram to a port where nothing listens.
    fn ask_neighbor(
        &self,
        place: &ServerPlace,
        known: &mut BTreeMap<IpAddr, String>,
    ) -> Result<String, PlaneError> {
        let end = Instant::now() + NEIGHBOR_WAIT;
        for address in &place.addresses {
            let any: IpAddr = match address {
                IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            };
            // What cannot be sent shows in the table of neighbours.
            let _ =
                UdpSocket::bind((any, 0)).and_then(|socket| socket.send_to(&[0], (*address, 9)));
        }
        loop {
            *known = self.neighbors()?;
            if let Some(mac) = place.addresses.iter().find_map(|own| known.get(own)) {
                return Ok(mac.clone());
            }
            if Instant::now() >= end {
                return Err(PlaneError::NoNeighbor {
                    server: place.name.clone(),
                    address: place
                        .addresses
                        .first()
                        .copied()
                        .unwrap_or(Ipv4Addr::UNSPECIFIED.into()),
                    interface: self.interface.clone(),
                });
            }
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }
}

/// Removes what was noted of connections whose slot has moved, or whose pin has ended. Their ports are taken again some
/// time, and an old note must not say then where a connection began. Sets that nothing needs are flushed as a whole.
fn forget(before: &Wanted, wanted: &Wanted) {
    if wanted.affinity == Affinity::Client {
        return; // No connection is noted.
    }
    let slots = u32::try_from(wanted.slots.len()).unwrap_or(u32::MAX);
    let has_moved = |slot: &u32| !wanted.moving.contains_key(slot);
    if !wanted.moving.is_empty() && before.moving.keys().any(has_moved) {
        let is_needed = |flow: Flow| {
            wanted
                .moving
                .contains_key(&wanted.affinity.slot_of(flow, slots))
        };
        forget_noted(&wanted.service, "fresh", is_needed);
    }
    let has_ended = |flow: &Flow| !wanted.pins.contains_key(flow);
    if !wanted.pins.is_empty() && before.pins.keys().any(has_ended) {
        let is_needed = |flow: Flow| wanted.pins.contains_key(&flow);
        forget_noted(&wanted.service, "reused", is_needed);
    }
}

fn forget_noted(service: &str, set: &str, is_needed: impl Fn(Flow) -> bool) {
    let mut text = String::new();
    for number in [4, 6] {
        let set = format!("{set}{number}");
        match read::noted(service, &set) {
            Ok(noted) => {
                let old = noted.into_iter().filter(|(flow, _)| !is_needed(*flow));
                text += &render::forgotten(service, &set, old);
            }
            Err(error) => warn!(service, set, %error, "Notes of connections cannot be read"),
        }
    }
    // What cannot be removed now is removed with the next change.
    if !text.is_empty()
        && let Err(error) = NFT.run(&["-f", "-"], &text)
    {
        warn!(service, set, %error, "Notes of connections are not removed");
    }
}

impl Plane for Nft {
    fn apply(&mut self, wanted: &Wanted) -> Result<(), PlaneError> {
        let macs = self.macs(wanted)?;
        let before = self.applied.get(&wanted.service);
        // A table that another director made, or this one before it began again, is replaced as a whole.
        let text = match before.filter(|before| before.macs.own == macs.own) {
            Some(before) => render::change((&before.wanted, &before.macs), (wanted, &macs)),
            None => render::whole(&self.interface, self.fresh_s, wanted, &macs),
        };
        NFT.run(&["-f", "-"], &text)?;
        if let Some(before) = before {
            forget(&before.wanted, wanted);
        }
        let applied = Applied {
            wanted: wanted.clone(),
            macs,
        };
        self.applied.insert(wanted.service.clone(), applied);
        Ok(())
    }

    fn read_back(&mut self, service: &str) -> Result<Option<Installed>, PlaneError> {
        read::installed(service)
    }

    fn counters(&mut self, service: &str) -> Result<BTreeMap<String, Counted>, PlaneError> {
        read::counters("netdev", &render::table(service))
    }

    fn is_out_of_date(&mut self, service: &str) -> Result<bool, PlaneError> {
        let Some(applied) = self.applied.get(service) else {
            return Ok(false);
        };
        let known = self.neighbors()?;
        let is_other = |(id, place): (_, &ServerPlace)| {
            let mac = place.addresses.iter().find_map(|own| known.get(own));
            mac.is_some_and(|mac| applied.macs.servers.get(id) != Some(mac))
        };
        Ok(applied.wanted.servers.iter().any(is_other))
    }

    fn undo(&mut self, service: &str) -> Result<(), PlaneError> {
        self.applied.remove(service);
        NFT.run(&["-f", "-"], &render::removal(service)).map(drop)
    }
}
