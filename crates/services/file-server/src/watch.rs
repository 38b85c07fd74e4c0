//! Time and rate that a client is allowed: a client that holds a connection and does not move is put off.
//!
//! One tick of a worker looks at all its connections, so that the path of bytes has no timer.

use crate::config::Limits;
use std::cell::Cell;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// State of a connection, by the one it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// A request, of which no byte is there.
    Idle,
    /// The rest of a head.
    Head,
    /// Bytes that the client sends.
    Receiving,
    /// Room for bytes that the client takes.
    Sending,
    /// The server itself: disk, checksum.
    Working,
}

/// Connection as its watch sees it.
#[derive(Debug)]
pub(crate) struct Watched {
    phase: Cell<Phase>,
    since: Cell<Instant>,
    /// Bytes moved since `since`.
    moved: Cell<u64>,
    is_late: Cell<bool>,
    late: Notify,
}

impl Watched {
    /// Watches a connection that has just begun, in TLS with its handshake.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            phase: Cell::new(Phase::Head),
            since: Cell::new(now),
            moved: Cell::new(0),
            is_late: Cell::new(false),
            late: Notify::new(),
        }
    }

    /// Notes what the connection waits for from `now` on.
    pub(crate) fn enter(&self, phase: Phase, now: Instant) {
        self.phase.set(phase);
        self.since.set(now);
        self.moved.set(0);
    }

    /// Notes bytes that have moved.
    pub(crate) fn moved(&self, bytes: u64) {
        self.moved.set(self.moved.get() + bytes);
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// Returns since when the connection is without a request; `None` if it has one, or is about to end.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let is_idle = self.phase.get() == Phase::Idle && !self.is_late.get();
        is_idle.then(|| self.since.get())
    }

    /// Puts the client off if it is late.
    pub(crate) fn tick(&self, now: Instant, limits: &Limits) {
        let span = now.saturating_duration_since(self.since.get());
        match judge(self.phase.get(), span, self.moved.get(), limits) {
            Verdict::InTime => {}
            Verdict::NextWindow => {
                self.since.set(now);
                self.moved.set(0);
            }
            Verdict::Late => self.end(),
        }
    }

    /// Ends the connection as if its client was late.
    pub(crate) fn end(&self) {
        self.is_late.set(true);
        self.late.notify_one();
    }

    /// Waits until the client is late.
    pub(crate) async fn late(&self) {
        while !self.is_late.get() {
            self.late.notified().await;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    InTime,
    /// Fast enough in a window that is over.
    NextWindow,
    Late,
}

fn judge(phase: Phase, span: Duration, moved: u64, limits: &Limits) -> Verdict {
    let within = |most: Duration| {
        if span > most {
            Verdict::Late
        } else {
            Verdict::InTime
        }
    };
    match phase {
        Phase::Idle => within(limits.idle_within),
        Phase::Head => within(limits.head_within),
        Phase::Working => Verdict::InTime,
        Phase::Receiving | Phase::Sending if span < limits.rate_window => Verdict::InTime,
        Phase::Receiving | Phase::Sending => {
            let needed = limits.rate_min as f64 * span.as_secs_f64();
            if (moved as f64) < needed {
                Verdict::Late
            } else {
                Verdict::NextWindow
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(phase: Phase, seconds: u64, moved: u64, expected: Verdict) {
        let limits = Limits {
            head_within: Duration::from_secs(10),
            idle_within: Duration::from_secs(60),
            rate_min: 100,
            rate_window: Duration::from_secs(30),
            ..Limits::default()
        };
        let found = judge(phase, Duration::from_secs(seconds), moved, &limits);
        assert_eq!(found, expected, "{phase:?} for {seconds} s, {moved} bytes");
    }

    #[test]
    fn clients_that_do_not_move_are_late() {
        check(Phase::Idle, 60, 0, Verdict::InTime);
        check(Phase::Idle, 61, 0, Verdict::Late);
        // A byte now and then does not help a head.
        check(Phase::Head, 11, 11, Verdict::Late);
        check(Phase::Sending, 29, 0, Verdict::InTime);
        check(Phase::Sending, 30, 2999, Verdict::Late);
        check(Phase::Receiving, 31, 3099, Verdict::Late);
        check(Phase::Receiving, 30, 3000, Verdict::NextWindow);
        check(Phase::Working, 100_000, 0, Verdict::InTime);
    }

    #[test]
    fn each_window_counts_by_itself() {
        let limits = Limits {
            rate_min: 1,
            rate_window: Duration::from_secs(1),
            ..Limits::default()
        };
        let begin = Instant::now();
        let watched = Watched::new(begin);
        watched.enter(Phase::Sending, begin);
        watched.moved(1000);
        watched.tick(begin + Duration::from_secs(1), &limits);
        assert!(!watched.is_late.get());
        watched.tick(begin + Duration::from_secs(2), &limits);
        assert!(
            watched.is_late.get(),
            "the first window does not count for the second"
        );
    }
}
