//! Snapshot of a histogram: quantiles, and a form that can be sent.

use crate::bucket::{BUCKETS, index_of, range_of};
use std::fmt;

/// The counts of a [`Histogram`](crate::Histogram) at one moment.
///
/// Only buckets that hold something are kept, so an idle histogram costs a few bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Bucket and count, ascending, no count is zero.
    sparse: Vec<(u32, u64)>,
    count: u64,
    sum: u64,
    max: u64,
}

impl Snapshot {
    /// `sparse` is ascending and without zeros; `max` is brought into the highest bucket.
    pub(crate) fn new(sparse: Vec<(u32, u64)>, sum: u64, max: u64) -> Self {
        let count = sparse
            .iter()
            .fold(0_u64, |count, (_, more)| count.saturating_add(*more));
        let (lowest, highest) = sparse
            .last()
            .map_or((0, 0), |(index, _)| range_of(*index as usize));
        Self {
            sparse,
            count,
            sum,
            max: max.clamp(lowest, highest),
        }
    }

    /// Puts together what [`to_sparse`](Self::to_sparse), [`sum`](Self::sum) and
    /// [`max`](Self::max) gave on another node.
    ///
    /// # Errors
    ///
    /// If no histogram gives such a list: see [`SparseError`]. Nothing larger than `sparse` is allocated.
    pub fn from_sparse(sparse: Vec<(u32, u64)>, sum: u64, max: u64) -> Result<Self, SparseError> {
        let mut total = 0_u64;
        let mut next_bucket = 0;
        for (position, &(bucket, count)) in sparse.iter().enumerate() {
            if bucket as usize >= BUCKETS {
                return Err(SparseError::Bucket { position, bucket });
            }
            if bucket < next_bucket {
                return Err(SparseError::Order { position, bucket });
            }
            if count == 0 {
                return Err(SparseError::Empty { position });
            }
            total = total.checked_add(count).ok_or(SparseError::Overflow)?;
            next_bucket = bucket + 1;
        }
        let snapshot = Self::new(sparse, sum, max);
        if snapshot.max == max {
            Ok(snapshot)
        } else {
            Err(SparseError::Max { max })
        }
    }

    /// Bucket and count of every bucket that holds something, ascending by bucket.
    #[must_use]
    pub fn to_sparse(&self) -> Vec<(u32, u64)> {
        self.sparse.clone()
    }

    /// Returns how many values were recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the sum of all values, exact, modulo 2^64.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Returns the largest value, exact; zero if there is none.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Returns the value that the share `quantile` (0 to 1) of all values does not exceed; zero if there is none.
    ///
    /// With `n` values in ascending order this is number ⌈`quantile` · `n`⌉, at least the first
    /// (nearest rank), read to within 1/128 of it. `quantile(1.0)` is [`max`](Self::max).
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> u64 {
        let rank = (quantile.clamp(0.0, 1.0) * self.count as f64).ceil() as u64;
        let rank = rank.clamp(1, self.count.max(1));
        if rank == self.count {
            return self.max;
        }
        let mut below = 0_u64;
        for &(bucket, count) in &self.sparse {
            below = below.saturating_add(count);
            if below >= rank {
                let (lowest, highest) = range_of(bucket as usize);
                return (lowest + (highest - lowest) / 2).min(self.max);
            }
        }
        self.max
    }

    /// Returns the lower end of the lowest bucket that holds something; zero if none does.
    pub(crate) fn min(&self) -> u64 {
        let first = self.sparse.first();
        first.map_or(0, |(bucket, _)| range_of(*bucket as usize).0)
    }

    /// Returns the values counted since `earlier`, a snapshot of the same histogram. Their largest is exact if no
    /// larger one came before, else the upper end of its bucket.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let mut before = earlier.sparse.iter().peekable();
        let mut left = |bucket: u32| {
            while before.next_if(|entry| entry.0 < bucket).is_some() {}
            before
                .next_if(|entry| entry.0 == bucket)
                .map_or(0, |entry| entry.1)
        };
        let counts = self.sparse.iter();
        let counts = counts.map(|&(bucket, count)| (bucket, count.saturating_sub(left(bucket))));
        Self::new(
            counts.filter(|entry| entry.1 > 0).collect(),
            self.sum.wrapping_sub(earlier.sum),
            self.max,
        )
    }

    /// Returns how many values are at most `2^power - 1`. Exact, because buckets end at powers of two.
    pub(crate) fn count_below_power_of_two(&self, power: u32) -> u64 {
        let end = index_of(1 << power);
        let counts = self
            .sparse
            .iter()
            .take_while(|(bucket, _)| (*bucket as usize) < end);
        counts.fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }
}

/// Why a list of counts is not a histogram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SparseError {
    /// A bucket that does not exist: another version of Sheaf wrote it.
    Bucket {
        /// Position in the list.
        position: usize,
        /// The bucket found.
        bucket: u32,
    },
    /// A bucket that is not above the one before it.
    Order {
        /// Position in the list.
        position: usize,
        /// The bucket found.
        bucket: u32,
    },
    /// A bucket with a count of zero.
    Empty {
        /// Position in the list.
        position: usize,
    },
    /// The counts add up to more than 2^64 - 1.
    Overflow,
    /// The largest value does not lie in the highest bucket.
    Max {
        /// The value found.
        max: u64,
    },
}

impl fmt::Display for SparseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bucket { position, bucket } => {
                write!(
                    f,
                    "entry {position} names bucket {bucket}, expected one below {BUCKETS}"
                )
            }
            Self::Order { position, bucket } => {
                write!(
                    f,
                    "entry {position} names bucket {bucket}, expected ascending buckets"
                )
            }
            Self::Empty { position } => {
                write!(
                    f,
                    "entry {position} counts 0 values, expected only buckets that hold some"
                )
            }
            Self::Overflow => write!(f, "counts add up to more than {}", u64::MAX),
            Self::Max { max } => {
                write!(
                    f,
                    "largest value is {max}, expected one that lies in the highest bucket"
                )
            }
        }
    }
}

impl std::error::Error for SparseError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Histogram;
    use proptest::prelude::*;

    fn of(values: &[u64]) -> Snapshot {
        let histogram = Histogram::default();
        values.iter().for_each(|value| histogram.record(*value));
        histogram.snapshot()
    }

    /// Values of every magnitude, so that all octaves are met.
    fn values() -> impl Strategy<Value = Vec<u64>> {
        let value = (any::<u64>(), 0_u32..64).prop_map(|(value, shift)| value >> shift);
        prop::collection::vec(value, 0..200)
    }

    proptest! {
        #[test]
        fn values_since_an_earlier_snapshot_are_those_recorded_meanwhile(
            before in values(), later in values()
        ) {
            let all: Vec<u64> = before.iter().chain(&later).copied().collect();
            let found = of(&all).since(&of(&before));
            let expected = of(&later);
            prop_assert_eq!(found.to_sparse(), expected.to_sparse());
            prop_assert_eq!((found.count(), found.sum()), (expected.count(), expected.sum()));
            prop_assert!(found.max() >= expected.max());
            prop_assert!(found.max() - expected.max() <= expected.max() / 64);
            let min = later.iter().min().copied().unwrap_or_default();
            prop_assert!(found.min() <= min && min - found.min() <= min / 64);
        }

        #[test]
        fn a_quantile_is_within_a_128th_of_the_value_in_a_sorted_list(
            mut values in values(), quantile in 0.0..=1.0_f64
        ) {
            let snapshot = of(&values);
            values.sort_unstable();
            let rank = ((quantile * values.len() as f64).ceil() as usize).max(1);
            let exact = values.get(rank - 1).copied().unwrap_or(0);
            let read = snapshot.quantile(quantile);
            prop_assert!(read.abs_diff(exact) <= exact / 128, "read {read}, exact {exact}");
            prop_assert_eq!(snapshot.quantile(1.0), values.last().copied().unwrap_or(0));
            prop_assert_eq!(snapshot.count(), values.len() as u64);
        }

        #[test]
        fn what_travels_arrives_unchanged(values in values()) {
            let here = of(&values);
            let there = Snapshot::from_sparse(here.to_sparse(), here.sum(), here.max());
            prop_assert_eq!(there, Ok(here));
        }

        #[test]
        fn no_list_from_outside_panics(
            sparse in prop::collection::vec((0_u32..4000, 0_u64..3), 0..8), sum: u64, max: u64
        ) {
            if let Ok(snapshot) = Snapshot::from_sparse(sparse, sum, max) {
                prop_assert!(snapshot.quantile(0.5) <= snapshot.max());
            }
        }

        #[test]
        fn counts_below_a_power_of_two_are_exact(values in values(), power in 0_u32..64) {
            let below = values.iter().filter(|value| **value < 1 << power).count();
            prop_assert_eq!(of(&values).count_below_power_of_two(power), below as u64);
        }
    }

    #[test]
    fn an_empty_histogram_answers_zero() {
        let empty = Snapshot::default();
        assert_eq!(
            (empty.count(), empty.max(), empty.quantile(0.99)),
            (0, 0, 0)
        );
        assert_eq!(empty, of(&[]));
    }

    #[test]
    fn a_list_that_no_histogram_gives_is_refused_with_its_reason() {
        let check = |sparse: &[(u32, u64)], max, expected: &str| {
            let error = Snapshot::from_sparse(sparse.to_vec(), 0, max).unwrap_err();
            assert_eq!(error.to_string(), expected);
        };
        check(
            &[(3776, 1)],
            0,
            "entry 0 names bucket 3776, expected one below 3776",
        );
        check(
            &[(4, 1), (4, 1)],
            4,
            "entry 1 names bucket 4, expected ascending buckets",
        );
        check(
            &[(4, 0)],
            4,
            "entry 0 counts 0 values, expected only buckets that hold some",
        );
        check(
            &[(4, u64::MAX), (5, 1)],
            5,
            "counts add up to more than 18446744073709551615",
        );
        check(
            &[(4, 1)],
            9,
            "largest value is 9, expected one that lies in the highest bucket",
        );
        check(
            &[],
            9,
            "largest value is 9, expected one that lies in the highest bucket",
        );
    }
}
