//! The process of an EPN: its brain, its streams, its sink.

use crate::challenge::{Challenges, Nonces};
use crate::digest::PayloadDigest;
use crate::event::{Event, EventLog};
use crate::flp::Turn;
use crate::icn_link::{IcnLink, LEAVE_ALONE_AFTER};
use crate::identity;
use crate::registry::Discovery;
use crate::reject::{self, PeerGuard};
use crate::sink::{SinkEvent, SinkHandle};
use crate::uplink::{Heard, JoinRefusal, Uplink};
use bytes::Bytes;
use sheaf_metrics::Registry;
use sheaf_protocol::Tf;
use sheaf_protocol::control::EpnPulse;
use sheaf_protocol::reject::Code;
use sheaf_protocol::{
    Control, DataHello, NodeId, Role, RunId, Source, StfHeader, Target, TfId, Timestamp, WireKind,
};
use sheaf_tf_builder::{Action, RefusedStf, TfBuilder};
use sheaf_transport::{ConnId, Frame, ListenError, Refusal, Transport};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use thiserror::Error;
use tracing::{debug, error, info, warn};

/// How often deadlines are looked at.
const TICK: Duration = Duration::from_millis(5);

/// Parts that an EPN is made of.
pub struct EpnParts {
    /// Name of the node.
    pub target: Target,
    /// Brain.
    pub brain: TfBuilder<Bytes>,
    /// Consumer.
    pub sink: SinkHandle,
    /// Whether a delivery is acknowledged when the consumer has finished with the TF: ack level `processed`.
    pub acks_processed: bool,
    /// Payloads whose digest it computes.
    pub digest: PayloadDigest,
    /// Stream to the ICN.
    pub uplink: Uplink,
    /// Source of the nonces of its challenges.
    pub nonces: Nonces,
    /// Event log.
    pub log: EventLog,
}

/// Reason for which an EPN ends without being dismissed.
#[derive(Debug, Error)]
pub enum EpnError {
    /// The ICN does not want it.
    #[error("the ICN refuses this EPN: {0}")]
    Refused(JoinRefusal),
    /// Data address that cannot be listened at.
    #[error(transparent)]
    Listen(#[from] ListenError),
}

/// One EPN on any transport. Its driver feeds it events and turns it.
pub struct EpnNode<T> {
    transport: T,
    target: Target,
    brain: TfBuilder<Bytes>,
    sink: SinkHandle,
    acks_processed: bool,
    digest: PayloadDigest,
    icn_link: IcnLink,
    log: EventLog,
    /// Data streams; the source is known from the hello on.
    streams: BTreeMap<ConnId, Option<Source>>,
    /// Committed TFs that the sink's queue has no room for.
    waiting: VecDeque<Tf<Bytes>>,
    received_bytes: u64,
    ticked_at: Timestamp,
    is_dismissed: bool,
    peer_guard: PeerGuard,
    challenges: Challenges,
}

impl<T: Transport> EpnNode<T> {
    /// Puts the parts together. The transport listens at the data address already.
    #[must_use]
    pub fn new(transport: T, parts: EpnParts) -> Self {
        let EpnParts {
            target,
            brain,
            sink,
            acks_processed,
            digest,
            uplink,
            nonces,
            mut log,
        } = parts;
        let node = format!("{}", target.epn);
        log.add(&Event::Begin {
            node,
            incarnation: target.incarnation.0,
        });
        Self {
            transport,
            target,
            brain,
            sink,
            acks_processed,
            digest,
            icn_link: IcnLink::new(uplink),
            log,
            streams: BTreeMap::new(),
            waiting: VecDeque::new(),
            received_bytes: 0,
            ticked_at: Timestamp(0),
            is_dismissed: false,
            peer_guard: PeerGuard::default(),
            challenges: Challenges::new(nonces),
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
    pub fn brain(&self) -> &TfBuilder<Bytes> {
        &self.brain
    }

    /// Takes in what its transport reports.
    pub fn handle(&mut self, now: Timestamp, event: sheaf_transport::Event) {
        use sheaf_transport::Event as Net;
        match event {
            Net::Connected { conn } => {
                let denial = identity::role_denial(&self.transport, conn, Role::Icn);
                if let Some(detail) = denial {
                    self.icn_link.uplink.refuse(conn);
                    self.peer_guard.named(conn, NodeId::ICN);
                    let transport = &mut self.transport;
                    self.peer_guard
                        .reject(now, transport, conn, Code::RoleDenied, &detail);
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
            Net::Accepted { conn, peer, .. } => {
                debug!(peer, "Data stream accepted");
                self.peer_guard.accepted(conn, &peer);
                self.streams.insert(conn, None);
                let challenge = self.challenges.accepted(now, conn);
                self.challenge(conn, &challenge);
            }
            Net::Received {
                conn,
                frame,
                body_digest,
                spent,
            } => {
                self.handle_data(now, conn, frame, body_digest, spent);
            }
            Net::Closed { conn, reason } => {
                self.peer_guard.closed(now, conn, &reason);
                self.challenges.closed(conn);
                if let Some(Some(source)) = self.streams.remove(&conn) {
                    debug!(%source.flp, %reason, "Data stream closed");
                    self.brain.handle_stream_closed(now, source);
                }
            }
            Net::Writable { .. } | Net::Woken => {}
        }
    }

    /// Peers were turned away before they had a stream.
    pub fn handle_refusals(&mut self, now: Timestamp, refusals: Vec<Refusal>) {
        self.peer_guard.turned_away(now, refusals);
    }

    /// Brings the metric of rejected inputs up to date.
    pub fn export_rejected(&self, registry: &Registry) {
        self.peer_guard.export(registry);
    }

    /// How often something was rejected with this code.
    #[must_use]
    pub fn rejected(&self, code: Code) -> u64 {
        self.peer_guard.count(code)
    }

    fn reject(&mut self, now: Timestamp, conn: ConnId, code: Code, detail: &str) {
        self.peer_guard
            .reject(now, &mut self.transport, conn, code, detail);
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
            Heard::Control(control) => self.handle_control(now, control),
            Heard::Refused(_) | Heard::Nothing => {}
        }
    }

    fn handle_joined(&mut self, now: Timestamp, run: RunId, is_new_leader: bool) {
        if self.brain.run() != Some(run) {
            info!(%run, "Joined a run");
            self.log.add(&Event::Run {
                run: run.to_string(),
            });
        }
        self.brain.handle_joined(now, run, is_new_leader);
        self.icn_link.send_leaving(&mut self.transport);
    }

    fn handle_control(&mut self, now: Timestamp, control: Control) {
        match control {
            Control::Roster { id, members } => self.brain.handle_roster(id, &members),
            Control::Assign(items) => self.brain.handle_assign(now, &items),
            Control::Absent(items) => self.brain.handle_absent(now, &items),
            Control::SourceGone { source, roster } => {
                self.brain.handle_source_gone(now, source, roster);
            }
            Control::SourceBack { source, roster } => self.brain.handle_source_back(source, roster),
            Control::Commit(items) => self.brain.handle_commit(now, &items),
            Control::Recover(items) => self.brain.handle_recover(now, &items),
            Control::Recall(tfs) => {
                for tf in self.brain.handle_recall(&tfs) {
                    self.log.add(&Event::Undelivered { tf: tf.0 });
                }
            }
            Control::Discard(tfs) => self.brain.handle_discard(&tfs),
            Control::Release(release) => self.brain.handle_release(&release),
            Control::Dismissed => self.is_dismissed = true,
            // An operator wants this EPN to go.
            Control::Leaving => self.handle_shutdown(now),
            Control::IcnPulse { .. } => {}
            other => debug!(message = other.name(), "A message that is not for an EPN"),
        }
    }

    fn handle_data(
        &mut self,
        now: Timestamp,
        conn: ConnId,
        frame: Frame,
        digest: Option<u32>,
        spent: Duration,
    ) {
        if self.peer_guard.is_rejected(conn) {
            return;
        }
        match frame.kind {
            WireKind::DataHello => self.handle_data_hello(now, conn, &frame),
            WireKind::Stf => self.handle_stf(now, conn, frame, digest, spent),
            WireKind::Control => match Control::decode(&frame.head) {
                Ok((_, Control::Rejected { code, detail })) => {
                    reject::log_rejection("an FLP", code, &detail);
                }
                Ok((_, control)) => self.handle_flp_message(now, conn, &control),
                Err(error) => {
                    self.reject(now, conn, Code::BadMessage, &error.to_string());
                }
            },
            WireKind::Lane => {
                let detail = "a word of transports in a node's frame";
                self.reject(now, conn, Code::WrongStream, detail);
            }
        }
    }

    /// An FLP says what it has, on its data stream.
    fn handle_flp_message(&mut self, now: Timestamp, conn: ConnId, control: &Control) {
        let source = self.streams.get(&conn).copied().flatten();
        match (control, source) {
            (Control::Offer(items), Some(source)) => self.brain.handle_offer(now, source, items),
            (Control::Withdrawn(tfs), Some(source)) => {
                self.brain.handle_withdrawn(now, source, tfs);
            }
            (Control::Offer(_) | Control::Withdrawn(_), None) => {
                self.reject(now, conn, Code::NotJoined, "an offer before hello");
            }
            (other, _) => {
                let detail = format!("{} on a data stream", other.name());
                self.reject(now, conn, Code::WrongStream, &detail);
            }
        }
    }

    fn challenge(&mut self, conn: ConnId, challenge: &Control) {
        let frame = reject::on_data_stream(self.target.epn.into(), challenge);
        // A stream that takes nothing is closed by its silence.
        let _ = self.transport.send(conn, frame);
    }

    fn handle_data_hello(&mut self, now: Timestamp, conn: ConnId, frame: &Frame) {
        let hello = match DataHello::decode(&frame.head) {
            Ok(hello) => hello,
            Err(error) => {
                return self.reject(now, conn, Code::BadMessage, &error.to_string());
            }
        };
        let node = hello.source.flp.into();
        if let Some(detail) = identity::denial(&self.transport, conn, node) {
            return self.reject(now, conn, Code::RoleDenied, &detail);
        }
        if hello.target != self.target {
            let (found, expected) = (hello.target, self.target);
            let detail = format!(
                "found {} in life {}, expected {} in life {}",
                found.epn, found.incarnation.0, expected.epn, expected.incarnation.0
            );
            return self.reject(now, conn, Code::WrongTarget, &detail);
        }
        if let Err(detail) = self.challenges.check(conn, hello.nonce) {
            return self.reject(now, conn, Code::WrongNonce, &detail);
        }
        match self.streams.get_mut(&conn) {
            Some(known @ None) => {
                *known = Some(hello.source);
                self.transport.admit(conn, u32::MAX);
                self.peer_guard.named(conn, node);
                self.brain.handle_stream_opened(hello.source);
            }
            _ => self.reject(
                now,
                conn,
                Code::NotJoined,
                "a second hello on a data stream",
            ),
        }
    }

    fn handle_stf(
        &mut self,
        now: Timestamp,
        conn: ConnId,
        frame: Frame,
        digest: Option<u32>,
        spent: Duration,
    ) {
        let bytes = frame.body.len() as u64;
        self.received_bytes += bytes;
        let header = match StfHeader::decode(&frame.head, bytes) {
            Ok(header) => header,
            Err(error) => {
                self.brain.handle_wrong_size();
                return self.reject(now, conn, Code::BadMessage, &error.to_string());
            }
        };
        let source = header.key.source;
        match self.streams.get(&conn).copied().flatten() {
            Some(known) if known == source => {}
            Some(known) => {
                let detail = format!("an STF of {} on the stream of {}", source.flp, known.flp);
                return self.reject(now, conn, Code::RoleDenied, &detail);
            }
            None => return self.reject(now, conn, Code::NotJoined, "an STF before hello"),
        }
        // A body that lies in memory of the FLP is looked at here for the first time.
        let digest = self.digest.found(digest, &frame.body, header.digest);
        let outcome = self
            .brain
            .handle_stf(now, &header, digest, frame.body, spent);
        let tf = header.key.tf;
        match outcome {
            Err(RefusedStf::BadDigest) => {
                let stated = header.digest;
                let detail = format!("TF {tf} has CRC-32C {digest:08x}, stated is {stated:08x}");
                self.reject(now, conn, Code::BadDigest, &detail);
            }
            Err(RefusedStf::Conflict) => {
                let detail = format!("another payload of TF {tf} is here");
                let transport = &mut self.transport;
                self.peer_guard
                    .object(now, transport, conn, Code::Conflict, &detail);
            }
            Err(RefusedStf::OtherRun) => {
                let detail = format!("an STF of run {}", header.key.run);
                let transport = &mut self.transport;
                self.peer_guard
                    .object(now, transport, conn, Code::OtherRun, &detail);
            }
            _ => {}
        }
    }

    /// This process was kept from working for `late`; call it before the events that it woke for.
    pub fn handle_late(&mut self, late: Duration) {
        self.brain.handle_late(late);
    }

    /// Notes that this process had to wait for a processor for `delay`, until just before `now`.
    pub fn handle_run_delay(&mut self, now: Timestamp, delay: Duration) {
        self.icn_link.handle_run_delay(now, delay);
    }

    /// The node is asked to go: it finishes what it has and takes nothing new.
    pub fn handle_shutdown(&mut self, now: Timestamp) {
        if self.icn_link.leave(now, &mut self.transport) {
            info!(
                open = self.brain.open_tfs(),
                "Leaving: finishing what is here"
            );
        }
    }

    /// Does all that is to be done now: checks deadlines, delivers TFs, reports.
    ///
    /// # Errors
    ///
    /// [`EpnError`] if the EPN cannot go on.
    pub fn turn(&mut self, now: Timestamp) -> Result<Turn, EpnError> {
        if let Some(refusal) = self.icn_link.take_refusal() {
            return Err(EpnError::Refused(refusal));
        }
        if now.since(self.ticked_at) >= TICK {
            self.ticked_at = now;
            self.icn_link.handle_tick(now, &mut self.transport);
            self.peer_guard.tick(now, &mut self.transport);
            for (conn, challenge) in self.challenges.due(now) {
                if !self.peer_guard.is_rejected(conn) {
                    self.challenge(conn, &challenge);
                }
            }
            self.brain.handle_run_delay(self.icn_link.patience(now));
            self.brain.handle_tick(now);
        }
        self.deliver(now);
        self.act(now);
        let pulse = |run_delay_ns| {
            Control::EpnPulse(EpnPulse {
                run_delay_ns,
                ..self.brain.pulse(self.received_bytes)
            })
        };
        self.icn_link.send_pulse(now, &mut self.transport, pulse);
        // An EPN that is in no run yet has nothing that an ICN could ask for.
        let patience = self
            .brain
            .run()
            .map_or(Duration::ZERO, |_| LEAVE_ALONE_AFTER);
        if self.is_dismissed || self.icn_link.is_alone(now, patience) {
            self.sink.finish();
            // What the consumer took last belongs into the log, too.
            self.deliver(now);
            self.act(now);
            self.log.end();
            return Ok(Turn::Done);
        }
        Ok(Turn::WaitUntil(self.ticked_at + TICK))
    }

    fn deliver(&mut self, now: Timestamp) {
        while let Some(tf) = self.waiting.pop_front() {
            if let Err(tf) = self.sink.offer(tf) {
                self.waiting.push_front(tf);
                break;
            }
        }
        while let Some(event) = self.sink.poll() {
            match event {
                SinkEvent::Delivered {
                    run,
                    tf,
                    attempt,
                    is_redelivered,
                    bytes,
                    parts,
                    missing,
                    faults,
                    file,
                    streams,
                    is_held,
                } => {
                    for detail in faults {
                        error!(tf_id = tf.0, detail, "The consumer found a damaged TF");
                        self.log.add(&Event::Fault { tf: tf.0, detail });
                    }
                    if is_held && self.acks_processed {
                        self.brain.handle_held(run, tf, bytes, missing.len());
                    } else {
                        self.brain.handle_delivered(run, tf, bytes, missing.len());
                    }
                    let attempt = attempt.0;
                    self.log.add(&Event::Delivered {
                        tf: tf.0,
                        attempt,
                        redelivered: is_redelivered,
                        parts,
                        missing,
                        file,
                        streams,
                        held: is_held,
                    });
                }
                SinkEvent::Freed { bytes, held } => {
                    if let Some((run, tf)) = held
                        && self.brain.run() == Some(run)
                    {
                        self.log.add(&Event::Freed { tf: tf.0 });
                        self.brain.handle_processed(run, tf);
                    }
                    self.brain.handle_sink_freed(now, bytes);
                }
                SinkEvent::TakenAgain { run, tf } => {
                    if self.brain.run() == Some(run) {
                        self.log.add(&Event::TakenAgain { tf: tf.0 });
                    }
                }
                SinkEvent::Returned { run, tf, bytes, .. } => {
                    self.handle_returned(run, tf, bytes);
                }
                SinkEvent::Stored { run, tf } => self.brain.handle_stored(now, run, tf),
                SinkEvent::Recovered {
                    run,
                    tf,
                    incarnation,
                    found,
                } => self.handle_recovered(run, tf, incarnation.0, found),
                SinkEvent::Resumed => {
                    if self.brain.is_storage_full() {
                        info!("The storage takes TFs again");
                    }
                    self.brain.set_storage_full(false);
                }
                SinkEvent::Failed {
                    tf,
                    error,
                    is_storage,
                } => {
                    self.brain.set_storage_full(is_storage);
                    warn!(
                        tf_id = tf.0,
                        error, "The sink cannot take a TF now; it is tried again"
                    );
                }
            }
        }
    }

    /// Takes committed TFs back, here and from the queue of the sink.
    fn recall(&mut self, run: RunId, tfs: &[TfId]) {
        let tfs: BTreeSet<TfId> = tfs.iter().copied().collect();
        let is_recalled = |tf: &Tf<Bytes>| tf.run == run && tfs.contains(&tf.tf);
        let waiting = std::mem::take(&mut self.waiting);
        for tf in waiting {
            if is_recalled(&tf) {
                self.handle_returned(run, tf.tf, tf.bytes());
            } else {
                self.waiting.push_back(tf);
            }
        }
        self.sink.recall(run, &tfs);
    }

    /// Handles a TF that was taken back, and that no consumer has.
    fn handle_returned(&mut self, run: RunId, tf: TfId, bytes: u64) {
        if self.brain.run() == Some(run) {
            self.log.add(&Event::Undelivered { tf: tf.0 });
        }
        self.brain.handle_returned(run, tf, bytes);
    }

    /// A former life of this EPN has built it; this one has made it visible, or cannot.
    fn handle_recovered(
        &mut self,
        run: RunId,
        tf: TfId,
        incarnation: u64,
        found: Option<crate::sink::Recovered>,
    ) {
        self.brain.handle_recovered(run, tf, found.is_some());
        match found {
            Some(found) => {
                info!(
                    tf_id = tf.0,
                    "A TF that a former life had stored is published"
                );
                self.log.add(&Event::Recovered {
                    tf: tf.0,
                    incarnation,
                    attempt: found.attempt.0,
                    parts: found.parts,
                    missing: found.missing,
                    streams: found.streams,
                });
            }
            None => warn!(
                tf_id = tf.0,
                "A TF that a former life was to deliver is not on the disk, or not complete"
            ),
        }
    }

    fn act(&mut self, now: Timestamp) {
        let mut messages = Vec::new();
        loop {
            match self.brain.poll_action() {
                Some(Action::SendToFlp { source, control }) => self.send_to_flp(source, &control),
                Some(Action::Deliver(tf)) => {
                    self.waiting.push_back(tf);
                    self.deliver(now);
                }
                Some(Action::Recall { run, tfs }) => {
                    self.recall(run, &tfs);
                    self.deliver(now);
                }
                Some(Action::Store(tf)) => self.sink.store(tf),
                Some(Action::Unstore { run, tf, by_former }) => {
                    self.sink.unstore(run, tf, by_former);
                }
                Some(Action::Recover { run, item }) => self.sink.recover(run, item),
                Some(Action::Send(control)) => messages.push(control),
                None => break,
            }
        }
        // A TF counts as delivered when the log has it: the receiver of the acknowledgement can read it there.
        if let Err(error) = self.log.flush() {
            error!(%error, "The event log cannot be written; what it lacks cannot be proved later");
        }
        for control in &messages {
            self.icn_link.uplink.send(&mut self.transport, control);
        }
    }

    /// On the newest data stream of the FLP. What a full stream does not take is asked for again when it is overdue.
    fn send_to_flp(&mut self, source: Source, control: &Control) {
        let mut streams = self.streams.iter().rev();
        let newest = streams.find(|(_, known)| **known == Some(source));
        if let Some((conn, _)) = newest {
            let frame = reject::on_data_stream(self.target.epn.into(), control);
            let _ = self.transport.send(*conn, frame);
        }
    }

    /// The run that it builds for.
    #[must_use]
    pub fn run(&self) -> Option<RunId> {
        self.brain.run()
    }
}
