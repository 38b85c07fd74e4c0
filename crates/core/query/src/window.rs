//! Samples of one series that a function over time looks at.

use sheaf_samples::{Bucket, Sample};

/// Samples of one series in the closed window `[from_ms, to_ms]`, at least one, staleness markers left out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window<'a> {
    pub(crate) samples: &'a [Sample],
    pub(crate) from_ms: i64,
    pub(crate) to_ms: i64,
    /// Time of the step; differs from `to_ms` by `offset` and `@`.
    pub(crate) at_ms: i64,
    /// Arguments of the function other than the window, in their order.
    pub(crate) scalars: &'a [f64],
}

impl Window<'_> {
    pub(crate) fn values(&self) -> impl Iterator<Item = f64> {
        self.samples.iter().map(|sample| sample.value)
    }

    pub(crate) fn first(&self) -> Sample {
        self.samples[0]
    }

    pub(crate) fn last(&self) -> Sample {
        self.samples[self.samples.len() - 1]
    }
}

/// Buckets of one window put together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Summary {
    pub(crate) count: u64,
    sum: Kahan,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) last: f64,
}

impl Summary {
    /// Returns what is known of the window from the buckets that lie in it and the value at its very end.
    pub(crate) fn of(buckets: &[Bucket], at_end: Option<f64>) -> Option<Self> {
        let mut summary = Self {
            count: 0,
            sum: Kahan::default(),
            min: f64::NAN,
            max: f64::NAN,
            last: f64::NAN,
        };
        for bucket in buckets {
            summary.count += bucket.count;
            summary.sum.add(bucket.sum);
            // `min` and `max` pass over a NaN.
            summary.min = summary.min.min(bucket.min);
            summary.max = summary.max.max(bucket.max);
            summary.last = bucket.last.value;
        }
        if let Some(value) = at_end {
            summary.count += 1;
            summary.sum.add(value);
            summary.min = summary.min.min(value);
            summary.max = summary.max.max(value);
            summary.last = value;
        }
        (summary.count > 0).then_some(summary)
    }

    pub(crate) fn sum(&self) -> f64 {
        self.sum.value()
    }
}

/// A sum that keeps what rounding loses (Kahan's summation with Neumaier's improvement).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kahan {
    pub(crate) sum: f64,
    pub(crate) lost: f64,
}

impl Kahan {
    pub(crate) fn add(&mut self, value: f64) {
        let total = self.sum + value;
        self.lost += if self.sum.abs() >= value.abs() {
            (self.sum - total) + value
        } else {
            (value - total) + self.sum
        };
        self.sum = total;
    }

    pub(crate) fn value(&self) -> f64 {
        if self.sum.is_infinite() {
            self.sum
        } else {
            self.sum + self.lost
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_values_survive_large_ones() {
        let mut sum = Kahan::default();
        for value in [1.0, 1e100, 1.0, -1e100] {
            sum.add(value);
        }
        assert_eq!(sum.value(), 2.0);
    }

    #[test]
    fn a_closed_window_takes_the_value_at_its_end() {
        let bucket = Bucket::of(
            0,
            Sample {
                at_ms: 5,
                value: 4.0,
            },
        );
        let summary = Summary::of(&[bucket], Some(2.0)).unwrap();
        assert_eq!((summary.count, summary.sum()), (2, 6.0));
        assert_eq!((summary.min, summary.max, summary.last), (2.0, 4.0, 2.0));
        assert!(Summary::of(&[], None).is_none());
    }
}
