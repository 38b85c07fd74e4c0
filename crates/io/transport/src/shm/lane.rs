//! Frames whose bodies are lent: what the two ends of a lane do.

use super::lendable::Lendable;
use super::lent::lent;
use super::message;
use super::record::{self, FIXED, Fixed, Message, PLACE, Place};
use super::ring::{self, Reader, Writer};
use super::slots::Slots;
use crate::fault::ShmFault;
use crate::mapping::Mapping;
use crate::transport::Frame;
use bytes::Bytes;
use sheaf_protocol::{Limits, Prefix, PrefixError};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use thiserror::Error;

/// Bytes of records under way: some 8,000 frames.
pub(crate) const RING_BYTES: usize = 1 << 20;
/// Bodies that can be lent at once.
const SLOTS: u32 = 1 << 16;
/// Bytes of a record in which one comes back, with the length of the record.
const BACK_RECORD: usize = ring::space_of(record::BACK_SLOT);
/// Bytes of the ring in which they come back: a record a slot, so that it is never full.
pub(crate) const BACK_BYTES: usize = SLOTS as usize * BACK_RECORD;
/// Where that ring begins.
pub(crate) const BACK: usize = ring::bytes_of(RING_BYTES);
/// Bytes of memory that both ends of a lane write to.
pub(crate) const MEMORY_BYTES: usize = BACK + ring::bytes_of(BACK_BYTES);

/// Bytes of records that are shown to the peer together: each time costs both processors a cache line.
const UNPUBLISHED_BYTES: u64 = 4 << 10;

/// Bytes of the ring of what comes back that are shown together.
const UNSHOWN_BYTES: u64 = 32 * BACK_RECORD as u64;

/// Heads above this go by the stream, so that no record takes much of the ring.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Bytes of the largest record: the head of a frame is that of its message, with the prefix in front. A message without
/// a head stands for the next frame of the stream.
const RECORD_BYTES_MAX: usize = FIXED + Prefix::SIZE + HEAD_BYTES_MAX + PLACE;

/// Result of sending a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The peer will find it.
    Lent,
    /// The peer will look for it on the stream: it is to be sent there.
    OnStream,
    /// There is no room now.
    Full,
}

/// The end that sends.
pub(crate) struct LaneSender {
    ring: Writer,
    back: Reader,
    /// Bodies that are lent, by slot, and the region of each.
    slots: Slots<(Bytes, u16)>,
    regions: Vec<Lendable>,
    socket: OwnedFd,
    record: Vec<u8>,
    /// Records written so far.
    records: u64,
    /// Frames that the peer has not taken: where the ring ended behind each, and its bytes.
    under_way: VecDeque<(u64, u64)>,
    under_way_bytes: u64,
    under_way_bytes_max: u64,
}

impl LaneSender {
    /// Creates the sending end of a lane over `memory`, which is new, for bodies that lie in `regions`. Frames of at
    /// most `under_way_bytes_max` wait there to be taken, but one in any case.
    pub(crate) fn new(
        memory: Arc<Mapping>,
        regions: Vec<Lendable>,
        socket: OwnedFd,
        under_way_bytes_max: u64,
    ) -> Self {
        Self {
            under_way: VecDeque::new(),
            under_way_bytes: 0,
            under_way_bytes_max,
            ring: Writer::new(Arc::clone(&memory), 0, RING_BYTES),
            back: Reader::new(memory, BACK, BACK_BYTES),
            slots: Slots::new(SLOTS),
            regions,
            socket,
            record: Vec::new(),
            records: 0,
        }
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns whether the peer has bodies of ours.
    pub(crate) fn has_lent(&self) -> bool {
        self.slots.len() > 0
    }

    /// Sends `frame`; the peer learns of it with [`publish`](Self::publish).
    pub(crate) fn send(&mut self, frame: &Frame) -> Result<Sent, ShmFault> {
        let bytes = frame.wire_bytes();
        if !self.has_room(bytes)? {
            return Ok(Sent::Full);
        }
        let is_small = frame.head.len() <= HEAD_BYTES_MAX;
        let place = is_small.then(|| self.place(&frame.body)).flatten();
        if !is_small || (place.is_none() && !frame.body.is_empty()) {
            return Ok(match self.push(0, [&[], &[]], &[])? {
                true => Sent::OnStream,
                false => Sent::Full,
            });
        }
        let prefix = Prefix::new(frame.kind, &frame.head, frame.body.len() as u64).encode();
        let Some((body, region, offset)) = place else {
            return Ok(match self.push(0, [&prefix, &frame.head], &[])? {
                true => Sent::Lent,
                false => Sent::Full,
            });
        };
        let Some(slot) = self.slots.reserve() else {
            return Ok(Sent::Full);
        };
        let place = Place {
            region: region.into(),
            offset,
            bytes: body.len() as u64,
        };
        if !self.push(slot, [&prefix, &frame.head], &[place.encode()])? {
            self.slots.cancel(slot);
            return Ok(Sent::Full);
        }
        self.regions[usize::from(region)].count(body.len(), true);
        self.slots.fill(slot, (body, region));
        self.under_way.push_back((self.ring.tail(), bytes));
        self.under_way_bytes += bytes;
        if self.ring.unpublished() > UNPUBLISHED_BYTES {
            self.publish();
        }
        Ok(Sent::Lent)
    }

    /// Writes a record; `false` if there is no room.
    fn push(
        &mut self,
        slot: u32,
        head: [&[u8]; 2],
        places: &[[u8; PLACE]],
    ) -> Result<bool, ShmFault> {
        let [prefix, head] = head;
        let count = |count| u32::try_from(count).expect("a record is smaller than its ring");
        let fixed = Fixed {
            number: self.records,
            slot,
            head_bytes: count(prefix.len() + head.len()),
            bodies: count(places.len()),
        };
        let record = [&fixed.encode(), prefix, head, places.as_flattened()];
        let is_written = self.ring.push(&record)?;
        self.records += u64::from(is_written);
        Ok(is_written)
    }

    /// Returns whether the peer cannot see all that was sent.
    pub(crate) fn is_unpublished(&self) -> bool {
        self.ring.unpublished() > 0
    }

    /// Returns whether `bytes` more may be under way: what counts is bytes, not frames.
    fn has_room(&mut self, bytes: u64) -> Result<bool, ShmFault> {
        let has_room = |under_way| under_way == 0 || under_way + bytes <= self.under_way_bytes_max;
        if has_room(self.under_way_bytes) {
            return Ok(true);
        }
        let head = self.ring.head()?;
        while let Some((end, bytes)) = self.under_way.front().copied()
            && end <= head
        {
            self.under_way.pop_front();
            self.under_way_bytes -= bytes;
        }
        Ok(has_room(self.under_way_bytes))
    }

    /// Returns where `body` lies in memory that is shared, or is copied to, once; `None` if there is no room for it
    /// there, or so much is lent that it must travel.
    fn place(&self, body: &Bytes) -> Option<(Bytes, u16, u64)> {
        if body.is_empty() {
            return None;
        }
        for (index, region) in (0..).zip(&self.regions) {
            if let Some(offset) = region.arena.place_of(body) {
                let place = || (body.clone(), index, offset);
                return region.has_room(body.len()).then(place);
            }
        }
        let region = self.regions.first()?;
        // A source that needs the memory itself comes first.
        let is_idle = region.arena.used_bytes() < region.arena.capacity_bytes() / 2;
        if !is_idle || !region.has_room(body.len()) {
            return None;
        }
        let mut block = region.arena.allocate(body.len())?;
        block.as_mut().copy_from_slice(body);
        let copy = block.freeze();
        let offset = region.arena.place_of(&copy)?;
        Some((copy, 0, offset))
    }

    /// Shows the peer what was sent, and wakes it if it sleeps.
    pub(crate) fn publish(&mut self) {
        if self.ring.publish() {
            message::wake(self.socket());
        }
    }

    /// Asks to be woken when there is room again; `false` if there is some now.
    pub(crate) fn wait(&mut self) -> Result<bool, ShmFault> {
        let waits = self.ring.wait()?;
        Ok(self.back.sleep() && waits)
    }

    /// Reclaims what the peer releases; `true` if there was something.
    pub(crate) fn reap(&mut self) -> Result<bool, ShmFault> {
        let before = self.slots.len();
        while self.back.pop(&mut self.record)? {
            let (slot, ..) = record::read_back(&self.record)?;
            let lent = self.slots.take_if(slot, |_| true);
            let (body, region) = lent.ok_or(ShmFault::Slot { slot })?;
            self.regions[usize::from(region)].count(body.len(), false);
        }
        // A release never waits for room.
        let _ = self.back.free();
        Ok(self.slots.len() < before)
    }
}

impl Drop for LaneSender {
    fn drop(&mut self) {
        for (body, region) in self.slots.drain() {
            self.regions[usize::from(region)].count(body.len(), false);
        }
    }
}

/// Why a lane is given up, and its connection with it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum LaneError {
    #[error(transparent)]
    Shm(#[from] ShmFault),
    #[error(transparent)]
    Prefix(#[from] PrefixError),
}

/// Result of reading the lane.
#[derive(Debug)]
pub(crate) enum Came {
    /// A frame. Its body is looked at where it lies, and goes back when its last [`Bytes`] is dropped.
    Frame(Frame),
    /// The next frame of the stream.
    OnStream,
    /// Nothing yet.
    Nothing,
}

/// The end that receives.
pub(crate) struct LaneReceiver {
    ring: Reader,
    session: Arc<Session>,
    record: Vec<u8>,
}

/// Session of a lane, held by every lent body. Its socket closes when the last of them is gone: then the lender may
/// forget us.
pub(crate) struct Session {
    regions: Vec<Mapping>,
    back: Mutex<Writer>,
    /// The borrower is gone: nothing comes back any more.
    is_alone: AtomicBool,
    socket: OwnedFd,
}

impl Session {
    /// Returns the memory that `body` lies in, and where in it.
    pub(crate) fn place_of(&self, body: &[u8]) -> Option<(&Mapping, u64)> {
        let place = |region| Some((region, Mapping::place_of(region, body)?));
        self.regions.iter().find_map(place)
    }

    /// Returns what the lender listens to. The lender takes the borrower for alive as long as it is open.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn give_back(&self, slot: u32) {
        let mut back = self.back.lock().unwrap_or_else(PoisonError::into_inner);
        // A lender that has broken the ring gets nothing back: it is its own memory.
        let is_back = matches!(back.push(&[&slot.to_le_bytes()]), Ok(true));
        let shows = back.unpublished() >= UNSHOWN_BYTES || self.is_alone.load(Ordering::Acquire);
        if is_back && shows && back.publish() {
            message::wake(self.socket.as_fd());
        }
    }

    fn show(&self) {
        let mut back = self.back.lock().unwrap_or_else(PoisonError::into_inner);
        if back.publish() {
            message::wake(self.socket.as_fd());
        }
    }
}

impl Drop for LaneReceiver {
    fn drop(&mut self) {
        self.session.is_alone.store(true, Ordering::Release);
        self.session.show();
    }
}

impl LaneReceiver {
    /// Creates the receiving end of a lane over `memory`, for bodies that lie in `regions`.
    pub(crate) fn new(memory: Mapping, regions: Vec<Mapping>, socket: OwnedFd) -> Self {
        let memory = Arc::new(memory);
        let back = Mutex::new(Writer::new(Arc::clone(&memory), BACK, BACK_BYTES));
        Self {
            ring: Reader::new(memory, 0, RING_BYTES),
            session: Arc::new(Session {
                regions,
                back,
                is_alone: AtomicBool::new(false),
                socket,
            }),
            record: Vec::new(),
        }
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.session.socket()
    }

    /// Returns what its bodies hold on to.
    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Takes the next record.
    ///
    /// `keep_head` copies a head to where it stays.
    pub(crate) fn next(
        &mut self,
        limits: &Limits,
        keep_head: &mut dyn FnMut(&[u8]) -> Bytes,
    ) -> Result<Came, LaneError> {
        if !self.ring.pop(&mut self.record)? {
            return Ok(Came::Nothing);
        }
        let message = Message::read(&self.record, RECORD_BYTES_MAX)?;
        if message.head.is_empty() && message.places().len() == 0 {
            return Ok(Came::OnStream);
        }
        let (found, most) = (message.head.len(), RECORD_BYTES_MAX);
        let wrong = |least| LaneError::Shm(ShmFault::Record { found, least, most });
        let head = message.head.split_first_chunk();
        let (prefix, head) = head.ok_or_else(|| wrong(Prefix::SIZE))?;
        let prefix = Prefix::decode(prefix, limits)?;
        if head.len() != prefix.head_bytes as usize {
            return Err(wrong(Prefix::SIZE + prefix.head_bytes as usize));
        }
        prefix.check(head)?;
        let places = message.places();
        let bytes_placed: u64 = match places.len() {
            0 | 1 => places.map(|place| place.bytes).sum(),
            _ => return Err(ShmFault::Word("a frame of several bodies").into()),
        };
        if bytes_placed != prefix.body_bytes {
            return Err(ShmFault::Word("a body that is not as long as its frame says").into());
        }
        let body = match message.places().next() {
            Some(place) => self.borrow(place, message.slot)?,
            None => Bytes::new(),
        };
        Ok(Came::Frame(Frame {
            kind: prefix.kind,
            head: keep_head(head),
            body,
        }))
    }

    /// Returns a body that the peer has lent.
    fn borrow(&self, place: Place, slot: u32) -> Result<Bytes, ShmFault> {
        let session = Arc::clone(&self.session);
        let region = usize::try_from(place.region).unwrap_or(usize::MAX);
        let loan = Loan {
            session,
            region,
            slot,
        };
        let has_region = region < loan.session.regions.len();
        let body = has_region.then(|| lent(loan, place.offset, place.bytes));
        body.flatten().ok_or_else(|| place.fault())
    }

    /// Releases the room of what was taken, and wakes the peer if it waits for that.
    pub(crate) fn free(&mut self) {
        if self.ring.free() {
            message::wake(self.socket());
        }
    }

    /// Shows the lender what came back so far. Until then some of it may be known to us alone.
    pub(crate) fn show_given_back(&self) {
        self.session.show();
    }

    /// Returns whether there is something to take.
    pub(crate) fn has_more(&self) -> bool {
        self.ring.has_more()
    }

    /// Asks to be woken for the next record; `false` if there is one.
    pub(crate) fn sleep(&self) -> bool {
        self.ring.sleep()
    }
}

/// Body of a peer that is lent. Dropped, it gives the body back.
struct Loan {
    session: Arc<Session>,
    region: usize,
    slot: u32,
}

impl AsRef<Mapping> for Loan {
    fn as_ref(&self) -> &Mapping {
        &self.session.regions[self.region]
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.session.give_back(self.slot);
    }
}

#[cfg(test)]
mod tests;
