//! New connections that wait, where all connections of a client go to one server.
//!
//! A client that is listed nowhere may have begun since the list was made. So its new connections wait from before the
//! list until the change that follows from it: those of slots that move, and those of a pinned client that has no
//! connection left. A list that does not come in time puts the change off.

use super::{SETTLE, Service};
use crate::flow::{Affinity, Flow};
use crate::wanted::ServerId;
use sheaf_protocol::Timestamp;
use std::collections::BTreeSet;
use std::time::Duration;

/// Longest time that new connections wait for a list.
pub(super) const HOLD: Duration = Duration::from_secs(3);
/// Time until a change whose list did not come is tried again.
const PUT_OFF: Duration = Duration::from_secs(5);

/// Pinned client whose new connections wait, as it has no connection left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    /// State of the plane from which on they wait.
    generation: u64,
    applied_at: Option<Timestamp>,
    /// Question whose answer decides.
    question: Option<u64>,
}

/// Change that was put off.
#[derive(Clone, Copy, Debug)]
pub(super) struct PutOff {
    until: Timestamp,
    /// When it was asked for first.
    pub(super) since: Timestamp,
}

impl Service {
    pub(super) fn is_by_client(&self) -> bool {
        self.config.affinity == Affinity::Client
    }

    /// Takes that `clients` are all that have connections to the server: the pin of another one ends, once its new
    /// connections have waited since before this list.
    pub(super) fn release(&mut self, id: ServerId, question: u64, clients: &BTreeSet<Flow>) {
        let generation = self.generation + 1;
        let (pins, holds) = (&mut self.pins, &mut self.holds);
        let mut has_changed = false;
        pins.retain(|client, (at, _)| {
            if *at != id {
                return true;
            }
            if clients.contains(client) {
                has_changed |= holds.remove(client).is_some();
                return true;
            }
            let Some(hold) = holds.get(client) else {
                let (applied_at, question) = (None, None);
                let hold = Hold {
                    generation,
                    applied_at,
                    question,
                };
                holds.insert(*client, hold);
                has_changed = true;
                return true;
            };
            let has_waited = hold.question.is_some_and(|asked| asked <= question);
            has_changed |= has_waited;
            !has_waited
        });
        holds.retain(|client, _| pins.contains_key(client));
        self.has_changed |= has_changed;
    }

    /// Takes that the plane has carried a state out.
    pub(super) fn holds_applied(&mut self, now: Timestamp) {
        let applied = self.applied;
        for hold in self.holds.values_mut() {
            if hold.generation <= applied {
                hold.applied_at.get_or_insert(now);
            }
        }
    }

    /// Returns the servers to be asked whether clients whose connections wait have connections.
    pub(super) fn held_servers(&self, now: Timestamp) -> BTreeSet<ServerId> {
        let is_due = |hold: &Hold| {
            let settled = hold.applied_at.is_some_and(|at| now >= at + SETTLE);
            settled && hold.question.is_none()
        };
        let due = self.holds.iter().filter(|(_, hold)| is_due(hold));
        due.filter_map(|(client, _)| self.pins.get(client))
            .map(|(id, _)| *id)
            .collect()
    }

    /// Takes that the server is being asked.
    pub(super) fn holds_asked(&mut self, now: Timestamp, id: ServerId, question: u64) {
        for (client, hold) in &mut self.holds {
            let is_at = self.pins.get(client).is_some_and(|(at, _)| *at == id);
            let settled = hold.applied_at.is_some_and(|at| now >= at + SETTLE);
            if is_at && settled {
                hold.question.get_or_insert(question);
            }
        }
    }

    /// Lets new connections go on that have waited too long: the change that they waited for is put off.
    pub(super) fn put_off(&mut self, now: Timestamp) {
        if !self.is_by_client() {
            return;
        }
        let is_late = |at: Option<Timestamp>| at.is_some_and(|at| now >= at + HOLD);
        let before = self.holds.len();
        let pins = &self.pins;
        self.holds
            .retain(|client, hold| pins.contains_key(client) && !is_late(hold.applied_at));
        self.has_changed |= self.holds.len() != before;
        let late = self.losing.iter();
        let late: Vec<(ServerId, Timestamp)> = late
            .filter(|(_, losing)| is_late(losing.opened_at))
            .map(|(id, losing)| (*id, losing.since))
            .collect();
        for (from, since) in late {
            self.losing.remove(&from);
            let slots = &self.slots;
            self.moving.retain(|slot, _| slots[*slot as usize] != from);
            let until = now + PUT_OFF;
            self.put_off.insert(from, PutOff { until, since });
            self.has_changed = true;
        }
    }

    /// Whether slots of the server stay for now.
    pub(super) fn is_put_off(&self, now: Timestamp, from: ServerId) -> bool {
        let off = self.put_off.get(&from);
        off.is_some_and(|off| now < off.until)
    }

    /// Forgets changes that were put off and are not asked for any more.
    pub(super) fn forget_put_off(&mut self, now: Timestamp) {
        let losing = &self.losing;
        self.put_off
            .retain(|id, off| now < off.until || losing.contains_key(id));
    }

    /// Returns when waiting ends or is due for a question.
    pub(super) fn hold_times(&self, now: Timestamp) -> impl Iterator<Item = Timestamp> {
        let due = |hold: &Hold| {
            let wait = if hold.question.is_none() {
                SETTLE
            } else {
                HOLD
            };
            hold.applied_at.map(|at| at + wait)
        };
        let is_by_client = self.is_by_client();
        let opened = self.losing.values().filter(move |_| is_by_client);
        let opened = opened.filter_map(|losing| losing.opened_at.map(|at| at + HOLD));
        let off = self.put_off.values().map(|off| off.until);
        let off = off.filter(move |at| *at > now);
        self.holds.values().filter_map(due).chain(opened).chain(off)
    }
}
