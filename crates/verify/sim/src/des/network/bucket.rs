//! Token bucket of a shaped port, as of `tbf(8)`: the bytes that pass at once after a pause.

use crate::des::queue::Nanos;

/// Bytes with which a bucket gets to work again: a frame leaves whole or not at all.
const FRAME_BYTES: f64 = 1538.0;

/// A token bucket before a line.
#[derive(Debug)]
pub(super) struct Bucket {
    /// Inflow in bytes a ns: the rate of the line.
    line: f64,
    /// Capacity in bytes.
    size: f64,
    /// Content in bytes at `since`.
    left: f64,
    since: Nanos,
    /// Outflow since then, in bytes a ns.
    used: f64,
    is_open: bool,
    /// Time of the planned look; never if there is none.
    due: Nanos,
}

impl Bucket {
    /// Returns a full bucket.
    pub(super) fn new(line: f64, size: f64) -> Self {
        Self {
            line,
            size,
            left: size,
            since: 0,
            used: 0.0,
            is_open: true,
            due: Nanos::MAX,
        }
    }

    /// Sets another rate of the line from now on; the bucket is filled then, as `tc` does.
    pub(super) fn set_line(&mut self, now: Nanos, line: f64) {
        self.settle(now);
        self.line = line;
        self.left = self.size;
    }

    /// Returns the present rate in bytes a ns: unbounded while there is content, then the rate of the line.
    pub(super) fn rate(&mut self, now: Nanos) -> f64 {
        self.settle(now);
        if self.left >= 2.0 * FRAME_BYTES {
            self.is_open = true;
        }
        if self.is_open && self.line > 0.0 {
            f64::INFINITY
        } else {
            self.line
        }
    }

    /// Changes the outflow by `change` from now on, in bytes a ns.
    pub(super) fn draw(&mut self, now: Nanos, change: f64) {
        self.settle(now);
        self.used = (self.used + change).max(0.0);
    }

    /// Ends the outflow: rounding errors of the sum go.
    pub(super) fn rest(&mut self) {
        self.used = 0.0;
    }

    /// Returns the time of a look that is not planned yet.
    pub(super) fn next_look(&mut self) -> Option<Nanos> {
        let net = self.used - self.line;
        let due = if self.is_open && net > 0.0 {
            let ns = ((self.left - FRAME_BYTES).max(0.0) / net).ceil();
            self.since.saturating_add(ns as Nanos)
        } else {
            Nanos::MAX
        };
        let is_news = due != self.due && due != Nanos::MAX;
        self.due = due;
        is_news.then_some(due)
    }

    /// Looks after the bucket when [`next_look`](Self::next_look) asked for it; returns whether it has run dry.
    pub(super) fn look(&mut self, now: Nanos) -> bool {
        if self.due != now {
            return false; // Another look is to come, or none.
        }
        self.settle(now);
        self.due = Nanos::MAX;
        self.is_open = false;
        // Rounding of times would open it again at once.
        self.left = self.left.min(FRAME_BYTES);
        true
    }

    fn settle(&mut self, now: Nanos) {
        let gained = (self.line - self.used) * (now - self.since) as f64;
        self.left = (self.left + gained).clamp(0.0, self.size);
        self.since = now;
    }
}
