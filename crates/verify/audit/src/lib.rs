//! The accounting of a run, recomputed from the logs of the nodes that did the work.
//!
//! The ICN keeps the accounting. A checker that asked the ICN whether it is right would hear yes, so this one counts
//! what each FLP wrote when it made and sent, and each EPN when it delivered, and compares that with the verdicts of
//! the event logs of all ICNs, with the verdict log itself, and with the ICN's own accounting where it is at hand.
//! Every difference is a [`Contradiction`].
//!
//! `sheaf data verify`, `sheaf demo`, the lab and the simulator all judge by this code. Rules, and the meaning of
//! findings: `docs/reference/verify.md`.

mod audit;
mod auditor;
mod chain;
mod evidence;
mod finding;
mod proven;
mod rosters;
mod series;
mod sinks;
mod stock;
mod tables;
mod tf;

pub use audit::audit;
pub use evidence::{Evidence, Fate, Lives};
pub use finding::{Contradiction, Kind};
pub use proven::{Accounting, Audit, Options, SourceAccounting, StreamAccounting};
pub use rosters::RosterSource;
pub use series::{files_of, logs_in};
pub use stock::Stored;

#[cfg(test)]
mod tests;
