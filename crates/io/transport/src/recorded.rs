//! Shared memory as any peer could leave it, read as the other side would: for tools and tests.
//!
//! A peer writes whatever it likes into the rings of a lane or of a hand-over, into the words of claims, and into the
//! socket beside them. Here that is an input, and what the other side makes of it the result.

use crate::fault::ShmFault;
use crate::handover::{
    self, Answer, Answers, Borrower, Holdings, Lender, LenderError, Next, TakeError,
};
use crate::mapping::{Mapping, read_only, unchanging};
use crate::shm::lane::{self, Came, LaneReceiver};
use crate::shm::message::{self, ControlMessage, Received};
use crate::shm::ring::{self, Reader};
use crate::transport::Frame;
use bytes::Bytes;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use sheaf_protocol::Limits;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bytes that a peer has written to a ring.
#[derive(Clone, Copy, Debug)]
pub struct RingBytes<'a> {
    /// The bytes, from the start of the ring; all behind them are 0.
    pub bytes: &'a [u8],
    /// How many bytes the peer says to have written.
    pub end: u64,
}

/// Messages that a peer has sent on the socket, and what it has written to the memory.
#[derive(Clone, Copy, Debug)]
pub struct Said<'a> {
    /// Packets of the socket. One that begins with `R` or `P` comes with memory.
    pub packets: &'a [&'a [u8]],
    /// The ring that it writes to.
    pub ring: RingBytes<'a>,
    /// Words of claims, from that of slot 0.
    pub claims: &'a [u64],
}

/// Frames that a lane gave.
pub struct OfLane {
    /// The frames, in order.
    pub frames: Vec<Frame>,
    /// Whether the lane was given up in the end.
    pub is_refused: bool,
    back: Reader,
    receiver: LaneReceiver,
}

impl std::fmt::Debug for OfLane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OfLane")
            .field("frames", &self.frames)
            .field("is_refused", &self.is_refused)
            .finish_non_exhaustive()
    }
}

impl OfLane {
    /// Drops the frames, and returns how many bodies the lender gets back.
    ///
    /// # Errors
    ///
    /// [`ShmFault`] if the ring is broken in which they come back.
    pub fn give_back(self) -> Result<usize, ShmFault> {
        let Self {
            frames,
            mut back,
            receiver,
            ..
        } = self;
        drop((frames, receiver));
        let (mut bodies, mut record) = (0, Vec::new());
        while back.pop(&mut record)? {
            bodies += 1;
        }
        Ok(bodies)
    }
}

/// Reads the lane of a peer that has written `ring`, and whose bodies lie in `region`, which has a byte at least.
///
/// # Errors
///
/// If the machine gives no memory or no sockets.
pub fn frames_of_lane(ring: RingBytes<'_>, region: &[u8], limits: &Limits) -> io::Result<OfLane> {
    let memory = Arc::new(Mapping::shared(lane::MEMORY_BYTES)?);
    ring::write_raw(&memory, 0, ring.bytes, ring.end);
    let mut lent = Mapping::lent(region.len())?;
    lent.copy_in(0, region);
    let file = read_only(file_of(&lent)?)?;
    let region = Mapping::of_peer(file, region.len(), false)?;
    let (_, far) = sockets()?;
    let of_receiver = Mapping::of_peer(
        file_of(&memory)?.try_clone_to_owned()?,
        lane::MEMORY_BYTES,
        true,
    )?;
    let mut receiver = LaneReceiver::new(of_receiver, vec![region], far);
    let (mut frames, mut is_refused) = (Vec::new(), false);
    loop {
        match receiver.next(limits, &mut Bytes::copy_from_slice) {
            Ok(Came::Frame(frame)) => frames.push(frame),
            Ok(Came::OnStream) => {}
            Ok(Came::Nothing) => break,
            Err(_) => {
                is_refused = true;
                break;
            }
        }
    }
    Ok(OfLane {
        frames,
        is_refused,
        back: Reader::new(memory, lane::BACK, lane::BACK_BYTES),
        receiver,
    })
}

/// Takes what a lender has given that says `said`: the heads and bodies of its messages, and how it ended.
///
/// # Errors
///
/// If the machine gives no memory or no sockets.
#[expect(clippy::type_complexity, reason = "heads and bodies, and the end")]
pub fn messages_of_lender(
    said: Said<'_>,
) -> io::Result<(Vec<(Vec<u8>, Vec<Bytes>)>, Option<TakeError>)> {
    let memory = Mapping::shared(handover::MEMORY_BYTES)?;
    said.write(&memory, 0);
    let (near, far) = sockets()?;
    said.send(near.as_fd())?;
    let file = file_of(&memory)?.try_clone_to_owned()?;
    let mut messages = Vec::new();
    let mut borrower = match Borrower::begin(far, vec![file], None) {
        Ok(borrower) => borrower,
        Err(error) => return Ok((messages, Some(error))),
    };
    drop(near); // A lender that is gone: its borrower waits for nothing.
    loop {
        match borrower.next(Some(Duration::ZERO)) {
            Ok(Next::Message(message)) => messages.push((message.head, message.bodies)),
            Ok(Next::Nothing | Next::End) => return Ok((messages, None)),
            Err(error) => return Ok((messages, Some(error))),
        }
    }
}

/// Messages of a lender in the end.
#[derive(Debug)]
pub struct OfBorrower {
    /// Messages that came back, with their answers.
    pub back: Vec<(u32, Answer)>,
    /// Messages that did not.
    pub left: Vec<u32>,
    /// Why the borrower was given up, if it was.
    pub fault: Option<ShmFault>,
}

/// Gives `messages` messages to a borrower that says `said`, and products of at most 100 bytes.
///
/// # Errors
///
/// [`LenderError`] if the machine gives no memory or no sockets.
pub fn returns_of_borrower(messages: u32, said: Said<'_>) -> Result<OfBorrower, LenderError> {
    let (near, far) = sockets()?;
    let answers = Some(Answers {
        product_bytes_max: 100,
    });
    let mut lender = Lender::new(near, Vec::new(), Holdings::default(), answers)?;
    let Received::Message(ControlMessage::Hello { .. }, files) = message::receive(far.as_fd())
    else {
        return Err(io::Error::from(io::ErrorKind::InvalidData).into());
    };
    let file = files.into_iter().next().ok_or(io::ErrorKind::InvalidData);
    let file = file.map_err(io::Error::from)?;
    let memory = Mapping::of_peer(file, handover::MEMORY_BYTES, true)?;
    for number in 0..messages {
        // All of them fit: a message without bodies needs nothing but its record.
        let _ = lender.give(number, b"head", [].iter());
    }
    said.write(&memory, handover::BACK);
    said.send(far.as_fd())?;
    let (mut back, mut fault) = (Vec::new(), None);
    for _ in 0..2 {
        let seen = lender.take_in(|_| {}, |number, answer| back.push((number, answer)));
        fault = fault.or(seen.err());
    }
    let left = lender.part();
    let taken = left.taken.into_iter().map(|(number, _)| number);
    Ok(OfBorrower {
        back,
        left: left.untaken.into_iter().chain(taken).collect(),
        fault,
    })
}

impl Said<'_> {
    fn write(&self, memory: &Mapping, ring: usize) {
        ring::write_raw(memory, ring, self.ring.bytes, self.ring.end);
        for (slot, claim) in (0..handover::SLOTS).zip(self.claims) {
            let word = memory.word(handover::claim_at(slot));
            word.store(*claim, Ordering::Release);
        }
    }

    fn send(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        for packet in self.packets {
            let memory = match packet.first() {
                Some(b'R') => Some(Mapping::lent(4096)?),
                _ => None,
            };
            let file = match packet.first() {
                Some(b'P') => Some(unchanging(b"ten bytes!")?),
                _ => None,
            };
            let memory = memory.as_ref().map(file_of).transpose()?;
            let file = memory.or(file.as_ref().map(AsFd::as_fd));
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
            let files: Vec<BorrowedFd<'_>> = file.into_iter().collect();
            if !files.is_empty() {
                control.push(rustix::net::SendAncillaryMessage::ScmRights(&files));
            }
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            rustix::net::sendmsg(socket, &[IoSlice::new(packet)], &mut control, flags)?;
        }
        Ok(())
    }
}

fn sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    Ok(pair?)
}

fn file_of(memory: &Mapping) -> io::Result<BorrowedFd<'_>> {
    memory
        .file()
        .ok_or_else(|| io::ErrorKind::InvalidInput.into())
}
