//! The reading half of a turn.

use super::{Connection, Shared, TURN_BYTES, closed_with};
use crate::arena::Region;
use crate::tcp::inbox::{Arrived, Step};
use crate::tcp::input::Input;
use crate::tcp::input::SMALL_MAX;
use crate::tcp::kernel_tls::{self, Received};
use crate::tcp::session::Session;
use crate::transport::{CloseReason, Event};
use rustls::ContentType;
use sheaf_protocol::{DIGEST_PIECE_BYTES, WireKind};
use std::io::{self, ErrorKind, IoSliceMut, Read};
use std::time::Instant;

/// Behind the rest of a large body only this much is read into the buffer: room for the next prefix and head,
/// without much of its body, which would have to be copied.
pub(super) const LOOK_AHEAD_BYTES: usize = 4 << 10;

/// Bytes that a read counts for at least.
const READ_BYTES_MIN: usize = 64;

/// Bodies below this are copied: in place they would take up as much again with the prefixes and heads between them.
const PLACED_MIN: usize = 1 << 10;

impl Connection {
    /// Reads plain bytes: of a plain connection, or those of `session` whose records the kernel opens.
    pub(super) fn read(
        &mut self,
        mut session: Option<&mut Session>,
        shared: &mut Shared,
        events: &mut Vec<Event>,
    ) -> Result<(), CloseReason> {
        if !self.backlog.is_empty() && !self.holds_back() {
            let backlog = std::mem::take(&mut self.backlog);
            self.take(Input::Apart(&backlog), shared, events, Instant::now())?;
        }
        let mut left = TURN_BYTES;
        while self.readable
            && !self.peer_finished
            && !self.holds_back()
            && !self.is_ahead()
            && left > 0
        {
            let bytes = self.read_once(session.as_deref_mut(), shared, events)?;
            // Also records without data take time.
            left = left.saturating_sub(bytes.max(READ_BYTES_MIN));
        }
        Ok(())
    }

    /// One system call and what it brought. Says how many bytes.
    fn read_once(
        &mut self,
        session: Option<&mut Session>,
        shared: &mut Shared,
        events: &mut Vec<Event>,
    ) -> Result<usize, CloseReason> {
        shared.stats.reads += 1;
        let mut buffer = std::mem::take(&mut shared.buffer);
        let mut region = self.region(shared);
        let ahead = match &mut region {
            Some(region) => region.room(buffer.len()),
            // What comes behind a hello is kept until the peer is admitted, so it has to be little.
            None if self.expects_large() || !self.is_admitted() => &mut buffer[..LOOK_AHEAD_BYTES],
            None => &mut buffer[..],
        };
        let outcome = self.receive(session.is_some(), ahead);
        let now = Instant::now();
        let taken = match outcome {
            Ok(read) => {
                self.count(&read, shared, now);
                let input = match &mut region {
                    Some(region) => Input::placed(region, read.ahead),
                    None => Input::Apart(&buffer[..read.ahead]),
                };
                let taken = match session {
                    Some(session) => self.take_opened_read(session, &read),
                    None if read.bytes() == 0 => self.peer_ends(),
                    None => Ok(()),
                };
                taken
                    .and_then(|()| self.take_read(&read, input, shared, events, now))
                    .map(|()| read.bytes())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                self.broken.clone().map_or(Ok(0), Err)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(0),
            Err(error) => Err(self.broken.take().unwrap_or_else(|| closed_with(&error))),
        };
        if let Some(region) = region {
            shared.bodies.give_region(region);
        }
        shared.buffer = buffer;
        taken
    }

    /// Returns where small bodies are read to, if such are to be expected and there is room.
    fn region(&self, shared: &mut Shared) -> Option<Region> {
        let is_small = |bytes| (PLACED_MIN..=SMALL_MAX).contains(&bytes);
        let expected = self.inbox.body_bytes().unwrap_or(self.body_bytes_before);
        is_small(expected).then(|| shared.bodies.take_region())?
    }

    fn expects_large(&self) -> bool {
        self.inbox.body_bytes().unwrap_or(self.body_bytes_before) > SMALL_MAX
    }

    /// One system call: into the rest of the body, if there is one, and behind it into `ahead`.
    fn receive(&mut self, is_opened: bool, ahead: &mut [u8]) -> io::Result<Reading> {
        let (rest, ahead) = match self.inbox.body_rest() {
            None => (&mut [][..], ahead),
            Some(rest) if rest.len() > DIGEST_PIECE_BYTES => {
                (&mut rest[..DIGEST_PIECE_BYTES], &mut [][..])
            }
            Some(rest) => (rest, ahead),
        };
        let (rest_bytes, offered) = (rest.len(), rest.len() + ahead.len());
        let mut slices = [IoSliceMut::new(rest), IoSliceMut::new(ahead)];
        // A system call with one slice takes less.
        let slices = match rest_bytes {
            0 => &mut slices[1..],
            _ if rest_bytes == offered => &mut slices[..1],
            _ => &mut slices[..],
        };
        let mut opened = None;
        let bytes = if is_opened {
            let Received { bytes, kind } = kernel_tls::receive(&self.stream, slices)?;
            if let Some(kind) = kind {
                let mut content = Vec::new();
                if kind != ContentType::ApplicationData {
                    for slice in slices {
                        content.extend_from_slice(&slice[..slice.len().min(bytes - content.len())]);
                    }
                }
                opened = Some((kind, content));
            }
            match &opened {
                Some((ContentType::ApplicationData, _)) => bytes,
                _ => 0,
            }
        } else if let [slice] = slices {
            (&self.stream).read(slice)?
        } else {
            (&self.stream).read_vectored(slices)?
        };
        let body = bytes.min(rest_bytes);
        Ok(Reading {
            body,
            ahead: bytes - body,
            is_drained: bytes < offered && !is_opened,
            opened,
        })
    }

    fn count(&mut self, read: &Reading, shared: &mut Shared, now: Instant) {
        let bytes = read.bytes();
        shared.stats.bytes_in += bytes as u64;
        if bytes > 0 {
            self.moved_in = now;
        }
        if read.is_drained {
            shared.stats.short_reads += 1;
            // The socket is drained, and epoll reports when more comes; an end that it has reported is still to come.
            self.readable = self.ending;
        }
    }

    /// Deals with what is not data in what the kernel opened.
    fn take_opened_read(
        &mut self,
        session: &mut Session,
        read: &Reading,
    ) -> Result<(), CloseReason> {
        match &read.opened {
            Some((kind, content)) if *kind != ContentType::ApplicationData => {
                self.take_opened(session, *kind, content)
            }
            Some(_) => Ok(()),
            None => Err(self.cut_off()),
        }
    }

    /// Deals with what one read brought.
    fn take_read(
        &mut self,
        read: &Reading,
        input: Input<'_>,
        shared: &mut Shared,
        events: &mut Vec<Event>,
        now: Instant,
    ) -> Result<(), CloseReason> {
        if let Some(arrived) = (read.body > 0)
            .then(|| self.inbox.filled(read.body))
            .flatten()
        {
            self.hand_out(arrived, shared, events, now)?;
        }
        self.take(input, shared, events, now)
    }

    /// Makes frames of `input` and keeps what cannot be taken yet.
    pub(super) fn take(
        &mut self,
        mut input: Input<'_>,
        shared: &mut Shared,
        events: &mut Vec<Event>,
        now: Instant,
    ) -> Result<(), CloseReason> {
        while !input.rest().is_empty() {
            if self.is_deaf() {
                self.inbox.clear();
                return Ok(());
            }
            if self.awaits_admission() {
                self.backlog = input.rest().to_vec();
                return Ok(());
            }
            let step = self
                .inbox
                .take(&mut input, &shared.limits, &mut shared.bodies, now);
            match step? {
                Step::Arrived(arrived) => self.hand_out(arrived, shared, events, now)?,
                Step::Bytes => {}
                Step::Space => {
                    self.backlog = input.rest().to_vec();
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
    ) -> Result<(), CloseReason> {
        self.body_bytes_before = arrived.frame.body.len();
        let spent = now.saturating_duration_since(arrived.began);
        let Arrived {
            frame, body_digest, ..
        } = arrived;
        if frame.kind == WireKind::Lane {
            return self.handle_lane_word(&frame.head, shared);
        }
        let event = Event::Received {
            conn: self.id,
            frame,
            body_digest,
            spent,
        };
        if let Some(event) = self.put_behind_lane(event) {
            self.emit(event, shared, events);
        }
        Ok(())
    }

    pub(super) fn emit(&mut self, event: Event, shared: &mut Shared, events: &mut Vec<Event>) {
        self.frames_in += 1;
        shared.stats.frames_in += 1;
        events.push(event);
    }

    pub(super) fn peer_ends(&mut self) -> Result<(), CloseReason> {
        if let Some(reason) = self.broken.take() {
            return Err(reason);
        }
        let missing = self.inbox.missing();
        if let Some(missing) = missing.filter(|_| !self.is_deaf()) {
            return Err(CloseReason::Cut { missing });
        }
        self.peer_finished = true;
        Ok(())
    }
}

/// Result of one system call that reads.
#[derive(Debug)]
struct Reading {
    body: usize,
    ahead: usize,
    /// Whether the socket had less than was asked for. The kernel stops also at the end of a record that it opened:
    /// then only the next read knows.
    is_drained: bool,
    /// Type of the records that the kernel opened, and what was in them unless that was data.
    opened: Option<(ContentType, Vec<u8>)>,
}

impl Reading {
    fn bytes(&self) -> usize {
        self.body + self.ahead
    }
}
