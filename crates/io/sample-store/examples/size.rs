//! How many bytes on disk does a sample take, and how much processor time?
//!
//! `cargo run --profile ci -p sheaf-sample-store --example size -- [mix|walk] SERIES SECONDS PER_SECOND SEAL_AGE_S`
//! fills a store in a temporary folder as a collector would: a batch, a commit and upkeep every 100 ms of its virtual
//! time. Prints bytes of the whole folder in its blocks, index included, after sealing and merging; processor time of
//! the process, values made beforehand; the longest commit; and times of two queries.
//!
//! `mix`: a third of the series uniform doubles with 5 decimals, a third whole numbers from 1 to 100, a third on or
//! off. `walk`: a gauge that drifts by up to 0.10 in hundredths, all steps equally likely: 4.4 bits of information a
//! sample.

use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_query::{Data, Selection, Source as _};
use sheaf_sample_store::{Config, Disk, SeriesId, Store as _};
use sheaf_samples::{Labels, Matcher, Matches, Sample};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

const BEGIN_MS: i64 = 1_790_000_000_000 - 1_790_000_000_000 % 86_400_000;
const TURN_MS: i64 = 100;

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: usize| {
        args.get(at)
            .map_or(Ok(default), |text| text.parse::<usize>())
    };
    let kind = args.first().map_or("mix", String::as_str);
    let (series, seconds, per_second) = (number(1, 100)?, number(2, 120)?, number(3, 1)?);
    let dir = tempfile::tempdir()?;
    let mut config = Config::default();
    let age_s = number(4, usize::try_from(config.seal_age_ms / 1000)?)?;
    config.seal_age_ms = i64::try_from(age_s)? * 1000;
    let store = Disk::open(dir.path(), config)?;
    let ids = intern(&store, series)?;
    let mut filled = fill(&store, &ids, kind, seconds, per_second)?;
    let before = bytes(dir.path())?;
    let begin = cpu();
    store.flush()?;
    filled.cpu += cpu() - begin;
    let million = filled.samples as f64 / 1e6;
    println!("{kind}: {series} series, {} samples", filled.samples);
    println!(
        "cpu: {:.3} s a million samples",
        filled.cpu.as_secs_f64() / million
    );
    println!(
        "commit: {:.1} ms at most",
        filled.commit_max.as_secs_f64() * 1e3
    );
    println!("memory: {:?}", store.stats());
    println!(
        "folder before sealing: {:.3} bytes a sample",
        before as f64 / filled.samples as f64
    );
    query(&store, seconds, "1000")?;
    query(&store, seconds, "1")?;
    store.compact()?;
    println!(
        "tables: {:.3} bytes a sample",
        store.stats().table_bytes as f64 / filled.samples as f64
    );
    drop(store);
    let after = bytes(dir.path())?;
    println!(
        "folder: {:.3} bytes a sample",
        after as f64 / filled.samples as f64
    );
    let begin = Instant::now();
    drop(Disk::open(dir.path(), Config::default())?);
    println!("open: {:.1} ms", begin.elapsed().as_secs_f64() * 1e3);
    Ok(())
}

fn intern(store: &Disk, series: usize) -> anyhow::Result<Vec<SeriesId>> {
    let mut ids = Vec::new();
    for number in 0..series {
        let host = format!("host-{}", number / 100);
        let name = format!("metric_{}", number % 100);
        let number = number.to_string();
        let pairs = [("__name__", &name), ("host", &host), ("number", &number)];
        ids.push(store.intern(&Labels::new(pairs)?)?);
    }
    Ok(ids)
}

struct Filled {
    samples: u64,
    cpu: Duration,
    commit_max: Duration,
}

fn fill(
    store: &Disk,
    ids: &[SeriesId],
    kind: &str,
    seconds: usize,
    per_second: usize,
) -> anyhow::Result<Filled> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut last = vec![500_000.0_f64; ids.len()];
    let mut filled = Filled {
        samples: 0,
        cpu: Duration::ZERO,
        commit_max: Duration::ZERO,
    };
    let step_ms = 1000 / i64::try_from(per_second)?;
    let turns = i64::try_from(seconds)? * 1000 / TURN_MS;
    // Series send one after the other within their step, each at its own regular times.
    let phase = |at: usize| at as i64 * step_ms / ids.len() as i64;
    for turn in 0..turns {
        let (from_ms, to_ms) = (turn * TURN_MS, (turn + 1) * TURN_MS);
        let mut batch = Vec::new();
        let mut step = from_ms / step_ms - 1;
        while step * step_ms < to_ms {
            let begin = (0..ids.len()).collect::<Vec<_>>();
            let first = begin.partition_point(|&at| step * step_ms + phase(at) < from_ms);
            let end = begin.partition_point(|&at| step * step_ms + phase(at) < to_ms);
            for at in first..end {
                let value = match (kind, at % 3) {
                    ("walk", _) => {
                        last[at] += f64::from(random.random_range(-10..=10));
                        last[at] / 100.0
                    }
                    (_, 0) => (random.random::<f64>() * 1e5).round() / 1e5,
                    (_, 1) => f64::from(random.random_range(1..=100)),
                    _ => f64::from(random.random_range(0..=1)),
                };
                // At 1 Hz times are of whole seconds, as of agents that align them.
                let at_ms = BEGIN_MS + step * step_ms + if per_second == 1 { 0 } else { phase(at) };
                batch.push((ids[at], Sample { at_ms, value }));
            }
            step += 1;
        }
        let begin = cpu();
        for batch in batch.chunks(60_000) {
            anyhow::ensure!(store.append(batch)?.refused() == 0, "samples were refused");
        }
        let now = Instant::now();
        store.commit()?;
        filled.commit_max = filled.commit_max.max(now.elapsed());
        store.maintain(BEGIN_MS + to_ms)?;
        filled.cpu += cpu() - begin;
        filled.samples += batch.len() as u64;
    }
    Ok(filled)
}

/// Buckets of a minute of the last hour: of one series, or of all of one host of the first 1,000.
fn query(store: &Disk, seconds: usize, which: &str) -> anyhow::Result<()> {
    let pattern = if which == "1" { "17" } else { "[0-9]{1,3}" };
    let matchers = [Matcher::new("number", Matches::Regex, pattern)?];
    let to_ms = BEGIN_MS + i64::try_from(seconds)? * 1000;
    let selection = Selection {
        matchers: &matchers,
        from_ms: to_ms - 3_600_000,
        to_ms,
        bucket_ms: Some(60_000),
    };
    let mut times = Vec::new();
    let mut found = (0, 0);
    for _ in 0..11 {
        let begin = Instant::now();
        let series = store.select(&selection)?;
        times.push(begin.elapsed());
        let buckets = series.iter().map(|one| match &one.data {
            Data::Buckets { buckets, .. } => buckets.len(),
            Data::Samples(samples) => samples.len(),
        });
        found = (series.len(), buckets.sum::<usize>());
    }
    let first = times[0];
    times.sort();
    println!(
        "query: {} series, {} buckets: first {:.2} ms, median {:.2} ms",
        found.0,
        found.1,
        first.as_secs_f64() * 1e3,
        times[5].as_secs_f64() * 1e3
    );
    Ok(())
}

/// Processor time of this process, all threads.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// Bytes of the blocks of all files in a folder, each file once.
fn bytes(dir: &Path) -> std::io::Result<u64> {
    let mut total = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        total += if entry.file_type()?.is_dir() {
            bytes(&entry.path())?
        } else {
            entry.metadata()?.blocks() * 512
        };
    }
    Ok(total)
}
