//! Assignment of files, or of their segments, to workers.
//!
//! A row of the table names a policy of [`sheaf_placement`] and the load that it reads. ATLAS' data loggers write
//! a file by one thread, so the total rate is that of one thread divided by the share of the fullest one: the rows but
//! the last are ways to keep that share small. The last one cuts files in segments, and has no such bound.

use crate::id::StreamId;
use sheaf_placement::{Finished, Job, LoadView, Policy, TargetId, TargetLoad, policy};
use sheaf_protocol::Timestamp;
use std::collections::BTreeMap;
use thiserror::Error;

/// Unit that gets a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A whole file.
    File,
    /// A segment of a file: any worker takes the next one.
    Segment,
}

/// Load that the policy of an assignment reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    /// Nothing.
    None,
    /// Bytes that each worker got in the last 5 s.
    Window,
    /// The same, and at once the bytes of the stream in the last 5 s for a file that is assigned.
    WindowAndStream,
    /// Expected rates of the streams whose files are open at each worker.
    OpenRate,
    /// Bytes that wait at each worker.
    Queued,
}

/// Way to assign files or segments to workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Name in farm files, metrics and reports, such as `"open-rate"`.
    pub name: &'static str,
    /// Meaning in one line.
    pub about: &'static str,
    /// Unit that gets a worker.
    pub unit: Unit,
    /// Name of the policy in [`sheaf_placement::policy::TABLE`].
    pub policy: &'static str,
    load: Load,
}

/// Table of all assignments.
const TABLE: &[Assignment] = &[
    Assignment {
        name: "round-robin",
        about: "files to workers in turn",
        unit: Unit::File,
        policy: "round-robin",
        load: Load::None,
    },
    Assignment {
        name: "random",
        about: "each file to a worker drawn by lot",
        unit: Unit::File,
        policy: "random",
        load: Load::None,
    },
    Assignment {
        name: "window",
        about: "each file to the worker with the fewest bytes of the last 5 s",
        unit: Unit::File,
        policy: "weighted",
        load: Load::Window,
    },
    Assignment {
        name: "window-and-stream",
        about: "the rule of ATLAS: as window, and a file counts at once with the last 5 s of its stream",
        unit: Unit::File,
        policy: "weighted",
        load: Load::WindowAndStream,
    },
    Assignment {
        name: "open-rate",
        about: "each file to the worker with the smallest expected rate of the files that are open there",
        unit: Unit::File,
        policy: "weighted",
        load: Load::OpenRate,
    },
    Assignment {
        name: "striped",
        about: "files in segments, each to the worker with the fewest bytes in its queue",
        unit: Unit::Segment,
        policy: "weighted",
        load: Load::Queued,
    },
];

/// Returns all assignments, in the order of the documentation.
#[must_use]
pub fn assignments() -> &'static [Assignment] {
    TABLE
}

/// Error for a name that no assignment has.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("assignment `{name}`, expected one of {}", names())]
pub struct UnknownAssignment {
    /// Name that was asked for.
    pub name: String,
}

fn names() -> String {
    let names: Vec<&str> = TABLE.iter().map(|row| row.name).collect();
    names.join(", ")
}

impl Assignment {
    /// Finds the assignment that is called `name`.
    ///
    /// # Errors
    ///
    /// [`UnknownAssignment`], which lists the names.
    pub fn named(name: &str) -> Result<&'static Self, UnknownAssignment> {
        let found = TABLE.iter().find(|row| row.name == name);
        found.ok_or_else(|| UnknownAssignment {
            name: name.to_owned(),
        })
    }
}

/// Room of a worker: as much as it likes.
const UNBOUNDED: u64 = u64::MAX;

/// Chooser of workers, by one assignment.
pub(crate) struct Assigner {
    assignment: &'static Assignment,
    policy: Box<dyn Policy>,
    /// Workers, with what the load of the assignment is.
    workers: LoadView,
    /// Shares of the workers, in thousandths of one.
    weights: Vec<u32>,
    /// Streams as targets of their own, for the bytes of each in the window.
    streams: LoadView,
    /// Last rate above 0 of each stream, in bytes of a window.
    expected: BTreeMap<StreamId, u64>,
    /// Newest file of each stream: the worker that has it.
    open: BTreeMap<StreamId, TargetId>,
    /// Workers of streams that the assignment has no say in.
    pinned: BTreeMap<StreamId, TargetId>,
    /// Choices so far: the ids of their jobs.
    choices: u64,
}

impl std::fmt::Debug for Assigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Assigner")
            .field("assignment", &self.assignment.name)
            .finish_non_exhaustive()
    }
}

impl Assigner {
    /// Creates a chooser among `workers` workers for `streams` streams.
    pub(crate) fn new(
        assignment: &'static Assignment,
        workers: u32,
        streams: u32,
        seed: u64,
    ) -> Self {
        Self {
            assignment,
            policy: policy::by_name(assignment.policy, seed)
                .expect("the table names policies of placement"),
            workers: view_of(workers as usize),
            weights: vec![1000; workers as usize],
            streams: view_of(streams as usize),
            expected: BTreeMap::new(),
            open: BTreeMap::new(),
            pinned: BTreeMap::new(),
            choices: 0,
        }
    }

    /// Gives all that is chosen from now on for `stream` to `worker`.
    pub(crate) fn pin(&mut self, stream: StreamId, worker: TargetId) {
        self.pinned.insert(stream, worker);
    }

    pub(crate) fn unit(&self) -> Unit {
        self.assignment.unit
    }

    /// Chooses the worker of a new file, or of a new segment, of `stream`.
    pub(crate) fn choose(&mut self, now: Timestamp, stream: StreamId) -> TargetId {
        let chosen = self.choose_beside(now, stream, &[]);
        chosen.expect("a worker has room for everything")
    }

    /// Chooses as [`choose`](Self::choose) does, among the workers that are not in `avoid`; `None` if all are.
    pub(crate) fn choose_beside(
        &mut self,
        now: Timestamp,
        stream: StreamId,
        avoid: &[TargetId],
    ) -> Option<TargetId> {
        if self.assignment.load == Load::OpenRate {
            self.open.remove(&stream);
            self.book_open(now);
        }
        let job = Job {
            id: self.choices,
            bytes: 0,
            avoid,
            is_early: false,
        };
        self.choices += 1;
        let pinned = self.pinned.get(&stream).copied();
        let worker = match pinned.filter(|pinned| !avoid.contains(pinned)) {
            Some(pinned) => pinned,
            None => self.policy.choose(now, &job, &self.workers).ok()?,
        };
        match self.assignment.load {
            Load::WindowAndStream => {
                let bytes = self.window_of(now, stream);
                self.workers.observe(worker, &done_now(now, bytes));
            }
            Load::OpenRate => {
                self.open.insert(stream, worker);
            }
            Load::None | Load::Window | Load::Queued => {}
        }
        Some(worker)
    }

    /// Sets the share of a worker beside others, which is 1000 at first.
    pub(crate) fn set_weight(&mut self, worker: TargetId, weight_milli: u32) {
        if let Some(weight) = self.weights.get_mut(worker.0 as usize) {
            *weight = weight_milli;
            self.workers.set_weight(worker, weight_milli);
        }
    }

    /// Notes `bytes` of `stream` that `worker` gets.
    pub(crate) fn handle_given(
        &mut self,
        now: Timestamp,
        stream: StreamId,
        worker: TargetId,
        bytes: u64,
    ) {
        match self.assignment.load {
            Load::None => {}
            Load::Window => self.workers.observe(worker, &done_now(now, bytes)),
            Load::WindowAndStream => {
                self.workers.observe(worker, &done_now(now, bytes));
                self.streams
                    .observe(TargetId(stream.0.into()), &done_now(now, bytes));
            }
            Load::OpenRate => {
                self.streams
                    .observe(TargetId(stream.0.into()), &done_now(now, bytes));
            }
            Load::Queued => self.workers.book(worker, bytes),
        }
    }

    /// Notes that `worker` has written `bytes`, one record.
    pub(crate) fn handle_written(&mut self, worker: TargetId, bytes: u64) {
        if self.assignment.load == Load::Queued {
            self.workers.release(worker, bytes);
        }
    }

    /// Notes that the newest file of `stream` is closed without a next one.
    pub(crate) fn handle_closed(&mut self, stream: StreamId) {
        self.open.remove(&stream);
    }

    /// Books the expected rates of all streams at the workers that have their newest files.
    fn book_open(&mut self, now: Timestamp) {
        // From the start, as the rates have changed.
        self.workers = view_of(self.weights.len());
        for (id, weight) in (0..).zip(&self.weights) {
            self.workers.set_weight(TargetId(id), *weight);
        }
        let open: Vec<(StreamId, TargetId)> = self
            .open
            .iter()
            .map(|(stream, id)| (*stream, *id))
            .collect();
        for (stream, worker) in open {
            let rate = self.expected_of(now, stream);
            self.workers.book(worker, rate);
        }
    }

    /// Returns the bytes of `stream` that are expected in a window: those of the last one; of a stream that pauses what
    /// it had before; of a new one a mean of the others. At least 1, so that files without a rate are spread as well.
    fn expected_of(&mut self, now: Timestamp, stream: StreamId) -> u64 {
        let seen = self.window_of(now, stream);
        if seen > 0 {
            self.expected.insert(stream, seen);
            return seen;
        }
        let known = self.expected.get(&stream).copied();
        let mean = || {
            let sum: u128 = self.expected.values().map(|bytes| u128::from(*bytes)).sum();
            u64::try_from(sum / self.expected.len().max(1) as u128).unwrap_or(u64::MAX)
        };
        known.unwrap_or_else(mean).max(1)
    }

    /// Returns the bytes of `stream` in the last window.
    fn window_of(&self, now: Timestamp, stream: StreamId) -> u64 {
        let measured = self.streams.measured_of(TargetId(stream.0.into()));
        measured.map_or(0, |measured| measured.window_bytes(now))
    }
}

/// Returns `targets` targets without load.
fn view_of(targets: usize) -> LoadView {
    let mut view = LoadView::new();
    for id in (0..).take(targets) {
        view.insert(TargetLoad::new(TargetId(id), UNBOUNDED, u32::MAX));
    }
    view
}

fn done_now(now: Timestamp, bytes: u64) -> Finished {
    Finished {
        bytes,
        placed_at: now,
        arrived_at: now,
        done_at: now,
    }
}
