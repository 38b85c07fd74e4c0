//! The FLP: makes STFs, announces them, sends them where the ICN says, keeps them until they are released.

mod beat;
mod config;
mod link;
mod position;
mod sending;
mod stats;

pub use config::{FlpConfig, Pace, Push, WhenFull};
pub use position::{Given, Refused, StfRefusal};
pub use stats::Stats;

use crate::hold::Hold;
use beat::Beat;
use link::Links;
use position::SourceState;
use sheaf_protocol::control::{
    Announced, Assign, Counter, EpnAddress, FlpPulse, Offered, Release, Skipped, Start,
};
use sheaf_protocol::{
    Attempt, Control, DropReason, RangeSet, RunId, Source, Stf, StfHeader, Target, TfId, Timestamp,
    protect,
};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

/// Assignments that may wait for their STF to be made.
const ASSIGNED_AHEAD_MAX: usize = 1 << 16;

/// Skipped TFs that are remembered until their fate is known. Beyond it, the oldest is forgotten.
const SKIPS_KEPT_MAX: usize = 1 << 16;

/// Order of the FLP to its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a message to the ICN.
    Send(Control),
    /// Send an STF to an EPN. Its stream is open.
    SendStf {
        /// The EPN.
        target: Target,
        /// The head of its frame.
        header: StfHeader,
        /// The STF; its payload is shared, not copied.
        stf: Stf,
    },
    /// Message to an EPN on the open data stream to it.
    SendToEpn {
        /// The EPN.
        target: Target,
        /// An offer, or its withdrawal.
        control: Control,
    },
    /// Open a data stream to an EPN.
    Connect {
        /// The EPN.
        target: Target,
        /// Address on which the EPN listens.
        address: String,
    },
    /// Close the data stream to an EPN.
    Disconnect {
        /// The EPN.
        target: Target,
    },
}

/// Demand of the FLP on its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// Make the STF of this TF, then call [`Flp::handle_stf`].
    Make(TfId),
    /// Nothing before this moment.
    WaitUntil(Timestamp),
    /// Nothing until something else happens: no run, a full hold, the end.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// In no run, or the run has not begun.
    Waiting,
    /// Makes STFs.
    Running,
    /// Asked to stop, until the ICN names the last TF.
    Paused,
    /// Makes nothing more in this run.
    Ended,
    /// Dismissed by the ICN.
    Dismissed,
}

/// The brain of one FLP.
///
/// Events enter by `handle_…(now, …)`; [`demand`](Self::demand) says which STF to make, and
/// [`poll_action`](Self::poll_action) returns actions until `None`.
#[derive(Debug)]
pub struct Flp {
    config: FlpConfig,
    source: Source,
    run: Option<RunId>,
    phase: Phase,
    /// The first TF of the run, which was due when it began.
    origin: TfId,
    /// The first TF of the run that this FLP was to make.
    first: TfId,
    /// The first TF not made.
    next: TfId,
    /// The first TF not to make.
    end: TfId,
    /// The common time of the run.
    beat: Beat,
    source_state: SourceState,
    stf_bytes_max: u64,
    hold: Hold,
    links: Links,
    /// TFs that the ICN has called for, in paced mode.
    paced: VecDeque<TfId>,
    /// Assignments of TFs that are not made yet.
    assigned_ahead: BTreeMap<TfId, (Attempt, Target)>,
    released: RangeSet,
    released_version: u64,
    announces: Vec<Announced>,
    /// Offers that are not sent yet.
    offers: BTreeMap<Target, Vec<Offered>>,
    /// TFs without an STF whose fate is not known, each with its reason and the time of the last report to the ICN.
    skips: BTreeMap<TfId, (DropReason, Option<Timestamp>)>,
    actions: VecDeque<Action>,
    ticked_at: Timestamp,
    ended_said_at: Timestamp,
    /// How much longer answers of the ICN are awaited.
    run_delay: Duration,
    stats: Stats,
}

impl Flp {
    /// Returns an FLP without a run; its largest STF has `stf_bytes_max` bytes.
    #[must_use]
    pub fn new(config: FlpConfig, source: Source, stf_bytes_max: u64) -> Self {
        Self {
            links: Links::new(&config, source),
            config,
            source,
            run: None,
            phase: Phase::Waiting,
            origin: TfId(0),
            first: TfId(0),
            next: TfId(0),
            end: TfId(0),
            beat: Beat::default(),
            source_state: SourceState::default(),
            stf_bytes_max,
            hold: Hold::default(),
            paced: VecDeque::new(),
            assigned_ahead: BTreeMap::new(),
            released: RangeSet::default(),
            released_version: 0,
            announces: Vec::new(),
            offers: BTreeMap::new(),
            skips: BTreeMap::new(),
            actions: VecDeque::new(),
            ticked_at: Timestamp(0),
            ended_said_at: Timestamp(0),
            run_delay: Duration::ZERO,
            stats: Stats::default(),
        }
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns the run that the FLP has joined.
    #[must_use]
    pub fn run(&self) -> Option<RunId> {
        self.run
    }

    /// Returns whether the ICN has dismissed the FLP.
    #[must_use]
    pub fn is_dismissed(&self) -> bool {
        self.phase == Phase::Dismissed
    }

    /// Returns whether the FLP has ended and every STF of it is decided.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        let has_ended = matches!(self.phase, Phase::Ended | Phase::Dismissed);
        has_ended && self.hold.len() == 0 && self.skips.is_empty()
    }

    /// Returns the number of STFs held.
    #[must_use]
    pub fn held_stfs(&self) -> usize {
        self.hold.len()
    }

    /// Returns whether the FLP holds its STF of `tf`.
    #[must_use]
    pub fn holds(&self, tf: TfId) -> bool {
        self.hold.contains(tf)
    }

    /// Returns the number of bytes held.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.hold.bytes()
    }

    /// Returns the content of the next heartbeat.
    #[must_use]
    pub fn pulse(&self, now: Timestamp) -> FlpPulse {
        let has_begun = self.phase != Phase::Waiting;
        FlpPulse {
            held_stfs: (self.hold.len() + self.skips.len()) as u64,
            held_bytes: self.hold.bytes(),
            made_stfs: self.stats.made_stfs,
            sent_bytes: self.stats.sent_bytes,
            released_version: self.released_version,
            started: has_begun,
            // An FLP that was asked to leave before the run began knows no time of it.
            elapsed_ns: if has_begun && self.beat.is_set() {
                self.beat.elapsed_ns(now)
            } else {
                0
            },
            epns_digest: self.links.digest(),
            // The process knows it.
            run_delay_ns: 0,
        }
    }

    /// Joins `run`, into which the ICN has accepted the FLP. State of another run is dropped; of the same run every
    /// held STF is announced again, since the ICN may have lost the announce. `is_new_leader`: another ICN than before,
    /// or the same in a new term. It counts attempts from 1, and may assign elsewhere what the former one had assigned.
    pub fn handle_joined(&mut self, now: Timestamp, run: RunId, is_new_leader: bool) {
        if self.run == Some(run) {
            protect!(ReannounceOnJoin, else return);
            if is_new_leader {
                self.forget_attempts();
                self.beat.keep(now);
            }
            for (tf, held) in self.hold.iter_mut() {
                held.announced_at = now;
                self.announces.push(Announced {
                    tf,
                    bytes: held.stf.bytes(),
                });
            }
            for (_, told_at) in self.skips.values_mut() {
                *told_at = None;
            }
            self.source_state.forget_sent();
            return;
        }
        if self.run.is_some() {
            self.stats.run_ended_stfs += self.hold.clear();
        }
        self.run = Some(run);
        self.beat = Beat::default();
        self.source_state.reset();
        self.phase = Phase::Waiting;
        (self.origin, self.first) = (TfId(0), TfId(0));
        self.next = TfId(0);
        self.end = TfId(0);
        self.paced.clear();
        self.assigned_ahead.clear();
        self.released = RangeSet::default();
        self.released_version = 0;
        self.announces.clear();
        self.offers.clear();
        self.skips.clear();
    }

    /// Forgets the attempts of a former leader, but not where STFs were sent: if the new leader wants them there too,
    /// they need not go again.
    fn forget_attempts(&mut self) {
        for (_, held) in self.hold.iter_mut() {
            if let Some((attempt, _)) = &mut held.assigned {
                *attempt = Attempt(0);
            }
        }
        self.assigned_ahead.clear();
        self.released_version = 0;
    }

    /// Handles the start of the run, also for an FLP that joined late.
    pub fn handle_start(&mut self, now: Timestamp, start: &Start) {
        if self.phase != Phase::Waiting {
            return;
        }
        self.phase = Phase::Running;
        (self.origin, self.first) = (start.origin, start.first);
        self.next = start.first;
        self.end = start.end;
        self.beat = Beat::new(now, start.elapsed_ns);
        self.paced.retain(|tf| *tf >= start.first);
        self.end_if_reached();
    }

    /// Returns which STF to make now. In [`DropNewest`](WhenFull::DropNewest) a TF that is due and finds the hold full
    /// is skipped here.
    pub fn demand(&mut self, now: Timestamp) -> Demand {
        loop {
            if self.phase != Phase::Running {
                return Demand::Nothing;
            }
            let tf = match self.config.pace {
                Pace::RateHz(rate_hz) => {
                    let due = self.beat.due(due_after(self.origin, self.next, rate_hz));
                    if now < due {
                        return Demand::WaitUntil(due);
                    }
                    self.next
                }
                Pace::Max => self.next,
                Pace::Icn => match self.paced.front() {
                    Some(tf) => *tf,
                    None => return Demand::Nothing,
                },
                Pace::External => return Demand::Nothing,
            };
            if self.has_room(self.stf_bytes_max) {
                return Demand::Make(tf);
            }
            match self.config.when_full {
                WhenFull::Block => return Demand::Nothing,
                // No TF is ever due: there would be no end to dropping.
                WhenFull::DropNewest if self.config.pace == Pace::Max => return Demand::Nothing,
                WhenFull::DropNewest => self.handle_skipped(tf, DropReason::SourceOverrun),
            }
        }
    }

    /// Returns whether an STF of `bytes` may be made now. A source that the FLP does not pace asks before it reads on.
    #[must_use]
    pub fn has_room(&self, bytes: u64) -> bool {
        self.hold.len() < self.config.hold_stfs_max as usize
            && (self.hold.bytes() + bytes <= self.config.hold_bytes || self.hold.len() == 0)
    }

    /// Returns whether STFs are wanted: the run has begun and has not been stopped.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.phase == Phase::Running
    }

    /// Returns the TF whose STF comes next.
    #[must_use]
    pub fn next_tf(&self) -> TfId {
        self.next
    }

    /// Returns the TFs that heartbeats of the ICN have called for, from the next one on; none where it does not pace.
    #[must_use]
    pub fn called(&self) -> Range<TfId> {
        let end = self.paced.back().map_or(self.next, |last| last.next());
        self.next..end
    }

    /// Accepts an STF that the source has made. TFs that were passed over are skipped; an STF that was made before is
    /// refused.
    pub fn handle_stf(&mut self, now: Timestamp, stf: Stf) -> Given {
        let tf = stf.tf;
        if let Some((refusal, expected)) = self.refusal_of(tf) {
            self.source_state.refuse(refusal, tf, expected);
            return Given::Refused(refusal);
        }
        self.source_state.counter = Counter::InStep;
        while self.config.pace == Pace::External && self.next < tf.min(self.end) {
            self.handle_skipped(self.next, DropReason::SourceOverrun);
        }
        if tf >= self.end {
            self.source_state.refuse(StfRefusal::AfterEnd, tf, self.end);
            return Given::Refused(StfRefusal::AfterEnd);
        }
        if stf.bytes() > self.stf_bytes_max {
            self.handle_skipped(tf, DropReason::Oversize);
            return Given::Skipped;
        }
        self.advance_behind(tf);
        self.stats.made_stfs += 1;
        self.stats.made_bytes += stf.bytes();
        self.announces.push(Announced {
            tf,
            bytes: stf.bytes(),
        });
        if self.released.contains(tf) {
            // Decided without this STF. It was announced, so that nothing vanishes unseen.
            self.stats.late_stfs += 1;
        } else {
            self.hold.insert(now, stf);
            if let Some((attempt, target)) = self.assigned_ahead.remove(&tf) {
                self.assign(tf, attempt, target);
            }
        }
        self.end_if_reached();
        Given::Made
    }

    /// Skips the TFs from the next one up to `end`, which its source has given up for `reason`. Does nothing unless the
    /// source could give an STF of `end` now.
    pub fn handle_given_up(&mut self, end: TfId, reason: DropReason) {
        if self.config.pace != Pace::External || self.refusal_of(end).is_some() {
            return;
        }
        while self.next < end.min(self.end) {
            self.handle_skipped(self.next, reason);
        }
    }

    /// Skips `tf`, of which there will be no STF.
    pub fn handle_skipped(&mut self, tf: TfId, reason: DropReason) {
        self.stats.skipped_stfs += 1;
        if protect!(SkipReport, when !self.released.contains(tf)) {
            self.skips.insert(tf, (reason, None));
            while self.skips.len() > SKIPS_KEPT_MAX {
                self.skips.pop_first();
            }
        }
        self.assigned_ahead.remove(&tf);
        self.advance_behind(tf);
        self.end_if_reached();
    }

    fn advance_behind(&mut self, tf: TfId) {
        self.next = self.next.max(tf.next());
        while self.paced.front().is_some_and(|paced| *paced <= tf) {
            self.paced.pop_front();
        }
    }

    /// Handles the end of the source: nothing more will be made in this run.
    pub fn handle_source_ended(&mut self) {
        if matches!(self.phase, Phase::Running | Phase::Paused | Phase::Waiting) {
            self.phase = Phase::Ended;
            self.end = self.next;
            self.flush();
            self.actions
                .push_back(Action::Send(Control::Ended { next: self.next }));
        }
    }

    fn end_if_reached(&mut self) {
        if self.phase == Phase::Running && self.next >= self.end {
            self.handle_source_ended();
        }
    }

    /// Handles a message of the ICN. `Welcome`, `Refused` and messages of another run are the driver's to judge.
    pub fn handle_control(&mut self, now: Timestamp, control: Control) {
        match control {
            Control::Start(start) => self.handle_start(now, &start),
            Control::Pace(tfs) => self.handle_pace(&tfs),
            Control::Assign(assigns) => self.handle_assign(&assigns),
            Control::Release(release) => self.handle_release(&release),
            Control::Epns(epns) => self.handle_epns(&epns),
            Control::Stop => self.handle_stop(),
            Control::StopAt { next } => self.handle_stop_at(next),
            Control::Dismissed => self.phase = Phase::Dismissed,
            Control::IcnPulse { elapsed_ns, .. } => self.steer(now, elapsed_ns),
            _ => self.stats.unexpected_messages += 1,
        }
    }

    fn steer(&mut self, now: Timestamp, elapsed_ns: u64) {
        if self.phase != Phase::Waiting && elapsed_ns > 0 {
            self.beat.steer(now, elapsed_ns);
        }
    }

    /// Handles heartbeats that call for TFs. TFs before them whose call was lost are made too: the data are there.
    fn handle_pace(&mut self, tfs: &[TfId]) {
        if self.phase == Phase::Waiting {
            return;
        }
        if let Some(last) = tfs.iter().max() {
            self.call_below(TfId(last.0.saturating_add(1)));
        }
    }

    fn call_below(&mut self, end: TfId) {
        let mut next = self.paced.back().map_or(self.next, |last| last.next());
        while next < end && self.paced.len() < ASSIGNED_AHEAD_MAX {
            self.paced.push_back(next);
            next = next.next();
        }
    }

    fn handle_assign(&mut self, assigns: &[Assign]) {
        let mut released = Vec::new();
        for assign in assigns {
            if self.released.contains(assign.tf) {
                released.push(assign.tf);
            } else if self.hold.get_mut(assign.tf).is_some() {
                self.assign(assign.tf, assign.attempt, assign.target);
            } else if assign.tf >= self.next && self.assigned_ahead.len() < ASSIGNED_AHEAD_MAX {
                let entry = self.assigned_ahead.entry(assign.tf);
                let ahead = entry.or_insert((assign.attempt, assign.target));
                if ahead.0 < assign.attempt {
                    *ahead = (assign.attempt, assign.target);
                }
            }
        }
        if !released.is_empty() {
            let released = Control::Released(released);
            self.actions.push_back(Action::Send(released));
        }
    }

    fn handle_release(&mut self, release: &Release) {
        if release.version <= self.released_version {
            return;
        }
        self.released_version = release.version;
        release.add_to(&mut self.released);
        self.follow_jump();
        let released = &self.released;
        self.stats.released_stfs += self.hold.release_all(released);
        self.assigned_ahead.retain(|tf, _| !released.contains(*tf));
        self.skips.retain(|tf, _| !released.contains(*tf));
    }

    fn handle_epns(&mut self, epns: &[EpnAddress]) {
        for target in self.links.keep_only(epns) {
            self.actions.push_back(Action::Disconnect { target });
        }
        for (target, address) in self.links.add_new(epns) {
            self.actions.push_back(Action::Connect { target, address });
        }
    }

    fn handle_stop(&mut self) {
        match self.phase {
            Phase::Running => self.phase = Phase::Paused,
            // The FLP never began: the run can do without it.
            Phase::Waiting => return self.handle_source_ended(),
            Phase::Paused | Phase::Ended | Phase::Dismissed => {}
        }
        self.send_position();
    }

    fn handle_stop_at(&mut self, next: TfId) {
        match self.phase {
            Phase::Paused | Phase::Running => {
                self.phase = Phase::Running;
                self.end = next;
                // An external source may follow the heartbeats as well.
                if matches!(self.config.pace, Pace::Icn | Pace::External) {
                    self.call_below(next);
                }
                self.end_if_reached();
            }
            // As for a stop: what comes back into a run that ends makes nothing, and the end waits for it.
            Phase::Waiting => self.handle_source_ended(),
            Phase::Ended | Phase::Dismissed => self.send_position(),
        }
    }

    fn send_position(&mut self) {
        self.flush();
        let next = self.next;
        let control = match self.phase {
            Phase::Paused => Control::Stopped { next },
            Phase::Ended => Control::Ended { next },
            _ => return,
        };
        self.actions.push_back(Action::Send(control));
    }

    /// Notes how long this FLP and the ICN have lately had to wait for a processor: an answer may take so much longer.
    pub fn handle_run_delay(&mut self, run_delay: Duration) {
        self.run_delay = run_delay;
    }

    /// Notes that STFs that waited for room in a stream were not sent, as their TFs are decided.
    pub fn handle_cancelled(&mut self, stfs: u64, bytes: u64) {
        self.stats.cancelled_stfs += stfs;
        self.stats.cancelled_bytes += bytes;
    }

    /// Handles the passing of time: announces without an answer, streams to open again.
    pub fn handle_tick(&mut self, now: Timestamp) {
        let again = Duration::from_millis(self.config.repeat_ms) + self.run_delay;
        for (tf, held) in self.hold.iter_mut() {
            // An assignment shows that a source announced the TF, not that our own announce was received.
            let patience = if held.assigned.is_some() {
                3 * again
            } else {
                again
            };
            if protect!(AnnounceRetransmit, when now.since(held.announced_at) >= patience) {
                held.announced_at = now;
                self.stats.repeated_announces += 1;
                self.announces.push(Announced {
                    tf,
                    bytes: held.stf.bytes(),
                });
            }
        }
        for (_, told_at) in self.skips.values_mut() {
            if told_at.is_some_and(|told| now.since(told) >= again) {
                *told_at = None;
            }
        }
        self.ticked_at = now;
        if self.phase == Phase::Ended && now.since(self.ended_said_at) >= again {
            self.ended_said_at = now;
            self.send_position();
        }
        for (target, address) in self.links.due(now) {
            self.actions.push_back(Action::Connect { target, address });
        }
        for target in self.links.unreachable(now) {
            self.actions
                .push_back(Action::Send(Control::Unreachable { target }));
        }
    }

    /// Puts gathered entries into messages. Announces go before anything that refers to them.
    fn flush(&mut self) {
        let max = Control::ENTRIES_MAX;
        while !self.announces.is_empty() {
            let count = self.announces.len().min(max);
            let items = self.announces.drain(..count).collect();
            self.actions
                .push_back(Action::Send(Control::Announce(items)));
        }
        self.flush_offers();
        self.flush_position();
        let untold = self
            .skips
            .iter_mut()
            .filter(|(_, (_, told_at))| told_at.is_none());
        let items: Vec<Skipped> = untold
            .map(|(tf, (reason, told_at))| {
                *told_at = Some(self.ticked_at);
                Skipped {
                    tf: *tf,
                    reason: *reason,
                }
            })
            .collect();
        for items in items.chunks(max) {
            self.actions
                .push_back(Action::Send(Control::Skipped(items.to_vec())));
        }
    }

    /// Returns the next action; `None` when none is left.
    pub fn poll_action(&mut self) -> Option<Action> {
        if self.actions.is_empty() {
            self.flush();
        }
        self.actions.pop_front()
    }
}

/// Returns how long after the TF `origin` the TF `tf` is due at `rate_hz`: computed from the id, so that no error adds
/// up.
fn due_after(origin: TfId, tf: TfId, rate_hz: f64) -> Duration {
    let tfs = tf.0.saturating_sub(origin.0);
    Duration::try_from_secs_f64(tfs as f64 / rate_hz).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests;
