//! Accounting of one source.

use crate::loss::Loss;
use crate::reason::Reason;
use sheaf_samples::wire::Code;
use std::collections::BTreeMap;

/// Accounting of one source. Samples in = taken + all `refused` + all `bad`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceStats {
    /// Datagrams or requests.
    pub datagrams: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Samples that came in; a line or record that cannot be read counts as one.
    pub samples: u64,
    /// Samples taken.
    pub taken: u64,
    /// Lines, records and values that are bad, by code.
    pub bad: BTreeMap<Code, u64>,
    /// Samples refused, by reason.
    pub refused: BTreeMap<Reason, u64>,
    /// Series known now.
    pub series: u64,
    /// Times that new series of the source were cut off.
    pub cut_offs: u64,
    /// Latest sample, in ms since 1970 by the clock of the collector.
    pub seen_ms: i64,
    /// Difference between the clock of the source and that of the collector at the latest sample with a time, in ms;
    /// positive if the source is ahead. The way to the collector is in it.
    pub clock_offset_ms: Option<i64>,
    /// Samples sent and arrived.
    pub loss: Loss,
}

impl SourceStats {
    pub(crate) fn add_bad(&mut self, code: Code, count: u64) {
        self.samples += count;
        *self.bad.entry(code).or_default() += count;
    }

    pub(crate) fn add_refused(&mut self, reason: Reason) {
        self.samples += 1;
        *self.refused.entry(reason).or_default() += 1;
    }

    pub(crate) fn add_taken(&mut self, count: u64) {
        self.samples += count;
        self.taken += count;
    }

    /// Adds the counts of `other`; what is a state and no count is left out.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.datagrams += other.datagrams;
        self.bytes += other.bytes;
        self.samples += other.samples;
        self.taken += other.taken;
        for (&code, count) in &other.bad {
            *self.bad.entry(code).or_default() += count;
        }
        for (&reason, count) in &other.refused {
            *self.refused.entry(reason).or_default() += count;
        }
        self.cut_offs += other.cut_offs;
        self.loss.sent += other.loss.sent;
        self.loss.arrived += other.loss.arrived;
        self.loss.dropped += other.loss.dropped;
    }

    /// Samples refused, for all reasons.
    #[must_use]
    pub fn refused_total(&self) -> u64 {
        self.refused.values().sum()
    }

    /// Lines, records and values that are bad, of all codes.
    #[must_use]
    pub fn bad_total(&self) -> u64 {
        self.bad.values().sum()
    }
}
