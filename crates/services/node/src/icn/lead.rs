//! A leader's term: the scheduler, the members, and what is on its way to the log.

use super::gate::{Batch, Gate};
use super::latency::Latencies;
use super::notices::{Awaited, Loss, Notices};
use super::rolled_back::Origin;
use super::{Session, Terms};
use crate::event::{Event, EventLog, MemberEvent};
use sheaf_membership::{Change, MemberEvent as Joining, Members};
use sheaf_placement::policy::UnknownPolicy;
use sheaf_protocol::control::Hello;
use sheaf_protocol::{
    Control, DropReason, EpnId, FlpId, Incarnation, NodeId, Record, Role, Source, Target, Term,
    Timestamp, Verdict,
};
use sheaf_scheduler::{Action, Recipient, Scheduler, Summary};
use sheaf_transport::ConnId;
use sheaf_verdict_log::Position;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use tracing::{info, warn};

/// How long a new leader waits for nodes to say what they hold, before it goes on without them.
const SETTLE: Duration = Duration::from_millis(100);
/// After this time the log gets a checkpoint, if anything was written to it.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(10);
/// How long a life that only the log knows has to come back: its node may have to find this ICN first.
const PATIENCE: Duration = Duration::from_secs(2);

/// Surroundings of a leader at one moment.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) now: Timestamp,
    /// The same moment on the clock that stands still while the process is kept from the processor.
    pub(super) fair: Timestamp,
    /// How long sources run; `None` for no end.
    pub(super) duration: Option<Duration>,
    /// The hellos of all connected nodes.
    pub(super) hellos: &'a BTreeMap<NodeId, Hello>,
}

/// Everything that ends with the term.
pub(super) struct Lead {
    pub(super) term: Term,
    pub(super) scheduler: Scheduler,
    pub(super) members: Members,
    pub(super) gate: Gate,
    pub(super) latencies: Latencies,
    /// Summary of the log, with everything that was appended.
    summary: Summary,
    summed_at: Timestamp,
    notices: Notices,
    awaited: Awaited,
    hopeless: Vec<NodeId>,
    /// Nodes that have yet to report their state.
    unheard: BTreeSet<NodeId>,
    /// Nodes found silent in this term, each as often as it was.
    pub(super) suspected: u64,
    began_at: Timestamp,
    /// Since when the log says that the run is over.
    over_since: Option<Timestamp>,
    is_fenced_said: bool,
    /// State of the log when the leader began.
    pub(super) origin: Origin,
    /// Nodes that ended in order and have not joined again.
    pub(super) left: BTreeSet<NodeId>,
    /// Answers to operators, each behind what it speaks of.
    answers: VecDeque<(Position, ConnId, Control)>,
}

impl Lead {
    /// A term that begins with what the log holds. `opens_new`: if the run in it is over, a new one is opened.
    pub(super) fn begin(
        terms: &Terms,
        now: Timestamp,
        term: Term,
        log: impl Iterator<Item = Record>,
        opens_new: bool,
    ) -> Result<Self, UnknownPolicy> {
        let new_run = opens_new.then_some(terms.new_run);
        let mut summary = Summary::default();
        log.for_each(|record| summary.replay(&record));
        let scheduler = Scheduler::resume(
            now,
            terms.scheduler.clone(),
            terms.plan,
            new_run,
            terms.new_run,
            summary.clone(),
        )?;
        let is_over = scheduler.is_over();
        let origin = Origin::new(summary.run().is_some(), scheduler.decided_tfs());
        Ok(Self {
            term,
            scheduler,
            members: Members::new(terms.liveness),
            gate: Gate::default(),
            latencies: Latencies::new(&terms.registry),
            summary,
            summed_at: now,
            notices: Notices::default(),
            awaited: Awaited::default(),
            hopeless: Vec::new(),
            unheard: BTreeSet::new(),
            suspected: 0,
            began_at: now,
            over_since: is_over.then_some(now),
            is_fenced_said: false,
            origin,
            left: BTreeSet::new(),
            answers: VecDeque::new(),
        })
    }

    /// Lives that the log names are members, though nothing is received from them yet.
    pub(super) fn expect_back(&mut self, now: Timestamp, fair: Timestamp) {
        if self.scheduler.is_settling() {
            for source in self.scheduler.known_sources() {
                self.members
                    .note_life(source.flp.into(), source.incarnation);
            }
            for (node, incarnation) in self.scheduler.expected() {
                self.members.expect(fair, node, incarnation, PATIENCE);
                self.unheard.insert(node);
            }
            self.settle_if_heard(now);
        }
    }

    /// A node whose stream stands is asked what it holds.
    pub(super) fn await_word_of(&mut self, node: NodeId) {
        if self.scheduler.is_settling() {
            self.unheard.insert(node);
        }
    }

    fn settle_if_heard(&mut self, now: Timestamp) {
        let is_late = now.since(self.began_at) >= SETTLE;
        if self.scheduler.is_settling() && (self.unheard.is_empty() || is_late) {
            info!(
                after_ms = now.since(self.began_at).as_millis(),
                silent = self.unheard.len(),
                adopted = self.scheduler.stats().adopted,
                "Took over"
            );
            self.scheduler.handle_settled(now);
        }
    }

    pub(super) fn handle_closed(&mut self, context: Context<'_>, session: Session) {
        let Session { node, incarnation } = session;
        if self.scheduler.is_leaving(node) || self.scheduler.is_over() {
            self.left.insert(node);
        }
        let event = if self.scheduler.is_leaving(node) {
            self.members.handle_left(node, incarnation)
        } else {
            self.members.handle_closed(context.fair, node, incarnation)
        };
        if let Some(event) = event {
            self.apply(context, event);
        }
    }

    pub(super) fn handle_heard(&mut self, context: Context<'_>, session: Session) {
        let Session { node, incarnation } = session;
        if let Some(event) = self.members.handle_heard(context.fair, node, incarnation) {
            self.apply(context, event);
        }
    }

    /// Takes from a pulse how long the node has lately had to wait for a processor, and returns the pulse with as much
    /// of it as counts.
    pub(super) fn note_run_delay(&mut self, session: Session, mut control: Control) -> Control {
        let Session { node, incarnation } = session;
        let reported = match &mut control {
            Control::FlpPulse(pulse) => &mut pulse.run_delay_ns,
            Control::EpnPulse(pulse) => &mut pulse.run_delay_ns,
            _ => return control,
        };
        let delay = Duration::from_nanos(*reported);
        let granted = self.members.handle_run_delay(node, incarnation, delay);
        *reported = u64::try_from(granted.as_nanos()).unwrap_or(u64::MAX);
        control
    }

    /// A message of this term and run.
    pub(super) fn handle_control(&mut self, now: Timestamp, session: Session, control: Control) {
        let tells_all = matches!(control, Control::FlpPulse(_) | Control::EpnPulse(_));
        match session.node.role {
            Role::Flp => self.scheduler.handle_flp(now, source_of(session), control),
            Role::Epn => self.scheduler.handle_epn(now, target_of(session), control),
            Role::Icn | Role::Operator | Role::Writer => {}
        }
        // A node says what it holds before its first pulse.
        if tells_all && self.unheard.remove(&session.node) {
            self.settle_if_heard(now);
        }
    }

    /// Result of a hello.
    pub(super) fn handle_joining(&mut self, context: Context<'_>, events: Vec<Joining>) {
        for event in events {
            self.apply(context, event);
        }
    }

    /// Lives whose sessions in a registry are over. The streams of those that are dead are closed: one that lives,
    /// paused for longer than its session, says hello again.
    pub(super) fn handle_vanished(
        &mut self,
        context: Context<'_>,
        over: impl Iterator<Item = (NodeId, Incarnation)>,
    ) {
        for (node, life) in over {
            if let Some(event) = self.members.handle_vanished(node, life) {
                self.hopeless.push(event.node);
                self.apply(context, event);
            }
        }
    }

    pub(super) fn handle_tick(&mut self, context: Context<'_>) {
        let now = context.now;
        for event in self.members.handle_tick(context.fair) {
            self.apply(context, event);
        }
        let is_long_enough = |limit| self.scheduler.duration(now) >= limit;
        if context.duration.is_some_and(is_long_enough) {
            self.scheduler.handle_stop(now);
        }
        self.settle_if_heard(now);
        self.scheduler.handle_tick(now);
    }

    fn apply(&mut self, context: Context<'_>, event: Joining) {
        let Joining {
            node,
            incarnation,
            change,
        } = event;
        let session = Session { node, incarnation };
        match change {
            Change::Joined => info!(%node, "Joined"),
            Change::Silent => {
                self.suspected += 1;
                warn!(%node, "Silent; it gets nothing new");
            }
            Change::Heard => info!(%node, "Heard again"),
            Change::Cut if self.over_since.is_some() => {}
            Change::Cut => warn!(%node, "Its stream has closed"),
            Change::Dead | Change::Expired => {
                if change == Change::Dead || node.role == Role::Epn {
                    info!(%node, "Its life is over");
                }
                self.unheard.remove(&node);
                match node.role {
                    Role::Flp => self.gate.forget(Recipient::Flp(FlpId(node.index))),
                    Role::Epn => self.gate.forget(Recipient::Epn(EpnId(node.index))),
                    Role::Icn | Role::Operator | Role::Writer => {}
                }
            }
            Change::Hopeless => {
                warn!(%node, "Silent for too long; closing its stream");
                self.hopeless.push(node);
            }
        }
        match node.role {
            Role::Flp => self.apply_flp(context, source_of(session), change),
            Role::Epn => self.apply_epn(context, target_of(session), change),
            Role::Icn | Role::Operator | Role::Writer => {}
        }
    }

    fn apply_flp(&mut self, context: Context<'_>, source: Source, change: Change) {
        let Context { now, hellos, .. } = context;
        match change {
            Change::Joined => {
                if let Some(hello) = hellos.get(&source.flp.into()) {
                    self.scheduler.handle_flp_joined(now, source, hello);
                }
            }
            Change::Silent | Change::Cut => self.scheduler.handle_flp_silent(now, source),
            Change::Heard => self.scheduler.handle_flp_heard(now, source),
            Change::Dead => self.scheduler.handle_flp_gone(now, source),
            Change::Expired if self.scheduler.handle_flp_expired(now, source) => {
                let flp = source.flp;
                warn!(%flp, "Its control stream is closed and its data streams are open; its TFs wait for it");
            }
            Change::Expired => info!(flp = %source.flp, "Its life is over"),
            Change::Hopeless => {}
        }
    }

    fn apply_epn(&mut self, context: Context<'_>, target: Target, change: Change) {
        let Context { now, hellos, .. } = context;
        match change {
            Change::Joined => {
                if let Some(hello) = hellos.get(&target.epn.into()) {
                    self.scheduler.handle_epn_joined(now, target, hello);
                }
            }
            Change::Silent => self.scheduler.handle_epn_silent(now, target),
            Change::Heard => self.scheduler.handle_epn_heard(now, target),
            Change::Cut => self.scheduler.handle_epn_cut(now, target),
            Change::Dead | Change::Expired => self.scheduler.handle_epn_dead(now, target),
            Change::Hopeless => {}
        }
    }

    /// Nodes whose streams are to be closed from this side.
    pub(super) fn take_hopeless(&mut self) -> Vec<NodeId> {
        std::mem::take(&mut self.hopeless)
    }

    /// Everything that the scheduler wants, in order. TFs that are called for are noted in the event log.
    pub(super) fn take_batch(&mut self, log: &mut EventLog) -> Batch {
        self.scheduler.flush();
        let mut batch = Batch::default();
        while let Some(action) = self.scheduler.poll_action() {
            match action {
                Action::Append(record) => {
                    self.summary.take(&record);
                    batch.record(record);
                }
                Action::Done { target, trace, .. } => self.latencies.record(target, &trace),
                Action::NotRedelivered { tf, reason } => {
                    self.notices.add(Loss::NotRedelivered(reason), tf);
                }
                Action::Send(to, control) => {
                    if let Control::Pace(tfs) = &control {
                        tfs.iter()
                            .for_each(|tf| log.add(&Event::Called { tf: tf.0 }));
                    }
                    batch.message(to, control);
                }
            }
        }
        batch
    }

    /// A checkpoint behind everything that was appended, if it is time for one: after `limit` records, after some
    /// time, or when the log asks for it.
    pub(super) fn checkpoint(
        &mut self,
        now: Timestamp,
        limit: u64,
        is_wanted: bool,
    ) -> Option<Vec<Record>> {
        let is_late = now.since(self.summed_at) >= CHECKPOINT_EVERY;
        let since = self.summary.since();
        let is_due = since >= limit || since > 0 && (is_late || is_wanted);
        if !is_due || self.summary.is_over() {
            return None;
        }
        self.summed_at = now;
        let records = self.summary.checkpoint(self.gate.unheard());
        (!records.is_empty()).then_some(records)
    }

    /// These records are in the log for ever.
    pub(super) fn handle_durable(&mut self, now: Timestamp, records: &[Record]) {
        for record in records {
            match record {
                Record::Verdict { tf, verdict, .. } => match verdict {
                    Verdict::Complete { .. } => {}
                    Verdict::Incomplete { .. } => self.notices.add(Loss::Incomplete, *tf),
                    Verdict::Dropped { reason } => self.notices.add(Loss::Dropped(*reason), *tf),
                },
                Record::Redelivered { tf, .. } => self.notices.add(Loss::Redelivered, *tf),
                Record::Abandoned { tf, target } => {
                    self.notices.add(Loss::Abandoned(*target), *tf);
                }
                Record::Undelivered { tf, .. } => {
                    self.notices
                        .add(Loss::Dropped(DropReason::Undelivered), *tf);
                }
                Record::Over => {
                    self.over_since.get_or_insert(now);
                }
                _ => {}
            }
        }
    }

    /// Keeps an answer until everything before it is durable.
    pub(super) fn hold_answer(&mut self, conn: ConnId, answer: Control) {
        let position = self.gate.appended();
        self.answers.push_back((position, conn, answer));
    }

    /// Answers whose time has come.
    pub(super) fn take_answers(&mut self) -> Vec<(ConnId, Control)> {
        let mut due = Vec::new();
        while let Some((position, ..)) = self.answers.front()
            && *position <= self.gate.durable()
            && let Some((_, conn, answer)) = self.answers.pop_front()
        {
            due.push((conn, answer));
        }
        due
    }

    /// Operators that wait for an answer.
    pub(super) fn askers(&self) -> Vec<ConnId> {
        self.answers.iter().map(|(_, conn, _)| *conn).collect()
    }

    pub(super) fn log_notices(&mut self, now: Timestamp) {
        self.notices.log(now, self.over_since.is_some());
        self.awaited.log(now, &self.scheduler.awaited_for_begin());
    }

    /// Time since which the run is over for good.
    pub(super) fn over_since(&self) -> Option<Timestamp> {
        self.over_since
    }

    pub(super) fn is_over_for_good(&self) -> bool {
        self.over_since.is_some()
    }

    /// A node follows a higher term than this one: the log will say so too.
    pub(super) fn note_fenced(&mut self, node: NodeId, term: Term) {
        if term > self.term && !std::mem::replace(&mut self.is_fenced_said, true) {
            warn!(%node, term = self.term.0, higher = term.0, "Fenced: a node follows a later leader");
        }
    }
}

/// Writes down what the log of verdicts holds, in the words of the event logs.
pub(super) fn log_record(log: &mut EventLog, record: &Record) {
    match record {
        Record::Opened { run } => log.add(&Event::Run {
            run: run.to_string(),
        }),
        Record::Checkpoint(head) => log.add(&Event::Run {
            run: head.run.to_string(),
        }),
        Record::Verdict { tf, verdict, .. } | Record::Undone { tf, verdict, .. } => {
            log.add(&verdict_event(tf.0, verdict));
        }
        Record::Redelivered { tf, verdict, .. } | Record::UndoneRedelivered { tf, verdict, .. } => {
            redelivered_event(tf.0, verdict)
                .iter()
                .for_each(|event| log.add(event));
        }
        Record::Again(record) => log_record(log, record),
        Record::Abandoned { tf, .. } => log.add(&Event::Abandoned { tf: tf.0 }),
        Record::Undelivered { tf, .. } => log.add(&Event::Undelivered { tf: tf.0 }),
        Record::Roster { id, first, members } => {
            let member = |source: &Source| MemberEvent {
                flp: source.flp.0,
                incarnation: source.incarnation.0,
            };
            log.add(&Event::Roster {
                roster: id.0,
                first: first.0,
                members: members.iter().map(member).collect(),
            });
        }
        Record::Over => log.add(&Event::Over),
        Record::Passed { first, end } => log.add(&Event::Passed {
            first: first.0,
            end: end.0,
        }),
        Record::Done { .. }
        | Record::Clock { .. }
        | Record::Stopping { .. }
        | Record::Set { .. }
        | Record::Released { .. }
        | Record::Sources { .. }
        | Record::Targets { .. }
        | Record::RedeliveredTotal { .. }
        | Record::Listed { .. } => {}
    }
}

pub(super) fn source_of(session: Session) -> Source {
    Source {
        flp: FlpId(session.node.index),
        incarnation: session.incarnation,
    }
}

pub(super) fn target_of(session: Session) -> Target {
    Target {
        epn: EpnId(session.node.index),
        incarnation: session.incarnation,
    }
}

/// Returns the event of an amended verdict; `None` for one that no leader appends.
fn redelivered_event(tf: u64, verdict: &Verdict) -> Option<Event> {
    let (name, target, missing) = match verdict {
        Verdict::Complete { target } => ("complete", target, &[][..]),
        Verdict::Incomplete { target, missing } => ("incomplete", target, &missing[..]),
        Verdict::Dropped { .. } => return None,
    };
    Some(Event::Redelivered {
        tf,
        verdict: name.to_owned(),
        epn: target.epn.0,
        incarnation: target.incarnation.0,
        missing: missing.iter().map(|flp| flp.0).collect(),
    })
}

fn verdict_event(tf: u64, verdict: &Verdict) -> Event {
    let event = |name: &str, target: Option<&Target>, missing: &[FlpId], reason: Option<String>| {
        Event::Verdict {
            tf,
            verdict: name.to_owned(),
            epn: target.map(|target| target.epn.0),
            incarnation: target.map(|target| target.incarnation.0),
            missing: missing.iter().map(|flp| flp.0).collect(),
            reason,
        }
    };
    match verdict {
        Verdict::Complete { target } => event("complete", Some(target), &[], None),
        Verdict::Incomplete { target, missing } => event("incomplete", Some(target), missing, None),
        Verdict::Dropped { reason } => event("dropped", None, &[], Some(reason.name().to_owned())),
    }
}
