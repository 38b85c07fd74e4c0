//! Driver of the brain of a writer: threads, files and reports.

use crate::catalogue::{Catalogue, CatalogueError};
use crate::durability::Durability;
use crate::file::StreamFile;
use crate::folder::Folder;
use crate::label::{Labels, probe_attributes};
use crate::local::{IoMode, LocalFolder, probe};
use crate::lock::{FileLock, lock_file};
use crate::recovery::{Found, RecoverError, Walk, recover};
use crate::ring::Ring;
use crate::worker::{Command, Record, Report, Shared, Worker};
use sheaf_placement::TargetId;
use sheaf_protocol::Timestamp;
use sheaf_write::{
    Action, Counts, FileId, Place, Refused, Segment, StreamId, Sums, Writer, WriterConfig,
    WriterError,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::TryLockError;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thiserror::Error;

/// Name of the file whose lock keeps other writers off a folder.
const LOCK: &str = ".sheaf-writer.lock";
/// Longest wait for a report at the end of an engine before it looks at the time.
const FINISH_STEP: Duration = Duration::from_millis(50);

/// Configuration of an engine.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Folder of the files, which is there.
    pub folder: PathBuf,
    /// Brain of the writer.
    pub writer: WriterConfig,
    /// When data is made durable.
    pub durability: Durability,
    /// Way to the disk; `None`: direct if the folder can.
    pub mode: Option<IoMode>,
    /// Bytes that may be with the workers at once; a record is taken beyond them if nothing else is.
    pub queue_bytes: u64,
    /// Records that may be with the workers at once.
    pub queue_records: u32,
    /// Places of the checksums of closed files beside the catalogue.
    pub labels: Labels,
    /// Rate of each worker in bytes a second, for experiments that emulate slow ones; `None`: as fast as it can.
    pub worker_bytes_per_s: Option<u64>,
}

/// Why an engine cannot begin.
#[derive(Debug, Error)]
pub enum EngineError {
    /// The configuration contradicts itself.
    #[error(transparent)]
    Writer(#[from] WriterError),
    /// Another writer has the folder.
    #[error("another writer has {}: give each writer a folder of its own", folder.display())]
    Locked {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder cannot be written.
    #[error("cannot use the directory {}: {source}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Files of the folder cannot have extended attributes.
    #[error("files in {} can have no extended attributes ({source}): leave xattr out of the labels", folder.display())]
    Attributes {
        /// The folder.
        folder: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The catalogue cannot be used.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// Files that a crash has left cannot be closed.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// The operating system gives no ring for writes.
    #[error("io_uring cannot be used ({0}): take another way of writing")]
    Uring(io::Error),
    /// The operating system gives no thread.
    #[error("cannot start a worker: {0}")]
    Thread(io::Error),
}

/// News of an engine.
#[derive(Debug, PartialEq, Eq)]
pub enum EngineEvent<R> {
    /// A record is written, and all before it in its file.
    Written(R),
    /// Writing fails, and is tried again.
    Trouble(String),
    /// Writing works again.
    Healed,
}

/// State of a file at the engine.
#[derive(Debug)]
struct OpenFile<R> {
    file: Arc<StreamFile>,
    /// Records that are not acknowledged, in the order of the file: when each was taken, and itself once its worker has
    /// given it back.
    waiting: VecDeque<(Timestamp, Option<R>)>,
    /// Number of the first of them, counted over the file.
    first: u64,
    /// Numbers of the records of each segment that its worker has not given back, in their order.
    of_segment: BTreeMap<u32, VecDeque<u64>>,
    /// Workers that have written to it.
    workers: BTreeSet<TargetId>,
}

/// A worker, as the engine sees it.
struct Hand<R> {
    commands: Option<SyncSender<Command<R>>>,
    runner: Option<Runner<R>>,
}

/// Runner of the orders of a worker.
enum Runner<R> {
    Thread(JoinHandle<()>),
    /// The caller, by [`Engine::step`].
    Caller(Box<Worker<R>>),
}

/// Engine of a writer: a brain, and workers that do what it says.
pub struct Engine<R: Record> {
    writer: Writer<R>,
    folder: PathBuf,
    stored: Arc<dyn Folder>,
    mode: IoMode,
    files: BTreeMap<FileId, OpenFile<R>>,
    hands: Vec<Hand<R>>,
    reports: Receiver<Report<R>>,
    shared: Arc<Shared>,
    events: VecDeque<EngineEvent<R>>,
    queue_bytes: u64,
    queue_records: u64,
    /// Bytes and records that are not acknowledged.
    held_bytes: u64,
    held_records: u64,
    /// Bytes that each worker has given back.
    worker_bytes: Vec<u64>,
    _lock: Option<FileLock>,
}

impl<R: Record> std::fmt::Debug for Engine<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

/// Place that an engine writes to.
struct Ground {
    stored: Arc<dyn Folder>,
    mode: IoMode,
    catalogue: Arc<Mutex<Catalogue>>,
    /// Keeps other writers off, on a disk of the machine.
    lock: Option<FileLock>,
}

/// An engine without hands, the workers that are to be its hands, and what a crash has left.
type Begun<R> = (Engine<R>, Vec<Ordered<R>>, Vec<Found>);

/// A worker, and the way to it.
type Ordered<R> = (Worker<R>, SyncSender<Command<R>>);

impl<R: Record> Engine<R> {
    /// Opens an engine on a folder, which no other writer has, and closes what a crash has left there. `walk` finds
    /// whole records in what was not synced. `wake` is called from the workers when [`turn`](Self::turn) has something
    /// new.
    ///
    /// # Errors
    ///
    /// [`EngineError`], before anything is written.
    pub fn open(
        config: EngineConfig,
        walk: &Walk<'_>,
        wake: &Arc<dyn Fn() + Send + Sync>,
    ) -> Result<(Self, Vec<Found>), EngineError> {
        let folder = config.folder.clone();
        let failed = |source| EngineError::Folder {
            folder: folder.clone(),
            source,
        };
        let writer = Writer::new(config.writer.clone())?;
        let lock = lock_file(&folder.join(LOCK)).map_err(|error| match error {
            TryLockError::WouldBlock => EngineError::Locked {
                folder: folder.clone(),
            },
            TryLockError::Error(source) => failed(source),
        })?;
        if config.labels.xattr {
            probe_attributes(&folder.join(LOCK)).map_err(|source| EngineError::Attributes {
                folder: folder.clone(),
                source,
            })?;
        }
        let mode = match config.mode {
            Some(mode) => mode,
            None => probe(&folder).map_err(failed)?,
        };
        let catalogue = Arc::new(Mutex::new(Catalogue::open_as_writer(&folder)?));
        let ground = Ground {
            stored: Arc::new(LocalFolder {
                path: folder,
                labels: config.labels,
            }),
            mode,
            catalogue,
            lock: Some(lock),
        };
        let (mut engine, workers, found) = Self::begin(config, writer, ground, walk, wake)?;
        for ((worker, commands), number) in workers.into_iter().zip(0..) {
            let thread = std::thread::Builder::new()
                .name(format!("write-{number}"))
                .spawn(move || worker.run())
                .map_err(EngineError::Thread)?;
            engine.hands.push(Hand {
                commands: Some(commands),
                runner: Some(Runner::Thread(thread)),
            });
        }
        Ok((engine, found))
    }

    /// Opens an engine without threads, on any folder and catalogue: its workers do something when
    /// [`step`](Self::step) is called, so a run of it can be repeated. For simulations.
    ///
    /// # Errors
    ///
    /// [`EngineError`] of the configuration or the recovery.
    pub fn simulated(
        config: EngineConfig,
        folder: Arc<dyn Folder>,
        catalogue: Arc<Mutex<Catalogue>>,
        walk: &Walk<'_>,
    ) -> Result<(Self, Vec<Found>), EngineError> {
        let writer = Writer::new(config.writer.clone())?;
        let ground = Ground {
            stored: folder,
            mode: config.mode.unwrap_or(IoMode::Direct),
            catalogue,
            lock: None,
        };
        let wake: Arc<dyn Fn() + Send + Sync> = Arc::new(|| {});
        let (mut engine, workers, found) = Self::begin(config, writer, ground, walk, &wake)?;
        let hands = workers.into_iter().map(|(worker, commands)| Hand {
            commands: Some(commands),
            runner: Some(Runner::Caller(Box::new(worker))),
        });
        engine.hands.extend(hands);
        Ok((engine, found))
    }

    /// Recovers the folder, and makes the engine and its workers.
    fn begin(
        config: EngineConfig,
        writer: Writer<R>,
        ground: Ground,
        walk: &Walk<'_>,
        wake: &Arc<dyn Fn() + Send + Sync>,
    ) -> Result<Begun<R>, EngineError> {
        let Ground {
            stored,
            mode,
            catalogue,
            lock,
        } = ground;
        let brain = writer.config();
        let found = {
            let catalogue = catalogue.lock().unwrap_or_else(PoisonError::into_inner);
            recover(&*stored, &catalogue, &brain.template, brain.kinds, walk)?
        };
        let workers = brain.workers;
        let shared = Arc::new(Shared {
            folder: Arc::clone(&stored),
            catalogue,
            durability: config.durability,
            kinds: brain.kinds,
            worker_bytes_per_s: config.worker_bytes_per_s,
            gives_up: AtomicBool::new(false),
        });
        // No channel is ever full: records are bounded, and a record has a few orders at most.
        let bound = 8 * config.queue_records.max(1) as usize + 1024;
        let (sender, reports) = sync_channel(bound);
        let ordered = |_| {
            let (commands, orders) = sync_channel(bound);
            let ring = (mode == IoMode::Uring).then(Ring::new).transpose();
            let worker = Worker::new(
                orders,
                sender.clone(),
                Arc::clone(wake),
                Arc::clone(&shared),
                ring.map_err(EngineError::Uring)?,
            );
            Ok::<Ordered<R>, EngineError>((worker, commands))
        };
        let ordered = (0..workers).map(ordered).collect::<Result<_, _>>()?;
        let engine = Self {
            hands: Vec::new(),
            folder: config.folder,
            stored,
            mode,
            files: BTreeMap::new(),
            reports,
            shared,
            events: VecDeque::new(),
            queue_bytes: config.queue_bytes,
            queue_records: config.queue_records.max(1).into(),
            held_bytes: 0,
            held_records: 0,
            worker_bytes: vec![0; workers as usize],
            _lock: lock,
            writer,
        };
        Ok((engine, ordered, found))
    }

    /// Lets a worker without a thread carry out at most `orders_max` of the orders that wait for it. Returns whether it
    /// may go on: not after it has given up.
    pub fn step(&mut self, worker: u32, orders_max: usize) -> bool {
        let hand = self.hands.get_mut(worker as usize);
        match hand.and_then(|hand| hand.runner.as_mut()) {
            Some(Runner::Caller(worker)) => worker.step(orders_max).is_ok(),
            Some(Runner::Thread(_)) | None => true,
        }
    }

    /// Gives all further files of `stream` to `worker`, as [`Writer::pin`] does.
    ///
    /// # Errors
    ///
    /// [`WriterError::Count`] if there is no such stream or worker.
    pub fn pin(&mut self, stream: StreamId, worker: TargetId) -> Result<(), WriterError> {
        self.writer.pin(stream, worker)
    }

    /// Way in which the engine writes.
    #[must_use]
    pub fn mode(&self) -> IoMode {
        self.mode
    }

    /// Whether a record of `bytes` may be taken now. One is always taken if nothing else is under way.
    #[must_use]
    pub fn has_room(&self, bytes: u64) -> bool {
        let fits = self.held_bytes + bytes <= self.queue_bytes;
        self.held_records == 0 || (fits && self.held_records < self.queue_records)
    }

    /// Takes a record; [`EngineEvent::Written`] follows.
    ///
    /// # Errors
    ///
    /// [`Refused`], with the record.
    pub fn append(&mut self, now: Timestamp, place: Place, record: R) -> Result<(), (Refused, R)> {
        let bytes = record.bytes();
        self.writer.handle_record(now, place, bytes, record)?;
        self.held_bytes += bytes;
        self.held_records += 1;
        self.act(now);
        Ok(())
    }

    /// Does all that is due: takes the reports of workers, ends and syncs files.
    pub fn turn(&mut self, now: Timestamp) {
        while let Ok(report) = self.reports.try_recv() {
            self.handle(now, report);
        }
        self.writer.handle_tick(now);
        self.act(now);
    }

    /// Returns the next event.
    pub fn poll(&mut self) -> Option<EngineEvent<R>> {
        self.events.pop_front()
    }

    /// Returns the accounting of a stream.
    #[must_use]
    pub fn counts(&self, stream: StreamId) -> Counts {
        self.writer.counts(stream)
    }

    /// Counts the records and bytes of a stream whose write has not returned.
    #[must_use]
    pub fn in_flight(&self, stream: StreamId) -> (u64, u64) {
        self.writer.in_flight(stream)
    }

    /// Returns records and bytes that are taken and not acknowledged.
    #[must_use]
    pub fn held(&self) -> (u64, u64) {
        (self.held_records, self.held_bytes)
    }

    /// Returns the bytes that each worker has written.
    #[must_use]
    pub fn worker_bytes(&self) -> &[u64] {
        &self.worker_bytes
    }

    /// Returns when the oldest record was taken that is not acknowledged.
    #[must_use]
    pub fn oldest(&self) -> Option<Timestamp> {
        let firsts = self.files.values().filter_map(|open| open.waiting.front());
        firsts.map(|(taken_at, _)| *taken_at).min()
    }

    /// Returns the folder of the files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the number of files that are not closed.
    #[must_use]
    pub fn open_files(&self) -> usize {
        self.writer.open_files()
    }

    /// Returns whether a file of `place` takes further records.
    #[must_use]
    pub fn is_open(&self, place: Place) -> bool {
        self.writer.is_open(place)
    }

    /// Ends the file of `place`, and all that lies behind it: its newest file is on another disk.
    pub(crate) fn end_moved(&mut self, now: Timestamp, place: Place) {
        self.writer.handle_moved(place);
        self.act(now);
    }

    /// Ends all files: each is closed when all that it has is written.
    pub fn end_files(&mut self, now: Timestamp) {
        self.writer.handle_finish();
        self.act(now);
    }

    /// Ends and closes all files, for at most `patience`. Returns whether all are closed; the next life closes others.
    pub fn finish(&mut self, clock: impl Fn() -> Timestamp, patience: Duration) -> bool {
        let due = Instant::now() + patience;
        self.end_files(clock());
        while self.writer.open_files() > 0 && Instant::now() < due {
            if let Ok(report) = self.reports.recv_timeout(FINISH_STEP) {
                self.handle(clock(), report);
            }
        }
        self.writer.open_files() == 0
    }

    fn handle(&mut self, now: Timestamp, report: Report<R>) {
        match report {
            Report::Written {
                segment,
                sums,
                records,
            } => self.handle_written(now, segment, sums, records),
            Report::Synced(file) => self.writer.handle_synced(now, file),
            Report::Closed(file) => {
                self.writer.handle_closed(file);
                let closed = self.files.remove(&file);
                for worker in closed.into_iter().flat_map(|open| open.workers) {
                    self.hands[worker.0 as usize].order(Command::Forget(file));
                }
            }
            Report::Trouble(detail) => self.events.push_back(EngineEvent::Trouble(detail)),
            Report::Healed => self.events.push_back(EngineEvent::Healed),
        }
        self.act(now);
    }

    /// Takes records back from their worker, and acknowledges those in front of the first that is not written.
    fn handle_written(&mut self, now: Timestamp, segment: Segment, sums: Sums, records: Vec<R>) {
        self.writer
            .handle_written(now, segment, records.len() as u64, sums);
        let Some(open) = self.files.get_mut(&segment.file) else {
            return;
        };
        let numbers = open.of_segment.entry(segment.index).or_default();
        for record in records {
            self.worker_bytes[segment.worker.0 as usize] += record.bytes();
            let number = numbers.pop_front().expect("every record has a number");
            let at = usize::try_from(number - open.first).expect("it waits");
            open.waiting[at].1 = Some(record);
        }
        if numbers.is_empty() {
            open.of_segment.remove(&segment.index);
        }
        while let Some(first) = open.waiting.front_mut()
            && let Some(record) = first.1.take()
        {
            open.waiting.pop_front();
            open.first += 1;
            self.held_bytes -= record.bytes();
            self.held_records -= 1;
            self.events.push_back(EngineEvent::Written(record));
        }
    }

    /// Gives the orders of the brain to the workers.
    fn act(&mut self, now: Timestamp) {
        while let Some(action) = self.writer.poll_action() {
            match action {
                Action::Open(opened) => {
                    let template = self.writer.config().template.clone();
                    let file =
                        StreamFile::new(Arc::clone(&self.stored), self.mode, template, opened.name);
                    self.files.insert(
                        opened.file,
                        OpenFile {
                            file: Arc::new(file),
                            waiting: VecDeque::new(),
                            first: 0,
                            of_segment: BTreeMap::new(),
                            workers: BTreeSet::new(),
                        },
                    );
                }
                Action::Write {
                    segment,
                    offset,
                    payload,
                } => {
                    let open = self.files.get_mut(&segment.file).expect("it was opened");
                    let number = open.first + open.waiting.len() as u64;
                    open.waiting.push_back((now, None));
                    open.workers.insert(segment.worker);
                    let numbers = open.of_segment.entry(segment.index).or_default();
                    numbers.push_back(number);
                    self.hands[segment.worker.0 as usize].order(Command::Write {
                        file: Arc::clone(&open.file),
                        segment,
                        offset,
                        record: payload,
                    });
                }
                Action::Sync { worker, checkpoint } => {
                    let file = Arc::clone(&self.files[&checkpoint.file].file);
                    self.hands[worker.0 as usize].order(Command::Sync { file, checkpoint });
                }
                Action::Close { worker, closed } => {
                    let file = Arc::clone(&self.files[&closed.file].file);
                    self.hands[worker.0 as usize].order(Command::Close { file, closed });
                }
            }
        }
    }
}

impl<R> Hand<R> {
    fn order(&self, command: Command<R>) {
        if let Some(commands) = &self.commands {
            // A worker ends only when the engine does, or with a panic that its thread reports.
            let _ = commands.send(command);
        }
    }
}

impl<R: Record> Drop for Engine<R> {
    fn drop(&mut self) {
        self.shared.gives_up.store(true, Ordering::Relaxed);
        for hand in &mut self.hands {
            hand.commands = None;
        }
        // Reports that are not taken must not keep a worker.
        let is_running = |hand: &Hand<R>| match &hand.runner {
            Some(Runner::Thread(thread)) => !thread.is_finished(),
            Some(Runner::Caller(_)) | None => false,
        };
        while self.hands.iter().any(is_running) {
            let _ = self.reports.recv_timeout(FINISH_STEP);
        }
        for hand in &mut self.hands {
            if let Some(Runner::Thread(thread)) = hand.runner.take() {
                // A panic there has been reported by its own thread.
                drop(thread.join());
            }
        }
    }
}
