//! Payloads that stay where they are: memory lent to another process of the same machine.
//!
//! - `ring`: records through shared memory, in one direction, with a flag of a sleeping reader;
//! - `lane`: frames whose bodies are lent. The sender writes down where a body lies, the receiver looks at it there and
//!   releases it; nothing is copied but heads;
//! - `slots`: what is lent, by the number under which it comes back;
//! - `meeting`: how the two exchange the memory, over a Unix socket, and prove that they mean the same stream.
//!
//! The lender keeps a body until it comes back, or until the borrower's process is gone: the socket of the meeting
//! closes then, whatever the process died of.

pub(crate) mod lane;
pub(crate) mod lendable;
pub(crate) mod meeting;
pub(crate) mod ring;
pub(crate) mod slots;
