//! Delivery at least once: a committed TF whose EPN has died is built again, by another EPN, and delivered with a mark.
//!
//! Whether the consumer of the dead EPN has the TF is unknown. Its FLPs hold the STFs until the acknowledgement, so the
//! TF goes back to be placed, while its verdict stands. The report of another EPN amends the verdict: one record, which
//! is durable before the marked commit leaves. Until that record the former EPN may come back in the same life, and the
//! TF is its again. If one of its FLPs has released it, a former leader had the acknowledgement: the TF is delivered.
//! If the holds do not have the TF any more, or the run ends first, it is abandoned.
//!
//! The accounting follows the records: it changes with the amendment, and not before.

use super::open_tf::{Former, OpenTf, Part, Phase};
use super::{Action, Delivery, Scheduler, Trace};
use crate::accounting::SourceAccounting;
use sheaf_protocol::{DropReason, FlpId, Record, Source, Target, TfId, Timestamp, protect};

/// Fate of one STF of a committed TF in the accounting of its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    Built,
    Unused,
    Skipped,
    Nowhere,
}

impl Counted {
    fn of(part: Part, is_missing: bool) -> Self {
        match part {
            _ if !is_missing => Self::Built,
            Part::Announced(_) => Self::Unused,
            Part::Skipped(_) => Self::Skipped,
            Part::Unknown(_) => Self::Nowhere,
        }
    }

    /// Returns the counters of a source that count such an STF.
    fn counters(self, source: &mut SourceAccounting) -> Vec<&mut u64> {
        match self {
            Self::Built => vec![&mut source.announced, &mut source.built],
            Self::Unused => vec![&mut source.announced, &mut source.unused],
            Self::Skipped => vec![&mut source.skipped],
            Self::Nowhere => Vec::new(),
        }
    }
}

impl Scheduler {
    /// Handles a committed TF whose EPN has died with it in its memory alone.
    pub(super) fn leave_unknown(&mut self, now: Timestamp, tf: TfId, target: Target) {
        match self.config.delivery {
            Delivery::AtMostOnce => self.abandon(tf, target),
            Delivery::AtLeastOnce => self.build_again(now, tf, target),
        }
    }

    /// Places a TF again whose verdict names a dead EPN.
    fn build_again(&mut self, now: Timestamp, tf: TfId, target: Target) {
        let Some(open) = self.tfs.get_mut(&tf) else {
            return;
        };
        let Phase::Committed { missing, .. } = &open.phase else {
            return;
        };
        let missing = missing.clone();
        open.former = Some(Former {
            target,
            missing: missing.clone(),
            parts: open.parts.clone(),
        });
        for (source, part) in open.members.iter().zip(&mut open.parts) {
            if matches!(part, Part::Unknown(_)) && !missing.contains(&source.flp) {
                // The STF came before it was announced.
                *part = Part::Announced(0);
            }
        }
        open.phase = Phase::Gathering;
        self.note_commit_end(target);
        self.assign_or_drop(now, tf);
    }

    /// Handles an EPN that has joined: TFs of this very life that no other EPN has built meanwhile are its own again.
    pub(super) fn resume_commits(&mut self, target: Target) {
        let is_own = |open: &OpenTf| {
            let former = open.former.as_ref();
            former.is_some_and(|former| former.target == target)
        };
        let own = self.tfs.iter().filter(|(_, open)| is_own(open));
        let own: Vec<TfId> = own.map(|(tf, _)| tf).collect();
        for tf in own {
            self.resume_commit(tf);
        }
    }

    fn resume_commit(&mut self, tf: TfId) {
        let Some(open) = self.tfs.get_mut(&tf) else {
            return;
        };
        let Some(former) = open.former.take() else {
            return;
        };
        let was_queued = open.phase == Phase::Queued;
        open.parts = former.parts;
        open.phase = Phase::Committed {
            target: former.target,
            missing: former.missing,
            said_at: Timestamp(0),
        };
        if was_queued {
            self.queue.retain(|queued| *queued != tf);
        }
        self.assigns.retain(|assign| assign.tf != tf);
        self.forget_put_off(tf);
        self.note_commit(former.target);
    }

    /// Takes the former verdict of a TF that is committed again out of the accounting. Returns `false` for a TF without
    /// a verdict.
    pub(super) fn uncount_former(&mut self, tf: TfId, missing_now: &[FlpId]) -> bool {
        let Some(open) = self.tfs.get_mut(&tf) else {
            return false;
        };
        let Some(former) = open.former.take() else {
            return false;
        };
        if former.missing.is_empty() {
            self.accounting.complete -= 1;
        } else {
            self.accounting.incomplete -= 1;
        }
        self.accounting.redelivered += u64::from(!open.is_redelivered);
        open.is_redelivered = true;
        self.accounting.bytes = self.accounting.bytes.saturating_sub(open.committed_bytes);
        let built = &mut self.accounting.target(former.target.epn).built;
        *built = built.saturating_sub(1);
        let members = open.members.clone();
        let parts = former.parts.iter().zip(open.parts.clone());
        for (source, (before, after)) in members.iter().zip(parts) {
            let before = Counted::of(*before, former.missing.contains(&source.flp));
            let after = Counted::of(after, missing_now.contains(&source.flp));
            if before == after {
                continue;
            }
            let source = self.accounting.source(source.flp);
            for counter in before.counters(source) {
                *counter = counter.saturating_sub(1);
            }
            for counter in after.counters(source) {
                *counter += 1;
            }
        }
        true
    }

    /// Ends a TF that is built again and that a consumer has, by the word of `by`: an EPN that was asked for it and has
    /// delivered it at an earlier commit, or the EPN that died. The verdict stays that of the EPN that died.
    pub(super) fn finish_delivered(&mut self, tf: TfId, by: Target) {
        let Some(open) = self.tfs.get(&tf) else {
            return;
        };
        let Some(former) = &open.former else {
            return;
        };
        let verdict_at = former.target;
        self.accounting.target(verdict_at.epn).delivered += 1;
        let trace = Trace::default();
        let target = verdict_at;
        self.actions.push_back(Action::Done { tf, target, trace });
        self.finish(tf, Some(by));
    }

    /// Handles an FLP that was asked for STFs which a former leader has released. Of the TFs whose verdict names an
    /// EPN, that leader released those that were acknowledged, and died before this was in its log: they are delivered.
    pub(super) fn handle_released(&mut self, now: Timestamp, source: Source, tfs: &[TfId]) {
        protect!(ReleasedIsDone, else return);
        for tf in tfs {
            let open = self.tfs.get(tf);
            let open = open.filter(|open| open.member_index(source).is_some());
            if let Some(former) = open.and_then(|open| open.former.as_ref()) {
                self.finish_delivered(*tf, former.target);
            }
        }
        self.advance_run(now);
    }

    /// Abandons a TF that cannot be built again. Returns `false` for a TF that no EPN had built before: it is dropped.
    pub(super) fn abandon_unbuilt(&mut self, tf: TfId, reason: DropReason) -> bool {
        let former = self.tfs.get(&tf).and_then(|open| open.former.as_ref());
        let Some(target) = protect!(UnknownIsAbandoned, former, else None).map(|it| it.target)
        else {
            return false;
        };
        self.actions
            .push_back(Action::NotRedelivered { tf, reason });
        self.abandon(tf, target);
        true
    }

    /// Appends the amendment of a verdict, from which the marked commit follows.
    pub(super) fn append_amendment(&mut self, record: Record) {
        protect!(RedeliveryRecord, else return);
        self.append(record);
    }
}
