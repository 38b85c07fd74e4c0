//! The process of a writer node: takes built TFs from EPNs, and writes them to files of streams.
//!
//! [`Receipts`] decides what becomes of a TF that comes in; the sink `streams` writes; the rows that have to outlive
//! the process are kept by a [`CopyKeeper`]. An EPN is answered when its TF is written as the durability of the files
//! demands, and when what concerns it is in that table.

mod counts;
mod incoming;

use crate::challenge::{Challenges, Nonces};
use crate::event::{Event, EventLog, StreamEvent};
use crate::flp::Turn;
use crate::health::{Health, Standing};
use crate::held_back::HeldBack;
use crate::identity;
use crate::reject::{self, PeerGuard};
use crate::sink::{SinkEvent, SinkHandle};
use bytes::Bytes;
use counts::Counts;
pub(crate) use counts::METRICS;
use incoming::Peer;
use sheaf_metrics::Registry;
use sheaf_protocol::control::{
    StreamFate, TfCopy, WriterHello, WriterPulse, WriterWelcome, WrittenTf,
};
use sheaf_protocol::reject::Code;
use sheaf_protocol::{Control, Incarnation, NodeId, Role, RunId, Term, Tf, Timestamp, WireKind};
use sheaf_stream_files::{CatalogueError, CopyTable};
use sheaf_transport::{ConnId, Event as Net, Frame, Refusal, Transport};
use sheaf_write::{CopyRow, HandoffId, ReceiptAction, Receipts};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tracing::{debug, error, info, warn};

/// How often deadlines are looked at.
const TICK: Duration = Duration::from_millis(5);
/// Period at which moves that are not settled are repeated.
const REPEAT_MOVES: Duration = Duration::from_secs(1);
/// Longest time for which a writer that is asked to end waits for what is on its way.
const LEAVE_WITHIN: Duration = Duration::from_secs(10);

/// Keeper of the rows that have to outlive a writer.
pub trait CopyKeeper: Send {
    /// Keeps rows, and removes those without a value, all or none.
    ///
    /// # Errors
    ///
    /// Error of the catalogue; it is tried again.
    fn keep(&mut self, rows: &BTreeMap<HandoffId, Option<CopyRow>>) -> Result<(), CatalogueError>;
}

impl CopyKeeper for CopyTable {
    fn keep(&mut self, rows: &BTreeMap<HandoffId, Option<CopyRow>>) -> Result<(), CatalogueError> {
        CopyTable::keep(self, rows)
    }
}

/// Parts that a writer node is made of.
pub struct WriterParts {
    /// Index of the writer.
    pub index: u16,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// Files.
    pub sink: SinkHandle,
    /// Rows of former lives.
    pub rows: Vec<(HandoffId, CopyRow)>,
    /// Rows of published TFs that are kept for each EPN, as of [`Receipts::new`].
    pub published_max: usize,
    /// Where rows are kept.
    pub keeper: Box<dyn CopyKeeper>,
    /// Payload bytes that may be with the writer.
    pub capacity_bytes: u64,
    /// Share of them that one EPN may have with it.
    pub window_bytes: u64,
    /// TFs that one EPN may have with the writer.
    pub window_tfs: u32,
    /// Period of pulses.
    pub pulse: Duration,
    /// Source of the nonces of its challenges.
    pub nonces: Nonces,
    /// Event log.
    pub log: EventLog,
}

/// One writer node on any transport. Its driver feeds it events and turns it.
pub struct WriterNode<T> {
    transport: T,
    node: NodeId,
    sink: SinkHandle,
    receipts: Receipts<ConnId>,
    keeper: Box<dyn CopyKeeper>,
    welcome: WriterWelcome,
    capacity_bytes: u64,
    peers: BTreeMap<ConnId, Peer>,
    /// Messages that streams have no room for.
    held_back: HeldBack,
    /// TFs that the sink has no room for, and whether files may have them.
    waiting: VecDeque<(Tf<Bytes>, bool)>,
    /// Rows that could not be kept yet.
    rows: BTreeMap<HandoffId, Option<CopyRow>>,
    /// Answers that wait for the rows.
    written: Vec<(ConnId, WrittenTf)>,
    voided: Vec<(ConnId, TfCopy)>,
    published: Vec<(ConnId, TfCopy)>,
    queued_bytes: u64,
    is_full: bool,
    leaving_since: Option<Timestamp>,
    pulsed_at: Timestamp,
    repeated_at: Timestamp,
    ticked_at: Timestamp,
    run_delay: Duration,
    failed_at: Option<Timestamp>,
    counts: Counts,
    peer_guard: PeerGuard,
    challenges: Challenges,
    health: Option<Arc<Health>>,
    log: EventLog,
}

impl<T: Transport> WriterNode<T> {
    /// Puts the parts together. The transport listens already.
    #[must_use]
    pub fn new(transport: T, parts: WriterParts) -> Self {
        let node = NodeId {
            role: Role::Writer,
            index: parts.index,
        };
        let mut log = parts.log;
        log.add(&Event::Begin {
            node: node.to_string(),
            incarnation: parts.incarnation.0,
        });
        let welcome = WriterWelcome {
            incarnation: parts.incarnation,
            window_bytes: parts.window_bytes,
            window_tfs: parts.window_tfs,
            pulse_ns: u64::try_from(parts.pulse.as_nanos()).unwrap_or(u64::MAX),
        };
        Self {
            transport,
            node,
            sink: parts.sink,
            receipts: Receipts::new(parts.rows, parts.published_max),
            keeper: parts.keeper,
            welcome,
            capacity_bytes: parts.capacity_bytes,
            peers: BTreeMap::new(),
            held_back: HeldBack::default(),
            waiting: VecDeque::new(),
            rows: BTreeMap::new(),
            written: Vec::new(),
            voided: Vec::new(),
            published: Vec::new(),
            queued_bytes: 0,
            is_full: false,
            leaving_since: None,
            pulsed_at: Timestamp(0),
            repeated_at: Timestamp(0),
            ticked_at: Timestamp(0),
            run_delay: Duration::ZERO,
            failed_at: None,
            counts: Counts::default(),
            peer_guard: PeerGuard::default(),
            challenges: Challenges::new(parts.nonces),
            health: None,
            log,
        }
    }

    /// Notes the standing of the node in `health`, for supervisors.
    pub(crate) fn noted_in(mut self, health: Arc<Health>) -> Self {
        self.health = Some(health);
        self
    }

    /// Returns the transport.
    pub fn transport(&mut self) -> &mut T {
        &mut self.transport
    }

    /// Returns the event log.
    pub fn log(&mut self) -> &mut EventLog {
        &mut self.log
    }

    /// Takes in what its transport reports.
    pub fn handle(&mut self, now: Timestamp, event: Net) {
        match event {
            Net::Accepted { conn, peer, .. } => {
                self.peer_guard.accepted(conn, &peer);
                self.peers.insert(conn, Peer::default());
                let challenge = self.challenges.accepted(now, conn);
                self.send(conn, &challenge);
            }
            Net::Received {
                conn,
                frame,
                body_digest,
                ..
            } => self.handle_frame(now, conn, frame, body_digest),
            Net::Writable { conn } => self.held_back.send_all_again(&mut self.transport, conn),
            Net::Closed { conn, reason } => {
                self.peer_guard.closed(now, conn, &reason);
                self.challenges.closed(conn);
                self.held_back.forget(conn);
                if let Some(Some(epn)) = self.peers.remove(&conn).map(|peer| peer.epn) {
                    debug!(%epn.epn, %reason, "The stream of an EPN has closed");
                }
            }
            Net::Connected { conn } => self.transport.close(conn),
            Net::Woken => {}
        }
    }

    /// Peers were turned away before they had a stream.
    pub fn handle_refusals(&mut self, now: Timestamp, refusals: Vec<Refusal>) {
        self.peer_guard.turned_away(now, refusals);
    }

    /// Notes that this process had to wait for a processor for `delay`.
    pub fn handle_run_delay(&mut self, delay: Duration) {
        self.run_delay = self.run_delay.max(delay);
    }

    /// The node is asked to go: it writes what it has, and takes nothing new.
    pub fn handle_shutdown(&mut self, now: Timestamp) {
        info!(
            tfs = self.receipts.writing(),
            "Leaving: writing what is here"
        );
        self.leaving_since = Some(now);
        self.pulsed_at = Timestamp(0);
    }

    /// Brings the metrics of the node up to date.
    pub fn export(&self, registry: &Registry) {
        let epns = self.peers.values().filter(|peer| peer.epn.is_some());
        self.counts
            .export(registry, epns.count(), self.queued_bytes);
        self.peer_guard.export(registry);
    }

    fn reject(&mut self, now: Timestamp, conn: ConnId, code: Code, detail: &str) {
        self.peer_guard
            .reject(now, &mut self.transport, conn, code, detail);
    }

    fn send(&mut self, conn: ConnId, control: &Control) {
        let frame = reject::on_data_stream(self.node, control);
        // Messages are within the limits; a stream that has closed is reported as such.
        if self.peers.contains_key(&conn) {
            let _ = self.held_back.send(&mut self.transport, conn, frame);
        }
    }

    fn handle_frame(&mut self, now: Timestamp, conn: ConnId, frame: Frame, digest: Option<u32>) {
        if self.peer_guard.is_rejected(conn) {
            return;
        }
        match frame.kind {
            WireKind::Control => match Control::decode(&frame.head) {
                Ok((_, control)) => self.handle_control(now, conn, control),
                Err(error) => self.reject(now, conn, Code::BadMessage, &error.to_string()),
            },
            WireKind::Stf => self.handle_stf(now, conn, frame, digest),
            WireKind::DataHello | WireKind::Lane => {
                let detail = "a frame that is not for a writer";
                self.reject(now, conn, Code::WrongStream, detail);
            }
        }
    }

    fn handle_control(&mut self, now: Timestamp, conn: ConnId, control: Control) {
        let peer = self.peers.get(&conn);
        let epn = peer.and_then(|peer| peer.epn);
        let is_between = peer.is_some_and(|peer| peer.arriving.is_some());
        match (control, epn) {
            (Control::WriterHello(hello), None) => self.handle_hello(now, conn, &hello),
            (Control::Rejected { code, detail }, _) => {
                reject::log_rejection("an EPN", code, &detail);
            }
            (control, None) => {
                let detail = format!("{} before hello", control.name());
                self.reject(now, conn, Code::NotJoined, &detail);
            }
            (control, Some(_)) if is_between => {
                let detail = format!("{} between the STFs of a TF", control.name());
                self.reject(now, conn, Code::WrongStream, &detail);
            }
            (Control::Record(record), Some(epn)) => self.handle_record(now, conn, epn, record),
            (Control::Void(copies), Some(_)) => {
                for copy in &copies {
                    self.receipts.handle_void(conn, copy);
                }
            }
            (Control::Settled(moves), Some(_)) => self.receipts.handle_settled(&moves),
            (Control::Publish(copies), Some(_)) => {
                for copy in &copies {
                    self.receipts.handle_publish(conn, copy);
                }
            }
            (other, Some(_)) => {
                let detail = format!("{} on a stream of a writer", other.name());
                self.reject(now, conn, Code::WrongStream, &detail);
            }
        }
    }

    fn handle_hello(&mut self, now: Timestamp, conn: ConnId, hello: &WriterHello) {
        let node = hello.epn.epn.into();
        if let Some(detail) = identity::denial(&self.transport, conn, node) {
            return self.reject(now, conn, Code::RoleDenied, &detail);
        }
        if hello.writer != self.node.index {
            let detail = format!(
                "found a hello for writer:{}, this is {}",
                hello.writer, self.node
            );
            return self.reject(now, conn, Code::WrongTarget, &detail);
        }
        if let Err(detail) = self.challenges.check(conn, hello.nonce) {
            return self.reject(now, conn, Code::WrongNonce, &detail);
        }
        let Some(peer) = self.peers.get_mut(&conn) else {
            return;
        };
        peer.epn = Some(hello.epn);
        self.transport.admit(conn, u32::MAX);
        self.peer_guard.named(conn, node);
        info!(epn = %hello.epn.epn, "An EPN hands TFs over");
        self.send(conn, &Control::WriterWelcome(self.welcome));
        self.send_moves(conn);
        let mut held = self.receipts.held_before(hello.epn);
        // An empty list is the end.
        while !held.is_empty() {
            let rest = held.split_off(held.len().min(HELD_AT_ONCE));
            self.send(conn, &Control::Held(held));
            held = rest;
        }
        self.send(conn, &Control::Held(Vec::new()));
        self.pulse(Some(conn));
    }

    /// Does all that is to be done now: writes, answers, sends pulses.
    pub fn turn(&mut self, now: Timestamp) -> Turn {
        if now.since(self.ticked_at) >= TICK {
            self.ticked_at = now;
            self.peer_guard.tick(now, &mut self.transport);
            for (conn, challenge) in self.challenges.due(now) {
                if !self.peer_guard.is_rejected(conn) {
                    self.send(conn, &challenge);
                }
            }
        }
        self.take_events();
        self.act(now);
        self.offer();
        if now.since(self.pulsed_at) >= Duration::from_nanos(self.welcome.pulse_ns) {
            self.pulsed_at = now;
            self.note_standing();
            self.pulse(None);
            self.run_delay = Duration::ZERO;
        }
        if now.since(self.repeated_at) >= REPEAT_MOVES {
            self.repeated_at = now;
            self.repeat_moves();
        }
        if self.leaves(now) {
            self.sink.finish();
            self.take_events();
            self.act(now);
            self.log.end();
            return Turn::Done;
        }
        Turn::WaitUntil(self.ticked_at + TICK)
    }

    /// Whether the node has written all that it had, or has waited long enough for that.
    fn leaves(&self, now: Timestamp) -> bool {
        let Some(since) = self.leaving_since else {
            return false;
        };
        let is_arriving = self.peers.values().any(|peer| peer.arriving.is_some());
        let has_answers = !self.written.is_empty()
            || !self.voided.is_empty()
            || !self.published.is_empty()
            || !self.held_back.is_empty();
        let is_idle = self.receipts.writing() == 0 && !is_arriving && !has_answers;
        // EPNs have to hear that it leaves before it does.
        let has_said = now.since(since) >= Duration::from_nanos(2 * self.welcome.pulse_ns);
        (is_idle && has_said) || now.since(since) >= LEAVE_WITHIN
    }

    /// Gives TFs to the sink, whose rows are kept.
    fn offer(&mut self) {
        if !self.rows.is_empty() {
            return;
        }
        while let Some((tf, may_be_here)) = self.waiting.pop_front() {
            let offered = match may_be_here {
                true => self.sink.offer_again(tf),
                false => self.sink.offer(tf),
            };
            if let Err(tf) = offered {
                self.waiting.push_front((tf, may_be_here));
                return;
            }
        }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.sink.poll() {
            match event {
                SinkEvent::Delivered {
                    run,
                    tf,
                    attempt,
                    streams,
                    faults,
                    ..
                } => {
                    for detail in faults {
                        error!(tf_id = tf.0, detail, "A TF from an EPN is damaged");
                    }
                    let fates = streams.into_iter().map(fate_of).collect();
                    let id = HandoffId { run, tf, attempt };
                    self.receipts.handle_written(id, fates);
                }
                SinkEvent::Freed { bytes, .. } => {
                    self.queued_bytes = self.queued_bytes.saturating_sub(bytes);
                }
                SinkEvent::Returned {
                    run,
                    tf,
                    attempt,
                    bytes,
                } => {
                    self.queued_bytes = self.queued_bytes.saturating_sub(bytes);
                    self.receipts
                        .handle_returned(HandoffId { run, tf, attempt });
                }
                SinkEvent::Failed { error, .. } => {
                    warn!(error, "The disks take nothing now");
                    self.is_full = true;
                    self.pulsed_at = Timestamp(0);
                }
                SinkEvent::Resumed => {
                    info!("The disks take TFs again");
                    self.is_full = false;
                    self.pulsed_at = Timestamp(0);
                }
                SinkEvent::Stored { .. }
                | SinkEvent::Recovered { .. }
                | SinkEvent::TakenAgain { .. } => {}
            }
        }
    }

    /// Carries out the orders of the receipts: keeps rows first, and then answers.
    fn act(&mut self, now: Timestamp) {
        while let Some(action) = self.receipts.poll() {
            match action {
                ReceiptAction::Keep { id, row } => {
                    self.rows.insert(id, row);
                }
                ReceiptAction::Written { to, tf } => self.written.push((to, tf)),
                ReceiptAction::Voided { to, copy } => self.voided.push((to, copy)),
                ReceiptAction::Published { to, copy } => self.published.push((to, copy)),
                ReceiptAction::Recall { id } => self.recall(id),
            }
        }
        if !self.rows.is_empty() && !self.keep(now) {
            return;
        }
        let mut written: BTreeMap<ConnId, Vec<WrittenTf>> = BTreeMap::new();
        for (to, tf) in std::mem::take(&mut self.written) {
            self.counts.written += 1;
            if !self.peers.contains_key(&to) {
                self.tell_next_life(HandoffId::of(&tf.copy));
            }
            written.entry(to).or_default().push(tf);
        }
        for (conn, tfs) in written {
            for some in tfs.chunks(WRITTEN_AT_ONCE) {
                self.send(conn, &Control::Written(some.to_vec()));
            }
        }
        let voided = std::mem::take(&mut self.voided);
        self.counts.void += u64::try_from(voided.len()).unwrap_or(u64::MAX);
        self.answer(voided, Control::Voided);
        let published = std::mem::take(&mut self.published);
        self.answer(published, Control::Published);
    }

    /// Tells the present life of an EPN of a TF that a former one has sent, and that was not written when it came.
    fn tell_next_life(&mut self, id: HandoffId) {
        let held = self.peers.iter().find_map(|(conn, peer)| {
            let held = self.receipts.one_held_before(id, peer.epn?)?;
            Some((*conn, held))
        });
        if let Some((conn, held)) = held {
            self.send(conn, &Control::Held(vec![held]));
        }
    }

    /// Sends answers about copies, those of one stream together.
    fn answer(&mut self, answers: Vec<(ConnId, TfCopy)>, of: impl Fn(Vec<TfCopy>) -> Control) {
        let mut all: BTreeMap<ConnId, Vec<TfCopy>> = BTreeMap::new();
        for (to, copy) in answers {
            all.entry(to).or_default().push(copy);
        }
        for (conn, copies) in all {
            for some in copies.chunks(Control::ENTRIES_MAX) {
                self.send(conn, &of(some.to_vec()));
            }
        }
    }

    fn recall(&mut self, id: HandoffId) {
        let is_it = |tf: &Tf<Bytes>| (tf.run, tf.tf, tf.attempt) == (id.run, id.tf, id.attempt);
        let here = self.waiting.iter().position(|(tf, _)| is_it(tf));
        if let Some((tf, _)) = here.and_then(|at| self.waiting.remove(at)) {
            self.queued_bytes = self.queued_bytes.saturating_sub(tf.bytes());
            self.receipts.handle_returned(id);
        } else {
            self.sink.recall_one(id);
        }
    }

    /// Keeps the rows that are not kept yet; `false` if the catalogue cannot be written now.
    fn keep(&mut self, now: Timestamp) -> bool {
        let pause = Duration::from_millis(100);
        if self.failed_at.is_some_and(|at| now.since(at) < pause) {
            return false;
        }
        match self.keeper.keep(&self.rows) {
            Ok(()) => {
                if self.failed_at.take().is_some() {
                    info!("The catalogue can be written again");
                }
                self.rows.clear();
                true
            }
            Err(error) => {
                if self.failed_at.replace(now).is_none() {
                    warn!(%error, "The catalogue cannot be written; it is tried again");
                }
                false
            }
        }
    }

    /// Notes what the node does.
    fn note_standing(&self) {
        let phase = match (self.leaving_since, self.is_stopped()) {
            (Some(_), _) => "draining",
            (None, true) => "full",
            (None, false) => "writing",
        };
        if let Some(health) = &self.health {
            health.stand(Standing {
                phase,
                is_ready: phase == "writing",
                run: RunId(0),
                term: Term(0),
            });
        }
    }

    /// Whether nothing can be written now.
    fn is_stopped(&self) -> bool {
        self.is_full || self.failed_at.is_some()
    }

    /// Sends an EPN the moves that are not settled.
    fn send_moves(&mut self, conn: ConnId) {
        let moves = self.receipts.moves();
        for some in moves.chunks(Control::ENTRIES_MAX) {
            self.send(conn, &Control::Moves(some.to_vec()));
        }
    }

    /// Repeats moves that are not settled to all EPNs: the one that has moved a TF may be gone.
    fn repeat_moves(&mut self) {
        let idle = self.peers.iter();
        let idle = idle.filter(|(conn, peer)| peer.epn.is_some() && !self.held_back.has(**conn));
        let conns: Vec<ConnId> = idle.map(|(conn, _)| *conn).collect();
        for conn in conns {
            self.send_moves(conn);
        }
    }

    /// Sends a pulse to one EPN, or to all.
    fn pulse(&mut self, to: Option<ConnId>) {
        let pulse = WriterPulse {
            queued_tfs: u64::try_from(self.receipts.writing()).unwrap_or(u64::MAX),
            queued_bytes: self.queued_bytes,
            capacity_bytes: self.capacity_bytes,
            is_full: self.is_stopped(),
            is_leaving: self.leaving_since.is_some(),
            run_delay_ns: u64::try_from(self.run_delay.as_nanos()).unwrap_or(u64::MAX),
        };
        let open = self.peers.iter().filter(|(_, peer)| peer.epn.is_some());
        let open = open.map(|(conn, _)| *conn);
        let conns: Vec<ConnId> = match to {
            Some(conn) => vec![conn],
            None => open.collect(),
        };
        for conn in conns {
            // Behind what waits already one more pulse says nothing.
            if !self.held_back.has(conn) {
                self.send(conn, &Control::WriterPulse(pulse));
            }
        }
    }
}

/// Held TFs in one message, each with the list of its STFs.
const HELD_AT_ONCE: usize = 64;
/// Acknowledgements in one message, each with the fates in all streams.
const WRITTEN_AT_ONCE: usize = 64;

fn fate_of(event: StreamEvent) -> StreamFate {
    let text = |mut text: String| {
        text.truncate(text.floor_char_boundary(Control::TEXT_BYTES_MAX));
        text
    };
    StreamFate {
        stream: text(event.stream),
        shed: text(event.shed.unwrap_or_default()),
        refused: text(event.refused.unwrap_or_default()),
    }
}

#[cfg(test)]
pub(crate) mod tests;
