//! Writers in virtual time: the brain of `sheaf-write` with workers of a stated rate.
//!
//! The model is that of ATLAS' data loggers ("Automated load balancing in the ATLAS high-performance storage software",
//! 2017): records come in one order, each belongs to the file of its stream and block, a worker writes what it has in
//! its queue at a fixed rate, and the input waits while the queue of the next record's worker is full. One worker of
//! 615 MB/s fits all four rates of the slides (865, 797, 760 and 882 MB/s) within 1.5 %: rate = worker ÷ share of the
//! fullest.

mod fleet;
mod mix;
mod trace;

pub use fleet::{Fleet, FleetError, FleetOutcome};
pub use mix::{MIXES, Mix, UnknownMix, file_bound, stream_of};
pub use trace::{Trace, TraceError, Traced};

use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;
use sheaf_placement::TargetId;
use sheaf_protocol::Timestamp;
use sheaf_write::{
    Action, Assignment, FileId, Kinds, Limits, Place, Segment, StreamConfig, StreamId, Sums,
    Template, Writer, WriterConfig, WriterError, assignments,
};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use thiserror::Error;

/// Bytes of a MB.
const MB: f64 = 1e6;
const NS: f64 = 1e9;

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
    Trace(Trace),
}

/// Way in which files get their workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// An assignment of the product.
    Of(&'static Assignment),
    /// The first so many streams share one worker, the others have the rest in turn: the conditions of the slides.
    Joint(u16),
}

/// Prefix of the names of [`Choice::Joint`].
const JOINT: &str = "joint-";
/// Largest number of streams that share a worker by name.
const JOINT_MAX: u16 = 3;

/// Error for a name that no choice has.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("assignment `{name}`, expected one of {}", Choice::names().join(", "))]
pub struct UnknownChoice {
    /// Name that was asked for.
    pub name: String,
}

impl Choice {
    /// Finds a choice by its name in files: `joint-1` to `joint-3`, or an assignment of the product.
    ///
    /// # Errors
    ///
    /// [`UnknownChoice`], which lists the names.
    pub fn named(name: &str) -> Result<Self, UnknownChoice> {
        let joint = name.strip_prefix(JOINT).and_then(|end| end.parse().ok());
        if let Some(streams) = joint.filter(|streams| (1..=JOINT_MAX).contains(streams)) {
            return Ok(Self::Joint(streams));
        }
        let assignment = Assignment::named(name).map_err(|_| UnknownChoice {
            name: name.to_owned(),
        })?;
        Ok(Self::Of(assignment))
    }

    /// Returns the names of all choices.
    #[must_use]
    pub fn names() -> Vec<String> {
        let joint = (1..=JOINT_MAX).map(|streams| format!("{JOINT}{streams}"));
        let own = assignments().iter().map(|row| row.name.to_owned());
        joint.chain(own).collect()
    }

    /// Returns the assignment of the product that is in force beneath.
    #[must_use]
    pub fn assignment(self) -> &'static Assignment {
        match self {
            Self::Of(assignment) => assignment,
            // Its choices are not used: all streams are pinned.
            Self::Joint(_) => Assignment::named("round-robin").expect("it is in the table"),
        }
    }

    /// Returns the worker of each stream, where the choice states it.
    #[must_use]
    pub fn pins(self, streams: u16, workers: u32) -> Vec<(StreamId, TargetId)> {
        let Self::Joint(joint) = self else {
            return Vec::new();
        };
        let others = workers.saturating_sub(1);
        let worker_of = |stream: u16| match others {
            0 => 0,
            _ if stream < joint => 0,
            _ => 1 + u32::from(stream - joint) % others,
        };
        let pin = |stream| (StreamId(stream), TargetId(worker_of(stream)));
        (0..streams).map(pin).collect()
    }

    /// Returns the rate in MB/s that ATLAS' slides have for it, with their mix of 2016. With how many threads, they do
    /// not say.
    #[must_use]
    pub fn published(self, mix: &str) -> Option<u32> {
        let mb_s = match self {
            Self::Joint(1) => 865,
            Self::Joint(2) => 797,
            Self::Joint(3) => 760,
            Self::Of(row) if row.name == "round-robin" => 865,
            Self::Of(row) if row.name == "window-and-stream" => 882,
            _ => return None,
        };
        (mix == "sfo-2016").then_some(mb_s)
    }

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

impl Setup {
    /// Returns the bound of whole files for these shares.
    #[must_use]
    pub fn file_bound(&self, shares: &[f64]) -> f64 {
        file_bound(shares, self.worker_mb_s, self.workers)
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
        Input::Trace(trace) => trace.streams,
    };
    let mut farm = Farm::new(streams, choice, setup)?;
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(setup.seed);
    let mut bounds = Vec::new();
    match input {
        Input::Mix { mix, blocks } => {
            let end_ns = (*blocks as f64 * setup.block_s * NS) as u64;
            let mut of_blocks = mix.blocks(setup.seed);
            let mut block = u64::MAX;
            let mut shares = Vec::new();
            while farm.now.0 < end_ns {
                if farm.block() != block {
                    block = farm.block();
                    shares = of_blocks.next().unwrap_or_default();
                    bounds.push(setup.file_bound(&shares));
                }
                farm.take(stream_of(&shares, rng.random()), setup.record_bytes);
            }
        }
        Input::Trace(trace) => {
            for record in &trace.records {
                let at = Timestamp((record.at_s.max(0.0) * NS) as u64);
                farm.now = farm.now.max(at);
                farm.take(StreamId(record.stream), record.bytes);
            }
            bounds.push(setup.file_bound(&trace.shares()));
        }
    }
    farm.outcome(&bounds)
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
    setup: Setup,
    now: Timestamp,
    hands: Vec<Hand>,
    /// Bytes of each segment under way.
    segments: BTreeMap<(FileId, u32), u64>,
    offered: u64,
    bytes: u64,
    wait: Duration,
    /// When the newest record is written.
    last_done: Timestamp,
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
        let names = (0..streams).map(|stream| StreamConfig {
            name: format!("s{}", stream + 1),
            limits,
        });
        let mut writer = Writer::new(WriterConfig {
            project: "sim".to_owned(),
            node: "w-0".to_owned(),
            template: Template::parse(Template::DEFAULT).expect("the default is good"),
            workers: setup.workers,
            assignment: choice.assignment(),
            segment_bytes: setup.segment_bytes,
            record_bytes_max: u64::MAX,
            kinds: Kinds::default(),
            sync_every: None,
            streams: names.collect(),
            seed: setup.seed,
        })?;
        for (stream, worker) in choice.pins(streams, setup.workers) {
            writer.pin(stream, worker)?;
        }
        Ok(Self {
            writer,
            setup,
            now: Timestamp(0),
            hands: (0..setup.workers).map(|_| Hand::default()).collect(),
            segments: BTreeMap::new(),
            offered: 0,
            bytes: 0,
            wait: Duration::ZERO,
            last_done: Timestamp(0),
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
        let worker = segment.worker.0 as usize;
        // Room is there when the queue, which shrinks at the rate of the worker, has so much less.
        let room = self.time_of(self.setup.queue_bytes.saturating_sub(bytes));
        let hand = &self.hands[worker];
        let busy_for = hand.busy_until.since(self.now);
        let wait = busy_for.saturating_sub(room);
        self.wait = self.wait.max(wait);
        self.now = self.now + wait;
        let done_at = hand.busy_until.max(self.now) + self.time_of(bytes);
        self.last_done = done_at;
        let hand = &mut self.hands[worker];
        hand.busy_until = done_at;
        hand.bytes += bytes;
        hand.queue.push_back(Queued {
            done_at,
            segment,
            bytes,
        });
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
        let input = Input::Trace(Trace {
            records,
            streams: 3,
        });
        let outcome = run(&input, of("open-rate"), Setup::default()).expect("runs");
        check(outcome.mb_s, 100.0, 0.01);
        assert_eq!((outcome.lost, outcome.records), (0, 1000));
        let none = Input::Trace(Trace {
            records: Vec::new(),
            streams: 1,
        });
        assert!(matches!(
            run(&none, of("striped"), Setup::default()),
            Err(WritersError::Empty)
        ));
    }

    #[test]
    fn choices_are_found_by_name_and_an_unknown_one_is_answered_with_all() {
        for name in Choice::names() {
            let choice = Choice::named(&name).expect(&name);
            assert_eq!(choice.published("flat"), None, "{name}");
        }
        assert_eq!(Choice::named("joint-2"), Ok(Choice::Joint(2)));
        assert_eq!(Choice::Joint(2).published("sfo-2016"), Some(797));
        for bad in ["joint-0", "joint-4", "joint", ""] {
            let error = Choice::named(bad).unwrap_err().to_string();
            let head = format!("assignment `{bad}`, expected one of joint-1, joint-2, joint-3, r");
            assert!(error.starts_with(&head), "{error}");
        }
    }

    #[test]
    fn joint_streams_share_a_worker_and_the_others_have_the_rest() {
        let pins = |joint, workers| -> Vec<u32> {
            let pins = Choice::Joint(joint).pins(5, workers);
            pins.iter().map(|(_, worker)| worker.0).collect()
        };
        assert_eq!(pins(2, 3), [0, 0, 1, 2, 1]);
        assert_eq!(pins(2, 1), [0; 5]);
        assert!(of("striped").pins(5, 3).is_empty());
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
