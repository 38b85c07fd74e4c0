//! Connections that a loop of data serves, as the caller sees them: what is queued, and what may still be.

use super::line::Line;
use super::passage::Order;
use crate::tcp::Dropped;
use crate::transport::{ConnId, Frame, WhenFull};
use sheaf_auth::Identity;
use std::collections::VecDeque;
use std::sync::Arc;

/// Result of queueing a frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    /// The loop gets it.
    Passed(Frame),
    /// The queue keeps it here, and may have dropped some for it, itself possibly one of them.
    Kept {
        /// These.
        dropped: Dropped,
    },
    /// There is no room for it.
    Full(Frame),
    /// The connection takes no more frames.
    Closed,
}

/// How far a connection has come to its end on this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// To be ended behind all that is queued.
    Ending(Side),
    /// The loop knows that it is to be ended.
    Ended,
    /// The loop knows that it is to be closed.
    Closing,
}

/// Side that ends a connection first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Own,
    Peer,
}

/// Connection that a loop of data serves.
#[derive(Debug)]
pub(super) struct Remote {
    at: usize,
    line: Arc<Line>,
    /// Bytes that the loop was given in all.
    given_bytes: u64,
    /// Frames that can still be dropped: the loop gets them when half of the queue is free. Empty where nothing is
    /// dropped.
    kept: VecDeque<Frame>,
    kept_bytes: u64,
    queue_bytes_max: u64,
    when_full: WhenFull,
    /// Bytes of the frame that was refused last, and is waited for.
    refused_bytes: Option<u64>,
    state: State,
    /// The peer, as its certificate proves.
    pub(super) identity: Option<Identity>,
}

impl Remote {
    /// Returns a connection that the loop number `at` serves.
    pub(super) fn new(at: usize, queue_bytes_max: u64, when_full: WhenFull) -> Self {
        Self {
            at,
            line: Arc::default(),
            given_bytes: 0,
            kept: VecDeque::new(),
            kept_bytes: 0,
            queue_bytes_max,
            when_full,
            refused_bytes: None,
            state: State::Open,
            identity: None,
        }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn line(&self) -> Arc<Line> {
        Arc::clone(&self.line)
    }

    /// Returns whether it was closed on this side, so that only its end is still of interest.
    pub(super) fn is_closing(&self) -> bool {
        self.state == State::Closing
    }

    /// Returns bytes with the loop that the kernel has not taken.
    fn passed_bytes(&self) -> u64 {
        self.given_bytes - self.line.left_bytes()
    }

    pub(super) fn queued_bytes(&self) -> u64 {
        self.kept_bytes + self.passed_bytes()
    }

    fn has_room(&self, bytes: u64) -> bool {
        let queued = self.queued_bytes();
        queued == 0 || queued.saturating_add(bytes) <= self.queue_bytes_max
    }

    /// Queues `frame`.
    pub(super) fn push(&mut self, frame: Frame) -> Pushed {
        if self.state != State::Open {
            return Pushed::Closed;
        }
        let bytes = frame.wire_bytes();
        if self.when_full == WhenFull::Block && self.kept.is_empty() {
            if !self.has_room(bytes) {
                self.line.await_room();
                if !self.has_room(bytes) {
                    self.refused_bytes = Some(bytes);
                    return Pushed::Full(frame);
                }
            }
            self.given_bytes += bytes;
            return Pushed::Passed(frame);
        }
        let mut dropped = Dropped::default();
        if !self.has_room(bytes) {
            match self.when_full {
                WhenFull::Block => {
                    self.line.await_room();
                    self.refused_bytes = Some(bytes);
                    return Pushed::Full(frame);
                }
                WhenFull::DropNewest => {}
                WhenFull::DropOldest => {
                    while !self.has_room(bytes)
                        && let Some(oldest) = self.kept.pop_front()
                    {
                        self.kept_bytes -= oldest.wire_bytes();
                        dropped.frames += 1;
                        dropped.bytes += oldest.wire_bytes();
                    }
                }
            }
        }
        if self.has_room(bytes) {
            self.kept_bytes += bytes;
            self.kept.push_back(frame);
        } else {
            dropped.frames += 1;
            dropped.bytes += bytes;
        }
        Pushed::Kept { dropped }
    }

    pub(super) fn set_when_full(&mut self, when_full: WhenFull) {
        self.when_full = when_full;
    }

    /// Returns whether something is kept here that the loop is to get.
    pub(super) fn keeps(&self) -> bool {
        !self.kept.is_empty() || matches!(self.state, State::Ending(_))
    }

    /// Returns what the loop is to get now of what is kept.
    pub(super) fn orders_due(&mut self, conn: ConnId) -> Vec<Order> {
        let mut orders = Vec::new();
        while let Some(frame) = self.kept.front() {
            let (bytes, passed) = (frame.wire_bytes(), self.passed_bytes());
            if passed > 0 && passed.saturating_add(bytes) > self.queue_bytes_max / 2 {
                self.line.await_room();
                if self.passed_bytes() == passed {
                    return orders;
                }
                continue;
            }
            (self.kept_bytes, self.given_bytes) =
                (self.kept_bytes - bytes, self.given_bytes + bytes);
            orders.extend(
                self.kept
                    .pop_front()
                    .map(|frame| Order::Send { conn, frame }),
            );
        }
        if let State::Ending(side) = self.state {
            self.state = State::Ended;
            orders.push(match side {
                Side::Own => Order::Finish { conn },
                Side::Peer => Order::EndWithPeer { conn },
            });
        }
        orders
    }

    /// Returns whether there is room now for the frame that was refused last.
    pub(super) fn has_become_writable(&mut self) -> bool {
        let Some(bytes) = self.refused_bytes.filter(|_| self.state == State::Open) else {
            return false;
        };
        if !self.has_room(bytes) {
            self.line.await_room();
            if !self.has_room(bytes) {
                return false;
            }
        }
        self.refused_bytes = None;
        true
    }

    /// Closes it on this side. Returns whether the loop does not know of it yet.
    pub(super) fn close(&mut self) -> bool {
        (self.kept, self.kept_bytes) = (VecDeque::new(), 0);
        std::mem::replace(&mut self.state, State::Closing) != State::Closing
    }

    /// Finishes it on this side, behind all that is queued.
    pub(super) fn finish(&mut self) {
        self.end(Side::Own);
    }

    /// Notes that the peer sends no more: what is queued is sent, and nothing more is taken.
    pub(super) fn handle_peer_end(&mut self) {
        self.end(Side::Peer);
    }

    fn end(&mut self, side: Side) {
        if self.state == State::Open {
            self.state = State::Ending(side);
        }
    }

    /// Returns whether neither side has ended it.
    pub(super) fn is_open(&self) -> bool {
        self.state == State::Open
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use sheaf_protocol::WireKind;

    const CONN: ConnId = ConnId(7);
    /// Bytes of a frame of these tests on the wire, and of a queue that holds four.
    const BYTES: u64 = 124;
    const QUEUE: u64 = 4 * BYTES;

    fn frame(number: u8) -> Frame {
        let head = Bytes::from(vec![number; 100]);
        Frame::without_body(WireKind::Control, head)
    }

    fn remote(when_full: WhenFull) -> Remote {
        Remote::new(0, QUEUE, when_full)
    }

    /// Numbers of the frames that the loop gets now, and what comes behind them.
    fn due(remote: &mut Remote) -> (Vec<u8>, &'static str) {
        let (mut numbers, mut end) = (Vec::new(), "");
        for order in remote.orders_due(CONN) {
            match order {
                Order::Send { frame, .. } => numbers.push(frame.head[0]),
                Order::Finish { .. } => end = "finish",
                Order::EndWithPeer { .. } => end = "end with peer",
                _ => panic!("another order"),
            }
        }
        (numbers, end)
    }

    #[test]
    fn a_queue_that_blocks_takes_what_there_is_room_for_and_says_when_there_is_more() {
        let mut remote = remote(WhenFull::Block);
        for number in 0..4 {
            assert_eq!(remote.push(frame(number)), Pushed::Passed(frame(number)));
        }
        assert_eq!(remote.push(frame(4)), Pushed::Full(frame(4)));
        assert_eq!(remote.queued_bytes(), QUEUE);
        assert!(!remote.has_become_writable());
        assert!(remote.line().set_left(BYTES - 1), "the caller waits");
        assert!(!remote.has_become_writable(), "not enough");
        assert!(remote.line().set_left(BYTES), "it waits again");
        assert!(remote.has_become_writable());
        assert!(!remote.has_become_writable(), "once");
        assert!(!remote.line().set_left(2 * BYTES), "nothing is awaited");
        assert_eq!(remote.push(frame(4)), Pushed::Passed(frame(4)));
    }

    #[test]
    fn an_empty_queue_takes_any_frame() {
        let mut remote = Remote::new(0, 1, WhenFull::Block);
        assert!(matches!(remote.push(frame(0)), Pushed::Passed(_)));
        assert!(matches!(remote.push(frame(1)), Pushed::Full(_)));
        remote.line().set_left(BYTES);
        assert!(matches!(remote.push(frame(1)), Pushed::Passed(_)));
    }

    #[test]
    fn room_that_comes_while_the_caller_looks_is_used() {
        let mut remote = remote(WhenFull::Block);
        for number in 0..4 {
            let _ = remote.push(frame(number));
        }
        let line = remote.line();
        // The loop is faster than the second look.
        line.set_left(BYTES);
        assert!(matches!(remote.push(frame(4)), Pushed::Passed(_)));
    }

    #[test]
    fn full_queues_drop_the_newest_or_the_oldest_that_the_loop_has_not() {
        let dropped = |remote: &mut Remote, numbers: std::ops::Range<u8>| {
            let mut sum = Dropped::default();
            for number in numbers {
                match remote.push(frame(number)) {
                    Pushed::Kept { dropped } => {
                        sum.frames += dropped.frames;
                        sum.bytes += dropped.bytes;
                    }
                    other => panic!("{other:?}"),
                }
            }
            sum
        };
        let two = Dropped {
            frames: 2,
            bytes: 2 * BYTES,
        };
        let mut newest = remote(WhenFull::DropNewest);
        assert_eq!(dropped(&mut newest, 0..6), two);
        // The loop gets half of the queue, so that the rest can still be dropped.
        assert_eq!(due(&mut newest), (vec![0, 1], ""));
        assert!(newest.line().set_left(2 * BYTES));
        assert_eq!(due(&mut newest), (vec![2, 3], ""));

        let mut oldest = remote(WhenFull::DropOldest);
        assert_eq!(dropped(&mut oldest, 0..6), two);
        assert_eq!(due(&mut oldest), (vec![2, 3], ""));
        assert_eq!(dropped(&mut oldest, 6..8), two);
        oldest.line().set_left(2 * BYTES);
        assert_eq!(due(&mut oldest), (vec![6, 7], ""), "4 and 5 were dropped");
    }

    #[test]
    fn an_end_comes_behind_all_that_is_kept() {
        let mut remote = remote(WhenFull::DropNewest);
        for number in 0..3 {
            let _ = remote.push(frame(number));
        }
        remote.finish();
        assert_eq!(remote.push(frame(3)), Pushed::Closed);
        assert_eq!(due(&mut remote), (vec![0, 1], ""));
        assert!(remote.keeps());
        remote.line().set_left(2 * BYTES);
        assert_eq!(due(&mut remote), (vec![2], "finish"));
        assert!(!remote.keeps());
        assert_eq!(due(&mut remote), (vec![], ""), "once");
        remote.handle_peer_end();
        assert_eq!(due(&mut remote), (vec![], ""), "it ends already");
    }

    #[test]
    fn a_connection_whose_peer_has_ended_takes_nothing_and_ends_with_it() {
        let mut remote = remote(WhenFull::Block);
        let _ = remote.push(frame(0));
        remote.handle_peer_end();
        assert_eq!(remote.push(frame(1)), Pushed::Closed);
        assert_eq!(due(&mut remote), (vec![], "end with peer"));
        assert!(remote.close(), "the loop does not know");
        assert!(!remote.close() && remote.is_closing());
    }
}
