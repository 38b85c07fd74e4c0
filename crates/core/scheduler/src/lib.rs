//! The brain of the ICN: decides which EPN builds which TF, and accounts for every TF.
//!
//! [`Scheduler`] leads every TF from its first announce to its one verdict, asks a policy of `sheaf_placement` for the
//! EPN, and [`Accounting`] adds up to the conservation law. The crate is pure: time comes in as an argument, actions go
//! out by [`Scheduler::poll_action`]. Liveness is the business of `membership`; messages travel by `node` and
//! `transport`.

mod accounting;
mod scheduler;

pub use accounting::{Accounting, SourceAccounting, TargetAccounting};
pub use scheduler::{
    Action, Delivery, FormerEpn, Incomplete, Mode, Recipient, Record, RunPlan, Scheduler,
    SchedulerConfig, Stats, Summary, Trace,
};
