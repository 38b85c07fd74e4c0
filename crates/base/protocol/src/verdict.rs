//! The fate of a timeframe: one verdict, and the closed list of reasons why a TF can be dropped.

use crate::id::{FlpId, Target};
use std::fmt;

/// The one decision about a TF. Appended once to the verdict log; only [`Complete`](Self::Complete) and
/// [`Incomplete`](Self::Incomplete) may be amended once: to abandoned, if the EPN died with it, or to dropped, if the
/// EPN returned it undelivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All STFs of the roster are in one TF at this EPN, and it may hand it on.
    Complete {
        /// The EPN.
        target: Target,
    },
    /// The quorum rule allows the TF without these FLPs.
    Incomplete {
        /// The EPN.
        target: Target,
        /// FLPs of the roster without a part, by id.
        missing: Vec<FlpId>,
    },
    /// The TF is not built and never will be.
    Dropped {
        /// Why.
        reason: DropReason,
    },
}

/// Why a TF was not built. The list is closed: a loss without one of these reasons is a bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropReason {
    /// An FLP of the roster died before its STF was safe, and the quorum rule wants all of them.
    SourceDied,
    /// A source could not keep an STF: its hold was full and it cannot wait, or it skipped the TF.
    SourceOverrun,
    /// An STF did not come before the stale deadline.
    SourceLate,
    /// Overload: no EPN had room and the waiting queue was full.
    ShedOverload,
    /// The storage had no room.
    ShedStorageFull,
    /// An STF is larger than the farm's `stf_bytes_max`.
    Oversize,
    /// The bytes of an STF arrived twice with the same digest, which is not that of its source.
    CorruptAtSource,
    /// Two different payloads came under one name.
    Conflict,
    /// The run ended before the TF was decided.
    RunEnded,
    /// An operator dropped it.
    Operator,
    /// The TF was built and no consumer took it: the EPN gave it back at the end of the run.
    Undelivered,
    /// The control path to an FLP of the roster was cut for longer than its hold lasts; the FLP may live.
    SourceCut,
    /// A source has several producers, and not all of them gave the STF, or a later one, within its window.
    SourceDisorder,
}

impl DropReason {
    /// All reasons, in the order of their wire codes.
    pub const ALL: [Self; 13] = [
        Self::SourceDied,
        Self::SourceOverrun,
        Self::SourceLate,
        Self::ShedOverload,
        Self::ShedStorageFull,
        Self::Oversize,
        Self::CorruptAtSource,
        Self::Conflict,
        Self::RunEnded,
        Self::Operator,
        Self::Undelivered,
        Self::SourceCut,
        Self::SourceDisorder,
    ];

    /// Name in metrics, summaries and logs, such as `"source-died"`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::SourceDied => "source-died",
            Self::SourceOverrun => "source-overrun",
            Self::SourceLate => "source-late",
            Self::ShedOverload => "shed-overload",
            Self::ShedStorageFull => "shed-storage-full",
            Self::Oversize => "oversize",
            Self::CorruptAtSource => "corrupt-at-source",
            Self::Conflict => "conflict",
            Self::RunEnded => "run-ended",
            Self::Operator => "operator",
            Self::Undelivered => "undelivered",
            Self::SourceCut => "source-cut",
            Self::SourceDisorder => "source-disorder",
        }
    }

    /// Place in [`ALL`](Self::ALL), which is also the code on the wire.
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_stands_at_its_index() {
        for (index, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), index);
        }
    }
}
