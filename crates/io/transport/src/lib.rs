//! Moves framed messages between nodes.
//!
//! This crate answers one question: *how do a head and its payload get from one node to another, whole,
//! in order, and without needless copies?* What the bytes mean is the business of
//! [`sheaf_protocol`]; which nodes are connected, and what to do when a connection closes, that of the node.
//!
//! - [`Transport`] is the trait, [`contract`] the suite that every implementation passes;
//! - [`Tcp`] is the real one, over TCP and Unix sockets: one epoll loop, vectored batches out, bodies read straight
//!   into an [`Arena`]. Between two processes of one machine bodies stay where they are, and only their places travel,
//!   through shared memory;
//! - [`Sharded`] is the same with further loops, each in a thread of its own, for the connections that carry bulk data;
//! - [`handover`] gives messages of many bodies to a process that is no node, without a copy;
//! - [`memory`] is the one for tests and simulation: virtual time, seeded faults.
//!
//! Two endpoints in one program (`examples/two_endpoints.rs`):
//!
#![doc = concat!("```no_run\n", include_str!("../examples/two_endpoints.rs"), "```")]
//!
//! *Stability:* before version 1.0 names may change with each minor version, which the changelog says. What travels
//! between nodes has a version of its own, that of [`sheaf_protocol`].

mod fault;
mod mapping;
mod memory_nodes;
mod shards;
mod shm;
mod transport;

pub mod arena;
pub mod contract;
pub mod handover;
pub mod memory;
pub mod recorded;
pub mod tcp;
pub mod unix;

pub use arena::{Arena, ArenaError, ArenaOptions, Block};
pub use fault::ShmFault;
pub use memory_nodes::prefer_memory_nodes;
pub use shards::{LOOPS_MAX, Loops, Sharded};
pub use sheaf_auth::Identity;
pub use sheaf_protocol::{Limits, PrefixError, WireKind};
pub use tcp::{Bulk, CloseNotice, KernelTls, Refusal, Security, Stats, Tcp, TcpConfig, Waker};
pub use transport::{
    CloseReason, ConnId, ConnectError, EARLY_HEAD_BYTES_MAX, EarlyFrame, Event, Frame, ListenError,
    ListenerId, SendError, TlsFailure, Transport, WhenFull,
};
