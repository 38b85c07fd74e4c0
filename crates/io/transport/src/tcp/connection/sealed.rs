//! The turn of a connection with a TLS session.
//!
//! The plain bytes take the same way as on a plain connection: out of the queue of frames, into the inbox. What is
//! between is encrypted in batches on the way out, and taken apart in large reads on the way in.

use super::read::LOOK_AHEAD_BYTES;
use super::{Connection, Shared, Side, TURN_BYTES, closed_with};
use crate::tcp::input::Input;
use crate::tcp::kernel_tls::{self, Way};
use crate::tcp::outbox::SLICES_MAX;
use crate::tcp::records::{self, Step};
use crate::tcp::session::Session;
use crate::transport::{CloseReason, Event, TlsFailure};
use rustix::net::{SendFlags, send};
use rustls::ContentType;
use std::io::{self, ErrorKind, IoSlice, Read};
use std::time::{Duration, Instant};

/// Plain bytes that are encrypted for one system call: they are still in the cache when the kernel copies them.
const BATCH_BYTES: usize = 256 << 10;

/// A slice of a frame below this is put together with its neighbours: a record for every head would cost more.
const SMALL_BYTES: usize = 4 << 10;

/// Pause before a send buffer that was too full for our end is looked at again.
const ROOM_AGAIN: Duration = Duration::from_millis(1);

/// Most bytes that a session holds back: the longest message of a handshake (64 KiB) and a record.
const HANDSHAKE_BYTES_MAX: usize = (64 << 10) + records::BYTES_MAX;

/// Room for a batch: every slice may be a record of its own, and keys may change in between.
pub(crate) const CIPHER_BYTES: usize = BATCH_BYTES
    + (SLICES_MAX + BATCH_BYTES / records::PLAIN_BYTES_MAX) * records::OVERHEAD
    + (16 << 10);

impl Connection {
    pub(super) fn turn_sealed(
        &mut self,
        session: &mut Session,
        shared: &mut Shared,
        events: &mut Vec<Event>,
        now: Instant,
    ) -> Result<(), CloseReason> {
        let outcome = self
            .read_sealed(session, shared, events)
            .map_err(|reason| in_handshake(session, reason))
            .and_then(|()| self.take_lane(shared, events))
            .and_then(|()| self.write_sealed(session, shared, now));
        if let Err(CloseReason::Tls(_)) = outcome {
            // Why, as far as the peer may know it. It is closed in any case, so one attempt is enough.
            session.collect_alert();
            let _ = send(&self.stream, &session.outgoing, SEND);
            let _ = session.send_said(&self.stream);
            session.outgoing.clear();
        }
        outcome?;
        if session.stands() && self.outbox.room_again() && self.takes_frames() {
            events.push(Event::Writable { conn: self.id });
        }
        if session.has_output() {
            return Ok(());
        }
        let may_end = self.peer_finished && !self.awaits_caller;
        if may_end && self.outbox.is_empty() && !self.finished {
            // It goes now. Without a word of our end the peer would take it for a connection that broke.
            self.finished = true;
            session.end().map_err(CloseReason::Tls)?;
            let _ = send(&self.stream, &session.outgoing, SEND);
            self.send_said(session, now);
        }
        if session.has_said() {
            // The kernel may hold frames back that were sent before.
            return Ok(());
        }
        self.check_end()
    }

    pub(super) fn write_sealed(
        &mut self,
        session: &mut Session,
        shared: &mut Shared,
        now: Instant,
    ) -> Result<(), CloseReason> {
        let mut left = TURN_BYTES;
        self.end_session(session)?;
        while self.writable && left > 0 {
            if !session.outgoing.is_empty() {
                let pending = std::mem::take(&mut session.outgoing);
                let sent = self.send_sealed(&pending, shared, now);
                session.outgoing = pending[sent..].to_vec();
                left = left.saturating_sub(sent);
            } else if session.has_said() {
                self.send_said(session, now);
            } else if session.stands() && self.outbox.has_output() && self.sends(session, shared) {
                let written = self.write_once(left, shared, now);
                if let Some(bytes) = written {
                    session.sent_by_kernel(bytes);
                    left -= bytes;
                }
            } else if session.stands() && self.outbox.has_output() {
                let mut cipher = std::mem::take(&mut shared.cipher);
                let sealed = self.seal(session, &mut cipher);
                if let Ok((bytes, frames)) = sealed {
                    shared.stats.frames_out += frames;
                    let sent = self.send_sealed(&cipher[..bytes], shared, now);
                    session.outgoing.extend_from_slice(&cipher[sent..bytes]);
                    left = left.saturating_sub(sent);
                }
                shared.cipher = cipher;
                sealed.map_err(CloseReason::Tls)?;
            } else {
                break;
            }
            self.end_session(session)?;
        }
        if self.finished && !session.has_output() && !self.is_shut {
            self.shut();
        }
        Ok(())
    }

    /// Returns whether the kernel protects what we send, which it does from now on if it can.
    fn sends(&mut self, session: &mut Session, shared: &mut Shared) -> bool {
        shared.stats.kernel_sessions += u64::from(session.give(Way::Send, &self.stream));
        session.is_in_kernel(Way::Send)
    }

    /// Sends through the kernel what the session has to say beside frames. Behind our end the connection may be closed:
    /// it goes when records that the kernel holds back go with it.
    fn send_said(&mut self, session: &mut Session, now: Instant) {
        let has_room = kernel_tls::takes_held_back(&self.stream);
        let sent = has_room.and_then(|has_room| match has_room {
            true => session.send_said(&self.stream),
            false => {
                // The kernel need not notify of that much room.
                self.room_at = now.checked_add(ROOM_AGAIN);
                Err(ErrorKind::WouldBlock.into())
            }
        });
        match sent {
            Ok(()) => {
                self.moved_out = now;
                self.room_at = None;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                self.break_off(&error);
                self.writable = false;
            }
        }
    }

    /// Says within the session that nothing more comes, once all that was queued is encrypted.
    fn end_session(&mut self, session: &mut Session) -> Result<(), CloseReason> {
        let is_due = self.finishing && !self.finished && session.stands();
        if is_due && self.outbox.is_empty() && session.outgoing.is_empty() {
            self.finished = true;
            session.end().map_err(CloseReason::Tls)?;
        }
        Ok(())
    }

    /// One system call. Says how many bytes the kernel took.
    fn send_sealed(&mut self, bytes: &[u8], shared: &mut Shared, now: Instant) -> usize {
        shared.stats.writes += 1;
        match send(&self.stream, bytes, SEND).map_err(io::Error::from) {
            Ok(sent) => {
                self.moved_out = now;
                shared.stats.bytes_out += sent as u64;
                if sent < bytes.len() {
                    shared.stats.short_writes += 1;
                    self.writable = false;
                }
                sent
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.writable = false;
                0
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => 0,
            Err(error) => {
                self.break_off(&error);
                self.writable = false;
                bytes.len()
            }
        }
    }

    /// Encrypts the next frames of the queue into `cipher`. Says how many bytes that came to, and how many frames are
    /// through with it.
    fn seal(
        &mut self,
        session: &mut Session,
        cipher: &mut [u8],
    ) -> Result<(usize, u64), TlsFailure> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let (count, plain_bytes) = self.outbox.batch(&mut slices, BATCH_BYTES);
        let mut filled = 0;
        let mut seal = |plain: &[u8]| -> Result<(), TlsFailure> {
            filled += session.encrypt(plain, &mut cipher[filled..])?;
            Ok(())
        };
        let mut small = Vec::new();
        for slice in &slices[..count] {
            let ends_small =
                slice.len() >= SMALL_BYTES || small.len() + slice.len() > records::PLAIN_BYTES_MAX;
            if ends_small && !small.is_empty() {
                seal(&small)?;
                small.clear();
            }
            if slice.len() >= SMALL_BYTES {
                seal(slice)?;
            } else {
                small.extend_from_slice(slice);
            }
        }
        if !small.is_empty() {
            seal(&small)?;
        }
        Ok((filled, self.outbox.advance(plain_bytes)))
    }

    fn read_sealed(
        &mut self,
        session: &mut Session,
        shared: &mut Shared,
        events: &mut Vec<Event>,
    ) -> Result<(), CloseReason> {
        if session.is_in_kernel(Way::Receive) {
            return self.read(Some(session), shared, events);
        }
        if !self.backlog.is_empty() && !self.holds_back() {
            let backlog = std::mem::take(&mut self.backlog);
            self.take(Input::Apart(&backlog), shared, events, Instant::now())?;
        }
        let mut left = TURN_BYTES;
        // Once without reading: the client has the first word, and records may lie there since a body had no place.
        let mut is_first = true;
        while !self.holds_back() && (is_first || self.may_read(left)) {
            let mut buffer = std::mem::take(&mut shared.buffer);
            let kept = session.incoming.len();
            buffer[..kept].copy_from_slice(&session.incoming);
            let outcome = if is_first {
                Ok(kept)
            } else {
                // The kernel opens records from the beginning of one on.
                let most = session.missing_of_record().unwrap_or(buffer.len());
                let end = buffer.len().min(kept + most);
                self.read_cipher(&mut buffer[kept..end], shared)
                    .map(|bytes| kept + bytes)
            };
            is_first = false;
            let taken = outcome.and_then(|filled| {
                left = left.saturating_sub(filled - kept);
                self.open(session, &mut buffer[..filled], shared, events)
            });
            shared.buffer = buffer;
            taken?;
            shared.stats.kernel_sessions += u64::from(session.give(Way::Receive, &self.stream));
            if session.is_in_kernel(Way::Receive) {
                return self.read(Some(session), shared, events);
            }
        }
        Ok(())
    }

    /// Takes a record that is not data and that the kernel has opened.
    pub(super) fn take_opened(
        &mut self,
        session: &mut Session,
        kind: ContentType,
        content: &[u8],
    ) -> Result<(), CloseReason> {
        let step = session.take_opened(kind, content, &self.stream);
        match step.map_err(CloseReason::Tls)? {
            Step::PeerEnds => self.peer_ends(),
            Step::Went | Step::Waits => Ok(()),
        }
    }

    fn may_read(&self, left: usize) -> bool {
        self.readable && !self.peer_finished && !self.is_ahead() && left > 0
    }

    /// One system call. The end of the stream is an error unless the peer has said before that it sends no more.
    fn read_cipher(&mut self, place: &mut [u8], shared: &mut Shared) -> Result<usize, CloseReason> {
        shared.stats.reads += 1;
        // As on a plain connection: what comes behind a hello is kept.
        let most = if self.is_admitted() {
            place.len()
        } else {
            LOOK_AHEAD_BYTES.min(place.len())
        };
        let place = &mut place[..most];
        let offered = place.len();
        match (&self.stream).read(place) {
            Ok(0) => Err(self.cut_off()),
            Ok(bytes) => {
                shared.stats.bytes_in += bytes as u64;
                self.moved_in = Instant::now();
                if bytes < offered {
                    shared.stats.short_reads += 1;
                    self.readable = self.ending;
                }
                Ok(bytes)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                self.broken.clone().map_or(Ok(0), Err)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(0),
            Err(error) => Err(self.broken.take().unwrap_or_else(|| closed_with(&error))),
        }
    }

    /// End of the stream without a close alert within the session: the peer died, or the stream was cut.
    pub(super) fn cut_off(&mut self) -> CloseReason {
        if let Some(reason) = self.broken.take() {
            return reason;
        }
        match self.inbox.missing().filter(|_| !self.is_deaf()) {
            Some(missing) => CloseReason::Cut { missing },
            None => CloseReason::Reset,
        }
    }

    /// Takes apart what was read, as far as there is a place for it.
    fn open(
        &mut self,
        session: &mut Session,
        buffer: &mut [u8],
        shared: &mut Shared,
        events: &mut Vec<Event>,
    ) -> Result<(), CloseReason> {
        let now = Instant::now();
        let mut done = 0;
        while !self.holds_back() {
            let mut early = Vec::new();
            let mut taken = Ok(());
            let stands = session.stands();
            let (bytes, step) = session.step(&mut buffer[done..], |plain| {
                if !stands {
                    // Who says it is looked at first, below.
                    early.extend_from_slice(plain);
                } else if self.holds_back() {
                    self.backlog.extend_from_slice(plain);
                } else if taken.is_ok() {
                    taken = self.take(Input::Apart(plain), shared, events, now);
                }
            });
            done += bytes;
            let step = step.map_err(CloseReason::Tls)?;
            taken?;
            if session.is_to_be_met() {
                self.meet(session, shared, events)?;
            }
            session.open().map_err(CloseReason::Tls)?;
            if !early.is_empty() {
                self.take(Input::Apart(&early), shared, events, now)?;
            }
            match step {
                Step::Went => {}
                Step::Waits => break,
                Step::PeerEnds => {
                    self.peer_ends()?;
                    break;
                }
            }
        }
        session.incoming.clear();
        session.incoming.extend_from_slice(&buffer[done..]);
        debug_assert!(
            self.holds_back() || session.incoming.len() <= HANDSHAKE_BYTES_MAX,
            "a whole record is always taken, and a handshake is bounded"
        );
        Ok(())
    }

    /// The handshake is over: looks who is there, and tells that the connection stands.
    fn meet(
        &mut self,
        session: &mut Session,
        shared: &mut Shared,
        events: &mut Vec<Event>,
    ) -> Result<(), CloseReason> {
        let is_resumed = session.meet().map_err(CloseReason::Tls)?;
        shared.stats.handshakes += 1;
        shared.stats.handshakes_resumed += u64::from(is_resumed);
        self.opened = Instant::now();
        match session.arrival.take() {
            Some((listener, peer)) => {
                shared.stats.accepted += 1;
                events.push(Event::Accepted {
                    conn: self.id,
                    listener,
                    peer,
                });
            }
            None => {
                debug_assert_eq!(self.side, Side::Connecting, "the other side has an arrival");
                shared.stats.connected += 1;
                events.push(Event::Connected { conn: self.id });
            }
        }
        Ok(())
    }
}

/// A connection that breaks before its session stands most often meets a peer that speaks no TLS, or distrusts us.
fn in_handshake(session: &Session, reason: CloseReason) -> CloseReason {
    match reason {
        CloseReason::Reset | CloseReason::Cut { .. } if !session.stands() => {
            let text = "the peer ended the connection in the handshake";
            CloseReason::Tls(TlsFailure::Protocol(text.to_owned()))
        }
        other => other,
    }
}

/// As for plain connections: no signal if the peer is gone, and no waiting.
const SEND: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);
