//! Writers in virtual time: the brain of `sheaf-write` with workers of a stated rate.
//!
//! The model is that of ATLAS' data loggers ("Automated load balancing in the ATLAS high-performance storage software",
//! 2017): records come in one order, each belongs to the file of its stream and block, a worker writes what it has in
//! its queue at a fixed rate, and the input waits while the queue of the next record's worker is full. One worker of
//! 615 MB/s fits all four rates of the slides (865, 797, 760 and 882 MB/s) within 1.5 %: rate = worker ÷ share of the
//! fullest.

use rand::{RngExt as _, SeedableRng as _};
use rand_distr::{Distribution as _, LogNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;
use sheaf_placement::TargetId;
use sheaf_protocol::{Timestamp, splitmix};
use sheaf_write::{
    Action, Assignment, FileId, Kinds, Limits, Place, Segment, StreamConfig, StreamId, Sums,
    Template, Writer, WriterConfig, WriterError,
};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use thiserror::Error;

/// Bytes of a MB.
const MB: f64 = 1e6;
const NS: f64 = 1e9;

/// Streams and their shares of the bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mix {
    /// Name in reports.
    pub name: String,
    /// Shares, largest first; they add up to 1.
    pub shares: Vec<f64>,
    /// Spread of the shares from block to block: sigma of a lognormal factor, 0 for steady ones.
    pub drift: f64,
}

/// Mixes that are there by name: the two of the slides with their unnamed minor streams, and a flat one.
pub const MIXES: [(&str, &[f64], usize); 3] = [
    ("sfo-2016", &[0.70, 0.07, 0.05], 20),
    ("sfo-2015", &[0.80, 0.06, 0.03], 20),
    ("flat", &[0.25, 0.22, 0.20], 20),
];

impl Mix {
    /// Finds a mix by name.
    #[must_use]
    pub fn named(name: &str, drift: f64) -> Option<Self> {
        let (name, major, minor) = MIXES.into_iter().find(|(known, ..)| *known == name)?;
        let left = 1.0 - major.iter().sum::<f64>();
        let minor_share = left / minor as f64;
        let shares = major.iter().copied();
        Some(Self {
            name: name.to_owned(),
            shares: shares
                .chain(std::iter::repeat_n(minor_share, minor))
                .collect(),
            drift,
        })
    }

    /// Returns the shares in one block.
    fn in_block(&self, rng: &mut Xoshiro256PlusPlus) -> Vec<f64> {
        let Some(factor) = (self.drift > 0.0)
            .then(|| LogNormal::new(0.0, self.drift).ok())
            .flatten()
        else {
            return self.shares.clone();
        };
        let drawn: Vec<f64> = self
            .shares
            .iter()
            .map(|share| share * factor.sample(rng))
            .collect();
        let sum: f64 = drawn.iter().sum();
        drawn.iter().map(|share| share / sum).collect()
    }
}

/// Record of a recorded trace: when it was offered, its stream, its bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traced {
    /// Seconds since the beginning of the trace.
    pub at_s: f64,
    /// Number of the stream.
    pub stream: u16,
    /// Bytes.
    pub bytes: u64,
}

/// Input of a run.
#[derive(Clone, Debug)]
pub enum Input {
    /// Records as fast as they are taken, drawn from a mix, for so many blocks.
    Mix {
        /// The mix.
        mix: Mix,
        /// Blocks.
        blocks: u64,
    },
    /// Records of a trace, at their times or as soon after them as they are taken.
    Trace {
        /// Records in the order of their times.
        records: Vec<Traced>,
        /// Streams.
        streams: u16,
    },
}

/// Way in which files get their workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// An assignment of the product.
    Of(&'static Assignment),
    /// The first so many streams share one worker, the others have the rest in turn: the conditions of the slides.
    Joint(u16),
}

impl Choice {
    /// Name in reports.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Of(assignment) => assignment.name.to_owned(),
            Self::Joint(1) => "S1 alone".to_owned(),
            Self::Joint(streams) => {
                let names: Vec<String> = (1..=streams).map(|stream| format!("S{stream}")).collect();
                names.join("+") + " together"
            }
        }
    }
}

/// Conditions of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setup {
    /// Workers.
    pub workers: u32,
    /// Rate of each, in MB/s.
    pub worker_mb_s: f64,
    /// Bytes that the queue of a worker may have.
    pub queue_bytes: u64,
    /// Bytes of a record of a mix.
    pub record_bytes: u64,
    /// Bytes of a segment, for assignments of segments.
    pub segment_bytes: u64,
    /// Length of a block, in seconds.
    pub block_s: f64,
    /// Seed of the mix, and of assignments that draw lots.
    pub seed: u64,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            workers: 4,
            worker_mb_s: 615.0,
            queue_bytes: 256 << 20,
            record_bytes: 4_000_000,
            segment_bytes: 16 << 20,
            block_s: 60.0,
            seed: 1,
        }
    }
}

/// Outcome of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Bytes taken ÷ time, in MB/s.
    pub mb_s: f64,
    /// Bound of every assignment of whole files: the rate of one worker ÷ the share of the fullest stream, or that of
    /// all workers together. A mean over the blocks.
    pub file_bound_mb_s: f64,
    /// Share of the bytes of a block that the fullest worker got, a mean over the blocks.
    pub fullest_share: f64,
    /// Longest time that a record waited for its worker, in seconds.
    pub wait_s_max: f64,
    /// Files.
    pub files: u64,
    /// Records.
    pub records: u64,
    /// Records that no file got; 0, or the run is wrong.
    pub lost: u64,
}

/// Why a run cannot begin.
#[derive(Debug, Error)]
pub enum WritersError {
    /// The conditions contradict themselves.
    #[error(transparent)]
    Writer(#[from] WriterError),
    /// Nothing is offered.
    #[error("found no records, expected at least one")]
    Empty,
}

/// Runs `input` through a writer.
///
/// # Errors
///
/// [`WritersError`] if the conditions make no sense.
pub fn run(input: &Input, choice: Choice, setup: Setup) -> Result<Outcome, WritersError> {
    let streams = match input {
        Input::Mix { mix, .. } => u16::try_from(mix.shares.len()).unwrap_or(u16::MAX),
        Input::Trace { streams, .. } => *streams,
    };
    let mut farm = Farm::new(streams, choice, setup)?;
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(setup.seed);
    // Of their own, so that the blocks of a seed are the same for all assignments.
    let mut of_shares = Xoshiro256PlusPlus::seed_from_u64(splitmix::hash(setup.seed));
    let mut bounds = Vec::new();
    match input {
        Input::Mix { mix, blocks } => {
            let end_ns = (*blocks as f64 * setup.block_s * NS) as u64;
            let mut block = u64::MAX;
            let mut shares = Vec::new();
            while farm.now.0 < end_ns {
                if farm.block() != block {
                    block = farm.block();
                    shares = mix.in_block(&mut of_shares);
                    bounds.push(file_bound(&shares, setup));
                }
                farm.take(stream_of(&shares, rng.random()), setup.record_bytes);
            }
        }
        Input::Trace { records, .. } => {
            let mut totals = vec![0.0; usize::from(streams)];
            for record in records {
                let at = Timestamp((record.at_s.max(0.0) * NS) as u64);
                farm.now = farm.now.max(at);
                totals[usize::from(record.stream)] += record.bytes as f64;
                farm.take(StreamId(record.stream), record.bytes);
            }
            let sum: f64 = totals.iter().sum();
            let shares: Vec<f64> = totals.iter().map(|bytes| bytes / sum.max(1.0)).collect();
            bounds.push(file_bound(&shares, setup));
        }
    }
    farm.outcome(&bounds)
}

/// Draws a stream by its share.
fn stream_of(shares: &[f64], lot: f64) -> StreamId {
    let mut sum = 0.0;
    let last = shares.len().saturating_sub(1);
    let found = shares.iter().position(|share| {
        sum += share;
        lot < sum
    });
    StreamId(u16::try_from(found.unwrap_or(last)).unwrap_or(u16::MAX))
}

fn file_bound(shares: &[f64], setup: Setup) -> f64 {
    let fullest = shares.iter().copied().fold(0.0, f64::max);
    setup.worker_mb_s / fullest.max(1.0 / f64::from(setup.workers))
}

/// A record in the queue of a worker.
struct Queued {
    done_at: Timestamp,
    segment: Segment,
    bytes: u64,
}

/// A worker.
#[derive(Default)]
struct Hand {
    busy_until: Timestamp,
    /// Bytes of this block.
    bytes: u64,
    queue: VecDeque<Queued>,
}

struct Farm {
    writer: Writer<u64>,
    choice: Choice,
    setup: Setup,
    now: Timestamp,
    hands: Vec<Hand>,
    /// Bytes of each segment under way.
    segments: BTreeMap<(FileId, u32), u64>,
    offered: u64,
    bytes: u64,
    wait: Duration,
    /// The block that the bytes of the workers are of, and the shares of the fullest one in those before it.
    last_block: u64,
    fullest: Vec<f64>,
}

impl Farm {
    fn new(streams: u16, choice: Choice, setup: Setup) -> Result<Self, WriterError> {
        let limits = Limits {
            bytes: u64::MAX,
            records: u64::MAX,
            age: Duration::MAX,
        };
        let assignment = match choice {
            Choice::Of(assignment) => assignment,
            // Its choices are not used.
            Choice::Joint(_) => Assignment::named("round-robin").expect("it is in the table"),
        };
        let names = (0..streams).map(|stream| StreamConfig {
            name: format!("s{}", stream + 1),
            limits,
        });
        let writer = Writer::new(WriterConfig {
            project: "sim".to_owned(),
            node: "w-0".to_owned(),
            template: Template::parse(Template::DEFAULT).expect("the default is good"),
            workers: setup.workers,
            assignment,
            segment_bytes: setup.segment_bytes,
            record_bytes_max: u64::MAX,
            kinds: Kinds::default(),
            sync_every: None,
            streams: names.collect(),
            seed: setup.seed,
        })?;
        Ok(Self {
            writer,
            choice,
            setup,
            now: Timestamp(0),
            hands: (0..setup.workers).map(|_| Hand::default()).collect(),
            segments: BTreeMap::new(),
            offered: 0,
            bytes: 0,
            wait: Duration::ZERO,
            last_block: 0,
            fullest: Vec::new(),
        })
    }

    fn block(&self) -> u64 {
        (self.now.0 as f64 / NS / self.setup.block_s) as u64
    }

    /// Notes the share of the fullest worker of a block.
    fn end_block(&mut self) {
        let bytes = |hand: &Hand| hand.bytes as f64;
        let sum: f64 = self.hands.iter().map(bytes).sum();
        let most = self.hands.iter().map(bytes).fold(0.0, f64::max);
        if sum > 0.0 {
            self.fullest.push(most / sum);
        }
        for hand in &mut self.hands {
            hand.bytes = 0;
        }
    }

    fn time_of(&self, bytes: u64) -> Duration {
        Duration::from_secs_f64(bytes as f64 / MB / self.setup.worker_mb_s)
    }

    /// Takes a record as soon as the queue of its worker has room.
    fn take(&mut self, stream: StreamId, bytes: u64) {
        self.complete(self.now);
        if self.block() != self.last_block {
            self.end_block();
            self.last_block = self.block();
        }
        let place = Place {
            run: 1,
            stream,
            block: self.block(),
        };
        self.offered += 1;
        if self
            .writer
            .handle_record(self.now, place, bytes, bytes)
            .is_err()
        {
            return;
        }
        self.bytes += bytes;
        self.act();
    }

    /// Reports to the brain what is written by `now`.
    fn complete(&mut self, now: Timestamp) {
        for at in 0..self.hands.len() {
            while self.hands[at]
                .queue
                .front()
                .is_some_and(|first| first.done_at <= now)
            {
                let done = self.hands[at].queue.pop_front().expect("it is there");
                let key = (done.segment.file, done.segment.index);
                let written = self.segments.entry(key).or_default();
                *written += done.bytes;
                let sums = Sums {
                    bytes: *written,
                    ..Sums::empty(Kinds::default())
                };
                self.writer
                    .handle_written(done.done_at, done.segment, 1, sums);
            }
        }
    }

    fn act(&mut self) {
        while let Some(action) = self.writer.poll_action() {
            match action {
                Action::Write {
                    segment, payload, ..
                } => self.queue(segment, payload),
                Action::Close { closed, .. } => {
                    self.segments.retain(|(file, _), _| *file != closed.file);
                    self.writer.handle_closed(closed.file);
                }
                Action::Open(_) | Action::Sync { .. } => {}
            }
        }
    }

    fn queue(&mut self, segment: Segment, bytes: u64) {
        let worker = match self.choice {
            Choice::Of(_) => segment.worker.0,
            Choice::Joint(streams) => self.joint_worker(segment.file, streams),
        } as usize;
        // Room is there when the queue, which shrinks at the rate of the worker, has so much less.
        let room = self.time_of(self.setup.queue_bytes.saturating_sub(bytes));
        let hand = &self.hands[worker];
        let busy_for = hand.busy_until.since(self.now);
        let wait = busy_for.saturating_sub(room);
        self.wait = self.wait.max(wait);
        self.now = self.now + wait;
        let done_at = hand.busy_until.max(self.now) + self.time_of(bytes);
        let segment = Segment {
            // The brain releases the booking of the worker that it has chosen.
            worker: TargetId(segment.worker.0),
            ..segment
        };
        let hand = &mut self.hands[worker];
        hand.busy_until = done_at;
        hand.bytes += bytes;
        hand.queue.push_back(Queued {
            done_at,
            segment,
            bytes,
        });
    }

    /// Worker of a file where the first `joint` streams share worker 0.
    fn joint_worker(&self, file: FileId, joint: u16) -> u32 {
        let stream = self.writer.stream_of(file).map_or(0, |stream| stream.0);
        let others = self.setup.workers.saturating_sub(1);
        if stream < joint || others == 0 {
            return 0;
        }
        1 + u32::from(stream - joint) % others
    }

    fn outcome(mut self, bounds: &[f64]) -> Result<Outcome, WritersError> {
        if self.offered == 0 {
            return Err(WritersError::Empty);
        }
        let taken_at = self.now;
        let bytes: u64 = self.bytes;
        let last = self.hands.iter().map(|hand| hand.busy_until).max();
        let last = last.unwrap_or(taken_at).max(taken_at);
        self.writer.handle_finish();
        self.complete(last);
        self.act();
        let streams = self.writer.config().streams.len();
        let counts = (0..)
            .take(streams)
            .map(|it| self.writer.counts(StreamId(it)));
        let (mut written, mut files) = (0, 0);
        for count in counts {
            written += count.written_records;
            files += count.files_closed;
        }
        self.end_block();
        let blocks = self.fullest.len().max(1) as f64;
        // Records in the queues at the end are not written yet: the time is that of the last of them.
        Ok(Outcome {
            mb_s: bytes as f64 / MB / (last.0 as f64 / NS),
            file_bound_mb_s: bounds.iter().sum::<f64>() / bounds.len().max(1) as f64,
            fullest_share: self.fullest.iter().sum::<f64>() / blocks,
            wait_s_max: self.wait.as_secs_f64(),
            files,
            records: written,
            lost: self.offered - written,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(mix: &str, choice: Choice, workers: u32) -> f64 {
        let input = Input::Mix {
            mix: Mix::named(mix, 0.0).expect("a mix"),
            blocks: 40,
        };
        let setup = Setup {
            workers,
            ..Setup::default()
        };
        let outcome = run(&input, choice, setup).expect("runs");
        assert_eq!(outcome.lost, 0);
        assert!(outcome.mb_s <= f64::from(workers) * setup.worker_mb_s * 1.001);
        outcome.mb_s
    }

    fn of(name: &str) -> Choice {
        Choice::Of(Assignment::named(name).expect(name))
    }

    /// Compares with a rate in MB/s, within a share of it.
    fn check(found: f64, expected: f64, within: f64) {
        let off = (found / expected - 1.0).abs();
        assert!(
            off <= within,
            "{found:.0} MB/s, expected {expected} ± {within}"
        );
    }

    #[test]
    fn the_law_of_the_slides_holds() {
        // 865, 797 and 760 MB/s in the slides; 615 MB/s ÷ share of the fullest worker.
        for (joint, expected) in [(1, 865.0), (2, 797.0), (3, 760.0)] {
            check(rate("sfo-2016", Choice::Joint(joint), 6), expected, 0.02);
        }
    }

    #[test]
    fn assignments_stand_in_the_order_of_the_research() {
        // Section 3.7 of the research: a fluid model of the same mix, four workers.
        check(rate("sfo-2016", of("open-rate"), 4), 879.0, 0.01);
        check(rate("sfo-2016", of("window-and-stream"), 4), 864.0, 0.03);
        check(rate("sfo-2016", of("round-robin"), 4), 812.0, 0.05);
        // Only segments go beyond one worker ÷ share.
        check(rate("sfo-2016", of("striped"), 4), 4.0 * 615.0, 0.03);
        let two = rate("sfo-2016", of("window"), 2);
        assert!(
            two < rate("sfo-2016", of("round-robin"), 2),
            "files herd: {two}"
        );
    }

    #[test]
    fn a_trace_is_taken_at_its_own_rate_if_the_workers_can() {
        let records: Vec<Traced> = (0..1000)
            .map(|at| Traced {
                at_s: f64::from(at) * 0.1,
                stream: (at % 3) as u16,
                bytes: 10_000_000,
            })
            .collect();
        let input = Input::Trace {
            records,
            streams: 3,
        };
        let outcome = run(&input, of("open-rate"), Setup::default()).expect("runs");
        check(outcome.mb_s, 100.0, 0.01);
        assert_eq!((outcome.lost, outcome.records), (0, 1000));
        let none = Input::Trace {
            records: Vec::new(),
            streams: 1,
        };
        assert!(matches!(
            run(&none, of("striped"), Setup::default()),
            Err(WritersError::Empty)
        ));
    }

    #[test]
    fn equal_seeds_give_equal_runs() {
        let once = || {
            let input = Input::Mix {
                mix: Mix::named("flat", 0.25).expect("a mix"),
                blocks: 5,
            };
            run(&input, of("random"), Setup::default()).expect("runs")
        };
        assert_eq!(once(), once());
    }
}
