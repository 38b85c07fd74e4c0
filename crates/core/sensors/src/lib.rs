//! Values of a machine and its processes, read from the texts of Linux.
//!
//! This crate answers: *what does the text of a file of `/proc` or `/sys` say?* A function takes the text of one file
//! and returns plain values in base units; [`Total`] makes a counter that only grows out of one that wraps or begins
//! again, and [`Watch`] tells what became of a process. Which files there are, when they are read and where values go
//! is left to the driver, `crates/services/agent`.
//!
//! A line counts only with its line feed: in a text that is cut, the last number would be too small, and a counter
//! would seem to have begun again. Lines and fields that are not known are passed over, since kernels add some.

mod cgroup;
mod cpu;
mod disk;
mod error;
mod line;
mod memory;
mod network;
mod pressure;
mod process;
mod single;
mod stack;
#[cfg(test)]
mod tests;
mod total;
mod watch;

pub use cgroup::{CgroupCpu, CgroupIo, cgroup_cpu, cgroup_io, flat};
pub use cpu::{CPU_STATES, Clock, CoreTimes, Stat, clocks, stat};
pub use disk::{Disk, Operation, disks, mounts};
pub use error::ParseError;
pub use memory::{meminfo, vmstat};
pub use network::{Interface, interfaces};
pub use pressure::{Pressure, pressure};
pub use process::{Process, process};
pub use single::{Load, THROTTLES, files, load, number, signed, throttles};
pub use stack::pairs;
pub use total::{Total, WhenLower};
pub use watch::{Change, Life, Watch};

/// Ticks a second of times in `/proc`, which Linux fixes for programs whatever its own clock does.
pub const TICKS_PER_S: u64 = 100;
/// Nanoseconds of a tick.
pub const TICK_NS: u64 = 1_000_000_000 / TICKS_PER_S;
/// Bytes of a sector in `/proc/diskstats`, whatever the disk has.
pub const SECTOR_BYTES: u64 = 512;
