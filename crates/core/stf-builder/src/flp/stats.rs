//! Counts of an FLP, for its driver to turn into metrics.

/// Counts since the FLP was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// STFs made and announced.
    pub made_stfs: u64,
    /// Payload bytes of the STFs made.
    pub made_bytes: u64,
    /// TFs for which there is no STF: overrun, oversize, gaps of an external source.
    pub skipped_stfs: u64,
    /// STFs made after their TF was decided without them.
    pub late_stfs: u64,
    /// STFs offered to an EPN, repeats included.
    pub offered_stfs: u64,
    /// STFs passed to the network, repeats included.
    pub sent_stfs: u64,
    /// Payload bytes passed to the network, repeats included.
    pub sent_bytes: u64,
    /// STFs retransmitted to another EPN.
    pub reassigned_stfs: u64,
    /// STFs that waited for room in a stream and were not sent, because their TF was decided meanwhile.
    pub cancelled_stfs: u64,
    /// Payload bytes of these STFs. They count as sent as well.
    pub cancelled_bytes: u64,
    /// STFs released because their TF is decided.
    pub released_stfs: u64,
    /// STFs released because their run ended without a decision.
    pub run_ended_stfs: u64,
    /// Announces repeated for want of an answer of the ICN.
    pub repeated_announces: u64,
    /// Messages of kinds that an FLP does not accept.
    pub unexpected_messages: u64,
}
