//! The verdict on a TF: one, and its consequences.

use super::open_tf::{OpenTf, Part, Phase};
use super::peer::target_id;
use super::{Action, Incomplete, Recipient, Record, Scheduler, Trace};
use sheaf_protocol::control::{Assign, Built, Commit};
use sheaf_protocol::{
    Attempt, Control, DropReason, FlpId, Target, TfId, Timestamp, Verdict, protect,
};

impl Scheduler {
    /// Handles an EPN's report of a TF. The first report that settles the TF wins, whichever EPN was assigned.
    pub(super) fn handle_built(&mut self, now: Timestamp, target: Target, built: &Built) {
        let Some(open) = self.tfs.get(&built.tf) else {
            return;
        };
        if let Some(winner) = protect!(FirstReportWins, open.winner(), else None) {
            if winner == target {
                self.repeat_commit(now, built.tf);
            }
            return;
        }
        if !open.bookings.iter().any(|booking| booking.target == target) {
            // The EPN was never asked.
            self.stats.unexpected_messages += 1;
            return;
        }
        // An older roster may lack a source that is no member any more.
        let members = open.members.iter().map(|member| member.flp);
        let missing: Vec<FlpId> = members
            .filter(|flp| protect!(MissingCounted, when built.missing.contains(flp)))
            .collect();
        // Whole, or as whole as it can ever be.
        let has_reasons = missing.iter().all(|flp| open.reason_of(*flp).is_some());
        let is_settled = protect!(SettledReport, requires has_reasons);
        // An EPN that was asked before, or for an earlier attempt, may be stale while the present one is about to
        // finish.
        let is_present = built.attempt == open.attempt
            && matches!(open.phase, Phase::Building { target: at, .. } if at == target);
        // Parts of an FLP that is cut off may come yet, and the EPN repeats its report.
        let is_awaited = |flp: &FlpId| {
            let mut members = open.members.iter();
            members.any(|member| member.flp == *flp && self.is_awaited(now, *member))
        };
        let waits = !is_settled && missing.iter().any(is_awaited);
        if is_present && !is_settled && self.retransmit_missing(now, target, built.tf, &missing) {
            return;
        }
        if is_settled || is_present && !protect!(AbsentAwaited, when waits) {
            let built = Built {
                missing,
                ..built.clone()
            };
            self.settle(now, target, &built);
        }
    }

    fn settle(&mut self, now: Timestamp, target: Target, built: &Built) {
        let open = &self.tfs[&built.tf];
        let parts = open.members.len().saturating_sub(built.missing.len());
        let allowed = match self.config.incomplete {
            Incomplete::Never => built.missing.is_empty(),
            Incomplete::Allow => parts >= self.config.quorum_stfs_min as usize && parts > 0,
        };
        if allowed {
            self.commit(now, target, built);
            return;
        }
        let reason = built.missing.iter().find_map(|flp| {
            let member = open.members.iter().find(|member| member.flp == *flp)?;
            let is_lost = self.gone.contains(member) || self.is_given_up(*member);
            let lost = is_lost.then(|| self.gone_reason(*member));
            open.reason_of(*flp).or(lost)
        });
        if reason.is_none() && open.former.is_some() {
            // The FLPs hold the STFs and are late with them: no TF is abandoned for that.
            return self.move_tf(now, built.tf, target);
        }
        self.drop_tf(built.tf, reason.unwrap_or(DropReason::SourceLate));
    }

    fn commit(&mut self, now: Timestamp, target: Target, built: &Built) {
        let tf = built.tf;
        if protect!(FewCommits, when !self.may_commit(target)) {
            return self.put_off(target, built);
        }
        self.note_commit(target);
        // The EPN must know the roster that the commit means.
        self.send_assigns();
        let missing = built.missing.clone();
        let is_amendment = self.uncount_former(tf, &missing);
        let open = self
            .tfs
            .get_mut(&tf)
            .expect("the caller has just looked at it");
        if open.phase == Phase::Queued {
            self.queue.retain(|queued| *queued != tf);
        }
        let ago = |age_ns: u64| Timestamp(now.0.saturating_sub(age_ns));
        open.bytes_at = (ago(built.first_byte_age_ns), ago(built.last_byte_age_ns));
        open.committed_bytes = built.bytes;
        let verdict = if missing.is_empty() {
            self.accounting.complete += 1;
            Verdict::Complete { target }
        } else {
            self.accounting.incomplete += 1;
            Verdict::Incomplete {
                target,
                missing: missing.clone(),
            }
        };
        self.accounting.bytes += built.bytes;
        self.accounting.target(target.epn).built += 1;
        let attempt = built.attempt.min(open.attempt);
        open.phase = Phase::Committed {
            target,
            missing: missing.clone(),
            said_at: now,
        };
        let is_marked = open.is_redelivered;
        // Of an amendment the STFs are counted already.
        let parts = open.members.iter().zip(&open.parts);
        for (source, part) in parts.filter(|_| !is_amendment) {
            let is_missing = missing.contains(&source.flp);
            let accounting = self.accounting.sources.entry(source.flp).or_default();
            match part {
                Part::Announced(_) if is_missing => accounting.unused += 1,
                Part::Announced(_) => accounting.built += 1,
                // The STF came before it was announced, or after it was written off.
                Part::Unknown(_) | Part::Skipped(_) if !is_missing => {
                    accounting.announced += 1;
                    accounting.built += 1;
                }
                Part::Unknown(_) | Part::Skipped(_) => {}
            }
        }
        let bytes = built.bytes;
        if is_amendment {
            self.append_amendment(Record::Redelivered {
                tf,
                attempt,
                verdict,
                bytes,
            });
        } else {
            self.append(Record::Verdict {
                tf,
                attempt,
                verdict,
                bytes,
            });
        }
        let commit = Commit {
            tf,
            is_redelivered: is_marked,
            missing,
        };
        self.send_commit(target, commit);
    }

    fn send_commit(&mut self, target: Target, commit: Commit) {
        let is_redelivered = protect!(RedeliveryMark, when commit.is_redelivered);
        let commit = Commit {
            is_redelivered,
            ..commit
        };
        // The driver makes one message of those that follow each other.
        let commit = Control::Commit(vec![commit]);
        let recipient = protect!(SingleCommit, Recipient::Epn(target.epn), else Recipient::AllEpns);
        self.send(recipient, commit);
    }

    pub(super) fn repeat_commit(&mut self, now: Timestamp, tf: TfId) {
        let Some(open) = self.tfs.get_mut(&tf) else {
            return;
        };
        let Phase::Committed {
            target,
            missing,
            said_at,
        } = &mut open.phase
        else {
            return;
        };
        *said_at = now;
        let (target, missing) = (*target, missing.clone());
        let is_redelivered = open.is_redelivered;
        let assign = Assign {
            tf,
            attempt: open.attempt,
            target,
            roster: open.roster,
        };
        if protect!(CommitRetransmit, when self.is_current(target)) {
            // Without the roster of the TF the EPN cannot tell whether it has what the commit names.
            self.repeat_roster(target, assign);
            self.stats.commits_repeated += 1;
            let commit = Commit {
                tf,
                is_redelivered,
                missing,
            };
            self.send_commit(target, commit);
        }
    }

    /// Handles an EPN's acknowledgement: the consumer has the TF, which is done.
    pub(super) fn handle_commit_ack(&mut self, now: Timestamp, target: Target, tf: TfId) {
        if self.handle_stray_ack(target, tf) {
            return;
        }
        let Some(open) = self.tfs.get(&tf) else {
            return;
        };
        if open.former.is_some() {
            return self.finish_delivered(tf, target);
        }
        if !matches!(&open.phase, Phase::Committed { target: at, .. } if *at == target) {
            return;
        }
        let trace = trace(now, open);
        let booking = open
            .bookings
            .iter()
            .find(|booking| booking.target == target);
        // When a TF that was found decided in the log was placed is not known.
        if let Some(booking) = booking {
            let (bytes, placed_at) = (booking.bytes, booking.placed_at);
            self.view
                .observe_arrival(target_id(target.epn), bytes, placed_at, open.bytes_at.1);
        }
        self.accounting.target(target.epn).delivered += 1;
        self.actions.push_back(Action::Done { tf, target, trace });
        self.finish(tf, Some(target));
        self.note_acknowledged(now, target);
        self.commit_next(now, target);
    }

    /// Abandons a committed TF of a dead EPN: whether its consumer has it is unknown, and it is not built again.
    pub(super) fn abandon(&mut self, tf: TfId, target: Target) {
        self.accounting.abandoned += 1;
        self.actions
            .push_back(Action::Append(Record::Abandoned { tf, target }));
        self.finish(tf, None);
    }

    /// Drops an undecided TF. One that may have been delivered before is abandoned.
    pub(super) fn drop_tf(&mut self, tf: TfId, reason: DropReason) {
        if self.abandon_unbuilt(tf, reason) {
            return;
        }
        let Some(open) = self.tfs.get(&tf) else {
            return;
        };
        debug_assert!(open.is_unbuilt(), "a TF has one verdict");
        for (source, part) in open.members.iter().zip(&open.parts) {
            if matches!(part, Part::Announced(_)) {
                self.accounting
                    .sources
                    .entry(source.flp)
                    .or_default()
                    .dropped += 1;
            }
        }
        self.accounting.dropped[reason.index()] += 1;
        let verdict = Verdict::Dropped { reason };
        let attempt = Attempt(0);
        let record = Record::Verdict {
            tf,
            attempt,
            verdict,
            bytes: 0,
        };
        self.actions.push_back(Action::Append(record));
        self.finish(tf, None);
    }

    /// Removes a decided TF from the table and releases its reservations.
    pub(super) fn finish(&mut self, tf: TfId, winner: Option<Target>) {
        let Some(open) = self.tfs.remove(&tf) else {
            return;
        };
        if open.phase == Phase::Queued {
            self.queue.retain(|queued| *queued != tf);
        }
        self.assigns.retain(|assign| assign.tf != tf);
        self.forget_put_off(tf);
        if let Some(target) = open.winner() {
            self.note_commit_end(target);
        }
        protect!(DecidedRemembered, self.released.insert(tf), else false);
        self.released_version += 1;
        if winner.is_some() {
            self.done.insert(tf);
        }
        let version = self.released_version;
        for booking in protect!(CreditReturn, open.bookings, else Vec::new()) {
            let Some(node) = self.epns.get_mut(&booking.target.epn) else {
                continue;
            };
            if node.target != booking.target {
                continue;
            }
            // The dead hold nothing, and receive no release.
            if winner == Some(booking.target) || node.is_dead {
                self.view
                    .release(target_id(booking.target.epn), booking.bytes);
            } else {
                // The EPN may hold bytes of it until it has received the release.
                node.losing.push((version, booking.bytes));
            }
        }
    }
}

/// Returns the stages of a TF that is done `now`, on the ICN's clock.
fn trace(now: Timestamp, open: &OpenTf) -> Trace {
    let (first_byte, last_byte) = open.bytes_at;
    let ns = |later: Timestamp, earlier: Timestamp| {
        u64::try_from(later.since(earlier).as_nanos()).unwrap_or(u64::MAX)
    };
    Trace {
        announce_to_assign_ns: ns(open.assigned_at, open.first_at),
        assign_to_first_byte_ns: ns(first_byte, open.assigned_at),
        first_to_last_byte_ns: ns(last_byte, first_byte),
        last_byte_to_commit_ns: ns(now, last_byte),
        total_ns: ns(now, open.first_at),
    }
}
