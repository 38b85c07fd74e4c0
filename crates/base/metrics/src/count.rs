//! A number that only grows, and a number that goes up and down.
//!
//! All accesses are relaxed: a metric orders nothing, and a reader that sees one counter before
//! another has lost no more than the time of a scrape.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Counts what happened since the process started. Never goes down; wraps at 2^64.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts one more.
    #[inline]
    pub fn increment(&self) {
        self.add(1);
    }

    /// Counts `count` more.
    #[inline]
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Takes over a total that was counted elsewhere, such as in the `Stats` of a pure crate.
    ///
    /// A `total` below the present value changes nothing, so the counter never goes back.
    #[inline]
    pub fn raise_to(&self, total: u64) {
        self.0.fetch_max(total, Ordering::Relaxed);
    }

    /// Returns the count so far.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Shows how much there is now: bytes buffered, TFs in building, nodes alive.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Shows `value` from now on.
    #[inline]
    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Shows `value` from now on, or `i64::MAX` if it is larger.
    #[inline]
    pub fn set_u64(&self, value: u64) {
        self.set(i64::try_from(value).unwrap_or(i64::MAX));
    }

    /// Shows `change` more than before, less if it is negative.
    #[inline]
    pub fn add(&self, change: i64) {
        self.0.fetch_add(change, Ordering::Relaxed);
    }

    /// Returns the present value.
    #[must_use]
    pub fn value(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_adds_up_over_threads() {
        let counter = Counter::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| counter.increment()));
            }
        });
        assert_eq!(counter.value(), 40_000);
    }

    #[test]
    fn a_counter_that_mirrors_a_total_never_goes_back() {
        let counter = Counter::default();
        for (total, expected) in [(5, 5), (3, 5), (9, 9)] {
            counter.raise_to(total);
            assert_eq!(counter.value(), expected);
        }
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
}
