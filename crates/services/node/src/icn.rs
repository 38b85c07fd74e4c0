//! The process of an ICN: the streams of all nodes, the verdict log, and, while it leads, the scheduler.
//!
//! An ICN is a standby or the leader, as its log says ([`sheaf_verdict_log::Ledger`]). A standby keeps the streams of
//! all nodes and their hellos, so that it can begin at once. A leader owns a scheduler, made from what the log
//! holds; deposed, it throws the scheduler away with everything that was not durable.

mod gate;
mod greet;
mod latency;
mod lead;
mod leadership;
mod log_book;
mod node_states;
mod notices;
mod objections;
mod orders;
mod peers;
mod reconfigure;
mod report;
mod restart;
mod rolled_back;

pub use log_book::{Line, LogPage};
pub(crate) use report::metrics;
pub use restart::IcnEnd;
pub use rolled_back::{Older, RolledBack};

use crate::challenge::{Challenges, Nonces};
use crate::clock::FairClock;
use crate::event::{Event, EventLog};
use crate::flp::Turn;
use crate::registry::Discovery;
use crate::reject::PeerGuard;
use crate::security;
use lead::{Context, Lead};
use log_book::LogBook;
use node_states::NodeStates;
use peers::Peers;
use restart::Farewell;
use rolled_back::Followed;
use sheaf_membership::{LivenessConfig, RunDelays};
use sheaf_metrics::Registry;
use sheaf_placement::policy::{self, UnknownPolicy};
use sheaf_protocol::control::Hello;
use sheaf_protocol::reject::Code;
use sheaf_protocol::{
    Control, Envelope, Incarnation, NodeId, Role, RunId, Term, Timestamp, WireKind, protect,
};
use sheaf_scheduler::{RunPlan, Scheduler, SchedulerConfig};
use sheaf_transport::{ConnId, Frame, ListenError, SendError, Transport};
use sheaf_verdict_log::{Ledger, LedgerStatus};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tracing::{debug, error, info, warn};

/// How often deadlines are looked at.
const TICK: Duration = Duration::from_millis(5);
/// How long nodes have to leave after the run is over.
const CLOSE_WAIT: Duration = Duration::from_secs(2);

/// Parts that an ICN is made of.
pub struct IcnParts {
    /// Which of the ICNs it is.
    pub icn: u16,
    /// Where the ICNs listen, by index; empty if the log needs no streams between them.
    pub peers: Vec<String>,
    /// The verdict log.
    pub ledger: Box<dyn Ledger>,
    /// How TFs are placed.
    pub scheduler: SchedulerConfig,
    /// Conditions of the begin and the end of a run.
    pub plan: RunPlan,
    /// The id of the run that it opens, if it finds none to go on with.
    pub new_run: RunId,
    /// How long silence may last.
    pub liveness: LivenessConfig,
    /// Largest STF that the farm takes, in bytes; nodes get it when they join.
    pub stf_bytes_max: u64,
    /// How long the run lasts after the first announce; `None` for no end.
    pub duration: Option<Duration>,
    /// After how many records at most the log gets a checkpoint.
    pub checkpoint_records: u64,
    /// Which life of the ICN this is.
    pub incarnation: Incarnation,
    /// Source of the nonces of its challenges.
    pub nonces: Nonces,
    /// Event log.
    pub log: EventLog,
    /// Where its latencies are counted.
    pub registry: Arc<Registry>,
}

/// Why the ICN cannot go on.
#[derive(Debug, Error)]
pub enum IcnError {
    /// Address that cannot be listened at.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The verdict log is an old copy. Put the latest one back, or end the nodes and begin a new run.
    #[error(transparent)]
    RolledBack(#[from] RolledBack),
}

/// One node's stream.
#[derive(Clone, Copy, Debug)]
struct Session {
    node: NodeId,
    incarnation: Incarnation,
}

/// Constants of the life of an ICN.
struct Terms {
    me: NodeId,
    incarnation: Incarnation,
    scheduler: SchedulerConfig,
    plan: RunPlan,
    new_run: RunId,
    liveness: LivenessConfig,
    stf_bytes_max: u64,
    duration: Option<Duration>,
    checkpoint_records: u64,
    registry: Arc<Registry>,
    /// Name of the level of security in force.
    level: &'static str,
}

/// One ICN on any transport. Its driver feeds it events and turns it.
pub struct IcnNode<T> {
    transport: T,
    terms: Terms,
    ledger: Box<dyn Ledger>,
    lead: Option<Box<Lead>>,
    peers: Peers,
    discovery: Option<Discovery>,
    log: EventLog,
    sessions: BTreeMap<ConnId, Option<Session>>,
    conns: BTreeMap<NodeId, ConnId>,
    hellos: BTreeMap<NodeId, Hello>,
    /// Run and term that each node was in before its last hello.
    followed: BTreeMap<NodeId, Followed>,
    /// The verdict log lacks what a node knows: nothing is decided any more, and the process ends.
    rolled_back: Option<RolledBack>,
    sequence: u64,
    clock: FairClock,
    run_delays: RunDelays,
    ticked_at: Timestamp,
    pulsed_at: Timestamp,
    /// An ICN has led while this one was there, itself or another: no run is to be opened.
    has_followed: bool,
    /// Set when this process is to end.
    farewell: Option<Farewell>,
    keeps_run: bool,
    refuses_restart: Option<&'static str>,
    is_dismissed: bool,
    refused_messages: u64,
    node_states: NodeStates,
    peer_guard: PeerGuard,
    challenges: Challenges,
    log_book: LogBook,
    /// Operators that have asked for the status, and since when they know that the run is over.
    watchers: BTreeMap<ConnId, Option<Timestamp>>,
}

impl<T: Transport> IcnNode<T> {
    /// Puts the parts together. The transport listens at the address of the ICN already.
    ///
    /// # Errors
    ///
    /// [`UnknownPolicy`] if the configuration names a policy that does not exist.
    pub fn new(transport: T, parts: IcnParts) -> Result<Self, UnknownPolicy> {
        policy::by_name(&parts.scheduler.policy, parts.scheduler.seed)?;
        let me = NodeId {
            role: Role::Icn,
            index: parts.icn,
        };
        let mut log = parts.log;
        log.add(&Event::Begin {
            node: me.to_string(),
            incarnation: parts.incarnation.0,
        });
        Ok(Self {
            transport,
            terms: Terms {
                me,
                incarnation: parts.incarnation,
                scheduler: parts.scheduler,
                plan: parts.plan,
                new_run: parts.new_run,
                liveness: parts.liveness,
                stf_bytes_max: parts.stf_bytes_max,
                duration: parts.duration,
                checkpoint_records: parts.checkpoint_records,
                registry: parts.registry,
                level: "",
            },
            ledger: parts.ledger,
            lead: None,
            peers: Peers::new(parts.icn, &parts.peers),
            discovery: None,
            log,
            sessions: BTreeMap::new(),
            conns: BTreeMap::new(),
            hellos: BTreeMap::new(),
            followed: BTreeMap::new(),
            rolled_back: None,
            sequence: 0,
            clock: FairClock::default(),
            run_delays: RunDelays::default(),
            ticked_at: Timestamp(0),
            pulsed_at: Timestamp(0),
            has_followed: false,
            farewell: None,
            keeps_run: false,
            refuses_restart: None,
            is_dismissed: false,
            refused_messages: 0,
            node_states: NodeStates::default(),
            peer_guard: PeerGuard::default(),
            challenges: Challenges::new(parts.nonces),
            log_book: LogBook::default(),
            watchers: BTreeMap::new(),
        })
    }

    /// Looks at the sessions of nodes in a registry, and is found there.
    pub fn discover(&mut self, discovery: Discovery) {
        self.discovery = Some(discovery);
    }

    /// The ICN ends: a registry need not wait for its session.
    pub fn deregister(&mut self, now: Timestamp) {
        if let Some(discovery) = &mut self.discovery {
            discovery.leave(now);
        }
    }

    /// Returns the event log.
    pub fn log(&mut self) -> &mut EventLog {
        &mut self.log
    }

    /// Returns the transport.
    pub fn transport(&mut self) -> &mut T {
        &mut self.transport
    }

    /// Returns the pure part while the ICN leads, for inspection.
    #[must_use]
    pub fn scheduler(&self) -> Option<&Scheduler> {
        self.lead.as_ref().map(|lead| &lead.scheduler)
    }

    /// Returns how often this leader has found a node silent.
    #[must_use]
    pub fn suspected(&self) -> u64 {
        self.lead.as_ref().map_or(0, |lead| lead.suspected)
    }

    /// Whether it leads, as far as it knows.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.lead.is_some()
    }

    /// The verdict log, as status views show it.
    #[must_use]
    pub fn ledger_status(&self) -> LedgerStatus {
        self.ledger.status()
    }

    fn term(&self) -> Term {
        let led = self.lead.as_ref().map(|lead| lead.term);
        led.unwrap_or_else(|| self.ledger.status().term)
    }

    /// Takes in what its transport reports.
    pub fn handle(&mut self, now: Timestamp, event: sheaf_transport::Event) {
        use sheaf_transport::Event as Net;
        match event {
            Net::Accepted { conn, peer, .. } => {
                self.peer_guard.accepted(conn, &peer);
                self.sessions.insert(conn, None);
                let challenge = self.challenges.accepted(now, conn);
                self.send(&[conn], &challenge);
            }
            Net::Connected { conn } => self.handle_peer_connected(now, conn),
            Net::Received { conn, frame, .. } => self.handle_frame(now, conn, &frame),
            Net::Closed { conn, reason } => {
                self.peer_guard.closed(now, conn, &reason);
                self.challenges.closed(conn);
                if let Some(icn) = self.peers.set_down(now, conn) {
                    debug!(peer = icn, %reason, "The stream to another ICN has closed");
                    self.ledger.handle_peer(now, icn, false);
                }
                let Some(Some(session)) = self.sessions.remove(&conn) else {
                    return;
                };
                if self.conns.get(&session.node) == Some(&conn) {
                    self.conns.remove(&session.node);
                    debug!(node = %session.node, %reason, "Control stream closed");
                    self.with_lead(now, |lead, context| {
                        lead.handle_closed(context, session);
                    });
                }
            }
            Net::Writable { .. } | Net::Woken => {}
        }
    }

    fn with_lead(&mut self, now: Timestamp, act: impl FnOnce(&mut Lead, Context<'_>)) {
        if let Some(lead) = &mut self.lead {
            let context = Context {
                now,
                fair: self.clock.fair(now),
                duration: self.terms.duration,
                hellos: &self.hellos,
            };
            act(lead, context);
            for node in lead.take_hopeless() {
                if let Some(conn) = self.conns.get(&node) {
                    self.transport.close(*conn);
                }
            }
        }
    }

    fn handle_frame(&mut self, now: Timestamp, conn: ConnId, frame: &Frame) {
        if self.rolled_back.is_some() || self.peer_guard.is_rejected(conn) {
            return;
        }
        let decoded = (frame.kind == WireKind::Control).then(|| Control::decode(&frame.head));
        let (envelope, control) = match decoded {
            Some(Ok(decoded)) => decoded,
            Some(Err(error)) => {
                return self.reject(now, conn, Code::BadMessage, &error.to_string());
            }
            None => {
                let detail = "a data frame on a control stream";
                return self.reject(now, conn, Code::WrongStream, detail);
            }
        };
        if let Control::Hello(hello) = control {
            if self.is_denied(now, conn, envelope.sender) {
                return;
            }
            return self.handle_hello(now, conn, &envelope, hello);
        }
        if let (Control::Challenge { nonce }, Some(icn)) = (&control, self.peers.opened(conn)) {
            return self.greet_peer(now, conn, icn, *nonce, envelope.minor);
        }
        let Some(Some(session)) = self.sessions.get(&conn).copied() else {
            let detail = format!("{} before hello", control.name());
            return self.reject(now, conn, Code::NotJoined, &detail);
        };
        let is_another_life =
            envelope.incarnation != session.incarnation && self.peers.opened(conn).is_none();
        if envelope.sender != session.node || is_another_life {
            let detail = format!("{} speaks for {}", session.node, envelope.sender);
            return self.reject(now, conn, Code::RoleDenied, &detail);
        }
        if !security::may_send(session.node.role, &control) {
            let detail = format!("{} is not for {} to say", control.name(), session.node);
            return self.reject(now, conn, Code::RoleDenied, &detail);
        }
        match session.node.role {
            Role::Icn => self.handle_icn(now, &envelope, control),
            Role::Operator => self.handle_operator(now, conn, &control),
            Role::Flp | Role::Epn | Role::Writer => {
                self.handle_node(now, conn, session, &envelope, control);
            }
        }
    }

    fn handle_node(
        &mut self,
        now: Timestamp,
        conn: ConnId,
        session: Session,
        envelope: &Envelope,
        control: Control,
    ) {
        if let Control::Log(lines) = control {
            return self.log_book.add(session.node, session.incarnation, lines);
        }
        if matches!(control, Control::Fenced) {
            if let Some(lead) = &mut self.lead {
                lead.note_fenced(session.node, envelope.term);
            }
            return self.suspect(session.node, envelope.term);
        }
        let is_ours = self.lead.as_ref().is_some_and(|lead| {
            let is_term = protect!(OwnTermOnly, requires envelope.term == lead.term);
            is_term && envelope.run == lead.scheduler.run()
        });
        if !is_ours {
            self.refused_messages += 1;
            self.object_to(now, conn, envelope);
        }
        self.with_lead(now, |lead, context| {
            lead.handle_heard(context, session);
            if is_ours {
                let control = lead.note_run_delay(session, control);
                lead.handle_control(now, session, control);
            }
        });
    }

    fn handle_icn(&mut self, now: Timestamp, envelope: &Envelope, control: Control) {
        // One that still leads may learn of its successor and of the end of the run in the same moment.
        let lead = self.lead.as_ref();
        let is_led = lead.is_none_or(|lead| envelope.term > lead.term);
        match control {
            Control::Ledger(message) => {
                let icn = envelope.sender.index;
                self.ledger.handle_message(now, icn, &message);
            }
            Control::Log(lines) => {
                self.log_book
                    .add(envelope.sender, envelope.incarnation, lines);
            }
            Control::Dismissed if is_led => {
                info!("The run is over, says the leader");
                self.is_dismissed = true;
            }
            _ => {}
        }
    }

    /// Handles a request that the run ends. Only the leader can do it.
    pub fn handle_stop(&mut self, now: Timestamp) {
        if let Some(lead) = &mut self.lead {
            lead.scheduler.handle_stop(now);
        }
    }

    /// Tells the clock when the loop wants to wake, so that it knows when it was kept from it.
    pub fn handle_sleep(&mut self, until: Timestamp) {
        self.clock.sleep_until(until);
    }

    /// The loop has woken; call it before the events that it woke for.
    pub fn handle_wake(&mut self, now: Timestamp) {
        let late = self.clock.wake(now);
        if let Some(lead) = self.lead.as_mut().filter(|_| !late.is_zero()) {
            lead.scheduler.handle_late(late);
        }
    }

    /// Notes that this process had to wait for a processor for `delay`, until just before `now`.
    pub fn handle_run_delay(&mut self, now: Timestamp, delay: Duration) {
        self.run_delays.add(now, delay);
    }

    /// Does all that is to be done now: looks after deadlines and silence, asks the log, sends what was decided.
    ///
    /// # Errors
    ///
    /// [`IcnError::RolledBack`] if the verdict log lacks what a node knows. Nothing was decided since that was found.
    pub fn turn(&mut self, now: Timestamp) -> Result<Turn, IcnError> {
        self.consult(now);
        if let Some(rolled_back) = &self.rolled_back {
            return Err(rolled_back.clone().into());
        }
        let paced_at = self.scheduler().and_then(Scheduler::next_pace_at);
        if now.since(self.ticked_at) >= TICK || paced_at.is_some_and(|due| due <= now) {
            self.ticked_at = now;
            self.peer_guard.tick(now, &mut self.transport);
            self.challenge_again(now);
            self.peers.handle_tick(now, &mut self.transport);
            self.look(now);
            let run_delay = self.run_delay(now);
            if let Some(lead) = &mut self.lead {
                lead.scheduler.handle_run_delay(run_delay);
            }
            if !self.stands_still() {
                self.with_lead(now, Lead::handle_tick);
            }
        }
        if !self.stands_still() {
            self.act(now);
        }
        self.consult(now);
        self.settle_farewell(now);
        self.pulse(now);
        if self.is_done(now) {
            self.log.end();
            return Ok(Turn::Done);
        }
        let tick = self.ticked_at + TICK;
        let due = [
            self.scheduler()
                .and_then(Scheduler::next_pace_at)
                .filter(|_| !self.stands_still()),
            self.ledger.next_due(),
        ];
        let due = due.into_iter().flatten().fold(tick, Timestamp::min);
        Ok(Turn::WaitUntil(due))
    }

    /// Returns how long this process has lately had to wait for a processor, as far as that counts.
    pub(super) fn run_delay(&self, now: Timestamp) -> Duration {
        let longest = self.run_delays.longest(now);
        longest.min(self.terms.liveness.run_delay_max())
    }

    /// Nodes whose sessions are over and that are not heard are dead.
    fn look(&mut self, now: Timestamp) {
        let Some(mut discovery) = self.discovery.take() else {
            return;
        };
        discovery.look(now);
        self.with_lead(now, |lead, context| {
            lead.handle_vanished(context, discovery.over());
        });
        self.discovery = Some(discovery);
    }

    fn pulse(&mut self, now: Timestamp) {
        if now.since(self.pulsed_at) < self.terms.liveness.pulse() {
            return;
        }
        self.pulsed_at = now;
        let run_delay = self.run_delay(now);
        self.run_delays.handle_pulse();
        self.send_log(now);
        let Some(lead) = &mut self.lead else {
            return;
        };
        lead.log_notices(now);
        let (elapsed_ns, is_over) = (lead.scheduler.elapsed_ns(now), lead.is_over_for_good());
        let conns: Vec<ConnId> = self.conns.values().copied().collect();
        let pulse = Control::IcnPulse {
            elapsed_ns,
            run_delay_ns: u64::try_from(run_delay.as_nanos()).unwrap_or(u64::MAX),
        };
        self.send(&conns, &pulse);
        if is_over {
            let icns = self.peers.conns();
            self.send(&icns, &Control::Dismissed);
        }
    }

    /// Sends the next lines of the log of this process to the other ICNs.
    fn send_log(&mut self, now: Timestamp) {
        for (conn, log) in self.peers.take_log(now) {
            self.send(&[conn], &log);
        }
    }

    fn is_done(&mut self, now: Timestamp) -> bool {
        let have_seen = self.watchers_have_seen(now);
        if let Some(lead) = &mut self.lead {
            let all_left = have_seen && self.conns.is_empty() && self.peers.conns().is_empty();
            let is_close_over = lead
                .over_since()
                .is_some_and(|since| all_left || now.since(since) >= CLOSE_WAIT);
            let has_waited = (self.farewell.as_ref())
                .is_some_and(|farewell| farewell.is_over(now, self.ledger.has_others()));
            return is_close_over || has_waited;
        }
        self.is_dismissed || self.farewell.is_some()
    }

    /// Carries out what the scheduler wants: records go into the log, and what follows from them waits.
    fn act(&mut self, now: Timestamp) {
        let Some(lead) = self.lead.as_mut().filter(|_| self.rolled_back.is_none()) else {
            return;
        };
        let batch = lead.take_batch(&mut self.log);
        if !batch.records.is_empty() {
            self.note_leading();
        }
        let Some(lead) = &mut self.lead else { return };
        let ledger = &mut self.ledger;
        let messages = lead.gate.pass(batch, |records| ledger.append(now, records));
        let limit = self.terms.checkpoint_records;
        if let Some(checkpoint) = lead.checkpoint(now, limit, ledger.wants_checkpoint()) {
            ledger.append(now, checkpoint);
        }
        self.flush_log();
        self.send_all(messages);
    }

    fn flush_log(&mut self) {
        if let Err(error) = self.log.flush() {
            error!(%error, "The event log cannot be written; what it lacks cannot be proved later");
        }
    }

    fn send_all(&mut self, messages: Vec<(sheaf_scheduler::Recipient, Control)>) {
        for (to, control) in messages {
            let conns = self.conns_of(to);
            self.send(&conns, &control);
        }
    }

    fn conns_of(&self, to: sheaf_scheduler::Recipient) -> Vec<ConnId> {
        use sheaf_scheduler::Recipient;
        let of_role = |role: Role| {
            self.conns
                .iter()
                .filter(move |(node, _)| node.role == role)
                .map(|(_, conn)| *conn)
        };
        match to {
            Recipient::Flp(flp) => self.conns.get(&flp.into()).copied().into_iter().collect(),
            Recipient::Epn(epn) => self.conns.get(&epn.into()).copied().into_iter().collect(),
            Recipient::AllFlps => of_role(Role::Flp).collect(),
            Recipient::AllEpns => of_role(Role::Epn).collect(),
        }
    }

    /// Encodes once and shares the bytes.
    fn send(&mut self, conns: &[ConnId], control: &Control) {
        if conns.is_empty() {
            return;
        }
        self.sequence += 1;
        let run = self.scheduler().map_or(RunId(0), Scheduler::run);
        let envelope = Envelope {
            minor: crate::minor::ours(),
            run,
            sender: self.terms.me,
            incarnation: self.terms.incarnation,
            term: self.term(),
            sequence: self.sequence,
        };
        let frame = Frame::without_body(WireKind::Control, control.encode(&envelope).into());
        for conn in conns {
            match self.transport.send(*conn, frame.clone()) {
                Ok(()) | Err(SendError::Closed) => {}
                // It does not read. On its next stream it gets the state again.
                Err(SendError::Full(_)) => self.transport.close(*conn),
                Err(SendError::TooLarge(error)) => warn!(%error, "Message not sent"),
            }
        }
    }
}
