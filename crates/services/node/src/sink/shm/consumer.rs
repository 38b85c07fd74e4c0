//! Consumers of the sink `shm`, as the sink sees them.

use bytes::Bytes;
use sheaf_protocol::Tf;
use sheaf_transport::handover::Lender;
use std::time::{Duration, Instant};

/// How often the log has the same line.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// A process that takes TFs.
pub(super) struct Consumer {
    pub(super) lender: Lender<Tf<Bytes>>,
    /// Process, for the log.
    pub(super) pid: Option<i32>,
    /// Bytes of the TFs that it has, or is offered.
    pub(super) bytes: u64,
    /// Since when something lies there for it and it takes nothing.
    pub(super) idle_since: Option<Instant>,
    /// TFs were called back from it: it is tried again then.
    pub(super) slow_until: Option<Instant>,
    /// How often that happened since it took one.
    pub(super) strikes: u32,
}

impl Consumer {
    pub(super) fn takes(&self, bytes: u64, bytes_max: u64) -> bool {
        !self.lender.is_leaving() && (self.bytes == 0 || self.bytes + bytes <= bytes_max)
    }

    pub(super) fn is_slow(&self, now: Instant) -> bool {
        self.slow_until.is_some_and(|until| now < until)
    }

    /// Whether it has left what was offered for so long.
    pub(super) fn is_idle(&self, now: Instant, slow_after: Duration) -> bool {
        self.idle_since
            .is_some_and(|since| now.saturating_duration_since(since) >= slow_after)
    }
}

/// A rate-limited line of the log.
#[derive(Default)]
pub(super) struct Seldom {
    told: Option<Instant>,
    untold: u64,
}

impl Seldom {
    /// If the line is due: how many were left out since the last.
    pub(super) fn is_due(&mut self, now: Instant) -> Option<u64> {
        let is_due = |told| now.saturating_duration_since(told) >= TELL_EVERY;
        if self.told.is_none_or(is_due) {
            self.told = Some(now);
            return Some(std::mem::take(&mut self.untold));
        }
        self.untold += 1;
        None
    }
}
