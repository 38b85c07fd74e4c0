//! Faults of a peer in the memory that it shares with this process.

use thiserror::Error;

/// Violation of the rules of shared memory by a peer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ShmFault {
    /// The ends of a ring do not fit each other.
    #[error("ring of {capacity} bytes claims to begin at {head} and end at {tail}")]
    Ends {
        /// Where it begins.
        head: u64,
        /// Where it ends.
        tail: u64,
        /// Size.
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
        /// Number.
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
    /// A product that cannot be taken.
    #[error("product {number} {why}")]
    Product {
        /// Number of the product.
        number: u32,
        /// Fault of it.
        why: String,
    },
    /// The peer speaks of shared memory where it cannot be.
    #[error("unexpected message about shared memory: {0}")]
    Word(&'static str),
}
