//! Tables of a file that say how its points are run: live processes, machine of simulated ones, nodes killed by chance.

use serde::{Deserialize, Serialize};

/// The `[live]` table: configuration of nodes in namespaces.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct LiveSettings {
    /// TFs in EPNs at once, as a time of the offered rate, in ms: their memory follows. Beyond it TFs wait at the FLPs.
    pub in_flight_ms: u64,
    /// The same for one EPN at least, in TFs.
    pub in_flight_tfs_min: u64,
    /// How long an EPN has for a TF, in ms.
    pub tf_deadline_ms: u64,
    /// How far the time of the generation may be off, in percent: a run that is further off is rejected.
    pub window_percent: f64,
    /// Share of the processors that other programs and the hypervisor may take in a run, in percent: one with less left
    /// is rejected.
    pub others_percent_max: f64,
    /// Share of the time, in percent, in which some task may wait for a processor: in a run with more the farm has not
    /// enough of them, which is rejected.
    pub pressure_percent_max: f64,
    /// How often a rejected run is made again.
    pub retries: u32,
    /// Whether heartbeats of legacy runs are paced by FairMQ's rate limiter with its dead band of 1/64.
    pub legacy_dead_band: bool,
}

impl Default for LiveSettings {
    fn default() -> Self {
        Self {
            in_flight_ms: 150,
            in_flight_tfs_min: 2,
            tf_deadline_ms: 1000,
            window_percent: 1.0,
            others_percent_max: 10.0,
            pressure_percent_max: 50.0,
            retries: 2,
            legacy_dead_band: false,
        }
    }
}

/// The `[machine]` table: what simulated points on a topology take for the machine that live ones share, and that is no
/// matter of its cables. Defaults were measured, docs/explanation/simulator.md, "Calibration".
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Machine {
    /// From process to process on two nodes, bytes and words alike: waking, reading, thinking, writing; in µs. Where
    /// TFs follow each other at [`WARM_MS`](Self::WARM_MS) or more: processors have slept, and caches lost their data.
    pub hop_us: u64,
    /// Processor time of an STF beside its bytes there, in µs.
    pub stf_us: u64,
    /// As `hop_us`, where TFs follow each other faster.
    pub warm_hop_us: u64,
    /// As `stf_us`, where TFs follow each other faster.
    pub warm_stf_us: u64,
    /// Processor time of an STF that is granted, beside that of one that is pushed, in µs.
    pub grant_us: u64,
    /// Time from the delivery of a TF until a consumer that is idle begins with it, in µs.
    pub take_us: u64,
    /// Time that a consumer takes for each TF beside its work, in µs.
    pub consumer_us: u64,
    /// Payload rate that the processors of the machine carry for all nodes where links charge frames, in Mbit/s.
    pub frames_mbit_s: f64,
    /// The same where links charge segments in bulk.
    pub bulk_mbit_s: f64,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            hop_us: 70,
            stf_us: 64,
            warm_hop_us: 45,
            warm_stf_us: 50,
            grant_us: 25,
            take_us: 250,
            consumer_us: 200,
            frames_mbit_s: 2000.0,
            bulk_mbit_s: 9000.0,
        }
    }
}

impl Machine {
    /// Period of TFs below which the processors of the machine do not sleep between them, in ms. Live farms at 40 Hz
    /// and below are slower than at 47 Hz and above (draws of `experiments/holdout.toml`).
    pub const WARM_MS: f64 = 25.0;

    /// Returns the hop and the processor time of an STF at `rate_hz` TFs a second, in µs.
    #[must_use]
    pub fn at_rate(&self, rate_hz: f64) -> (u64, u64) {
        if 1000.0 / rate_hz < Self::WARM_MS {
            (self.warm_hop_us, self.warm_stf_us)
        } else {
            (self.hop_us, self.stf_us)
        }
    }

    /// Returns whether nothing is said.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The `[chaos]` table: nodes that are killed all the time, and come again.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Chaos {
    /// From one kill to the next, in s.
    pub every_s: f64,
    /// How long a node stays away, in s.
    pub away_s: f64,
    /// Whether FLPs are killed, too; what they held is lost.
    #[serde(default)]
    pub flps: bool,
}
