//! The processes of a farm: one supervisor for the demo, the benchmarks and the lab.
//!
//! [`Farm`] starts, signals and reaps the processes of nodes in a [`RunDir`], and delivers what they write as
//! [`Notice`]s. [`proc`] reads from the kernel what a process has used, and on which machine.

mod accounting;
mod farm;
mod notice;
pub mod proc;
mod run_dir;

pub use accounting::accounting_of;
pub use farm::{Farm, Process, StartError};
pub use notice::{Notice, quit_on_signals};
pub use run_dir::{RunDir, RunDirError};
