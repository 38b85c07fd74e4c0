//! Configuration of the scheduler.

use serde::{Deserialize, Serialize};
use sheaf_placement::Reaction;
use sheaf_protocol::TfId;
use std::time::Duration;

/// How TFs come into being.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// A TF exists from the first announce of an FLP on.
    #[default]
    DataDriven,
    /// The ICN calls for TFs on absolute deadlines: the founding experiments' heartbeat.
    Paced,
}

/// Fate of a TF that lacks STFs at its stale deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Incomplete {
    /// The TF is dropped, with the reason of the first missing STF.
    #[default]
    Never,
    /// The TF is built without them and lists the missing ones, if at least the quorum is there.
    Allow,
}

/// How often a built TF may be delivered, when its EPN dies before it acknowledges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// At most once: the TF is abandoned.
    #[default]
    AtMostOnce,
    /// At least once, as long as the FLPs hold its STFs: another EPN builds and delivers the TF, with a mark.
    AtLeastOnce,
}

/// The `[icn.scheduler]` table of a farm file.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct SchedulerConfig {
    /// Policy that chooses the EPN, such as `"earliest-finish"`.
    pub policy: String,
    /// Seed of the policy's randomness.
    pub seed: u64,
    /// Rule by which the list of EPNs that the policy chooses from follows their deaths.
    pub reaction: Reaction,
    /// How long nothing is placed after a death under the reaction `reinitialise`, in ms.
    pub reset_ms: u64,
    /// How TFs come into being.
    pub mode: Mode,
    /// Rate of the heartbeat in paced mode, in Hz.
    pub paced_rate_hz: f64,
    /// Fate of a TF that lacks STFs.
    pub incomplete: Incomplete,
    /// Fewest STFs of an incomplete TF.
    pub quorum_stfs_min: u32,
    /// How long a TF waits for announces after the first one, in ms; then it is assigned with those that are in.
    pub announce_deadline_ms: u64,
    /// How long an EPN has for a TF whose STFs are all announced, in ms; then the TF moves to another.
    pub tf_deadline_ms: u64,
    /// How long a TF may wait for an EPN that all its FLPs reach, in ms.
    pub unreachable_timeout_ms: u64,
    /// How long TFs wait for an FLP whose control stream is closed while EPNs have data streams of it, in ms.
    pub source_cut_ms: u64,
    /// How long an answer is awaited before a message is retransmitted, in ms.
    pub repeat_ms: u64,
    /// How long the farm has for its last TFs after the sources have stopped, in ms.
    pub drain_ms: u64,
    /// Largest STF that the farm accepts, in bytes.
    pub stf_bytes_max: u64,
    /// Bytes reserved for a TF in paced mode, before its announces are in.
    pub tf_bytes_max: u64,
    /// TFs that wait for room. One more is shed.
    pub queue_tfs_max: u32,
    /// TFs committed to one EPN that it has not acknowledged, at most: so many may be abandoned when it dies. Others
    /// wait undecided.
    pub commits_max: u32,
    /// An EPN may have as many of them as it acknowledged within this time, in ms, if that is more than `commits_max`;
    /// at most [`commits_most`](Self::commits_most). 0: never more.
    pub commits_ms: u64,
    /// Whether EPNs that are known from the verdict log only have their reported TFs on disk: ack level `stored` of the
    /// `[epn]` table.
    #[serde(skip)]
    pub epns_are_durable: bool,
    /// How often a TF may be delivered: `icn.delivery` of the farm file.
    #[serde(skip)]
    pub delivery: Delivery,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self {
            policy: sheaf_placement::policy::DEFAULT.to_owned(),
            seed: 1,
            reaction: Reaction::Whitelist,
            reset_ms: 1000,
            mode: Mode::DataDriven,
            paced_rate_hz: 50.0,
            incomplete: Incomplete::Never,
            quorum_stfs_min: 1,
            announce_deadline_ms: 50,
            tf_deadline_ms: 400,
            unreachable_timeout_ms: 2000,
            source_cut_ms: 5000,
            repeat_ms: 100,
            drain_ms: 5000,
            stf_bytes_max: 64 << 20,
            tf_bytes_max: 64 << 20,
            queue_tfs_max: 4096,
            commits_max: 16,
            commits_ms: 1,
            epns_are_durable: false,
            delivery: Delivery::AtMostOnce,
        }
    }
}

/// Factor by which an EPN that is fast may exceed [`SchedulerConfig::commits_max`].
const COMMITS_FACTOR: u32 = 16;

impl SchedulerConfig {
    /// Returns the most TFs that an EPN may ever have committed and not acknowledged, but for ack level `stored`.
    #[must_use]
    pub fn commits_most(&self) -> u32 {
        match self.commits_ms {
            0 => self.commits_max,
            _ => self.commits_max.saturating_mul(COMMITS_FACTOR),
        }
    }

    /// Takes over from `other` all that may change while a run goes on: the policy, deadlines, the bound of the queue.
    pub fn follow(&mut self, other: &Self) {
        self.policy.clone_from(&other.policy);
        self.seed = other.seed;
        self.reset_ms = other.reset_ms;
        self.announce_deadline_ms = other.announce_deadline_ms;
        self.tf_deadline_ms = other.tf_deadline_ms;
        self.unreachable_timeout_ms = other.unreachable_timeout_ms;
        self.source_cut_ms = other.source_cut_ms;
        self.repeat_ms = other.repeat_ms;
        self.drain_ms = other.drain_ms;
        self.queue_tfs_max = other.queue_tfs_max;
    }

    pub(crate) fn announce_deadline(&self) -> Duration {
        Duration::from_millis(self.announce_deadline_ms)
    }

    pub(crate) fn tf_deadline(&self) -> Duration {
        Duration::from_millis(self.tf_deadline_ms)
    }

    pub(crate) fn unreachable_timeout(&self) -> Duration {
        Duration::from_millis(self.unreachable_timeout_ms)
    }

    pub(crate) fn source_cut(&self) -> Duration {
        Duration::from_millis(self.source_cut_ms)
    }

    pub(crate) fn repeat(&self) -> Duration {
        Duration::from_millis(self.repeat_ms)
    }

    pub(crate) fn reset(&self) -> Duration {
        Duration::from_millis(self.reset_ms)
    }

    pub(crate) fn drain(&self) -> Duration {
        Duration::from_millis(self.drain_ms)
    }
}

/// Conditions under which a run begins and ends by itself. From the `[run]` table of a farm file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunPlan {
    /// FLPs that must have joined.
    pub flps: u32,
    /// EPNs that must have joined.
    pub epns: u32,
    /// TFs to make; `None` for no end.
    pub timeframes: Option<u64>,
    /// The first TF of the run; without it, the highest first TF that the sources can give.
    pub first_tf: Option<TfId>,
    /// How long the begin waits for sources that have not given the id of their first STF, from when one has, in ms.
    pub first_tf_wait_ms: u64,
}

impl Default for RunPlan {
    fn default() -> Self {
        Self {
            flps: 1,
            epns: 1,
            timeframes: None,
            first_tf: None,
            first_tf_wait_ms: 10_000,
        }
    }
}

impl RunPlan {
    pub(crate) fn first_tf_wait(&self) -> Duration {
        Duration::from_millis(self.first_tf_wait_ms)
    }
}
