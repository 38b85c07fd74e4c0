//! A number that only grows, and numbers that go up and down.
//!
//! All accesses are relaxed: a metric orders nothing, and a reader that sees one counter before
//! another has lost no more than the time of a scrape.

use crate::cell::{Level, Sum};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Counts what happened since the process started. Never goes down; wraps at 2^64.
#[derive(Debug, Default)]
pub struct Counter {
    /// Sum of the additions of [`raise_to`](Self::raise_to).
    raised: AtomicU64,
    cells: Sum,
}

impl Counter {
    /// Counts one more.
    #[inline]
    pub fn increment(&self) {
        self.add(1);
    }

    /// Counts `count` more.
    #[inline]
    pub fn add(&self, count: u64) {
        self.cells.add(count);
    }

    /// Takes over a total that was counted elsewhere, such as in the `Stats` of a pure crate.
    ///
    /// A `total` below the present value changes nothing, so the counter never goes back.
    #[inline]
    pub fn raise_to(&self, total: u64) {
        let added = self.cells.value();
        // Of several totals at once the highest counts, and not their sum.
        self.raised
            .fetch_max(total.saturating_sub(added), Ordering::Relaxed);
    }

    /// Returns the count so far.
    #[must_use]
    pub fn value(&self) -> u64 {
        let raised = self.raised.load(Ordering::Relaxed);
        raised.wrapping_add(self.cells.value())
    }
}

/// Shows how much there is now: bytes buffered, TFs in building, nodes alive.
#[derive(Debug, Default)]
pub struct Gauge {
    /// Value to which the cells are added.
    base: AtomicI64,
    cells: Level,
}

impl Gauge {
    /// Shows `value` from now on. A change by another thread at this moment counts as before it or after it.
    #[inline]
    pub fn set(&self, value: i64) {
        let base = value.wrapping_sub(self.cells.value());
        self.base.store(base, Ordering::Relaxed);
    }

    /// Shows `value` from now on, or `i64::MAX` if it is larger.
    #[inline]
    pub fn set_u64(&self, value: u64) {
        self.set(i64::try_from(value).unwrap_or(i64::MAX));
    }

    /// Shows `change` more than before, less if it is negative.
    #[inline]
    pub fn add(&self, change: i64) {
        self.cells.add(change);
    }

    /// Returns the present value.
    #[must_use]
    pub fn value(&self) -> i64 {
        let base = self.base.load(Ordering::Relaxed);
        base.wrapping_add(self.cells.value())
    }
}

/// Shows a real number as it is now: a temperature, a ratio, a load.
#[derive(Debug, Default)]
pub struct RealGauge(AtomicU64);

impl RealGauge {
    /// Shows `value` from now on.
    #[inline]
    pub fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }

    /// Returns the present value.
    #[must_use]
    pub fn value(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_adds_up_over_threads() {
        let counter = Counter::default();
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| (0..10_000).for_each(|_| counter.increment()));
            }
        });
        assert_eq!(counter.value(), 200_000);
    }

    #[test]
    fn a_counter_that_mirrors_a_total_never_goes_back() {
        let counter = Counter::default();
        for (total, expected) in [(5, 5), (3, 5), (9, 9)] {
            counter.raise_to(total);
            assert_eq!(counter.value(), expected);
        }
        counter.add(2);
        for (total, expected) in [(10, 11), (11, 11), (20, 20)] {
            counter.raise_to(total);
            assert_eq!(counter.value(), expected);
        }
    }

    #[test]
    fn threads_that_mirror_one_total_do_not_add_it_up() {
        let counter = Counter::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..=10_000).for_each(|total| counter.raise_to(total)));
            }
        });
        assert_eq!(counter.value(), 10_000);
    }

    #[test]
    fn a_gauge_goes_up_and_down_and_stops_at_its_end() {
        let gauge = Gauge::default();
        gauge.set(5);
        gauge.add(-7);
        assert_eq!(gauge.value(), -2);
        gauge.set_u64(u64::MAX);
        assert_eq!(gauge.value(), i64::MAX);
    }

    #[test]
    fn changes_of_several_threads_meet_in_one_gauge() {
        let gauge = Gauge::default();
        gauge.set(7);
        std::thread::scope(|scope| {
            for thread in 0..4_i64 {
                let gauge = &gauge;
                scope.spawn(move || (0..1000).for_each(|_| gauge.add(thread - 1)));
            }
        });
        assert_eq!(gauge.value(), 2007);
        gauge.set(1);
        assert_eq!(gauge.value(), 1);
    }

    #[test]
    fn a_real_gauge_shows_the_last_value() {
        let gauge = RealGauge::default();
        assert_eq!(gauge.value(), 0.0);
        gauge.set(-42.5);
        assert_eq!(gauge.value(), -42.5);
    }
}
