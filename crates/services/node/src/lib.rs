//! The processes of a farm: sockets, clocks and signals around the pure brains.
//!
//! Each role has a node that works on any [`Transport`](sheaf_transport::Transport) and any clock:
//! [`flp::FlpNode`], [`epn::EpnNode`], [`icn::IcnNode`], [`writer::WriterNode`]. It is fed events by `handle` and does
//! what is due by `turn`; [`role`] drives it with sockets and the real clock, the farm tests with the memory transport
//! and a virtual one. All read alike.
//!
//! Programs that are no nodes begin with [`readout`] (they have the data) and [`consume`] (they get timeframes): a
//! readout that gives the STFs of one FLP to a farm (`examples/readout.rs`; the other end is `examples/analysis.rs`):
//!
#![doc = concat!("```no_run\n", include_str!("../examples/readout.rs"), "```")]
//!
//! *Stability:* before version 1.0 names may change with each minor version, which the changelog says; [`readout`] and
//! [`consume`] are kept the longest. Farm files, event logs and messages between nodes have versions of their own.

pub mod bridge;
pub mod budget;
pub mod cards;
pub mod challenge;
mod check;
pub mod clock;
pub mod config;
pub mod consume;
pub mod cpus;
mod digest;
pub mod epn;
pub mod event;
pub mod flp;
mod granted;
mod health;
mod held_back;
mod http;
pub mod icn;
mod icn_link;
mod identity;
mod kinds;
mod ledger;
pub mod log_tail;
pub mod machine;
mod memory_nodes;
pub mod metrics;
pub mod minor;
pub mod operator;
pub mod output;
pub mod program;
pub mod readout;
mod refusals;
pub mod registry;
mod reject;
mod reporting;
pub mod role;
mod run_queue;
pub mod security;
pub mod shutdown;
pub mod sink;
mod slots;
pub mod source;
pub mod status;
pub mod uplink;
mod usage;
pub mod writer;
pub mod zmq;
