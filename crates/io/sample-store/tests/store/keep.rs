//! Tests of retention, checks, copies and exports.

use super::{BEGIN_MS, buckets, intern, open, samples};
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::RowAccessor as _;
use sheaf_query::Source as _;
use sheaf_sample_store::{Config, Disk, SeriesId, Store as _};
use sheaf_samples::Sample;

const DAY_MS: i64 = 86_400_000;
const STEP_MS: i64 = 150_000;

fn value(at_ms: i64) -> f64 {
    f64::from(i32::try_from(at_ms / STEP_MS % 1000).unwrap()) / 4.0
}

/// Appends a sample of each series every 150 s in the given days, with upkeep every hour.
fn live(store: &Disk, ids: &[SeriesId], days: std::ops::Range<i64>) {
    let mut at_ms = BEGIN_MS + days.start * DAY_MS;
    while at_ms < BEGIN_MS + days.end * DAY_MS {
        let sample = Sample {
            at_ms,
            value: value(at_ms),
        };
        let batch: Vec<_> = ids.iter().map(|&id| (id, sample)).collect();
        assert_eq!(store.append(&batch).unwrap().accepted, ids.len() as u64);
        if at_ms % 3_600_000 == 0 {
            store.commit().unwrap();
            store.maintain(at_ms).unwrap();
        }
        at_ms += STEP_MS;
    }
}

/// Upkeep comes once an hour here.
fn config() -> Config {
    Config {
        future_ms: 2 * 3_600_000,
        ..super::config()
    }
}

fn short() -> Config {
    Config {
        raw_ms: 2 * DAY_MS,
        ten_seconds_ms: 4 * DAY_MS,
        minute_ms: 20 * DAY_MS,
        hour_ms: 400 * DAY_MS,
        ..config()
    }
}

#[test]
fn each_level_is_kept_for_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &short());
    let ids = [intern(&store, 0), intern(&store, 1)];
    live(&store, &ids, 0..50);
    let now_ms = BEGIN_MS + 50 * DAY_MS;
    // All of the samples for two days, and no partition more than needed.
    let found = samples(&store, 0, now_ms - 2 * DAY_MS, now_ms);
    assert_eq!(found.len(), usize::try_from(2 * DAY_MS / STEP_MS).unwrap());
    assert!(found.iter().all(|one| one.value == value(one.at_ms)));
    // Buckets of 10 s hold a sample each here, so their last values are the samples; of a minute too.
    let from_ms = now_ms - 20 * DAY_MS;
    let found = samples(&store, 0, from_ms, now_ms);
    assert_eq!(found.len(), usize::try_from(20 * DAY_MS / STEP_MS).unwrap());
    assert!(found.iter().all(|one| one.value == value(one.at_ms)));
    // Beyond that there are hours: their last values, and the buckets.
    let begin = samples(&store, 0, BEGIN_MS, BEGIN_MS + DAY_MS - 1);
    assert_eq!(begin.len(), 24);
    let hours = buckets(&store, 1, BEGIN_MS, now_ms, 3_600_000);
    assert_eq!(hours.len(), 50 * 24);
    let hour = |index: usize| BEGIN_MS + i64::try_from(index).unwrap() * 3_600_000;
    for (index, bucket) in hours.iter().enumerate() {
        let times = (0..24).map(|step| hour(index) + step * STEP_MS);
        let sum: f64 = times.map(value).sum();
        assert_eq!((bucket.count, bucket.sum), (24, sum), "hour {index}");
        assert_eq!(bucket.at_start, Some(value(hour(index))));
    }
    let minutes = buckets(&store, 1, from_ms, now_ms, 60_000);
    assert_eq!(
        minutes.len(),
        usize::try_from(20 * DAY_MS / STEP_MS).unwrap()
    );
    let report = store.fsck(false).unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert!(report.buckets_compared > 1000);
    // All of it is on disk.
    store.commit().unwrap();
    let before = store.stats();
    drop(store);
    let store = open(dir.path(), &short());
    assert_eq!(samples(&store, 0, BEGIN_MS, BEGIN_MS + DAY_MS - 1), begin);
    assert_eq!(buckets(&store, 1, BEGIN_MS, now_ms, 3_600_000), hours);
    assert_eq!(store.stats().series, before.series);
    assert!(before.log_bytes < 200_000, "{before:?}");
    let series = store.series(&[], BEGIN_MS, BEGIN_MS + DAY_MS).unwrap();
    assert_eq!(series.len(), 2);
}

#[test]
fn a_clock_that_jumps_ahead_drops_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &short());
    let ids = [intern(&store, 0)];
    live(&store, &ids, 0..2);
    store.maintain(BEGIN_MS + 4000 * DAY_MS).unwrap();
    store.maintain(BEGIN_MS + 4000 * DAY_MS + 1000).unwrap();
    let found = samples(&store, 0, i64::MIN, i64::MAX);
    assert_eq!(found.len(), usize::try_from(2 * DAY_MS / STEP_MS).unwrap());
}

#[test]
fn the_oldest_day_goes_first_when_room_is_needed() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &config());
    let ids = [intern(&store, 0)];
    live(&store, &ids, 0..1);
    assert_eq!(
        store.free_oldest_raw().unwrap(),
        None,
        "the day is not over"
    );
    live(&store, &ids, 1..3);
    let minutes = buckets(&store, 0, BEGIN_MS, BEGIN_MS + 3 * DAY_MS, 60_000);
    assert_eq!(store.free_oldest_raw().unwrap(), Some(BEGIN_MS));
    let left = buckets(&store, 0, BEGIN_MS, BEGIN_MS + 3 * DAY_MS, 60_000);
    assert_eq!(left, minutes);
    let tens = buckets(&store, 0, BEGIN_MS, BEGIN_MS + DAY_MS, 10_000);
    assert_eq!(tens.len(), 24 * 24 + 1);
    let sample = Sample {
        at_ms: BEGIN_MS + 5,
        value: 1.0,
    };
    let other = intern(&store, 5);
    assert_eq!(store.append(&[(other, sample)]).unwrap().expired, 1);
}

#[test]
fn a_snapshot_is_a_store_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("store"), &config());
    let ids = [intern(&store, 0), intern(&store, 1)];
    live(&store, &ids, 0..1);
    store.commit().unwrap();
    let copied = dir.path().join("snapshot");
    store.snapshot(&copied).unwrap();
    let before = samples(&store, 1, i64::MIN, i64::MAX);
    live(&store, &ids, 1..2);
    store.flush().unwrap();
    store.compact().unwrap();
    drop(store);
    let snapshot = open(&copied, &config());
    assert_eq!(samples(&snapshot, 1, i64::MIN, i64::MAX), before);
    let report = snapshot.fsck(false).unwrap();
    assert!(report.is_clean(), "{report:?}");
    live(&snapshot, &ids, 1..2);
    let all = samples(&snapshot, 1, i64::MIN, i64::MAX);
    drop(snapshot);
    let store = open(&dir.path().join("store"), &config());
    assert_eq!(samples(&store, 1, i64::MIN, i64::MAX), all);
    assert!(store.snapshot(&copied).is_err(), "the folder exists");
}

#[test]
fn a_day_is_exported_as_parquet() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("store"), &config());
    let ids = [intern(&store, 0), intern(&store, 1)];
    live(&store, &ids, 0..2);
    let path = dir.path().join("day.parquet");
    let rows = store.export_day(BEGIN_MS + DAY_MS + 5, &path).unwrap();
    let a_day = u64::try_from(DAY_MS / STEP_MS).unwrap();
    assert_eq!(rows, 2 * a_day);
    let reader = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
    let mut read = 0;
    for (row, at) in reader.get_row_iter(None).unwrap().zip(0..) {
        let (row, at_ms) = (
            row.unwrap(),
            BEGIN_MS + DAY_MS + at % i64::try_from(a_day).unwrap() * STEP_MS,
        );
        let host = at / i64::try_from(a_day).unwrap();
        let labels = format!(r#"{{"__name__":"load","host":"{host}"}}"#);
        assert_eq!(row.get_string(0).unwrap(), &labels);
        assert_eq!(row.get_timestamp_millis(1).unwrap(), at_ms);
        assert_eq!(row.get_double(2).unwrap(), value(at_ms));
        read += 1;
    }
    assert_eq!(read, rows);
}
