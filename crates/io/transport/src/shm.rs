//! Payloads that stay where they are: memory lent to another process of the same machine.
//!
//! - `ring`: records through shared memory, in one direction, with a word that says who sleeps;
//! - `lane`: frames whose bodies are lent. The sender writes down where a body lies, the receiver looks at it there and
//!   gives it back; nothing is copied but heads;
//! - `slots`: what is lent, by the number under which it comes back;
//! - `meeting`: how the two exchange the memory, over a Unix socket, and prove that they mean the same stream.
//!
//! Whoever lends keeps a body until it comes back, or until the borrower's process is gone: the socket of the meeting
//! closes then, whatever the process died of.

pub(crate) mod lane;
pub(crate) mod meeting;
pub(crate) mod ring;
pub(crate) mod slots;

use thiserror::Error;

/// What a peer did to the memory that it shares with us.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ShmFault {
    /// The ends of a ring do not fit each other.
    #[error("ring of {capacity} bytes is said to begin at {head} and end at {tail}")]
    Ends {
        /// Where it begins.
        head: u64,
        /// Where it ends.
        tail: u64,
        /// Its size.
        capacity: usize,
    },
    /// A record has an impossible length.
    #[error("record has {found} bytes, expected {least} to {most}")]
    Record {
        /// The length found.
        found: usize,
        /// The smallest possible.
        least: usize,
        /// The largest possible.
        most: usize,
    },
    /// A record is of no kind.
    #[error("record is of kind {found}, expected 0 (no body), 1 (lent) or 2 (on the stream)")]
    Kind {
        /// The kind found.
        found: u8,
    },
    /// A body lies outside of the memory that was shared.
    #[error("body of {bytes} bytes from {offset} is not in region {region}")]
    Place {
        /// The region named.
        region: u32,
        /// Where in it.
        offset: u64,
        /// Bytes of the body.
        bytes: u64,
    },
    /// A message is marked as what no message can be.
    #[error("message {message} is marked {found:#x}")]
    Claim {
        /// Its number.
        message: u64,
        /// The mark.
        found: u64,
    },
    /// Something comes back that was not lent.
    #[error("slot {slot} comes back and was not lent")]
    Slot {
        /// The slot named.
        slot: u32,
    },
    /// The peer speaks of shared memory where it cannot be.
    #[error("unexpected word on shared memory: {0}")]
    Word(&'static str),
}
