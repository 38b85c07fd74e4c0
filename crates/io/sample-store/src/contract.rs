//! The contract of every store, as a suite: one test of an implementation calls [`check`].

use crate::store::{Appended, SeriesId, Store, StoreError};
use sheaf_query::{Data, Selection};
use sheaf_samples::{Bucket, Labels, Matcher, Matches, STALE, Sample};

/// Some time of day, a multiple of an hour.
const BEGIN_MS: i64 = 1_790_000_000_000 - 1_790_000_000_000 % 3_600_000;
/// How much older than the newest of its series a sample may be with the default settings.
const LATE_MS: i64 = 3_600_000;

/// Checks the contract of [`Store`] on empty stores with default settings, apart from `series_max` of 100.
///
/// # Panics
///
/// If a store breaks the contract; the message says how.
pub fn check(mut make: impl FnMut() -> Box<dyn Store>) {
    series_keep_their_numbers(&*make());
    the_last_value_of_a_time_stays(&*make());
    order_does_not_matter_within_the_bound(&*make());
    refused_samples_are_counted(&*make());
    upkeep_changes_no_answer(&*make());
    labels_are_found(&*make());
}

fn labels(number: u32) -> Labels {
    let pairs = [("__name__", "up".to_owned()), ("host", number.to_string())];
    Labels::new(pairs).expect("two short labels")
}

fn intern(store: &dyn Store, number: u32) -> SeriesId {
    store.intern(&labels(number)).expect("fewer than the bound")
}

fn sample(at_ms: i64, value: f64) -> Sample {
    Sample { at_ms, value }
}

fn matcher(number: u32) -> Matcher {
    Matcher::new("host", Matches::Equal, number.to_string()).expect("no expression")
}

/// Samples of one series from `from_ms` to `to_ms`, as bits.
fn read(store: &dyn Store, number: u32, from_ms: i64, to_ms: i64) -> Vec<(i64, u64)> {
    let matchers = [matcher(number)];
    let selection = Selection {
        matchers: &matchers,
        from_ms,
        to_ms,
        bucket_ms: None,
    };
    let mut series = store.select(&selection).expect("the store answers");
    assert!(series.len() <= 1, "one series has these labels");
    match series.pop().map(|series| series.data) {
        Some(Data::Samples(samples)) => samples
            .iter()
            .map(|one| (one.at_ms, one.value.to_bits()))
            .collect(),
        Some(Data::Buckets { .. }) => panic!("buckets for a selection that asks for samples"),
        None => Vec::new(),
    }
}

fn bits(samples: &[Sample]) -> Vec<(i64, u64)> {
    samples
        .iter()
        .map(|one| (one.at_ms, one.value.to_bits()))
        .collect()
}

fn append(store: &dyn Store, batch: &[(SeriesId, Sample)]) -> Appended {
    store.append(batch).expect("the store has room")
}

fn series_keep_their_numbers(store: &dyn Store) {
    let ids: Vec<SeriesId> = (0..100).map(|number| intern(store, number)).collect();
    for (number, &id) in (0..100).zip(&ids) {
        assert_eq!(intern(store, number), id, "number of series {number}");
    }
    let refused = store.intern(&labels(100));
    assert!(matches!(
        refused,
        Err(StoreError::TooManySeries { limit: 100 })
    ));
    assert_eq!(store.stats().series, 100);
}

fn the_last_value_of_a_time_stays(store: &dyn Store) {
    let id = intern(store, 1);
    append(
        store,
        &[(id, sample(BEGIN_MS, 1.0)), (id, sample(BEGIN_MS, 2.0))],
    );
    append(store, &[(id, sample(BEGIN_MS + 5, STALE))]);
    append(store, &[(id, sample(BEGIN_MS, 3.0))]);
    store.commit().expect("the store has room");
    let expected = [sample(BEGIN_MS, 3.0), sample(BEGIN_MS + 5, STALE)];
    assert_eq!(read(store, 1, BEGIN_MS, BEGIN_MS + 5), bits(&expected));
    assert_eq!(read(store, 1, BEGIN_MS + 1, BEGIN_MS + 4), []);
}

fn order_does_not_matter_within_the_bound(store: &dyn Store) {
    let id = intern(store, 1);
    let times = [0, LATE_MS, 7, LATE_MS - 1, 3, 5];
    let batch = times.map(|at| (id, sample(BEGIN_MS + at, 1.0)));
    assert_eq!(append(store, &batch).accepted, 6);
    let mut expected = batch.map(|pair| pair.1);
    expected.sort_by_key(|one| one.at_ms);
    assert_eq!(read(store, 1, i64::MIN, i64::MAX), bits(&expected));
}

fn refused_samples_are_counted(store: &dyn Store) {
    let id = intern(store, 1);
    store.maintain(BEGIN_MS).expect("nothing to do");
    let batch = [
        (id, sample(BEGIN_MS, 1.0)),
        (id, sample(BEGIN_MS - LATE_MS - 1, 1.0)),
        (id, sample(BEGIN_MS + 600_001, 1.0)),
        (SeriesId(77), sample(BEGIN_MS, 1.0)),
    ];
    let found = append(store, &batch);
    let expected = Appended {
        accepted: 1,
        late: 1,
        expired: 0,
        future: 1,
        unknown: 1,
    };
    assert_eq!(found, expected);
    assert_eq!(store.stats().appended, expected);
    let other = intern(store, 2);
    let expired = append(store, &[(other, sample(BEGIN_MS - 8 * 86_400_000, 1.0))]);
    assert_eq!(expired.expired, 1);
    assert_eq!(read(store, 1, i64::MIN, i64::MAX).len(), 1);
}

fn upkeep_changes_no_answer(store: &dyn Store) {
    let ids: Vec<SeriesId> = (0..3).map(|number| intern(store, number)).collect();
    let mut expected = Vec::new();
    for second in 0..7200 {
        let at_ms = BEGIN_MS + second * 1000;
        let value = f64::from(i32::try_from(second % 101).expect("below 101")) / 4.0;
        let batch: Vec<_> = ids.iter().map(|&id| (id, sample(at_ms, value))).collect();
        assert_eq!(append(store, &batch).accepted, 3);
        expected.push(sample(at_ms, value));
        if second % 60 == 0 {
            store.commit().expect("the store has room");
            store.maintain(at_ms).expect("the store has room");
        }
    }
    assert_eq!(read(store, 1, i64::MIN, i64::MAX), bits(&expected));
    for bucket_ms in [10_000, 60_000, 3_600_000] {
        buckets_are_exact(store, bucket_ms, &expected);
    }
}

fn buckets_are_exact(store: &dyn Store, bucket_ms: i64, samples: &[Sample]) {
    let matchers = [matcher(2)];
    let (from_ms, to_ms) = (BEGIN_MS, BEGIN_MS + 3_600_000);
    let selection = Selection {
        matchers: &matchers,
        from_ms,
        to_ms,
        bucket_ms: Some(bucket_ms),
    };
    let series = store.select(&selection).expect("the store answers");
    match &series[0].data {
        Data::Samples(found) => {
            let within = |one: &&Sample| (from_ms..=to_ms).contains(&one.at_ms);
            let expected: Vec<Sample> = samples.iter().filter(within).copied().collect();
            assert_eq!(bits(found), bits(&expected));
        }
        Data::Buckets { level_ms, buckets } => {
            assert_eq!(bucket_ms % level_ms, 0, "level {level_ms}");
            let mut expected: Vec<Bucket> = Vec::new();
            for &one in samples {
                let start_ms = Bucket::start(one.at_ms, *level_ms);
                match expected.last_mut() {
                    Some(last) if last.start_ms == start_ms => last.add(one),
                    _ => expected.push(Bucket::of(start_ms, one)),
                }
            }
            expected.retain(|one| (from_ms..=to_ms).contains(&one.start_ms));
            // Quarters add without rounding, so any order of additions gives the same.
            assert_eq!(*buckets, expected, "level {level_ms}");
        }
    }
}

fn labels_are_found(store: &dyn Store) {
    for number in 0..5 {
        let id = intern(store, number);
        append(store, &[(id, sample(BEGIN_MS + i64::from(number), 1.0))]);
    }
    let last = BEGIN_MS + 2;
    let names = store.label_names(&[], BEGIN_MS, last).expect("an answer");
    assert_eq!(names, ["__name__", "host"]);
    let values = store.label_values("host", &[], BEGIN_MS + 1, last);
    assert_eq!(values.expect("an answer"), ["1", "2"]);
    let found = store
        .series(&[matcher(2)], BEGIN_MS, last)
        .expect("an answer");
    assert_eq!(*found[0], labels(2));
    let none = store.series(&[matcher(3)], BEGIN_MS, last);
    assert!(none.expect("an answer").is_empty());
}
