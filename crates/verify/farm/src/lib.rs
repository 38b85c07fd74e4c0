//! The processes of a farm: one supervisor for the demo, the benchmarks and the lab.
//!
//! [`Process`] is one process in hand, and [`Life`] one of a node, with its logs and its fate; these two also serve the
//! lab and the tests of whole farms. [`Supervisor`] starts, signals and reaps the nodes of a farm in a [`RunDir`], and
//! delivers what they write as [`Notice`]s. [`proc`] reads from the kernel what a process has used, and on which
//! machine.

mod accounting;
mod life;
mod notice;
pub mod proc;
mod process;
mod run_dir;
mod supervisor;

pub use accounting::accounting_of;
pub use life::{Life, LifeFiles, Lives};
pub use notice::{Notice, quit_on_signals, read_line};
pub use process::{Lines, NoLine, Output, Process, Remote, StartError};
pub use run_dir::{RunDir, RunDirError};
pub use supervisor::Supervisor;
