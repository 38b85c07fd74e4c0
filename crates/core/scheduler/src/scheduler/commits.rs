//! Commits that an EPN has not acknowledged: few at a time, and taken back when the run ends without a consumer.
//!
//! When an EPN dies, its committed TFs that it has not acknowledged are abandoned: whether a consumer has them is not
//! known. So an EPN has at most [`commits_max`](super::SchedulerConfig::commits_max) of them, and one only until it has
//! acknowledged its first to this leader: a leader that dies at once leaves little behind. Other reports wait; their
//! TFs are undecided, and are built elsewhere if the EPN dies.
//!
//! An EPN that acknowledges more than that in [`commits_ms`](super::SchedulerConfig::commits_ms) may have as many: with
//! small TFs a fixed number is less than what moves while a message is on its way.

use super::open_tf::{OpenTf, Part, Phase};
use super::{Action, Recipient, Scheduler};
use sheaf_protocol::control::Built;
use sheaf_protocol::{Control, DropReason, Record, Target, TfId, Timestamp};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long EPNs have to give committed TFs back at the end of a run: longer than a sink waits for a consumer.
const RECALL_FOR: Duration = Duration::from_secs(3);

/// Commits to one life of an EPN.
#[derive(Debug, Default)]
pub(super) struct Commits {
    /// Commits that are not acknowledged.
    open: u32,
    /// Whether this leader has had an acknowledgement.
    has_acknowledged: bool,
    /// Acknowledgements of late.
    lately: Lately,
    /// Reports of TFs that wait for their commit, each the latest one.
    waiting: BTreeMap<TfId, Built>,
}

/// Counts of events in the span of time that runs, and in the one before it.
#[derive(Debug, Default)]
struct Lately {
    /// Begin of the span that runs.
    since: Timestamp,
    count: u32,
    before: u32,
}

impl Lately {
    /// Begins a span of length `span` at `now` if the last one is over.
    fn advance(&mut self, now: Timestamp, span: Duration) {
        let past = now.since(self.since);
        if past >= span {
            self.before = if past < 2 * span { self.count } else { 0 };
            self.count = 0;
            self.since = now;
        }
    }

    /// Returns the larger count of the two spans.
    fn most(&self) -> u32 {
        self.before.max(self.count)
    }
}

impl Scheduler {
    /// Returns whether one TF more may be committed to `target` now.
    pub(super) fn may_commit(&self, target: Target) -> bool {
        let Some(commits) = self.commits.get(&target) else {
            return true;
        };
        let max = if commits.has_acknowledged {
            let max = self.config.commits_max;
            commits.lately.most().clamp(max, self.config.commits_most())
        } else {
            1
        };
        // The next life of an EPN publishes what is on its disk.
        commits.open < max.max(1) || self.stores_durably(target)
    }

    /// Returns the most TFs that are committed to one EPN and not acknowledged, counted in the table.
    #[must_use]
    pub fn commits_open(&self) -> usize {
        let mut open: BTreeMap<Target, usize> = BTreeMap::new();
        for target in self.tfs.values().filter_map(OpenTf::winner) {
            *open.entry(target).or_default() += 1;
        }
        open.into_values().max().unwrap_or(0)
    }

    /// Keeps the report of a TF whose commit has to wait.
    pub(super) fn put_off(&mut self, target: Target, built: &Built) {
        let commits = self.commits.entry(target).or_default();
        commits.waiting.insert(built.tf, built.clone());
    }

    /// Returns whether `target` has built `tf`, and its commit waits.
    pub(super) fn is_put_off(&self, target: Target, tf: TfId) -> bool {
        let commits = self.commits.get(&target);
        commits.is_some_and(|commits| commits.waiting.contains_key(&tf))
    }

    /// Notes a commit that was sent, or that the log has.
    pub(super) fn note_commit(&mut self, target: Target) {
        self.commits.entry(target).or_default().open += 1;
    }

    /// Notes that a commit to `target` is acknowledged, or has come to another end.
    pub(super) fn note_commit_end(&mut self, target: Target) {
        if let Some(commits) = self.commits.get_mut(&target) {
            commits.open = commits.open.saturating_sub(1);
        }
    }

    /// Notes that `target` acknowledges a TF.
    pub(super) fn note_acknowledged(&mut self, now: Timestamp, target: Target) {
        let span = Duration::from_millis(self.config.commits_ms);
        let commits = self.commits.entry(target).or_default();
        commits.has_acknowledged = true;
        if !span.is_zero() {
            commits.lately.advance(now, span);
            commits.lately.count += 1;
        }
    }

    /// Forgets reports of a TF that is decided.
    pub(super) fn forget_put_off(&mut self, tf: TfId) {
        for commits in self.commits.values_mut() {
            commits.waiting.remove(&tf);
        }
    }

    /// Forgets the reports of an EPN that is silent: it repeats them when it is heard again.
    pub(super) fn forget_reports(&mut self, target: Target) {
        if let Some(commits) = self.commits.get_mut(&target) {
            commits.waiting.clear();
        }
    }

    /// Forgets a life of an EPN that is over, and whose TFs are decided.
    pub(super) fn forget_commits(&mut self, target: Target) {
        self.commits.remove(&target);
    }

    /// Commits TFs that have waited, the oldest first, as far as there is room for them.
    pub(super) fn commit_next(&mut self, now: Timestamp, target: Target) {
        while self.may_commit(target)
            && let Some(commits) = self.commits.get_mut(&target)
            && let Some((_, built)) = commits.waiting.pop_first()
        {
            self.handle_built(now, target, &built);
        }
    }

    /// Returns the reason with which the end of the run drops an undecided TF.
    fn end_reason(&self, tf: TfId) -> DropReason {
        let mut commits = self.commits.values();
        if commits.any(|commits| commits.waiting.contains_key(&tf)) {
            DropReason::Undelivered
        } else {
            DropReason::RunEnded
        }
    }

    /// Decides all TFs when the time of the drain is over. Committed ones are recalled from their EPNs first; those
    /// that are not returned in time are abandoned.
    pub(super) fn close(&mut self, now: Timestamp, due: Timestamp) {
        let unbuilt = self.tfs.iter().filter(|(_, open)| open.is_unbuilt());
        let unbuilt: Vec<TfId> = unbuilt.map(|(tf, _)| tf).collect();
        for tf in unbuilt {
            let reason = self.end_reason(tf);
            self.drop_tf(tf, reason);
        }
        let committed = self.tfs.iter().filter_map(|(tf, open)| {
            let target = open.winner()?;
            Some((tf, target))
        });
        let committed: Vec<(TfId, Target)> = committed.collect();
        let is_late = now.since(due) >= RECALL_FOR;
        let mut recalled: BTreeMap<Target, Vec<TfId>> = BTreeMap::new();
        for (tf, target) in committed {
            if is_late || !self.is_current(target) || self.stores_durably(target) {
                self.abandon(tf, target);
            } else {
                recalled.entry(target).or_default().push(tf);
            }
        }
        if self
            .recalled_at
            .is_none_or(|at| now.since(at) >= self.config.repeat())
        {
            self.recalled_at = Some(now);
            for (target, tfs) in recalled {
                for tfs in tfs.chunks(Control::ENTRIES_MAX) {
                    let recall = Control::Recall(tfs.to_vec());
                    self.send(Recipient::Epn(target.epn), recall);
                }
            }
        }
    }

    /// Handles an EPN that gives committed TFs back. No consumer has them: the verdict is amended.
    pub(super) fn handle_undelivered(&mut self, now: Timestamp, target: Target, tfs: &[TfId]) {
        for tf in tfs {
            let open = self.tfs.get(tf);
            if open.is_some_and(|open| open.winner() == Some(target)) {
                self.give_back(*tf, target);
            }
        }
        self.advance_run(now);
    }

    fn give_back(&mut self, tf: TfId, target: Target) {
        let Some(open) = self.tfs.get(&tf) else {
            return;
        };
        let Phase::Committed { missing, .. } = &open.phase else {
            return;
        };
        if open.is_redelivered {
            // Whether the consumer of its former EPN has the TF stays unknown.
            return self.abandon(tf, target);
        }
        if missing.is_empty() {
            self.accounting.complete -= 1;
        } else {
            self.accounting.incomplete -= 1;
        }
        for (source, part) in open.members.iter().zip(&open.parts) {
            let is_missing = missing.contains(&source.flp);
            let accounting = self.accounting.sources.entry(source.flp).or_default();
            if !is_missing {
                accounting.built = accounting.built.saturating_sub(1);
                accounting.dropped += 1;
            } else if matches!(part, Part::Announced(_)) {
                accounting.unused = accounting.unused.saturating_sub(1);
                accounting.dropped += 1;
            }
        }
        self.accounting.bytes = self.accounting.bytes.saturating_sub(open.committed_bytes);
        let built = &mut self.accounting.target(target.epn).built;
        *built = built.saturating_sub(1);
        self.accounting.dropped[DropReason::Undelivered.index()] += 1;
        let record = Record::Undelivered { tf, target };
        self.actions.push_back(Action::Append(record));
        self.finish(tf, None);
    }
}
