//! Measured worth of a target: how fast bytes arrive, how long it works on them, and how much it did lately.
//!
//! The owner of a [`LoadView`](crate::LoadView) reports every finished job to it
//! ([`observe`](crate::LoadView::observe)), or, where it does not see the end of the work itself, arrivals and the work
//! that the target reports ([`observe_arrival`](crate::LoadView::observe_arrival),
//! [`observe_work`](crate::LoadView::observe_work)); policies that predict read the measurements from there, so that
//! each target is measured once, whichever policy chooses, and forgotten when it leaves.

use sheaf_protocol::Timestamp;
use std::time::Duration;

/// The window of [`Measured::window_bytes`], in ns: the length that the ATLAS storage balancing of 2017 found good.
const WINDOW_NS: u64 = 5_000_000_000;
/// One over the share of a new sample in the smoothed ones.
const SMOOTHING: u128 = 8;
/// Samples after which one that is far above the others counts as this many times the mean: where times have a heavy
/// tail, a single job says little about its target. One that has become slow is found all the same, some jobs later.
const CLIPPED_FROM: u64 = 16;
const CLIPPED_AT: u128 = 3;
/// Mean below which no sample is far above: what takes no time at first may take some later.
const CLIPPED_ABOVE_NS: u128 = 1_000_000;
/// Bytes of a MiB.
const MIB: u128 = 1 << 20;

/// A job that its target has finished, as its owner saw it. `placed_at` ≤ `arrived_at` ≤ `done_at`; a time that
/// is before the one it should follow counts as equal to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Actual bytes of the job.
    pub bytes: u64,
    /// When the job was given to the target.
    pub placed_at: Timestamp,
    /// When the last byte of the job was there; `done_at` if that is unknown.
    pub arrived_at: Timestamp,
    /// When the target had done with the job.
    pub done_at: Timestamp,
}

/// Measurements of one target. All smoothed over some ten jobs.
///
/// A job that finds others at its target waits for them, and that wait says nothing about the target: the time
/// that counts is from the moment when both the job was there and the one before it had gone (Lindley, "The
/// theory of queues with a single server", Math. Proc. Camb. Phil. Soc. 48, 1952). So a busy and an idle target of
/// one make measure alike, and one that works on several jobs at once measures as one that is that much faster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Jobs finished; where the target reports sums ([`LoadView::observe_work`](crate::LoadView::observe_work)),
    /// reports.
    pub jobs: u64,
    /// Bytes of the jobs finished.
    pub bytes: u64,
    /// When the last job was finished.
    pub done_at: Timestamp,
    /// Time that a MiB takes to arrive, in ns; 0 before the first job.
    pub transfer_ns_per_mib: u64,
    /// Time that the target works on a MiB that has arrived, in ns; 0 before the first job.
    pub processing_ns_per_mib: u64,
    arrived_at: Timestamp,
    transfer: Pace,
    processing: Pace,
    /// Number of the window that `window_now` counts, since time 0.
    window: u64,
    window_now: u64,
    window_before: u64,
}

/// Smoothed time and bytes of one stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pace {
    samples: u64,
    bytes: u64,
    ns: u64,
}

impl Pace {
    fn add(&mut self, bytes: u64, time: Duration) {
        let mut ns = time.as_nanos();
        if self.samples >= CLIPPED_FROM {
            let expected = u128::from(self.ns_per_mib()) * u128::from(bytes) / MIB;
            ns = ns.min(CLIPPED_AT * expected.max(CLIPPED_ABOVE_NS));
        }
        // The plain mean of the first ones, or the very first would count for most of them.
        let of = u128::from(self.samples + 1).min(SMOOTHING);
        let smooth = |old: u64, new: u128| {
            let value = (u128::from(old) * (of - 1) + new) / of;
            u64::try_from(value).unwrap_or(u64::MAX)
        };
        self.bytes = smooth(self.bytes, u128::from(bytes));
        self.ns = smooth(self.ns, ns);
        self.samples += 1;
    }

    fn ns_per_mib(&self) -> u64 {
        // A quotient of means: the mean of quotients would make much of small jobs.
        let ns = u128::from(self.ns) * MIB / u128::from(self.bytes.max(1));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

impl Measured {
    /// Length of the window of [`window_bytes`](Self::window_bytes).
    pub const WINDOW: Duration = Duration::from_nanos(WINDOW_NS);

    /// Returns the bytes of the jobs that were finished in the [`WINDOW`](Self::WINDOW) before `now`: those of the
    /// fixed window that has begun, and of the one before it the share that is not yet out of sight.
    #[must_use]
    pub fn window_bytes(&self, now: Timestamp) -> u64 {
        let (window, into) = (now.0 / WINDOW_NS, now.0 % WINDOW_NS);
        let share = |bytes: u64| {
            let left = u128::from(bytes) * u128::from(WINDOW_NS - into) / u128::from(WINDOW_NS);
            u64::try_from(left).unwrap_or(u64::MAX)
        };
        match window.checked_sub(self.window) {
            Some(0) => self.window_now.saturating_add(share(self.window_before)),
            Some(1) => share(self.window_now),
            Some(_) => 0,
            // For a time before the last job: as at that job.
            None => self.window_now,
        }
    }

    /// Returns the start values of a target that joins `others`: no measurement, but their average work, or a policy
    /// that evens out the work done would send everything to it for the length of a window.
    #[must_use]
    pub fn newcomer(others: &[Self]) -> Self {
        let Some(window) = others.iter().map(|other| other.window).max() else {
            return Self::default();
        };
        let present = || others.iter().filter(|other| other.window == window);
        let mean = |bytes: fn(&Self) -> u64| {
            let sum: u128 = present().map(|other| u128::from(bytes(other))).sum();
            u64::try_from(sum / others.len() as u128).unwrap_or(u64::MAX)
        };
        Self {
            window,
            window_now: mean(|other| other.window_now),
            window_before: mean(|other| other.window_before),
            ..Self::default()
        }
    }

    /// Returns the time for which the target works on a job; 0 before the first one.
    #[must_use]
    pub fn job_time(&self) -> Duration {
        Duration::from_nanos(self.processing.ns)
    }

    /// Adds a job of which the owner saw both stages.
    pub(crate) fn add(&mut self, job: &Finished) {
        let arrived_at = job.arrived_at.max(job.placed_at);
        let done_at = job.done_at.max(arrived_at);
        let processing = done_at.since(arrived_at.max(self.done_at).min(done_at));
        self.add_arrival(job.bytes, job.placed_at, arrived_at);
        self.add_work(done_at, job.bytes, processing);
    }

    /// Adds a job of `bytes` whose last byte was there at `arrived_at`.
    pub(crate) fn add_arrival(&mut self, bytes: u64, placed_at: Timestamp, arrived_at: Timestamp) {
        let arrived_at = arrived_at.max(placed_at);
        // From when on the job had the target to itself.
        let transfer = arrived_at.since(placed_at.max(self.arrived_at).min(arrived_at));
        self.transfer.add(bytes, transfer);
        self.transfer_ns_per_mib = self.transfer.ns_per_mib();
        self.arrived_at = self.arrived_at.max(arrived_at);
    }

    /// Adds `bytes` that the target has finished by `done_at`, and that took it `busy`.
    pub(crate) fn add_work(&mut self, done_at: Timestamp, bytes: u64, busy: Duration) {
        self.processing.add(bytes, busy);
        self.processing_ns_per_mib = self.processing.ns_per_mib();
        self.jobs += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.done_at = self.done_at.max(done_at);
        self.turn_window(done_at);
        self.window_now = self.window_now.saturating_add(bytes);
    }

    fn turn_window(&mut self, now: Timestamp) {
        let window = now.0 / WINDOW_NS;
        if window > self.window {
            let is_next = window == self.window + 1;
            self.window_before = if is_next { self.window_now } else { 0 };
            self.window_now = 0;
            self.window = window;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const MIB_BYTES: u64 = 1 << 20;

    /// Measures jobs of one MiB, each as the ms at which it was placed, had arrived and was done.
    fn after(jobs: &[(u64, u64, u64)]) -> Measured {
        let mut measured = Measured::default();
        for &(placed, arrived, done) in jobs {
            measured.add(&Finished {
                bytes: MIB_BYTES,
                placed_at: Timestamp(placed * MS),
                arrived_at: Timestamp(arrived * MS),
                done_at: Timestamp(done * MS),
            });
        }
        measured
    }

    /// Checks smoothed times per MiB, in ms.
    fn check(jobs: &[(u64, u64, u64)], transfer_ms: u64, processing_ms: u64) {
        let measured = after(jobs);
        let ns = (measured.transfer_ns_per_mib, measured.processing_ns_per_mib);
        assert_eq!(ns, (transfer_ms * MS, processing_ms * MS), "{measured:?}");
    }

    #[test]
    fn an_idle_target_measures_as_long_as_its_job_takes() {
        check(&[], 0, 0);
        check(&[(0, 10, 13)], 10, 3);
        check(&[(0, 10, 13), (20, 30, 33)], 10, 3);
    }

    #[test]
    fn the_wait_behind_other_jobs_does_not_count() {
        // All three placed at once: they arrive one behind the other, 10 ms each, and are worked on as they come.
        check(&[(0, 10, 13), (0, 20, 23), (0, 30, 33)], 10, 3);
        // All arrived at once, worked on one by one.
        check(&[(0, 10, 20), (10, 20, 30), (20, 30, 40)], 10, 10);
    }

    #[test]
    fn a_target_that_works_on_two_jobs_at_once_measures_as_twice_as_fast() {
        let pairs: Vec<_> = (0..60).map(|n| (10 * n, 10 * n, 10 * n + 20)).collect();
        let measured = after(&pairs);
        let ms = measured.processing_ns_per_mib / MS;
        assert!((10..=11).contains(&ms), "{measured:?}");
    }

    /// Measures jobs one behind the other that take so many ms each.
    fn behind_each_other(ms: &[u64]) -> u64 {
        let mut at = 0;
        let jobs = ms.iter().map(|ms| {
            let begin = at;
            at += ms;
            (begin, begin, at)
        });
        let jobs: Vec<_> = jobs.collect();
        after(&jobs).processing_ns_per_mib / MS
    }

    #[test]
    fn one_job_of_a_heavy_tail_says_little_and_a_target_that_becomes_slow_is_found() {
        let steady = vec![10; 30];
        assert_eq!(behind_each_other(&steady), 10);
        // Three times the mean counts, an eighth of that more.
        let tail = [steady.clone(), vec![1000]].concat();
        assert_eq!(behind_each_other(&tail), 12);
        let slow = [steady, vec![80; 40]].concat();
        assert_eq!(behind_each_other(&slow), 79);
        // Among the first ones all count as they are.
        assert_eq!(behind_each_other(&[10, 70]), 40);
    }

    #[test]
    fn times_out_of_order_count_as_none() {
        check(&[(10, 5, 3)], 0, 0);
        let measured = after(&[(10, 20, 30), (5, 6, 7)]);
        assert_eq!(measured.transfer_ns_per_mib, 5 * MS);
        assert_eq!(measured.processing_ns_per_mib, 5 * MS);
    }

    #[test]
    fn the_window_forgets_what_is_older_than_it_is_long() {
        let seconds = |s: u64| Timestamp(s * 1000 * MS);
        let measured = after(&[(0, 1, 1), (0, 2, 2)]);
        assert_eq!(measured.window_bytes(seconds(1)), 2 * MIB_BYTES);
        assert_eq!(measured.window_bytes(seconds(5)), 2 * MIB_BYTES);
        assert_eq!(measured.window_bytes(seconds(6)), 2 * MIB_BYTES * 4 / 5);
        assert_eq!(measured.window_bytes(seconds(10)), 0);
        let measured = after(&[(0, 1, 1), (0, 6000, 6000)]);
        assert_eq!(
            measured.window_bytes(seconds(7)),
            MIB_BYTES + MIB_BYTES * 3 / 5
        );
        assert_eq!(measured.window_bytes(seconds(0)), MIB_BYTES);
    }

    #[test]
    fn a_newcomer_has_done_as_much_as_the_others_on_average_and_is_not_measured() {
        let others = [
            after(&[(0, 1, 1)]),
            after(&[(0, 1, 1), (0, 1, 2), (0, 1, 3)]),
        ];
        let newcomer = Measured::newcomer(&others);
        assert_eq!(newcomer.window_bytes(Timestamp(MS)), 2 * MIB_BYTES);
        assert_eq!((newcomer.jobs, newcomer.transfer_ns_per_mib), (0, 0));
        assert_eq!(Measured::newcomer(&[]), Measured::default());
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let mut measured = Measured::default();
        for _ in 0..3 {
            measured.add(&Finished {
                bytes: u64::MAX,
                placed_at: Timestamp(0),
                arrived_at: Timestamp(u64::MAX),
                done_at: Timestamp(u64::MAX),
            });
        }
        assert_eq!(measured.window_bytes(Timestamp(u64::MAX)), u64::MAX);
    }
}
