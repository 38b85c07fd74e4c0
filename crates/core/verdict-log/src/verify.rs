//! Whether it all adds up: the books of a run, made up again from the logs of those who did the work.
//!
//! The ICN keeps the books. A checker that asked the ICN whether they are right would hear yes, so this one
//! counts what each FLP wrote when it made and sent, and each EPN when it handed on, and holds that against
//! the verdicts of the event logs of all ICNs, against the verdict log itself, and against the ICN's own books
//! where they are at hand. Whatever does not fit is a [`Contradiction`].
//!
//! `sheaf verify`, `sheaf demo`, the lab and the simulator all judge by this code. What is checked, and what a
//! finding means: `docs/verify.md`.

mod audit;
mod evidence;
mod finding;
mod rosters;
mod tables;
mod tf;

pub use audit::{Audit, Books, Options, SourceBooks, audit};
pub use evidence::{Evidence, Fate, Lives};
pub use finding::{Contradiction, Kind};
pub use rosters::RosterSource;

#[cfg(test)]
mod tests;
