//! Waker of a thread that waits for room in the queue of a feed.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Rings for a thread that has found the queue full and has more to do than to wait for room in it.
#[derive(Debug)]
pub(in crate::source) struct Room {
    is_awaited: AtomicBool,
    waker: OwnedFd,
}

impl Room {
    pub(super) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self {
            is_awaited: AtomicBool::new(false),
            waker: eventfd(0, flags)?,
        })
    }

    /// From now on it rings, once. Who awaits it looks at the queue once more before it waits.
    pub(in crate::source) fn wait_for(&self) {
        self.is_awaited.store(true, Ordering::SeqCst);
    }

    /// Not needed, or called already.
    pub(in crate::source) fn clear(&self) {
        self.is_awaited.store(false, Ordering::SeqCst);
        // Nothing to read: it has not rung.
        let _ = rustix::io::read(&self.waker, &mut [0; 8]);
    }

    pub(super) fn wake(&self) {
        if self.is_awaited.swap(false, Ordering::SeqCst) {
            // It cannot be full: it is cleared before it rings again.
            let _ = rustix::io::write(&self.waker, &1_u64.to_ne_bytes());
        }
    }
}

impl AsFd for Room {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}
