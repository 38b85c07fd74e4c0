//! The one line of JSON that a peer prints at its end.

use serde::{Deserialize, Serialize};
use std::fs;

/// Counts at one moment.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Mark {
    /// Seconds of the machine's monotonic clock.
    pub t_s: f64,
    /// User and system time of the process so far, in s.
    pub cpu_s: f64,
    /// Time that all CPUs of the machine were not idle so far, in s.
    pub busy_s: f64,
    /// Messages so far.
    pub messages: u64,
    /// When the last of them was complete; that of the moment where messages are too many to look at the clock.
    pub last_t_s: f64,
    /// Messages by sender; empty on the sending side.
    pub by_sender: Vec<u64>,
}

/// How long messages took from one side to the other, in µs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Latency {
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The longest.
    pub max: f64,
    /// Messages that were timed.
    pub n: u64,
}

/// Report of a peer at its end.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct PeerReport {
    /// The library and its version.
    pub version: String,
    /// Messages in all, from first to last.
    pub messages: u64,
    /// The moments that were marked.
    pub marks: Vec<Mark>,
    /// Peak resident memory.
    pub rss_bytes_max: u64,
    /// Congestion control of the sockets, if the library tells.
    pub congestion: Option<String>,
    /// Of messages that came in between the first two marks.
    pub latency_us: Option<Latency>,
}

/// Peak resident memory of this process, in bytes; 0 if the kernel does not tell.
pub(crate) fn rss_bytes_max() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
