//! Payloads that stay where they are: memory lent to another process of the same machine.
//!
//! - `ring`: records through shared memory, in one direction, with a flag of a sleeping reader;
//! - `record`: where the bodies of a message lie, as the ring has it, and how a message comes back;
//! - `answer`: what a borrower says of a message that goes back;
//! - `slots`: what is lent, by the number under which it comes back;
//! - `lent`: bodies of a peer, read where they lie, and returned when they are dropped;
//! - `message`: messages on the Unix socket of the two sides, with descriptors of memory;
//! - `lane`: frames whose bodies are lent, between two nodes. The sender writes down where a body lies, the receiver
//!   reads it there and releases it; nothing is copied but heads;
//! - `meeting`: how the two sides of a lane exchange the memory, and prove that they mean the same stream.
//!
//! [`handover`](crate::handover) adds to the same protocol what a process needs that is no node: messages of many
//! bodies, which are claimed and can be called back, and answers.
//!
//! The lender keeps a body until it comes back, or until the borrower's process is gone: the socket of the meeting
//! closes then, whatever the process died of.

pub(crate) mod answer;
pub(crate) mod lane;
pub(crate) mod lendable;
pub(crate) mod lent;
pub(crate) mod meeting;
pub(crate) mod message;
pub(crate) mod record;
pub(crate) mod ring;
pub(crate) mod slots;

#[cfg(test)]
mod tests;
