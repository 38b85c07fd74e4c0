//! The brain of the ICN: which EPN builds which TF, and what became of it.
//!
//! [`LoadView`] is what is known of the targets, a [`Policy`] chooses among them, [`Scheduler`] leads every TF
//! from its first announce to its one verdict, and [`Accounting`] add up to the conservation law. The crate is pure:
//! time comes in as an argument, actions go out by [`Scheduler::poll_action`]. It leaves to others who is
//! alive (`membership`) and how messages travel (`node`, `transport`).

mod accounting;
pub mod contract;
mod load;
mod measure;
pub mod policy;
mod reaction;
mod refusal;
mod scheduler;

pub use accounting::{Accounting, SourceAccounting};
pub use load::{Job, LoadView, TargetId, TargetLoad};
pub use measure::{Finished, Measured};
pub use policy::{Policy, UnknownPolicy};
pub use reaction::{Reaction, UnknownReaction};
pub use refusal::Refusal;
pub use scheduler::{
    Action, Incomplete, Mode, Recipient, Record, RunPlan, Scheduler, SchedulerConfig, Stats,
    Summary, Trace,
};
