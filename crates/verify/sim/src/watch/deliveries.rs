//! Checks of deliveries: once, or once more with a mark and a record, and what is abandoned.

use super::accounting::LoggedVerdict;
use super::parts::{check_parts, check_roster};
use super::{Found, Watch, found};
use crate::family::SeedFamily;
use crate::invariant::Invariant;
use crate::options::Ack;
use crate::taken::Taken;
use sheaf_protocol::{NodeId, Role, Timestamp};
use sheaf_scheduler::Delivery;

impl Watch<'_> {
    pub(super) fn handle_abandoned(
        &mut self,
        now: Timestamp,
        node: NodeId,
        tf: u64,
    ) -> Result<(), Found> {
        self.hash.add(tf ^ 0xaba0);
        let has_hit_epns = self.injected.has_hit(Role::Epn);
        let stores = self.options.ack == Ack::Stored;
        let must_last = self.options.delivery == Delivery::AtLeastOnce;
        let must_last = must_last && !self.may_lose_holds(now, node, tf);
        let (_, book) = self.tf_of(node, tf)?;
        let Some(fate) = book.fate().cloned() else {
            return found(
                Invariant::OneVerdict,
                tf,
                format!("TF {tf} is abandoned without a verdict"),
            );
        };
        if fate.verdict == "dropped" {
            return found(
                Invariant::OneVerdict,
                tf,
                format!("TF {tf} is {fate}, and abandoned"),
            );
        }
        if stores {
            return found(
                Invariant::TrueReason,
                tf,
                format!("TF {tf} is abandoned, and was on the disk of its EPN"),
            );
        }
        if !has_hit_epns {
            return found(
                Invariant::TrueReason,
                tf,
                format!("TF {tf} is abandoned, and no fault hit an EPN"),
            );
        }
        if book.is_abandoned {
            return Ok(());
        }
        if must_last {
            return found(
                Invariant::TrueReason,
                tf,
                format!("TF {tf} is {fate} and abandoned, and its FLPs hold it"),
            );
        }
        book.is_abandoned = true;
        let run = self.lives[&node].run.expect("tf_of found it");
        self.runs[run].accounting.abandoned += 1;
        Ok(())
    }

    /// Returns whether a TF may be abandoned where TFs are delivered at least once: its FLPs have died or were taken
    /// for dead, damage every copy of an STF, or the run ends.
    fn may_lose_holds(&self, now: Timestamp, icn: NodeId, tf: u64) -> bool {
        if now >= self.stop_at || self.injected.has_source_ended {
            return true;
        }
        if matches!(
            self.options.kind,
            SeedFamily::Redelivery | SeedFamily::Processed
        ) {
            // No fault hits an FLP there.
            return false;
        }
        let run = self.lives.get(&icn).and_then(|life| life.run);
        let members = run.and_then(|run| self.runs[run].roster_of(tf));
        // All FLPs that made it have died: the roster is empty, and no hold has an STF of the TF.
        let has_none = members.is_some_and(<[_]>::is_empty);
        let mut members = members.unwrap_or_default().iter();
        has_none
            || self.injected.corrupted(tf) >= 2
            || members.any(|member| self.injected.may_seem_dead(member.flp))
    }

    /// Handles a line about an amendment: a TF is committed to another EPN, since the former one has died.
    pub(super) fn handle_redelivered(
        &mut self,
        now: Timestamp,
        node: NodeId,
        tf: u64,
        fate: &LoggedVerdict,
    ) -> Result<(), Found> {
        self.hash
            .add(tf ^ 0x5ed0 ^ (fate.at.map_or(0, |at| at.1) << 32));
        let has_hit_epns = self.injected.has_hit(Role::Epn);
        let is_allowed = self.options.delivery == Delivery::AtLeastOnce;
        let (_, book) = self.tf_of(node, tf)?;
        book.named_at.get_or_insert(now);
        if book.amendments.contains(fate) {
            return Ok(());
        }
        let former = book.fate().cloned();
        let is_other = former
            .as_ref()
            .is_none_or(|former| former.at.is_some() && former.at != fate.at);
        let is_open = !book.is_abandoned && !book.is_given_back;
        if !is_allowed || !is_other || !is_open || fate.verdict == "dropped" {
            let former = former.map_or("undecided".to_owned(), |former| former.to_string());
            return found(
                Invariant::OneVerdict,
                tf,
                format!("TF {tf} is {former}, and built again: {fate}"),
            );
        }
        if !has_hit_epns {
            return found(
                Invariant::TrueReason,
                tf,
                format!("TF {tf} is built again, and no fault hit an EPN"),
            );
        }
        let is_first = book.amendments.is_empty();
        book.amendments.push(fate.clone());
        let run = self.lives[&node].run.expect("tf_of found it");
        let accounting = &mut self.runs[run].accounting;
        accounting.redelivered += u64::from(is_first);
        match former {
            Some(former) => accounting.change(&former, fate),
            None => self.runs[run].count(fate),
        }
        Ok(())
    }

    /// Handles a line about a delivery: the consumer must know of it.
    pub(super) fn handle_delivered(
        &mut self,
        node: NodeId,
        tf: u64,
        is_marked: bool,
    ) -> Result<(), Found> {
        self.hash.add(tf ^ 0xde11);
        let (incarnation, book) = self.tf_of(node, tf)?;
        let at = (node.index, incarnation);
        if !book.consumed.contains(&(at, is_marked)) {
            return found(
                Invariant::OneDelivery,
                tf,
                format!("{node} writes that TF {tf} is delivered, its consumer does not have it"),
            );
        }
        Ok(())
    }

    /// Handles a line about a recovered TF of a former life.
    pub(super) fn handle_recovered(
        &mut self,
        node: NodeId,
        tf: u64,
        life: u64,
    ) -> Result<(), Found> {
        self.hash.add(tf ^ 0x4ec0);
        let (_, book) = self.tf_of(node, tf)?;
        let is_committed = book
            .fate()
            .is_some_and(|fate| fate.at == Some((node.index, life)));
        let is_visible = book.consumed.iter().any(|((epn, _), _)| *epn == node.index);
        if is_committed && is_visible {
            let run = self.lives[&node].run.expect("tf_of found it");
            self.runs[run].accounting.recovered += 1;
            return Ok(());
        }
        let detail = format!(
            "{node} writes that it published TF {tf} for its life {life}; visible at {:?}, fate {:?}",
            book.consumed,
            book.fate()
        );
        found(Invariant::OneDelivery, tf, detail)
    }

    /// Handles a delivery to the consumer of `node`.
    pub(crate) fn handle_taken(&mut self, node: NodeId, taken: &Taken) -> Result<(), Found> {
        let tf = taken.tf.0;
        self.hash
            .add(tf ^ 0xc0de ^ (u64::from(taken.is_redelivered) << 60));
        let Some(life) = self.lives.get(&node).cloned() else {
            return found(
                Invariant::VerdictFirst,
                tf,
                format!("{node} delivers TF {tf} before it lives"),
            );
        };
        let run = self.run_index(taken.run);
        let book = self.runs[run].tf(tf)?;
        let at = (node.index, life.incarnation);
        let is_twice = |((epn, life), _): &&((u16, u64), bool)| {
            book.amendments.is_empty() || (*epn, *life) == at
        };
        if let Some(((epn, life), _)) = book.consumed.iter().find(is_twice) {
            let detail = format!(
                "TF {tf} is delivered by epn:{epn} in life {life} and by epn:{} in life {}",
                at.0, at.1
            );
            return found(Invariant::OneDelivery, tf, detail);
        }
        if book.is_given_back || book.given_back_by.contains(&at) {
            let detail = format!("{node} delivers TF {tf}, which was given back");
            return found(Invariant::OneDelivery, tf, detail);
        }
        let Some(in_force) = book.fate() else {
            return found(
                Invariant::VerdictFirst,
                tf,
                format!("{node} delivers TF {tf}, which has no verdict"),
            );
        };
        // A TF that a former life has stored, a later one publishes.
        let may_recover = self.options.ack == Ack::Stored;
        let is_own = |by: (u16, u64)| by == at || (may_recover && by.0 == at.0 && by.1 < at.1);
        let Some((fate, is_amendment)) = book.fate_at(is_own) else {
            return found(
                Invariant::VerdictFirst,
                tf,
                format!(
                    "{node} in life {} delivers TF {tf}, which is {in_force}",
                    at.1
                ),
            );
        };
        if is_amendment != taken.is_redelivered {
            let mark = if taken.is_redelivered {
                "with"
            } else {
                "without"
            };
            let detail = format!("{node} delivers TF {tf} {mark} the mark, its verdict is {fate}");
            return found(Invariant::OneDelivery, tf, detail);
        }
        if fate.missing != taken.missing {
            let detail = format!(
                "TF {tf} is delivered without {:?}, its verdict is {fate}",
                taken.missing
            );
            return found(Invariant::TruePieces, tf, detail);
        }
        check_parts(tf, taken, &book.made)?;
        let is_again = !book.consumed.is_empty();
        book.consumed.push((at, taken.is_redelivered));
        self.runs[run].accounting.delivered_again += u64::from(is_again);
        check_roster(tf, taken, self.runs[run].roster_of(tf))
    }
}
