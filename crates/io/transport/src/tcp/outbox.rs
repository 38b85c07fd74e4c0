//! Output of one connection.

use crate::fault::ShmFault;
use crate::shm::lane::{LaneSender, Sent};
use crate::tcp::zero_copy::{self, ZeroCopy};
use crate::transport::{Frame, SendError, WhenFull};
use bytes::Bytes;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use sheaf_protocol::Prefix;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;

/// Slices in one system call: two a frame, or three if its head is long.
pub(super) const SLICES_MAX: usize = 256;

/// Heads up to this are written as one slice with their prefix: the kernel's work for a slice is more than the copy.
const SHORT_HEAD_MAX: usize = 72;

/// Frames that wait for the kernel to take them, and the bound that they keep.
///
/// Prefix and head, and body, go out as slices of one vectored write over many frames: no body is copied, and a small
/// frame costs a fraction of a system call.
///
/// With a [lane](crate::shm) all further frames wait for it, and only those that it cannot carry go on to the kernel.
pub(crate) struct Outbox {
    frames: VecDeque<Queued>,
    /// Bytes of the first frame that the kernel has.
    sent: usize,
    /// Bytes of all frames that neither the kernel nor the peer has.
    bytes: u64,
    bytes_max: u64,
    when_full: WhenFull,
    /// Wire bytes of the frame that was last refused, until there is room for it.
    refused: Option<u64>,
    lane: Option<Box<Lane>>,
}

struct Queued {
    /// The prefix, and behind it a short head.
    front: [u8; Prefix::SIZE + SHORT_HEAD_MAX],
    frame: Frame,
}

impl Queued {
    fn new(frame: Frame) -> Self {
        let prefix = Prefix::new(frame.kind, &frame.head, frame.body.len() as u64);
        let mut front = [0; Prefix::SIZE + SHORT_HEAD_MAX];
        front[..Prefix::SIZE].copy_from_slice(&prefix.encode());
        if let Some(place) = front[Prefix::SIZE..].get_mut(..frame.head.len()) {
            place.copy_from_slice(&frame.head);
        }
        Self { front, frame }
    }

    /// Returns the bytes of the frame, in up to three pieces.
    fn parts(&self) -> [&[u8]; 3] {
        let Frame { head, body, .. } = &self.frame;
        match self.front.get(..Prefix::SIZE + head.len()) {
            Some(front) => [front, &[], body],
            None => [&self.front[..Prefix::SIZE], head, body],
        }
    }
}

/// Frames that wait for a lane.
struct Lane {
    lane_sender: LaneSender,
    frames: VecDeque<Frame>,
    /// The lane had no room, and the peer knows that we wait.
    is_full: bool,
}

/// Counts of frames over a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lent {
    pub(crate) frames: u64,
    pub(crate) bytes: u64,
}

/// Frames that a full queue has dropped for another, itself possibly one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dropped {
    pub(crate) frames: u64,
    /// Bytes of the frames.
    pub(crate) bytes: u64,
}

/// Result of one write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) bytes: usize,
    pub(crate) frames: u64,
    /// Whether the kernel took all it was offered.
    pub(crate) whole: bool,
}

impl Outbox {
    pub(crate) fn new(bytes_max: u64, when_full: WhenFull) -> Self {
        let frames = VecDeque::new();
        Self {
            frames,
            sent: 0,
            bytes: 0,
            bytes_max,
            when_full,
            refused: None,
            lane: None,
        }
    }

    pub(crate) fn set_when_full(&mut self, when_full: WhenFull) {
        self.when_full = when_full;
    }

    /// Returns whether nothing waits, for the kernel or for a lane.
    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty() && self.lane.as_ref().is_none_or(|lane| lane.frames.is_empty())
    }

    /// Returns whether something waits for the kernel.
    pub(crate) fn has_output(&self) -> bool {
        !self.frames.is_empty()
    }

    /// Returns whether something waits that the lane may have room for, or was put there and not shown yet.
    pub(crate) fn can_lend(&self) -> bool {
        self.lane.as_ref().is_some_and(|lane| {
            (!lane.is_full && !lane.frames.is_empty()) || lane.lane_sender.is_unpublished()
        })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn has_room(&self, wire_bytes: u64) -> bool {
        self.is_empty() || self.bytes.saturating_add(wire_bytes) <= self.bytes_max
    }

    /// Takes `frame`, or does with it what the queue does when it is full.
    pub(crate) fn push(&mut self, frame: Frame) -> Result<Dropped, SendError> {
        let wire_bytes = frame.wire_bytes();
        let mut dropped = Dropped::default();
        if !self.has_room(wire_bytes) {
            match self.when_full {
                WhenFull::Block => {
                    self.refused = Some(wire_bytes);
                    return Err(SendError::Full(frame));
                }
                WhenFull::DropNewest => {}
                WhenFull::DropOldest => self.drop_oldest(wire_bytes, &mut dropped),
            }
            if !self.has_room(wire_bytes) {
                dropped.frames += 1;
                dropped.bytes += wire_bytes;
                return Ok(dropped);
            }
        }
        self.bytes += wire_bytes;
        match &mut self.lane {
            Some(lane) => lane.frames.push_back(frame),
            None => self.frames.push_back(Queued::new(frame)),
        }
        Ok(dropped)
    }

    /// From now on frames go over the lane of `lender`, behind `last`, which is the last of those before.
    pub(crate) fn open_lane(&mut self, lane_sender: LaneSender, last: Frame) {
        self.bytes += last.wire_bytes();
        self.frames.push_back(Queued::new(last));
        self.lane = Some(Box::new(Lane {
            lane_sender,
            frames: VecDeque::new(),
            is_full: false,
        }));
    }

    /// Returns the lane, if there is one.
    pub(crate) fn lane_sender(&mut self) -> Option<&mut LaneSender> {
        self.lane.as_mut().map(|lane| &mut lane.lane_sender)
    }

    /// Gives the lane up. What waits for it is dropped.
    pub(crate) fn take_lane_sender(&mut self) -> Option<LaneSender> {
        let lane = self.lane.take()?;
        let waiting: u64 = lane.frames.iter().map(Frame::wire_bytes).sum();
        self.bytes -= waiting;
        Some(lane.lane_sender)
    }

    /// The peer has made room, perhaps.
    pub(crate) fn try_lane_again(&mut self) {
        if let Some(lane) = &mut self.lane {
            lane.is_full = false;
        }
    }

    /// Puts as much as it takes on the lane, and what it cannot carry behind what waits for the kernel. The peer sees
    /// it with [`show_lent`](Self::show_lent), or when it is some dozen frames.
    pub(crate) fn lend(&mut self) -> Result<Lent, ShmFault> {
        let mut lent = Lent::default();
        let Some(lane) = &mut self.lane else {
            return Ok(lent);
        };
        while !lane.is_full
            && let Some(frame) = lane.frames.front()
        {
            let wire_bytes = frame.wire_bytes();
            match lane.lane_sender.send(frame)? {
                Sent::Lent => {
                    lent.frames += 1;
                    lent.bytes += wire_bytes;
                    self.bytes -= wire_bytes;
                    lane.frames.pop_front();
                }
                Sent::OnStream => {
                    self.frames.extend(lane.frames.pop_front().map(Queued::new));
                }
                Sent::Full => {
                    lane.lane_sender.publish();
                    lane.is_full = !lane.lane_sender.reap()? && lane.lane_sender.wait()?;
                }
            }
        }
        Ok(lent)
    }

    /// Shows the peer what was put on the lane.
    pub(crate) fn show_lent(&mut self) {
        if let Some(lane) = &mut self.lane {
            lane.lane_sender.publish();
        }
    }

    /// Makes room by dropping from the front, but not what the peer has begun to receive, or was announced.
    fn drop_oldest(&mut self, wire_bytes: u64, dropped: &mut Dropped) {
        let begun = usize::from(self.sent > 0);
        while !self.has_room(wire_bytes)
            && let Some(oldest) = match &mut self.lane {
                Some(lane) => lane.frames.pop_front(),
                None => self.frames.remove(begun).map(|queued| queued.frame),
            }
        {
            let bytes = oldest.wire_bytes();
            self.bytes -= bytes;
            dropped.frames += 1;
            dropped.bytes += bytes;
        }
    }

    /// Offers the kernel up to `bytes_max` bytes in one system call. Something must wait for it.
    ///
    /// With `zero_copy` large bodies go in calls of their own, which the kernel does not copy.
    pub(crate) fn write(
        &mut self,
        socket: impl AsFd,
        bytes_max: usize,
        zero_copy: Option<&mut ZeroCopy>,
    ) -> io::Result<Written> {
        let zero_copy = zero_copy.filter(|zero_copy| zero_copy.has_room());
        let Some(zero_copy) = zero_copy else {
            return self.write_batch(socket, bytes_max, SendFlags::empty());
        };
        let Some(piece) = self.large_body(bytes_max) else {
            // Its head, and what is before: the body follows at once.
            return match self.bytes_before_large() {
                Some(before) => self.write_batch(socket, bytes_max.min(before), SendFlags::MORE),
                None => self.write_batch(socket, bytes_max, SendFlags::empty()),
            };
        };
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let is_asked = zero_copy.asks();
        let asked = match is_asked {
            true => SendFlags::from_bits_retain(libc::MSG_ZEROCOPY.cast_unsigned()),
            false => SendFlags::empty(),
        };
        let slices = [IoSlice::new(&piece)];
        let control = &mut SendAncillaryBuffer::default();
        let begun = zero_copy.clock();
        let bytes = match sendmsg(&socket, &slices, control, flags | asked) {
            // As much memory as this process may have the kernel hold is held: this piece is copied.
            Err(Errno::NOBUFS) => {
                let control = &mut SendAncillaryBuffer::default();
                sendmsg(&socket, &slices, control, flags)?
            }
            sent => {
                let bytes = sent?;
                if is_asked {
                    zero_copy.sent(piece.slice(..bytes));
                }
                zero_copy.count(is_asked, bytes, begun);
                bytes
            }
        };
        let whole = bytes == piece.len();
        let frames = self.advance(bytes);
        Ok(Written {
            bytes,
            frames,
            whole,
        })
    }

    /// Returns the rest of the first frame, if that is a large piece of its body, up to `bytes_max`.
    fn large_body(&self, bytes_max: usize) -> Option<Bytes> {
        let Queued { frame, .. } = self.frames.front()?;
        let begin = self.sent.checked_sub(Prefix::SIZE + frame.head.len())?;
        let rest = frame.body.slice(begin..);
        let piece = rest.slice(..rest.len().min(bytes_max));
        (piece.len() >= zero_copy::BYTES_MIN).then_some(piece)
    }

    /// Returns bytes before the first large body.
    fn bytes_before_large(&self) -> Option<usize> {
        let mut before = 0;
        for Queued { frame, .. } in self.frames.iter().take(SLICES_MAX / 3) {
            before += Prefix::SIZE + frame.head.len();
            if frame.body.len() >= zero_copy::BYTES_MIN {
                return before.checked_sub(self.sent).filter(|before| *before > 0);
            }
            before += frame.body.len();
        }
        None
    }

    fn write_batch(
        &mut self,
        socket: impl AsFd,
        bytes_max: usize,
        more: SendFlags,
    ) -> io::Result<Written> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let (count, offered) = self.batch(&mut slices, bytes_max);
        // Not `writev`: in a process that did not ignore SIGPIPE, a peer that is gone would end it.
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT | more;
        let control = &mut SendAncillaryBuffer::default();
        let bytes = sendmsg(socket, &slices[..count], control, flags)?;
        let frames = self.advance(bytes);
        Ok(Written {
            bytes,
            frames,
            whole: bytes == offered,
        })
    }

    /// Fills `slices` with what comes next, and answers with their number and bytes.
    pub(super) fn batch<'a>(
        &'a self,
        slices: &mut [IoSlice<'a>],
        bytes_max: usize,
    ) -> (usize, usize) {
        let (mut count, mut bytes, mut skip) = (0, 0, self.sent);
        for queued in &self.frames {
            for part in queued.parts() {
                let rest = &part[skip.min(part.len())..];
                skip -= part.len() - rest.len();
                if rest.is_empty() {
                    continue;
                }
                let piece = &rest[..rest.len().min(bytes_max - bytes)];
                slices[count] = IoSlice::new(piece);
                count += 1;
                bytes += piece.len();
                if count == slices.len() || bytes == bytes_max {
                    return (count, bytes);
                }
            }
        }
        (count, bytes)
    }

    /// Releases what the kernel took, and returns the number of frames sent.
    pub(super) fn advance(&mut self, bytes: usize) -> u64 {
        let mut frames = 0;
        self.bytes -= bytes as u64;
        self.sent += bytes;
        while let Some(Queued { frame, .. }) = self.frames.front() {
            let size = Prefix::SIZE + frame.head.len() + frame.body.len();
            if self.sent < size {
                break;
            }
            self.sent -= size;
            self.frames.pop_front();
            frames += 1;
        }
        frames
    }

    /// Returns whether the frame that was last refused has room now; says so once.
    pub(crate) fn room_again(&mut self) -> bool {
        let again = self
            .refused
            .is_some_and(|wire_bytes| self.has_room(wire_bytes));
        if again {
            self.refused = None;
        }
        again
    }

    /// Forgets everything but what is lent.
    pub(crate) fn clear(&mut self) {
        self.frames.clear();
        if let Some(lane) = &mut self.lane {
            lane.frames.clear();
        }
        self.sent = 0;
        self.bytes = 0;
        self.refused = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sheaf_protocol::WireKind;

    fn frame(head: usize, body: usize) -> Frame {
        let fill = u8::try_from(body % 251).unwrap();
        let (head, body) = (vec![7; head], vec![fill; body]);
        Frame {
            kind: WireKind::Stf,
            head: Bytes::from(head),
            body: Bytes::from(body),
        }
    }

    /// Bodies of the queued frames, to tell them apart.
    fn bodies(outbox: &Outbox) -> Vec<usize> {
        outbox
            .frames
            .iter()
            .map(|queued| queued.frame.body.len())
            .collect()
    }

    fn outbox(when_full: WhenFull, sizes: &[usize]) -> Outbox {
        let mut outbox = Outbox::new(1000, when_full);
        for size in sizes {
            outbox.push(frame(0, *size)).unwrap();
        }
        outbox
    }

    #[test]
    fn one_frame_is_always_taken_however_large() {
        assert_eq!(bodies(&outbox(WhenFull::Block, &[5000])), [5000]);
    }

    #[test]
    fn a_blocking_queue_gives_the_frame_back_and_says_once_when_there_is_room() {
        let mut outbox = outbox(WhenFull::Block, &[400, 400]);
        let refused = frame(0, 500);
        assert_eq!(outbox.push(refused.clone()), Err(SendError::Full(refused)));
        outbox.advance(100);
        assert!(!outbox.room_again());
        outbox.advance(324);
        assert!(outbox.room_again());
        assert!(!outbox.room_again());
    }

    #[test]
    fn a_queue_that_drops_the_newest_keeps_what_it_has() {
        let mut outbox = outbox(WhenFull::DropNewest, &[400, 401]);
        let dropped = outbox.push(frame(0, 402)).unwrap();
        assert_eq!(
            dropped,
            Dropped {
                frames: 1,
                bytes: 426
            }
        );
        assert_eq!(bodies(&outbox), [400, 401]);
    }

    #[test]
    fn a_queue_that_drops_the_oldest_spares_what_is_partly_sent() {
        let mut outbox = outbox(WhenFull::DropOldest, &[300, 301, 302]);
        outbox.advance(1);
        let dropped = outbox.push(frame(0, 303)).unwrap();
        assert_eq!(
            dropped,
            Dropped {
                frames: 1,
                bytes: 325
            }
        );
        assert_eq!(bodies(&outbox), [300, 302, 303]);
        let dropped = outbox.push(frame(0, 990)).unwrap();
        assert_eq!(dropped.frames, 3);
        assert_eq!((bodies(&outbox), outbox.bytes()), (vec![300], 323));
    }

    proptest! {
        #[test]
        fn batches_of_any_size_carry_the_stream_on(
            sizes in prop::collection::vec((0_usize..150, 0_usize..300), 1..40),
            steps in prop::collection::vec((1_usize..500, 0_usize..500), 1..400),
        ) {
            let mut outbox = Outbox::new(u64::MAX, WhenFull::Block);
            let mut expected = Vec::new();
            for (head, body) in sizes {
                let frame = frame(head, body);
                let prefix = Prefix::new(frame.kind, &frame.head, body as u64);
                expected.extend_from_slice(&prefix.encode());
                expected.extend_from_slice(&frame.head);
                expected.extend_from_slice(&frame.body);
                outbox.push(frame).unwrap();
            }
            let mut stream = Vec::new();
            for (bytes_max, accepted) in steps {
                let (bytes, whole) = {
                    let mut slices = [IoSlice::new(&[]); 5];
                    let (count, offered) = outbox.batch(&mut slices, bytes_max);
                    let batch: Vec<u8> =
                        slices[..count].iter().flat_map(|slice| slice.to_vec()).collect();
                    prop_assert!(batch.len() == offered && offered <= bytes_max);
                    let accepted = accepted.min(offered);
                    stream.extend_from_slice(&batch[..accepted]);
                    (accepted, batch.is_empty())
                };
                outbox.advance(bytes);
                prop_assert_eq!(outbox.bytes(), (expected.len() - stream.len()) as u64);
                prop_assert_eq!(whole, outbox.is_empty() && bytes == 0);
            }
            prop_assert_eq!(&stream[..], &expected[..stream.len()]);
        }
    }
}
