//! How long a sink waits for its consumer: without end while the node runs, hardly when it ends.

use crate::source::stop::{Stop, Waited, wait_only};
use rustix::event::PollFlags;
use std::cell::Cell;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// How long a consumer may take nothing when the node ends.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// The waiting of a sink, which ends with its node.
#[derive(Debug)]
pub struct Patience {
    stop: Option<Stop>,
    is_ending: Cell<bool>,
}

impl Patience {
    pub(super) fn new(stop: Stop) -> Self {
        Self {
            stop: Some(stop),
            is_ending: Cell::new(false),
        }
    }

    /// Of a sink that must not wait.
    pub(super) fn none() -> Self {
        Self {
            stop: None,
            is_ending: Cell::new(true),
        }
    }

    /// Whether the node ends. Then only what the consumer takes without delay is worth a try.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.is_ending.get()
    }

    /// Waits until `peer` is ready as `flags` say, for at most `timeout`, and not at all when the node ends. Tells
    /// whether it is ready.
    pub(super) fn wait(
        &self,
        peer: BorrowedFd<'_>,
        flags: PollFlags,
        timeout: Duration,
    ) -> io::Result<bool> {
        let Some(stop) = self.stop.as_ref().filter(|_| !self.is_ending()) else {
            return Ok(false);
        };
        let waited = stop.wait(peer, flags, Some(timeout))?;
        self.is_ending.set(waited == Waited::Stopped);
        Ok(waited == Waited::Ready)
    }

    /// As [`wait`](Self::wait), but grants a peer that has begun a second more when the node ends.
    pub(super) fn wait_once_more(
        &self,
        peer: BorrowedFd<'_>,
        flags: PollFlags,
        timeout: Duration,
    ) -> io::Result<bool> {
        let is_ready = self.wait(peer, flags, timeout)?;
        if is_ready || !self.is_ending() {
            return Ok(is_ready);
        }
        wait_only(peer, flags, LAST_WAIT)
    }

    /// Waits for `pause` before something is tried again, unless the node ends.
    pub(super) fn pause(&self, pause: Duration) {
        if let Some(stop) = &self.stop
            && !self.is_ending()
        {
            self.is_ending.set(stop.pause(pause).unwrap_or(true));
        }
    }
}
