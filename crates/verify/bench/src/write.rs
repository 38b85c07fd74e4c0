//! Benchmark of the writer, beside `fio` on the same disk.
//!
//! Each row writes the same records by the product's engine in a process of its own; rows and `fio` take turns, so that
//! a disk that changes its mind changes it for both. Rows with an emulated rate of the workers show what an assignment
//! is worth on a machine whose disk and processors are not those of the paper.

mod folder;

pub use folder::FolderTimes;

use crate::Missing;
use crate::cpus::Cpus;
use crate::report::{Head, to_json};
use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};
use sheaf_farm::proc::usage;
use sheaf_figures::stat;
use sheaf_protocol::Timestamp;
use sheaf_stream_files::{
    Catalogue, Durability, Engine, EngineConfig, EngineEvent, IoMode, Labels, Record, probe,
};
use sheaf_write::{
    Assignment, Kinds, Limits, Place, StreamConfig, StreamId, SyncEvery, Template, Unit,
    WriterConfig,
};
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

/// Bytes that records are cut from.
const POOL_BYTES: usize = 64 << 20;
/// Blocks of a run: each stream begins a file in each.
const BLOCKS: u64 = 6;
/// Longest wait for a report of a worker.
const PATIENCE: Duration = Duration::from_secs(120);

/// Options of the benchmark.
#[derive(Clone, Debug)]
pub struct Options {
    /// Folder on the disk to be measured.
    pub folder: PathBuf,
    /// Bytes of a run.
    pub bytes: u64,
    /// Rounds: each measures `fio` and every row once.
    pub rounds: u32,
    /// Streams.
    pub streams: u16,
    /// Share of the bytes of the first stream.
    pub hot_share: f64,
    /// Bytes of a record.
    pub record_bytes: u64,
    /// Numbers of workers at the speed of the machine.
    pub workers: Vec<u32>,
    /// Rate of an emulated worker in MB/s; `None`: no such rows.
    pub emulated_mb_s: Option<f64>,
    /// Seed of the order of the streams.
    pub seed: u64,
    /// Program that runs one row: this one.
    pub program: PathBuf,
}

/// One run, as its process is asked for it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Load {
    /// Folder for its files.
    pub folder: PathBuf,
    /// Name of the assignment.
    pub policy: String,
    /// Workers.
    pub workers: u32,
    /// Streams.
    pub streams: u16,
    /// Share of the first stream.
    pub hot_share: f64,
    /// Bytes of a record.
    pub record_bytes: u64,
    /// Bytes of all records.
    pub bytes: u64,
    /// Rate of an emulated worker.
    pub worker_bytes_per_s: Option<u64>,
    /// Name of the way to the disk.
    pub io: String,
    /// Name of the durability.
    pub durability: String,
    /// Seed.
    pub seed: u64,
}

/// Result of one run.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Done {
    /// From the first record to the last file closed.
    pub seconds: f64,
    /// Bytes of all files.
    pub bytes: u64,
    /// CPU time of the process.
    pub cpu_s: f64,
    /// Largest resident memory of the process.
    pub rss_bytes_max: u64,
    /// Records acknowledged.
    pub records: u64,
}

/// Row of the report: one assignment with one number of workers.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Assignment.
    pub policy: String,
    /// Workers.
    pub workers: u32,
    /// Streams.
    pub streams: u16,
    /// Way to the disk.
    pub io: &'static str,
    /// Durability.
    pub durability: &'static str,
    /// Rate of an emulated worker in MB/s.
    pub emulated_mb_per_s: Option<f64>,
    /// Rate, median of the rounds.
    pub mb_per_s: f64,
    /// Least and most of the rounds.
    pub mb_per_s_range: [f64; 2],
    /// Rate of `fio` in the same rounds, median.
    pub fio_mb_per_s: Option<f64>,
    /// Median of the ratios to `fio` of the same round.
    pub ratio_to_fio: Option<f64>,
    /// CPU seconds of a GB, checksums included, median.
    pub cpu_s_per_gb: f64,
    /// Largest resident memory, pool of records included.
    pub rss_bytes_max: u64,
    /// Loss in per cent against one worker ÷ share of the fullest stream, for emulated workers; below 0 beyond it.
    pub loss_percent: Option<f64>,
    /// Rounds.
    pub rounds: usize,
}

/// Results of the benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    #[serde(flatten)]
    head: Head,
    /// Bytes of a run.
    pub bytes: u64,
    /// Share of the bytes of the first stream.
    pub hot_share: f64,
    /// Bytes of a record.
    pub record_bytes: u64,
    /// A row for each assignment and number of workers.
    pub rows: Vec<Row>,
    /// Times of a folder with many files.
    pub folder: FolderTimes,
    /// Names of what was not measured, with the reason.
    pub skipped: Vec<String>,
}

impl Report {
    /// Returns the report as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        to_json(self)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.head)?;
        writeln!(
            f,
            "{:<18} {:>7} {:>9} {:>7} {:>9} {:>15} {:>7} {:>8} {:>9} {:>7}",
            "ASSIGNMENT",
            "THREADS",
            "IO",
            "DURABLE",
            "MB/s",
            "least–most",
            "÷ fio",
            "CPU s/GB",
            "MEMORY MB",
            "LOSS %"
        )?;
        for row in &self.rows {
            let optional = |value: Option<f64>, digits: usize| {
                value.map_or("–".to_owned(), |value| format!("{value:.digits$}"))
            };
            let io = row
                .emulated_mb_per_s
                .map_or(row.io.to_owned(), |rate| format!("{rate:.0} MB/s"));
            writeln!(
                f,
                "{:<18} {:>7} {io:>9} {:>7} {:>9.0} {:>15} {:>7} {:>8.3} {:>9} {:>7}",
                row.policy,
                row.workers,
                row.durability,
                row.mb_per_s,
                format!("{:.0}–{:.0}", row.mb_per_s_range[0], row.mb_per_s_range[1]),
                optional(row.ratio_to_fio, 2),
                row.cpu_s_per_gb,
                row.rss_bytes_max >> 20,
                optional(row.loss_percent, 1),
            )?;
        }
        write!(f, "{}", self.folder)?;
        for skipped in &self.skipped {
            writeln!(f, "skipped: {skipped}")?;
        }
        Ok(())
    }
}

/// Case of a row.
struct Case {
    policy: &'static str,
    workers: u32,
    emulated_mb_s: Option<f64>,
    io: IoMode,
    durability: Durability,
}

impl Case {
    /// A case at the speed of the machine, in the way that an EPN takes of itself, synced at the close.
    fn new(policy: &'static str, workers: u32, io: IoMode) -> Self {
        Self {
            policy,
            workers,
            emulated_mb_s: None,
            io,
            durability: Durability::Close,
        }
    }
}

/// Measures all rows; `progress` gets a line for each run.
///
/// # Errors
///
/// [`Missing`] if the folder is not there, or why a run did not come to its end in order.
pub fn measure(options: &Options, progress: &mut impl FnMut(String)) -> anyhow::Result<Report> {
    if !options.folder.is_dir() {
        let text = format!(
            "found --folder {}, expected one that is there",
            options.folder.display()
        );
        return Err(Missing(text).into());
    }
    let folder = tempfile::tempdir_in(&options.folder)
        .with_context(|| format!("cannot make a folder in {}", options.folder.display()))?;
    let io = probe(folder.path()).context("the folder cannot be written")?;
    let cases = cases(options, io);
    let mut skipped = Vec::new();
    let mut fio = Vec::new();
    let mut done: Vec<Vec<Done>> = cases.iter().map(|_| Vec::new()).collect();
    for round in 0..options.rounds {
        if skipped.is_empty() {
            match run_fio(folder.path(), options.bytes) {
                Ok(mb_s) => {
                    progress(format!("round {}: fio {mb_s:.0} MB/s", round + 1));
                    fio.push(mb_s);
                }
                Err(error) if round == 0 => skipped.push(format!("fio: {error:#}")),
                Err(error) => return Err(error),
            }
        }
        for (case, done) in cases.iter().zip(&mut done) {
            let one = run_case(options, case, folder.path(), round)?;
            progress(format!(
                "round {}: {} by {}: {:.0} MB/s",
                round + 1,
                case.policy,
                case.workers,
                rate(&one)
            ));
            done.push(one);
        }
    }
    progress("a folder with many files".to_owned());
    let times = folder::measure(&options.program, folder.path())?;
    let rows = cases.iter().zip(&done);
    let rows = rows.map(|(case, done)| row(options, case, done, &fio));
    let seconds = done.iter().flatten().map(|one| one.seconds).sum::<f64>();
    let runs = done.iter().map(Vec::len).sum::<usize>().max(1);
    Ok(Report {
        head: Head::new(&Cpus::allowed(false)?, seconds / runs as f64, 0.0),
        bytes: options.bytes,
        hot_share: options.hot_share,
        record_bytes: options.record_bytes,
        rows: rows.collect(),
        folder: times,
        skipped,
    })
}

fn cases(options: &Options, io: IoMode) -> Vec<Case> {
    let mut cases = Vec::new();
    for &workers in &options.workers {
        for policy in ["striped", "open-rate"] {
            cases.push(Case::new(policy, workers, io));
        }
    }
    let most = options.workers.last().copied().unwrap_or(1);
    cases.push(Case {
        io: IoMode::Buffered,
        ..Case::new("striped", most, io)
    });
    for &workers in &options.workers {
        cases.push(Case {
            io: IoMode::Uring,
            ..Case::new("striped", workers, io)
        });
    }
    for durability in [Durability::None, Durability::Every, Durability::Record] {
        cases.push(Case {
            durability,
            ..Case::new("striped", most, io)
        });
    }
    if options.emulated_mb_s.is_some() {
        for policy in ["striped", "open-rate", "window-and-stream", "round-robin"] {
            cases.push(Case {
                emulated_mb_s: options.emulated_mb_s,
                ..Case::new(policy, 4, io)
            });
        }
    }
    cases
}

fn rate(done: &Done) -> f64 {
    done.bytes as f64 / 1e6 / done.seconds.max(1e-9)
}

fn row(options: &Options, case: &Case, done: &[Done], fio: &[f64]) -> Row {
    let rates: Vec<f64> = done.iter().map(rate).collect();
    let median = |values: &[f64]| stat::quantile(values, 0.5);
    let cpu: Vec<f64> = done
        .iter()
        .map(|one| one.cpu_s / (one.bytes as f64 / 1e9))
        .collect();
    let is_emulated = case.emulated_mb_s.is_some();
    let ratios: Vec<f64> = rates.iter().zip(fio).map(|(own, fio)| own / fio).collect();
    let fio = median(fio).filter(|_| !is_emulated);
    let bound = case.emulated_mb_s.map(|mb_s| {
        // No assignment of whole files is faster.
        mb_s / options.hot_share.max(1.0 / f64::from(case.workers))
    });
    let mb_per_s = median(&rates).unwrap_or(0.0);
    Row {
        policy: case.policy.to_owned(),
        workers: case.workers,
        streams: options.streams,
        io: case.io.name(),
        durability: case.durability.name(),
        emulated_mb_per_s: case.emulated_mb_s,
        mb_per_s,
        mb_per_s_range: [
            rates.iter().copied().fold(f64::INFINITY, f64::min),
            rates.iter().copied().fold(0.0, f64::max),
        ],
        fio_mb_per_s: fio,
        ratio_to_fio: fio.and_then(|_| median(&ratios)),
        cpu_s_per_gb: median(&cpu).unwrap_or(0.0),
        rss_bytes_max: done.iter().map(|one| one.rss_bytes_max).max().unwrap_or(0),
        loss_percent: bound.map(|bound| 100.0 * (1.0 - mb_per_s / bound)),
        rounds: done.len(),
    }
}

/// Measures the disk by `fio` as the target says: one job, writes of 1 MiB past the cache, a sync at the end.
fn run_fio(folder: &Path, bytes: u64) -> anyhow::Result<f64> {
    let file = folder.join("fio");
    let output = Command::new("fio")
        .args([
            "--name=write",
            "--rw=write",
            "--bs=1M",
            "--direct=1",
            "--end_fsync=1",
        ])
        .args(["--ioengine=psync", "--output-format=json"])
        .arg(format!("--size={bytes}"))
        .arg(format!("--filename={}", file.display()))
        .stdin(Stdio::null())
        .output()
        .context("fio cannot be started; on Debian: apt-get install fio")?;
    ensure!(
        output.status.success(),
        "fio ended with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    std::fs::remove_file(&file).context("fio has left no file")?;
    let report: serde_json::Value =
        serde_json::from_slice(&output.stdout).context("fio has printed no JSON")?;
    let write = &report["jobs"][0]["write"];
    let (bytes, ms) = (
        write["io_bytes"].as_f64(),
        report["jobs"][0]["job_runtime"].as_f64(),
    );
    let (Some(bytes), Some(ms)) = (bytes, ms.filter(|ms| *ms > 0.0)) else {
        bail!("fio's report has no bytes or no time: {write}");
    };
    Ok(bytes / 1e6 / (ms / 1e3))
}

fn run_case(options: &Options, case: &Case, folder: &Path, round: u32) -> anyhow::Result<Done> {
    let folder = folder.join("files");
    std::fs::create_dir(&folder).context("the folder of the run cannot be made")?;
    let emulated = case.emulated_mb_s;
    let load = Load {
        folder: folder.clone(),
        policy: case.policy.to_owned(),
        workers: case.workers,
        streams: options.streams,
        hot_share: options.hot_share,
        record_bytes: options.record_bytes,
        // A tenth is enough where the rate is stated.
        bytes: emulated.map_or(options.bytes, |mb_s| {
            options.bytes.min((mb_s * 4.0 * 12.0 * 1e6) as u64)
        }),
        worker_bytes_per_s: emulated.map(|mb_s| (mb_s * 1e6) as u64),
        io: case.io.name().to_owned(),
        durability: case.durability.name().to_owned(),
        seed: options.seed.wrapping_add(round.into()),
    };
    let words = serde_json::to_string(&load).context("a load has a JSON form")?;
    let output = Command::new(&options.program)
        .args(["bench", "write-load", &words])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("the process of a run cannot be started")?;
    ensure!(
        output.status.success(),
        "{} ended with {}",
        case.policy,
        output.status
    );
    let done: Done =
        serde_json::from_slice(&output.stdout).context("a run has printed no result")?;
    std::fs::remove_dir_all(&folder).context("the files of a run cannot be removed")?;
    ensure!(
        done.bytes == load.bytes / load.record_bytes * load.record_bytes,
        "{}: {} bytes in files, expected {}",
        case.policy,
        done.bytes,
        load.bytes
    );
    Ok(done)
}

/// Record of the benchmark.
#[derive(Debug)]
struct Blob(Bytes);

impl Record for Blob {
    fn slices(&self) -> Vec<&[u8]> {
        vec![&self.0]
    }
}

/// Runs one load in this process.
///
/// # Errors
///
/// Why it did not come to its end in order.
pub fn run_load(load: &Load) -> anyhow::Result<Done> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(load.seed);
    let mut pool = vec![0; POOL_BYTES];
    rng.fill(&mut pool[..]);
    let pool = Bytes::from(pool);
    let (sender, wakes) = sync_channel(1);
    let wake: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
        let _ = sender.try_send(()); // A wake that is pending already need not be repeated.
    });
    let (mut engine, _) = Engine::open(config(load)?, &|_: &mut dyn Read| Ok(None), &wake)?;
    let records = load.bytes / load.record_bytes;
    let size = usize::try_from(load.record_bytes).context("a record fits into memory")?;
    ensure!(
        size <= POOL_BYTES,
        "found records of {size} bytes, expected at most {POOL_BYTES}"
    );
    let before = usage(std::process::id()).context("/proc has this process")?;
    let start = Instant::now();
    let now = || Timestamp(0) + start.elapsed();
    let mut acknowledged = 0;
    for number in 0..records {
        while !engine.has_room(load.record_bytes) {
            acknowledged += wait(&mut engine, &wakes, now())?;
        }
        let at = rng.random_range(0..=POOL_BYTES - size);
        let place = Place {
            run: 1,
            stream: stream_of(load, rng.random()),
            block: number * BLOCKS / records,
        };
        let blob = Blob(pool.slice(at..at + size));
        if let Err((refused, _)) = engine.append(now(), place, blob) {
            bail!("a record was refused: {refused}");
        }
        engine.turn(now());
        acknowledged += take(&mut engine)?;
    }
    ensure!(
        engine.finish(now, PATIENCE),
        "files were not closed in {PATIENCE:?}"
    );
    let seconds = start.elapsed().as_secs_f64();
    acknowledged += take(&mut engine)?;
    let after = usage(std::process::id()).context("/proc has this process")?;
    drop(engine);
    let rows = Catalogue::read(&load.folder)?.rows(None)?;
    Ok(Done {
        seconds,
        bytes: rows.iter().map(|row| row.sums.bytes).sum(),
        cpu_s: after.cpu_s - before.cpu_s,
        rss_bytes_max: after.rss_bytes_max,
        records: acknowledged,
    })
}

fn wait(engine: &mut Engine<Blob>, wakes: &Receiver<()>, now: Timestamp) -> anyhow::Result<u64> {
    wakes
        .recv_timeout(PATIENCE)
        .context("no worker has reported")?;
    engine.turn(now);
    take(engine)
}

/// Takes the events of an engine. Returns how many records were acknowledged.
fn take(engine: &mut Engine<Blob>) -> anyhow::Result<u64> {
    let mut acknowledged = 0;
    while let Some(event) = engine.poll() {
        match event {
            EngineEvent::Written(_) => acknowledged += 1,
            EngineEvent::Trouble(error) => bail!("a worker fails: {error}"),
            EngineEvent::Healed => {}
        }
    }
    Ok(acknowledged)
}

/// Draws a stream: the first one by its share, the others alike.
fn stream_of(load: &Load, lot: f64) -> StreamId {
    if lot < load.hot_share || load.streams < 2 {
        return StreamId(0);
    }
    let others = f64::from(load.streams - 1);
    let place = (lot - load.hot_share) / (1.0 - load.hot_share) * others;
    StreamId(1 + (place as u16).min(load.streams - 2))
}

fn config(load: &Load) -> anyhow::Result<EngineConfig> {
    let assignment = Assignment::named(&load.policy)?;
    let durability = Durability::named(&load.durability)
        .with_context(|| format!("found durability {}", load.durability))?;
    let limits = Limits {
        bytes: u64::MAX,
        records: u64::MAX,
        age: Duration::MAX,
    };
    let streams = (0..load.streams).map(|stream| StreamConfig {
        name: format!("s{stream}"),
        limits,
    });
    // Emulated queues are short: what waits in them is not yet written when the time ends.
    let queue_bytes = if load.worker_bytes_per_s.is_some() {
        16 << 20
    } else {
        256 << 20
    };
    let segment_bytes = if assignment.unit == Unit::Segment && load.worker_bytes_per_s.is_some() {
        4 << 20
    } else {
        16 << 20
    };
    Ok(EngineConfig {
        folder: load.folder.clone(),
        writer: WriterConfig {
            project: "bench".to_owned(),
            node: "w-0".to_owned(),
            template: Template::parse(Template::DEFAULT)?,
            workers: load.workers,
            assignment,
            segment_bytes,
            record_bytes_max: u64::MAX,
            kinds: Kinds::default(),
            sync_every: (durability == Durability::Every).then_some(SyncEvery {
                bytes: 64 << 20,
                time: Duration::from_secs(1),
            }),
            streams: streams.collect(),
            seed: load.seed,
        },
        durability,
        mode: Some(IoMode::named(&load.io).context("the load has no way to the disk")?),
        queue_bytes,
        queue_records: 4096,
        labels: Labels::default(),
        worker_bytes_per_s: load.worker_bytes_per_s,
    })
}

/// Reads a load from the words of its process, runs it, and prints the result.
///
/// # Errors
///
/// As for [`run_load`], or words that are none.
pub fn run_words(words: &str) -> anyhow::Result<()> {
    let load: Load = serde_json::from_str(words).context("the load is no JSON")?;
    let done = run_load(&load)?;
    serde_json::to_writer(io::stdout(), &done).context("the result cannot be printed")
}
