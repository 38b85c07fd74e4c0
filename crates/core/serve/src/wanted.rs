//! State that a data plane has to carry out.

use crate::flow::Flow;
use core::net::IpAddr;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

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
    /// Servers that slots, moves or pins name.
    pub servers: BTreeMap<ServerId, ServerPlace>,
    /// Server of each slot; empty while none has ever been well.
    pub slots: Vec<ServerId>,
    /// Slots on the move: their new connections go to this server, and so does all that has begun there since.
    pub moving: BTreeMap<u32, ServerId>,
    /// Servers that slots on the move were to move to before: connections that began there stay there.
    pub former: BTreeSet<ServerId>,
    /// Connections that stay where they are, whatever their slot says.
    pub pins: BTreeMap<Flow, ServerId>,
}
