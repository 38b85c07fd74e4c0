//! Takeover: what the verdict log tells a new leader, and how it goes on with what the nodes hold.
//!
//! The log holds which TFs are decided and which rosters were in force. Undecided TFs the FLPs announce again, and the
//! EPNs report their parts of them. Until all expected nodes have reported, or their time is up, nothing is placed
//! (*settling*): a TF that is half built somewhere is best finished there.

use super::checkpoint::{Decided, Summary};
use super::open_tf::{Booking, OpenTf, Part, Phase};
use super::peer::{EpnSetting, FlpNode, target_id};
use super::phase::RunPhase;
use super::{Action, Scheduler, SchedulerConfig};
use crate::scheduler::RunPlan;
use sheaf_placement::{UnknownPolicy, policy};
use sheaf_protocol::control::{Assign, FlpPulse, SlotHeld};
use sheaf_protocol::{
    Attempt, DropReason, EpnId, NodeId, Record, RunId, Source, Target, TfId, Timestamp, Verdict,
    protect,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Largest lead of an FLP's run time over the leader's that is believed. More is a broken clock.
const TIME_LEAP_MAX: Duration = Duration::from_secs(24 * 3600);
/// Least lead of an FLP's run time that is taken after the settling. FLPs follow the pulses of the leader, so clocks
/// that drift apart do not reach it within half an hour without one.
const TIME_LEAP_MIN: Duration = Duration::from_millis(100);
/// Largest lead that is taken then: what a leader misses by the death of another one. All TFs of that time are due at
/// once.
const TIME_LEAP_LATE_MAX: Duration = Duration::from_secs(60);

impl Scheduler {
    /// Returns the scheduler of a leader that finds `log`: of the last run in it, or of `first_run` if there is none.
    /// If the last run is over, `next_run` is opened; `None` only dismisses the nodes of the last one. In the middle of
    /// a run nothing is placed until [`handle_settled`](Self::handle_settled).
    ///
    /// # Errors
    ///
    /// [`UnknownPolicy`] if the configuration names a policy that does not exist.
    pub fn recover(
        now: Timestamp,
        config: SchedulerConfig,
        plan: RunPlan,
        next_run: Option<RunId>,
        first_run: RunId,
        log: impl Iterator<Item = Record>,
    ) -> Result<Self, UnknownPolicy> {
        let mut summary = Summary::default();
        log.for_each(|record| summary.replay(&record));
        Self::resume(now, config, plan, next_run, first_run, summary)
    }

    /// Returns the scheduler as [`recover`](Self::recover) does, for a log that was read already.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn resume(
        now: Timestamp,
        config: SchedulerConfig,
        plan: RunPlan,
        next_run: Option<RunId>,
        first_run: RunId,
        summary: Summary,
    ) -> Result<Self, UnknownPolicy> {
        let Some(run) = summary.run() else {
            return Self::new(config, plan, first_run);
        };
        if let Some(next_run) = next_run.filter(|_| summary.is_over()) {
            return Self::new(config, plan, next_run);
        }
        let policy = policy::by_name(&config.policy, config.seed)?;
        let mut found = Self::empty(config, plan, run, policy);
        found.phase = summary.phase(now);
        let Summary {
            rosters,
            first,
            frontier,
            released,
            undone,
            accounting,
            before,
            settings,
            listed,
            ..
        } = summary;
        // No node has a version that a leader before this one gave out for more than this.
        found.released_version = released.count();
        (found.rosters, found.frontier, found.released) = (rosters, frontier, released);
        found.first = first;
        (found.accounting, found.before, found.settings) = (accounting, before, settings);
        if let Some(epns) = listed {
            found.list.restore(epns);
        }
        found.go_on(now, undone);
        Ok(found)
    }

    /// Goes on from the log that was read: decided TFs are repeated until they are done, and FLPs that made STFs are
    /// expected back.
    fn go_on(&mut self, now: Timestamp, undone: BTreeMap<TfId, Decided>) {
        self.origin = now;
        for (tf, decided) in undone {
            self.restore_decided(now, tf, decided);
        }
        if matches!(self.phase, RunPhase::Waiting | RunPhase::Over) {
            return;
        }
        self.is_settling = true;
        self.took_over_at = Some(now);
        self.span.0 = Some(now);
        self.rosters.forget_below(self.released.floor());
        let newest = self.rosters.newest();
        let mut first_of: BTreeMap<Source, TfId> = BTreeMap::new();
        for (first, members) in self.rosters.all() {
            for source in members.iter() {
                first_of.entry(*source).or_insert(first);
            }
        }
        for (source, first) in first_of {
            let mut node = FlpNode::expected(now, source, self.config.stf_bytes_max, first);
            if !newest.contains(&source) {
                // The source died, or ended and holds undecided STFs: the run is not over before it had its time.
                node.gone_at = Some(now);
                self.gone.insert(source);
            }
            // Of several lives the latest comes last.
            self.flps.insert(source.flp, node);
        }
    }

    fn restore_decided(&mut self, now: Timestamp, tf: TfId, decided: Decided) {
        let (target, missing) = match decided.verdict {
            Verdict::Complete { target } => (target, Vec::new()),
            Verdict::Incomplete { target, missing } => (target, missing),
            Verdict::Dropped { .. } => return,
        };
        let Some((roster, members)) = self.rosters.of(tf) else {
            return;
        };
        let part = |source: &Source| {
            if missing.contains(&source.flp) {
                Part::Skipped(DropReason::SourceLate)
            } else {
                Part::Announced(0)
            }
        };
        let parts = members.iter().map(part).collect();
        let mut open = OpenTf::new(now, roster, members, parts);
        open.attempt = decided.attempt;
        open.committed_bytes = decided.bytes;
        open.is_redelivered = decided.is_redelivered;
        self.note_commit(target);
        open.phase = Phase::Committed {
            target,
            missing,
            said_at: Timestamp(0),
        };
        self.tfs.insert(tf, open);
    }

    /// Returns whether the scheduler waits for the reports of the nodes before it places anything.
    #[must_use]
    pub fn is_settling(&self) -> bool {
        self.is_settling
    }

    /// Returns all lives of FLPs that the log names, those that are gone included.
    pub fn known_sources(&self) -> impl Iterator<Item = Source> {
        self.flps.values().map(|node| node.source)
    }

    /// Returns the lives that the log names and that are expected to come back: FLPs of the newest roster, and EPNs
    /// that have TFs to deliver. The caller declares gone or dead those that do not come.
    #[must_use]
    pub fn expected(&self) -> BTreeSet<(NodeId, sheaf_protocol::Incarnation)> {
        let flps = self.flps.values().map(|node| node.source);
        let mut expected: BTreeSet<_> = flps
            .filter(|source| !self.gone.contains(source))
            .map(|source| (NodeId::from(source.flp), source.incarnation))
            .collect();
        for open in self.tfs.values() {
            if let Phase::Committed { target, .. } = open.phase {
                expected.insert((target.epn.into(), target.incarnation));
            }
        }
        expected
    }

    /// Ends the settling: all expected nodes have reported, or their time is up. TFs are placed from now on.
    pub fn handle_settled(&mut self, now: Timestamp) {
        if !std::mem::take(&mut self.is_settling) {
            return;
        }
        let is_new = |node: &&FlpNode| node.first.is_none() && !self.gone.contains(&node.source);
        let new: Vec<Source> = self
            .flps
            .values()
            .filter(is_new)
            .map(|n| n.source)
            .collect();
        if self.wants_sources() && !new.is_empty() {
            self.change_roster();
            for source in new {
                self.start_flp(now, source.flp, self.frontier);
            }
        }
        self.fix_list();
        self.place_queued(now);
        self.advance_run(now);
    }

    /// Takes the time of the run from an FLP that has lived through the change of leaders and knows it best: while
    /// settling any time that is later, and after it one of an FLP that was stopped or cut off meanwhile.
    pub(super) fn take_time_of(&mut self, now: Timestamp, pulse: &FlpPulse) {
        if !self.has_begun() {
            return;
        }
        let told = Duration::from_nanos(pulse.elapsed_ns);
        let lead = told.saturating_sub(Duration::from_nanos(self.elapsed_ns(now)));
        let believed = match self.is_settling {
            true => Duration::ZERO..TIME_LEAP_MAX,
            false => TIME_LEAP_MIN..TIME_LEAP_LATE_MAX,
        };
        if believed.contains(&lead) {
            self.before += lead;
        }
    }

    /// Handles an EPN's report of its slots of undecided TFs.
    pub(super) fn handle_slots(&mut self, now: Timestamp, target: Target, items: &[SlotHeld]) {
        for item in items {
            if self.released.contains(item.tf) || !self.open_held(now, item.tf) {
                continue;
            }
            let open = self.tfs.get_mut(&item.tf).expect("opened just now");
            let is_booked = open.bookings.iter().any(|booking| booking.target == target);
            if is_booked || !open.is_unbuilt() {
                continue;
            }
            // The EPN may report the TF, and its room is taken, whichever EPN builds it in the end.
            let bytes = open.bytes_expected().max(item.bytes);
            open.bookings.push(Booking {
                target,
                bytes,
                placed_at: now,
            });
            self.view.book(target_id(target.epn), bytes);
            let is_unplaced = matches!(open.phase, Phase::Gathering | Phase::Queued);
            let is_unassigned = is_unplaced && open.attempt == Attempt(0);
            if protect!(SlotAdoption, when is_unassigned) {
                self.adopt(now, item.tf, target);
            }
        }
    }

    /// Opens a TF as an announce does, though no source has named it yet. Below the frontier perhaps none ever will,
    /// since all of them may be dead: then the EPN alone knows of it, and would keep it for ever, without a verdict and
    /// without a credit that counts it. A TF that lies ahead is named by its sources, except while settling.
    fn open_held(&mut self, now: Timestamp, tf: TfId) -> bool {
        let may_open = self.is_settling || tf < self.frontier;
        self.tfs.contains_key(&tf) || (may_open && self.open_tf(now, tf, None))
    }

    /// Adopts a TF at the EPN that has it.
    fn adopt(&mut self, now: Timestamp, tf: TfId, target: Target) {
        let deadline = now + self.deadline_of(target);
        let Some(open) = self.tfs.get_mut(&tf) else {
            return;
        };
        if open.phase == Phase::Queued {
            self.queue.retain(|queued| *queued != tf);
        }
        open.attempt = Attempt(1);
        open.is_adopted = true;
        open.assigned_at = now;
        open.phase = Phase::Building { target, deadline };
        self.stats.adopted += 1;
        self.assigns.push(Assign {
            tf,
            attempt: open.attempt,
            target,
            roster: open.roster,
        });
    }

    /// Records TFs that are with their consumers in the log. Comes before the release that follows from it.
    pub(super) fn append_done(&mut self) {
        let done = std::mem::take(&mut self.done);
        let ranges: Vec<(TfId, TfId)> = ranges_of(&done);
        for ranges in ranges.chunks(Record::RANGES_MAX) {
            let ranges = ranges.to_vec();
            self.actions
                .push_back(Action::Append(Record::Done { ranges }));
        }
    }

    /// Returns the settings of an EPN in a new life of it.
    pub(super) fn setting(&self, epn: EpnId) -> Option<EpnSetting> {
        self.settings.get(&epn).copied()
    }
}

/// Returns `tfs` as ranges, ascending.
fn ranges_of(tfs: &BTreeSet<TfId>) -> Vec<(TfId, TfId)> {
    let mut ranges: Vec<(TfId, TfId)> = Vec::new();
    for tf in tfs {
        match ranges.last_mut() {
            Some((_, end)) if *end == *tf => *end = tf.next(),
            _ => ranges.push((*tf, tf.next())),
        }
    }
    ranges
}
