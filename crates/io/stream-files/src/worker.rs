//! A thread that writes what is assigned to it.
//!
//! A worker takes all orders that wait as one batch. What fails is tried again until it works or the engine gives up,
//! and nothing is reported before it is written.

use crate::buffer::Buffer;
use crate::catalogue::{Catalogue, CatalogueError, FileRow, FileState};
use crate::durability::{Durability, wall_ns};
use crate::file::StreamFile;
use crate::folder::Folder;
use crate::label::Label;
use crate::local::IoMode;
use crate::record_list::Entry;
use crate::ring::Ring;
use sheaf_protect::protect;
use sheaf_write::{Checkpoint, ClosedFile, FileId, Kinds, Segment, Summing, Sums};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// First pause before a write is tried again; it doubles up to the last.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_LAST: Duration = Duration::from_secs(1);
/// Bytes of a batch: what is in it is reported at its end.
const BATCH_BYTES: usize = 16 << 20;
/// Bytes that are summed and copied together.
const PIECE_BYTES: usize = 32 << 10;
/// Time that a worker of an emulated rate may be behind and make up for.
const BURST: Duration = Duration::from_millis(100);
/// Wait for orders from which on a worker of an emulated rate has been idle: time that it cannot make up for.
const IDLE: Duration = Duration::from_millis(10);
/// Spare buffers of a worker.
const SPARES_MAX: usize = 8;

/// Record as it goes through an engine.
pub trait Record: Send + 'static {
    /// Returns the bytes of the record, piece by piece.
    fn slices(&self) -> Vec<&[u8]>;

    /// Whether a walk finds by the bytes alone where the record ends, and that it is whole. Of other records a list is
    /// written beside the file while it is open; such a record has at least one byte.
    fn tells_its_end(&self) -> bool {
        true
    }

    /// Does what is to be done with the bytes before they are written, in the thread of the worker, once.
    fn prepare(&mut self) {}

    /// Returns the number of bytes.
    fn bytes(&self) -> u64 {
        self.slices().iter().map(|slice| slice.len() as u64).sum()
    }
}

/// Order to a worker.
#[derive(Debug)]
pub(crate) enum Command<R> {
    Write {
        file: Arc<StreamFile>,
        segment: Segment,
        offset: u64,
        record: R,
    },
    Sync {
        file: Arc<StreamFile>,
        checkpoint: Checkpoint,
    },
    Close {
        file: Arc<StreamFile>,
        closed: ClosedFile,
    },
    /// The file is closed: what the worker keeps of it goes.
    Forget(FileId),
}

/// Report of a worker.
#[derive(Debug)]
pub(crate) enum Report<R> {
    Written {
        segment: Segment,
        sums: Sums,
        records: Vec<R>,
    },
    Synced(FileId),
    Closed(FileId),
    /// An order fails; it is tried again.
    Trouble(String),
    /// The order that failed has worked.
    Healed,
}

/// State that the workers of an engine share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) folder: Arc<dyn Folder>,
    pub(crate) catalogue: Arc<Mutex<Catalogue>>,
    pub(crate) durability: Durability,
    pub(crate) kinds: Kinds,
    /// Rate of a worker, if it is emulated.
    pub(crate) worker_bytes_per_s: Option<u64>,
    /// Set when the engine waits no longer for what fails.
    pub(crate) gives_up: AtomicBool,
}

impl Shared {
    fn with_catalogue<T>(
        &self,
        work: impl FnOnce(&Catalogue) -> Result<T, CatalogueError>,
    ) -> io::Result<T> {
        self.folder.before_commit()?;
        let catalogue = self
            .catalogue
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        work(&catalogue).map_err(io::Error::other)
    }
}

/// Segment under way at its worker.
#[derive(Debug)]
struct Writing<R> {
    file: Arc<StreamFile>,
    segment: Segment,
    summing: Summing,
    /// Place of the next byte in the file.
    position: u64,
    buffer: Option<Buffer>,
    /// Records whose bytes are in the buffer or written, and not reported.
    records: Vec<R>,
    /// Entries of these records for the list of the file, if it has one.
    entries: Vec<u8>,
    /// Place of the first byte of these records, and the syncs that had failed before it was written.
    unreported: (u64, u64),
}

/// The thread's side.
pub(crate) struct Worker<R> {
    pub(crate) commands: Receiver<Command<R>>,
    pub(crate) reports: SyncSender<Report<R>>,
    pub(crate) wake: Arc<dyn Fn() + Send + Sync>,
    pub(crate) shared: Arc<Shared>,
    writing: BTreeMap<FileId, Writing<R>>,
    spares: Vec<Buffer>,
    /// Writes under way, if the kernel takes several at once.
    ring: Option<Ring>,
    /// When a worker of an emulated rate may go on.
    paced_until: Option<Instant>,
}

/// The engine has given up: nothing is written any more.
#[derive(Debug)]
pub(crate) struct GivenUp;

impl<R: Record> Worker<R> {
    pub(crate) fn new(
        commands: Receiver<Command<R>>,
        reports: SyncSender<Report<R>>,
        wake: Arc<dyn Fn() + Send + Sync>,
        shared: Arc<Shared>,
        ring: Option<Ring>,
    ) -> Self {
        Self {
            commands,
            reports,
            wake,
            shared,
            writing: BTreeMap::new(),
            spares: Vec::new(),
            ring,
            paced_until: None,
        }
    }

    /// Works until the engine drops its end.
    pub(crate) fn run(mut self) {
        while let Some(first) = self.next_order() {
            if self.carry_out_all(first, usize::MAX).is_err() {
                return;
            }
            (self.wake)();
        }
    }

    /// Waits for the next order; `None` when the engine has dropped its end.
    fn next_order(&mut self) -> Option<Command<R>> {
        if self.shared.worker_bytes_per_s.is_none() {
            return self.commands.recv().ok();
        }
        let since = Instant::now();
        let first = self.commands.recv().ok()?;
        if since.elapsed() > IDLE {
            self.paced_until = None;
        }
        Some(first)
    }

    /// Carries out at most `orders_max` of the orders that wait, as one batch. Returns whether there were any.
    pub(crate) fn step(&mut self, orders_max: usize) -> Result<bool, GivenUp> {
        let Ok(first) = self.commands.try_recv() else {
            return Ok(false);
        };
        self.carry_out_all(first, orders_max)?;
        Ok(true)
    }

    fn carry_out_all(&mut self, first: Command<R>, orders_max: usize) -> Result<(), GivenUp> {
        let mut next = Some(first);
        let (mut orders, mut bytes) = (0, 0);
        while let Some(command) = next.take() {
            if let Command::Write { record, .. } = &command {
                bytes += record.bytes() as usize;
            }
            orders += 1;
            self.carry_out(command)?;
            if bytes < BATCH_BYTES && orders < orders_max {
                next = self.commands.try_recv().ok();
            }
        }
        let all: Vec<FileId> = self.writing.keys().copied().collect();
        for file in all {
            self.flush(file)?;
        }
        Ok(())
    }

    fn carry_out(&mut self, command: Command<R>) -> Result<(), GivenUp> {
        match command {
            Command::Write {
                file,
                segment,
                offset,
                record,
            } => self.write(file, segment, offset, record),
            Command::Sync { file, checkpoint } => {
                self.flush(checkpoint.file)?;
                self.persist(|shared| {
                    protect!(CheckpointSynced, file.sync_prefix(checkpoint.sums.bytes)?, else ());
                    shared.with_catalogue(|catalogue| {
                        let sums = &checkpoint.sums;
                        catalogue.set_checkpoint(&file.name(), checkpoint.records, sums)
                    })
                })?;
                self.report(Report::Synced(checkpoint.file))
            }
            Command::Close { file, closed } => {
                self.flush(closed.file)?;
                self.writing.remove(&closed.file);
                self.close(&file, &closed)?;
                self.report(Report::Closed(closed.file))
            }
            Command::Forget(file) => {
                self.flush(file)?;
                self.writing.remove(&file);
                Ok(())
            }
        }
    }

    /// Write → sync → rename → sync of the folder → catalogue: a file with its final name is whole.
    fn close(&mut self, file: &StreamFile, closed: &ClosedFile) -> Result<(), GivenUp> {
        let mut is_renamed = false;
        self.persist(|shared| {
            let is_durable = shared.durability != Durability::None;
            if !is_renamed {
                file.cut(closed.sums.bytes)?;
                if protect!(SyncedBeforeNamed, when is_durable) {
                    file.sync_prefix(closed.sums.bytes)?;
                }
                file.rename()?;
                is_renamed = true;
            }
            shared.folder.label(&Label {
                file: &file.name(),
                name: &file.values(),
                records: closed.records,
                sums: &closed.sums,
            })?;
            if protect!(NameSynced, when is_durable) {
                shared.folder.sync()?;
            }
            shared.with_catalogue(|catalogue| {
                catalogue.close(
                    &file.name(),
                    FileState::Closed,
                    wall_ns(),
                    closed.records,
                    &closed.sums,
                )
            })
        })?;
        file.drop_list();
        Ok(())
    }

    fn write(
        &mut self,
        file: Arc<StreamFile>,
        segment: Segment,
        offset: u64,
        mut record: R,
    ) -> Result<(), GivenUp> {
        if !file.is_made() {
            self.persist(|shared| {
                let is_taken = |name: &str| {
                    let row = shared.with_catalogue(|catalogue| catalogue.get(name))?;
                    Ok(row.is_some())
                };
                file.make(!record.tells_its_end(), is_taken, || {
                    let row = row_of(&file, shared.kinds);
                    shared.with_catalogue(|catalogue| catalogue.add(&row))
                })
            })?;
        }
        self.pace(record.bytes());
        record.prepare();
        let is_next = self
            .writing
            .get(&segment.file)
            .is_some_and(|writing| writing.segment != segment);
        if is_next {
            self.flush(segment.file)?;
            self.writing.remove(&segment.file);
        }
        let kinds = self.shared.kinds;
        self.writing.entry(segment.file).or_insert_with(|| Writing {
            file,
            segment,
            summing: Summing::new(kinds),
            position: offset,
            buffer: None,
            records: Vec::new(),
            entries: Vec::new(),
            unreported: (offset, 0),
        });
        self.append(segment.file, record)
    }

    /// Waits as long as a worker of the emulated rate would work on `bytes`.
    fn pace(&mut self, bytes: u64) {
        let Some(rate) = self.shared.worker_bytes_per_s else {
            return;
        };
        let now = Instant::now();
        // What it was late by is made up for, as far as a bucket of tokens would: writing takes time as well.
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        let from = self.paced_until.map_or(now, |until| until.max(earliest));
        let until = from + Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        self.paced_until = Some(until);
        std::thread::park_timeout(until.saturating_duration_since(now));
    }

    /// Appends a record to the segment of `id`: into a buffer for direct writes, or at once.
    fn append(&mut self, id: FileId, record: R) -> Result<(), GivenUp> {
        let mut writing = self.writing.remove(&id).expect("the segment is under way");
        if writing.records.is_empty() && self.shared.durability == Durability::Record {
            writing.unreported = (writing.position, writing.file.sync_failures());
        }
        let slices = record.slices();
        if !record.tells_its_end() {
            Entry::of(writing.position, &slices).encode(&mut writing.entries);
        }
        match writing.file.mode() {
            IoMode::Buffered => {
                for slice in &slices {
                    writing.summing.update(slice);
                }
                let (file, position) = (Arc::clone(&writing.file), writing.position);
                self.persist(|_| file.write_slices(&slices, position))?;
                writing.position += record.bytes();
            }
            IoMode::Direct | IoMode::Uring => {
                // Summed and copied piece by piece: the copy finds the bytes in the cache.
                for piece in slices.iter().flat_map(|slice| slice.chunks(PIECE_BYTES)) {
                    writing.summing.update(piece);
                    let mut rest = piece;
                    while !rest.is_empty() {
                        let position = writing.position;
                        let spares = &mut self.spares;
                        let buffer = writing.buffer.get_or_insert_with(|| {
                            let mut buffer = spares.pop().unwrap_or_else(Buffer::new);
                            buffer.begin(position);
                            buffer
                        });
                        rest = buffer.fill(rest);
                        writing.position = buffer.end();
                        if buffer.is_full() {
                            let file = Arc::clone(&writing.file);
                            let full = writing.buffer.take().expect("it was filled");
                            self.write_full(id, &file, full)?;
                        }
                    }
                }
            }
        }
        drop(slices);
        writing.records.push(record);
        self.writing.insert(id, writing);
        Ok(())
    }

    /// Writes a full buffer, or begins to.
    fn write_full(
        &mut self,
        id: FileId,
        file: &Arc<StreamFile>,
        full: Buffer,
    ) -> Result<(), GivenUp> {
        let begun = match &mut self.ring {
            Some(ring) => ring.begin(id, file, full),
            None => Err(full),
        };
        if let Err(full) = begun {
            self.persist(|_| file.write_buffer(&full))?;
            self.spare(full);
        }
        self.land_while(Ring::is_full)
    }

    /// Waits for writes to end while `waits`. What has failed is written by plain calls.
    fn land_while(&mut self, waits: impl Fn(&Ring) -> bool) -> Result<(), GivenUp> {
        while let Some(ring) = &mut self.ring
            && waits(ring)
            && let Some(flight) = ring.land()
        {
            if !flight.is_written {
                self.persist(|_| flight.file.write_buffer(&flight.buffer))?;
            }
            self.spare(flight.buffer);
        }
        Ok(())
    }

    /// Writes what is in the buffer of a file, and reports its records.
    fn flush(&mut self, id: FileId) -> Result<(), GivenUp> {
        self.land_while(|ring| ring.has(id))?;
        let Some(writing) = self.writing.get_mut(&id) else {
            return Ok(());
        };
        let file = Arc::clone(&writing.file);
        if let Some(buffer) = writing.buffer.take() {
            if !buffer.is_empty() {
                self.persist(|_| file.write_buffer(&buffer))?;
            }
            self.spare(buffer);
        }
        let Some(writing) = self.writing.get_mut(&id) else {
            return Ok(());
        };
        if writing.records.is_empty() {
            return Ok(());
        }
        let records = std::mem::take(&mut writing.records);
        let entries = std::mem::take(&mut writing.entries);
        let (segment, sums) = (writing.segment, writing.summing.sums());
        let ((from, failures), to) = (writing.unreported, writing.position);
        let is_promised = self.shared.durability == Durability::Record;
        if !entries.is_empty() {
            self.persist(|_| file.write_list(&entries, is_promised))?;
        }
        if protect!(RecordSynced, when is_promised) {
            self.persist(|_| file.sync_range(from..to, failures))?;
            self.persist(|_| file.sync_list())?;
        }
        self.report(Report::Written {
            segment,
            sums,
            records,
        })
    }

    fn spare(&mut self, buffer: Buffer) {
        if self.spares.len() < SPARES_MAX {
            self.spares.push(buffer);
        }
    }

    fn report(&self, report: Report<R>) -> Result<(), GivenUp> {
        self.reports.send(report).map_err(|_| GivenUp)?;
        (self.wake)();
        Ok(())
    }

    /// Does `work` until it succeeds, with pauses. The first failure is reported, and the end of it.
    fn persist(&self, mut work: impl FnMut(&Shared) -> io::Result<()>) -> Result<(), GivenUp> {
        let mut pause = PAUSE_FIRST;
        let mut has_failed = false;
        loop {
            match work(&self.shared) {
                Ok(()) if has_failed => return self.report(Report::Healed),
                Ok(()) => return Ok(()),
                Err(error) => {
                    if !std::mem::replace(&mut has_failed, true) {
                        self.report(Report::Trouble(error.to_string()))?;
                    }
                    if self.shared.gives_up.load(Ordering::Relaxed) {
                        return Err(GivenUp);
                    }
                    if !self.shared.folder.pause(pause) {
                        return Err(GivenUp);
                    }
                    pause = (pause * 2).min(PAUSE_LAST);
                }
            }
        }
    }
}

fn row_of(file: &StreamFile, kinds: Kinds) -> FileRow {
    FileRow {
        file: file.name(),
        name: file.values(),
        state: FileState::Open,
        opened_ns: wall_ns(),
        closed_ns: None,
        records: 0,
        sums: Sums::empty(kinds),
    }
}
