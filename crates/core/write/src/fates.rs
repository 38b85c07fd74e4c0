//! Fates of the records of a stream.

use crate::overload::ShedReason;

/// Fates of the records of one stream: announced = written + shed + refused + in flight, at every instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fates {
    /// Records that the stream was to have.
    pub announced: u64,
    /// Records whose write has returned.
    pub written: u64,
    /// Records shed.
    pub shed: u64,
    /// Records refused.
    pub refused: u64,
    /// Records with a writer whose write has not returned.
    pub in_flight: u64,
}

impl Fates {
    /// Returns whether every record has exactly one fate.
    #[must_use]
    pub fn is_balanced(&self) -> bool {
        self.announced == self.written + self.shed + self.refused + self.in_flight
    }
}

/// Records of one stream that no writer has taken, and those that went to the disk for overload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Records shed, by the place of the reason in [`ShedReason::ALL`].
    pub shed: [u64; ShedReason::ALL.len()],
    /// Bytes of them.
    pub shed_bytes: u64,
    /// Records refused.
    pub refused: u64,
    /// Records that went to the disk for overload: they are not lost.
    pub spilled: u64,
}

impl Lost {
    /// Returns the records shed for any reason.
    #[must_use]
    pub fn shed_total(&self) -> u64 {
        self.shed.iter().sum()
    }
}
