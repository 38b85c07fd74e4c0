//! Report: the findings of all checks.

use crate::check::Check;
use crate::finding::{Finding, State, Verdict};
use serde::Serialize;

/// All findings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Findings, in the order of the checks.
    pub findings: Vec<Finding>,
}

impl Report {
    pub(crate) fn add(&mut self, check: &Check, verdicts: Vec<Verdict>) {
        self.findings.extend(verdicts.into_iter().map(|verdict| {
            let is_bad = matches!(verdict.state, State::Advice | State::Wrong);
            Finding {
                check: check.name,
                place: verdict.place,
                state: verdict.state,
                found: verdict.found,
                expected: verdict.expected,
                why: is_bad.then_some(check.why),
                cost: check.cost.filter(|_| is_bad),
                mend: verdict.mend,
            }
        }));
    }

    /// Returns how many findings have `state`.
    #[must_use]
    pub fn count(&self, state: State) -> usize {
        let findings = self.findings.iter();
        findings.filter(|finding| finding.state == state).count()
    }

    /// Returns whether nothing is wrong; there may be advice.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.count(State::Wrong) == 0
    }
}
