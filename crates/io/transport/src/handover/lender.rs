//! The side that has the messages.

use super::{
    BACK, BACK_BYTES, CALLED_BACK, Holdings, MEMORY_BYTES, OFFERED, RING_BYTES, SLOTS, TAKEN,
    claim_at, mark,
};
use crate::arena::Arena;
use crate::fault::ShmFault;
use crate::mapping::{Mapping, Unchanging, read_only};
use crate::shm::answer::{Answer, Answers};
use crate::shm::lane::Session;
use crate::shm::meeting;
use crate::shm::message::{self, ControlMessage, Received};
use crate::shm::record::{self, FIXED, Fixed, PLACE, read_back};
use crate::shm::ring::{Reader, Writer};
use crate::shm::slots::Slots;
use bytes::Bytes;
use rustix::io::Errno;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use thiserror::Error;

/// Messages that are received in one turn.
const WORDS_AT_ONCE_MAX: usize = 1000;
/// Turns in which a product is looked for that was sent before its record: no socket holds so many messages.
const PRODUCT_TURNS_MAX: usize = 64;

/// Why nothing more can be given to a borrower.
#[derive(Debug, Error)]
pub enum LenderError {
    /// Borrower of another user, which would see all memory of this process.
    #[error("the process at the other end runs as another user")]
    OtherUser,
    /// The operating system does not give what is needed. [`give`](Lender::give) says so only of a socket that is
    /// closed: what this process lacks may be had later.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Violation of the rules of shared memory.
    #[error(transparent)]
    Shm(#[from] ShmFault),
    /// A message that no ring is large enough for.
    #[error("a message of {bodies} bodies needs a record of {found} bytes, of at most {most}")]
    Size {
        /// Bodies.
        bodies: usize,
        /// Bytes of its record.
        found: usize,
        /// Bytes of the largest.
        most: usize,
    },
}

/// Result of giving a message.
#[derive(Debug)]
#[must_use]
pub enum Gave<M> {
    /// The borrower will find it.
    Offered,
    /// No room now.
    Full(M),
}

/// Messages that are left when a borrower has gone, the oldest first.
#[derive(Debug)]
pub struct Left<M> {
    /// Messages that were not claimed.
    pub untaken: Vec<M>,
    /// Taken and not released, each with whether [`Lender::take_in`] has reported so.
    pub taken: Vec<(M, bool)>,
}

/// Gives messages to one borrower. `M` is what keeps the bodies of a message alive.
pub struct Lender<M> {
    socket: OwnedFd,
    memory: Arc<Mapping>,
    pub(super) ring: Writer,
    back: Reader,
    own: Vec<Arc<Arena>>,
    holdings: Holdings,
    regions: Vec<Region>,
    regions_named: u32,
    /// Regions that the borrower still has to be asked to forget.
    forgotten: VecDeque<u32>,
    slots: Slots<Given<M>>,
    /// Slots of messages that are not known to be claimed, the oldest first.
    offered: VecDeque<u32>,
    messages: u64,
    copied_bytes: u64,
    is_leaving: bool,
    is_gone: bool,
    answers: Option<Answers>,
    /// Products whose records have not come yet.
    products: BTreeMap<u32, Bytes>,
    /// The ring had no room for the last message.
    lacks_room: bool,
    is_socket_full: bool,
    shortage: Option<io::Error>,
    record: Vec<u8>,
}

/// A message whose record is written.
struct Offered {
    slot: u32,
    number: u64,
    copy: Option<(u32, Mapping)>,
}

struct Given<M> {
    message: M,
    number: u64,
    /// The region with the copies of bodies that lay nowhere that could be shared.
    copy: Option<(u32, Mapping)>,
    is_told: bool,
}

/// Memory that the borrower knows.
struct Region {
    number: u32,
    of: Owner,
}

enum Owner {
    Arena(Arc<Arena>),
    Peer(Weak<Session>, usize),
}

impl Region {
    fn place_of(&self, body: &[u8]) -> Option<u64> {
        match &self.of {
            Owner::Arena(arena) => arena.place_of(body),
            // One that is gone has been unmapped, and its addresses may mean something else by now.
            Owner::Peer(session, start) => session.upgrade().and_then(|session| {
                let (region, offset) = session.place_of(body)?;
                (region.start().as_ptr() as usize == *start).then_some(offset)
            }),
        }
    }
}

impl<M> Lender<M> {
    /// Gives to the process at the other end of `socket`, which is of the kind `SOCK_SEQPACKET`, what lies in `own`, in
    /// memory of `holdings`, or elsewhere. Without `answers` the borrower can give messages back, and say nothing of
    /// them.
    ///
    /// # Errors
    ///
    /// [`LenderError`] if it is not of our user, or there is no memory for the rings.
    pub fn new(
        socket: OwnedFd,
        own: Vec<Arc<Arena>>,
        holdings: Holdings,
        answers: Option<Answers>,
    ) -> Result<Self, LenderError> {
        if !meeting::is_ours(socket.as_fd()) {
            return Err(LenderError::OtherUser);
        }
        let memory = Arc::new(Mapping::shared(MEMORY_BYTES).map_err(io::Error::from)?);
        let file = memory.file().ok_or_else(unmapped)?;
        let bytes = MEMORY_BYTES as u64;
        let hello = ControlMessage::Hello { bytes, answers };
        if !message::send(socket.as_fd(), hello, &[file])? {
            return Err(io::Error::from(io::ErrorKind::WouldBlock).into());
        }
        Ok(Self {
            ring: Writer::new(Arc::clone(&memory), 0, RING_BYTES),
            back: Reader::new(Arc::clone(&memory), BACK, BACK_BYTES),
            socket,
            memory,
            own,
            holdings,
            regions: Vec::new(),
            regions_named: 0,
            forgotten: VecDeque::new(),
            slots: Slots::new(SLOTS),
            offered: VecDeque::new(),
            messages: 0,
            copied_bytes: 0,
            is_leaving: false,
            is_gone: false,
            answers,
            products: BTreeMap::new(),
            lacks_room: false,
            is_socket_full: false,
            shortage: None,
            record: Vec::new(),
        })
    }

    /// Becomes readable when the borrower has done something, after [`sleep`](Self::sleep), or is gone.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Gives nothing more. The borrower meets its end when it has taken all that was offered, and can still release.
    pub fn close(&mut self) {
        self.is_leaving = true;
        // It fails if the borrower is gone already.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write);
    }

    /// Messages that are not known to be claimed.
    #[must_use]
    pub fn untaken(&self) -> usize {
        self.offered.len()
    }

    /// Returns bytes that were copied, because they lay in no memory that can be shared.
    #[must_use]
    pub fn copied_bytes(&self) -> u64 {
        self.copied_bytes
    }

    /// Nothing more can be given: the borrower has said so, or the lender is [closed](Self::close).
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    /// Offers a message of `head` and `bodies`, which `message` keeps alive.
    ///
    /// # Errors
    ///
    /// [`LenderError`]; the message is lost only then, and the borrower with it.
    pub fn give<'a>(
        &mut self,
        message: M,
        head: &[u8],
        bodies: impl ExactSizeIterator<Item = &'a Bytes> + Clone,
    ) -> Result<Gave<M>, (LenderError, M)> {
        match self.offer(head, bodies) {
            Ok(Some(Offered { slot, number, copy })) => {
                let given = Given {
                    message,
                    number,
                    copy,
                    is_told: false,
                };
                self.slots.fill(slot, given);
                self.offered.push_back(slot);
                if self.ring.publish() {
                    message::wake(self.socket());
                }
                Ok(Gave::Offered)
            }
            Ok(None) => Ok(Gave::Full(message)),
            // The borrower has nothing to do with it, and it may be over soon.
            Err(LenderError::Io(error)) if is_shortage(&error) => {
                self.shortage = Some(error);
                Ok(Gave::Full(message))
            }
            Err(error) => Err((error, message)),
        }
    }

    /// Returns why a message was [`Full`](Gave::Full) since the last [`take_in`](Self::take_in), if it was for
    /// something that this process lacks, such as memory or descriptors. There is no notification when it has that
    /// again: try after a while.
    #[must_use]
    pub fn shortage(&self) -> Option<&io::Error> {
        self.shortage.as_ref()
    }

    /// Returns whether a message was [`Full`](Gave::Full) since the last [`take_in`](Self::take_in) because nothing
    /// more could be said: it can be tried again when the [socket](Self::socket) is writable.
    #[must_use]
    pub fn wants_writable(&self) -> bool {
        self.is_socket_full
    }

    /// Writes the record of a message, which the borrower does not see yet. `None`: there is no room.
    fn offer<'a>(
        &mut self,
        head: &[u8],
        bodies: impl ExactSizeIterator<Item = &'a Bytes> + Clone,
    ) -> Result<Option<Offered>, LenderError> {
        let count = bodies.len();
        let record_bytes = FIXED + head.len() + count * PLACE;
        if record_bytes > RING_BYTES - 8 {
            let (bodies, found, most) = (count, record_bytes, RING_BYTES - 8);
            return Err(LenderError::Size {
                bodies,
                found,
                most,
            });
        }
        if self.is_leaving || !self.send_forgotten()? {
            return Ok(None);
        }
        self.lacks_room = !self.ring.has_room(record_bytes)?;
        if self.lacks_room {
            return Ok(None);
        }
        let Some(slot) = self.slots.reserve() else {
            return Ok(None);
        };
        let number = self.messages;
        let mut record = std::mem::take(&mut self.record);
        record.clear();
        let small = |count| u32::try_from(count).expect("a record is smaller than its ring");
        let fixed = Fixed {
            number,
            slot,
            head_bytes: small(head.len()),
            bodies: small(count),
        };
        record.extend_from_slice(&fixed.encode());
        record.extend_from_slice(head);
        let written = self.write_places(&mut record, bodies).and_then(|copy| {
            let Some(copy) = copy else { return Ok(None) };
            let claim = self.memory.word(claim_at(slot));
            claim.store(mark(number, OFFERED), Ordering::Relaxed);
            Ok(self.ring.push(&[&record])?.then_some(copy))
        });
        self.record = record;
        match written {
            Ok(Some(copy)) => {
                self.messages += 1;
                Ok(Some(Offered { slot, number, copy }))
            }
            other => {
                self.slots.cancel(slot);
                other.map(|_| None)
            }
        }
    }

    /// Writes down where the bodies lie, and gives what had to be copied; `None`: there is no room on the socket.
    #[expect(
        clippy::option_option,
        reason = "no room, or what was copied, if anything"
    )]
    fn write_places<'a>(
        &mut self,
        record: &mut Vec<u8>,
        bodies: impl Iterator<Item = &'a Bytes> + Clone,
    ) -> Result<Option<Option<(u32, Mapping)>>, LenderError> {
        let begin = record.len();
        let (mut elsewhere, mut copied_bytes) = (Vec::new(), 0);
        for (index, body) in bodies.clone().enumerate() {
            let (region, offset) = match self.place_of(body)? {
                Place::In(region, offset) => (region, offset),
                Place::NoRoom => return Ok(None),
                Place::Nowhere => {
                    let offset = copied_bytes;
                    elsewhere.push((index, offset));
                    copied_bytes += body.len();
                    (0, offset as u64)
                }
            };
            let place = record::Place {
                region,
                offset,
                bytes: body.len() as u64,
            };
            record.extend_from_slice(&place.encode());
        }
        if elsewhere.is_empty() {
            return Ok(Some(None));
        }
        // All of them go into one piece of memory, once it is sure that the borrower gets it.
        let mut memory = Mapping::lent(copied_bytes).map_err(io::Error::from)?;
        let Some(number) = self.name(&memory, None)? else {
            return Ok(None);
        };
        let mut bodies = bodies.enumerate();
        for (index, offset) in elsewhere {
            let body = bodies.find(|(other, _)| *other == index);
            let (_, body) = body.expect("it was there a moment ago");
            memory.copy_in(offset, body);
            record[begin + index * PLACE..][..4].copy_from_slice(&number.to_le_bytes());
        }
        self.copied_bytes += copied_bytes as u64;
        Ok(Some(Some((number, memory))))
    }

    fn place_of(&mut self, body: &Bytes) -> Result<Place, LenderError> {
        if body.is_empty() {
            return Ok(Place::In(0, 0)); // not looked for there
        }
        let known = |region: &Region| Some((region.number, region.place_of(body)?));
        if let Some((number, offset)) = self.regions.iter().find_map(known) {
            return Ok(Place::In(number, offset));
        }
        let own = |arena: &&Arc<Arena>| arena.place_of(body).is_some();
        if let Some(arena) = self.own.iter().find(own).cloned() {
            let (file, bytes) = arena.file().ok_or_else(unmapped)?;
            let number = self.name_file(file, bytes, None)?;
            return Ok(self.named(number, Owner::Arena(arena), body));
        }
        let Some(session) = self.holdings.find(body) else {
            return Ok(Place::Nowhere);
        };
        let (region, _) = session.place_of(body).ok_or_else(unmapped)?;
        let number = self.name(region, Some(session.socket()))?;
        let start = region.start().as_ptr() as usize;
        Ok(self.named(number, Owner::Peer(Arc::downgrade(&session), start), body))
    }

    fn named(&mut self, number: Option<u32>, of: Owner, body: &Bytes) -> Place {
        let Some(number) = number else {
            return Place::NoRoom;
        };
        let region = Region { number, of };
        let place = region.place_of(body);
        self.regions.push(region);
        place.map_or(Place::Nowhere, |offset| Place::In(number, offset))
    }

    fn name(
        &mut self,
        memory: &Mapping,
        keeper: Option<BorrowedFd<'_>>,
    ) -> Result<Option<u32>, LenderError> {
        let file = memory.file().ok_or_else(unmapped)?;
        self.name_file(file, memory.len(), keeper)
    }

    /// Gives the borrower memory to look at, and the number that records call it by; `None`: it cannot be sent now.
    fn name_file(
        &mut self,
        file: BorrowedFd<'_>,
        bytes: usize,
        keeper: Option<BorrowedFd<'_>>,
    ) -> Result<Option<u32>, LenderError> {
        let number = self.regions_named;
        let file = read_only(file).map_err(io::Error::from)?;
        let files = [Some(file.as_fd()), keeper];
        let files: Vec<BorrowedFd<'_>> = files.into_iter().flatten().collect();
        let bytes = bytes as u64;
        if !message::send(
            self.socket(),
            ControlMessage::Region { number, bytes },
            &files,
        )? {
            self.is_socket_full = true;
            return Ok(None);
        }
        self.regions_named = number.checked_add(1).ok_or_else(unmapped)?;
        Ok(Some(number))
    }

    /// Sends the borrower the number of memory to forget; `false` if that cannot be sent now.
    fn send_forgotten(&mut self) -> Result<bool, LenderError> {
        let forgotten = &mut self.forgotten;
        self.regions.retain(|region| {
            let is_there = match &region.of {
                Owner::Arena(_) => true,
                Owner::Peer(session, _) => session.strong_count() > 0,
            };
            if !is_there {
                forgotten.push_back(region.number);
            }
            is_there
        });
        while let Some(number) = self.forgotten.front().copied() {
            if !message::send(self.socket.as_fd(), ControlMessage::Forget { number }, &[])? {
                self.is_socket_full = true;
                return Ok(false);
            }
            self.forgotten.pop_front();
        }
        Ok(true)
    }

    /// Processes the progress of the borrower: calls `taken` for each message that it has claimed, and later `back` for
    /// each of which it has dropped all bodies, with its answer. Returns `false` if the borrower is gone: then
    /// [`part`](Self::part).
    ///
    /// # Errors
    ///
    /// [`ShmFault`] if it breaks the rules.
    pub fn take_in(
        &mut self,
        mut taken: impl FnMut(&M),
        mut back: impl FnMut(M, Answer),
    ) -> Result<bool, ShmFault> {
        (self.is_socket_full, self.shortage) = (false, None);
        self.listen()?;
        // Nothing else may look at this for long.
        self.ring.head()?;
        self.see_taken(&mut taken)?;
        let mut record = std::mem::take(&mut self.record);
        while self.back.pop(&mut record)? {
            let (slot, product, tags) = read_back(&record)?;
            let answer = Answer {
                product: self.take_product(product)?,
                tags: tags.to_owned(),
            };
            // It may have been taken after we looked, and is back already.
            self.see_taken(&mut taken)?;
            let given = self.slots.take_if(slot, |given| given.is_told);
            let given = given.ok_or(ShmFault::Slot { slot })?;
            self.forget(given.copy);
            back(given.message, answer);
        }
        self.record = record;
        // A release never waits for room.
        let _ = self.back.free();
        Ok(!self.is_gone)
    }

    /// Returns the product of a record; `None` for number 0.
    fn take_product(&mut self, number: u32) -> Result<Option<Bytes>, ShmFault> {
        if number == 0 {
            return Ok(None);
        }
        for _ in 0..PRODUCT_TURNS_MAX {
            if let Some(product) = self.products.remove(&number) {
                return Ok(Some(product));
            }
            // It was sent before its record could be seen.
            self.listen()?;
        }
        let why = "was not sent".to_owned();
        Err(ShmFault::Product { number, why })
    }

    /// Keeps a product until its record comes.
    fn keep_product(
        &mut self,
        number: u32,
        bytes: u64,
        files: Vec<OwnedFd>,
    ) -> Result<(), ShmFault> {
        let refused = |why: String| ShmFault::Product { number, why };
        let most = self.answers.map_or(0, |answers| answers.product_bytes_max);
        if bytes == 0 || bytes > most {
            let why = format!("has {bytes} bytes, expected 1 to {most}");
            return Err(refused(why));
        }
        if self.products.len() >= SLOTS as usize || self.products.contains_key(&number) {
            return Err(refused("comes without a message for it".to_owned()));
        }
        let file = files.into_iter().next();
        let file = file.ok_or_else(|| refused("has no descriptor".to_owned()))?;
        let mapped = usize::try_from(bytes).map_err(io::Error::other);
        let mapped = mapped.and_then(|bytes| Unchanging::new(file, bytes));
        let product = mapped.map_err(|error| refused(error.to_string()))?;
        self.products.insert(number, Bytes::from_owner(product));
        Ok(())
    }

    fn forget(&mut self, copy: Option<(u32, Mapping)>) {
        self.forgotten.extend(copy.map(|(number, _)| number));
    }

    fn listen(&mut self) -> Result<(), ShmFault> {
        // One that never stops talking is not listened to alone: the rest comes in the next turn.
        for _ in 0..WORDS_AT_ONCE_MAX {
            match message::receive(self.socket.as_fd()) {
                Received::Message(ControlMessage::Leave, _) => self.is_leaving = true,
                Received::Message(ControlMessage::Product { number, bytes }, files) => {
                    self.keep_product(number, bytes, files)?;
                }
                Received::Message(..) | Received::Other(_) => {}
                Received::Nothing => break,
                Received::Gone => {
                    self.is_gone = true;
                    break;
                }
            }
        }
        Ok(())
    }

    fn see_taken(&mut self, taken: &mut impl FnMut(&M)) -> Result<(), ShmFault> {
        while let Some(slot) = self.offered.front().copied() {
            let Some(given) = self.slots.get_mut(slot) else {
                return Err(ShmFault::Slot { slot });
            };
            let found = self.memory.word(claim_at(slot)).load(Ordering::Acquire);
            if found == mark(given.number, OFFERED) {
                break;
            }
            if found != mark(given.number, TAKEN) {
                let message = given.number;
                return Err(ShmFault::Claim { message, found });
            }
            given.is_told = true;
            taken(&given.message);
            self.offered.pop_front();
        }
        Ok(())
    }

    /// Calls back unclaimed messages, the oldest first. The borrower does not get them.
    pub fn call_back(&mut self) -> Vec<M> {
        let mut back = Vec::new();
        for slot in std::mem::take(&mut self.offered) {
            let called = self.slots.take_if(slot, |given| {
                let claim = self.memory.word(claim_at(slot));
                let (from, to) = (mark(given.number, OFFERED), mark(given.number, CALLED_BACK));
                let swapped = claim.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
                swapped.is_ok()
            });
            match called {
                Some(given) => {
                    self.forget(given.copy);
                    back.push(given.message);
                }
                None => self.offered.push_back(slot),
            }
        }
        back
    }

    /// Returns what a borrower leaves that is gone, or that breaks the rules.
    #[must_use]
    pub fn part(mut self) -> Left<M> {
        let untaken = self.call_back();
        self.offered.clear();
        let mut rest: Vec<Given<M>> = self.slots.drain().collect();
        rest.sort_unstable_by_key(|given| given.number);
        let taken = rest.into_iter().map(|given| (given.message, given.is_told));
        Left {
            untaken,
            taken: taken.collect(),
        }
    }

    /// Requests a wake on the [socket](Self::socket) when the borrower has taken or released something;
    /// `false` if it has meanwhile.
    ///
    /// # Errors
    ///
    /// [`ShmFault`] if it breaks the rules.
    pub fn sleep(&mut self) -> Result<bool, ShmFault> {
        let sleeps = self.back.sleep();
        if self.offered.is_empty() && !self.lacks_room {
            return Ok(sleeps);
        }
        let waits = self.ring.wait()?;
        // It may have been taken after we looked, and its room was seen when something was offered since.
        let is_taken = self.offered.front().is_some_and(|slot| {
            let given = self.slots.get(*slot);
            let offered = given.map(|given| mark(given.number, OFFERED));
            let found = self.memory.word(claim_at(*slot)).load(Ordering::Acquire);
            offered != Some(found)
        });
        Ok(sleeps && waits && !is_taken)
    }
}

impl<M> Drop for Lender<M> {
    /// Abandons the memory that the borrower still reads, which is never used again. After [`part`](Self::part) there
    /// is none.
    fn drop(&mut self) {
        drop(self.call_back());
        for given in self.slots.drain() {
            std::mem::forget(given.message);
        }
    }
}

/// Returns whether it is this process that lacks something.
fn is_shortage(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    errno.is_some_and(|errno| ![Errno::PIPE, Errno::CONNRESET].contains(&errno))
}

/// Returns what was shared before cannot be any more.
fn unmapped() -> LenderError {
    LenderError::Io(io::ErrorKind::InvalidInput.into())
}

/// Where a body lies.
enum Place {
    In(u32, u64),
    /// In memory that cannot be announced to the borrower now.
    NoRoom,
    /// In memory of this process alone.
    Nowhere,
}

impl<M> std::fmt::Debug for Lender<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lender")
            .field("messages", &self.messages)
            .field("untaken", &self.untaken())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_borrower_is_blamed_for_nothing_but_a_closed_socket() {
        let of = |errno: Errno| is_shortage(&errno.into());
        assert!(of(Errno::MFILE) && of(Errno::NOMEM) && of(Errno::TOOMANYREFS));
        assert!(!of(Errno::PIPE) && !of(Errno::CONNRESET));
        assert!(!is_shortage(&io::ErrorKind::InvalidInput.into()));
    }
}
