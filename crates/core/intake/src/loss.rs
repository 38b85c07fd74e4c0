//! Samples lost on the way to the collector, of one source.

/// Samples that the clients of a source say that they sent, and what arrived of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Sent, by the growth of the clients' counters since the intake first saw them.
    pub sent: u64,
    /// Arrived in the same time, over the links of these clients.
    pub arrived: u64,
    /// Dropped by the clients before they were sent; not in `sent`.
    pub dropped: u64,
}

impl Loss {
    /// Samples lost on the way.
    ///
    /// While samples overtake a counter, or one of several clients of a link has not reported yet, it is off by what is
    /// under way.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.arrived)
    }
}
