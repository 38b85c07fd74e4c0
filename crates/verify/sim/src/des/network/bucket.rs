//! What a shaped port lets through at once after a pause: the token bucket of `tbf(8)`.

use crate::des::queue::Nanos;

/// A bucket gets to work again when so much is in it, in bytes: a frame leaves whole or not at all.
const FRAME_BYTES: f64 = 1538.0;

/// A token bucket before a line.
#[derive(Debug)]
pub(super) struct Bucket {
    /// What flows in, in bytes a ns: the rate of the line.
    line: f64,
    /// What it holds, in bytes.
    size: f64,
    /// What is in it at `since`.
    left: f64,
    since: Nanos,
    /// What flows out since then, in bytes a ns.
    used: f64,
    is_open: bool,
    /// When somebody looks after it; never if nobody does.
    due: Nanos,
}

impl Bucket {
    /// A full one.
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

    /// The line behind it has another rate from now on; it is filled then, as `tc` does.
    pub(super) fn set_line(&mut self, now: Nanos, line: f64) {
        self.settle(now);
        self.line = line;
        self.left = self.size;
    }

    /// What may pass now, in bytes a ns: everything while it lasts, then the rate of the line.
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

    /// Flows take `change` more from now on, in bytes a ns; less if that is negative.
    pub(super) fn draw(&mut self, now: Nanos, change: f64) {
        self.settle(now);
        self.used = (self.used + change).max(0.0);
    }

    /// Nobody takes anything any more: what rounding left of the sum goes.
    pub(super) fn rest(&mut self) {
        self.used = 0.0;
    }

    /// When somebody has to look after it who does not know it yet.
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

    /// Looks after it when [`next_look`](Self::next_look) asked for it. Whether it has run dry.
    pub(super) fn look(&mut self, now: Nanos) -> bool {
        if self.due != now {
            return false; // Another look is to come, or none.
        }
        self.settle(now);
        self.due = Nanos::MAX;
        self.is_open = false;
        // What rounding of times left over would open it again at once.
        self.left = self.left.min(FRAME_BYTES);
        true
    }

    fn settle(&mut self, now: Nanos) {
        let gained = (self.line - self.used) * (now - self.since) as f64;
        self.left = (self.left + gained).clamp(0.0, self.size);
        self.since = now;
    }
}
