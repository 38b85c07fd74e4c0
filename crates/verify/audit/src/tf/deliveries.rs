//! Rules for the deliveries of one timeframe, and for the amendments that allow a second one.

use super::super::auditor::Auditor;
use super::super::evidence::life_name;
use super::super::finding::Kind;
use super::super::tables::{Decided, Delivery, Verdict};
use super::{Tf, counts};
use std::collections::BTreeSet;

impl<'a> Tf<'a> {
    /// Checks that a TF that was built again was built before, that no leader amended it twice for the same EPN, and
    /// that the verdict log has each amendment.
    pub(super) fn check_amendments(&self, auditor: &mut Auditor<'_>) {
        let (tf, rows) = (self.id, self.facts.redelivered);
        if rows.is_empty() {
            return;
        }
        if self.chain.first.iter().any(|verdict| verdict.at.is_none()) {
            let text = format!("TF {tf} is redelivered and was not built");
            self.contradict(Kind::BadRedelivered, text, auditor);
        }
        let tables = &self.evidence.tables;
        for amendment in &self.chain.amendments {
            let is_same = |row: &&Decided| tables.verdicts.at(row.verdict) == *amendment;
            let sessions = rows.iter().filter(is_same).map(|row| row.session);
            for (session, times) in counts(sessions) {
                let session = tables.sessions.at(session);
                if times > 1 && (session.term > 0 || session.is_ledger) {
                    let text = format!("TF {tf} is redelivered {times} times by {}", session.by);
                    self.contradict(Kind::BadRedelivered, text, auditor);
                }
            }
            let is_of_ledger = |row: &&Decided| tables.sessions.at(row.session).is_ledger;
            let in_ledger = rows.iter().filter(is_same).any(|row| is_of_ledger(&row));
            if self.evidence.has_ledger && !in_ledger && !self.is_known_by_sum() {
                let text = format!(
                    "TF {tf} is redelivered as {}, and the verdict log has no such amendment",
                    amendment.name
                );
                self.contradict(Kind::Ledger, text, auditor);
            }
        }
    }

    /// Returns the verdict as the checkpoint counts it that the verdict log begins with.
    pub(super) fn verdict_in_sum(&self) -> Option<&'a Verdict> {
        let summed = self.evidence.summed.as_ref();
        let tables = &self.evidence.tables;
        if let Some(summed) = summed.filter(|summed| !summed.is_done(self.id)) {
            // Amendments that follow are not in its sum.
            let rows = if summed.has_amended(self.id) {
                self.facts.redelivered
            } else {
                self.facts.decided
            };
            let of_ledger = |row: &&Decided| tables.sessions.at(row.session).is_ledger;
            if let Some(row) = rows.iter().find(of_ledger) {
                return Some(tables.verdicts.at(row.verdict));
            }
        }
        self.chain.in_force().first().copied()
    }

    /// Returns the verdict that the EPN of a delivery had, and whether that amends another.
    pub(super) fn verdict_of(&self, delivery: &Delivery) -> Option<(&'a Verdict, bool)> {
        let epn = self.evidence.life(delivery.life);
        self.chain.of_life((epn.node.index, epn.incarnation))
    }

    /// Checks that the TF was delivered once, or once by each EPN of its verdict and of the amendments.
    pub(super) fn check_deliveries(&self, auditor: &mut Auditor<'_>) {
        let (tf, deliveries) = (self.id, self.deliveries());
        let lives: BTreeSet<_> = deliveries.iter().map(|found| found.life).collect();
        let bidden = |found: &&Delivery| self.verdict_of(found).is_some();
        let is_amended = !self.chain.amendments.is_empty();
        let is_once_each =
            lives.len() == deliveries.len() && deliveries.iter().copied().all(|d| bidden(&d));
        if deliveries.len() > 1 && is_amended && is_once_each {
            auditor.audit.delivered_again += 1;
        } else if deliveries.len() > 1 {
            auditor.audit.delivered_twice += 1;
            let by = deliveries.iter().map(|found| self.life_name(found.life));
            let by: Vec<String> = by.collect();
            let text = format!("TF {tf} was delivered by {}", by.join(" and by "));
            self.contradict(Kind::DeliveredTwice, text, auditor);
        }
        for delivery in self.facts.deliveries {
            self.check_delivery(delivery, auditor);
            self.check_held(delivery, auditor);
        }
        for line in self.facts.handled {
            let is_it = |delivery: &Delivery| delivery.life == line.life && delivery.is_held;
            if !self.facts.deliveries.iter().any(is_it) {
                let by = self.life_name(line.life);
                let what = if line.is_finished {
                    "freed"
                } else {
                    "taken again"
                };
                let text = format!("TF {tf} was {what} at {by}, and no consumer there had it");
                self.contradict(Kind::BadFreed, text, auditor);
            }
        }
    }

    /// Counts a TF whose consumer had not finished with it when the EPN ended, and that no other EPN has finished.
    fn check_held(&self, delivery: &Delivery, auditor: &mut Auditor<'_>) {
        let is_finished = self.facts.handled.iter().any(|line| line.is_finished);
        if !delivery.is_held || is_finished || !auditor.audit.is_over {
            return;
        }
        if self.evidence.life(delivery.life).was_killed() {
            auditor.audit.died_unprocessed += 1;
        } else {
            auditor.audit.unprocessed += 1;
        }
    }

    fn check_delivery(&self, delivery: &Delivery, auditor: &mut Auditor<'_>) {
        let tf = self.id;
        let epn = self.evidence.life(delivery.life);
        let here = (epn.node.index, epn.incarnation);
        let by = life_name(epn);
        let found = self.evidence.tables.flp_lists.at(delivery.missing);
        let in_force = self.chain.in_force().first().copied();
        match (self.verdict_of(delivery), in_force) {
            (None, None) if self.is_known_by_sum() => {}
            (None, None) => {
                let text = format!("TF {tf} was delivered by {by} without a verdict");
                self.contradict(Kind::DeliveredUnbidden, text, auditor);
            }
            (None, Some(verdict)) => {
                let text = format!(
                    "TF {tf} was delivered by {by}, its verdict is {} elsewhere",
                    verdict.name
                );
                self.contradict(Kind::DeliveredUnbidden, text, auditor);
            }
            (Some((verdict, _)), _) if verdict.missing != *found => {
                let said = &verdict.missing;
                let text = format!(
                    "TF {tf} was delivered by {by} without FLPs {found:?}, its verdict says {said:?}"
                );
                self.contradict(Kind::WrongParts, text, auditor);
            }
            // A later life that publishes a TF of a former one does not know of the mark.
            (Some((_, is_amendment)), _)
                if !delivery.is_hearsay && is_amendment != delivery.is_marked =>
            {
                let (found, expected) = if is_amendment {
                    (
                        "without the mark of a TF that is redelivered",
                        "after an amendment",
                    )
                } else {
                    (
                        "with the mark of a TF that is redelivered",
                        "by its first verdict",
                    )
                };
                let text = format!("TF {tf} was delivered by {by} {found}, {expected}");
                self.contradict(Kind::WrongMark, text, auditor);
            }
            (Some(_), _) => {}
        }
        let mut flps = BTreeSet::new();
        for part in self.parts_of(delivery) {
            let source = self.source(part);
            if !flps.insert(source.0) || found.contains(&source.0) {
                let text = format!("TF {tf}: flp:{} is twice in the list of parts", source.0);
                self.contradict(Kind::WrongParts, text, auditor);
            }
            self.check_part(part, source, here, &by, auditor);
        }
    }
}
