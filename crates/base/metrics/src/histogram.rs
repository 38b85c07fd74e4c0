//! How values are distributed, at two additions a value.

use crate::bucket::{BUCKETS, index_of};
use crate::cell::{Padded, add, slot};
use crate::snapshot::Snapshot;
use std::sync::atomic::{AtomicU64, Ordering};

/// Shards of a histogram that several threads record into. Fewer than the cells of a counter, since each is 30 KiB.
const SHARDS: usize = 4;

/// Counts values by size, with a relative error of at most 1/64 over all of `u64`.
///
/// Memory is fixed, whatever is recorded: 30 KiB by `default()`, 120 KiB for one of a [`Registry`](crate::Registry),
/// which three threads record into without meeting. Values carry no unit; the name of the metric says it.
#[derive(Debug)]
pub struct Histogram {
    /// Shards of the first threads that record, and one for all other threads.
    shards: Box<[Padded<Shard>]>,
}

#[derive(Debug)]
struct Shard {
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
    max: AtomicU64,
}

impl Default for Shard {
    fn default() -> Self {
        Self {
            buckets: (0..BUCKETS).map(|_| AtomicU64::default()).collect(),
            sum: AtomicU64::default(),
            max: AtomicU64::default(),
        }
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::with_shards(1)
    }
}

impl Histogram {
    /// Returns a histogram that several threads record into at once.
    pub(crate) fn shared() -> Self {
        Self::with_shards(SHARDS)
    }

    fn with_shards(count: usize) -> Self {
        let shards = std::iter::repeat_with(Padded::default).take(count);
        Self {
            shards: shards.collect(),
        }
    }

    /// Counts one `value`.
    #[inline]
    pub fn record(&self, value: u64) {
        let last = self.shards.len() - 1;
        let slot = slot();
        let is_owned = slot < last;
        let shard = &self.shards[slot.min(last)].0;
        add(&shard.buckets[index_of(value)], 1, is_owned);
        add(&shard.sum, value, is_owned);
        // Most values are not the largest yet: a load is several times cheaper than an exchange.
        if value > shard.max.load(Ordering::Relaxed) {
            shard.max.fetch_max(value, Ordering::Relaxed);
        }
    }

    /// Returns the counts so far.
    ///
    /// Values recorded meanwhile may be in the counts and not yet in the sum, or the other way round;
    /// once recording stops, the snapshot is exact.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let count_of = |bucket: usize| {
            let counts = self.shards.iter().map(|shard| &shard.0.buckets[bucket]);
            counts.fold(0_u64, |sum, count| {
                sum.wrapping_add(count.load(Ordering::Relaxed))
            })
        };
        let counts = (0..).zip((0..BUCKETS).map(count_of));
        let sums = self
            .shards
            .iter()
            .map(|shard| shard.0.sum.load(Ordering::Relaxed));
        let max = self
            .shards
            .iter()
            .map(|shard| shard.0.max.load(Ordering::Relaxed));
        Snapshot::new(
            counts.filter(|(_, count)| *count > 0).collect(),
            sums.fold(0, u64::wrapping_add),
            max.max().unwrap_or_default(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_when_threads_record_at_once() {
        let histogram = Histogram::shared();
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
        let histogram = Histogram::shared();
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
