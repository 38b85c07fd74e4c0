//! Messages whose bodies other processes of this machine read in place.
//!
//! A [`Lender`] serves one other process, which holds a [`Borrower`]. A message is a head, which is copied, and any
//! number of bodies, which are not: they lie in memory of the lender ([shared](crate::ArenaOptions::shared) arenas), or
//! in memory that a third process has lent to it ([`Holdings`]), and stay there until the borrower has dropped all of
//! them. Bodies elsewhere are copied once, into memory made for them.
//!
//! - *Claims.* A borrower claims a message before it reads it, in a word that both sides change atomically. So the
//!   lender can call back unread messages from a borrower that is dead or slow, and every message is read by at most
//!   one borrower.
//! - *Answers.* A message goes back with what the borrower says of it: tags, and bytes of its own, which the lender
//!   maps. An answer comes with the memory, in one record, so that neither is there without the other.
//! - *Ends.* The two share a Unix socket (`SOCK_SEQPACKET`), which carries descriptors and wakes, and which the kernel
//!   closes when a process dies of anything. A borrower outlives its lender: claimed messages and those in its ring
//!   stay readable. The socket over which a third process has lent its memory is passed on with that memory, so that
//!   it stays lent as long as the borrower lives.
//! - *Trust.* Both run as the same user. Borrowers can map the rings for writing, and nothing else. All that a peer
//!   writes there is checked before use; a peer that breaks the rules spoils its own messages, or gets no more.
//! - *Accidents.* A lender that is dropped without [`part`](Lender::part), as by a panic, never reuses memory that its
//!   borrower still reads.

mod borrower;
mod lender;

pub use crate::shm::answer::{Answer, AnswerError, Answers, TAGS_BYTES_MAX, are_tags};
pub use borrower::{Borrower, Next, Reply, TakeError, Taken};
pub use lender::{Gave, Left, Lender, LenderError};

use crate::shm::lane::Session;
use crate::shm::record;
use crate::shm::ring;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Bytes of the ring of messages: 2^16 bodies with a head of 32 bytes for each fit it.
const RING_BYTES: usize = 4 << 20;
/// Messages that a borrower can have at once.
pub(crate) const SLOTS: u32 = 1 << 12;
/// Bytes of the ring in which they come back: a record a slot, so that it is never full. A record has its length, slot,
/// product and tags.
const BACK_BYTES: usize = SLOTS as usize * 128;
const _: () = assert!(
    ring::space_of(record::BACK_FIXED + TAGS_BYTES_MAX) <= 128,
    "a record a slot"
);
/// Where that ring begins.
pub(crate) const BACK: usize = ring::bytes_of(RING_BYTES);
/// Where the claims begin, a word a slot.
const CLAIMS: usize = BACK + ring::bytes_of(BACK_BYTES);
/// Bytes of memory that both sides write to.
pub(crate) const MEMORY_BYTES: usize = CLAIMS + SLOTS as usize * 8;

/// Marks of a message, in the low bits of its word; above them is its number, so that a word which was used again is
/// not taken for the former one.
const OFFERED: u64 = 1;
const TAKEN: u64 = 2;
const CALLED_BACK: u64 = 3;

fn mark(number: u64, state: u64) -> u64 {
    number << 2 | state
}

pub(crate) fn claim_at(slot: u32) -> usize {
    CLAIMS + slot as usize * 8
}

/// Memory that peers have lent to an endpoint of this process.
#[derive(Clone, Default)]
pub struct Holdings(Arc<Mutex<Vec<Weak<Session>>>>);

impl Holdings {
    pub(crate) fn add(&self, session: &Arc<Session>) {
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|session| session.strong_count() > 0);
        sessions.push(Arc::downgrade(session));
    }

    /// Returns the peer whose memory `body` lies in.
    fn find(&self, body: &[u8]) -> Option<Arc<Session>> {
        let sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut alive = sessions.iter().filter_map(Weak::upgrade);
        alive.find(|session| session.place_of(body).is_some())
    }
}

impl std::fmt::Debug for Holdings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Holdings").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
