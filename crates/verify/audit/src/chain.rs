//! Verdicts on one timeframe in their order: the one that was written first, and the amendments that name another EPN.

use super::tables::{Decided, Facts, Named, Tables, Verdict};

/// Verdicts on one TF.
pub(super) struct Chain<'a> {
    /// Different verdicts that are no amendments, the first one that was written first. There should be one.
    pub(super) first: Vec<&'a Verdict>,
    /// Amendments: the TF was built again, and its delivery is marked.
    pub(super) amendments: Vec<&'a Verdict>,
}

impl<'a> Chain<'a> {
    pub(super) fn of(facts: &Facts<'a>, tables: &'a Tables) -> Self {
        let distinct = |rows: &[&Decided]| {
            let mut places: Vec<u32> = Vec::new();
            for row in rows {
                if !places.contains(&row.verdict) {
                    places.push(row.verdict);
                }
            }
            let verdicts = places.into_iter();
            verdicts.map(|place| tables.verdicts.at(place)).collect()
        };
        let first: Vec<&Decided> = facts.decided.iter().collect();
        // A verdict log has all of them in their order, an event log those of some terms.
        let mut amended: Vec<&Decided> = facts.redelivered.iter().collect();
        let rank = |row: &&Decided| {
            let session = tables.sessions.at(row.session);
            (!session.is_ledger, session.term)
        };
        amended.sort_by_key(rank);
        let newest = amended.iter().rev().find(|row| !rank(row).0);
        let newest = newest.or(amended.last()).map(|row| row.verdict);
        let mut amendments: Vec<&Verdict> = distinct(&amended);
        if let Some(newest) = newest.map(|place| tables.verdicts.at(place)) {
            amendments.retain(|verdict| *verdict != newest);
            amendments.push(newest);
        }
        Self {
            first: distinct(&first),
            amendments,
        }
    }

    /// Returns the verdicts in force: the last amendment, or else all that were written first.
    pub(super) fn in_force(&self) -> Vec<&'a Verdict> {
        match self.amendments.last() {
            Some(last) => vec![*last],
            None => self.first.clone(),
        }
    }

    /// Returns the verdict that names this life of an EPN, and whether its delivery is marked.
    pub(super) fn of_life(&self, life: Named) -> Option<(&'a Verdict, bool)> {
        let is_named = |verdict: &&&Verdict| verdict.at == Some(life);
        let amendment = self.amendments.iter().find(is_named);
        let amendment = amendment.map(|verdict| (*verdict, true));
        amendment.or_else(|| Some((*self.first.iter().find(is_named)?, false)))
    }
}
