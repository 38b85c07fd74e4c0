//! Length of the queue of one connection, as its loop tells the caller without a message.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Word that a loop shares with the caller: how far the queue of one connection has come.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// Bytes that have left the queue, of all that the loop was given.
    left_bytes: AtomicU64,
    /// Whether the caller waits for room.
    is_awaited: AtomicBool,
}

impl Line {
    /// Notes that `bytes` in all have left. Returns whether the caller waits to hear of it.
    pub(super) fn set_left(&self, bytes: u64) -> bool {
        // Both ways in one order: a caller that sees no room has asked before it looked, and is heard here.
        self.left_bytes.store(bytes, Ordering::SeqCst);
        self.is_awaited.load(Ordering::SeqCst) && self.is_awaited.swap(false, Ordering::SeqCst)
    }

    pub(super) fn left_bytes(&self) -> u64 {
        self.left_bytes.load(Ordering::SeqCst)
    }

    pub(super) fn await_room(&self) {
        self.is_awaited.store(true, Ordering::SeqCst);
    }
}
