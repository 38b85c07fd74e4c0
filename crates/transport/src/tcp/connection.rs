//! One TCP connection and its turn.

use super::bodies::Bodies;
use super::config::TcpConfig;
use super::inbox::{Arrived, Inbox, Step};
use super::outbox::Outbox;
use super::stats::Stats;
use crate::transport::{CloseReason, ConnId, Event};
use mio::net::TcpStream;
use sheaf_frame::Limits;
use std::io::{self, ErrorKind, IoSliceMut, Read};
use std::net::Shutdown;
use std::time::{Duration, Instant};

/// Bytes that one connection may read, and write, before the next one has its turn.
const TURN_BYTES: usize = 1 << 20;

/// Bytes that one system call offers to the kernel.
const WRITE_BYTES: usize = 1 << 20;

/// Bytes of a body that one system call reads, so that they are still in the cache for the digest.
const PIECE_BYTES: usize = 256 << 10;

/// The buffer for what is not the rest of a body.
pub(crate) const BUFFER_BYTES: usize = 256 << 10;

/// Behind the rest of a large body only this much is read into the buffer: room for the next prefix and head,
/// without much of its body, which would have to be copied.
const LOOK_AHEAD_BYTES: usize = 4 << 10;

/// A body of this size and more is large.
const LARGE_BYTES: usize = 128 << 10;

/// What the connections of an endpoint share.
pub(crate) struct Shared {
    pub(crate) config: TcpConfig,
    pub(crate) limits: Limits,
    pub(crate) stats: Stats,
    pub(crate) bodies: Bodies,
    pub(crate) buffer: Box<[u8]>,
}

/// Who made a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Accepting,
    Connecting,
}

/// One connection: its socket, what comes in, what goes out, and how far it is.
pub(crate) struct Connection {
    pub(crate) id: ConnId,
    pub(crate) side: Side,
    pub(crate) outbox: Outbox,
    stream: TcpStream,
    inbox: Inbox,
    /// Bytes that were read and cannot be taken yet, because a body before them waits for its place.
    backlog: Vec<u8>,
    /// Whether the connection stands. False only while we connect.
    stands: bool,
    /// Whether the socket may have something to read, or room to write, as far as we know. epoll is
    /// edge-triggered: it tells once, and we must remember until the kernel says no.
    readable: bool,
    writable: bool,
    /// The peer's end or an error stands in the queue, of which epoll tells only once: read on until it comes.
    ending: bool,
    /// Frames that came in, and whether the last one was large, as the next one then probably is.
    frames_in: u64,
    large_before: bool,
    /// When it was accepted or begun, and when something last moved in each direction.
    opened: Instant,
    moved_in: Instant,
    moved_out: Instant,
    /// We send no more: [`finish`](Connection::finish) was called.
    finishing: bool,
    /// Our end was sent.
    finished: bool,
    /// The peer sends no more.
    peer_finished: bool,
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
        stream: TcpStream,
        config: &TcpConfig,
        now: Instant,
    ) -> Self {
        Self {
            id,
            side,
            outbox: Outbox::new(config.queue_bytes_max, config.when_full),
            stream,
            inbox: Inbox::new(now),
            backlog: Vec::new(),
            stands: side == Side::Accepting,
            readable: false,
            writable: false,
            ending: false,
            frames_in: 0,
            large_before: false,
            opened: now,
            moved_in: now,
            moved_out: now,
            finishing: false,
            finished: false,
            peer_finished: false,
            broken: None,
            listed: false,
            waiting: false,
        }
    }

    pub(crate) fn socket(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Notes what epoll says about the socket.
    pub(crate) fn notice(&mut self, event: &mio::event::Event) {
        self.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
        self.writable |= event.is_writable() || event.is_write_closed() || event.is_error();
        self.ending |= event.is_read_closed() || event.is_write_closed() || event.is_error();
    }

    /// Whether frames may still be queued.
    pub(crate) fn takes_frames(&self) -> bool {
        !self.finishing && !self.peer_finished && self.broken.is_none()
    }

    /// Sends what is queued and then our end.
    pub(crate) fn finish(&mut self) {
        self.finishing = true;
    }

    /// Whether a turn would do something.
    pub(crate) fn wants_turn(&self) -> bool {
        let reads = self.readable && !self.peer_finished && !self.inbox.wants_space();
        let writes = self.writable && !self.outbox.is_empty();
        let ends = self.stands && self.finishing && !self.finished && self.outbox.is_empty();
        reads || writes || ends || (!self.stands && self.writable)
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
            shared.stats.connected += 1;
            events.push(Event::Connected { conn: self.id });
        }
        self.write(shared, now);
        if self.outbox.room_again() && self.takes_frames() {
            events.push(Event::Writable { conn: self.id });
        }
        self.read(shared, events)?;
        if self.peer_finished && self.outbox.is_empty() {
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
            // A port of our own that nobody listens at can be connected to itself (RFC 9293, section 3.5).
            (Ok(peer), Ok(own)) if peer == own => {
                Err(CloseReason::Unreachable(ErrorKind::ConnectionRefused))
            }
            (Ok(_), _) => {
                self.stands = true;
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
        while self.writable && !self.outbox.is_empty() && left > 0 {
            shared.stats.writes += 1;
            match self.outbox.write(&self.stream, WRITE_BYTES.min(left)) {
                Ok(written) => {
                    left -= written.bytes;
                    self.moved_out = now;
                    shared.stats.frames_out += written.frames;
                    shared.stats.bytes_out += written.bytes as u64;
                    if !written.whole {
                        shared.stats.short_writes += 1;
                        self.writable = false;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => self.break_off(&error),
            }
        }
        if self.finishing && !self.finished && self.outbox.is_empty() {
            self.finished = true;
            if let Err(error) = self.stream.shutdown(Shutdown::Write) {
                self.break_off(&error);
            }
        }
    }

    /// Writing is over. What the peer sent before is still there to be read.
    fn break_off(&mut self, error: &io::Error) {
        self.outbox.clear();
        self.broken.get_or_insert(closed_with(error));
        self.readable = true;
        self.ending = true;
    }

    fn read(&mut self, shared: &mut Shared, events: &mut Vec<Event>) -> Result<(), CloseReason> {
        if !self.backlog.is_empty() && !self.inbox.wants_space() {
            let backlog = std::mem::take(&mut self.backlog);
            self.take(&backlog, shared, events, Instant::now())?;
        }
        let mut left = TURN_BYTES;
        while self.readable && !self.peer_finished && !self.inbox.wants_space() && left > 0 {
            shared.stats.reads += 1;
            let mut buffer = std::mem::take(&mut shared.buffer);
            let outcome = self.read_once(&mut buffer);
            let now = Instant::now();
            let taken = match outcome {
                Ok(read) => {
                    left = left.saturating_sub(read.bytes());
                    self.count(&read, shared, now);
                    self.take_read(&read, &buffer, shared, events, now)
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.readable = false;
                    self.broken.clone().map_or(Ok(()), Err)
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
                Err(error) => Err(self.broken.take().unwrap_or_else(|| closed_with(&error))),
            };
            shared.buffer = buffer;
            taken?;
        }
        Ok(())
    }

    /// One system call: into the rest of the body, if there is one, and into the buffer behind it.
    fn read_once(&mut self, buffer: &mut [u8]) -> io::Result<Reading> {
        let large = self
            .inbox
            .body_bytes()
            .map_or(self.large_before, |bytes| bytes >= LARGE_BYTES);
        let ahead = if large {
            LOOK_AHEAD_BYTES
        } else {
            buffer.len()
        };
        let Some(rest) = self.inbox.body_rest() else {
            let bytes = (&self.stream).read(&mut buffer[..ahead])?;
            return Ok(Reading {
                body: 0,
                buffer: bytes,
                offered: ahead,
            });
        };
        if rest.len() > PIECE_BYTES {
            let bytes = (&self.stream).read(&mut rest[..PIECE_BYTES])?;
            return Ok(Reading {
                body: bytes,
                buffer: 0,
                offered: PIECE_BYTES,
            });
        }
        let rest_bytes = rest.len();
        let slices = &mut [IoSliceMut::new(rest), IoSliceMut::new(&mut buffer[..ahead])];
        let bytes = (&self.stream).read_vectored(slices)?;
        let body = bytes.min(rest_bytes);
        Ok(Reading {
            body,
            buffer: bytes - body,
            offered: rest_bytes + ahead,
        })
    }

    fn count(&mut self, read: &Reading, shared: &mut Shared, now: Instant) {
        let bytes = read.bytes();
        shared.stats.bytes_in += bytes as u64;
        if bytes > 0 {
            self.moved_in = now;
        }
        if bytes < read.offered {
            shared.stats.short_reads += 1;
            // The socket is drained, and epoll tells when more comes; an end that it has told of is still to come.
            self.readable = self.ending;
        }
    }

    /// Deals with what one read brought.
    fn take_read(
        &mut self,
        read: &Reading,
        buffer: &[u8],
        shared: &mut Shared,
        events: &mut Vec<Event>,
        now: Instant,
    ) -> Result<(), CloseReason> {
        if read.bytes() == 0 {
            return self.peer_ends();
        }
        if let Some(arrived) = (read.body > 0)
            .then(|| self.inbox.filled(read.body))
            .flatten()
        {
            self.hand_out(arrived, shared, events, now);
        }
        self.take(&buffer[..read.buffer], shared, events, now)
    }

    /// Makes frames of `input` and keeps what cannot be taken yet.
    fn take(
        &mut self,
        mut input: &[u8],
        shared: &mut Shared,
        events: &mut Vec<Event>,
        now: Instant,
    ) -> Result<(), CloseReason> {
        while !input.is_empty() {
            let step = self
                .inbox
                .take(&mut input, &shared.limits, &mut shared.bodies, now);
            match step.map_err(CloseReason::Refused)? {
                Step::Arrived(arrived) => self.hand_out(arrived, shared, events, now),
                Step::Bytes => {}
                Step::Space => {
                    self.backlog = input.to_vec();
                    shared.stats.waits_for_space += 1;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn hand_out(
        &mut self,
        arrived: Arrived,
        shared: &mut Shared,
        events: &mut Vec<Event>,
        now: Instant,
    ) {
        self.frames_in += 1;
        shared.stats.frames_in += 1;
        let Arrived {
            frame,
            body_digest,
            began,
        } = arrived;
        self.large_before = frame.body.len() >= LARGE_BYTES;
        let spent = now.saturating_duration_since(began);
        events.push(Event::Received {
            conn: self.id,
            frame,
            body_digest,
            spent,
        });
    }

    fn peer_ends(&mut self) -> Result<(), CloseReason> {
        if let Some(reason) = self.broken.take() {
            return Err(reason);
        }
        if let Some(missing) = self.inbox.missing() {
            return Err(CloseReason::Cut { missing });
        }
        self.peer_finished = true;
        Ok(())
    }

    /// Until when something must have happened, and as what the connection closes if not. Nothing is asked of a
    /// connection that has something to read or that waits for us.
    pub(crate) fn deadline(&self, config: &TcpConfig) -> Option<(Instant, CloseReason)> {
        let (since, limit_ms, reason) = if !self.stands {
            let reason = CloseReason::Unreachable(ErrorKind::TimedOut);
            (self.opened, config.connect_ms, reason)
        } else if self.readable || self.inbox.wants_space() {
            return None;
        } else if self.side == Side::Accepting && self.frames_in == 0 && !self.peer_finished {
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
}

/// What one system call read.
#[derive(Debug)]
struct Reading {
    body: usize,
    buffer: usize,
    offered: usize,
}

impl Reading {
    fn bytes(&self) -> usize {
        self.body + self.buffer
    }
}

fn closed_with(error: &io::Error) -> CloseReason {
    match error.kind() {
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted => {
            CloseReason::Reset
        }
        kind => CloseReason::Io(kind),
    }
}
