//! Files that are open, records on their way into them, and what is to be done.

mod files;
#[cfg(test)]
mod tests;

use crate::assign::{Assigner, Assignment, Unit};
use crate::checksum::{Kinds, Sums};
use crate::id::{FileId, Place, StreamId};
use crate::template::{FileName, Template, TemplateError, check_word};
use files::OpenFile;
use sheaf_placement::TargetId;
use sheaf_protocol::Timestamp;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use thiserror::Error;

/// Blocks of a stream that may be open at once: records of one block may come after the first ones of the next.
const BLOCKS_OPEN: u64 = 2;
/// Blocks behind the newest one of a stream whose numbers of files are remembered.
const BLOCKS_REMEMBERED: u64 = 64;

/// Sizes at which a file is closed, whichever is reached first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes: a file with this much gets no further record.
    pub bytes: u64,
    /// Records.
    pub records: u64,
    /// Time since the file was opened.
    pub age: Duration,
}

/// Configuration of one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamConfig {
    /// Name, in file names and metrics.
    pub name: String,
    /// Sizes at which its files are closed.
    pub limits: Limits,
}

/// Time at which what is written is made durable while a file is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncEvery {
    /// After this many bytes of a file.
    pub bytes: u64,
    /// After this time, if anything was written since.
    pub time: Duration,
}

/// Configuration of a writer.
#[derive(Clone, Debug)]
pub struct WriterConfig {
    /// Project, in file names.
    pub project: String,
    /// This node, in file names.
    pub node: String,
    /// Template of file names.
    pub template: Template,
    /// Workers, at least one.
    pub workers: u32,
    /// Assignment of files or segments to workers.
    pub assignment: &'static Assignment,
    /// Bytes after which a segment ends, at the next record, where segments are assigned.
    pub segment_bytes: u64,
    /// Largest record.
    pub record_bytes_max: u64,
    /// Checksums beside Adler-32.
    pub kinds: Kinds,
    /// When open files are synced; `None`: not before they are closed.
    pub sync_every: Option<SyncEvery>,
    /// Streams, in the order of their [`StreamId`].
    pub streams: Vec<StreamConfig>,
    /// Seed of assignments that draw lots.
    pub seed: u64,
}

/// Why a configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WriterError {
    /// A name cannot stand in a file name.
    #[error(transparent)]
    Word(#[from] TemplateError),
    /// Two streams have one name.
    #[error("two streams are called `{name}`")]
    TwoStreams {
        /// The name.
        name: String,
    },
    /// A count is out of its range.
    #[error("found {found} {what}, expected {min} to {max}")]
    Count {
        /// Unit counted.
        what: &'static str,
        /// Number found.
        found: u64,
        /// Smallest number.
        min: u64,
        /// Largest number.
        max: u64,
    },
    /// XXH3 of a file does not follow from those of its segments.
    #[error(
        "found checksum xxh3 with assignment `striped`, expected adler32 and crc32c alone: XXH3 of segments cannot be combined"
    )]
    Xxh3OfSegments,
}

/// Why a record is not taken. Nothing is written of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// The record is larger than any may be.
    #[error("record of {bytes} bytes, expected at most {max}")]
    TooLarge {
        /// Bytes of the record.
        bytes: u64,
        /// The limit.
        max: u64,
    },
    /// The stream is not configured.
    #[error("record of stream {}, expected one of the {streams} that are configured", stream.0)]
    NoStream {
        /// Number found.
        stream: StreamId,
        /// Number of streams.
        streams: u64,
    },
}

/// Accounting of one stream at a writer: taken = written + in flight, at every instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records taken.
    pub taken_records: u64,
    /// Bytes of them.
    pub taken_bytes: u64,
    /// Records whose write has returned.
    pub written_records: u64,
    /// Bytes of them.
    pub written_bytes: u64,
    /// Records refused.
    pub refused_records: u64,
    /// Files opened.
    pub files_opened: u64,
    /// Files closed, with their final name.
    pub files_closed: u64,
}

impl Counts {
    /// Returns the accounting of two writers together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            taken_records: self.taken_records + other.taken_records,
            taken_bytes: self.taken_bytes + other.taken_bytes,
            written_records: self.written_records + other.written_records,
            written_bytes: self.written_bytes + other.written_bytes,
            refused_records: self.refused_records + other.refused_records,
            files_opened: self.files_opened + other.files_opened,
            files_closed: self.files_closed + other.files_closed,
        }
    }
}

/// Run of records of a file that one worker writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The file.
    pub file: FileId,
    /// Number of the segment in the file, from 0.
    pub index: u32,
    /// Worker of the segment.
    pub worker: TargetId,
}

/// File to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedFile {
    /// The file.
    pub file: FileId,
    /// Run, stream and block of the records.
    pub place: Place,
    /// Values of its name. If a file with that name is there, as after a restart, the driver takes the next number.
    pub name: FileName,
}

/// Beginning of a file that is written without a gap, with its checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The file.
    pub file: FileId,
    /// Records in that beginning.
    pub records: u64,
    /// Bytes and checksums of that beginning.
    pub sums: Sums,
}

/// File with all that it gets, to be synced and named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClosedFile {
    /// The file.
    pub file: FileId,
    /// Records in it.
    pub records: u64,
    /// Bytes and checksums of the file.
    pub sums: Sums,
    /// Segments that it was written in.
    pub segments: u32,
}

/// Order to the driver. Those of one worker are done in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<P> {
    /// Make the file, before the first write to it.
    Open(OpenedFile),
    /// Write a record. [`Writer::handle_written`] follows.
    Write {
        /// The segment it is in, and its worker.
        segment: Segment,
        /// Place of the record in the file, in bytes.
        offset: u64,
        /// The record.
        payload: P,
    },
    /// Sync a file: all that was reported as written. [`Writer::handle_synced`] follows.
    Sync {
        /// The worker that does it.
        worker: TargetId,
        /// The beginning that is durable then, without a gap.
        checkpoint: Checkpoint,
    },
    /// Close a file. [`Writer::handle_closed`] follows.
    Close {
        /// The worker that does it.
        worker: TargetId,
        /// The file as it is now.
        closed: ClosedFile,
    },
}

/// Brain of a writer; `P` is a record as the driver holds it.
#[derive(Debug)]
pub struct Writer<P> {
    config: WriterConfig,
    assigner: Assigner,
    files: BTreeMap<FileId, OpenFile>,
    /// The file of each place that takes further records.
    open: BTreeMap<Place, FileId>,
    /// Number of the next file of a place.
    seqs: BTreeMap<Place, u64>,
    next_file: u64,
    counts: Vec<Counts>,
    actions: VecDeque<Action<P>>,
}

impl<P> Writer<P> {
    /// Creates a writer without files.
    ///
    /// # Errors
    ///
    /// [`WriterError`] if the configuration contradicts itself.
    pub fn new(config: WriterConfig) -> Result<Self, WriterError> {
        in_range("workers", config.workers.into(), 1, 1024)?;
        let streams_max = u64::from(u16::MAX);
        in_range("streams", config.streams.len() as u64, 1, streams_max)?;
        in_range("bytes of a segment", config.segment_bytes, 1, 1 << 40)?;
        check_word("project", &config.project)?;
        check_word("node", &config.node)?;
        for (at, stream) in config.streams.iter().enumerate() {
            check_word("stream", &stream.name)?;
            if config.streams[..at]
                .iter()
                .any(|other| other.name == stream.name)
            {
                return Err(WriterError::TwoStreams {
                    name: stream.name.clone(),
                });
            }
            in_range("records of a file", stream.limits.records, 1, u64::MAX)?;
            in_range("bytes of a file", stream.limits.bytes, 1, u64::MAX)?;
        }
        if config.kinds.xxh3 && config.assignment.unit == Unit::Segment {
            return Err(WriterError::Xxh3OfSegments);
        }
        let streams = u32::try_from(config.streams.len()).unwrap_or(u32::MAX);
        Ok(Self {
            assigner: Assigner::new(config.assignment, config.workers, streams, config.seed),
            files: BTreeMap::new(),
            open: BTreeMap::new(),
            seqs: BTreeMap::new(),
            next_file: 0,
            counts: vec![Counts::default(); config.streams.len()],
            actions: VecDeque::new(),
            config,
        })
    }

    /// Gives all further files of `stream`, or segments of them, to `worker`, in place of the choice of the assignment:
    /// for experiments with a stated assignment. The others see its load as that of any file.
    ///
    /// # Errors
    ///
    /// [`WriterError::Count`] if there is no such stream or worker.
    pub fn pin(&mut self, stream: StreamId, worker: TargetId) -> Result<(), WriterError> {
        let streams = self.config.streams.len() as u64;
        in_range("as a stream", stream.0.into(), 0, streams - 1)?;
        let workers = u64::from(self.config.workers);
        in_range("as a worker", worker.0.into(), 0, workers - 1)?;
        self.assigner.pin(stream, worker);
        Ok(())
    }

    /// Takes a record of `bytes` for the newest file of `place`; one is opened if there is none.
    ///
    /// # Errors
    ///
    /// [`Refused`], with the record; the state is unchanged but for the count.
    pub fn handle_record(
        &mut self,
        now: Timestamp,
        place: Place,
        bytes: u64,
        payload: P,
    ) -> Result<(), (Refused, P)> {
        let stream = place.stream;
        let Some(counts) = self.counts.get_mut(usize::from(stream.0)) else {
            let streams = self.counts.len() as u64;
            return Err((Refused::NoStream { stream, streams }, payload));
        };
        let max = self.config.record_bytes_max;
        if bytes > max {
            counts.refused_records += 1;
            return Err((Refused::TooLarge { bytes, max }, payload));
        }
        counts.taken_records += 1;
        counts.taken_bytes += bytes;
        let id = match self.open.get(&place) {
            Some(id) => *id,
            None => self.open_file(now, place),
        };
        self.append(now, id, bytes, payload);
        let limits = self.config.streams[usize::from(stream.0)].limits;
        if self.files[&id].is_full(limits) {
            self.end_file(id);
        }
        Ok(())
    }

    /// Ends the files of a block: no more records of it will come. One that comes all the same gets a further file.
    pub fn handle_block_ended(&mut self, run: u64, block: u64) {
        self.end_files_if(|place| place.run == run && place.block == block);
    }

    /// Notes that the newest file of `place` is with another writer: ends that of this one, and all that lies behind.
    pub fn handle_moved(&mut self, place: Place) {
        self.end_files_if(|open| *open == place || is_behind(open, place));
    }

    /// Ends all files, as before the end of the writer.
    pub fn handle_finish(&mut self) {
        self.end_files_if(|_| true);
    }

    /// Notes that the write of `records` records of `segment` has returned. `sums` are those of all bytes of the
    /// segment so far.
    pub fn handle_written(&mut self, now: Timestamp, segment: Segment, records: u64, sums: Sums) {
        let Some(file) = self.files.get_mut(&segment.file) else {
            return;
        };
        let bytes = file.handle_written(segment.index, records, sums);
        let counts = &mut self.counts[usize::from(file.place.stream.0)];
        counts.written_records += records;
        counts.written_bytes += bytes;
        for record in 0..records {
            // One booking a record; which one has how many bytes does not matter to the worker's sum.
            let bytes = if record == 0 { bytes } else { 0 };
            self.assigner.handle_written(segment.worker, bytes);
        }
        self.sync_if_due(now, segment.file);
        self.close_if_written(segment.file);
    }

    /// Notes that a file is synced up to the checkpoint of its [`Action::Sync`].
    pub fn handle_synced(&mut self, now: Timestamp, file: FileId) {
        if let Some(open) = self.files.get_mut(&file) {
            open.handle_synced(now);
        }
        self.close_if_written(file);
    }

    /// Notes that a file has its final name.
    pub fn handle_closed(&mut self, file: FileId) {
        if let Some(closed) = self.files.remove(&file) {
            self.counts[usize::from(closed.place.stream.0)].files_closed += 1;
        }
    }

    /// Ends files that are old enough, and syncs those that are due.
    pub fn handle_tick(&mut self, now: Timestamp) {
        let streams = &self.config.streams;
        let is_old = |place: &Place, file: &OpenFile| {
            let limits = streams[usize::from(place.stream.0)].limits;
            now.since(file.opened_at) >= limits.age
        };
        let old: Vec<FileId> = self
            .open
            .iter()
            .filter(|(place, id)| is_old(place, &self.files[*id]))
            .map(|(_, id)| *id)
            .collect();
        for id in old {
            self.end_file(id);
        }
        let all: Vec<FileId> = self.files.keys().copied().collect();
        for id in all {
            self.sync_if_due(now, id);
        }
    }

    /// Returns the next order, if there is one.
    pub fn poll_action(&mut self) -> Option<Action<P>> {
        self.actions.pop_front()
    }

    /// Returns the accounting of a stream.
    #[must_use]
    pub fn counts(&self, stream: StreamId) -> Counts {
        let counts = self.counts.get(usize::from(stream.0));
        counts.copied().unwrap_or_default()
    }

    /// Counts the records and bytes of a stream that were taken and whose write has not returned.
    #[must_use]
    pub fn in_flight(&self, stream: StreamId) -> (u64, u64) {
        let of_stream = |file: &&OpenFile| file.place.stream == stream;
        let files = self.files.values().filter(of_stream);
        files
            .map(OpenFile::in_flight)
            .fold((0, 0), |sum, each| (sum.0 + each.0, sum.1 + each.1))
    }

    /// Returns whether a file of `place` takes further records.
    #[must_use]
    pub fn is_open(&self, place: Place) -> bool {
        self.open.contains_key(&place)
    }

    /// Returns the stream of a file that is not closed yet.
    #[must_use]
    pub fn stream_of(&self, file: FileId) -> Option<StreamId> {
        self.files.get(&file).map(|open| open.place.stream)
    }

    /// Returns the number of files that are not closed yet.
    #[must_use]
    pub fn open_files(&self) -> usize {
        self.files.len()
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &WriterConfig {
        &self.config
    }

    fn open_file(&mut self, now: Timestamp, place: Place) -> FileId {
        // What lies behind it: files of former runs, and of blocks that are over.
        self.end_files_if(|open| is_behind(open, place));
        self.seqs.retain(|known, _| {
            let is_near = known.block + BLOCKS_REMEMBERED > place.block;
            known.stream != place.stream || (known.run == place.run && is_near)
        });
        let seq = self.seqs.entry(place).or_default();
        let name = FileName {
            project: self.config.project.clone(),
            run: place.run,
            stream: self.config.streams[usize::from(place.stream.0)]
                .name
                .clone(),
            block: place.block,
            node: self.config.node.clone(),
            seq: *seq,
        };
        *seq += 1;
        let file = FileId(self.next_file);
        self.next_file += 1;
        let kinds = self.config.kinds;
        self.files.insert(file, OpenFile::new(place, now, kinds));
        self.open.insert(place, file);
        self.counts[usize::from(place.stream.0)].files_opened += 1;
        self.actions
            .push_back(Action::Open(OpenedFile { file, place, name }));
        file
    }

    /// Appends a record to an open file, in a segment that has room.
    fn append(&mut self, now: Timestamp, id: FileId, bytes: u64, payload: P) {
        let file = self.files.get_mut(&id).expect("the file is open");
        let stream = file.place.stream;
        let segment_bytes = match self.assigner.unit() {
            Unit::File => u64::MAX,
            Unit::Segment => self.config.segment_bytes,
        };
        if file.needs_segment(segment_bytes) {
            file.begin_segment(self.assigner.choose(now, stream));
        }
        let (index, worker, offset) = file.append(bytes);
        self.assigner.handle_given(now, stream, worker, bytes);
        self.actions.push_back(Action::Write {
            segment: Segment {
                file: id,
                index,
                worker,
            },
            offset,
            payload,
        });
    }

    fn end_files_if(&mut self, is_over: impl Fn(&Place) -> bool) {
        let over = self.open.iter().filter(|(place, _)| is_over(place));
        let over: Vec<FileId> = over.map(|(_, id)| *id).collect();
        for id in over {
            self.end_file(id);
        }
    }

    /// Lets a file get no further records; it is closed when all that it has is written.
    fn end_file(&mut self, id: FileId) {
        let file = self.files.get_mut(&id).expect("the file is open");
        file.is_ended = true;
        let place = file.place;
        self.open.remove(&place);
        let has_other = self.open.keys().any(|open| open.stream == place.stream);
        if !has_other {
            self.assigner.handle_closed(place.stream);
        }
        self.close_if_written(id);
    }

    fn close_if_written(&mut self, id: FileId) {
        let Some(file) = self.files.get_mut(&id) else {
            return;
        };
        if let Some((worker, records, sums, segments)) = file.take_close() {
            self.actions.push_back(Action::Close {
                worker,
                closed: ClosedFile {
                    file: id,
                    records,
                    sums,
                    segments,
                },
            });
        }
    }

    fn sync_if_due(&mut self, now: Timestamp, id: FileId) {
        let Some(every) = self.config.sync_every else {
            return;
        };
        let Some(file) = self.files.get_mut(&id) else {
            return;
        };
        if let Some((worker, records, sums)) = file.take_sync(now, every) {
            self.actions.push_back(Action::Sync {
                worker,
                checkpoint: Checkpoint {
                    file: id,
                    records,
                    sums,
                },
            });
        }
    }
}

fn in_range(what: &'static str, found: u64, min: u64, max: u64) -> Result<(), WriterError> {
    let is_in = (min..=max).contains(&found);
    is_in.then_some(()).ok_or(WriterError::Count {
        what,
        found,
        min,
        max,
    })
}

/// Returns whether a new file of `place` ends one of `open`: that is of another run, or of a block that is over.
fn is_behind(open: &Place, place: Place) -> bool {
    let is_past_block = open.stream == place.stream && open.block + BLOCKS_OPEN <= place.block;
    // Numbers of runs need not grow.
    open.run != place.run || is_past_block
}
