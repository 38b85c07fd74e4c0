//! How values are distributed, at two atomic additions a value.

use crate::bucket::{BUCKETS, index_of};
use crate::snapshot::Snapshot;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts values by size, with a relative error of at most 1/64 over all of `u64`.
///
/// Memory is fixed: 30 KiB, whatever is recorded. Values carry no unit; the name of the metric says it.
#[derive(Debug)]
pub struct Histogram {
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
    max: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: (0..BUCKETS).map(|_| AtomicU64::default()).collect(),
            sum: AtomicU64::default(),
            max: AtomicU64::default(),
        }
    }
}

impl Histogram {
    /// Counts one `value`.
    #[inline]
    pub fn record(&self, value: u64) {
        self.buckets[index_of(value)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
        // Most values are not the largest yet: a load is several times cheaper than an exchange.
        if value > self.max.load(Ordering::Relaxed) {
            self.max.fetch_max(value, Ordering::Relaxed);
        }
    }

    /// Returns the counts so far.
    ///
    /// Values recorded meanwhile may be in the counts and not yet in the sum, or the other way round;
    /// once recording stops, the snapshot is exact.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let counts = self
            .buckets
            .iter()
            .map(|bucket| bucket.load(Ordering::Relaxed));
        let sparse = (0..).zip(counts).filter(|(_, count)| *count > 0).collect();
        Snapshot::new(
            sparse,
            self.sum.load(Ordering::Relaxed),
            self.max.load(Ordering::Relaxed),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_when_threads_record_at_once() {
        let histogram = Histogram::default();
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let histogram = &histogram;
                scope.spawn(move || (0..10_000).for_each(|i| histogram.record(4 * i + thread)));
            }
        });
        let snapshot = histogram.snapshot();
        assert_eq!(snapshot.count(), 40_000);
        assert_eq!(snapshot.sum(), (0..40_000).sum());
        assert_eq!(snapshot.max(), 39_999);
    }

    #[test]
    fn a_snapshot_taken_while_others_record_can_always_travel() {
        let histogram = Histogram::default();
        let last = 100_000_u64;
        std::thread::scope(|scope| {
            scope.spawn(|| (1..=last).for_each(|value| histogram.record(value)));
            loop {
                let seen = histogram.snapshot();
                let there = Snapshot::from_sparse(seen.to_sparse(), seen.sum(), seen.max());
                assert_eq!(there.as_ref(), Ok(&seen));
                if seen.count() == last {
                    break;
                }
            }
        });
    }
}
