//! Ends of the sleep of an endpoint, from other threads.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ends the sleep of a [`Tcp`](super::Tcp) from another thread or from that of a signal handler, as
/// [`Event::Woken`](crate::Event::Woken).
#[derive(Clone)]
pub struct Waker(Arc<WakerState>);

/// Ends the sleep of a [`Tcp`](super::Tcp) for another part of this crate, without an event.
pub(crate) struct Ringer(Arc<WakerState>);

impl Ringer {
    /// Ends the present or the next sleep.
    pub(crate) fn ring(&self) {
        // Fails only without an event descriptor, which the endpoint has had since it was made.
        let _ = self.0.waker.wake();
    }
}

/// The waker of the poll, which there can be only one of, and whether a [`Waker`] has used it.
struct WakerState {
    waker: mio::Waker,
    by_user: AtomicBool,
}

impl Waker {
    pub(super) fn new(waker: mio::Waker) -> Self {
        Self(Arc::new(WakerState {
            waker,
            by_user: AtomicBool::new(false),
        }))
    }

    pub(super) fn ringer(&self) -> Ringer {
        Ringer(Arc::clone(&self.0))
    }

    /// Returns whether there was a wake since the last call.
    pub(super) fn take_wake(&self) -> bool {
        self.0.by_user.swap(false, Ordering::AcqRel)
    }

    /// Ends the present or the next sleep. A wake that the poll has not seen yet stands for this one too: only the
    /// first costs a system call.
    ///
    /// # Errors
    ///
    /// Only if the operating system fails to write to an event descriptor.
    pub fn wake(&self) -> io::Result<()> {
        if self.0.by_user.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let written = self.0.waker.wake();
        if written.is_err() {
            self.0.by_user.store(false, Ordering::Release);
        }
        written
    }
}

impl std::fmt::Debug for Waker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Waker")
    }
}
