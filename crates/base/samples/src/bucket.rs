//! Intervals of a series summed up.

use crate::{Sample, is_stale};

/// Summary of the samples of one series from `start_ms` (included) to the start of the next bucket (excluded).
///
/// A bucket keeps averages, peaks and the last value at once, so a coarse level answers for all of them.
/// `at_start` makes windows that include both of their ends exact: such a window is the buckets between its ends, and
/// the value that lies precisely at its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// Begin of the interval, a multiple of the length of the level, in ms since 1970-01-01 UTC.
    pub start_ms: i64,
    /// Samples in the interval; at least 1 in a bucket that exists.
    pub count: u64,
    /// Sum of their values.
    pub sum: f64,
    /// Smallest value; NaN only if all are NaN.
    pub min: f64,
    /// Largest value; NaN only if all are NaN.
    pub max: f64,
    /// Latest sample.
    pub last: Sample,
    /// Value of the sample at `start_ms` itself, if there is one.
    pub at_start: Option<f64>,
}

impl Bucket {
    /// Returns the bucket that starts at `start_ms` and holds `sample` alone.
    #[must_use]
    pub fn of(start_ms: i64, sample: Sample) -> Self {
        Self {
            start_ms,
            count: 1,
            sum: sample.value,
            min: sample.value,
            max: sample.value,
            last: sample,
            at_start: (sample.at_ms == start_ms).then_some(sample.value),
        }
    }

    /// Adds `sample`, which lies in the interval. Order does not matter, but for equal times: the latest added is the
    /// last.
    pub fn add(&mut self, sample: Sample) {
        self.count += 1;
        self.sum += sample.value;
        // `f64::min` and `max` pass over a NaN.
        self.min = self.min.min(sample.value);
        self.max = self.max.max(sample.value);
        if sample.at_ms >= self.last.at_ms {
            self.last = sample;
        }
        if sample.at_ms == self.start_ms {
            self.at_start = Some(sample.value);
        }
    }

    /// Adds the samples of `other`, a part of the same interval.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum += other.sum;
        // As in `add`.
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        if other.last.at_ms >= self.last.at_ms {
            self.last = other.last;
        }
        if other.start_ms == self.start_ms && other.at_start.is_some() {
            self.at_start = other.at_start;
        }
    }

    /// Start of the interval of `level_ms` that `at_ms` lies in.
    ///
    /// # Panics
    ///
    /// If `level_ms` is not positive.
    #[must_use]
    pub fn start(at_ms: i64, level_ms: i64) -> i64 {
        assert!(level_ms > 0, "a level has a length");
        at_ms - at_ms.rem_euclid(level_ms)
    }

    /// Returns whether the bucket can hold `sample`: markers of staleness end a series and are no values.
    #[must_use]
    pub fn takes(sample: Sample) -> bool {
        !is_stale(sample.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_ms: i64, value: f64) -> Sample {
        Sample { at_ms, value }
    }

    #[test]
    fn a_bucket_keeps_peaks_sum_and_last() {
        let mut bucket = Bucket::of(10_000, sample(10_000, 2.0));
        bucket.add(sample(14_000, -1.0));
        bucket.add(sample(12_000, 5.0));
        assert_eq!((bucket.count, bucket.sum), (3, 6.0));
        assert_eq!((bucket.min, bucket.max), (-1.0, 5.0));
        assert_eq!(bucket.last, sample(14_000, -1.0));
        assert_eq!(bucket.at_start, Some(2.0));
    }

    #[test]
    fn parts_merge_to_the_whole() {
        let mut left = Bucket::of(0, sample(1, 1.0));
        let mut right = Bucket::of(0, sample(0, 4.0));
        right.add(sample(9, 2.0));
        left.merge(&right);
        assert_eq!((left.count, left.sum, left.last.at_ms), (3, 7.0, 9));
        assert_eq!(left.at_start, Some(4.0));
    }

    #[test]
    fn nan_is_passed_over_by_peaks() {
        let mut bucket = Bucket::of(0, sample(0, f64::NAN));
        bucket.add(sample(1, 3.0));
        assert_eq!((bucket.min, bucket.max), (3.0, 3.0));
        assert!(bucket.sum.is_nan());
    }

    #[test]
    fn starts_are_multiples_before_1970_as_well() {
        assert_eq!(Bucket::start(25_999, 10_000), 20_000);
        assert_eq!(Bucket::start(-1, 10_000), -10_000);
        assert_eq!(Bucket::start(20_000, 10_000), 20_000);
    }
}
