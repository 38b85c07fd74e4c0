//! Intake of samples: what a collector decides about incoming bytes.
//!
//! This crate answers: *which series do these bytes belong to, may their source send them, and what was lost on the
//! way?* Bytes come in by [`Intake::handle_datagram`] with their sender and the time, [`Batch`]es of
//! `(SeriesHandle, Sample)` go out. Sockets, threads and clocks belong to the driver, formats to `sheaf-samples`.
//!
//! | file | idea |
//! | --- | --- |
//! | [`Intake`] | what happens to a datagram |
//! | [`IntakeConfig`] | bounds of each source, and their defaults |
//! | [`Reason`] | closed list of reasons why a good sample is refused |
//! | [`SourceStats`], [`Loss`] | accounting of each source |
//!
//! The accounting holds at every instant, for each source and in total: samples in = taken + refused by reason + bad by
//! code.

mod batch;
mod budget;
mod config;
mod events;
mod intake;
mod links;
mod loss;
mod names;
mod peer;
mod reason;
mod series;
mod source;
mod sources;

pub use batch::{Batch, Notice, SeriesHandle};
pub use config::IntakeConfig;
pub use intake::{Intake, Outcome, Protocol, Verify};
pub use loss::Loss;
pub use names::Collision;
pub use peer::Peer;
pub use reason::Reason;
pub use source::SourceStats;
