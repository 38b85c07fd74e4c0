//! What an FLP has counted, for its driver to turn into metrics.

/// Counts since the FLP was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// STFs made and announced.
    pub made_stfs: u64,
    /// Payload bytes of them.
    pub made_bytes: u64,
    /// TFs for which there is no STF: overrun, oversize, gaps of an external source.
    pub skipped_stfs: u64,
    /// STFs that a source gave twice, out of order or outside a run.
    pub refused_stfs: u64,
    /// STFs made after their TF was decided without them.
    pub late_stfs: u64,
    /// STFs offered to an EPN, repeats included.
    pub offered_stfs: u64,
    /// STFs handed to the network, repeats included.
    pub sent_stfs: u64,
    /// Payload bytes handed to the network, repeats included.
    pub sent_bytes: u64,
    /// STFs sent again to another EPN.
    pub reassigned_stfs: u64,
    /// STFs let go because their TF is decided.
    pub released_stfs: u64,
    /// STFs let go because their run ended without a decision.
    pub run_ended_stfs: u64,
    /// Announces repeated because the ICN had not answered.
    pub repeated_announces: u64,
    /// Messages of kinds that an FLP does not get.
    pub unexpected_messages: u64,
}
