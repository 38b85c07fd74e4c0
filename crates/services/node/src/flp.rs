//! The process of an FLP: its brain, its source, its streams.

use crate::challenge::CHALLENGE_WITHIN;
use crate::event::{Event, EventLog};
use crate::held_back::HeldBack;
use crate::icn_link::{IcnLink, LEAVE_ALONE_AFTER};
use crate::identity;
use crate::refusals::{Refusals, Served};
use crate::registry::Discovery;
use crate::reject::{self, PeerGuard};
use crate::source::{Fed, Feed, Input};
use crate::uplink::{Heard, JoinRefusal, Uplink};
use sheaf_metrics::Registry;
use sheaf_protocol::control::FlpPulse;
use sheaf_protocol::reject::Code;
use sheaf_protocol::{
    Control, DataHello, DropReason, NodeId, Role, RunId, Source, Stf, StfHeader, Target, Term,
    TfId, Timestamp, WireKind, protect,
};
use sheaf_stf_builder::flp::{Action, Demand, Flp, Given};
use sheaf_stf_builder::{Made, Slots};
use sheaf_transport::{ConnId, Frame, Refusal, Transport};
use std::collections::BTreeMap;
use std::time::Duration;
use thiserror::Error;
use tracing::{debug, error, info, warn};

/// How often deadlines are looked at.
const TICK: Duration = Duration::from_millis(5);
/// STFs made in one turn of the loop at most, so that no stream waits for the source.
const MADE_AT_ONCE_MAX: usize = 16;
/// Bytes made in one turn of the loop at most.
const MADE_BYTES_AT_ONCE_MAX: u64 = 4 << 20;

/// Separator of the addresses of an EPN that listens at several network cards.
pub(crate) const DATA_ADDRESSES_BETWEEN: &str = ",";

/// Parts that an FLP is made of.
pub struct FlpParts {
    /// Name of the node.
    pub source: Source,
    /// Brain.
    pub brain: Flp,
    /// Where STFs come from.
    pub input: Input,
    /// Where payloads are written.
    pub slots: Box<dyn Slots + Send>,
    /// Stream to the ICN.
    pub uplink: Uplink,
    /// Event log.
    pub log: EventLog,
}

/// Reason for which an FLP ends without being dismissed.
#[derive(Debug, Error)]
pub enum FlpError {
    /// The ICN does not want it.
    #[error("the ICN refuses this FLP: {0}")]
    Refused(JoinRefusal),
}

/// Result of a turn of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Nothing to do before this moment, unless something is received.
    WaitUntil(Timestamp),
    /// The node may end.
    Done,
}

/// One FLP on any transport. Its driver feeds it events and turns it.
pub struct FlpNode<T> {
    transport: T,
    source: Source,
    brain: Flp,
    input: Input,
    /// STF that the source offers before the run has begun.
    offered: Option<Fed>,
    /// Fates of the STFs of the producer that is served.
    served: Served,
    refusals: Refusals,
    slots: Box<dyn Slots + Send>,
    icn_link: IcnLink,
    log: EventLog,
    conns: BTreeMap<Target, ConnId>,
    targets: BTreeMap<ConnId, Target>,
    /// How often an EPN that this FLP has no stream to was connected to.
    tried: BTreeMap<Target, usize>,
    /// Data streams that stand and have no challenge of their EPN yet, and since when.
    unchallenged: BTreeMap<ConnId, Timestamp>,
    held_back: HeldBack,
    ticked_at: Timestamp,
    /// The source had no room: it is asked again when something has been released.
    is_starved: bool,
    /// The term of the leader whose assignments it obeys.
    term: Term,
    peer_guard: PeerGuard,
}

impl<T: Transport> FlpNode<T> {
    /// Puts the parts together.
    #[must_use]
    pub fn new(transport: T, parts: FlpParts) -> Self {
        let FlpParts {
            source,
            brain,
            input,
            slots,
            uplink,
            mut log,
        } = parts;
        let node = format!("{}", source.flp);
        log.add(&Event::Begin {
            node,
            incarnation: source.incarnation.0,
        });
        Self {
            transport,
            source,
            brain,
            input,
            offered: None,
            served: Served::default(),
            refusals: Refusals::default(),
            slots,
            icn_link: IcnLink::new(uplink),
            log,
            conns: BTreeMap::new(),
            targets: BTreeMap::new(),
            tried: BTreeMap::new(),
            unchallenged: BTreeMap::new(),
            held_back: HeldBack::default(),
            ticked_at: Timestamp(0),
            is_starved: false,
            term: Term(0),
            peer_guard: PeerGuard::default(),
        }
    }

    /// Finds the ICNs in a registry, and is written down there.
    pub fn discover(&mut self, discovery: Discovery) {
        self.icn_link.discover(discovery);
    }

    /// The node ends: a registry need not wait for its session.
    pub fn deregister(&mut self, now: Timestamp) {
        self.icn_link.deregister(now);
    }

    /// Returns the event log.
    pub fn log(&mut self) -> &mut EventLog {
        &mut self.log
    }

    /// Returns the transport.
    pub fn transport(&mut self) -> &mut T {
        &mut self.transport
    }

    /// Returns the pure part, for inspection.
    #[must_use]
    pub fn brain(&self) -> &Flp {
        &self.brain
    }

    /// Takes in what its transport reports.
    pub fn handle(&mut self, now: Timestamp, event: sheaf_transport::Event) {
        use sheaf_transport::Event as Net;
        match event {
            // The hello waits for the challenge of the other end.
            Net::Connected { conn } => {
                if self.is_denied(now, conn) {
                    return;
                }
                if self.targets.contains_key(&conn) {
                    self.unchallenged.insert(conn, now);
                } else {
                    self.icn_link.uplink.handle_connected(now, conn);
                }
            }
            Net::Received { conn, frame, .. } if self.icn_link.uplink.owns(conn) => {
                self.handle_heard(now, conn, &frame);
            }
            Net::Closed { conn, reason } if self.icn_link.uplink.owns(conn) => {
                self.icn_link.uplink.handle_closed(now, conn, &reason);
            }
            Net::Closed { conn, reason } => {
                self.peer_guard.closed(now, conn, &reason);
                self.held_back.forget(conn);
                self.unchallenged.remove(&conn);
                if let Some(target) = self.targets.remove(&conn) {
                    debug!(%target.epn, %reason, "Data stream closed");
                    if self.conns.get(&target) == Some(&conn) {
                        self.conns.remove(&target);
                        if reject::refusal_of(&reason).is_some() {
                            self.brain.handle_link_refused(target);
                        }
                        self.brain.handle_link_closed(now, target);
                    }
                }
            }
            Net::Writable { conn } => self.send_held_back(conn),
            Net::Accepted { conn, .. } => self.transport.close(conn),
            Net::Received { conn, frame, .. } => self.handle_epn_message(now, conn, &frame),
            Net::Woken => {}
        }
    }

    /// Whether another node is at the other end than the ICN or EPN that was connected to.
    fn is_denied(&mut self, now: Timestamp, conn: ConnId) -> bool {
        let (node, denial) = match self.targets.get(&conn) {
            Some(target) => {
                let node = target.epn.into();
                (node, identity::denial(&self.transport, conn, node))
            }
            None => (
                NodeId::ICN,
                identity::role_denial(&self.transport, conn, Role::Icn),
            ),
        };
        denial.is_some_and(|detail| {
            match self.targets.get(&conn) {
                Some(target) => self.brain.handle_link_refused(*target),
                None => self.icn_link.uplink.refuse(conn),
            }
            self.peer_guard.named(conn, node);
            self.peer_guard
                .reject(now, &mut self.transport, conn, Code::RoleDenied, &detail);
            true
        })
    }

    /// Peers were turned away before they had a stream.
    pub fn handle_refusals(&mut self, now: Timestamp, refusals: Vec<Refusal>) {
        self.peer_guard.turned_away(now, refusals);
    }

    /// Brings the metric of rejected inputs up to date.
    pub fn export_rejected(&self, registry: &Registry) {
        self.peer_guard.export(registry);
    }

    /// An EPN says something on a data stream: what it wants, or why it rejects what this FLP sent.
    fn handle_epn_message(&mut self, now: Timestamp, conn: ConnId, frame: &Frame) {
        let Some(target) = self.targets.get(&conn).copied() else {
            return;
        };
        if self.peer_guard.is_rejected(conn) {
            return;
        }
        let transport = &mut self.transport;
        match Control::decode(&frame.head) {
            Ok((_, Control::Rejected { code, detail })) => {
                self.peer_guard.heard(now, target.epn.into(), code, &detail);
                if reject::is_refusal(code) {
                    self.brain.handle_link_refused(target);
                }
            }
            Ok((_, Control::Challenge { nonce })) => self.greet(conn, target, nonce),
            Ok((_, control)) if frame.kind == WireKind::Control => {
                // A stream that was replaced has nothing more to ask for.
                if self.conns.get(&target) == Some(&conn) {
                    self.brain.handle_epn_message(target, &control);
                }
            }
            Ok(_) => {
                let detail = "an EPN sends no payload";
                self.peer_guard
                    .reject(now, transport, conn, Code::WrongStream, detail);
            }
            Err(error) => {
                let detail = error.to_string();
                self.peer_guard
                    .reject(now, transport, conn, Code::BadMessage, &detail);
            }
        }
    }

    fn handle_heard(&mut self, now: Timestamp, conn: ConnId, frame: &Frame) {
        if self.peer_guard.is_rejected(conn) {
            return;
        }
        let transport = &mut self.transport;
        match self.icn_link.handle_frame(now, conn, frame, transport) {
            Heard::Joined {
                run, is_new_leader, ..
            } => self.handle_joined(now, run, is_new_leader),
            Heard::Control(control) => self.brain.handle_control(now, control),
            Heard::Refused(_) | Heard::Nothing => {}
        }
    }

    fn handle_joined(&mut self, now: Timestamp, run: RunId, is_new_leader: bool) {
        if is_new_leader {
            // What the former leader had assigned goes out, and into the log, under its term.
            self.act();
            self.term = self.icn_link.uplink.term();
        }
        if self.brain.run() != Some(run) {
            info!(%run, "Joined a run");
            self.log.add(&Event::Run {
                run: run.to_string(),
            });
        }
        self.brain.handle_joined(now, run, is_new_leader);
        if self.icn_link.send_leaving(&mut self.transport) {
            self.brain.handle_source_ended();
        }
    }

    /// Closes data streams on which no challenge came. The brain opens them again, and reports an EPN that is not
    /// reached.
    fn give_up_unchallenged(&mut self, now: Timestamp) {
        let is_late = |since: Timestamp| protect!(ChallengeDeadline, when now.since(since) >= CHALLENGE_WITHIN);
        let late = self.unchallenged.iter();
        let late = late.filter(|(_, since)| is_late(**since));
        let late: Vec<ConnId> = late.map(|(conn, _)| *conn).collect();
        for conn in late {
            self.unchallenged.remove(&conn);
            self.transport.close(conn);
            if let Some(target) = self.targets.remove(&conn)
                && self.conns.get(&target) == Some(&conn)
            {
                self.conns.remove(&target);
                self.brain.handle_link_closed(now, target);
            }
        }
    }

    /// Answers the challenge of an EPN. One that comes again is answered already.
    fn greet(&mut self, conn: ConnId, target: Target, nonce: u64) {
        let is_present = self.conns.get(&target) == Some(&conn);
        let Some(run) = self.brain.run() else {
            return;
        };
        if !is_present || self.brain.is_link_open(target) {
            return;
        }
        let hello = DataHello {
            run,
            source: self.source,
            target,
            nonce,
        };
        let frame = Frame::without_body(WireKind::DataHello, hello.encode().into());
        if self.transport.send(conn, frame).is_ok() {
            self.tried.remove(&target);
            self.unchallenged.remove(&conn);
            self.brain.handle_link_opened(target);
        }
    }

    /// Notes that this process had to wait for a processor for `delay`, until just before `now`.
    pub fn handle_run_delay(&mut self, now: Timestamp, delay: Duration) {
        self.icn_link.handle_run_delay(now, delay);
    }

    /// The node is asked to go: it makes nothing more, and is done when all it made is decided.
    pub fn handle_shutdown(&mut self, now: Timestamp) {
        if self.icn_link.leave(now, &mut self.transport) {
            info!(
                held = self.brain.held_stfs(),
                "Leaving: the source stops, the hold drains"
            );
            self.brain.handle_source_ended();
        }
    }

    /// Does all that is to be done now: makes STFs that are due, looks after deadlines, sends.
    ///
    /// # Errors
    ///
    /// [`FlpError`] if the FLP cannot go on.
    pub fn turn(&mut self, now: Timestamp) -> Result<Turn, FlpError> {
        if let Some(refusal) = self.icn_link.take_refusal() {
            return Err(FlpError::Refused(refusal));
        }
        if now.since(self.ticked_at) >= TICK {
            self.ticked_at = now;
            self.is_starved = false;
            self.icn_link.handle_tick(now, &mut self.transport);
            self.peer_guard.tick(now, &mut self.transport);
            self.give_up_unchallenged(now);
            self.brain.handle_run_delay(self.icn_link.patience(now));
            self.brain.handle_tick(now);
            self.refusals.log(now, &self.brain);
        }
        let source_due = self.make(now);
        self.act();
        let pulse = |run_delay_ns| {
            Control::FlpPulse(FlpPulse {
                run_delay_ns,
                ..self.brain.pulse(now)
            })
        };
        self.icn_link.send_pulse(now, &mut self.transport, pulse);
        if self.brain.is_dismissed() || self.may_leave(now) {
            self.log.end();
            return Ok(Turn::Done);
        }
        Ok(Turn::WaitUntil(source_due.min(self.ticked_at + TICK)))
    }

    /// Returns whether no node waits for anything of this FLP any more, or no ICN can be asked.
    fn may_leave(&self, now: Timestamp) -> bool {
        if !self.icn_link.is_leaving() {
            return false;
        }
        let is_alone = self.icn_link.is_alone(now, LEAVE_ALONE_AFTER);
        if is_alone && !self.brain.is_drained() {
            warn!(
                held = self.brain.held_stfs(),
                "Leaving without the ICN's word on what is held"
            );
        }
        is_alone || (self.brain.run().is_none() && self.brain.is_drained())
    }

    /// Makes what is due, within the bounds of a turn. Returns the time of the next turn.
    fn make(&mut self, now: Timestamp) -> Timestamp {
        if let (Input::Fed(feed), Some(run)) = (&self.input, self.brain.run()) {
            feed.note_called(run, self.brain.called());
        }
        let (mut made, mut bytes) = (0, 0);
        while made < MADE_AT_ONCE_MAX && bytes < MADE_BYTES_AT_ONCE_MAX {
            let stf = match &mut self.input {
                Input::Made(_) => match self.brain.demand(now) {
                    Demand::Make(_) if self.is_starved => return now + TICK,
                    Demand::Make(tf) => match self.make_one(tf) {
                        Some(stf) => stf,
                        None => return now + TICK,
                    },
                    Demand::WaitUntil(due) => return due,
                    Demand::Nothing => return now + TICK,
                },
                Input::Fed(feed) => {
                    if self.brain.is_waiting() {
                        offer(&mut self.brain, feed, &mut self.offered, &mut self.served);
                    }
                    if !self.brain.is_running() || !self.brain.has_room(0) {
                        return now + TICK;
                    }
                    match self.offered.take().unwrap_or_else(|| feed.try_next()) {
                        Fed::Stf(stf) => stf,
                        Fed::Counted(stf) => Stf {
                            tf: self.brain.next_tf(),
                            ..stf
                        },
                        Fed::GivenUp(end) => {
                            let reason = DropReason::SourceDisorder;
                            self.brain.handle_given_up(end, reason);
                            continue;
                        }
                        Fed::Left(peer) => {
                            self.served.end(&peer);
                            continue;
                        }
                        Fed::Nothing => return now + TICK,
                        Fed::Ended => {
                            info!("The source has ended");
                            let leaves = feed.is_program();
                            self.brain.handle_source_ended();
                            if leaves {
                                self.icn_link.leave(now, &mut self.transport);
                            }
                            return now + TICK;
                        }
                    }
                }
            };
            made += 1;
            bytes += stf.bytes();
            let tf = stf.tf.0;
            let made_event = Event::Made {
                tf,
                bytes: stf.bytes(),
                digest: stf.digest,
            };
            let given = self.brain.handle_stf(now, stf);
            self.served.count(given);
            match given {
                Given::Made => self.log.add(&made_event),
                // Its event is that of the report to the ICN.
                Given::Skipped => {}
                Given::Refused(refusal) => {
                    let reason = refusal.name().to_owned();
                    self.log.add(&Event::Refused { tf, reason });
                }
            }
        }
        now
    }

    fn make_one(&mut self, tf: TfId) -> Option<Stf> {
        let Input::Made(source) = &mut self.input else {
            return None;
        };
        match source.make(tf, &mut *self.slots) {
            Made::Payload(payload) => Some(Stf {
                tf,
                format: source.format(),
                digest: payload.digest,
                payload: payload.bytes,
            }),
            Made::NoRoom => {
                self.is_starved = true;
                None
            }
            Made::End => {
                info!(next = tf.0, "The source has ended");
                self.brain.handle_source_ended();
                None
            }
        }
    }

    fn act(&mut self) {
        let mut messages = Vec::new();
        let mut words = Vec::new();
        let mut stfs = Vec::new();
        while let Some(action) = self.brain.poll_action() {
            match action {
                Action::Send(control) => {
                    self.log_skips(&control);
                    messages.push(control);
                }
                Action::SendStf {
                    target,
                    header,
                    stf,
                } => stfs.push((target, header, stf)),
                Action::SendToEpn { target, control } => words.push((target, control)),
                Action::Connect { target, address } => self.connect(target, &address),
                Action::Disconnect { target } => {
                    self.tried.remove(&target);
                    if let Some(conn) = self.conns.remove(&target) {
                        self.targets.remove(&conn);
                        self.unchallenged.remove(&conn);
                        self.transport.close(conn);
                    }
                }
            }
        }
        for (target, header, _) in &stfs {
            self.log_sent(*target, header);
        }
        if let Err(error) = self.log.flush() {
            error!(%error, "The event log cannot be written; what it lacks cannot be proved later");
        }
        for control in &messages {
            self.icn_link.uplink.send(&mut self.transport, control);
        }
        for (target, control) in words {
            let sender = self.source.flp.into();
            self.send_to(target, reject::on_data_stream(sender, &control));
        }
        for (target, header, stf) in stfs {
            let head = header.encode().to_vec().into();
            let frame = Frame {
                kind: WireKind::Stf,
                head,
                body: stf.payload,
            };
            self.send_to(target, frame);
        }
    }

    fn log_skips(&mut self, control: &Control) {
        if let Control::Skipped(items) = control {
            for item in items {
                if item.reason == DropReason::SourceOverrun {
                    debug!(tf_id = item.tf.0, "The hold is full: no STF of this TF");
                }
                let reason = item.reason.name().to_owned();
                self.log.add(&Event::Skipped {
                    tf: item.tf.0,
                    reason,
                });
            }
        }
    }

    fn log_sent(&mut self, target: Target, header: &StfHeader) {
        self.log.add(&Event::Sent {
            tf: header.key.tf.0,
            term: self.term.0,
            attempt: header.attempt.0,
            epn: target.epn.0,
            incarnation: target.incarnation.0,
        });
    }

    /// `addresses` are those of one EPN: the pairs of FLPs and EPNs share out its network cards, and one that reached
    /// none takes the next one.
    fn connect(&mut self, target: Target, addresses: &str) {
        let tried = self.tried.entry(target).or_default();
        let address = card_for(addresses, self.source, target, *tried);
        *tried += 1;
        match self.transport.connect_bulk(address) {
            Ok(conn) => {
                self.conns.insert(target, conn);
                self.targets.insert(conn, target);
                self.peer_guard.named(conn, target.epn.into());
            }
            Err(error) => {
                warn!(%target.epn, %error, "Cannot begin a data stream");
                // The brain tries again after a pause, as after a stream that broke.
                let now = self.ticked_at;
                self.brain.handle_link_closed(now, target);
            }
        }
    }

    fn send_to(&mut self, target: Target, frame: Frame) {
        let Some(conn) = self.conns.get(&target).copied() else {
            return;
        };
        if let Err(error) = self.held_back.send(&mut self.transport, conn, frame) {
            warn!(%target.epn, %error, "Not sent");
        }
    }

    fn send_held_back(&mut self, conn: ConnId) {
        let is_decided = |tf| !self.brain.holds(tf);
        let (mut stfs, mut bytes) = (0, 0);
        let cancel = |stf_bytes| {
            stfs += 1;
            bytes += stf_bytes;
        };
        self.held_back
            .send_again(&mut self.transport, conn, is_decided, cancel);
        self.brain.handle_cancelled(stfs, bytes);
    }
}

/// Gives the brain the first STF that `feed` has, before the run has begun, and keeps it until it has.
fn offer(brain: &mut Flp, feed: &mut Feed, offered: &mut Option<Fed>, served: &mut Served) {
    if !feed.has_ids() || (offered.is_none() && feed.awaits_heartbeats()) {
        return brain.handle_offered(TfId(0));
    }
    let fed = offered.get_or_insert_with(|| feed.try_next());
    match fed {
        Fed::Stf(stf) => brain.handle_offered(stf.tf),
        Fed::Counted(_) => brain.handle_offered(TfId(0)),
        Fed::Left(peer) => {
            served.end(peer);
            *offered = None;
        }
        Fed::Nothing | Fed::GivenUp(_) => *offered = None,
        Fed::Ended => {
            *offered = None;
            info!("The source has ended");
            brain.handle_source_ended();
        }
    }
}

/// Returns the address of an EPN that a source takes after `tried` failed attempts.
fn card_for(addresses: &str, source: Source, target: Target, tried: usize) -> &str {
    let turn = usize::from(source.flp.0) + usize::from(target.epn.0) + tried;
    let count = addresses.split(DATA_ADDRESSES_BETWEEN).count();
    let mut cards = addresses.split(DATA_ADDRESSES_BETWEEN);
    cards.nth(turn % count).unwrap_or(addresses)
}

#[cfg(test)]
mod tests;
