//! Results of an audit, and the options of it.

use super::finding::Contradiction;
use super::rosters::RosterSource;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Proven counts of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// TFs that an FLP made or skipped, or that the ICN called for or decided.
    pub announced: u64,
    /// Verdicts `complete`.
    pub complete: u64,
    /// Verdicts `incomplete`.
    pub incomplete: u64,
    /// Verdicts `dropped`, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Amendments `abandoned`.
    pub abandoned: u64,
    /// TFs with an amendment `redelivered`: each once, whatever its number of amendments.
    pub redelivered: u64,
    /// Announced TFs without a verdict, counted one by one.
    pub in_flight: u64,
    /// STFs that a killed FLP made and never announced: no other FLP made that TF, and the ICN did not know.
    pub unannounced: u64,
    /// TFs delivered, each as often as it was.
    pub delivered: u64,
    /// TFs built and neither delivered nor abandoned, in a run that is not over.
    pub undelivered: u64,
    /// TFs delivered to a consumer that had not finished with them when their EPN died.
    pub died_unprocessed: u64,
    /// As before, when their EPN ended in order.
    pub unprocessed: u64,
    /// Assignments of a TF whose STFs went to more than one EPN.
    pub mixed_target: u64,
    /// TFs delivered more than once, other than as their amendments say.
    pub delivered_twice: u64,
    /// TFs delivered more than once, as their amendments say: all but the first of it marked.
    pub delivered_again: u64,
    /// STFs delivered that differ from those that their FLP made.
    pub digest_mismatch: u64,
    /// Faults that consumers found in TFs.
    pub consumer_faults: u64,
    /// Payload bytes of built TFs.
    pub bytes: u64,
    /// Incomplete TFs by the FLP that is missing, such as `"flp:1"`.
    pub missing: BTreeMap<String, u64>,
    /// Fates of the STFs of each FLP, such as `"flp:1"`.
    pub sources: BTreeMap<String, SourceAccounting>,
    /// Fates of delivered TFs in each stream of the sink `streams`.
    pub streams: BTreeMap<String, StreamAccounting>,
    /// Origin of the knowledge of the rosters.
    pub roster_source: RosterSource,
    /// Whether a log states that every TF of the run is decided.
    pub is_over: bool,
    /// The first contradictions.
    pub contradictions: Vec<Contradiction>,
    /// All contradictions.
    pub contradictions_total: u64,
}

/// Fates of the STFs of one FLP, over all its lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceAccounting {
    /// STFs made.
    pub made: u64,
    /// STFs that were never made, as the FLP reported.
    pub skipped: u64,
    /// STFs made and delivered in a TF.
    pub delivered: u64,
    /// STFs made, whose TF was built without them.
    pub missing: u64,
    /// STFs made, whose TF was dropped.
    pub dropped: u64,
    /// STFs made and built, whose EPN died before it delivered the TF.
    pub abandoned: u64,
    /// STFs made by an FLP outside the roster of the TF.
    pub outside: u64,
    /// STFs made, whose TF has no verdict.
    pub in_flight: u64,
    /// STFs of the source that the FLP refused; none of those made.
    #[serde(default)]
    pub refused: u64,
}

/// Fates in one stream of TFs that were delivered: announced = written + shed + refused. TFs that are with a sink and
/// not delivered are in flight, in every stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamAccounting {
    /// TFs of which the stream was to have something.
    pub announced: u64,
    /// TFs of which it has it.
    pub written: u64,
    /// TFs that were shed, by reason.
    pub shed: BTreeMap<String, u64>,
    /// TFs that its writer refused.
    pub refused: u64,
}

impl SourceAccounting {
    /// Returns the STFs made and not accounted for: 0, or there is a contradiction.
    #[must_use]
    pub fn unaccounted(&self) -> u64 {
        let fates = self.delivered
            + self.missing
            + self.dropped
            + self.abandoned
            + self.outside
            + self.in_flight;
        self.made.saturating_sub(fates)
    }
}

/// Accounting of an ICN, to be compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounting {
    /// TFs that exist.
    pub announced: u64,
    /// TFs built with all parts.
    pub complete: u64,
    /// TFs built with parts missing.
    pub incomplete: u64,
    /// TFs not built, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// TFs without a verdict.
    pub in_flight: u64,
    /// Complete and incomplete TFs whose EPN died before it had acknowledged.
    pub abandoned: u64,
    /// Complete and incomplete TFs that were built again by another EPN.
    pub redelivered: u64,
    /// Payload bytes of built TFs.
    pub bytes: u64,
}

/// Options of an audit.
#[derive(Clone, Debug)]
pub struct Options {
    /// Accounting of the ICN, if it is at hand.
    pub accounting: Option<Accounting>,
    /// Upper bound of contradictions that are listed; more are only counted.
    pub listed_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            accounting: None,
            listed_max: 20,
        }
    }
}

impl Audit {
    /// Returns the TFs dropped for any reason.
    #[must_use]
    pub fn dropped_total(&self) -> u64 {
        self.dropped.values().sum()
    }

    /// Returns whether announced = complete + incomplete + dropped + in flight, without a contradiction.
    #[must_use]
    pub fn is_balanced(&self) -> bool {
        let fates = self.complete + self.incomplete + self.dropped_total() + self.in_flight;
        self.announced == fates && self.contradictions_total == 0
    }
}
