//! A live run: the shipped engine on a folder of this machine, with workers behind token buckets.
//!
//! Records are offered as fast as they are taken, or at the times of a trace. The clock of the brain runs as much
//! faster as blocks are shorter than those of ATLAS, so that its windows of 5 s stand to a block as they do there. The
//! first block does not count where there are others: no rate is known in it yet.

use super::Taken;
use crate::experiment::result::WritersRun;
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_protocol::Timestamp;
use sheaf_sim::scenario::{BLOCK_S, ScenarioError, Writing};
use sheaf_sim::writers::{Choice, Input, Mix, Trace, file_bound, stream_of};
use sheaf_stream_files::{
    Catalogue, CatalogueError, Durability, Engine, EngineConfig, EngineError, EngineEvent, Labels,
    Record,
};
use sheaf_testbed::IoError;
use sheaf_testbed::clock::{self, Interrupted};
use sheaf_write::{
    Kinds, Limits, Place, Refused, StreamConfig, StreamId, Template, Unit, WriterConfig,
    WriterError,
};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Bytes that records are cut from.
const POOL_BYTES: usize = 8 << 20;
/// Bytes with the workers at once, where files are assigned: few, as a file that moves to another worker is written
/// twice as fast as long as the former one has a queue.
const QUEUE_BYTES: u64 = 3 << 20;
/// Bytes with the workers at once, where segments are assigned.
const SEGMENTS_QUEUE_BYTES: u64 = 16 << 20;
/// Bytes of a segment.
const SEGMENT_BYTES: u64 = 1 << 20;
/// Records with the workers at once.
const QUEUE_RECORDS: u32 = 8192;
/// Longest wait for a report of a worker, and for the end.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest wait between two looks at the signals.
const LOOK: Duration = Duration::from_millis(200);
/// Name of the folder of the files within that of the results.
const FOLDER: &str = "files";

/// Reasons why a live run of writers does not come to its end.
#[derive(Debug, Error)]
pub enum EngineRunError {
    /// A signal asked this process to end.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// A value of the point.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The folder of the files.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The engine cannot begin.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A stream cannot be pinned to its worker.
    #[error(transparent)]
    Writer(#[from] WriterError),
    /// The catalogue cannot be read.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// A record is not taken.
    #[error("the writer refuses a record: {0}")]
    Refused(Refused),
    /// A worker cannot write.
    #[error("a worker cannot write: {0}")]
    Trouble(String),
    /// Workers report nothing, or do not end.
    #[error("workers {what} within {} s", PATIENCE.as_secs())]
    Late {
        /// Missing thing.
        what: &'static str,
    },
}

/// Record: a piece of the pool.
#[derive(Debug)]
struct Piece {
    pool: Arc<Vec<u8>>,
    at: usize,
    bytes: usize,
}

impl Record for Piece {
    fn slices(&self) -> Vec<&[u8]> {
        vec![&self.pool[self.at..self.at + self.bytes]]
    }
}

/// Folder of the files of one run.
struct Files(PathBuf);

impl Files {
    fn make(out: &Path) -> Result<Self, IoError> {
        let path = out.join(FOLDER);
        // A run that was killed leaves its files.
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(IoError::of(format!("remove {}", path.display()))(error));
            }
            _ => {}
        }
        fs::create_dir_all(&path).map_err(IoError::of(format!("make {}", path.display())))?;
        Ok(Self(path))
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "Cannot remove the files of a run");
        }
    }
}

/// Records as they are offered.
enum Offered {
    Mix {
        /// Shares of each block.
        shares: Vec<Vec<f64>>,
        bytes: u64,
    },
    Trace {
        trace: Trace,
        next: usize,
        /// Factors of times and bytes.
        time: f64,
        size: f64,
    },
}

/// One record that is offered.
struct Offer {
    due: Duration,
    stream: StreamId,
    bytes: u64,
}

impl Offered {
    fn new(input: Input, writing: &Writing, seed: u64) -> Self {
        let speed = BLOCK_S / writing.block_s;
        match input {
            Input::Mix { mix, blocks } => Self::Mix {
                shares: blocks_of(&mix, blocks, seed),
                bytes: writing.record_bytes,
            },
            Input::Trace(trace) => Self::Trace {
                trace,
                next: 0,
                time: 1.0 / speed,
                size: 1.0 / (speed * writing.scale),
            },
        }
    }

    fn streams(&self) -> u16 {
        match self {
            Self::Mix { shares, .. } => {
                u16::try_from(shares.first().map_or(0, Vec::len)).unwrap_or(u16::MAX)
            }
            Self::Trace { trace, .. } => trace.streams,
        }
    }

    /// Returns the next record, of `block`.
    fn next(&mut self, block: u64, rng: &mut Xoshiro256PlusPlus) -> Option<Offer> {
        match self {
            Self::Mix { shares, bytes } => {
                let last = shares.len() - 1;
                let shares = &shares[usize::try_from(block).unwrap_or(last).min(last)];
                Some(Offer {
                    due: Duration::ZERO,
                    stream: stream_of(shares, rng.random()),
                    bytes: *bytes,
                })
            }
            Self::Trace {
                trace,
                next,
                time,
                size,
            } => {
                let record = trace.records.get(*next)?;
                *next += 1;
                Some(Offer {
                    due: Duration::from_secs_f64(record.at_s * *time),
                    stream: StreamId(record.stream),
                    bytes: ((record.bytes as f64 * *size) as u64).clamp(1, POOL_BYTES as u64),
                })
            }
        }
    }

    /// Returns the bound of whole files, a mean over the blocks from `first` on, at the scale of ATLAS.
    fn file_bound(&self, first: usize, writing: &Writing) -> f64 {
        let bound = |shares: &[f64]| file_bound(shares, writing.worker_mb_s, writing.workers);
        match self {
            Self::Mix { shares, .. } => {
                let counted = shares.iter().skip(first);
                let bounds: Vec<f64> = counted.map(|shares| bound(shares)).collect();
                bounds.iter().sum::<f64>() / bounds.len().max(1) as f64
            }
            Self::Trace { trace, .. } => bound(&trace.shares()),
        }
    }
}

fn blocks_of(mix: &Mix, blocks: u64, seed: u64) -> Vec<Vec<f64>> {
    let blocks = usize::try_from(blocks).unwrap_or(usize::MAX).max(1);
    mix.blocks(seed).take(blocks).collect()
}

/// An engine under way, and what of it was seen.
struct Running {
    engine: Engine<Piece>,
    wakes: Receiver<()>,
    start: Instant,
    /// Speed of the clock of the brain.
    speed: f64,
    acknowledged: u64,
    taken_records: u64,
    taken_bytes: u64,
}

impl Running {
    fn now(&self) -> Timestamp {
        Timestamp(0) + self.start.elapsed().mul_f64(self.speed)
    }

    /// Takes the reports of workers.
    fn turn(&mut self) -> Result<(), EngineRunError> {
        let now = self.now();
        self.engine.turn(now);
        while let Some(event) = self.engine.poll() {
            match event {
                EngineEvent::Written(_) => self.acknowledged += 1,
                EngineEvent::Trouble(error) => return Err(EngineRunError::Trouble(error)),
                EngineEvent::Healed => {}
            }
        }
        Ok(())
    }

    /// Waits for a report, for `time` at most. Returns whether there was one.
    fn wait(&mut self, time: Duration) -> Result<bool, EngineRunError> {
        clock::check_quit()?;
        let is_woken = self.wakes.recv_timeout(time.min(LOOK)).is_ok();
        self.turn()?;
        Ok(is_woken)
    }

    /// Waits until the record may be taken. Returns how long that was.
    fn wait_for_room(&mut self, offer: &Offer) -> Result<Duration, EngineRunError> {
        while let Some(left) = offer.due.checked_sub(self.start.elapsed())
            && !left.is_zero()
        {
            self.wait(left)?;
        }
        let begin = Instant::now();
        let mut reported = begin;
        while !self.engine.has_room(offer.bytes) {
            if self.wait(PATIENCE)? {
                reported = Instant::now();
            } else if reported.elapsed() > PATIENCE {
                return Err(EngineRunError::Late {
                    what: "report nothing",
                });
            }
        }
        Ok(begin.elapsed())
    }

    /// Returns the time and the bytes whose write has returned.
    fn written(&self) -> (f64, u64) {
        let (_, held) = self.engine.held();
        (self.start.elapsed().as_secs_f64(), self.taken_bytes - held)
    }
}

/// Shares of the fullest worker, block by block.
#[derive(Default)]
struct Fullest {
    before: Vec<u64>,
    shares: Vec<f64>,
}

impl Fullest {
    fn end_block(&mut self, bytes: &[u64]) {
        let of_block = bytes.iter().enumerate().map(|(worker, bytes)| {
            let before = self.before.get(worker).copied().unwrap_or(0);
            (bytes - before) as f64
        });
        let of_block: Vec<f64> = of_block.collect();
        let sum: f64 = of_block.iter().sum();
        if sum > 0.0 {
            let most = of_block.iter().copied().fold(0.0, f64::max);
            self.shares.push(most / sum);
        }
        bytes.clone_into(&mut self.before);
    }

    fn mean(&self, first: usize) -> f64 {
        let counted = self.shares.get(first..).unwrap_or_default();
        counted.iter().sum::<f64>() / counted.len().max(1) as f64
    }
}

/// Runs the engine for `duration_s` on a folder in `out`.
///
/// # Errors
///
/// All of [`EngineRunError`].
pub(super) fn run(
    writing: &Writing,
    duration_s: f64,
    seed: u64,
    out: &Path,
) -> Result<Taken, EngineRunError> {
    let choice = writing.choice()?;
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut offered = Offered::new(writing.input(duration_s)?, writing, seed);
    let mut pool = vec![0; POOL_BYTES];
    rng.fill(&mut pool[..]);
    let pool = Arc::new(pool);
    let files = Files::make(out)?;
    let mut running = begin(config(&files.0, writing, choice, &offered, seed)?)?;
    for (stream, worker) in choice.pins(offered.streams(), writing.workers) {
        running.engine.pin(stream, worker)?;
    }
    running.speed = BLOCK_S / writing.block_s;
    running.start = Instant::now();

    // Where no block is whole, all counts.
    let first_counted = u64::from(duration_s >= 2.0 * writing.block_s);
    let mut from = (0.0, 0);
    let mut fullest = Fullest::default();
    let mut wait_max = Duration::ZERO;
    let mut block = 0;
    while running.start.elapsed().as_secs_f64() < duration_s {
        let Some(offer) = offered.next(block, &mut rng) else {
            break;
        };
        wait_max = wait_max.max(running.wait_for_room(&offer)?);
        let in_block = (running.start.elapsed().as_secs_f64() / writing.block_s) as u64;
        if in_block != block {
            fullest.end_block(running.engine.worker_bytes());
            if block < first_counted {
                from = running.written();
            }
            block = in_block;
        }
        let bytes = usize::try_from(offer.bytes).expect("a record fits into the pool");
        let at = rng.random_range(0..=POOL_BYTES - bytes);
        let place = Place {
            run: 1,
            stream: offer.stream,
            block,
        };
        let piece = Piece {
            pool: Arc::clone(&pool),
            at,
            bytes,
        };
        let now = running.now();
        let appended = running.engine.append(now, place, piece);
        appended.map_err(|(refused, _)| EngineRunError::Refused(refused))?;
        running.taken_records += 1;
        running.taken_bytes += offer.bytes;
        if running.wakes.try_recv().is_ok() {
            running.turn()?;
        }
    }
    running.turn()?;
    let to = running.written();
    fullest.end_block(running.engine.worker_bytes());
    let written = end(running, &files.0)?;
    let first = usize::try_from(first_counted).unwrap_or(0);
    let counted = to.1.saturating_sub(from.1);
    let rate = counted as f64 / 1e6 / (to.0 - from.0).max(1e-9);
    Ok(Taken {
        records: written.taken,
        lost: written.taken - written.in_files,
        result: WritersRun {
            mb_per_s: rate * writing.scale,
            file_bound_mb_per_s: offered.file_bound(first, writing),
            fullest: fullest.mean(first),
            files: written.files,
            bytes: written.worker_bytes,
        },
        lags_us: vec![wait_max.as_secs_f64() * 1e6],
    })
}

/// Records of a run, and those that the catalogue has.
struct Written {
    taken: u64,
    in_files: u64,
    files: u64,
    /// Bytes by worker, those written after the last record was taken included.
    worker_bytes: Vec<u64>,
}

/// Closes the files and compares the catalogue with what was taken.
fn end(mut running: Running, folder: &Path) -> Result<Written, EngineRunError> {
    let (start, speed) = (running.start, running.speed);
    let clock = || Timestamp(0) + start.elapsed().mul_f64(speed);
    if !running.engine.finish(clock, PATIENCE) {
        return Err(EngineRunError::Late {
            what: "do not close the files",
        });
    }
    running.turn()?;
    let (taken, acknowledged) = (running.taken_records, running.acknowledged);
    let taken_bytes = running.taken_bytes;
    let worker_bytes = running.engine.worker_bytes().to_vec();
    drop(running);
    let rows = Catalogue::read(folder)?.rows(None)?;
    let in_files: u64 = rows.iter().map(|row| row.records).sum();
    let bytes: u64 = rows.iter().map(|row| row.sums.bytes).sum();
    // A file with other bytes than were taken has lost a record, whatever it says.
    let in_files = match bytes == taken_bytes {
        true => in_files.min(acknowledged).min(taken),
        false => taken.saturating_sub(1).min(in_files),
    };
    Ok(Written {
        taken,
        in_files,
        files: rows.len() as u64,
        worker_bytes,
    })
}

fn begin(config: EngineConfig) -> Result<Running, EngineRunError> {
    let (sender, wakes) = sync_channel(1);
    let wake: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
        let _ = sender.try_send(()); // A wake that is pending already need not be repeated.
    });
    let (engine, _) = Engine::open(config, &|_: &mut dyn Read| Ok(None), &wake)?;
    Ok(Running {
        engine,
        wakes,
        start: Instant::now(),
        speed: 1.0,
        acknowledged: 0,
        taken_records: 0,
        taken_bytes: 0,
    })
}

fn config(
    folder: &Path,
    writing: &Writing,
    choice: Choice,
    offered: &Offered,
    seed: u64,
) -> Result<EngineConfig, EngineRunError> {
    let limits = Limits {
        bytes: u64::MAX,
        records: u64::MAX,
        age: Duration::MAX,
    };
    let streams = (0..offered.streams()).map(|stream| StreamConfig {
        name: format!("s{}", stream + 1),
        limits,
    });
    let assignment = choice.assignment();
    let is_striped = assignment.unit == Unit::Segment;
    Ok(EngineConfig {
        folder: folder.to_owned(),
        writer: WriterConfig {
            project: "lab".to_owned(),
            node: "w-0".to_owned(),
            template: Template::parse(Template::DEFAULT).map_err(WriterError::from)?,
            workers: writing.workers,
            assignment,
            segment_bytes: SEGMENT_BYTES,
            record_bytes_max: u64::MAX,
            kinds: Kinds::default(),
            sync_every: None,
            streams: streams.collect(),
            seed,
        },
        // The disk is not what is asked.
        durability: Durability::None,
        mode: None,
        queue_bytes: match is_striped {
            true => SEGMENTS_QUEUE_BYTES,
            false => QUEUE_BYTES,
        },
        queue_records: QUEUE_RECORDS,
        labels: Labels::default(),
        worker_bytes_per_s: Some(((writing.worker_mb_s * 1e6 / writing.scale) as u64).max(1)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a flat mix through four workers, in three short blocks.
    fn taken(assignment: &str) -> Taken {
        let writing = Writing {
            mix: "flat".to_owned(),
            assignment: assignment.to_owned(),
            block_s: 0.1,
            record_bytes: 10_000,
            ..Writing::default()
        };
        let folder = tempfile::tempdir().expect("a folder");
        let taken = run(&writing, 0.3, 1, folder.path()).expect("runs");
        let left = fs::read_dir(folder.path()).expect("it is there").count();
        assert_eq!(left, 0, "files of a run are removed");
        taken
    }

    #[test]
    fn every_record_of_a_run_is_in_a_file() {
        for assignment in ["joint-2", "open-rate", "striped"] {
            let taken = taken(assignment);
            assert!(taken.records > 100, "{assignment}: {}", taken.records);
            assert_eq!(taken.lost, 0, "{assignment}");
            let result = &taken.result;
            assert!(result.mb_per_s > 0.0 && result.files >= 23, "{assignment}");
            assert!((0.25..=1.0).contains(&result.fullest), "{assignment}");
            assert_eq!(result.bytes.len(), 4, "{assignment}");
        }
    }

    #[test]
    fn joint_streams_are_written_by_their_worker_alone() {
        // 25 and 22 of 100 bytes in the two first streams, 53 at three workers.
        let taken = taken("joint-2");
        let sum: u64 = taken.result.bytes.iter().sum();
        let share = taken.result.bytes[0] as f64 / sum as f64;
        // Four standard deviations of so many draws; without a worker of their own the share would be a quarter.
        let error = 4.0 * 0.5 / (taken.records as f64).sqrt();
        assert!(
            (share - 0.47).abs() < error.min(0.2),
            "{share} of {} records",
            taken.records
        );
    }

    #[test]
    fn a_trace_is_scaled_in_time_and_bytes() {
        let trace = Trace::parse("0,a,600000\n30,b,300000\n").expect("a trace");
        let writing = Writing {
            block_s: 2.0,
            scale: 10.0,
            ..Writing::default()
        };
        let mut offered = Offered::new(Input::Trace(trace), &writing, 1);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut next = || {
            offered
                .next(0, &mut rng)
                .map(|it| (it.due, it.stream.0, it.bytes))
        };
        assert_eq!(next(), Some((Duration::ZERO, 0, 2000)));
        assert_eq!(next(), Some((Duration::from_secs(1), 1, 1000)));
        assert_eq!(next(), None);
    }
}
