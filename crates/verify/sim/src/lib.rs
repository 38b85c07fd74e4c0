//! Whole farms in one process, in virtual time, under seeded faults.
//!
//! The nodes are the shipped ones ([`sheaf_node`]); only sockets, clocks and consumers are replaced. A seed stands
//! for a farm and everything that happens to it ([`Options`]): a safety phase with faults, then a liveness phase in
//! which all faults have ended. [`TortureFarm::run`] lets it happen and holds the invariants of the contract
//! ([`Invariant`]) against it at every step, from what the nodes write into their event logs, what the ledger
//! takes, and what consumers get. [`torture`] runs seeds by the thousand, [`kills`] measures what the death
//! of an EPN costs. `docs/explanation/torture.md` tells how to read a failure and how to add a fault.

mod dice;
mod family;
mod farm;
mod invariant;
pub mod kills;
pub mod monitor;
mod options;
mod quiet;
mod taken;
mod trace;
mod watch;

pub mod des;
pub mod experiment;
pub mod prior;
pub mod scenario;
pub mod serving;
pub mod summary;
pub mod systems;

pub mod handoff;
#[cfg(feature = "mutants")]
pub mod mutants;
pub mod torture;
pub mod writers;
pub mod writing;

pub use family::SeedFamily;
pub use farm::{Outcome, TortureFarm};
pub use invariant::{Invariant, Violation};
pub use options::{Ack, Fault, Log, Options, VERSION as OPTIONS_VERSION};
pub use trace::{Line, Trace};
pub use watch::Accounting;
