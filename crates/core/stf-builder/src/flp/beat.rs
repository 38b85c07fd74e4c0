//! The common time of a run, as one FLP has it from the pulses of the ICN.
//!
//! A pulse says how long the run has lasted when it was sent, and is some time on its way. That time is never below
//! zero, so of several pulses the one that puts the origin earliest tells the time best. Clocks also drift apart, some
//! 50 µs a second between ordinary machines; therefore only the pulses of the last window count.

use sheaf_protocol::Timestamp;
use std::time::Duration;

/// How long a pulse counts: many pulses, and a drift far below the length of a TF.
const WINDOW: Duration = Duration::from_secs(1);

/// Time when the first TF of the run was due, on the clock of this FLP.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Beat {
    origin: Moment,
    /// The best pulse of the window that is not over.
    earliest: Option<Moment>,
    window_ends: Timestamp,
}

/// Nanoseconds on the clock of this FLP. Below zero for a run that is older than the process.
type Moment = i128;

impl Beat {
    /// Returns a beat set by a message that came `now` and was sent when the run had lasted `elapsed_ns`.
    pub(super) fn new(now: Timestamp, elapsed_ns: u64) -> Self {
        Self {
            origin: began(now, elapsed_ns),
            earliest: None,
            window_ends: now + WINDOW,
        }
    }

    /// Returns whether a message has ever told the time of the run.
    pub(super) fn is_set(&self) -> bool {
        self.window_ends > Timestamp(0)
    }

    /// Returns when an event is due that comes `after` the origin; zero if that was before this clock began.
    pub(super) fn due(&self, after: Duration) -> Timestamp {
        let after = Moment::try_from(after.as_nanos()).unwrap_or(Moment::MAX / 2);
        let due = (self.origin + after).clamp(0, Moment::from(u64::MAX));
        Timestamp(u64::try_from(due).expect("clamped to it"))
    }

    /// Returns how long the run has lasted, in ns.
    pub(super) fn elapsed_ns(&self, now: Timestamp) -> u64 {
        u64::try_from(Moment::from(now.0) - self.origin).unwrap_or(0)
    }

    /// Keeps the time as it is known for a window: a new leader may know less of it, and has it from this FLP.
    pub(super) fn keep(&mut self, now: Timestamp) {
        if !self.is_set() {
            return;
        }
        self.earliest = Some(self.origin);
        self.window_ends = now + WINDOW;
    }

    /// Corrects the origin by another message, which was sent when the run had lasted `elapsed_ns`.
    pub(super) fn steer(&mut self, now: Timestamp, elapsed_ns: u64) {
        let seen = began(now, elapsed_ns);
        let earliest = self.earliest.map_or(seen, |earliest| earliest.min(seen));
        self.earliest = Some(earliest);
        self.origin = self.origin.min(earliest);
        if now >= self.window_ends {
            self.origin = earliest;
            self.earliest = None;
            self.window_ends = now + WINDOW;
        }
    }
}

fn began(now: Timestamp, elapsed_ns: u64) -> Moment {
    Moment::from(now.0) - Moment::from(elapsed_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_late_start_is_made_good_by_the_first_pulse_that_is_faster() {
        let mut beat = Beat::new(Timestamp(105 * MS), 0);
        beat.steer(Timestamp(121 * MS), 20 * MS);
        assert_eq!(beat.due(Duration::ZERO), Timestamp(101 * MS));
        beat.steer(Timestamp(149 * MS), 40 * MS);
        assert_eq!(
            beat.due(Duration::ZERO),
            Timestamp(101 * MS),
            "a slow pulse tells nothing"
        );
    }

    #[test]
    fn the_time_is_kept_for_a_window_when_a_leader_knows_less_of_it() {
        let late = |at_ms: u64| (Timestamp(at_ms * MS), (at_ms - 1000) * MS);
        let followed = |keeps: bool| {
            let mut beat = Beat::new(Timestamp(0), 0);
            if keeps {
                beat.keep(Timestamp(3000 * MS));
            }
            let (now, elapsed) = late(3010);
            beat.steer(now, elapsed);
            beat
        };
        assert_eq!(followed(false).due(Duration::ZERO), Timestamp(1000 * MS));
        let mut beat = followed(true);
        assert_eq!(beat.due(Duration::ZERO), Timestamp(0));
        // A leader that has not taken it after two windows is right.
        for at_ms in [4010, 4020, 5020] {
            let (now, elapsed) = late(at_ms);
            beat.steer(now, elapsed);
        }
        assert_eq!(beat.due(Duration::ZERO), Timestamp(1000 * MS));
    }

    #[test]
    fn a_time_that_was_never_told_is_not_kept() {
        let mut beat = Beat::default();
        beat.keep(Timestamp(3000 * MS));
        assert!(!beat.is_set());
    }

    #[test]
    fn a_clock_that_runs_fast_is_followed_window_by_window() {
        let mut beat = Beat::new(Timestamp(0), 0);
        // This clock gains 1 ms a second on that of the ICN.
        for tick in 1..=500_u64 {
            let elapsed_ms = 20 * tick;
            let here_us = elapsed_ms * 1001;
            beat.steer(Timestamp(here_us * 1000), elapsed_ms * MS);
        }
        let error = beat.due(Duration::ZERO).0.abs_diff(10 * MS);
        assert!(error <= 2 * MS, "10 ms gained, {error} ns off");
    }
}
