//! FLPs that are not heard: their TFs wait as long as the holds of the others last, and new TFs go on without them.
//!
//! An FLP that is not heard may be paused, behind a busy machine, or cut off on its control path alone. Only when no
//! EPN has a data stream of it any more, or a later life joins, it has died. Until then the TFs that lack its STFs
//! wait. When they fill half of a hold of another FLP, or the stream is closed for the time of grace, new TFs are made
//! without it; when they fill three quarters, or the time for it is over, they are dropped as `source-cut`.

use super::Scheduler;
use super::open_tf::{OpenTf, Part};
use sheaf_protocol::control::Hello;
use sheaf_protocol::{DropReason, FlpId, Source, Target, TfId, Timestamp, protect};
use std::collections::BTreeMap;
use std::time::Duration;

/// Share of a hold, in percent, above which new TFs are made without an FLP that is not heard.
const LEAVE_BEHIND_PERCENT: u64 = 50;
/// Share of a hold, in percent, above which TFs no longer wait for it.
const GIVE_UP_PERCENT: u64 = 75;
/// How long an FLP may be merely silent before anything goes on without it.
const SILENT_FOR: Duration = Duration::from_secs(1);

/// Room of an FLP for STFs whose TFs are not done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hold {
    bytes: u64,
    /// STFs; 0: any number.
    stfs: u64,
}

impl Hold {
    pub(super) fn of(hello: &Hello) -> Self {
        Self {
            bytes: hello.capacity_bytes,
            stfs: u64::from(hello.slots),
        }
    }

    /// Returns the share that STFs of these sizes take, in percent.
    fn percent(self, stfs: u64, bytes: u64) -> u64 {
        let share = |part: u64, whole: u64| part.saturating_mul(100) / whole.max(1);
        let by_stfs = if self.stfs == 0 {
            0
        } else {
            share(stfs, self.stfs)
        };
        by_stfs.max(share(bytes, self.bytes))
    }
}

/// State of an FLP that is not heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Absence {
    /// When it was found silent, or its stream closed.
    since: Timestamp,
    /// When the time of grace of its closed stream was over; `None` while it is silent, or just cut.
    expired_at: Option<Timestamp>,
    /// Whether new TFs are made without it.
    pub(super) is_left_behind: bool,
    /// Whether no TF waits for it any more.
    is_given_up: bool,
}

impl Absence {
    pub(super) fn new(since: Timestamp) -> Self {
        Self {
            since,
            ..Self::default()
        }
    }
}

impl Scheduler {
    /// Handles an FLP that has been silent for the suspect time, or whose stream has closed.
    pub fn handle_flp_silent(&mut self, now: Timestamp, source: Source) {
        if let Some(node) = self.flps.get_mut(&source.flp)
            && node.source == source
        {
            node.absence.get_or_insert(Absence::new(now));
        }
    }

    /// Handles a silent FLP that sends again.
    pub fn handle_flp_heard(&mut self, now: Timestamp, source: Source) {
        let Some(node) = self.flps.get_mut(&source.flp) else {
            return;
        };
        if node.source != source {
            return;
        }
        let was_left_behind = node.end_absence(now);
        if was_left_behind && self.wants_sources() {
            self.change_roster();
        }
    }

    /// Handles the end of the time of grace of an FLP whose stream has closed. Returns whether TFs wait for it, because
    /// an EPN has a data stream of it: then it lives, and its control path is cut.
    pub fn handle_flp_expired(&mut self, now: Timestamp, source: Source) -> bool {
        if !protect!(CutIsNotDeath, when self.is_streaming(source)) {
            self.handle_flp_gone(now, source);
            return false;
        }
        let node = self.flps.get_mut(&source.flp);
        let Some(node) = node.filter(|node| node.source == source) else {
            return false;
        };
        let absence = node.absence.get_or_insert(Absence::new(now));
        absence.expired_at = Some(now);
        self.leave_behind(source);
        true
    }

    /// Handles an EPN's list of the FLPs that have a data stream open to it.
    pub(super) fn handle_sources(&mut self, now: Timestamp, target: Target, sources: &[Source]) {
        if let Some(node) = self.epns.get_mut(&target.epn) {
            node.sources = sources.iter().copied().collect();
        }
        self.bury_unreachable(now);
    }

    /// Returns whether an EPN has a data stream of this life of an FLP.
    fn is_streaming(&self, source: Source) -> bool {
        let mut epns = self.epns.values().filter(|node| !node.is_dead);
        epns.any(|node| node.sources.contains(&source))
    }

    /// Returns why the STFs of a source that is gone are lost.
    pub(super) fn gone_reason(&self, source: Source) -> DropReason {
        if self.cut_off.contains(&source) {
            DropReason::SourceCut
        } else {
            DropReason::SourceDied
        }
    }

    /// Returns whether TFs wait for an STF of this source: it is not heard and may come back, or it is back and sends
    /// what it holds.
    pub(super) fn is_awaited(&self, now: Timestamp, source: Source) -> bool {
        let node = self.flps.get(&source.flp);
        let node = node.filter(|node| node.source == source && !self.gone.contains(&source));
        let Some(node) = node else {
            return false;
        };
        let patience = self.config.unreachable_timeout();
        let is_just_back = node.back_at.is_some_and(|at| now.since(at) < patience);
        is_just_back || node.absence.is_some_and(|absence| !absence.is_given_up)
    }

    /// Returns whether no TF waits any more for this source, which is not heard.
    pub(super) fn is_given_up(&self, source: Source) -> bool {
        let node = self.flps.get(&source.flp);
        let node = node.filter(|node| node.source == source);
        let absence = node.and_then(|node| node.absence);
        absence.is_some_and(|absence| absence.is_given_up)
    }

    /// Makes new TFs without an FLP.
    fn leave_behind(&mut self, source: Source) {
        let Some(node) = self.flps.get_mut(&source.flp) else {
            return;
        };
        let has_ended = node.ended.is_some();
        let Some(absence) = &mut node.absence else {
            return;
        };
        if std::mem::replace(&mut absence.is_left_behind, true) || has_ended {
            return;
        }
        if self.wants_sources() {
            self.change_roster();
        }
    }

    /// Declares FLPs gone that are cut off and have no data stream left.
    fn bury_unreachable(&mut self, now: Timestamp) {
        for source in self.expired() {
            if !self.is_streaming(source) {
                self.handle_flp_gone(now, source);
            }
        }
    }

    /// Returns the FLPs whose time of grace is over, and for which TFs wait.
    fn expired(&self) -> Vec<Source> {
        let nodes = self.flps.values();
        nodes
            .filter(|node| node.absence.is_some_and(|it| it.expired_at.is_some()))
            .map(|node| node.source)
            .filter(|source| !self.gone.contains(source))
            .collect()
    }

    /// Looks, every now and then, at the FLPs that are not heard and at the TFs that wait for them.
    pub(super) fn look_at_absent(&mut self, now: Timestamp) {
        self.bury_unreachable(now);
        for source in self.expired() {
            let absence = self.flps[&source.flp].absence;
            let since = absence.and_then(|it| it.expired_at).unwrap_or(now);
            if now.since(since) >= self.config.source_cut() {
                self.give_up(now, source);
            }
        }
        let is_long = |absence: Absence| {
            absence.expired_at.is_some() || now.since(absence.since) >= SILENT_FOR
        };
        let absent = self.flps.values();
        let absent = absent.filter(|node| node.absence.is_some_and(is_long));
        let absent: Vec<Source> = absent.map(|node| node.source).collect();
        for source in absent {
            if self.gone.contains(&source) {
                continue;
            }
            let share = self.share_that_waits_for(source);
            if share >= LEAVE_BEHIND_PERCENT {
                self.leave_behind(source);
            }
            if share >= GIVE_UP_PERCENT {
                self.give_up(now, source);
            }
        }
    }

    /// Ends the wait for an FLP. One whose stream is closed is gone; one that is merely silent may be heard again.
    fn give_up(&mut self, now: Timestamp, source: Source) {
        let Some(absence) = self
            .flps
            .get_mut(&source.flp)
            .and_then(|node| node.absence.as_mut())
        else {
            return;
        };
        if std::mem::replace(&mut absence.is_given_up, true) {
            return;
        }
        self.cut_off.insert(source);
        if absence.expired_at.is_some() {
            return self.handle_flp_gone(now, source);
        }
        let open: Vec<TfId> = self.tfs.keys().collect();
        for tf in open {
            self.write_off(now, tf, source);
        }
    }

    /// Returns the largest share of a hold, in percent, that is taken by TFs that lack an STF of `source`.
    fn share_that_waits_for(&self, source: Source) -> u64 {
        let mut taken: BTreeMap<FlpId, (u64, u64)> = BTreeMap::new();
        for open in self.tfs.values().filter(|open| open.is_unbuilt()) {
            if !lacks(open, source) {
                continue;
            }
            for (member, part) in open.members.iter().zip(&open.parts) {
                if let Part::Announced(bytes) = part {
                    let (stfs, held) = taken.entry(member.flp).or_default();
                    (*stfs, *held) = (*stfs + 1, *held + bytes);
                }
            }
        }
        let percent = |(flp, (stfs, bytes)): (&FlpId, &(u64, u64))| {
            let node = self.flps.get(flp).filter(|node| node.source != source)?;
            Some(node.hold.percent(*stfs, *bytes))
        };
        taken.iter().filter_map(percent).max().unwrap_or(0)
    }
}

/// Returns whether a TF waits for its member `source`.
fn lacks(open: &OpenTf, source: Source) -> bool {
    let index = open.member_index(source);
    index.is_some_and(|index| !matches!(open.parts[index], Part::Skipped(_)))
}
