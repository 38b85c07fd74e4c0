//! The run: its begin, the common stop of its sources, and its end when everything is decided.

use super::open_tf::{Part, Phase};
use super::peer::{FlpNode, target_id};
use super::phase::RunPhase;
use super::rosters::Roster;
use super::{Action, Mode, Recipient, Scheduler};
use sheaf_protocol::control::{Assign, Start, digest_of_targets};
use sheaf_protocol::{Control, DropReason, EpnId, FlpId, Record, Source, TfId, Timestamp, protect};
use std::time::Duration;

/// Upper bound of heartbeats sent at once, when the ICN was held up.
const PACED_AT_ONCE_MAX: usize = 4096;

/// How long the end of a run waits for an FLP that is gone without notice.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(2);
/// TFs beyond the last known one that an FLP may have made before it was cut off.
const UNHEARD_MAX: u64 = 4096;
/// How often the time of the run is recorded in the log.
const CLOCK_EVERY: Duration = Duration::from_secs(1);

impl Scheduler {
    /// Returns whether the run has begun.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.phase != RunPhase::Waiting
    }

    /// Returns whether everything is decided and the nodes may go.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.phase == RunPhase::Over
    }

    /// Returns the time since the first TF was due, in ns; 0 before the run has begun.
    #[must_use]
    pub fn elapsed_ns(&self, now: Timestamp) -> u64 {
        let elapsed = if self.has_begun() {
            self.before + now.since(self.origin)
        } else {
            Duration::ZERO
        };
        u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns the name of the phase in status views.
    #[must_use]
    pub fn phase_name(&self) -> &'static str {
        match self.phase {
            RunPhase::Waiting => "waiting",
            RunPhase::Running => "running",
            RunPhase::Stopping { .. } => "stopping",
            RunPhase::Draining { .. } => "draining",
            RunPhase::Over => "over",
        }
    }

    /// Returns whether `tf` may still come into being. While the farm drains, only TFs that an FLP had made before it
    /// ended: their announces may have been lost.
    pub(super) fn may_open(&self, tf: TfId) -> bool {
        match self.phase {
            RunPhase::Running | RunPhase::Stopping { .. } => true,
            RunPhase::Draining { .. } => self.flps.values().any(|node| match node.ended {
                Some(end) => tf < end,
                // The FLP was thought gone, and is back with STFs made meanwhile.
                None => !self.gone.contains(&node.source),
            }),
            RunPhase::Waiting | RunPhase::Over => false,
        }
    }

    pub(super) fn wants_sources(&self) -> bool {
        matches!(self.phase, RunPhase::Running | RunPhase::Stopping { .. })
    }

    /// Returns whether no FLP holds an STF that it may still announce: every present one has reported, after it ended,
    /// that it holds nothing any more. One that has reported its end and was cut off since may be back in a moment,
    /// with TFs of which no announce came through.
    fn all_holds_empty(&self, now: Timestamp) -> bool {
        self.flps.values().all(|node| {
            let is_awaited = !self.gone.contains(&node.source)
                || node.ended.is_some() && !has_given_up(node, now);
            node.holds_nothing || !is_awaited
        })
    }

    /// Closes TFs that FLPs have made by their own last report and that none has announced or will announce. A last
    /// report that is far beyond all known TFs is not believed.
    fn close_unheard(&mut self, now: Timestamp) {
        let floor = self.released.floor();
        let last = TfId(self.frontier.0.saturating_add(UNHEARD_MAX));
        let made_by =
            |node: &FlpNode| Some((node.source, node.first?.max(floor), node.ended?.min(last)));
        let made: Vec<_> = self.flps.values().filter_map(made_by).collect();
        for (source, first, end) in made {
            for tf in (first.0..end.0).map(TfId) {
                let is_unheard = !self.released.contains(tf) && !self.tfs.contains_key(&tf);
                if is_unheard && self.open_tf(now, tf, Some(source)) {
                    self.drop_tf(tf, DropReason::SourceDied);
                }
            }
        }
    }

    pub(super) fn end(&self) -> TfId {
        let end = |timeframes| TfId(self.first.0.saturating_add(timeframes));
        self.plan.timeframes.map_or(TfId(u64::MAX), end)
    }

    pub(super) fn start_flp(&mut self, now: Timestamp, flp: FlpId, first: TfId) {
        let (end, elapsed_ns, origin) = (self.end(), self.elapsed_ns(now), self.first);
        let Some(node) = self.flps.get_mut(&flp) else {
            return;
        };
        let first = *node.first.get_or_insert(first);
        self.send(
            Recipient::Flp(flp),
            Control::Start(Start {
                first,
                end,
                elapsed_ns,
                origin,
            }),
        );
    }

    /// Changes the roster: from the frontier on a TF is whole with the FLPs that are there now.
    pub(super) fn change_roster(&mut self) {
        let is_member = |source: &Source| {
            let node = &self.flps[&source.flp];
            // An FLP that comes while a new leader settles begins behind all TFs that are known then: it has no earlier
            // one.
            let begins_later = self.is_settling && node.first.is_none();
            let is_left_behind = node.absence.is_some_and(|it| it.is_left_behind);
            !self.gone.contains(source) && node.ended.is_none() && !begins_later && !is_left_behind
        };
        let sources = self.flps.values().map(|node| node.source);
        let members: Vec<Source> = sources.filter(is_member).collect();
        let first = protect!(RosterAtFrontier, self.frontier, else self.released.floor());
        self.rosters.change(first, members);
        self.append_rosters();
    }

    /// Returns when the next heartbeat is due in paced mode.
    #[must_use]
    pub fn next_pace_at(&self) -> Option<Timestamp> {
        let is_paced =
            self.config.mode == Mode::Paced && self.phase == RunPhase::Running && !self.is_settling;
        (is_paced && self.frontier < self.end()).then(|| self.pace_due(self.frontier))
    }

    /// Returns when `tf` is due, computed from the id, so that no error adds up.
    fn pace_due(&self, tf: TfId) -> Timestamp {
        let after = tf.0.saturating_sub(self.first.0) as f64 / self.config.paced_rate_hz;
        let after = Duration::try_from_secs_f64(after).unwrap_or(Duration::MAX);
        self.origin + after.saturating_sub(self.before)
    }

    /// Sends the heartbeat of every TF that is due, and assigns it at the same time.
    pub(super) fn pace(&mut self, now: Timestamp) {
        let mut called = Vec::new();
        while let Some(due) = self.next_pace_at()
            && due <= now
            && called.len() < PACED_AT_ONCE_MAX
        {
            let tf = self.frontier;
            let late_ns = u64::try_from(now.since(due).as_nanos()).unwrap_or(u64::MAX);
            self.stats.pace_late_ns_max = self.stats.pace_late_ns_max.max(late_ns);
            self.stats.paced += 1;
            called.push(tf);
            if self.open_tf(now, tf, None) {
                self.assign_or_drop(now, tf);
            } else {
                self.frontier = self.frontier.max(tf.next());
            }
        }
        if !called.is_empty() {
            self.send(Recipient::AllFlps, Control::Pace(called));
        }
    }

    /// Stops the run on request: the sources stop at a common TF, and the farm drains.
    pub fn handle_stop(&mut self, now: Timestamp) {
        match self.phase {
            RunPhase::Waiting => self.set_over(),
            RunPhase::Running => {
                let stop_at = (self.config.mode == Mode::Paced).then_some(self.frontier);
                self.phase = RunPhase::Stopping {
                    since: now,
                    stop_at,
                };
                self.append(Record::Stopping { stop_at });
                self.send_stop();
            }
            RunPhase::Stopping { .. } | RunPhase::Draining { .. } | RunPhase::Over => {}
        }
        self.advance_run(now);
    }

    fn send_stop(&mut self) {
        let RunPhase::Stopping { stop_at, .. } = self.phase else {
            return;
        };
        let control = stop_at.map_or(Control::Stop, |next| Control::StopAt { next });
        self.send(Recipient::AllFlps, control);
    }

    pub(super) fn set_stopped(&mut self, now: Timestamp, source: Source, next: TfId) {
        if let Some(node) = self.flps.get_mut(&source.flp) {
            node.stopped = Some(next);
        }
        self.advance_run(now);
    }

    pub(super) fn set_ended(&mut self, now: Timestamp, source: Source, next: TfId) {
        let Some(node) = self.flps.get_mut(&source.flp) else {
            return;
        };
        if node.ended.replace(next).is_some() {
            return;
        }
        self.rosters.take_out(next, source);
        self.append_rosters();
        let later: Vec<TfId> = self.tfs.range(next..).map(|(tf, _)| tf).collect();
        for tf in later {
            self.take_out(now, tf, source);
        }
        self.advance_run(now);
    }

    /// Removes an FLP that had ended before this TF from its members.
    fn take_out(&mut self, now: Timestamp, tf: TfId, source: Source) {
        let Some((roster, members)) = self.rosters.of(tf) else {
            return;
        };
        let Some(open) = self.tfs.get_mut(&tf) else {
            return;
        };
        let Some(index) = open.member_index(source) else {
            return;
        };
        if !open.is_undecided() {
            return;
        }
        let accounting = self.accounting.source(source.flp);
        match open.remove_part(index) {
            Part::Unknown(_) => {}
            Part::Skipped(_) => accounting.skipped -= 1,
            Part::Announced(_) => {
                accounting.announced -= 1;
                accounting.outside += 1;
            }
        }
        let left = open
            .members
            .iter()
            .copied()
            .filter(|member| *member != source);
        open.members = left.collect();
        debug_assert_eq!(open.members, members);
        open.roster = roster;
        self.assigns.retain(|assign| assign.tf != tf);
        if let Phase::Building { target, .. } = open.phase {
            self.assigns.push(Assign {
                tf,
                attempt: open.attempt,
                target,
                roster,
            });
        }
        self.handle_part_heard(now, tf);
    }

    /// Moves the run on when the awaited reports have come.
    pub(super) fn advance_run(&mut self, now: Timestamp) {
        match self.phase {
            RunPhase::Waiting | RunPhase::Over => {}
            RunPhase::Running => {
                let any_ended = self.flps.values().any(|node| node.ended.is_some());
                if any_ended && self.all_flps_done(now) {
                    self.begin_drain(now);
                }
            }
            RunPhase::Stopping { since, stop_at } => {
                if stop_at.is_none() {
                    self.agree_on_last(since);
                }
                if self.all_flps_done(now) || now.since(since) >= self.config.drain() {
                    self.begin_drain(now);
                }
            }
            RunPhase::Draining { since } => {
                let is_late = now.since(since) >= self.config.drain();
                if is_late {
                    self.close(now, since + self.config.drain());
                    self.abandon_strays();
                }
                if self.tfs.is_empty()
                    && self.strays.is_empty()
                    && (is_late || self.all_holds_empty(now))
                {
                    self.close_unheard(now);
                    self.set_over();
                    self.send_dismissed();
                }
            }
        }
        self.dismiss_leaving();
    }

    /// Returns whether no FLP will make anything more. One that is gone without notice may be back in a moment, with
    /// TFs that only it knows of; so may one of which a new leader knows from the accounting alone, since the log names
    /// the lives of those FLPs only that undecided TFs need.
    fn all_flps_done(&self, now: Timestamp) -> bool {
        let is_given_up =
            |node: &FlpNode| self.gone.contains(&node.source) && has_given_up(node, now);
        let has_just_taken_over = self
            .took_over_at
            .is_some_and(|at| now.since(at) < GIVEN_UP_AFTER);
        let mut sources = self.accounting.sources.keys();
        let may_be_back = has_just_taken_over && sources.any(|flp| !self.flps.contains_key(flp));
        let all_ended = self
            .flps
            .values()
            .all(|node| node.ended.is_some() || is_given_up(node));
        all_ended && !may_be_back
    }

    /// Agrees on the last TF once all present FLPs have paused: the furthest that any of them made.
    fn agree_on_last(&mut self, since: Timestamp) {
        let mut last = self.frontier;
        for node in self
            .flps
            .values()
            .filter(|node| !self.gone.contains(&node.source))
        {
            let Some(next) = node.ended.or(node.stopped) else {
                return;
            };
            last = last.max(next);
        }
        self.phase = RunPhase::Stopping {
            since,
            stop_at: Some(last),
        };
        let stop_at = Some(last);
        self.append(Record::Stopping { stop_at });
        self.send_stop();
    }

    fn begin_drain(&mut self, now: Timestamp) {
        self.span.1.get_or_insert(now);
        self.phase = RunPhase::Draining { since: now };
        self.advance_run(now);
    }

    fn set_over(&mut self) {
        self.phase = RunPhase::Over;
        self.append_done();
        self.append(Record::Over);
    }

    pub(super) fn append(&mut self, record: Record) {
        self.actions.push_back(Action::Append(record));
    }

    /// Records changed rosters in the log, before anything names them.
    fn append_rosters(&mut self) {
        for Roster { id, first, members } in self.rosters.take_unrecorded() {
            let members = members.to_vec();
            for member in &members {
                self.accounting.source(member.flp);
            }
            self.append(Record::Roster { id, first, members });
        }
    }

    /// Records the time of the run in the log now and then, for a leader that finds no FLP to ask.
    pub(super) fn append_clock(&mut self, now: Timestamp) {
        let is_due = now.since(self.clock_said_at) >= CLOCK_EVERY;
        if is_due && self.wants_sources() && !self.is_settling {
            self.clock_said_at = now;
            let elapsed_ns = self.elapsed_ns(now);
            self.append(Record::Clock { elapsed_ns });
        }
    }

    fn send_dismissed(&mut self) {
        self.send(Recipient::AllFlps, Control::Dismissed);
        self.send(Recipient::AllEpns, Control::Dismissed);
    }

    /// Dismisses EPNs that want to leave when they hold nothing of the run. One that has joined this leader just now is
    /// known to hold nothing only after its report: it may hold TFs that a former leader has assigned to it.
    fn dismiss_leaving(&mut self) {
        let has_reported = |epn: &EpnId| self.epns.get(epn).is_none_or(|node| node.has_reported);
        let holds = |epn: EpnId| {
            let booked = self
                .view
                .get(target_id(epn))
                .is_some_and(|load| load.booked_slots > 0);
            booked
                || self.has_strays(epn)
                || self.tfs.values().any(
                    |tf| matches!(tf.phase, Phase::Committed { target, .. } if target.epn == epn),
                )
        };
        let leaving = self.leaving.iter().copied();
        let free: Vec<EpnId> = leaving
            .filter(|epn| has_reported(epn) && !holds(*epn))
            .collect();
        for epn in free {
            self.send(Recipient::Epn(epn), Control::Dismissed);
        }
    }

    /// Stops FLPs that were thought gone when the drain began, and are back, where the others stopped.
    fn stop_returned(&mut self) {
        let next = self.frontier;
        let is_back = |node: &&FlpNode| node.ended.is_none() && !self.gone.contains(&node.source);
        let back: Vec<FlpId> = self
            .flps
            .values()
            .filter(is_back)
            .map(|n| n.source.flp)
            .collect();
        for flp in back {
            self.send(Recipient::Flp(flp), Control::StopAt { next });
        }
    }

    /// Retransmits the list of EPNs to nodes that have another one, by their last pulse.
    fn repeat_epns(&mut self) {
        let digest = digest_of_targets(self.epns.values().map(|node| node.target));
        let stale: Vec<FlpId> = self
            .flps
            .iter()
            .filter(|(_, node)| {
                node.pulse.epns_digest != digest && !self.gone.contains(&node.source)
            })
            .map(|(flp, _)| *flp)
            .collect();
        if stale.is_empty() {
            return;
        }
        let epns = Control::Epns(self.epn_addresses());
        for flp in stale {
            self.send(Recipient::Flp(flp), epns.clone());
        }
    }

    /// Retransmits run messages that a node may have missed.
    pub(super) fn repeat_run_messages(&mut self, now: Timestamp) {
        if self.phase != RunPhase::Over {
            self.repeat_epns();
        }
        self.repeat_recover();
        match self.phase {
            RunPhase::Waiting => {}
            RunPhase::Draining { .. } => self.stop_returned(),
            RunPhase::Running => {
                let unheard: Vec<(FlpId, TfId)> = self
                    .flps
                    .iter()
                    .filter(|(_, node)| !node.pulse.started)
                    .filter_map(|(flp, node)| Some((*flp, node.first?)))
                    .collect();
                for (flp, first) in unheard {
                    self.start_flp(now, flp, first);
                }
                if self.config.mode == Mode::Paced && self.frontier >= self.end() {
                    // No further heartbeat will show an FLP that it missed the last one.
                    let next = self.end();
                    self.send(Recipient::AllFlps, Control::StopAt { next });
                }
            }
            RunPhase::Stopping { .. } => self.send_stop(),
            RunPhase::Over => self.send_dismissed(),
        }
    }
}

/// Returns whether a node that is gone has had its time to come back.
fn has_given_up(node: &FlpNode, now: Timestamp) -> bool {
    node.gone_at
        .is_none_or(|at| now.since(at) >= GIVEN_UP_AFTER)
}
