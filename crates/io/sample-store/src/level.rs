//! Which summaries are kept beside the samples, and how do they become records?
//!
//! Three levels of buckets: 10 s, 1 min and 1 h. Buckets of 10 s and of 1 min are the samples of their interval added
//! in the order of their times, a bucket of 1 h its minutes merged in order; so a bucket can be recomputed bit by bit.

use crate::column::{
    KEPT, put_near, put_values, put_varint, put_whole, take_bytes, take_near, take_values,
    take_varint, take_whole,
};
use crate::record::Damage;
use sheaf_samples::{Bucket, Sample};

/// Length of a day in ms.
pub(crate) const DAY_MS: i64 = 86_400_000;
const HOUR_MS: i64 = 3_600_000;

/// Kind of content: samples, or buckets of one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Samples as they came.
    Raw,
    /// Buckets of 10 s.
    TenSeconds,
    /// Buckets of 1 min.
    Minute,
    /// Buckets of 1 h.
    Hour,
}

impl Kind {
    /// All kinds, the finest first.
    pub const ALL: [Self; 4] = [Self::Raw, Self::TenSeconds, Self::Minute, Self::Hour];
    /// Kinds that hold buckets, the coarsest first.
    pub(crate) const LEVELS: [Self; 3] = [Self::Hour, Self::Minute, Self::TenSeconds];

    /// Name in tables and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::TenSeconds => "10s",
            Self::Minute => "1min",
            Self::Hour => "1h",
        }
    }

    /// Length of a bucket in ms; 0 for samples.
    #[must_use]
    pub fn level_ms(self) -> i64 {
        match self {
            Self::Raw => 0,
            Self::TenSeconds => 10_000,
            Self::Minute => 60_000,
            Self::Hour => HOUR_MS,
        }
    }

    /// Time that one partition covers; retention drops whole partitions.
    pub(crate) fn partition_ms(self) -> i64 {
        match self {
            Self::Raw => DAY_MS,
            Self::TenSeconds => 4 * DAY_MS,
            Self::Minute => 12 * DAY_MS,
            Self::Hour => 240 * DAY_MS,
        }
    }

    /// Time that one record of buckets covers. A partition is a multiple of it.
    pub(crate) fn span_ms(self) -> i64 {
        match self {
            Self::Raw => DAY_MS,
            Self::TenSeconds => 6 * HOUR_MS,
            Self::Minute => HOUR_MS,
            Self::Hour => 12 * DAY_MS,
        }
    }

    /// Number of the partition that `at_ms` lies in, counted from 1970.
    pub(crate) fn partition(self, at_ms: i64) -> i64 {
        at_ms.div_euclid(self.partition_ms())
    }

    /// Start of the record that holds the bucket at `at_ms`.
    pub(crate) fn span(self, at_ms: i64) -> i64 {
        Bucket::start(at_ms, self.span_ms())
    }

    /// Most buckets of one record.
    fn buckets_max(self) -> u64 {
        (self.span_ms() / self.level_ms().max(1)).unsigned_abs()
    }
}

/// Appends the buckets of `samples`, which are sorted by time, to `out`, whose last bucket may be continued.
pub(crate) fn fold(level_ms: i64, samples: &[Sample], out: &mut Vec<Bucket>) {
    for &sample in samples.iter().filter(|sample| Bucket::takes(**sample)) {
        match out.last_mut() {
            Some(last) if is_within(sample.at_ms, last.start_ms, level_ms) => last.add(sample),
            _ => out.push(Bucket::of(Bucket::start(sample.at_ms, level_ms), sample)),
        }
    }
}

/// Returns the starts of the intervals of `level_ms` that `samples`, sorted by time, lie in.
pub(crate) fn windows(level_ms: i64, samples: &[Sample]) -> Vec<i64> {
    let mut windows: Vec<i64> = Vec::new();
    for sample in samples {
        let last = windows.last();
        if last.is_none_or(|&last| !is_within(sample.at_ms, last, level_ms)) {
            windows.push(Bucket::start(sample.at_ms, level_ms));
        }
    }
    windows
}

/// Whether a time lies in the interval at `start_ms`; without the division that finding the interval takes.
fn is_within(at_ms: i64, start_ms: i64, level_ms: i64) -> bool {
    at_ms >= start_ms && at_ms - start_ms < level_ms
}

/// Returns the buckets of `level_ms` that `finer`, sorted by start, make.
pub(crate) fn merge(level_ms: i64, finer: &[Bucket]) -> Vec<Bucket> {
    let mut out: Vec<Bucket> = Vec::new();
    for bucket in finer {
        let start_ms = Bucket::start(bucket.start_ms, level_ms);
        match out.last_mut() {
            Some(last) if last.start_ms == start_ms => last.merge(bucket),
            _ => out.push(Bucket {
                start_ms,
                at_start: bucket.at_start.filter(|_| bucket.start_ms == start_ms),
                ..*bucket
            }),
        }
    }
    out
}

/// Replaces the buckets of `old` in each window that begins at one of `windows` by those of `new`; all are sorted.
pub(crate) fn replace(old: Vec<Bucket>, windows: &[i64], new: &[Bucket]) -> Vec<Bucket> {
    let mut out = old;
    out.retain(|bucket| windows.binary_search(&bucket.start_ms).is_err());
    out.extend_from_slice(new);
    // Sorted runs: cheap, and the common case is that `new` follows `old`.
    out.sort_by_key(|bucket| bucket.start_ms);
    out
}

/// Returns the payload of a record of `buckets`, sorted, all of one span.
///
/// Payload: number of buckets; columns of starts, counts, and last times after their starts; values of sum; those of
/// min, max and last, near the mean; one bit a bucket that says whether there is a value at its start, and those
/// values, near the mean as well.
pub(crate) fn encode(buckets: &[Bucket]) -> Vec<u8> {
    let whole = |of: &dyn Fn(&Bucket) -> i64| buckets.iter().map(of).collect::<Vec<i64>>();
    let values = |of: &dyn Fn(&Bucket) -> f64| buckets.iter().map(of).collect::<Vec<f64>>();
    let mut out = Vec::with_capacity(64 + buckets.len() * 12);
    put_varint(&mut out, buckets.len() as u64);
    put_whole(&mut out, &whole(&|one| one.start_ms), KEPT);
    put_whole(&mut out, &whole(&|one| one.count.cast_signed()), KEPT);
    let after = whole(&|one| one.last.at_ms - one.start_ms);
    put_whole(&mut out, &after, KEPT);
    put_values(&mut out, &values(&|one| one.sum), KEPT);
    let means = values(&|one| mean(one.sum, one.count));
    put_near(&mut out, &values(&|one| one.min), &means, KEPT);
    put_near(&mut out, &values(&|one| one.max), &means, KEPT);
    put_near(&mut out, &values(&|one| one.last.value), &means, KEPT);
    let mut bits = vec![0_u8; buckets.len().div_ceil(8)];
    for (index, _) in at_starts(buckets) {
        bits[index / 8] |= 1 << (index % 8);
    }
    out.extend_from_slice(&bits);
    let at_start: Vec<f64> = at_starts(buckets).map(|pair| pair.1).collect();
    let means: Vec<f64> = at_starts(buckets).map(|pair| means[pair.0]).collect();
    put_near(&mut out, &at_start, &means, KEPT);
    out
}

/// Value that those of a bucket are near.
#[expect(
    clippy::cast_precision_loss,
    reason = "a count of samples, and a guess"
)]
fn mean(sum: f64, count: u64) -> f64 {
    sum / count as f64
}

fn at_starts(buckets: &[Bucket]) -> impl Iterator<Item = (usize, f64)> {
    let of = |(index, bucket): (usize, &Bucket)| bucket.at_start.map(|value| (index, value));
    buckets.iter().enumerate().filter_map(of)
}

/// Reads the buckets of a record of `kind`.
pub(crate) fn decode(kind: Kind, payload: &[u8]) -> Result<Vec<Bucket>, Damage> {
    let rest = &mut &payload[..];
    let count = take_varint(rest)?;
    if count > kind.buckets_max() {
        return Err(Damage("a record has a wrong number of buckets"));
    }
    let count = usize::try_from(count).map_err(|_| Damage("a number is too large"))?;
    let starts = take_whole(rest, count)?;
    let counts = take_whole(rest, count)?;
    let after = take_whole(rest, count)?;
    let sum = take_values(rest, count)?;
    let pairs = sum.iter().zip(&counts);
    let means: Vec<f64> = pairs
        .map(|(sum, count)| mean(*sum, count.cast_unsigned()))
        .collect();
    let min = take_near(rest, count, &means)?;
    let max = take_near(rest, count, &means)?;
    let last = take_near(rest, count, &means)?;
    let bits = take_bytes(rest, count.div_ceil(8))?;
    let is_set = |index: usize| bits[index / 8] >> (index % 8) & 1 == 1;
    let means_set = (0..count).filter(|&index| is_set(index));
    let means_set: Vec<f64> = means_set.map(|index| means[index]).collect();
    let mut at_start = take_near(rest, means_set.len(), &means_set)?.into_iter();
    let is_sorted = starts.windows(2).all(|pair| pair[0] < pair[1]);
    let is_aligned = starts
        .iter()
        .all(|start| start.rem_euclid(kind.level_ms()) == 0);
    let is_within = after
        .iter()
        .all(|after| (0..kind.level_ms()).contains(after));
    if !(is_sorted && is_aligned && is_within && rest.is_empty()) || counts.iter().any(|&n| n < 1) {
        return Err(Damage("buckets are out of order"));
    }
    let bucket = |index: usize| Bucket {
        start_ms: starts[index],
        count: counts[index].cast_unsigned(),
        sum: sum[index],
        min: min[index],
        max: max[index],
        last: Sample {
            at_ms: starts[index].saturating_add(after[index]),
            value: last[index],
        },
        at_start: is_set(index).then(|| at_start.next()).flatten(),
    };
    Ok((0..count).map(bucket).collect())
}

/// Returns whether two buckets are the same bit by bit, NaNs included.
pub(crate) fn is_same(left: &Bucket, right: &Bucket) -> bool {
    let bits = |bucket: &Bucket| {
        let values = [bucket.sum, bucket.min, bucket.max, bucket.last.value];
        (
            (bucket.start_ms, bucket.count, bucket.last.at_ms),
            values.map(canonical),
            bucket.at_start.map(canonical),
        )
    };
    bits(left) == bits(right)
}

/// NaNs that arithmetic makes may differ in their bits from run to run; any NaN is as good as another in a sum.
fn canonical(value: f64) -> u64 {
    if value.is_nan() { f64::NAN } else { value }.to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(count: i32, step_ms: i64) -> Vec<Sample> {
        let of = |index: i32| Sample {
            at_ms: 1_200_000 + i64::from(index) * step_ms,
            value: f64::from(index % 17) / 8.0,
        };
        (0..count).map(of).collect()
    }

    #[test]
    fn buckets_come_back() {
        for step_ms in [1000, 1003, 7000, 61_000] {
            let mut buckets = Vec::new();
            let samples = samples(30, step_ms);
            fold(60_000, &samples, &mut buckets);
            let read = decode(Kind::Minute, &encode(&buckets)).unwrap();
            assert_eq!(read, buckets);
        }
    }

    #[test]
    fn minutes_merge_to_hours() {
        let samples = samples(10_000, 1000);
        let (mut minutes, mut hours) = (Vec::new(), Vec::new());
        fold(60_000, &samples, &mut minutes);
        fold(HOUR_MS, &samples, &mut hours);
        assert_eq!(merge(HOUR_MS, &minutes), hours, "sums of eighths are exact");
    }

    #[test]
    fn staleness_markers_are_left_out() {
        let mut buckets = Vec::new();
        let stale = Sample {
            at_ms: 60_000,
            value: sheaf_samples::STALE,
        };
        fold(60_000, &[stale], &mut buckets);
        assert!(buckets.is_empty());
    }

    #[test]
    fn cut_records_are_damaged() {
        let mut buckets = Vec::new();
        fold(60_000, &samples(600, 1000), &mut buckets);
        let payload = encode(&buckets);
        for length in 0..payload.len() {
            assert!(
                decode(Kind::Minute, &payload[..length]).is_err(),
                "{length}"
            );
        }
    }

    #[test]
    fn windows_are_replaced() {
        let mut old = Vec::new();
        fold(60_000, &samples(240, 1000), &mut old);
        let windows = [old[1].start_ms, old[2].start_ms];
        let new = replace(old.clone(), &windows, &old[2..3]);
        assert_eq!(new, [old[0], old[2], old[3]]);
    }
}
