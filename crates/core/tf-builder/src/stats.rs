//! Counts of a builder, for its driver to turn into metrics.

/// Reason for which an STF was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefusedStf {
    /// The same STF is here already.
    Duplicate,
    /// The TF is decided, or already delivered here.
    Decided,
    /// The STF belongs to another run.
    OtherRun,
    /// Source that is not in the roster of the TF.
    OtherRoster,
    /// Another payload is here under the same name; the first one stays.
    Conflict,
    /// The bytes do not have the digest that the header states.
    BadDigest,
    /// The header states another size than what came.
    WrongSize,
    /// Slots or bytes of the builder are used up.
    NoRoom,
}

impl RefusedStf {
    /// All reasons, in the order of [`Stats::refused`].
    pub const ALL: [Self; 8] = [
        Self::Duplicate,
        Self::Decided,
        Self::OtherRun,
        Self::OtherRoster,
        Self::Conflict,
        Self::BadDigest,
        Self::WrongSize,
        Self::NoRoom,
    ];

    /// Returns the label in metrics and logs, such as `"other_roster"`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Duplicate => "duplicate",
            Self::Decided => "decided",
            Self::OtherRun => "other_run",
            Self::OtherRoster => "other_roster",
            Self::Conflict => "conflict",
            Self::BadDigest => "bad_digest",
            Self::WrongSize => "wrong_size",
            Self::NoRoom => "no_room",
        }
    }
}

/// Counts since the builder was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// STFs accepted into a TF.
    pub accepted_stfs: u64,
    /// Payload bytes of accepted STFs.
    pub accepted_bytes: u64,
    /// STFs that FLPs have offered, repeats included.
    pub offers: u64,
    /// STFs requested, repeats included.
    pub grants: u64,
    /// STFs refused, by [`RefusedStf`] as index.
    pub refused: [u64; RefusedStf::ALL.len()],
    /// TFs delivered with all parts.
    pub delivered_complete: u64,
    /// TFs delivered with parts missing.
    pub delivered_incomplete: u64,
    /// Payload bytes delivered.
    pub delivered_bytes: u64,
    /// TFs committed with a mark: an EPN that died may have delivered them before.
    pub redelivered_tfs: u64,
    /// Committed TFs given back because no consumer took them.
    pub returned_tfs: u64,
    /// TFs discarded because they were decided elsewhere or dropped.
    pub discarded_tfs: u64,
    /// Reports repeated for want of an answer of the ICN.
    pub repeated_reports: u64,
    /// TFs reported with parts missing because they were stale.
    pub stale_tfs: u64,
    /// Commits of TFs that this EPN does not hold with all the parts named.
    pub impossible_commits: u64,
    /// TFs stored before they were reported. Ack level `stored` only, like the next two.
    pub stored_tfs: u64,
    /// TFs that a former life of the EPN had stored, published by this one.
    pub recovered_tfs: u64,
    /// TFs that this EPN was to publish for a former life, and that are not on its disk.
    pub not_stored_tfs: u64,
}

impl Stats {
    /// Returns the number of STFs refused for `reason`.
    #[must_use]
    pub fn refused(&self, reason: RefusedStf) -> u64 {
        self.refused[reason as usize]
    }
}
