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
use crate::neighbors::{Macs, Neighbors};
use crate::plane::{Counted, Installed, Plane, PlaneConfig};
use crate::tool::NFT;
use sheaf_serve::{Affinity, Flow, Wanted};
use std::collections::BTreeMap;
use tracing::warn;

/// Service as it was carried out.
#[derive(Clone, Debug)]
struct Applied {
    wanted: Wanted,
    macs: Macs,
}

/// Rules of nftables.
#[derive(Debug)]
pub(crate) struct Nft {
    neighbors: Neighbors,
    fresh_s: u64,
    applied: BTreeMap<String, Applied>,
}

impl Nft {
    pub(crate) fn new(config: &PlaneConfig) -> Self {
        Self {
            neighbors: Neighbors::at(&config.interface),
            fresh_s: config.fresh_s,
            applied: BTreeMap::new(),
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
        let macs = self.neighbors.macs(wanted)?;
        let before = self.applied.get(&wanted.service);
        // A table that another director made, or this one before it began again, is replaced as a whole.
        let text = match before.filter(|before| before.macs.own == macs.own) {
            Some(before) => render::change((&before.wanted, &before.macs), (wanted, &macs)),
            None => render::whole(self.neighbors.interface(), self.fresh_s, wanted, &macs),
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
        self.neighbors.have_changed(&applied.wanted, &applied.macs)
    }

    fn undo(&mut self, service: &str) -> Result<(), PlaneError> {
        self.applied.remove(service);
        NFT.run(&["-f", "-"], &render::removal(service)).map(drop)
    }
}
