//! Configuration of liveness: how long silence may last.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The `[icn.liveness]` table of a farm file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct LivenessConfig {
    /// Interval of the pulses by which every node shows that it is alive, in ms.
    pub pulse_ms: u64,
    /// Silence that makes a node suspect, in ms.
    pub suspect_ms: u64,
    /// How much longer a node may be silent that waits for a processor, by its own report, in ms at most.
    pub run_delay_max_ms: u64,
    /// How long an FLP whose stream closed may take to come back, in ms. Its TFs wait that long.
    pub flp_grace_ms: u64,
    /// How long an EPN whose stream closed may take to come back, in ms. Its TFs have moved long before.
    pub epn_grace_ms: u64,
    /// Silence after which the ICN closes the stream from its side, in ms.
    pub cut_ms: u64,
}

impl Default for LivenessConfig {
    fn default() -> Self {
        Self {
            pulse_ms: 20,
            suspect_ms: 100,
            run_delay_max_ms: 1000,
            flp_grace_ms: 100,
            epn_grace_ms: 2000,
            cut_ms: 10_000,
        }
    }
}

impl LivenessConfig {
    /// Returns the interval of the pulses.
    #[must_use]
    pub fn pulse(&self) -> Duration {
        Duration::from_millis(self.pulse_ms)
    }

    pub(crate) fn suspect(&self) -> Duration {
        Duration::from_millis(self.suspect_ms)
    }

    /// Returns the longest run delay of a node that counts.
    #[must_use]
    pub fn run_delay_max(&self) -> Duration {
        Duration::from_millis(self.run_delay_max_ms)
    }

    pub(crate) fn flp_grace(&self) -> Duration {
        Duration::from_millis(self.flp_grace_ms)
    }

    pub(crate) fn epn_grace(&self) -> Duration {
        Duration::from_millis(self.epn_grace_ms)
    }

    pub(crate) fn cut(&self) -> Duration {
        Duration::from_millis(self.cut_ms)
    }
}
