//! Rules of the prior systems, O2-Balancer and O2-Balancer2, without clock, socket or thread.
//!
//! Two drivers use them: the simulator ([`des`](crate::des) in mode legacy) in virtual time, and the processes of the
//! lab on real sockets. So a rule is stated once, and a result of one driver says something about the other. What
//! differs is in the drivers: wires, the time of a cut-off, and what becomes of messages under way to a dead EPN.
//!
//! ```text
//!   Icn ──heartbeat, EPN──► Way ──EPN──► Outbox ══messages══► SetBuilder ──acknowledgement──► count ──► attribute
//!   (choice over an EpnList) (of an FLP)  (bounded)            (of an EPN)
//! ```
//!
//! Where each rule was read: `docs/explanation/simulator.md`, section "Legacy rules".

mod builder;
mod epn_list;
mod flp;
mod icn;
mod losses;

pub use builder::{Closed, SetBuilder};
pub use epn_list::{EpnList, REINIT_MS, takes_notice};
pub use flp::{Outbox, Way};
pub use icn::{Choice, Heartbeat, Icn, Turn};
pub use losses::attribute;
