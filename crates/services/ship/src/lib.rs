//! Files of writers shipped to permanent storage.
//!
//! A [`Shipper`] takes the closed files of a folder from its catalogue, copies each to all destinations, compares the
//! checksum that the destination has of it with that of the catalogue, and deletes the file where its disk needs the
//! room. What is done stands in the catalogue before the next step, so a shipper that is killed goes on where it was:
//!
//! ```text
//! closed ─► queued ─► copying ─► verified ─► deletable ─► deleted
//!             ▲          │
//!             └──────────┘  failed, or killed: again later
//! ```
//!
//! Decisions are functions of what is known ([`Backoff`], [`DeleteRule`]); ways to a destination are rows of one table
//! ([`schemes`]).

mod mover;
mod pace;
mod plan;
mod shipper;

pub use mover::{Access, Destination, DestinationError, S3Access, S3Keys, Scheme, schemes};
pub use plan::{Backoff, DeleteRule};
pub use shipper::{Progress, ShipConfig, ShipError, Shipper};
