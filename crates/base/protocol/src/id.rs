//! Names of things: runs, timeframes, nodes, moments.
//!
//! Every id is a newtype, so a TF can never be taken for an FLP. Ids are compared and printed, never
//! calculated with, except [`TfId`], which counts up by one for each timeframe of a run.

use std::fmt;
use std::time::Duration;

/// One data-taking session. Drawn at random when an ICN opens a run, so two runs never share one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(pub u64);

/// One timeframe (TF) of a run: counts up by one from the heartbeat clock, never reused, never wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TfId(pub u64);

impl TfId {
    /// Creates the timeframe after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// One First Level Processor (FLP), the readout node that makes one STF of every TF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlpId(pub u16);

impl FlpId {
    /// Number that stands for the FLP of a *product*: bytes that a consumer made of a TF, which are of no FLP. A farm
    /// has at most 65,535 FLPs, from 0 on.
    pub const PRODUCT: Self = Self(u16::MAX);
}

/// One Event Processing Node (EPN), the node that builds TFs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EpnId(pub u16);

/// The life of a process: a restarted node has a higher one, so nothing of its predecessor is taken for its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// The fencing epoch of the ICN that speaks. A node keeps the highest it has seen and refuses lower ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u64);

/// Number of an assignment of a TF: 1 for the first, higher after each move to another EPN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(pub u32);

/// One version of the list of FLPs whose STFs make a TF whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RosterId(pub u32);

/// Role of a node in the farm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Information Control Node: decides which EPN builds which TF.
    Icn,
    /// First Level Processor: makes STFs.
    Flp,
    /// Event Processing Node: builds TFs.
    Epn,
    /// Client that sends orders to the ICN, such as `sheaf ctl drain`.
    Operator,
    /// Writer node: takes built TFs from EPNs and writes them to files of streams.
    Writer,
}

/// One node of the farm: its role and its index within the role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId {
    /// Role of the node.
    pub role: Role,
    /// Which one of its role it is, from 0.
    pub index: u16,
}

/// One life of one FLP: the source that an STF comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source {
    /// The FLP.
    pub flp: FlpId,
    /// Which life of it.
    pub incarnation: Incarnation,
}

/// One life of one EPN: the target that a TF is assigned to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// The EPN.
    pub epn: EpnId,
    /// Which life of it.
    pub incarnation: Incarnation,
}

/// A moment on a monotonic clock, in ns since an origin that only its process knows.
///
/// Two nodes never compare timestamps: what crosses the wire are durations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Returns the time from `earlier` to `self`, zero if `earlier` is in fact later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Self;

    /// Saturates after 584 years.
    fn add(self, duration: Duration) -> Self {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(ns))
    }
}

impl NodeId {
    /// The one ICN of a farm without standby.
    pub const ICN: Self = Self {
        role: Role::Icn,
        index: 0,
    };
}

impl From<FlpId> for NodeId {
    fn from(flp: FlpId) -> Self {
        Self {
            role: Role::Flp,
            index: flp.0,
        }
    }
}

impl From<EpnId> for NodeId {
    fn from(epn: EpnId) -> Self {
        Self {
            role: Role::Epn,
            index: epn.0,
        }
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Display for TfId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for FlpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "flp:{}", self.0)
    }
}

impl fmt::Display for EpnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epn:{}", self.0)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.role, self.index)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Icn => "icn",
            Self::Flp => "flp",
            Self::Epn => "epn",
            Self::Operator => "operator",
            Self::Writer => "writer",
        })
    }
}
