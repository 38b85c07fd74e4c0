//! Writer of a leader's appends that ZooKeeper does not have yet.

use super::segment;
use crate::keeper::Ticket;
use sheaf_protocol::{Record, Term, Timestamp};
use sheaf_verdict_log::Position;
use std::collections::VecDeque;
use std::time::Duration;

/// Records of one segment, encoded. ZooKeeper takes at most 1 MiB a message.
const SEGMENT_BYTES: usize = 256 << 10;

/// Segments on the way at once.
const FLIGHTS_MAX: usize = 4;

/// Number of segments after which a checkpoint is wanted: a takeover reads them one by one, some thousand a second.
const CHECKPOINT_SEGMENTS: u64 = 100;

/// Appends of one leader.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) term: Term,
    /// The version of `term` that every write checks.
    pub(super) version: i32,
    next_number: u64,
    /// Records before the next segment.
    pub(super) next_record: u64,
    appended: Position,
    waiting: VecDeque<Piece>,
    /// When the first of those was appended.
    since: Timestamp,
    pub(super) flights: VecDeque<Flight>,
    /// Segments made since a checkpoint was appended.
    since_checkpoint: u64,
}

/// Records that stay in one segment.
#[derive(Debug)]
struct Piece {
    bytes: Vec<u8>,
    count: u32,
    /// The append that ends with the piece; `None` if the next piece goes on with it.
    ends: Option<Position>,
    opens_run: bool,
    checkpoint: Ends,
}

/// Whether a checkpoint begins and ends in some records.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ends {
    pub(super) begins: bool,
    pub(super) ends: bool,
}

/// Segment that is not known to be in the log.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) number: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) count: u32,
    /// The last append that ends in the segment.
    pub(super) ends: Option<Position>,
    pub(super) opens_run: bool,
    pub(super) checkpoint: Ends,
    /// Request that is sent and not answered.
    pub(super) ticket: Option<Ticket>,
    pub(super) is_durable: bool,
}

impl Writer {
    /// Returns a writer in `term`, behind a log of `records` records whose last segment has the number `last`.
    pub(super) fn new(term: Term, version: i32, last: u64, records: u64) -> Self {
        Self {
            term,
            version,
            next_number: last + 1,
            next_record: records,
            appended: Position(0),
            waiting: VecDeque::new(),
            since: Timestamp(0),
            flights: VecDeque::new(),
            since_checkpoint: 0,
        }
    }

    /// Returns the number of the last segment that was made.
    pub(super) fn last_number(&self) -> u64 {
        self.next_number - 1
    }

    /// Returns whether a takeover would have to read many segments.
    pub(super) fn wants_checkpoint(&self) -> bool {
        self.since_checkpoint >= CHECKPOINT_SEGMENTS
    }

    /// Sets the number of segments behind the last checkpoint at the begin.
    pub(super) fn set_behind_checkpoint(&mut self, segments: u64) {
        self.since_checkpoint = segments;
    }

    pub(super) fn append(&mut self, now: Timestamp, records: &[Record]) -> Position {
        self.appended.0 += 1;
        if self.waiting.is_empty() {
            self.since = now;
        }
        let empty = || Piece {
            bytes: Vec::new(),
            count: 0,
            ends: None,
            opens_run: false,
            checkpoint: Ends::default(),
        };
        let mut piece = empty();
        let is_checkpoint = matches!(records.first(), Some(Record::Checkpoint(_)));
        piece.checkpoint.begins = is_checkpoint;
        if is_checkpoint {
            self.since_checkpoint = 0;
        }
        for record in records {
            let mut bytes = Vec::new();
            record.encode_into(&mut bytes);
            if piece.count > 0 && piece.bytes.len() + bytes.len() > SEGMENT_BYTES {
                self.waiting
                    .push_back(std::mem::replace(&mut piece, empty()));
            }
            piece.bytes.append(&mut bytes);
            piece.count += 1;
            piece.opens_run |= matches!(record, Record::Opened { .. });
        }
        piece.ends = Some(self.appended);
        piece.checkpoint.ends = is_checkpoint;
        self.waiting.push_back(piece);
        self.appended
    }

    /// Returns when the next segment is to be made; `None` if there is nothing to write or too much on the way.
    pub(super) fn due(&self, gather: Duration, gather_max: Duration) -> Option<Timestamp> {
        if self.waiting.is_empty() || self.flights.len() >= FLIGHTS_MAX {
            return None;
        }
        let bytes: usize = self.waiting.iter().map(|piece| piece.bytes.len()).sum();
        Some(match self.flights.len() {
            _ if bytes >= SEGMENT_BYTES => self.since,
            0 => self.since + gather,
            _ => self.since + gather_max,
        })
    }

    /// Makes the next segment of the waiting records.
    pub(super) fn make_segment(&mut self, now: Timestamp) {
        let Some(mut piece) = self.waiting.pop_front() else {
            return;
        };
        let mut ends = piece.ends;
        while let Some(more) = self.waiting.front()
            && piece.bytes.len() + more.bytes.len() <= SEGMENT_BYTES
            && let Some(more) = self.waiting.pop_front()
        {
            piece.bytes.extend(&more.bytes);
            piece.count += more.count;
            piece.ends = more.ends;
            piece.opens_run |= more.opens_run;
            piece.checkpoint.begins |= more.checkpoint.begins;
            piece.checkpoint.ends |= more.checkpoint.ends;
            ends = more.ends.or(ends);
        }
        let (number, before) = (self.next_number, self.next_record);
        let goes_on = piece.ends.is_none();
        let bytes = segment::encode(
            self.term,
            number,
            before,
            goes_on,
            piece.count,
            &piece.bytes,
        );
        self.next_number += 1;
        self.since_checkpoint += 1;
        self.next_record += u64::from(piece.count);
        self.since = now;
        self.flights.push_back(Flight {
            number,
            bytes,
            count: piece.count,
            ends,
            opens_run: piece.opens_run,
            checkpoint: piece.checkpoint,
            ticket: None,
            is_durable: false,
        });
    }

    /// Returns the segments that have to be sent now: again only when no answer is awaited any more, so that they
    /// arrive in order.
    pub(super) fn unsent(&mut self) -> impl Iterator<Item = &mut Flight> {
        let flights = self.flights.iter().filter(|flight| !flight.is_durable);
        let first_unsent = flights.clone().position(|flight| flight.ticket.is_none());
        let is_blocked = first_unsent
            .is_some_and(|first| flights.skip(first).any(|flight| flight.ticket.is_some()));
        let unsent = |flight: &&mut Flight| flight.ticket.is_none() && !flight.is_durable;
        self.flights
            .iter_mut()
            .filter(unsent)
            .filter(move |_| !is_blocked)
    }

    /// Takes the segments off the front that are in the log.
    pub(super) fn pop_durable(&mut self) -> Option<Flight> {
        self.flights.pop_front_if(|flight| flight.is_durable)
    }

    pub(super) fn flight(&mut self, number: u64) -> Option<&mut Flight> {
        self.flights
            .iter_mut()
            .find(|flight| flight.number == number)
    }
}
