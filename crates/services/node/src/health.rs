//! Health of a process as its page tells it: whether the event loop turns, and whether the node has its place in a run.

use crate::clock::Clock;
use sheaf_protocol::{RunId, Term, Timestamp};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Longest time behind its schedule for which an event loop counts as alive: a hundred times what a busy loop takes.
const LATE_MAX: Duration = Duration::from_secs(5);
/// Value of `due` before the first turn.
const NOT_BEGUN: u64 = u64::MAX;

/// Place of a node in its farm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// `starting`, `connecting`, `waiting for a leader`, `joined`, `standby`, or the phase of the run at the ICN that
    /// leads.
    pub(crate) phase: &'static str,
    /// Whether the node has joined a leader, leads, or stands by behind one.
    pub(crate) is_ready: bool,
    /// Run; 0 before the first.
    pub(crate) run: RunId,
    /// Term of the leader; 0 before the first.
    pub(crate) term: Term,
}

impl Standing {
    const BEFORE: Self = Self {
        phase: "starting",
        is_ready: false,
        run: RunId(0),
        term: Term(0),
    };
}

/// Health of one process, written by its event loop and read by its page.
#[derive(Debug)]
pub(crate) struct Health {
    name: String,
    clock: Clock,
    turns: AtomicU64,
    /// When the loop means to turn next, in ns of `clock`.
    due: AtomicU64,
    standing: Mutex<Standing>,
}

impl Health {
    /// Health of the process `name`, such as `epn:3`, whose event loop has not begun.
    pub(crate) fn new(name: &impl ToString, clock: Clock) -> Self {
        Self {
            name: name.to_string(),
            clock,
            turns: AtomicU64::new(0),
            due: AtomicU64::new(NOT_BEGUN),
            standing: Mutex::new(Standing::BEFORE),
        }
    }

    /// Notes that the event loop turns at `now`.
    pub(crate) fn turn(&self, now: Timestamp) {
        self.turns.fetch_add(1, Ordering::Relaxed);
        self.due.store(now.0, Ordering::Relaxed);
    }

    /// Notes that the event loop sleeps until something comes, and until `until` at most.
    pub(crate) fn sleep_until(&self, until: Timestamp) {
        self.due
            .store(until.0.min(NOT_BEGUN - 1), Ordering::Relaxed);
    }

    /// Notes the place of the node in its farm.
    pub(crate) fn stand(&self, standing: Standing) {
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner) = standing;
    }

    /// Returns the name of the process.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the place of the node in its farm.
    pub(crate) fn standing(&self) -> Standing {
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how often the event loop has turned.
    pub(crate) fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    /// Returns how long the process has been running.
    pub(crate) fn uptime(&self) -> Duration {
        self.clock.now().since(Timestamp(0))
    }

    /// Returns why the event loop does not count as alive now.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.trouble_at(self.clock.now())
    }

    fn trouble_at(&self, now: Timestamp) -> Option<String> {
        let due = self.due.load(Ordering::Relaxed);
        if due == NOT_BEGUN {
            return None;
        }
        let late = now.since(Timestamp(due));
        (late > LATE_MAX).then(|| {
            format!(
                "the event loop is {:.1} s late, expected at most {} s",
                late.as_secs_f64(),
                LATE_MAX.as_secs()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Timestamp {
        Timestamp(seconds * 1_000_000_000)
    }

    #[test]
    fn a_loop_that_does_not_turn_is_in_trouble_and_one_that_sleeps_is_not() {
        let health = Health::new(&"icn:0", Clock::start());
        assert_eq!(health.trouble_at(seconds(1000)), None, "it has not begun");
        health.turn(seconds(1));
        assert_eq!(health.trouble_at(seconds(6)), None);
        assert_eq!(
            health.trouble_at(seconds(8)).unwrap(),
            "the event loop is 7.0 s late, expected at most 5 s"
        );
        health.sleep_until(seconds(20));
        assert_eq!(health.trouble_at(seconds(24)), None);
        assert!(health.trouble_at(seconds(26)).is_some());
        health.sleep_until(Timestamp(u64::MAX));
        assert_eq!(health.trouble_at(seconds(1000)), None, "nothing is due");
        health.turn(seconds(30));
        assert_eq!((health.trouble_at(seconds(31)), health.turns()), (None, 2));
    }
}
