//! The process of the ICN: the table of members, the scheduler, and the streams of all nodes.

mod latency;
mod notices;
mod report;

use crate::clock::FairClock;
use crate::event::{Event, EventLog};
use crate::flp::Turn;
use latency::Latencies;
use notices::{Loss, Notices};
use sheaf_balance::{Action, Recipient, Record, Scheduler};
use sheaf_frame::control::{Hello, Welcome};
use sheaf_frame::{
    Control, EpnId, FlpId, Incarnation, NodeId, Role, Source, Target, Term, Timestamp, Verdict,
    WireKind,
};
use sheaf_membership::{Change, LivenessConfig, MemberEvent, Members};
use sheaf_metric::Registry;
use sheaf_transport::{ConnId, Frame, ListenError, SendError, Transport};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tracing::{debug, error, info, warn};

/// How often deadlines are looked at.
const TICK: Duration = Duration::from_millis(5);
/// How long nodes have to leave after the run is over.
const FAREWELL: Duration = Duration::from_secs(2);

/// What the ICN is made of.
pub struct IcnParts {
    /// Its brain.
    pub scheduler: Scheduler,
    /// How long silence may last.
    pub liveness: LivenessConfig,
    /// Largest STF that the farm takes, in bytes; nodes are told when they join.
    pub stf_bytes_max: u64,
    /// How long the run lasts after the first announce; `None` for no end.
    pub duration: Option<Duration>,
    /// Which life of the ICN this is.
    pub incarnation: Incarnation,
    /// Its verdict log.
    pub log: EventLog,
    /// Where its latencies are counted.
    pub registry: Arc<Registry>,
}

/// Why the ICN cannot go on.
#[derive(Debug, Error)]
pub enum IcnError {
    /// Its address cannot be had.
    #[error(transparent)]
    Listen(#[from] ListenError),
}

/// One node's stream.
#[derive(Clone, Copy, Debug)]
struct Session {
    node: NodeId,
    incarnation: Incarnation,
}

/// The ICN on any transport. Its driver feeds it events and turns it.
pub struct IcnNode<T> {
    transport: T,
    scheduler: Scheduler,
    members: Members,
    liveness: LivenessConfig,
    stf_bytes_max: u64,
    duration: Option<Duration>,
    incarnation: Incarnation,
    log: EventLog,
    sessions: BTreeMap<ConnId, Option<Session>>,
    conns: BTreeMap<NodeId, ConnId>,
    hellos: BTreeMap<NodeId, Hello>,
    sequence: u64,
    clock: FairClock,
    ticked_at: Timestamp,
    pulsed_at: Timestamp,
    over_at: Option<Timestamp>,
    refused_messages: u64,
    latencies: Latencies,
    notices: Notices,
}

impl<T: Transport> IcnNode<T> {
    /// Puts the parts together. The transport listens at the address of the ICN already.
    #[must_use]
    pub fn new(transport: T, parts: IcnParts) -> Self {
        let IcnParts {
            scheduler,
            liveness,
            stf_bytes_max,
            duration,
            incarnation,
            ..
        } = parts;
        let mut log = parts.log;
        log.add(&Event::Begin {
            node: NodeId::ICN.to_string(),
            incarnation: incarnation.0,
        });
        log.add(&Event::Run {
            run: scheduler.run().to_string(),
        });
        info!(run = %scheduler.run(), "Opened a run; waiting for its quorum");
        Self {
            transport,
            scheduler,
            members: Members::new(liveness),
            liveness,
            stf_bytes_max,
            duration,
            incarnation,
            log,
            sessions: BTreeMap::new(),
            conns: BTreeMap::new(),
            hellos: BTreeMap::new(),
            sequence: 0,
            clock: FairClock::default(),
            ticked_at: Timestamp(0),
            pulsed_at: Timestamp(0),
            over_at: None,
            refused_messages: 0,
            latencies: Latencies::new(&parts.registry),
            notices: Notices::default(),
        }
    }

    /// Its transport.
    pub fn transport(&mut self) -> &mut T {
        &mut self.transport
    }

    /// Its brain, to look at.
    #[must_use]
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// Takes in what its transport reports.
    pub fn handle(&mut self, now: Timestamp, event: sheaf_transport::Event) {
        use sheaf_transport::Event as Net;
        match event {
            Net::Accepted { conn, .. } => {
                self.sessions.insert(conn, None);
            }
            Net::Received { conn, frame, .. } => self.handle_frame(now, conn, &frame),
            Net::Closed { conn, reason } => {
                let Some(Some(session)) = self.sessions.remove(&conn) else {
                    return;
                };
                if self.conns.get(&session.node) == Some(&conn) {
                    self.conns.remove(&session.node);
                    debug!(node = %session.node, %reason, "Control stream closed");
                    let fair = self.clock.fair(now);
                    let Session { node, incarnation } = session;
                    let event = if self.scheduler.is_leaving(node) {
                        self.members.handle_left(node, incarnation)
                    } else {
                        self.members.handle_closed(fair, node, incarnation)
                    };
                    event.into_iter().for_each(|event| self.apply(now, event));
                }
            }
            Net::Connected { .. } | Net::Writable { .. } | Net::Woken => {}
        }
    }

    fn handle_frame(&mut self, now: Timestamp, conn: ConnId, frame: &Frame) {
        let decoded = (frame.kind == WireKind::Control).then(|| Control::decode(&frame.head));
        let (envelope, control) = match decoded {
            Some(Ok(decoded)) => decoded,
            Some(Err(error)) => {
                warn!(%error, "Message refused; closing its stream");
                return self.refuse(conn);
            }
            None => {
                warn!("A data frame on a control stream; closing it");
                return self.refuse(conn);
            }
        };
        if let Control::Hello(hello) = control {
            return self.handle_hello(now, conn, envelope.sender, envelope.incarnation, hello);
        }
        let Some(Some(session)) = self.sessions.get(&conn).copied() else {
            return self.refuse(conn);
        };
        if envelope.sender != session.node || envelope.incarnation != session.incarnation {
            warn!(node = %session.node, claims = %envelope.sender, "A node speaks for another");
            return self.refuse(conn);
        }
        let fair = self.clock.fair(now);
        if let Some(event) = self
            .members
            .handle_heard(fair, session.node, session.incarnation)
        {
            self.apply(now, event);
        }
        if envelope.run != self.scheduler.run() {
            self.refused_messages += 1;
            return;
        }
        match session.node.role {
            Role::Flp => self.scheduler.handle_flp(now, source_of(session), control),
            Role::Epn => self.scheduler.handle_epn(now, target_of(session), control),
            Role::Icn | Role::Operator => {}
        }
    }

    fn refuse(&mut self, conn: ConnId) {
        self.refused_messages += 1;
        self.transport.close(conn);
    }

    fn handle_hello(
        &mut self,
        now: Timestamp,
        conn: ConnId,
        node: NodeId,
        incarnation: Incarnation,
        hello: Hello,
    ) {
        if let Some(detail) = self.objection(node, &hello) {
            return self.send_refusal(conn, detail);
        }
        let fair = self.clock.fair(now);
        let events = match self.members.handle_hello(fair, node, incarnation) {
            Ok(events) => events,
            Err(error) => return self.send_refusal(conn, error.to_string()),
        };
        if let Some(earlier) = self.conns.insert(node, conn)
            && earlier != conn
        {
            self.sessions.insert(earlier, None);
            self.transport.close(earlier);
        }
        self.sessions
            .insert(conn, Some(Session { node, incarnation }));
        self.hellos.insert(node, hello);
        let pulse_ns = u64::try_from(self.liveness.pulse().as_nanos()).unwrap_or(u64::MAX);
        let welcome = Welcome {
            pulse_ns,
            stf_bytes_max: self.stf_bytes_max,
        };
        self.send(&[conn], &Control::Welcome(welcome));
        for event in events {
            self.apply(now, event);
        }
    }

    /// Why a node cannot be of this farm.
    fn objection(&self, node: NodeId, hello: &Hello) -> Option<String> {
        match node.role {
            Role::Icn | Role::Operator => Some("this farm has its ICN".to_owned()),
            Role::Flp if hello.stf_bytes_max > self.stf_bytes_max => Some(format!(
                "{node} announces STFs of up to {} bytes, this farm takes {}",
                hello.stf_bytes_max, self.stf_bytes_max
            )),
            Role::Epn if hello.data_address.is_empty() => {
                Some(format!("{node} says no data address"))
            }
            Role::Epn if hello.slots == 0 || hello.capacity_bytes == 0 => {
                Some(format!("{node} has room for nothing"))
            }
            Role::Flp | Role::Epn => None,
        }
    }

    fn send_refusal(&mut self, conn: ConnId, detail: String) {
        warn!(detail, "A node is refused");
        self.send(&[conn], &Control::Refused { detail });
        self.transport.finish(conn);
    }

    fn apply(&mut self, now: Timestamp, event: MemberEvent) {
        let MemberEvent {
            node,
            incarnation,
            change,
        } = event;
        let session = Session { node, incarnation };
        match change {
            Change::Joined => info!(%node, "Joined"),
            Change::Silent => warn!(%node, "Silent; it gets nothing new"),
            Change::Heard => info!(%node, "Heard again"),
            Change::Cut if self.over_at.is_some() => {}
            Change::Cut => warn!(%node, "Its stream has closed"),
            Change::Dead => info!(%node, "Its life is over"),
            Change::Hopeless => {
                warn!(%node, "Silent for too long; closing its stream");
                if let Some(conn) = self.conns.get(&node) {
                    self.transport.close(*conn);
                }
            }
        }
        match node.role {
            Role::Flp => self.apply_flp(now, source_of(session), change),
            Role::Epn => self.apply_epn(now, target_of(session), change),
            Role::Icn | Role::Operator => {}
        }
    }

    fn apply_flp(&mut self, now: Timestamp, source: Source, change: Change) {
        match change {
            Change::Joined => {
                let hello = &self.hellos[&NodeId::from(source.flp)];
                self.scheduler
                    .handle_flp_joined(now, source, hello.stf_bytes_max);
            }
            Change::Silent | Change::Cut => self.scheduler.handle_flp_silent(source),
            Change::Heard => self.scheduler.handle_flp_heard(source),
            Change::Dead => self.scheduler.handle_flp_gone(now, source),
            Change::Hopeless => {}
        }
    }

    fn apply_epn(&mut self, now: Timestamp, target: Target, change: Change) {
        match change {
            Change::Joined => {
                let hello = &self.hellos[&NodeId::from(target.epn)];
                self.scheduler.handle_epn_joined(now, target, hello);
            }
            Change::Silent => self.scheduler.handle_epn_silent(now, target),
            Change::Heard => self.scheduler.handle_epn_heard(now, target),
            Change::Cut => self.scheduler.handle_epn_cut(now, target),
            Change::Dead => self.scheduler.handle_epn_dead(now, target),
            Change::Hopeless => {}
        }
    }

    /// Somebody wants the run to end: sources stop, the farm drains, the nodes are sent home.
    pub fn handle_shutdown(&mut self, now: Timestamp) {
        self.scheduler.handle_stop(now);
    }

    /// Tells the clock when the loop wants to wake, so that it knows when it was kept from it.
    pub fn handle_sleep(&mut self, until: Timestamp) {
        self.clock.sleep_until(until);
    }

    /// The loop has woken; call it before the events that it woke for.
    pub fn handle_wake(&mut self, now: Timestamp) {
        let late = self.clock.wake(now);
        if !late.is_zero() {
            self.scheduler.handle_late(late);
        }
    }

    /// Does all that is to be done now: looks after deadlines and silence, sends what was decided.
    pub fn turn(&mut self, now: Timestamp) -> Turn {
        let paced_at = self.scheduler.next_pace_at();
        if now.since(self.ticked_at) >= TICK || paced_at.is_some_and(|due| due <= now) {
            self.ticked_at = now;
            let fair = self.clock.fair(now);
            for event in self.members.handle_tick(fair) {
                self.apply(now, event);
            }
            if self
                .duration
                .is_some_and(|limit| self.scheduler.duration(now) >= limit)
            {
                self.scheduler.handle_stop(now);
            }
            self.scheduler.handle_tick(now);
        }
        self.scheduler.flush();
        self.act();
        if now.since(self.pulsed_at) >= self.liveness.pulse() {
            self.pulsed_at = now;
            let conns: Vec<ConnId> = self.conns.values().copied().collect();
            let elapsed_ns = self.scheduler.elapsed_ns(now);
            self.send(&conns, &Control::IcnPulse { elapsed_ns });
        }
        self.notices.say(now, self.scheduler.is_over());
        if self.scheduler.is_over() {
            if self.over_at.is_none() {
                self.log.add(&Event::Over);
            }
            let over_at = *self.over_at.get_or_insert(now);
            if self.conns.is_empty() || now.since(over_at) >= FAREWELL {
                self.log.end();
                return Turn::Done;
            }
        }
        let tick = self.ticked_at + TICK;
        Turn::WaitUntil(
            self.scheduler
                .next_pace_at()
                .map_or(tick, |due| due.min(tick)),
        )
    }

    fn act(&mut self) {
        let mut messages = Vec::new();
        while let Some(action) = self.scheduler.poll_action() {
            match action {
                Action::Append(record) => self.append(&record),
                Action::Done { target, trace, .. } => self.latencies.record(target, &trace),
                Action::Send(to, control) => {
                    if let Control::Pace(tfs) = &control {
                        tfs.iter()
                            .for_each(|tf| self.log.add(&Event::Called { tf: tf.0 }));
                    }
                    messages.push((to, control));
                }
            }
        }
        if let Err(error) = self.log.flush() {
            error!(%error, "The verdict log cannot be written; what it lacks cannot be proved later");
        }
        for (to, control) in messages {
            let conns = self.conns_of(to);
            self.send(&conns, &control);
        }
    }

    fn append(&mut self, record: &Record) {
        match record {
            Record::Verdict { tf, verdict, .. } => {
                match verdict {
                    Verdict::Complete { .. } => {}
                    Verdict::Incomplete { .. } => self.notices.add(Loss::Incomplete, *tf),
                    Verdict::Dropped { reason } => self.notices.add(Loss::Dropped(*reason), *tf),
                }
                self.log.add(&verdict_event(tf.0, verdict));
            }
            Record::Abandoned { tf, target } => {
                self.notices.add(Loss::Abandoned(*target), *tf);
                self.log.add(&Event::Abandoned { tf: tf.0 });
            }
            Record::Opened { .. }
            | Record::Roster { .. }
            | Record::Done { .. }
            | Record::Clock { .. }
            | Record::Stopping { .. }
            | Record::Set { .. }
            | Record::Over => {}
        }
    }

    fn conns_of(&self, to: Recipient) -> Vec<ConnId> {
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
        let envelope = sheaf_frame::Envelope {
            run: self.scheduler.run(),
            sender: NodeId::ICN,
            incarnation: self.incarnation,
            term: Term(1),
            sequence: self.sequence,
        };
        let frame = Frame::without_body(WireKind::Control, control.encode(&envelope).into());
        for conn in conns {
            match self.transport.send(*conn, frame.clone()) {
                Ok(()) | Err(SendError::Closed) => {}
                // It does not read. On its next stream it is told the state anew.
                Err(SendError::Full(_)) => self.transport.close(*conn),
                Err(SendError::TooLarge(error)) => warn!(%error, "Message not sent"),
            }
        }
    }
}

fn source_of(session: Session) -> Source {
    Source {
        flp: FlpId(session.node.index),
        incarnation: session.incarnation,
    }
}

fn target_of(session: Session) -> Target {
    Target {
        epn: EpnId(session.node.index),
        incarnation: session.incarnation,
    }
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
