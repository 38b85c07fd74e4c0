//! State that a data plane has to carry out.

use crate::flow::{Affinity, Flow};
use core::net::IpAddr;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Longest time that a plane makes new connections wait, in seconds: it ends by itself should the director die.
pub const HOLD_MAX_S: u64 = 10;

/// Server of one service in one director, never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ServerId(pub u32);

/// Place of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServerPlace {
    /// Name in the configuration.
    pub name: String,
    /// Own addresses of the server, of each family one at most.
    pub addresses: Vec<IpAddr>,
    /// Port that the server listens on.
    pub port: u16,
}

/// State of a service in a data plane: equal states are carried out equally, whatever was before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Wanted {
    /// Name of the service.
    pub service: String,
    /// Virtual addresses.
    pub addresses: Vec<IpAddr>,
    /// Port of the virtual addresses.
    pub port: u16,
    /// First and last further port that is directed.
    pub further_ports: Option<[u16; 2]>,
    /// Part of a connection that picks its server.
    pub affinity: Affinity,
    /// Servers that slots, moves or pins name.
    pub servers: BTreeMap<ServerId, ServerPlace>,
    /// Server of each slot; empty while none has ever been well.
    pub slots: Vec<ServerId>,
    /// Slots on the move: their new connections go to this server, and so does all that has begun there since. With the
    /// affinity of clients, new connections of clients that are not pinned wait: a plane that keeps no state of
    /// connections drops their first packet, for [`HOLD_MAX_S`] seconds at most.
    pub moving: BTreeMap<u32, ServerId>,
    /// Servers that slots on the move were to move to before: connections that began there stay there.
    pub former: BTreeSet<ServerId>,
    /// Connections that stay where they are, whatever their slot says; with the affinity of clients, clients.
    pub pins: BTreeMap<Flow, ServerId>,
    /// Pinned clients whose new connections wait, as their pin may end.
    pub held: BTreeSet<Flow>,
}
