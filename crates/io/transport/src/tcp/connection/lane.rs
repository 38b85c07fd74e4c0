//! A lane beside a connection: frames whose bodies lie in the memory of the peer.

use super::{Connection, Shared, Side, TURN_BYTES};
use crate::fault::ShmFault;
use crate::shm::lane::{Came, LaneError, LaneReceiver};
use crate::shm::meeting::Offer;
use crate::tcp::stats::Stats;
use crate::transport::{CloseReason, Event};
use std::collections::VecDeque;
use std::time::Duration;

/// First byte of the head of a lane's word: the accepting side offers one, the connecting side opens it.
pub(crate) const OFFER: u8 = 1;
pub(crate) const OPEN: u8 = 2;

/// Records that one turn takes.
const TURN_RECORDS: usize = 1024;

/// Frames of the stream that may wait for the lane to name them.
const AHEAD_MAX: usize = 64;

/// The receiving end of a lane, and what of the stream waits for its turn in it.
pub(crate) struct LaneIn {
    pub(crate) lane_receiver: LaneReceiver,
    /// The peer has said that all further frames are named here.
    is_open: bool,
    /// The next frame is one of the stream.
    awaits_stream: bool,
    /// Frames of the stream that have not been named yet.
    on_stream: VecDeque<Event>,
}

impl LaneIn {
    pub(crate) fn new(lane_receiver: LaneReceiver) -> Self {
        Self {
            lane_receiver,
            is_open: false,
            awaits_stream: false,
            on_stream: VecDeque::new(),
        }
    }

    /// Returns whether there is something to deliver.
    fn has_more(&self) -> bool {
        if self.awaits_stream {
            !self.on_stream.is_empty()
        } else {
            self.is_open && self.lane_receiver.has_more()
        }
    }
}

impl Connection {
    /// Puts what waits for the lane on it.
    pub(super) fn lend(&mut self, shared: &mut Shared) -> Result<(), CloseReason> {
        self.lend_now(&mut shared.stats)?;
        self.outbox.show_lent();
        Ok(())
    }

    /// Returns the same, but the peer need not see it before the next turn.
    pub(crate) fn lend_now(&mut self, stats: &mut Stats) -> Result<(), CloseReason> {
        let lent = self.outbox.lend().map_err(CloseReason::Shm)?;
        stats.frames_out += lent.frames;
        stats.lent_frames_out += lent.frames;
        stats.lent_bytes_out += lent.bytes;
        Ok(())
    }

    /// Returns whether the lane has something for a turn. The end of the peer is behind all of it.
    pub(crate) fn lane_has_more(&self) -> bool {
        self.lane.as_ref().is_some_and(|lane| lane.has_more())
    }

    /// Asks the peer for a wake when something comes; `false` if something is there.
    pub(crate) fn lane_sleeps(&self) -> bool {
        let lane = self.lane.as_ref();
        if let Some(lane) = lane {
            lane.lane_receiver.show_given_back();
        }
        lane.is_none_or(|lane| !lane.is_open || lane.awaits_stream || lane.lane_receiver.sleep())
    }

    /// Returns whether so much of the stream waits for the lane that no more is read.
    pub(super) fn is_ahead(&self) -> bool {
        let lane = self.lane.as_ref();
        lane.is_some_and(|lane| lane.on_stream.len() >= AHEAD_MAX)
    }

    /// The peer speaks of a lane.
    pub(super) fn handle_lane_word(
        &mut self,
        word: &[u8],
        shared: &mut Shared,
    ) -> Result<(), CloseReason> {
        let fault = |what| Err(CloseReason::Shm(ShmFault::Word(what)));
        match (word.split_first(), self.side) {
            (Some((&OFFER, offer)), Side::Connecting) if self.is_bulk => {
                let Some(offer) = Offer::decode(offer) else {
                    return fault("an offer that is none");
                };
                if !shared.offers.iter().any(|(conn, _)| *conn == self.id) {
                    shared.offers.push((self.id, offer));
                }
                Ok(())
            }
            (Some((&OPEN, [])), Side::Accepting) => match &mut self.lane {
                Some(lane) if !lane.is_open => {
                    lane.is_open = true;
                    Ok(())
                }
                _ => fault("the opening of a lane that there is not"),
            },
            _ => fault("neither an offer nor an opening that this side may say"),
        }
    }

    /// Keeps a frame of the stream back until the lane names it.
    pub(super) fn put_behind_lane(&mut self, event: Event) -> Option<Event> {
        match &mut self.lane {
            Some(lane) if lane.is_open => {
                lane.on_stream.push_back(event);
                None
            }
            _ => Some(event),
        }
    }

    /// Delivers what came over the lane: at most [`TURN_BYTES`] and [`TURN_RECORDS`].
    pub(super) fn take_lane(
        &mut self,
        shared: &mut Shared,
        events: &mut Vec<Event>,
    ) -> Result<(), CloseReason> {
        let Some(mut lane) = self.lane.take() else {
            return Ok(());
        };
        let outcome = self.take_records(&mut lane, shared, events);
        lane.lane_receiver.free();
        self.lane = Some(lane);
        outcome
    }

    fn take_records(
        &mut self,
        lane: &mut LaneIn,
        shared: &mut Shared,
        events: &mut Vec<Event>,
    ) -> Result<(), CloseReason> {
        let mut left = TURN_BYTES as u64;
        for _ in 0..TURN_RECORDS {
            if lane.awaits_stream {
                let Some(event) = lane.on_stream.pop_front() else {
                    break;
                };
                lane.awaits_stream = false;
                self.emit(event, shared, events);
            }
            if !lane.is_open || left == 0 {
                break;
            }
            let keep_head = &mut |head: &[u8]| shared.bodies.head(head);
            let came = lane.lane_receiver.next(&shared.limits, keep_head);
            let came = came.map_err(|error| match error {
                LaneError::Shm(fault) => CloseReason::Shm(fault),
                LaneError::Prefix(error) => CloseReason::Refused(error),
            })?;
            match came {
                Came::Frame(frame) => {
                    let bytes = frame.wire_bytes();
                    left = left.saturating_sub(bytes);
                    shared.stats.lent_frames_in += 1;
                    shared.stats.lent_bytes_in += bytes;
                    let event = Event::Received {
                        conn: self.id,
                        frame,
                        body_digest: None,
                        spent: Duration::ZERO,
                    };
                    self.emit(event, shared, events);
                }
                Came::OnStream => lane.awaits_stream = true,
                Came::Nothing => break,
            }
        }
        Ok(())
    }
}
