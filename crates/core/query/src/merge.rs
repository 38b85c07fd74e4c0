//! Answers of several stores as one: series that more than one of them has become one series.

use crate::source::{Data, Series};
use rustc_hash::FxHashMap;
use sheaf_samples::{Bucket, Labels, Sample};
use std::sync::Arc;

/// Joins the series of several stores; `answers` stand in the order of trust.
///
/// Of two samples at one time the one of the earlier answer counts. Buckets of one interval are added up, as each store
/// has other samples of it; where a sample was stored twice, they count it twice. Levels that differ become the coarser
/// one, and samples beside buckets become buckets.
#[must_use]
pub fn merge(answers: Vec<Vec<Series>>) -> Vec<Series> {
    let mut merged: Vec<Series> = Vec::new();
    let mut places: FxHashMap<Arc<Labels>, usize> = FxHashMap::default();
    for series in answers.into_iter().flatten() {
        if let Some(at) = places.get(&series.labels) {
            let known = &mut merged[*at].data;
            let before = std::mem::replace(known, Data::Samples(Vec::new()));
            *known = join(before, series.data);
        } else {
            places.insert(series.labels.clone(), merged.len());
            merged.push(series);
        }
    }
    merged
}

fn join(one: Data, other: Data) -> Data {
    match (one, other) {
        (Data::Samples(one), Data::Samples(other)) => Data::Samples(join_samples(one, other)),
        (one, other) => {
            let level_ms = level_ms(&one).max(level_ms(&other));
            let buckets = join_buckets(buckets_of(one, level_ms), buckets_of(other, level_ms));
            Data::Buckets { level_ms, buckets }
        }
    }
}

/// Length of the buckets; 0 for samples.
fn level_ms(data: &Data) -> i64 {
    match data {
        Data::Samples(_) => 0,
        Data::Buckets { level_ms, .. } => *level_ms,
    }
}

fn join_samples(one: Vec<Sample>, other: Vec<Sample>) -> Vec<Sample> {
    if one.is_empty() {
        return other;
    }
    let mut joined = Vec::with_capacity(one.len() + other.len());
    let mut other = other.into_iter().peekable();
    for sample in one {
        while let Some(earlier) = other.next_if(|next| next.at_ms < sample.at_ms) {
            joined.push(earlier);
        }
        other.next_if(|next| next.at_ms == sample.at_ms);
        joined.push(sample);
    }
    joined.extend(other);
    joined
}

/// Buckets of `level_ms`, a multiple of the length of those in `data`.
fn buckets_of(data: Data, level_ms: i64) -> Vec<Bucket> {
    let mut buckets: Vec<Bucket> = Vec::new();
    let mut add = |part: Bucket| match buckets.last_mut() {
        Some(last) if last.start_ms == part.start_ms => last.merge(&part),
        _ => buckets.push(part),
    };
    match data {
        Data::Samples(samples) => {
            for sample in samples.into_iter().filter(|one| Bucket::takes(*one)) {
                add(Bucket::of(Bucket::start(sample.at_ms, level_ms), sample));
            }
        }
        Data::Buckets {
            level_ms: same,
            buckets,
        } if same == level_ms => return buckets,
        Data::Buckets { buckets, .. } => {
            for bucket in buckets {
                let start_ms = Bucket::start(bucket.start_ms, level_ms);
                let is_first = start_ms == bucket.start_ms;
                add(Bucket {
                    start_ms,
                    at_start: bucket.at_start.filter(|_| is_first),
                    ..bucket
                });
            }
        }
    }
    buckets
}

fn join_buckets(one: Vec<Bucket>, other: Vec<Bucket>) -> Vec<Bucket> {
    let mut joined: Vec<Bucket> = Vec::with_capacity(one.len().max(other.len()));
    let mut other = other.into_iter().peekable();
    for mut bucket in one {
        while let Some(earlier) = other.next_if(|next| next.start_ms < bucket.start_ms) {
            joined.push(earlier);
        }
        if let Some(same) = other.next_if(|next| next.start_ms == bucket.start_ms) {
            bucket.merge(&same);
        }
        joined.push(bucket);
    }
    joined.extend(other);
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sheaf_samples::STALE;

    fn series(host: &str, data: Data) -> Series {
        Series {
            labels: Arc::new(Labels::new([("host", host)]).unwrap()),
            data,
        }
    }

    fn samples(samples: &[(i64, f64)]) -> Vec<Sample> {
        let sample = |(at_ms, value): &(i64, f64)| Sample {
            at_ms: *at_ms,
            value: *value,
        };
        samples.iter().map(sample).collect()
    }

    #[test]
    fn a_series_of_two_stores_is_one_and_the_first_counts_at_equal_times() {
        let a = Data::Samples(samples(&[(1, 1.0), (3, 3.0), (9, 9.0)]));
        let b = Data::Samples(samples(&[(0, 0.5), (3, -3.0), (4, 4.0), (10, 10.0)]));
        let only = Data::Samples(samples(&[(7, 7.0)]));
        let merged = merge(vec![
            vec![series("x", a)],
            vec![series("y", only), series("x", b)],
        ]);
        let text = |data: &Data| match data {
            Data::Samples(samples) => samples.iter().map(|one| (one.at_ms, one.value)).collect(),
            Data::Buckets { .. } => Vec::new(),
        };
        assert_eq!(merged.len(), 2);
        let expected = [(0, 0.5), (1, 1.0), (3, 3.0), (4, 4.0), (9, 9.0), (10, 10.0)];
        assert_eq!(text(&merged[0].data), expected);
        assert_eq!(text(&merged[1].data), [(7, 7.0)]);
    }

    #[test]
    fn samples_beside_buckets_become_buckets_and_markers_of_staleness_end_nothing() {
        let own = buckets_of(Data::Samples(samples(&[(0, 2.0), (5, 4.0)])), 10);
        let a = Data::Buckets {
            level_ms: 10,
            buckets: own,
        };
        let b = Data::Samples(samples(&[(7, 1.0), (8, STALE), (10, 3.0)]));
        let merged = merge(vec![vec![series("x", a)], vec![series("x", b)]]);
        let Data::Buckets { level_ms, buckets } = &merged[0].data else {
            panic!("{merged:?}")
        };
        let seen: Vec<_> = buckets
            .iter()
            .map(|one| (one.start_ms, one.count, one.sum, one.at_start))
            .collect();
        assert_eq!(*level_ms, 10);
        assert_eq!(seen, [(0, 3, 7.0, Some(2.0)), (10, 1, 3.0, Some(3.0))]);
    }

    proptest! {
        /// Whatever store has which sample at whatever level: the buckets are those of all samples together.
        #[test]
        fn buckets_of_parts_are_those_of_the_whole(
            parts in proptest::collection::btree_map(-500_i64..500, (0_usize..3, -8..8_i32), 0..60),
            levels in proptest::array::uniform3(prop_oneof![Just(0_i64), Just(10), Just(60)]),
        ) {
            let part = |number: usize| {
                let own = parts.iter().filter(|(_, (of, _))| *of == number);
                let own: Vec<_> = own.map(|(at, (_, value))| (*at, f64::from(*value))).collect();
                let own = Data::Samples(samples(&own));
                let data = match levels[number] {
                    0 => own,
                    level_ms => Data::Buckets { level_ms, buckets: buckets_of(own, level_ms) },
                };
                vec![series("x", data)]
            };
            let all: Vec<_> = parts.iter().map(|(at, (_, value))| (*at, f64::from(*value))).collect();
            let merged = merge((0..3).map(part).collect());
            let all = Data::Samples(samples(&all));
            let level_ms = levels.iter().copied().max().unwrap();
            let expected = match level_ms {
                0 => all,
                level_ms => Data::Buckets { level_ms, buckets: buckets_of(all, level_ms) },
            };
            prop_assert_eq!(format!("{:?}", merged[0].data), format!("{expected:?}"));
        }
    }
}
