//! The table that is asked for, and slots that move to it.

use super::{GONE, Losing, Moving, Server, Service};
use crate::flow::{Affinity, Flow};
use crate::wanted::ServerId;
use sheaf_placement::policy::maglev::Maglev;
use sheaf_protocol::{Timestamp, splitmix};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Server that gets connections: hash of its name, weight.
pub(super) type Member = (ServerId, u64, u32);

impl Service {
    /// Returns the servers that get connections, sorted by name: id, hash of the name, weight.
    pub(super) fn members(&self, now: Timestamp) -> Vec<Member> {
        let gets = |server: &&Server| server.health.is_up() && !server.is_draining;
        let mut members: Vec<(&str, ServerId, u32)> = self
            .servers
            .iter()
            .filter(|(_, server)| gets(server))
            .map(|(id, server)| {
                let share = server.health.share(now, &self.config.health);
                let weight = server.config.weight * server.weights.factor() * share;
                let milli = (weight * 1000.0).round().clamp(1.0, 1e9) as u32;
                (server.config.name.as_str(), *id, milli)
            })
            .collect();
        members.sort_unstable();
        let of = |(name, id, weight): (&str, ServerId, u32)| (id, hash_of_name(name), weight);
        members.into_iter().map(of).collect()
    }

    /// Returns the table that health, drains and weights ask for; empty if no server gets connections. Dealt out again
    /// only when they have changed.
    pub(super) fn target(&mut self, now: Timestamp) -> Arc<[ServerId]> {
        let members = self.members(now);
        if self.dealt.0 != members {
            let hashes: Vec<(u64, u32)> = members
                .iter()
                .map(|(_, hash, weight)| (*hash, *weight))
                .collect();
            let table = Maglev::table(self.config.slots as usize, &hashes);
            let table = table
                .iter()
                .map(|place| members[*place as usize].0)
                .collect();
            self.dealt = (members, table);
        }
        Arc::clone(&self.dealt.1)
    }

    /// Puts slots on the move whose server is not the one that the table asks for.
    pub(super) fn open(&mut self, now: Timestamp) {
        if self.slots.is_empty() && !self.begins(now) {
            return;
        }
        let target = self.target(now);
        if target.is_empty() {
            return; // The last servers keep what they have: one of them may be well all the same.
        }
        if self.slots.is_empty() {
            self.slots = target.to_vec();
            self.has_changed = true;
            return;
        }
        let mut opened = BTreeSet::new();
        for (slot, to) in (0..).zip(target.iter().copied()) {
            let from = self.slots[slot as usize];
            let planned = self.moving.get(&slot).map(|moving| moving.to);
            match planned {
                None if from == to || self.is_put_off(now, from) => {}
                None => {
                    let holders = BTreeSet::from([from]);
                    self.moving.insert(slot, Moving { to, holders });
                    opened.insert(from);
                }
                // Another change follows when this one has ended, unless its new server is down.
                Some(planned) if planned == to || self.is_up(planned) => {}
                Some(planned) => {
                    let moving = self.moving.get_mut(&slot).expect("it is planned");
                    moving.to = to;
                    self.has_changed = true;
                    // Where connections wait for the list, none has begun there.
                    if self.config.affinity == Affinity::Connection {
                        moving.holders.insert(planned);
                        moving.holders.remove(&to);
                        opened.insert(planned);
                    }
                }
            }
        }
        let generation = self.generation + 1;
        for from in opened {
            self.has_changed = true;
            let before = self.losing.get(&from).map(|losing| losing.since);
            let before = before.or(self.put_off.get(&from).map(|off| off.since));
            let since = before.unwrap_or(now);
            let losing = Losing {
                generation,
                since,
                opened_at: None,
                ask_at: None,
                question: None,
            };
            self.losing.insert(from, losing);
        }
        self.forget_put_off(now);
    }

    /// Whether the first table can be made: every server has been checked, or their time is up.
    fn begins(&self, now: Timestamp) -> bool {
        let mut all = self.servers.values();
        now >= self.begin_at || all.all(|server| server.health.is_checked())
    }

    /// Takes that `flows` are all connections of `from`: those of slots that leave it stay. Slots that no further
    /// server has connections of are the new servers'.
    pub(super) fn settle(&mut self, now: Timestamp, from: ServerId, flows: &BTreeSet<Flow>) {
        self.losing.remove(&from);
        self.put_off.remove(&from);
        let until = now + Duration::from_secs(self.config.drain_s);
        for flow in flows {
            let slot = self.config.affinity.slot_of(*flow, self.config.slots);
            let moving = self.moving.get(&slot);
            // A proxy has connections at another server than that of their slot, if that refused them.
            let may_be_elsewhere = self.is_listed_by_plane || self.is_spread_by_plane;
            let is_elsewhere = may_be_elsewhere && self.slots[slot as usize] != from;
            if moving.is_some_and(|slot| slot.holders.contains(&from)) || is_elsewhere {
                // A port that was taken again is where it was listed last.
                self.pins.insert(*flow, (from, until));
            }
        }
        let slots = &mut self.slots;
        self.moving.retain(|slot, moving| {
            moving.holders.remove(&from);
            let is_open = !moving.holders.is_empty();
            if !is_open {
                slots[*slot as usize] = moving.to;
            }
            is_open
        });
        self.pins_asked_at.insert(from, now);
        self.has_changed = true;
    }

    /// Ends what waits in vain: for servers that are gone, and beyond the deadline of drains.
    pub(super) fn give_up(&mut self, now: Timestamp) {
        let drain = Duration::from_secs(self.config.drain_s);
        let given_up: Vec<ServerId> = self
            .losing
            .iter()
            .filter(|(id, losing)| {
                let is_asked = losing.opened_at.is_some_and(|at| now.since(at) >= GONE);
                is_asked && self.is_gone(now, **id) || now.since(losing.since) >= drain
            })
            .map(|(id, _)| *id)
            .collect();
        for id in given_up {
            let known = self.servers.get(&id).and_then(|server| server.flows);
            self.given_up += known.unwrap_or(0) as u64;
            self.settle(now, id, &BTreeSet::new());
        }
        let ended: Vec<Flow> = self
            .pins
            .iter()
            .filter(|(_, (id, until))| now >= *until || self.is_gone(now, *id))
            .map(|(flow, _)| *flow)
            .collect();
        for flow in ended {
            self.pins.remove(&flow);
            self.given_up += 1;
            self.has_changed = true;
        }
    }

    /// Ends pins to the server that has their slot, as after a server that was down for a moment: the slot leads there
    /// as well, and a second director, which saw no change, has no such pins. Only once the plane has followed all
    /// changes, since some planes take up slots and pins one by one.
    pub(super) fn unpin_at_home(&mut self) {
        let is_steady = self.moving.is_empty() && self.applied == self.generation;
        if self.is_spread_by_plane || self.has_changed || !is_steady {
            return;
        }
        let (affinity, slots) = (self.config.affinity, &self.slots);
        let before = self.pins.len();
        self.pins.retain(|flow, (id, _)| {
            let slot = affinity.slot_of(*flow, self.config.slots);
            slots.get(slot as usize) != Some(id)
        });
        let pins = &self.pins;
        self.holds.retain(|client, _| pins.contains_key(client));
        self.has_changed = self.pins.len() != before;
    }

    /// Whether the server is not there any more, with all its connections: down, and its agent is silent.
    fn is_gone(&self, now: Timestamp, id: ServerId) -> bool {
        let Some(server) = self.servers.get(&id) else {
            return true;
        };
        let is_long = |since: Timestamp| now.since(since) >= GONE;
        server.down_since.is_some_and(is_long) && server.answered_at.is_none_or(is_long)
    }

    /// Returns the servers that slots on the move were to move to and that may have connections of them.
    pub(super) fn former(&self) -> BTreeSet<ServerId> {
        let of = |(slot, moving): (&u32, &Moving)| {
            let own = self.slots[*slot as usize];
            let holders = moving.holders.clone();
            holders.into_iter().filter(move |id| *id != own)
        };
        self.moving.iter().flat_map(of).collect()
    }
}

/// Returns the hash of a server's name, which orders its entries of the table in every director alike.
pub(super) fn hash_of_name(name: &str) -> u64 {
    let fold = |hash: u64, byte: &u8| splitmix::hash(hash ^ u64::from(*byte));
    name.as_bytes().iter().fold(name.len() as u64, fold)
}
