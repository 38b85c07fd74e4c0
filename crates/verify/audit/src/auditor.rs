//! State of an audit: the counts and contradictions found so far.

use super::evidence::{Counts, Evidence};
use super::finding::{Contradiction, Kind};
use super::proven::Audit;
use super::tables::Verdict;

/// An audit on its way.
pub(super) struct Auditor<'a> {
    pub(super) audit: Audit,
    pub(super) evidence: &'a Evidence,
    pub(super) listed_max: usize,
    /// Counts of the TFs that a checkpoint sums up, as the other logs tell.
    pub(super) summed: Counts,
}

impl Auditor<'_> {
    pub(super) fn contradict(&mut self, kind: Kind, tf: Option<u64>, text: String) {
        self.audit.contradictions_total += 1;
        if self.audit.contradictions.len() < self.listed_max {
            self.audit
                .contradictions
                .push(Contradiction { kind, tf, text });
        }
    }

    pub(super) fn count_summed(&mut self, tf: u64, verdicts: &[&Verdict], is_abandoned: bool) {
        let Some(summed) = self
            .evidence
            .summed
            .as_ref()
            .filter(|summed| summed.has(tf))
        else {
            return;
        };
        if let Some(verdict) = verdicts.first() {
            let name = verdict.reason.as_ref().unwrap_or(&verdict.name);
            self.summed.add(name, 1);
        }
        self.summed
            .add("abandoned", u64::from(is_abandoned && summed.is_done(tf)));
    }
}
