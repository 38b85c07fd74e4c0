//! The brain of the ICN: load view, policies, refusals, scheduler, the books.

pub mod contract;
mod load;
pub mod policy;
mod refusal;

pub use load::{Job, LoadView, TargetId, TargetLoad};
pub use policy::{Policy, UnknownPolicy};
pub use refusal::Refusal;
