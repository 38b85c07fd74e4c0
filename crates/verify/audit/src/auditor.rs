//! State of an audit: the counts and contradictions found so far.

use super::evidence::{Counts, Evidence};
use super::finding::{Contradiction, Kind};
use super::proven::Audit;
use super::tables::Verdict;
use sheaf_protocol::DropReason;

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

    pub(super) fn count_summed(
        &mut self,
        tf: u64,
        verdict: Option<&Verdict>,
        is_abandoned: bool,
        is_given_back: bool,
    ) {
        let Some(summed) = self
            .evidence
            .summed
            .as_ref()
            .filter(|summed| summed.has(tf))
        else {
            return;
        };
        if let Some(verdict) = verdict {
            let name = verdict.reason.as_ref().unwrap_or(&verdict.name);
            // An amendment after the checkpoint is not in its sum.
            let is_amended = is_given_back && summed.is_done(tf);
            let amended = DropReason::Undelivered.name();
            self.summed.add(if is_amended { amended } else { name }, 1);
        }
        self.summed
            .add("abandoned", u64::from(is_abandoned && summed.is_done(tf)));
    }
}
