//! The brain of a director: which server of a service gets a connection, and how that changes without breaking one.
//!
//! A [`Service`] is a virtual address and the servers behind it. Connections fall into slots by a hash of the client's
//! address and port ([`Affinity::slot_of`]); a table names the server of each slot. It is dealt out by the policy
//! `maglev`, so two directors with one configuration agree and never talk. The table follows health, drains and
//! weights; a data plane of the machine carries it out.
//!
//! **Pin on change.** A slot that leaves a server that is well moves in three steps, so that no connection breaks:
//!
//! ```text
//! steady ──► opening: new connections of the slots that move go to the new server, known ones to the old
//!               │     (the plane has carried it out)
//!               ▼
//!            listing: the agents of the old servers list their connections in these slots
//!               │     (all have answered, or the deadline of drains has passed)
//!               ▼
//!            closing: the slots are the new server's; listed connections are pinned to the old one until they end
//! ```
//!
//! Whatever began before the first step is listed, whatever began behind it is at the new server: none is missed in
//! between. Slots of a server that is dead move at once, as there is nothing to keep.
//!
//! **Client affinity.** Where all connections of a client have to go to one server ([`Affinity::Client`]), new ones of
//! the slots that move wait in the middle step instead, as the plane drops their first packet and the client repeats
//! it: the client may have connections to the old server that are not listed yet. A client that is listed is pinned as
//! a whole, and its pin ends in the same way.
//!
//! The crate is pure: events enter by `handle_…`, actions leave by [`Service::poll_action`].

mod config;
mod flow;
mod health;
mod service;
mod wanted;
mod weights;

pub use config::{
    CheckAt, ConfigError, DataConfig, HealthConfig, HealthKind, HttpCheck, ServerConfig,
    ServiceConfig, WeightsConfig, check_services,
};
pub use flow::{Affinity, Flow, jhash};
pub use health::{Health, HealthNews};
pub use service::{
    Action, Explained, Order, OrderError, Reason, ServerStatus, Service, ServiceStatus, Step, Trial,
};
pub use wanted::{HOLD_MAX_S, ServerId, ServerPlace, Wanted};
pub use weights::{LoadReport, Weights};
