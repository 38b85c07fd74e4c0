//! Streams of an EPN to the writer nodes.

mod stored;

use crate::challenge::CHALLENGE_WITHIN;
use crate::event::StreamEvent;
use crate::held_back::HeldBack;
use crate::identity;
use crate::reject::{self, Told};
use crate::sink::Recovered;
use bytes::Bytes;
use sheaf_protocol::control::{Record, StreamFate, TfCopy, WriterHello, WrittenTf};
use sheaf_protocol::{
    Control, Incarnation, NodeId, Role, RunId, StfHeader, StfKey, Target, Tf, TfId, Timestamp,
    WireKind,
};
use sheaf_stf_builder::Backoff;
use sheaf_transport::{CloseReason, ConnId, Event as Net, Frame, Transport};
use sheaf_write::{Handoff, HandoffAction, HandoffId, WriterNews};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use stored::{Published, Publishing, Stored};
use tracing::{debug, error, info, warn};

/// Spans of the pauses before a stream that has closed is opened again: the first, and the longest after doubling.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_LAST: Duration = Duration::from_millis(250);
/// Time without a writer from which on the storage counts as away.
const ALONE_MAX: Duration = Duration::from_millis(500);

/// A TF with which a writer is done.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) tf: Tf<Bytes>,
    pub(super) streams: Vec<StreamEvent>,
}

/// Event of the streams for the node.
#[derive(Debug)]
pub(super) enum LinksEvent {
    /// Written, and committed.
    Done(Done),
    /// Written, and not committed yet.
    Stored(RunId, TfId),
    /// A TF of a former life is committed, or is at no writer.
    Recovered {
        run: RunId,
        tf: TfId,
        incarnation: Incarnation,
        found: Option<Recovered>,
    },
    /// No writer takes TFs: why.
    Stuck(String),
    /// A writer takes TFs again.
    Resumed,
}

#[derive(Debug)]
enum State {
    Down {
        retry_at: Timestamp,
    },
    /// Until the welcome of the writer.
    Greeting {
        conn: ConnId,
        since: Timestamp,
    },
    Open {
        conn: ConnId,
    },
}

/// Stream to one writer.
#[derive(Debug)]
struct Link {
    node: NodeId,
    address: String,
    state: State,
    pause: Backoff,
    /// Lines of the log about a writer that cannot be reached.
    told: Told,
    /// Whether it has said what it holds of former lives.
    has_said_held: bool,
}

impl Link {
    fn conn(&self) -> Option<ConnId> {
        match self.state {
            State::Down { .. } => None,
            State::Greeting { conn, .. } | State::Open { conn } => Some(conn),
        }
    }
}

/// Streams to all writers of the farm, and the TFs that they have not acknowledged.
pub(super) struct Links<T> {
    transport: T,
    target: Target,
    handoff: Handoff,
    links: Vec<Link>,
    tfs: BTreeMap<HandoffId, Tf<Bytes>>,
    /// Frames that streams have no room for.
    held_back: HeldBack,
    stored: BTreeMap<HandoffId, Stored>,
    /// TFs that writers hold of former lives.
    former: BTreeMap<(RunId, TfId), Vec<Stored>>,
    /// TFs that are sent before they are committed.
    held: BTreeSet<HandoffId>,
    /// TFs that are to be published, until their writers have answered.
    publishing: BTreeMap<HandoffId, Publishing>,
    events: VecDeque<LinksEvent>,
    alone_since: Option<Timestamp>,
    is_stuck: bool,
}

fn fate_of(fate: StreamFate) -> StreamEvent {
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    StreamEvent {
        stream: fate.stream,
        shed: some(fate.shed),
        refused: some(fate.refused),
    }
}

impl<T: Transport> Links<T> {
    /// Makes the links of the EPN `target` to the writers at `addresses`, which are opened at the first tick.
    pub(super) fn new(
        transport: T,
        target: Target,
        addresses: Vec<String>,
        handoff: Handoff,
    ) -> Self {
        let link = |(index, address): (u16, String)| Link {
            node: NodeId {
                role: Role::Writer,
                index,
            },
            address,
            state: State::Down {
                retry_at: Timestamp(0),
            },
            pause: Backoff::new(
                PAUSE_FIRST,
                PAUSE_LAST,
                target.incarnation.0 ^ u64::from(index),
            ),
            told: Told::default(),
            has_said_held: false,
        };
        let links: Vec<Link> = (0..).zip(addresses).map(link).collect();
        Self {
            links,
            transport,
            target,
            handoff,
            tfs: BTreeMap::new(),
            held_back: HeldBack::default(),
            stored: BTreeMap::new(),
            former: BTreeMap::new(),
            held: BTreeSet::new(),
            publishing: BTreeMap::new(),
            events: VecDeque::new(),
            alone_since: None,
            is_stuck: false,
        }
    }

    /// Returns the transport.
    pub(super) fn transport(&mut self) -> &mut T {
        &mut self.transport
    }

    /// Returns the chooser of writers, for its counters.
    pub(super) fn handoff(&self) -> &Handoff {
        &self.handoff
    }

    /// Returns the number of writers.
    pub(super) fn writers(&self) -> u16 {
        u16::try_from(self.links.len()).unwrap_or(u16::MAX)
    }

    /// Ends all streams behind what is queued on them.
    pub(super) fn finish(&mut self) {
        for link in &self.links {
            if let Some(conn) = link.conn() {
                self.transport.finish(conn);
            }
        }
    }

    /// Whether no stream is open any more.
    pub(super) fn is_closed(&self) -> bool {
        self.links.iter().all(|link| link.conn().is_none())
    }

    /// Takes a TF: one that is to be written, or one that is stored and committed now.
    pub(super) fn offer(&mut self, tf: Tf<Bytes>) {
        let id = HandoffId::of_tf(&tf);
        if let Some(Stored {
            writer,
            tried,
            copy,
            streams,
            ..
        }) = self.stored.remove(&id)
        {
            let what = Published::Own(Done { tf, streams });
            return self.publish(writer, tried, copy, what);
        }
        self.handoff.offer(id, tf.bytes());
        self.tfs.insert(id, tf);
    }

    /// Takes back TFs that no writer was sent.
    pub(super) fn recall(&mut self, run: RunId, tfs: &BTreeSet<TfId>) -> Vec<Tf<Bytes>> {
        let is_it = |id: &&HandoffId| id.run == run && tfs.contains(&id.tf);
        let ids: Vec<HandoffId> = self.tfs.keys().filter(is_it).copied().collect();
        let unsent = ids.into_iter().filter(|id| self.handoff.recall(*id));
        let unsent: Vec<HandoffId> = unsent.collect();
        unsent.iter().filter_map(|id| self.tfs.remove(id)).collect()
    }

    /// TFs that are here.
    pub(super) fn tfs(&self) -> usize {
        self.tfs.len() + self.publishing.len()
    }

    /// Whether messages wait that writers have to get before the EPN ends.
    pub(super) fn has_messages(&self) -> bool {
        !self.held_back.is_empty()
    }

    /// Whether every writer that can be reached has said what it holds of former lives of this EPN.
    pub(super) fn have_said_held(&self) -> bool {
        self.links.iter().all(|link| link.has_said_held)
    }

    /// Returns the TFs of former lives that writers hold and have not published.
    pub(super) fn former(&self) -> Vec<(RunId, TfId)> {
        let waits = |stored: &Stored| !stored.is_published();
        let former = self.former.iter();
        let former = former.filter(|(_, stored)| stored.iter().any(waits));
        former.map(|(id, _)| *id).collect()
    }

    /// Returns the next event.
    pub(super) fn poll_event(&mut self) -> Option<LinksEvent> {
        self.events.pop_front()
    }

    fn index_of(&self, conn: ConnId) -> Option<u16> {
        let at = self
            .links
            .iter()
            .position(|link| link.conn() == Some(conn))?;
        u16::try_from(at).ok()
    }

    /// Handles an event of the transport.
    pub(super) fn handle(&mut self, now: Timestamp, event: Net) {
        match event {
            Net::Connected { conn } => self.check_peer(conn),
            Net::Received { conn, frame, .. } => self.handle_frame(now, conn, &frame),
            Net::Writable { conn } => self.held_back.send_all_again(&mut self.transport, conn),
            Net::Closed { conn, reason } => self.handle_closed(now, conn, &reason),
            Net::Accepted { conn, .. } => self.transport.close(conn),
            Net::Woken => {}
        }
    }

    fn check_peer(&mut self, conn: ConnId) {
        let Some(writer) = self.index_of(conn) else {
            return;
        };
        let link = &self.links[usize::from(writer)];
        if let Some(detail) = identity::denial(&self.transport, conn, link.node) {
            warn!(writer, detail, "What answers is not this writer");
            self.transport.close(conn);
        }
    }

    fn handle_closed(&mut self, now: Timestamp, conn: ConnId, reason: &CloseReason) {
        let Some(writer) = self.index_of(conn) else {
            return;
        };
        let link = &mut self.links[usize::from(writer)];
        if *reason == CloseReason::ByUs {
            debug!(writer, "The stream to a writer is closed");
        } else if matches!(link.state, State::Open { .. }) {
            warn!(writer, %reason, "The stream to a writer has closed");
        } else if let Some(untold) = link.told.note(now) {
            warn!(writer, address = link.address, %reason, untold, "A writer cannot be reached");
        }
        link.state = State::Down {
            retry_at: now + link.pause.pause(),
        };
        // There may be news when it comes back.
        link.has_said_held = false;
        self.held_back.forget(conn);
        self.handoff.handle_closed(writer);
        for publishing in self.publishing.values_mut() {
            publishing.is_sent &= publishing.writer != writer;
        }
    }

    fn handle_frame(&mut self, now: Timestamp, conn: ConnId, frame: &Frame) {
        let Some(writer) = self.index_of(conn) else {
            return;
        };
        let control = match (frame.kind, Control::decode(&frame.head)) {
            (WireKind::Control, Ok((_, control))) => control,
            (_, Err(error)) => {
                warn!(writer, %error, "A writer sends what cannot be read");
                return self.transport.close(conn);
            }
            _ => return self.transport.close(conn),
        };
        match control {
            Control::Challenge { nonce } => self.greet(conn, writer, nonce),
            Control::WriterWelcome(welcome) => {
                let link = &mut self.links[usize::from(writer)];
                link.state = State::Open { conn };
                link.pause.reset();
                link.told = Told::default();
                self.handoff.handle_welcome(now, writer, welcome);
            }
            Control::WriterPulse(pulse) => self.handoff.handle_pulse(now, writer, &pulse),
            Control::Written(tfs) => {
                for tf in tfs {
                    self.handle_written(now, writer, tf);
                }
            }
            Control::Voided(copies) => self.handoff.handle_voided(writer, &copies),
            Control::Moves(moves) => {
                self.follow(writer, &moves);
                self.handoff.handle_moves(writer, &moves);
            }
            Control::Held(tfs) => self.handle_held(writer, tfs),
            Control::Published(copies) => {
                for copy in &copies {
                    self.handle_published(copy);
                }
            }
            Control::Rejected { code, detail } => reject::log_rejection("a writer", code, &detail),
            other => debug!(message = other.name(), "A message that is not for an EPN"),
        }
    }

    fn greet(&mut self, conn: ConnId, writer: u16, nonce: u64) {
        let hello = WriterHello {
            writer,
            epn: self.target,
            nonce,
        };
        let frame = reject::on_data_stream(self.target.epn.into(), &Control::WriterHello(hello));
        // A stream that takes nothing has closed, which comes as an event.
        let _ = self.transport.send(conn, frame);
    }

    fn handle_written(&mut self, now: Timestamp, writer: u16, written: WrittenTf) {
        let Some(tried) = self.handoff.handle_written(now, writer, &written.copy) else {
            return;
        };
        let id = HandoffId::of(&written.copy);
        let Some(tf) = self.tfs.remove(&id) else {
            return;
        };
        let streams: Vec<StreamEvent> = written.streams.into_iter().map(fate_of).collect();
        if !self.held.remove(&id) {
            self.events
                .push_back(LinksEvent::Done(Done { tf, streams }));
            return;
        }
        let stored = Stored {
            writer,
            tried,
            copy: written.copy,
            streams,
            of: None,
        };
        self.stored.insert(id, stored);
        self.events.push_back(LinksEvent::Stored(id.run, id.tf));
    }

    /// Opens streams that are due, sends TFs, and looks for writers that hang.
    pub(super) fn handle_tick(&mut self, now: Timestamp) {
        for at in 0..self.links.len() {
            self.tick_link(now, at);
        }
        self.move_unpublished();
        self.handoff.handle_tick(now);
        while let Some(action) = self.handoff.poll() {
            self.act(action);
        }
        self.ask_to_publish();
        while let Some(news) = self.handoff.poll_news() {
            self.tell(news);
        }
        self.look_for_writers(now);
    }

    fn tick_link(&mut self, now: Timestamp, at: usize) {
        let link = &mut self.links[at];
        match link.state {
            State::Down { retry_at } if retry_at <= now => {
                match self.transport.connect_bulk(&link.address) {
                    Ok(conn) => link.state = State::Greeting { conn, since: now },
                    Err(error) => {
                        warn!(writer = at, %error, "Cannot begin a stream to a writer");
                        link.state = State::Down {
                            retry_at: now + PAUSE_LAST,
                        };
                    }
                }
            }
            State::Greeting { conn, since } if now.since(since) >= 4 * CHALLENGE_WITHIN => {
                // Its end comes as an event.
                self.transport.close(conn);
            }
            _ => {}
        }
    }

    fn act(&mut self, action: HandoffAction) {
        match action {
            HandoffAction::Send {
                writer,
                copy,
                may_be_here,
                elsewhere,
                is_committed,
            } => self.send_tf(writer, copy, may_be_here, elsewhere, is_committed),
            HandoffAction::Void { writer, copies } => {
                for some in copies.chunks(Control::ENTRIES_MAX) {
                    self.send(writer, &Control::Void(some.to_vec()));
                }
            }
            HandoffAction::Settled { writer, moves } => {
                for some in moves.chunks(Control::ENTRIES_MAX) {
                    self.send(writer, &Control::Settled(some.to_vec()));
                }
            }
            HandoffAction::Close { writer } => {
                let link = &self.links[usize::from(writer)];
                if let Some(conn) = link.conn() {
                    warn!(writer, "A writer is silent; its stream is closed");
                    self.transport.close(conn);
                }
            }
        }
    }

    fn send_tf(
        &mut self,
        writer: u16,
        copy: TfCopy,
        may_be_here: bool,
        elsewhere: Vec<u16>,
        is_committed: bool,
    ) {
        let id = HandoffId::of(&copy);
        let Some(tf) = self.tfs.get(&id) else {
            return;
        };
        let record = Record {
            copy,
            is_redelivered: tf.is_redelivered,
            is_held: self.held.contains(&id),
            is_committed,
            may_be_here,
            parts: u32::try_from(tf.parts.len()).unwrap_or(u32::MAX),
            bytes: tf.bytes(),
            missing: tf.missing.clone(),
            elsewhere,
        };
        let head = reject::on_data_stream(self.target.epn.into(), &Control::Record(record));
        let stfs = tf.parts.iter().map(|part| {
            let header = StfHeader {
                key: StfKey {
                    run: tf.run,
                    tf: tf.tf,
                    source: part.source,
                },
                attempt: tf.attempt,
                format: part.format,
                digest: part.digest,
                payload_bytes: part.bytes,
            };
            Frame {
                kind: WireKind::Stf,
                head: Bytes::copy_from_slice(&header.encode()),
                body: part.payload.clone(),
            }
        });
        let Some(conn) = self.links[usize::from(writer)].conn() else {
            return;
        };
        for frame in std::iter::once(head).chain(stfs) {
            if let Err(error) = self.held_back.send(&mut self.transport, conn, frame) {
                error!(writer, %error, "A TF cannot be sent to a writer");
                return self.transport.close(conn);
            }
        }
    }

    fn send(&mut self, writer: u16, control: &Control) {
        let conn = self.links.get(usize::from(writer)).and_then(Link::conn);
        let frame = reject::on_data_stream(self.target.epn.into(), control);
        if let Some(conn) = conn
            && let Err(error) = self.held_back.send(&mut self.transport, conn, frame)
        {
            error!(writer, %error, "A message cannot be sent to a writer");
            self.transport.close(conn);
        }
    }

    fn tell(&self, news: WriterNews) {
        match news {
            WriterNews::Takes(writer) => info!(writer, "A writer takes TFs"),
            WriterNews::Gone(_, 0) => {}
            WriterNews::Gone(writer, tfs) => {
                warn!(
                    writer,
                    tfs, "TFs that a writer has not acknowledged go to another one"
                );
            }
            WriterNews::Full(writer) => warn!(writer, "The disks of a writer take nothing now"),
            WriterNews::TooLarge(id, bytes) => error!(
                tf_id = id.tf.0,
                bytes,
                "A TF is larger than the window of every writer: raise writer.capacity_bytes"
            ),
        }
    }

    /// Reports when no writer has taken TFs for a while, and when one does again.
    fn look_for_writers(&mut self, now: Timestamp) {
        if self.handoff.can_write() {
            self.alone_since = None;
            if std::mem::take(&mut self.is_stuck) {
                self.events.push_back(LinksEvent::Resumed);
            }
            return;
        }
        let since = *self.alone_since.get_or_insert(now);
        if !self.is_stuck && now.since(since) >= ALONE_MAX && !self.tfs.is_empty() {
            self.is_stuck = true;
            let all: Vec<&str> = self
                .links
                .iter()
                .map(|link| link.address.as_str())
                .collect();
            let why = format!("no writer takes TFs, of those at {}", all.join(", "));
            self.events.push_back(LinksEvent::Stuck(why));
        }
    }
}
