//! The brain of an EPN: decides which STFs make which TF, and when a TF is whole.
//!
//! [`TfBuilder`] keeps one slot a TF, keyed by TF id, with one place for each source of its roster: order does not
//! matter, and an STF that does not belong is refused with a [`RefusedStf`]. A whole TF is reported to the ICN and
//! delivered only after its commit. The crate is pure: time comes in as an argument, actions go out by
//! [`TfBuilder::poll_action`], and the payload is a type parameter, so the simulator builds TFs of no bytes at all with
//! the same object. It leaves to others: the bytes and their digest (`transport`), the consumer (`node`), the choice of
//! the EPN (`scheduler`).

mod builder;
mod config;
mod consumer;
mod grants;
mod slot;
mod stats;

pub use builder::{Action, TfBuilder};
pub use config::BuildConfig;
pub use stats::{RefusedStf, Stats};
