//! Objects that the network asks to be looked at, and what is seen then.

use crate::des::queue::Nanos;

/// Number of a flow, with its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::des) struct FlowId {
    pub(in crate::des) index: u32,
    pub(in crate::des) life: u32,
}

/// Object that has to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::des) enum Sight {
    /// A flow that may be done.
    Flow(FlowId),
    /// A port whose bucket may be empty.
    Port(u32),
}

impl Sight {
    /// Returns a number for the trace.
    pub(in crate::des) fn word(self) -> u64 {
        match self {
            Self::Flow(id) => u64::from(id.index) << 32 | u64::from(id.life),
            Self::Port(port) => u64::MAX - u64::from(port),
        }
    }
}

/// Request to look at something again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::des) struct Look {
    pub(in crate::des) sight: Sight,
    pub(in crate::des) at: Nanos,
}

/// Result of looking at a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::des) enum Seen {
    /// The flow is of an earlier life, or not done.
    Nothing,
    /// The bytes of the flow are through; it is still there, for the next bytes or to be ended.
    Done { tag: u32 },
}
