//! Options of a seed: the shape of a farm, its faults and their times.

mod draw;
mod narrow;

use crate::family::SeedFamily;
use sheaf_placement::Reaction;
use sheaf_protocol::NodeId;
use sheaf_scheduler::{Delivery, Incomplete, Mode};
use sheaf_stf_builder::flp::{Push, WhenFull};
use sheaf_transport::memory::Faults;
use sheaf_verdict_log::storage::DiskFaults;
use std::time::Duration;

/// Version of the options, which counts up whenever the same seed comes to stand for another farm: a recorded seed is
/// valid only with the version that it was recorded with.
pub const VERSION: u32 = 4;

/// Fault of a farm.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// Killed; started again after a while, or at the end of the faults.
    Crash {
        /// The node.
        node: NodeId,
        /// Whether its machine dies with it, so that its peers do not see the end of its streams.
        silent: bool,
        /// Number of frames that it still sends, from this moment on: it may die between two messages of one turn.
        after_frames: u32,
        /// When it is started again; `None`: when the faults end.
        back_after: Option<Duration>,
    },
    /// Stopped for a while, as by SIGSTOP.
    Pause {
        /// The node.
        node: NodeId,
        /// Length of the pause.
        length: Duration,
    },
    /// Nothing passes between two nodes for a while.
    Cut {
        /// One node.
        a: NodeId,
        /// The other node.
        b: NodeId,
        /// Whether the way from `b` to `a` stays open.
        one_way: bool,
        /// Length of the cut.
        length: Duration,
    },
    /// Nothing passes between a node and all others for a while.
    Isolate {
        /// The node.
        node: NodeId,
        /// Length of the isolation.
        length: Duration,
    },
    /// Asked to leave, as by SIGTERM; started again after a while.
    Leave {
        /// The node.
        node: NodeId,
        /// When it is started again.
        back_after: Duration,
    },
    /// Gets the processor only every so often, for a while.
    Slow {
        /// The node.
        node: NodeId,
        /// Least time between two turns of its loop.
        every: Duration,
        /// Length of the slowness.
        length: Duration,
    },
    /// The consumer of an EPN accepts nothing for a while: a full disk, a program that hangs.
    SinkDown {
        /// The EPN.
        node: NodeId,
        /// Length of the fault.
        length: Duration,
    },
    /// The disk of an ICN misbehaves for a while.
    Disk {
        /// The ICN.
        node: NodeId,
        /// Faults of the disk.
        faults: DiskFaults,
        /// Length of the fault.
        length: Duration,
    },
    /// The machine of an ICN loses its power: data that its disk was not asked to sync may be gone.
    PowerFailure {
        /// The ICN.
        node: NodeId,
        /// When it is started again; `None`: when the faults end.
        back_after: Option<Duration>,
    },
    /// All servers of the registry are away for a while: no session ends meanwhile, and no write succeeds.
    RegistryAway {
        /// Length of the outage.
        length: Duration,
    },
    /// A node does not reach the registry for a while, and its session there may run out.
    RegistryCut {
        /// The node.
        node: NodeId,
        /// Length of the cut.
        length: Duration,
    },
    /// The registry ends the sessions of a node that is alive.
    SessionExpired {
        /// The node.
        node: NodeId,
    },
    /// Killed, and started again by a clock that was set back: with an earlier incarnation.
    ClockBack {
        /// The node.
        node: NodeId,
        /// When it is started again.
        back_after: Duration,
    },
    /// A second process with the same index runs for a while.
    Twin {
        /// The node.
        node: NodeId,
        /// Whether the second process has the later incarnation.
        is_later: bool,
        /// How long the second process runs.
        length: Duration,
    },
    /// The control streams of a node break, and new ones do not come about for a while. Its data streams stay.
    ControlCut {
        /// The node.
        node: NodeId,
        /// Length of the cut.
        length: Duration,
    },
    /// A stranger sends what a node has received on one of its streams, in the order of the record.
    Replay {
        /// The node that receives it again.
        node: NodeId,
        /// Which of its streams, counted from the latest; modulo their number.
        stream: usize,
    },
    /// The network is much worse for a while.
    Storm {
        /// Faults of the network.
        network: Faults,
        /// Length of the storm.
        length: Duration,
    },
}

/// Place of a farm's verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    /// In the memory of its one ICN, which must not die.
    Memory,
    /// On the disk of its one ICN.
    File,
    /// On the disks of three ICNs, of which two decide.
    Majority,
    /// In a ZooKeeper, with two ICNs. Nodes find each other there, too.
    ZooKeeper,
}

/// Time at which an EPN reports a TF as built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ack {
    /// When it has all STFs.
    Built,
    /// When the TF is on its disk and survives its death.
    Stored,
    /// When it has all STFs; it acknowledges the delivery when its consumer has finished.
    Processed,
}

impl Log {
    /// Returns the number of ICNs.
    #[must_use]
    pub fn icns(self) -> u16 {
        match self {
            Self::Memory | Self::File => 1,
            Self::ZooKeeper => 2,
            Self::Majority => 3,
        }
    }
}

/// Farm and its faults, drawn from a seed.
#[derive(Clone, Debug)]
pub struct Options {
    /// The seed.
    pub seed: u64,
    /// Family that the seed was drawn for.
    pub kind: SeedFamily,
    /// Place of the verdicts, which determines the number of ICNs.
    pub log: Log,
    /// Number of records after which the log gets a checkpoint.
    pub checkpoint_records: u64,
    /// How long a session in the registry outlives silence, if there is one.
    pub session: Duration,
    /// Time at which EPNs report a TF as built.
    pub ack: Ack,
    /// How long a consumer works on a TF, any number at once; 0: it has finished when it has taken the TF.
    pub work: Duration,
    /// How often a TF may be delivered whose EPN dies before it acknowledges.
    pub delivery: Delivery,
    /// FLPs, from index 0.
    pub flps: u16,
    /// EPNs, from index 0.
    pub epns: u16,
    /// Policy of the scheduler.
    pub policy: &'static str,
    /// Rule by which its list of EPNs follows their deaths.
    pub reaction: Reaction,
    /// How TFs come into being.
    pub mode: Mode,
    /// Fate of a TF that lacks STFs.
    pub incomplete: Incomplete,
    /// TFs a second; 0 for as many as the hold takes.
    pub rate_hz: f64,
    /// TFs of the run; `None` for no end.
    pub timeframes: Option<u64>,
    /// Mean payload of an STF, in bytes.
    pub stf_bytes: u64,
    /// STFs that an FLP holds at most.
    pub hold_stfs: u32,
    /// Behaviour of an FLP with a full hold.
    pub when_full: WhenFull,
    /// Way of STFs to their EPN.
    pub push: Push,
    /// STFs up to this size are pushed in any case, in bytes.
    pub eager_bytes: u64,
    /// STFs that an EPN fetches at once.
    pub grants_max: u32,
    /// Whole TFs of the largest size that an EPN has room for.
    pub capacity_tfs: u64,
    /// TFs that an EPN builds at once.
    pub slots: u32,
    /// TFs that wait for room at the ICN.
    pub queue_tfs_max: u32,
    /// How long an EPN has for a TF, in ms.
    pub tf_deadline_ms: u64,
    /// When a TF is stale, in ms.
    pub stf_timeout_ms: u64,
    /// Whether an FLP frees an STF when it was sent, the rule of earlier systems. Losses are no violation then.
    pub sends_and_forgets: bool,
    /// Largest difference between the clocks of two nodes; each has its own within it.
    pub clock_spread: Duration,
    /// The network while there are faults.
    pub network: Faults,
    /// The network afterwards.
    pub calm_network: Faults,
    /// When each fault begins.
    pub faults: Vec<(Duration, Fault)>,
    /// When all faults end and all nodes are started again.
    pub calm_at: Duration,
    /// How long after the faults every TF has its verdict, and new ones are complete.
    pub settle: Duration,
    /// When the run is asked to stop.
    pub stop_at: Duration,
}

impl Options {
    /// Returns the farm of `seed` in the family `kind`.
    #[must_use]
    pub fn draw(kind: SeedFamily, seed: u64) -> Self {
        draw::options(kind, seed)
    }

    /// Largest payload of an STF, in bytes.
    #[must_use]
    pub fn stf_bytes_max(&self) -> u64 {
        self.stf_bytes * 2
    }

    /// Returns the bytes that an FLP may hold.
    #[must_use]
    pub fn hold_bytes(&self) -> u64 {
        u64::from(self.hold_stfs) * (self.stf_bytes_max() + 1)
    }

    /// Returns the bytes that an EPN has room for.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_tfs * u64::from(self.flps) * (self.stf_bytes_max() + 1)
    }
}
