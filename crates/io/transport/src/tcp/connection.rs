//! One connection and its turn.

mod lane;
mod read;
mod sealed;

use super::bodies::Bodies;
use super::config::TcpConfig;
use super::connect_retry::ConnectRetry;
use super::inbox::Inbox;
use super::kernel_tls;
use super::outbox::Outbox;
use super::session::{Protection, Session};
use super::stats::Stats;
use super::stream::Stream;
use super::zero_copy::ZeroCopy;
use crate::shm::meeting::Offer;
use crate::transport::{CloseReason, ConnId, Event, ListenerId, TlsFailure};
use sheaf_auth::Identity;
use sheaf_protocol::Limits;
use socket2::SockRef;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Shutdown};
use std::time::{Duration, Instant};

pub(crate) use lane::{LaneIn, OFFER, OPEN};
pub(crate) use sealed::CIPHER_BYTES;

/// Bytes that one connection may read, and write, before the next one has its turn.
const TURN_BYTES: usize = 1 << 20;

/// Bytes that one system call offers to the kernel.
const WRITE_BYTES: usize = 1 << 20;

/// The buffer for what is not the rest of a body.
pub(crate) const BUFFER_BYTES: usize = 256 << 10;

/// State that the connections of an endpoint share.
pub(crate) struct Shared {
    pub(crate) config: TcpConfig,
    pub(crate) limits: Limits,
    pub(crate) stats: Stats,
    pub(crate) bodies: Bodies,
    pub(crate) buffer: Box<[u8]>,
    /// Where a batch is encrypted. Empty where no connection has a session.
    pub(crate) cipher: Box<[u8]>,
    pub(crate) protection: Protection,
    /// Lanes that peers have offered since the last turns.
    pub(crate) offers: Vec<(ConnId, Offer)>,
}

/// Side that made a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Accepting,
    Connecting,
}

/// One connection: its socket, what comes in, what goes out, and how far it is.
pub(crate) struct Connection {
    pub(crate) id: ConnId,
    pub(crate) side: Side,
    /// Address that an accepted connection is counted for.
    pub(crate) ip: Option<IpAddr>,
    /// Whether it carries bulk data.
    pub(crate) is_bulk: bool,
    pub(crate) outbox: Outbox,
    /// Incoming lane.
    pub(crate) lane: Option<Box<LaneIn>>,
    stream: Stream,
    /// The TLS session; `None` on a plain connection.
    session: Option<Box<Session>>,
    /// Sends that the kernel does not copy; `None` where it would after all.
    zero_copy: Option<ZeroCopy>,
    inbox: Inbox,
    /// Bytes that were read and cannot be taken yet, because a body before them waits for its place.
    backlog: Vec<u8>,
    /// Whether the connection stands. False only while we connect.
    stands: bool,
    /// Where it goes, while we connect.
    pub(crate) connect_retry: Option<ConnectRetry>,
    /// Whether the socket may have something to read, or room to write, as far as we know. epoll is
    /// edge-triggered: it tells once, and we must remember until the kernel says no.
    readable: bool,
    writable: bool,
    /// The kernel has something to say about memory that it reads.
    is_told: bool,
    /// The peer's end or an error stands in the queue, of which epoll tells only once: read on until it comes.
    ending: bool,
    /// Frames that came in, and the bytes of the last one's body, as the next one is probably like it.
    frames_in: u64,
    body_bytes_before: usize,
    /// When it was accepted or begun, and when something last moved in each direction.
    opened: Instant,
    moved_in: Instant,
    moved_out: Instant,
    /// End of sending: [`finish`](Connection::finish) was called.
    finishing: bool,
    /// Our end was sent.
    finished: bool,
    /// The socket's sending side is shut behind it.
    is_shut: bool,
    /// The peer sends no more.
    peer_finished: bool,
    /// Whether the end of the peer waits for a word of the caller, who may have queued frames that are not here yet.
    awaits_caller: bool,
    /// Whether the caller was asked for it.
    has_asked: bool,
    /// When the send buffer is looked at again, which was too full for our end.
    room_at: Option<Instant>,
    /// Writing failed. What came before is still read, then the connection closes with this.
    broken: Option<CloseReason>,
    /// Whether the connection is on the list of those that want a turn.
    pub(crate) listed: bool,
    /// Whether it is on the list of those that wait for a place for a body.
    pub(crate) waiting: bool,
}

impl Connection {
    pub(crate) fn new(
        id: ConnId,
        side: Side,
        stream: Stream,
        session: Option<Session>,
        config: &TcpConfig,
        now: Instant,
    ) -> Self {
        let mut inbox = Inbox::new(now);
        if side == Side::Connecting || !config.awaits_admission {
            inbox.admit(config.limits.head_bytes_max);
        }
        Self {
            id,
            side,
            ip: None,
            is_bulk: false,
            lane: None,
            outbox: Outbox::new(config.queue_bytes_max, config.when_full),
            stream,
            session: session.map(Box::new),
            zero_copy: None,
            inbox,
            backlog: Vec::new(),
            stands: side == Side::Accepting,
            connect_retry: None,
            readable: false,
            writable: false,
            ending: false,
            is_told: false,
            frames_in: 0,
            body_bytes_before: 0,
            opened: now,
            moved_in: now,
            moved_out: now,
            finishing: false,
            finished: false,
            is_shut: false,
            peer_finished: false,
            awaits_caller: false,
            has_asked: false,
            room_at: None,
            broken: None,
            listed: false,
            waiting: false,
        }
    }

    pub(crate) fn socket(&mut self) -> &mut Stream {
        &mut self.stream
    }

    /// Returns when it is begun once more.
    pub(crate) fn connect_retry_due(&self, config: &TcpConfig) -> Option<Instant> {
        self.connect_retry.as_ref()?.due(config)
    }

    /// Replaces the socket without an answer by `stream`. Nothing has gone through the former one.
    pub(crate) fn retry_connect(&mut self, stream: Stream) {
        self.stream = stream;
        (self.readable, self.writable, self.ending) = (false, false, false);
    }

    /// Notes what epoll says about the socket.
    pub(crate) fn notice(&mut self, event: &mio::event::Event) {
        self.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
        self.writable |= event.is_writable() || event.is_write_closed() || event.is_error();
        let is_error = event.is_error() || event.is_write_closed();
        if self.zero_copy.is_some() && is_error && !event.is_read_closed() {
            // The kernel has something to say about memory, which is no end of the connection.
            self.is_told = true;
        } else {
            self.ending |= event.is_read_closed() || is_error;
        }
    }

    /// Takes in what the kernel has said about memory of ours.
    fn poll_zero_copy(&mut self, shared: &mut Shared) {
        let Some(zero_copy) = &mut self.zero_copy else {
            return;
        };
        self.is_told = false;
        match zero_copy.read_completions(&self.stream) {
            Ok(told) => {
                shared.stats.zero_copy_sends += told.done;
                shared.stats.zero_copy_copied += told.copied;
            }
            // Then the next read or write finds it too.
            Err(_) => self.ending = true,
        }
    }

    /// The connection ends now. The kernel forgets what it still reads of our memory, which is about to be used again.
    pub(crate) fn forget_sends(&mut self, shared: &mut Shared) {
        self.poll_zero_copy(shared);
        if self.zero_copy.as_ref().is_some_and(ZeroCopy::is_reading) {
            // A reset: nothing waits to be sent once more.
            let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
        }
    }

    /// Returns whether frames may still be queued.
    pub(crate) fn takes_frames(&self) -> bool {
        let is_over = self.peer_finished && !self.awaits_caller;
        !self.finishing && !is_over && self.broken.is_none()
    }

    /// Sets whether the end of the peer waits for a word of the caller.
    pub(crate) fn set_awaits_caller(&mut self, awaits: bool) {
        self.awaits_caller = awaits;
    }

    /// Returns once whether the peer has ended, and the caller is to be asked for a word.
    pub(crate) fn asks_caller(&mut self) -> bool {
        let asks = self.peer_finished && self.awaits_caller && !self.has_asked;
        self.has_asked |= asks;
        asks
    }

    /// Returns whether the peer is on this machine.
    pub(crate) fn is_local(&self) -> bool {
        self.stream.is_local()
    }

    /// Sends what is queued and then our end.
    pub(crate) fn finish(&mut self) {
        if self.awaits_admission() {
            self.readable = true;
            self.backlog.clear();
        }
        self.finishing = true;
        self.awaits_caller = false;
    }

    /// Returns whether a turn would do something.
    pub(crate) fn wants_turn(&self) -> bool {
        let may_read = !self.peer_finished && !self.holds_back() && !self.is_ahead();
        // A Unix socket that is not connected yet is reported as ended.
        let reads = self.stands && self.readable && may_read;
        let writes = self.writable && self.has_output();
        let ends = self.stands && self.may_end();
        let lane = self.is_told || self.lane_has_more() || (self.stands && self.outbox.can_lend());
        reads || writes || ends || lane || (!self.stands && self.writable)
    }

    /// Joins those that want a turn, if it does and is not among them.
    pub(crate) fn enlist(&mut self, ready: &mut VecDeque<ConnId>) {
        if !self.listed && self.wants_turn() {
            self.listed = true;
            ready.push_back(self.id);
        }
    }

    /// Returns whether there is something that the socket could take now.
    fn has_output(&self) -> bool {
        match &self.session {
            None => self.outbox.has_output(),
            Some(session) if session.stands() => session.has_output() || self.outbox.has_output(),
            Some(session) => session.has_output(),
        }
    }

    /// Returns whether our end is to be said: all that was queued before is with the kernel.
    fn may_end(&self) -> bool {
        self.finishing && !self.finished && self.is_flushed() && self.is_open()
    }

    /// Returns whether nothing waits to be sent.
    fn is_flushed(&self) -> bool {
        let sealed = self.session.as_ref();
        self.outbox.is_empty() && sealed.is_none_or(|session| !session.has_output())
    }

    /// Returns whether frames can pass, as far as encryption goes.
    pub(crate) fn is_open(&self) -> bool {
        self.session.as_ref().is_none_or(|session| session.stands())
    }

    /// Returns whether the connection has been reported.
    pub(crate) fn is_known(&self) -> bool {
        let sealed = self.session.as_ref();
        sealed.is_none_or(|session| session.arrival.is_none())
    }

    /// Returns bytes that the kernel does not have yet.
    pub(crate) fn queued_bytes(&self) -> u64 {
        let sealed = self.session.as_ref();
        self.outbox.bytes() + sealed.map_or(0, |session| session.outgoing.len() as u64)
    }

    /// Returns the address and listener of a connection whose acceptance was never told.
    pub(crate) fn take_arrival(&mut self) -> Option<(ListenerId, String)> {
        self.session.as_mut()?.arrival.take()
    }

    /// Returns whether a whole frame has come of a peer that is admitted.
    pub(crate) fn has_greeted(&self) -> bool {
        self.frames_in > 0 && self.inbox.is_admitted()
    }

    /// Takes what the peer has sent behind its hello, and all that it sends from now on. Returns whether it had to wait
    /// for that.
    pub(crate) fn admit(&mut self, head_bytes_max: u32) -> bool {
        // One that we are about to close stays as it is.
        let is_new = !self.inbox.is_admitted() && !self.finishing;
        if is_new {
            self.inbox.admit(head_bytes_max);
            self.readable = true; // What is in the backlog is as good as something to read.
        }
        is_new
    }

    /// Returns whether the peer is admitted.
    pub(crate) fn is_admitted(&self) -> bool {
        self.inbox.is_admitted()
    }

    /// Returns whether the first frame has come and the node above has not accepted it as a hello yet.
    fn awaits_admission(&self) -> bool {
        !self.inbox.is_admitted() && self.frames_in > 0 && !self.finishing
    }

    /// Returns whether what comes counts for nothing: it is only read so that the peer gets what is said to it at last.
    fn is_deaf(&self) -> bool {
        !self.inbox.is_admitted() && self.finishing
    }

    /// Returns whether nothing is read now.
    fn holds_back(&self) -> bool {
        self.inbox.wants_space() || self.awaits_admission()
    }

    /// Writes once what is queued, as far as the kernel takes it.
    pub(crate) fn flush_once(&mut self, shared: &mut Shared, now: Instant) {
        self.writable = true;
        let _ = self.lend(shared);
        if let Some(mut session) = self.session.take() {
            // It is closed in any case.
            let _ = self.write_sealed(&mut session, shared, now);
            self.session = Some(session);
        } else {
            self.write(shared, now);
        }
    }

    /// Returns when the send buffer is to be looked at again.
    pub(crate) fn room_due(&self) -> Option<Instant> {
        self.room_at
    }

    /// The send buffer may have room again.
    pub(crate) fn try_again(&mut self) {
        self.room_at = None;
        self.writable = true;
    }

    /// Returns how long ago it was accepted, begun, or its handshake was over.
    pub(crate) fn age(&self) -> Duration {
        self.opened.elapsed()
    }

    /// Returns who is at the other end.
    pub(crate) fn identity(&self) -> Option<&Identity> {
        self.session.as_ref()?.peer()
    }

    pub(crate) fn wants_space(&self) -> bool {
        self.inbox.wants_space()
    }

    /// Tries again to find a place for the body that waits for one.
    pub(crate) fn find_space(&mut self, bodies: &mut Bodies, now: Instant) -> bool {
        let found = self.inbox.find_space(bodies);
        if found {
            self.moved_in = now;
            self.readable = true; // What is in the backlog is as good as something to read.
        }
        found
    }

    /// One turn: at most [`TURN_BYTES`] out and [`TURN_BYTES`] in.
    ///
    /// # Errors
    ///
    /// The reason why the connection is to be closed now.
    pub(crate) fn turn(
        &mut self,
        shared: &mut Shared,
        events: &mut Vec<Event>,
        now: Instant,
    ) -> Result<(), CloseReason> {
        if !self.stands {
            self.stand()?;
            if !self.stands {
                return Ok(());
            }
            self.opened = now;
            let copies = !shared.config.zero_copy || self.session.is_some();
            // To an address of our own, and in loopback, it copies in any case, and later.
            if !copies && (shared.config.zero_copy_everywhere || !self.is_local()) {
                self.zero_copy = ZeroCopy::begin(&self.stream);
            }
            if self.session.is_none() {
                shared.stats.connected += 1;
                events.push(Event::Connected { conn: self.id });
            }
        }
        if self.is_told {
            self.poll_zero_copy(shared);
        }
        self.lend(shared)?;
        if let Some(session) = self.session.take() {
            let mut session = session;
            let outcome = self.turn_sealed(&mut session, shared, events, now);
            self.session = Some(session);
            return outcome;
        }
        self.write(shared, now);
        if self.outbox.room_again() && self.takes_frames() {
            events.push(Event::Writable { conn: self.id });
        }
        self.read(None, shared, events)?;
        self.take_lane(shared, events)?;
        self.check_end()
    }

    /// Returns whether both sides have said all they had to say.
    fn check_end(&self) -> Result<(), CloseReason> {
        let may_end = self.peer_finished && !self.awaits_caller;
        if may_end && self.is_flushed() && !self.lane_has_more() {
            return Err(if self.finishing {
                CloseReason::ByUs
            } else {
                CloseReason::ByPeer
            });
        }
        Ok(())
    }

    /// Looks whether the connection that we began stands.
    fn stand(&mut self) -> Result<(), CloseReason> {
        let failed = |error: &io::Error| CloseReason::Unreachable(error.kind());
        if let Some(error) = self.stream.take_error().map_err(|error| failed(&error))? {
            return Err(failed(&error));
        }
        match (self.stream.peer_addr(), self.stream.local_addr()) {
            // A local port without a listener can be connected to itself (RFC 9293, section 3.5).
            (Ok(peer), Ok(own)) if peer == own => {
                Err(CloseReason::Unreachable(ErrorKind::ConnectionRefused))
            }
            (Ok(_), _) => {
                self.stands = true;
                self.connect_retry = None;
                Ok(())
            }
            (Err(error), _) if error.kind() == ErrorKind::NotConnected => {
                self.writable = false; // Told too early: epoll tells again.
                Ok(())
            }
            (Err(error), _) => Err(failed(&error)),
        }
    }

    fn write(&mut self, shared: &mut Shared, now: Instant) {
        let mut left = TURN_BYTES;
        while self.writable && self.outbox.has_output() && left > 0 {
            left -= self.write_once(left, shared, now).unwrap_or_default();
        }
        if self.may_end() {
            self.finished = true;
            self.shut();
        }
    }

    /// One system call. Returns how many bytes of frames the kernel took; `None` if none.
    fn write_once(&mut self, left: usize, shared: &mut Shared, now: Instant) -> Option<usize> {
        shared.stats.writes += 1;
        let zero_copy = self.zero_copy.as_mut();
        let bytes_max = WRITE_BYTES.min(left);
        match self.outbox.write(&self.stream, bytes_max, zero_copy) {
            Ok(written) => {
                self.moved_out = now;
                shared.stats.frames_out += written.frames;
                shared.stats.bytes_out += written.bytes as u64;
                if !written.whole {
                    shared.stats.short_writes += 1;
                    self.writable = false;
                }
                return Some(written.bytes);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => self.break_off(&error),
        }
        None
    }

    /// Sends our end.
    fn shut(&mut self) {
        self.is_shut = true;
        if let Err(error) = self.stream.shutdown(Shutdown::Write) {
            self.break_off(&error);
        }
    }

    /// Writing is over. What the peer sent before is still there to be read.
    fn break_off(&mut self, error: &io::Error) {
        self.outbox.clear();
        self.broken.get_or_insert(closed_with(error));
        self.readable = true;
        self.ending = true;
    }

    /// Until when something must have happened, and as what the connection closes if not. Nothing is asked of a
    /// connection that has something to read or that waits for us.
    pub(crate) fn deadline(&self, config: &TcpConfig) -> Option<(Instant, CloseReason)> {
        let (since, limit_ms, reason) = if !self.stands {
            let reason = CloseReason::Unreachable(ErrorKind::TimedOut);
            (self.opened, config.connect_ms, reason)
        } else if !self.is_open() {
            // Whatever lies in the socket: a peer that sends its handshake byte by byte is slow, too.
            let limit_ms = config.handshake_ms;
            let reason = CloseReason::Tls(TlsFailure::Slow { limit_ms });
            (self.opened, limit_ms, reason)
        } else if self.awaits_admission() {
            // Nothing is read meanwhile: this counts from when the first frame came.
            let limit_ms = config.first_frame_ms;
            (self.moved_in, limit_ms, CloseReason::Silent { limit_ms })
        } else if self.inbox.wants_space() && !self.has_kept() {
            // Whether the socket has something of the body is looked at when the time is over.
            let limit_ms = config.stall_ms;
            (self.moved_in, limit_ms, CloseReason::Stalled { limit_ms })
        } else if self.readable || self.inbox.wants_space() {
            return None;
        } else if self.side == Side::Accepting && !self.has_greeted() && !self.peer_finished {
            let limit_ms = config.first_frame_ms;
            (self.opened, limit_ms, CloseReason::Silent { limit_ms })
        } else if self.inbox.missing().is_some() {
            let limit_ms = config.stall_ms;
            (self.moved_in, limit_ms, CloseReason::Stalled { limit_ms })
        } else if self.peer_finished {
            let limit_ms = config.stall_ms;
            (self.moved_out, limit_ms, CloseReason::Stalled { limit_ms })
        } else {
            return None;
        };
        Some((since.checked_add(Duration::from_millis(limit_ms))?, reason))
    }

    /// Returns whether bytes were read that wait for a place.
    fn has_kept(&self) -> bool {
        let sealed = self.session.as_ref();
        !self.backlog.is_empty() || sealed.is_some_and(|session| !session.incoming.is_empty())
    }

    /// Notes that the peer has sent some of the body that waits for a place, if that lies in the socket.
    pub(crate) fn look_for_body(&mut self, now: Instant) {
        let mut byte = [MaybeUninit::uninit()];
        let socket = SockRef::from(&self.stream);
        if self.inbox.wants_space() && matches!(socket.peek(&mut byte), Ok(1)) {
            self.moved_in = now;
        }
    }
}

fn closed_with(error: &io::Error) -> CloseReason {
    if let Some(failure) = kernel_tls::failure(error) {
        return CloseReason::Tls(failure);
    }
    match error.kind() {
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted => {
            CloseReason::Reset
        }
        kind => CloseReason::Io(kind),
    }
}
