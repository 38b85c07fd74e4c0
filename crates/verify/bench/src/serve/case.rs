//! Runs of a load test, by case.

use super::Placement;
use sheaf_figures::stat::jain;
use sheaf_load::Outcome;
use std::fmt;

/// One plane with one number of clients, and what its runs gave.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) plane: String,
    pub(super) engine: Option<String>,
    pub(super) clients: u32,
    pub(super) object_bytes: u64,
    /// Rate of the cable of a client host.
    pub(super) client_mbit: Option<f64>,
    pub(super) placement: Placement,
    /// One a round.
    pub(super) samples: Vec<Sample>,
}

/// One run.
#[derive(Debug)]
pub struct Sample {
    /// Fates, bytes and latencies.
    pub outcome: Outcome,
    /// Time for which processors of the machine were busy in the window.
    pub cpu_s: f64,
    /// Servers drained and added again in it.
    pub drains: u32,
    /// Share of the processors that other programs took in user mode.
    pub others_share: f64,
}

impl Sample {
    /// Rate of bodies in Gbit/s.
    #[must_use]
    pub fn gbit_per_s(&self) -> f64 {
        self.outcome.bytes_per_s() * 8.0 / 1e9
    }

    /// Largest rate of a second of the window, in Gbit/s.
    #[must_use]
    pub fn gbit_per_s_max(&self) -> f64 {
        // The last second may be a part of one.
        let whole = self.outcome.seconds as usize;
        let seconds = self.outcome.bytes_each_second.iter().take(whole.max(1));
        seconds.max().map_or(0.0, |bytes| *bytes as f64 * 8.0 / 1e9)
    }

    /// New connections a second.
    #[must_use]
    pub fn connections_per_s(&self) -> f64 {
        self.outcome.window_connections as f64 / self.outcome.seconds.max(1e-9)
    }

    pub(super) fn transfers_per_s(&self) -> f64 {
        self.outcome.window_finished as f64 / self.outcome.seconds.max(1e-9)
    }

    /// Busy time of the processors of the machine in s, for 10⁹ bytes.
    #[must_use]
    pub fn cpu_s_per_gb(&self) -> f64 {
        self.cpu_s / (self.outcome.window_bytes as f64 / 1e9).max(1e-9)
    }

    /// Jain's index of the bytes of the servers.
    #[must_use]
    pub fn jain(&self) -> f64 {
        let bytes = self.outcome.servers.values().map(|served| served.bytes);
        jain(&bytes.collect::<Vec<u64>>())
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.2} Gbit/s, {:.0} connections/s, {} finished, {} failed",
            self.gbit_per_s(),
            self.connections_per_s(),
            self.outcome.finished,
            self.outcome.failures()
        )
    }
}
