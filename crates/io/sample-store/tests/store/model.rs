//! Random histories of a store, beside a map that does the same.

use super::{BEGIN_MS, buckets, config, intern, open, samples};
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_sample_store::{Config, Disk, SeriesId, Store as _};
use sheaf_samples::{Bucket, STALE, Sample};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;

const SERIES: u32 = 4;
const STEPS: usize = 300;

/// Chunks, tables and days that are over after few samples.
fn small() -> Config {
    Config {
        seal_samples: 20,
        seal_age_ms: 900_000,
        flush_bytes: 4096,
        flush_age_ms: 1_800_000,
        late_ms: 7_200_000,
        // Nothing goes within a history.
        raw_ms: 1000 * 86_400_000,
        ten_seconds_ms: 1000 * 86_400_000,
        minute_ms: 1000 * 86_400_000,
        ..config()
    }
}

struct Model {
    random: Xoshiro256PlusPlus,
    now_ms: i64,
    series: Vec<BTreeMap<i64, f64>>,
    /// Samples that a crash may lose.
    uncommitted: bool,
}

impl Model {
    fn value(&mut self) -> f64 {
        match self.random.random_range(0..20) {
            0 => STALE,
            1 => f64::INFINITY,
            _ => f64::from(self.random.random_range(-10_000..10_000)) / 100.0,
        }
    }

    fn batch(&mut self, ids: &[SeriesId]) -> Vec<(SeriesId, Sample)> {
        let count = self.random.random_range(1..60);
        let mut batch = Vec::new();
        for _ in 0..count {
            let number = self.random.random_range(0..ids.len());
            let newest_ms = self.series[number].last_key_value();
            let newest_ms = newest_ms.map_or(self.now_ms, |pair| *pair.0);
            let at_ms = match self.random.random_range(0..10) {
                0 => newest_ms - self.random.random_range(0..=small().late_ms),
                1 => newest_ms,
                _ => (newest_ms + self.random.random_range(1..3) * 5000).min(self.now_ms),
            };
            let at_ms = at_ms.max(newest_ms - small().late_ms);
            let value = self.value();
            self.series[number].insert(at_ms, value);
            batch.push((ids[number], Sample { at_ms, value }));
        }
        batch
    }

    fn samples(&self, number: usize, range: RangeInclusive<i64>) -> Vec<Sample> {
        let rows = self.series[number].range(range);
        rows.map(|(&at_ms, &value)| Sample { at_ms, value })
            .collect()
    }

    fn buckets(&self, number: usize, range: RangeInclusive<i64>, level_ms: i64) -> Vec<Bucket> {
        let finest_ms = level_ms.min(60_000);
        let mut finest: Vec<Bucket> = Vec::new();
        for one in self.samples(number, i64::MIN..=i64::MAX) {
            if Bucket::takes(one) {
                let start_ms = Bucket::start(one.at_ms, finest_ms);
                match finest.last_mut() {
                    Some(last) if last.start_ms == start_ms => last.add(one),
                    _ => finest.push(Bucket::of(start_ms, one)),
                }
            }
        }
        let mut out: Vec<Bucket> = Vec::new();
        for bucket in finest {
            let start_ms = Bucket::start(bucket.start_ms, level_ms);
            match out.last_mut() {
                Some(last) if last.start_ms == start_ms => last.merge(&bucket),
                _ => {
                    let at_start = bucket.at_start.filter(|_| bucket.start_ms == start_ms);
                    out.push(Bucket {
                        start_ms,
                        at_start,
                        ..bucket
                    });
                }
            }
        }
        out.retain(|one| range.contains(&one.start_ms));
        out
    }

    fn compare(&mut self, store: &Disk, seed: u64, step: usize) {
        for number in 0..SERIES {
            let at = usize::try_from(number).unwrap();
            let (first, last) = (BEGIN_MS - small().late_ms, self.now_ms);
            let from_ms = self.random.random_range(first..=last);
            let to_ms = self.random.random_range(from_ms..=last);
            let place = format!("seed {seed}, step {step}, series {number}, {from_ms}..={to_ms}");
            let found = samples(store, number, from_ms, to_ms);
            let expected = self.samples(at, from_ms..=to_ms);
            assert_eq!(bits(&found), bits(&expected), "{place}");
            let found = samples(store, number, i64::MIN, i64::MAX);
            let expected = self.samples(at, i64::MIN..=i64::MAX);
            assert_eq!(bits(&found), bits(&expected), "{place}, all");
            for level_ms in [10_000, 60_000, 3_600_000] {
                let found = buckets(store, number, from_ms, to_ms, level_ms);
                let expected = self.buckets(at, from_ms..=to_ms, level_ms);
                let text = |buckets: &[Bucket]| {
                    buckets
                        .iter()
                        .map(|one| format!("{one:?}\n"))
                        .collect::<String>()
                };
                assert_eq!(text(&found), text(&expected), "{place}, level {level_ms}");
            }
        }
    }

    /// After a crash: takes over what the store has, if that is between what was committed and what was appended.
    fn adopt(&mut self, store: &Disk, committed: &[BTreeMap<i64, f64>], seed: u64) {
        for number in 0..SERIES {
            let at = usize::try_from(number).unwrap();
            let found: BTreeMap<i64, f64> = samples(store, number, i64::MIN, i64::MAX)
                .iter()
                .map(|one| (one.at_ms, one.value))
                .collect();
            for (at_ms, value) in &found {
                let all = [self.series[at].get(at_ms), committed[at].get(at_ms)];
                let is_known = all
                    .into_iter()
                    .flatten()
                    .any(|one| one.to_bits() == value.to_bits());
                // A value of the time between two commits may be there, when it was sealed before it was replaced.
                assert!(
                    is_known || self.uncommitted,
                    "seed {seed}: {at_ms} from nowhere"
                );
            }
            for at_ms in committed[at].keys() {
                assert!(found.contains_key(at_ms), "seed {seed}: {at_ms} is lost");
            }
            self.series[at] = found;
        }
    }
}

fn bits(samples: &[Sample]) -> Vec<(i64, u64)> {
    let bits = |one: &Sample| (one.at_ms, one.value.to_bits());
    samples.iter().map(bits).collect()
}

fn start(dir: &Path) -> (Disk, Vec<SeriesId>) {
    let store = open(dir, &small());
    let ids = (0..SERIES).map(|number| intern(&store, number)).collect();
    (store, ids)
}

fn run(seed: u64) {
    let dir = tempfile::tempdir().unwrap();
    let mut model = Model {
        random: Xoshiro256PlusPlus::seed_from_u64(seed),
        now_ms: BEGIN_MS,
        series: vec![BTreeMap::new(); usize::try_from(SERIES).unwrap()],
        uncommitted: false,
    };
    let (mut store, mut ids) = start(dir.path());
    let mut committed = model.series.clone();
    for step in 0..STEPS {
        match model.random.random_range(0..20) {
            0..12 => {
                let batch = model.batch(&ids);
                let appended = store.append(&batch).unwrap();
                assert_eq!(
                    appended.accepted,
                    batch.len() as u64,
                    "seed {seed}, step {step}: {appended:?}"
                );
                model.uncommitted = true;
            }
            12..15 => {
                model.now_ms += match model.random.random_range(0..12) {
                    0 => 40_000_000,
                    1 => 3_600_000,
                    _ => 60_000,
                };
                store.maintain(model.now_ms).unwrap();
            }
            15..17 => {
                store.commit().unwrap();
                committed.clone_from(&model.series);
                model.uncommitted = false;
            }
            17 => model.compare(&store, seed, step),
            18 => store.flush().unwrap(),
            _ => {
                drop(store);
                (store, ids) = start(dir.path());
                model.adopt(&store, &committed, seed);
                // The clock of a store that has just opened is unknown.
                store.maintain(model.now_ms).unwrap();
                committed.clone_from(&model.series);
            }
        }
    }
    model.compare(&store, seed, STEPS);
    let report = store.fsck(false).unwrap();
    assert!(report.is_clean(), "seed {seed}: {report:?}");
}

#[test]
fn random_histories_agree_with_a_map() {
    let given = std::env::var("SHEAF_SEED").ok();
    let seeds = match given.map(|seed| seed.parse().expect("SHEAF_SEED is a number")) {
        Some(seed) => seed..seed + 1,
        None => 0..12,
    };
    for seed in seeds {
        println!("seed {seed}");
        run(seed);
    }
}
