//! Which target gets the next job: a timeframe on an EPN, a file on a writer thread, a connection on a server.
//!
//! [`LoadView`] is the picture of the targets, with what was booked on each and what was [`Measured`] of it; a
//! [`Policy`] chooses among those that have room, or says with a [`Refusal`] why there is none; a [`Reaction`] says
//! how the list of targets follows their deaths. Every policy keeps one [`contract`].
//!
//! The crate is pure and knows neither timeframes nor nodes: of `protocol` it takes [`Timestamp`], so that the drivers
//! of all cores pass one and the same type of time.
//!
//! [`Timestamp`]: sheaf_protocol::Timestamp

pub mod contract;
mod load;
mod measure;
pub mod policy;
mod reaction;
mod refusal;
mod spread;

pub use load::{Job, LoadView, TargetId, TargetLoad};
pub use measure::{Finished, Measured};
pub use policy::{Policy, UnknownPolicy};
pub use reaction::{Reaction, UnknownReaction};
pub use refusal::Refusal;
pub use spread::Spread;
