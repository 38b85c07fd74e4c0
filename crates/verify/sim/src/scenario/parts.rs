//! Tables of a scenario: sizes, rules, nodes, faults.

use super::Beam;
use serde::{Deserialize, Serialize};

/// Rules of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The shipped scheduler, builder and hold.
    #[default]
    Sheaf,
    /// Rules of the prior systems, as the `[legacy]` table switches them on.
    Legacy,
}

/// Point at which an EPN acknowledges a TF, so that FLPs free it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AckLevel {
    /// When its consumer has it.
    #[default]
    Built,
    /// When its consumer has finished; a TF whose EPN dies before is built again at another one.
    Processed,
}

impl AckLevel {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Sizes of the STFs. The mean over all FLPs and TFs is about `bytes`; with a [`Beam`] it is so at the begin of a fill.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sizes {
    /// Model of the size of an STF.
    pub model: SizeModel,
    /// Payload bytes of a mean STF.
    pub bytes: u64,
    /// Standard deviation of the logarithm of one STF's size within its FLP, in model `tpc`.
    pub sigma: f64,
    /// Standard deviation of the logarithm of the FLPs' mean sizes, in model `tpc`: how uneven the detectors are.
    pub flp_sigma: f64,
    /// Standard deviation of the logarithm of a factor that all STFs of a TF have in common, beside the model; 0 for
    /// none. Sums over many FLPs average out what each draws for itself; what the beams did, they all see.
    pub common_sigma: f64,
    /// Collisions that the sizes follow, beside the model.
    #[serde(skip_serializing_if = "Beam::is_default")]
    pub beam: Beam,
    /// Period of the sine in TFs, in model `sine`.
    pub period_tfs: u32,
    /// A file with one size in bytes a line, in model `trace`; FLP `f` begins at line `f`, and behind the end it
    /// goes on at the beginning. Relative to the scenario file.
    pub trace: String,
    /// The sizes of the trace; read with the file.
    #[serde(skip)]
    pub trace_bytes: Vec<u64>,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            model: SizeModel::Fixed,
            bytes: 100_000,
            sigma: 0.3,
            flp_sigma: 1.0,
            common_sigma: 0.0,
            beam: Beam::default(),
            period_tfs: 100,
            trace: String::new(),
            trace_bytes: Vec::new(),
        }
    }
}

/// Model of the size of an STF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SizeModel {
    /// Every STF has `bytes`.
    #[default]
    Fixed,
    /// Evenly spread from half of `bytes` to one and a half times it: the original O2 balancer's random.
    Random,
    /// All FLPs swell and shrink together between 0 and twice `bytes`.
    Sine,
    /// Lognormal, around a mean that is lognormal over FLPs: a few of them bring most bytes, as a TPC's do.
    Tpc,
    /// From a file.
    Trace,
}

/// Rules of the prior systems, each to be switched by itself. Sources: `docs/explanation/simulator.md`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Legacy {
    /// Way in which the EPN makes TFs of messages.
    pub builder: Builder,
    /// Whether a counting builder looks at the order of messages: experiment-2 did, experiment-1 sent no number of the
    /// heartbeat with the data, and took any.
    pub order: bool,
    /// How long the coordinator counts acknowledgements after the last heartbeat, in ms: 20 in the network
    /// baseline, 1000 in the round robin of the ICN.
    pub cutoff_ms: u64,
    /// Heartbeats and acknowledgements go over the NIC of the data.
    pub shared_control_nic: bool,
    /// Every FLP counts its own way round the EPNs, so that two of them may part.
    pub private_iterators: bool,
    /// A dead EPN keeps its turn.
    pub no_removal: bool,
    /// Tick of the ZooKeeper servers whose sessions tell that an EPN is gone, in ms: a session has twenty ticks, a
    /// client pings every third of it, and sessions end at whole ticks. 0: an EPN is found gone after
    /// `registry.suspect_ms`.
    pub zookeeper_tick_ms: u64,
    /// Upper bound of messages that wait for one EPN in one FLP; later ones are dropped silently. The high water mark
    /// of FairMQ.
    pub queue_messages_max: u32,
    /// Streams that stop for a while at the start of a run.
    pub start_stalls: Stalls,
}

impl Default for Legacy {
    fn default() -> Self {
        Self {
            builder: Builder::default(),
            order: true,
            cutoff_ms: 1000,
            shared_control_nic: false,
            private_iterators: false,
            no_removal: true,
            zookeeper_tick_ms: 0,
            queue_messages_max: 1000,
            start_stalls: Stalls::default(),
        }
    }
}

impl Legacy {
    pub(super) fn name(&self) -> String {
        let mut name = match self.builder {
            Builder::Counting => "counting-builder".to_owned(),
            Builder::Keyed => "keyed-builder".to_owned(),
        };
        name.push_str(if self.order { "" } else { "+any-order" });
        name.push_str(&format!("+cutoff-{}ms", self.cutoff_ms));
        for (is_on, rule) in [
            (self.shared_control_nic, "+shared-control-nic"),
            (self.private_iterators, "+private-iterators"),
            (self.no_removal, "+no-removal"),
        ] {
            name.push_str(if is_on { rule } else { "" });
        }
        name
    }
}

/// Way in which an EPN of the prior systems makes TFs of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Builder {
    /// Counting builder: as many messages as there are FLPs are a TF, and if not all of them name the newest heartbeat,
    /// all of them are thrown away.
    #[default]
    Counting,
    /// By heartbeat, as the first O2 balancer did.
    Keyed,
}

/// Streams between an FLP and an EPN that stop for a while, as after a lost packet at the wrong moment in TCP. They
/// happen in Sheaf's mode too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Stalls {
    /// Probability that a stream stops once, from 0 to 1.
    pub probability: f64,
    /// Length of the stop, in ms.
    pub ms: u64,
    /// Length of the first part of a run in which streams stop, in s.
    pub within_s: f64,
}

/// EPNs that differ from the ordinary.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Number of EPNs.
    pub epns: u32,
    /// Speed of processing; 1 is ordinary.
    #[serde(default = "one")]
    pub speed: f64,
    /// Speed of their NIC; 1 is ordinary.
    #[serde(default = "one")]
    pub nic: f64,
    /// The share of the work that they ask for; 1 is ordinary. Weighted policies read it.
    #[serde(default = "one")]
    pub weight: f64,
}

fn one() -> f64 {
    1.0
}

/// Deadlines and bounds of the nodes; names and meaning as in a farm file.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct FarmLimits {
    /// The ICN calls for TFs on absolute deadlines; else FLPs make them by their own clocks.
    pub paced: bool,
    /// Bytes of TFs that an EPN takes, in building and with its consumer.
    pub capacity_bytes: u64,
    /// TFs that an EPN builds at once.
    pub tfs_in_building_max: u32,
    /// TFs that wait for room at any EPN.
    pub queue_tfs_max: u32,
    /// How long a TF waits for announces.
    pub announce_deadline_ms: u64,
    /// How long an EPN has for a TF.
    pub tf_deadline_ms: u64,
    /// How long an EPN waits for missing STFs.
    pub stf_timeout_ms: u64,
    /// How long an answer is awaited before a message is repeated.
    pub repeat_ms: u64,
    /// How long the farm has for its last TFs.
    pub drain_ms: u64,
    /// How often nodes look at their deadlines.
    pub tick_ms: u64,
    /// How often EPNs report what their consumers have finished, in ms; 0 for at once. Policies choose from the last
    /// report and from what was placed since.
    pub report_ms: u64,
    /// How often the ICN acts on what it has heard, in µs; 0 for at once.
    pub icn_batch_us: u64,
}

impl Default for FarmLimits {
    fn default() -> Self {
        Self {
            paced: false,
            capacity_bytes: 1 << 30,
            tfs_in_building_max: 256,
            queue_tfs_max: 4096,
            announce_deadline_ms: 50,
            tf_deadline_ms: 400,
            stf_timeout_ms: 2000,
            repeat_ms: 100,
            drain_ms: 5000,
            tick_ms: 5,
            report_ms: 0,
            icn_batch_us: 0,
        }
    }
}

/// Something that happens to a node or to a path.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// When, in s after the first TF.
    pub at_s: f64,
    /// Length of the time from then on within which it comes at a moment drawn by the seed, in s.
    #[serde(default, skip_serializing_if = "is_none_of_it")]
    pub within_s: f64,
    /// Kind of the fault.
    pub kind: FaultKind,
    /// To which FLP.
    #[serde(default)]
    pub flp: Option<u32>,
    /// To which EPN. A join takes the next free number by itself.
    #[serde(default)]
    pub epn: Option<u32>,
    /// For how long, in s; for ever if it is not said.
    #[serde(default)]
    pub for_s: Option<f64>,
    /// Factor of the slowness.
    #[serde(default)]
    pub factor: Option<f64>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde asks for"
)]
fn is_none_of_it(seconds: &f64) -> bool {
    *seconds == 0.0
}

/// Kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// The process is killed; with `for_s` a new life of it joins then.
    Crash,
    /// The process is stopped (`SIGSTOP`), and goes on after `for_s`.
    Hang,
    /// The EPN processes `factor` times slower.
    Slow,
    /// The node's NIC is `factor` times slower.
    SlowNic,
    /// With `flp` and `epn`: nothing passes between the two. With one of them: nothing passes between it and all
    /// others.
    Partition,
    /// The stream from `flp` to `epn` stops, and goes on after `for_s`: a retransmission timeout.
    Stall,
    /// A new EPN joins.
    Join,
    /// The EPN is asked to leave, and goes when it has nothing left to do.
    Leave,
}
