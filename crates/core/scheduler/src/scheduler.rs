//! The scheduler decides which EPN builds which TF, and the one verdict on each.
//!
//! One table holds every TF that is not done. Events of FLPs and EPNs move a TF through its phases (gathering,
//! queued, building, committed); what is to be said to whom comes out by [`Scheduler::poll_action`]. A TF has
//! at most one verdict, because only [`decide`](Scheduler) writes one and takes the TF out of the undecided
//! phases in the same step. See `docs/reference/protocol.md` for the life of a TF.

mod absent;
mod begin;
mod checkpoint;
mod commits;
mod config;
mod consumed;
mod decide;
mod nodes;
mod open_tf;
mod peer;
mod phase;
mod place;
mod react;
mod recover;
mod redeliver;
mod retransmit;
mod rosters;
mod run;
mod run_delay;
mod stored;

pub use checkpoint::Summary;
pub use config::{Delivery, Incomplete, Mode, RunPlan, SchedulerConfig};

use crate::accounting::Accounting;
use commits::Commits;
use open_tf::{OpenTf, Phase};
pub use peer::FormerEpn;
use peer::{EpnNode, EpnSetting, FlpNode, Unreachable};
use phase::RunPhase;
use react::List;
use rosters::Rosters;
use sheaf_placement::{LoadView, Policy, Refusal, UnknownPolicy, policy};
pub use sheaf_protocol::Record;
use sheaf_protocol::control::{Assign, Release};
use sheaf_protocol::{
    Control, DropReason, EpnId, FlpId, RangeSet, RunId, Source, Target, TfId, TfTable, Timestamp,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use stored::Stray;

/// Recipient of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipient {
    /// One FLP.
    Flp(FlpId),
    /// One EPN.
    Epn(EpnId),
    /// Every FLP.
    AllFlps,
    /// Every EPN.
    AllEpns,
}

/// Durations of a TF from stage to stage, in ns.
///
/// All on the ICN's clock: the EPN reports how long ago its bytes came, so a byte seems later than it was by the
/// way of that report, some 0.1 ms on a local network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// First announce to the latest assignment.
    pub announce_to_assign_ns: u64,
    /// Assignment to the first byte at the EPN.
    pub assign_to_first_byte_ns: u64,
    /// First byte to last byte.
    pub first_to_last_byte_ns: u64,
    /// Last byte to the EPN's acknowledgement of the commit.
    pub last_byte_to_commit_ns: u64,
    /// First announce to the acknowledgement of the commit.
    pub total_ns: u64,
}

/// Order of the scheduler to its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Append a record to the verdict log. Comes before the messages that follow from it.
    Append(Record),
    /// Send a message.
    Send(Recipient, Control),
    /// A TF is done: its EPN has delivered it.
    Done {
        /// The TF.
        tf: TfId,
        /// The EPN.
        target: Target,
        /// Durations of its stages.
        trace: Trace,
    },
    /// A TF whose EPN has died before it acknowledged cannot be built again, and is abandoned.
    NotRedelivered {
        /// The TF.
        tf: TfId,
        /// Reason, as of a TF that is dropped.
        reason: DropReason,
    },
}

/// Counts that are no fate of a TF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Choices asked of the policy.
    pub choices: u64,
    /// Refusals, by [`Refusal::index`].
    pub refused: [u64; Refusal::ALL.len()],
    /// Announces of TFs that were announced by the same source before.
    pub announces_repeated: u64,
    /// Commits retransmitted because the EPN had not acknowledged.
    pub commits_repeated: u64,
    /// Releases retransmitted because a node had not applied them in time.
    pub releases_repeated: u64,
    /// Moves put off because too many bytes would be retransmitted after mere silence.
    pub moves_put_off: u64,
    /// Messages of kinds that the ICN does not accept, or of unknown nodes.
    pub unexpected_messages: u64,
    /// Heartbeats sent in paced mode.
    pub paced: u64,
    /// Longest delay of a heartbeat behind its deadline, in ns.
    pub pace_late_ns_max: u64,
    /// TFs that went on at the EPNs that had them when this ICN took over.
    pub adopted: u64,
}

/// The scheduler of one run.
pub struct Scheduler {
    config: SchedulerConfig,
    plan: RunPlan,
    run: RunId,
    policy: Box<dyn Policy>,
    view: LoadView,
    flps: BTreeMap<FlpId, FlpNode>,
    epns: BTreeMap<EpnId, EpnNode>,
    /// Counts of lives of EPNs that are over.
    former_epns: BTreeMap<EpnId, FormerEpn>,
    /// Lives of FLPs that are over.
    gone: BTreeSet<Source>,
    /// Lives of FLPs that were waited for in vain: they may go on somewhere.
    cut_off: BTreeSet<Source>,
    /// Pairs that cannot reach each other.
    unreachable: BTreeMap<(FlpId, EpnId), Unreachable>,
    /// Pairs whose report has lapsed, each with the time until which it is open whether they reach each other.
    unreachable_lapsed: BTreeMap<(FlpId, EpnId), Timestamp>,
    rosters: Rosters,
    tfs: TfTable<OpenTf>,
    queue: VecDeque<TfId>,
    /// Committed TFs that wait for the next life of their EPN.
    strays: BTreeMap<TfId, Stray>,
    /// Commits by life of an EPN.
    commits: BTreeMap<Target, Commits>,
    /// When committed TFs were last recalled.
    recalled_at: Option<Timestamp>,
    /// The first TF of the run.
    first: TfId,
    /// When the quorum was there and a source could begin, while others had not given their first id.
    begin_awaited_since: Option<Timestamp>,
    /// The first TF that no source has named yet.
    frontier: TfId,
    released: RangeSet,
    released_version: u64,
    released_said: u64,
    phase: RunPhase,
    /// When the first TF was due, or when this ICN took over.
    origin: Timestamp,
    /// How long the run had lasted at the origin.
    before: Duration,
    /// When this ICN took over in the middle of the run.
    took_over_at: Option<Timestamp>,
    /// Whether this ICN took over and waits for the reports of the nodes.
    is_settling: bool,
    /// Settings of EPNs by an operator.
    settings: BTreeMap<EpnId, EpnSetting>,
    /// EPNs that may get work, as the reaction to failures has it.
    list: List,
    /// EPNs that have asked to leave, or were asked to.
    leaving: BTreeSet<EpnId>,
    /// TFs with their consumers, for the log.
    done: BTreeSet<TfId>,
    /// When the time of the run was last recorded in the log.
    clock_said_at: Timestamp,
    /// First announce of the run, and the moment when the sources stopped.
    span: (Option<Timestamp>, Option<Timestamp>),
    repeated_at: Timestamp,
    /// Bytes of built TFs, and bytes moved after silence, for the limit on retransmission.
    resent_bytes: u64,
    /// Longest run delay of this ICN lately.
    run_delay: Duration,
    /// Longest run delay of any FLP lately.
    flp_run_delay: Duration,
    assigns: Vec<Assign>,
    actions: VecDeque<Action>,
    accounting: Accounting,
    stats: Stats,
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scheduler")
            .field("run", &self.run)
            .field("policy", &self.policy.name())
            .field("phase", &self.phase)
            .field("tfs", &self.tfs)
            .field("accounting", &self.accounting)
            .finish_non_exhaustive()
    }
}

impl Scheduler {
    /// Returns the scheduler of `run`, which begins as soon as the nodes that `plan` requires have joined.
    ///
    /// # Errors
    ///
    /// [`UnknownPolicy`] if the configuration names a policy that does not exist.
    pub fn new(config: SchedulerConfig, plan: RunPlan, run: RunId) -> Result<Self, UnknownPolicy> {
        let policy = policy::by_name(&config.policy, config.seed)?;
        Ok(Self::with_policy(config, plan, run, policy))
    }

    /// Returns the scheduler of `run` with a policy that no name makes; that of `config` is ignored.
    #[must_use]
    pub fn with_policy(
        config: SchedulerConfig,
        plan: RunPlan,
        run: RunId,
        policy: Box<dyn Policy>,
    ) -> Self {
        let mut scheduler = Self::empty(config, plan, run, policy);
        let opened = Record::Opened { run };
        scheduler.actions.push_back(Action::Append(opened));
        scheduler
    }

    fn empty(config: SchedulerConfig, plan: RunPlan, run: RunId, policy: Box<dyn Policy>) -> Self {
        Self {
            policy,
            config,
            plan,
            run,
            view: LoadView::new(),
            flps: BTreeMap::new(),
            epns: BTreeMap::new(),
            gone: BTreeSet::new(),
            cut_off: BTreeSet::new(),
            former_epns: BTreeMap::new(),
            unreachable: BTreeMap::new(),
            unreachable_lapsed: BTreeMap::new(),
            rosters: Rosters::default(),
            tfs: TfTable::new(),
            queue: VecDeque::new(),
            strays: BTreeMap::new(),
            commits: BTreeMap::new(),
            recalled_at: None,
            first: TfId(0),
            begin_awaited_since: None,
            frontier: TfId(0),
            released: RangeSet::default(),
            released_version: 0,
            released_said: 0,
            phase: RunPhase::Waiting,
            origin: Timestamp(0),
            before: Duration::ZERO,
            took_over_at: None,
            is_settling: false,
            settings: BTreeMap::new(),
            list: List::default(),
            leaving: BTreeSet::new(),
            done: BTreeSet::new(),
            clock_said_at: Timestamp(0),
            span: (None, None),
            repeated_at: Timestamp(0),
            resent_bytes: 0,
            run_delay: Duration::ZERO,
            flp_run_delay: Duration::ZERO,
            assigns: Vec::new(),
            actions: VecDeque::new(),
            accounting: Accounting::default(),
            stats: Stats::default(),
        }
    }

    /// Returns the run.
    #[must_use]
    pub fn run(&self) -> RunId {
        self.run
    }

    /// Takes over from `config` all that may change while a run goes on: the policy, deadlines, the bound of the queue.
    /// A deadline that was set already stays.
    ///
    /// # Errors
    ///
    /// [`UnknownPolicy`] if the configuration names a policy that does not exist; then nothing has changed.
    pub fn reconfigure(&mut self, config: &SchedulerConfig) -> Result<(), UnknownPolicy> {
        if (&config.policy, config.seed) != (&self.config.policy, self.config.seed) {
            self.policy = policy::by_name(&config.policy, config.seed)?;
        }
        self.config.follow(config);
        Ok(())
    }

    /// Returns the name of the policy in force.
    #[must_use]
    pub fn policy_name(&self) -> &'static str {
        self.policy.name()
    }

    /// Returns the accounting so far.
    #[must_use]
    pub fn accounting(&self) -> &Accounting {
        &self.accounting
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns the load of the EPNs as the policy sees it.
    #[must_use]
    pub fn view(&self) -> &LoadView {
        &self.view
    }

    /// Returns the number of TFs without a verdict, counted in the table.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.tfs.values().filter(|tf| tf.is_undecided()).count() as u64
    }

    /// Returns how many TFs are decided. A [`Release`] names at most so many: those that are done as well, which the
    /// log may learn later than a node.
    #[must_use]
    pub fn decided_tfs(&self) -> u64 {
        let committed = self.tfs.values().filter(|open| !open.is_undecided());
        self.released.count() + (committed.count() + self.strays.len()) as u64
    }

    /// Returns whether `tf` has its verdict.
    #[must_use]
    pub fn is_decided(&self, tf: TfId) -> bool {
        let is_committed = |open: &OpenTf| !open.is_undecided();
        self.released.contains(tf)
            || self.strays.contains_key(&tf)
            || self.tfs.get(&tf).is_some_and(is_committed)
    }

    /// Returns the number of TFs that wait for room.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Returns the time from the first announce to the stop of the sources, or to `now` while they go on.
    #[must_use]
    pub fn duration(&self, now: Timestamp) -> Duration {
        match self.span {
            (Some(first), Some(last)) => self.before + last.since(first),
            (Some(first), None) => self.before + now.since(first),
            _ => Duration::ZERO,
        }
    }

    /// Returns the state of the release, for a node whose version is older.
    #[must_use]
    pub fn release(&self) -> Release {
        Release::of(self.released_version, &self.released)
    }

    /// Puts gathered entries into messages: assignments in one batch, then the state of the release. The driver calls
    /// it once after a batch of events.
    pub fn flush(&mut self) {
        self.send_assigns();
        self.append_done();
        if self.released_version != self.released_said {
            self.released_said = self.released_version;
            self.rosters.forget_below(self.released.floor());
            let release = self.release();
            self.send(Recipient::AllFlps, Control::Release(release));
            self.send_release_to_epns();
        }
        debug_assert!(
            self.accounting.balance(self.in_flight()),
            "{:?}",
            self.accounting
        );
    }

    /// Returns the next action; `None` when none is left.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn send(&mut self, to: Recipient, control: Control) {
        self.actions.push_back(Action::Send(to, control));
    }

    /// Drops what was to be sent to a life that is over: for the next one it would name TFs that are other ones there.
    fn drop_sends(&mut self, dead: Recipient) {
        self.actions
            .retain(|action| !matches!(action, Action::Send(to, _) if *to == dead));
    }

    /// Extends all deadlines by `late`, for which the ICN itself was kept from working.
    pub fn handle_late(&mut self, late: Duration) {
        for open in self.tfs.values_mut() {
            if let Phase::Building { deadline, .. } = &mut open.phase {
                *deadline = *deadline + late;
            }
        }
    }

    /// Handles the passing of time: deadlines of TFs, missing answers, the heartbeat.
    pub fn handle_tick(&mut self, now: Timestamp) {
        self.begin_if_quorum(now);
        self.pace(now);
        self.lapse_unreachable(now);
        let due: Vec<TfId> = self
            .tfs
            .iter()
            .filter(|(_, tf)| self.is_due(now, tf))
            .map(|(id, _)| id)
            .collect();
        for tf in due {
            self.handle_due(now, tf);
        }
        self.place_queued(now);
        if now.since(self.repeated_at) >= self.config.repeat() {
            self.repeated_at = now;
            self.repeat_run_messages(now);
            self.look_at_absent(now);
            self.look_at_run_delays();
        }
        self.append_clock(now);
        self.advance_run(now);
    }

    fn is_due(&self, now: Timestamp, tf: &OpenTf) -> bool {
        match &tf.phase {
            Phase::Gathering => now.since(tf.first_at) >= self.config.announce_deadline(),
            Phase::Queued => {
                !self.unreachable.is_empty()
                    && now.since(tf.first_at) >= self.config.unreachable_timeout()
            }
            Phase::Building { deadline, .. } => now >= *deadline,
            Phase::Committed {
                target, said_at, ..
            } => now.since(*said_at) >= self.repeat_to(*target),
        }
    }

    fn handle_due(&mut self, now: Timestamp, tf: TfId) {
        let Some(open) = self.tfs.get(&tf) else {
            return;
        };
        match open.phase {
            Phase::Gathering => self.assign_or_drop(now, tf),
            Phase::Queued => self.give_up_unreachable(now, tf),
            Phase::Building { target, .. } => {
                if self.is_available(target) && self.is_put_off(target, tf) {
                    // The EPN has built the TF, and its consumer is slow.
                    self.restart_deadline(now, tf);
                } else if self.is_available(target) && !self.may_move(open) {
                    self.repeat_assign_to_epn(now, tf, target);
                } else {
                    self.move_tf(now, tf, target);
                }
            }
            Phase::Committed { .. } => self.repeat_commit(now, tf),
        }
    }
}

#[cfg(test)]
mod tests;
