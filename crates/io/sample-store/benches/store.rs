//! Benchmark of the write path and of queries of the store.
//!
//! Workload: 100,000 series, batches of 60,000 samples with a commit and upkeep each, as a collector makes every 100 ms
//! at 600 kHz; and buckets of a minute of the last hour, of 1 and of 1,000 series at 1 Hz. Unit: time per batch, and
//! per query. Aim: below 36 ms of processor time a batch (0.6 s a million samples), 1 ms and 8 ms a query. `cargo bench
//! --profile ci -p sheaf-sample-store` measures; under `cargo test` tiny input runs once. The example `size` counts
//! bytes.

use divan::{Bencher, black_box};
use sheaf_query::{Data, Selection, Source as _};
use sheaf_sample_store::{Config, Disk, SeriesId, Store as _};
use sheaf_samples::{Labels, Matcher, Matches, Sample};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

const BEGIN_MS: i64 = 1_790_000_000_000 - 1_790_000_000_000 % 3_600_000;

fn main() {
    let (dir, store, _) = filled();
    println!(
        "store: {} buckets of 1 min, checksum {:016x}",
        count(&store, ".*"),
        checksum(&store)
    );
    drop((store, dir));
    divan::main();
}

fn is_bench() -> bool {
    std::env::args().any(|arg| arg == "--bench")
}

fn size(bench: u32, test: u32) -> u32 {
    if is_bench() { bench } else { test }
}

fn open(series: u32) -> (tempfile::TempDir, Disk, Vec<SeriesId>) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let store = Disk::open(dir.path(), Config::default()).expect("an empty folder");
    let intern = |number: u32| {
        let number = number.to_string();
        let labels = Labels::new([("__name__", "load"), ("number", &number)]);
        store
            .intern(&labels.expect("two short labels"))
            .expect("below the bound")
    };
    let ids = (0..series).map(intern).collect();
    (dir, store, ids)
}

/// An hour of samples at 1 Hz.
fn filled() -> (tempfile::TempDir, Disk, Vec<SeriesId>) {
    let (dir, store, ids) = open(size(1000, 10));
    for second in 0..3600 {
        let at_ms = BEGIN_MS + second * 1000;
        let value = f64::from(i32::try_from(second % 977).expect("small")) / 100.0;
        let batch: Vec<_> = ids
            .iter()
            .map(|&id| (id, Sample { at_ms, value }))
            .collect();
        store.append(&batch).expect("room");
        if second % 10 == 0 {
            store.commit().expect("room");
            store.maintain(at_ms).expect("room");
        }
    }
    (dir, store, ids)
}

fn select(store: &Disk, pattern: &str) -> Vec<sheaf_query::Series> {
    let matchers = [Matcher::new("number", Matches::Regex, pattern).expect("a pattern")];
    let selection = Selection {
        matchers: &matchers,
        from_ms: BEGIN_MS,
        to_ms: BEGIN_MS + 3_600_000,
        bucket_ms: Some(60_000),
    };
    store.select(&selection).expect("an answer")
}

fn count(store: &Disk, pattern: &str) -> usize {
    let of = |series: &sheaf_query::Series| match &series.data {
        Data::Buckets { buckets, .. } => buckets.len(),
        Data::Samples(samples) => samples.len(),
    };
    select(store, pattern).iter().map(of).sum()
}

fn checksum(store: &Disk) -> u64 {
    select(store, ".*")
        .iter()
        .fold(0, |sum, series| match &series.data {
            Data::Buckets { buckets, .. } => buckets
                .iter()
                .fold(sum, |sum: u64, one| sum.rotate_left(7) ^ one.sum.to_bits()),
            Data::Samples(_) => sum,
        })
}

#[divan::bench(sample_count = 20, sample_size = 1)]
fn append_commit_maintain(bencher: Bencher<'_, '_>) {
    let (_dir, store, ids) = open(size(100_000, 100));
    let per_batch = usize::try_from(size(60_000, 60)).expect("32 bits fit");
    let turn = AtomicI64::new(0);
    bencher
        .counter(divan::counter::ItemsCount::new(per_batch))
        .with_inputs(|| {
            let turn = turn.fetch_add(1, Relaxed);
            let first = usize::try_from(turn).expect("few turns") * per_batch;
            let sample = Sample {
                at_ms: BEGIN_MS + turn * 100,
                value: f64::from(i32::try_from(turn % 100).expect("small")) / 10.0,
            };
            let of = |at: usize| (ids[(first + at) % ids.len()], sample);
            let batch: Vec<_> = (0..per_batch).map(of).collect();
            (BEGIN_MS + turn * 100, batch)
        })
        .bench_values(|(now_ms, batch)| {
            let appended = store.append(&batch).expect("room");
            store.commit().expect("room");
            store.maintain(now_ms).expect("room");
            appended
        });
}

#[divan::bench(args = ["7", ".*"])]
fn minutes_of_an_hour(bencher: Bencher<'_, '_>, pattern: &str) {
    let (_dir, store, _) = filled();
    bencher.bench(|| count(black_box(&store), pattern));
}
