//! State of a service as operators see it, explanations and trials.

use super::{Order, OrderError, Service};
use crate::flow::Flow;
use core::net::IpAddr;
use serde::{Deserialize, Serialize};
use sheaf_protocol::Timestamp;
use std::collections::BTreeMap;

/// Step of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Nothing is on the move.
    Steady,
    /// The plane is taking up that new connections of some slots go elsewhere.
    Opening,
    /// Agents list the connections that stay.
    Listing,
    /// The plane is taking up the new table.
    Closing,
}

/// State of a server.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ServerStatus {
    /// Name.
    pub name: String,
    /// Own addresses.
    pub addresses: Vec<IpAddr>,
    /// Whether it passes its checks.
    pub is_up: bool,
    /// Whether it passes them but changed too often.
    pub is_held: bool,
    /// Reason of the last failed check.
    pub error: Option<String>,
    /// Whether it gets no new connection by order.
    pub is_draining: bool,
    /// Whether a drain has ended.
    pub is_drained: bool,
    /// Configured weight.
    pub weight: f64,
    /// Factor on it by measured load.
    pub factor: f64,
    /// Slots.
    pub slots: usize,
    /// Slots that are leaving it.
    pub leaving: usize,
    /// Connections that are pinned to it.
    pub pins: usize,
    /// Connections that its agent listed last.
    pub connections: Option<usize>,
    /// Bytes per second that its agent measured last.
    pub bytes_per_s: Option<f64>,
    /// Share of its scarcest resource that was used then.
    pub used: Option<f64>,
}

/// State of a service.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ServiceStatus {
    /// Name.
    pub name: String,
    /// Virtual addresses.
    pub addresses: Vec<IpAddr>,
    /// Port.
    pub port: u16,
    /// Step of the change under way.
    pub step: Step,
    /// Slots in all.
    pub slots: usize,
    /// Slots on the move.
    pub moving: usize,
    /// Pinned connections.
    pub pins: usize,
    /// Connections whose server was given up: it was gone, or its drain had reached the deadline.
    pub given_up: u64,
    /// Reason why the plane does not follow.
    pub plane_error: Option<String>,
    /// Digest of the table: equal in directors that agree.
    pub table: String,
    /// Servers, by name.
    pub servers: Vec<ServerStatus>,
}

/// Reason why a connection goes to its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The slot is the server's.
    Slot,
    /// The slot is on the move: a new connection goes there, a known one to the server before.
    Moving,
    /// The connection is pinned until it ends.
    Pin,
    /// The plane has a hash of its own, and has the connection there.
    Plane,
}

/// Where a connection goes, and why.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Explained {
    /// The connection.
    pub client: Flow,
    /// Hash of its address and port, or of its address alone with the affinity of clients.
    pub hash: u32,
    /// Slot.
    pub slot: u32,
    /// Slots in all.
    pub slots: u32,
    /// Name of the server.
    pub server: String,
    /// Reason.
    pub reason: Reason,
    /// Server of the slot before the move, if it is on the move.
    pub before: Option<String>,
}

/// Changes that an order would make.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Trial {
    /// Slots in all.
    pub slots: usize,
    /// Slots that would move.
    pub moved: usize,
    /// Of these, moves that any table would need for these weights.
    pub needed: usize,
    /// Slots of each server before and after, by name.
    pub servers: BTreeMap<String, [usize; 2]>,
}

impl Service {
    /// Returns the state.
    #[must_use]
    pub fn status(&self, now: Timestamp) -> ServiceStatus {
        let mut servers: Vec<ServerStatus> = self
            .servers
            .iter()
            .map(|(id, server)| {
                let own = self.slots.iter().filter(|at| *at == id).count();
                let leaving = self.moving.iter();
                let leaving = leaving.filter(|(slot, moving)| {
                    self.slots[**slot as usize] == *id && moving.to != *id
                });
                let latest = server.weights.latest();
                ServerStatus {
                    name: server.config.name.clone(),
                    addresses: server.config.addresses.clone(),
                    is_up: server.health.is_up(),
                    is_held: server.health.is_held(now, &self.config.health),
                    error: server.health.last_error().map(str::to_owned),
                    is_draining: server.is_draining,
                    is_drained: server.is_draining && !self.is_in_use(*id),
                    weight: server.config.weight,
                    factor: server.weights.factor(),
                    slots: own,
                    leaving: leaving.count(),
                    pins: self.pins.values().filter(|(at, _)| at == id).count(),
                    connections: server.flows,
                    bytes_per_s: latest.map(|(_, report)| report.bytes_per_s),
                    used: latest.map(|(_, report)| report.used()),
                }
            })
            .collect();
        servers.sort_by(|a, b| a.name.cmp(&b.name));
        ServiceStatus {
            name: self.config.name.clone(),
            addresses: self.config.addresses.clone(),
            port: self.config.port,
            step: self.step(),
            slots: self.slots.len(),
            moving: self.moving.len(),
            pins: self.pins.len(),
            given_up: self.given_up,
            plane_error: self.apply_error.clone(),
            table: self.digest(),
            servers,
        }
    }

    fn step(&self) -> Step {
        let is_behind = self.applied < self.generation;
        match (self.losing.is_empty(), is_behind) {
            (true, false) => Step::Steady,
            (true, true) => Step::Closing,
            (false, true) => Step::Opening,
            (false, false) => Step::Listing,
        }
    }

    fn name_of(&self, id: crate::ServerId) -> &str {
        self.servers
            .get(&id)
            .map_or("", |server| &server.config.name)
    }

    /// Returns a digest of the table by names.
    fn digest(&self) -> String {
        let hash_of = |id: &crate::ServerId| super::moves::hash_of_name(self.name_of(*id));
        let fold = |sum: u64, id| sheaf_protocol::splitmix::hash(sum ^ hash_of(id));
        format!("{:016x}", self.slots.iter().fold(0, fold))
    }

    /// Returns where a connection goes, and why; `None` while no server has ever been well.
    #[must_use]
    pub fn explain(&self, client: Flow) -> Option<Explained> {
        let client = client.canonical();
        let affinity = self.config.affinity;
        let slot = affinity.slot_of(client, self.config.slots);
        let own = *self.slots.get(slot as usize)?;
        let pinned = self.pins.get(&affinity.key(client)).map(|(id, _)| *id);
        let (id, reason, before) = match (pinned, self.moving.get(&slot)) {
            (Some(pinned), _) => (pinned, Reason::Pin, None),
            (None, Some(slot)) => (slot.to, Reason::Moving, Some(self.name_of(own).to_owned())),
            (None, None) => (own, Reason::Slot, None),
        };
        Some(Explained {
            client,
            hash: affinity.hash(client),
            slot,
            slots: self.config.slots,
            server: self.name_of(id).to_owned(),
            reason,
            before,
        })
    }

    /// Returns what an order would change, and changes nothing.
    ///
    /// # Errors
    ///
    /// Why the order would not be carried out.
    pub fn trial(&self, now: Timestamp, order: Order) -> Result<Trial, OrderError> {
        let mut after = self.clone();
        let is_new = match &order {
            Order::Add { server } => Some(server.name.clone()),
            _ => None,
        };
        after.handle_order(now, order)?;
        if let Some(id) = is_new.and_then(|name| after.id_of(&name).ok()) {
            after.handle_check(now, id, Ok(())); // As it will be once it is well.
        }
        let target = after.target(now);
        let mut servers: BTreeMap<String, [usize; 2]> = BTreeMap::new();
        for server in after.servers.values() {
            servers.insert(server.config.name.clone(), [0, 0]);
        }
        for id in &self.slots {
            servers.entry(self.name_of(*id).to_owned()).or_default()[0] += 1;
        }
        for id in target.iter() {
            servers.entry(after.name_of(*id).to_owned()).or_default()[1] += 1;
        }
        let pairs = self.slots.iter().zip(target.iter());
        let moved = pairs.filter(|(from, to)| self.name_of(**from) != after.name_of(**to));
        let gains = servers
            .values()
            .map(|[before, after]| after.saturating_sub(*before));
        Ok(Trial {
            slots: target.len(),
            moved: moved.count(),
            needed: gains.sum(),
            servers,
        })
    }
}
