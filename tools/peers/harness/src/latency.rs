//! How long messages took, in buckets that every thread may add to.

use crate::report::Latency;
use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets of equal width in each power of two: a quantile is off by 3 % at most.
const STEPS: usize = 16;
const BUCKETS: usize = 64 * STEPS;

/// Counts by duration.
#[derive(Debug)]
pub(crate) struct Histogram {
    counts: Vec<AtomicU64>,
    max_ns: AtomicU64,
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Self {
            counts: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            max_ns: AtomicU64::new(0),
        }
    }

    pub(crate) fn add(&self, ns: u64) {
        if let Some(count) = self.counts.get(bucket(ns)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.max_ns.fetch_max(ns, Ordering::Relaxed);
    }

    /// `None` if nothing was timed.
    pub(crate) fn summary(&self) -> Option<Latency> {
        let counts = self
            .counts
            .iter()
            .map(|count| count.load(Ordering::Relaxed));
        let counts: Vec<u64> = counts.collect();
        let n: u64 = counts.iter().sum();
        let quantile = |share: f64| {
            let rank = ((n as f64 * share) as u64).min(n.saturating_sub(1));
            let mut below = 0;
            let found = counts.iter().position(|count| {
                below += count;
                below > rank
            });
            middle_ns(found.unwrap_or(0)) / 1e3
        };
        (n > 0).then(|| Latency {
            p50: quantile(0.5),
            p99: quantile(0.99),
            max: self.max_ns.load(Ordering::Relaxed) as f64 / 1e3,
            n,
        })
    }
}

fn bucket(ns: u64) -> usize {
    if ns < STEPS as u64 {
        return ns as usize;
    }
    let power = ns.ilog2() as usize;
    let step = (ns >> (power - 4)) as usize - STEPS;
    (power - 3) * STEPS + step
}

fn middle_ns(bucket: usize) -> f64 {
    if bucket < STEPS {
        return bucket as f64;
    }
    let width = 2_f64.powi(i32::try_from(bucket / STEPS).unwrap_or(i32::MAX) - 1);
    ((STEPS + bucket % STEPS) as f64 + 0.5) * width
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_near_what_is_in_it() {
        for ns in [0, 1, 15, 16, 17, 31, 32, 1000, 123_456, 9_876_543_210] {
            let found = middle_ns(bucket(ns));
            assert!(
                (found - ns as f64).abs() <= ns as f64 * 0.032 + 0.5,
                "{ns}: {found}"
            );
        }
        assert!(bucket(u64::MAX) < BUCKETS);
    }

    #[test]
    fn quantiles_are_of_what_was_added() {
        let times = Histogram::new();
        assert_eq!(times.summary(), None);
        for us in 1..=100 {
            times.add(us * 1000);
        }
        let found = times.summary().unwrap();
        assert!(
            (found.p50 - 51.0).abs() < 2.0 && (found.p99 - 100.0).abs() < 4.0,
            "{found:?}"
        );
        assert_eq!((found.max, found.n), (100.0, 100));
    }
}
