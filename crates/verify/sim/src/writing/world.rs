//! One seed: lives of a writer, and what its files have to hold after each.

use super::disk::SimDisk;
use super::options::{DeathOptions, WritingOptions};
use super::record::{self, Found, Numbered};
use crate::dice::Dice;
use crate::farm::Outcome;
use crate::invariant::{Broken, Invariant};
use crate::trace::{Hash, Line, Trace};
use crate::watch::Accounting;
use sheaf_protocol::Timestamp;
use sheaf_stream_files::{
    Catalogue, Durability, Engine, EngineConfig, EngineEvent, FileRow, FileState,
};
use sheaf_write::{
    Assignment, Kinds, Limits, Place, StreamConfig, StreamId, Summing, SyncEvery, Template,
    WriterConfig,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Run of all records.
const RUN: u64 = 3;
/// Turns within which all has to be done when the disk is well.
const DRAIN_TURNS: u64 = 3_000;
/// Starts of one life: a fault of the disk may prevent some of them.
const STARTS_MAX: u64 = 100;

/// Everything of one seed.
pub(super) struct World<'a> {
    options: &'a WritingOptions,
    dice: Dice,
    disk: SimDisk,
    catalogue: Arc<Mutex<Catalogue>>,
    now: Timestamp,
    next_number: u64,
    /// All records that an engine has taken: stream and block.
    taken: BTreeMap<u64, (u16, u64)>,
    /// Records that survive a death of the process, and those that survive a cut.
    acknowledged: BTreeSet<u64>,
    durable: BTreeSet<u64>,
    /// Whether a cut may have damaged files that were closed without a sync.
    may_be_damaged: bool,
    recovered: u64,
    hash: Hash,
    pub(super) trace: Trace,
}

impl<'a> World<'a> {
    pub(super) fn new(options: &'a WritingOptions, trace: Trace) -> Self {
        let disk_dice = Dice::new(options.seed ^ 0x6469_736b);
        let catalogue = Catalogue::in_memory().expect("SQLite makes a database in memory");
        Self {
            options,
            dice: Dice::new(options.seed),
            disk: SimDisk::new(disk_dice, &options.faults),
            catalogue: Arc::new(Mutex::new(catalogue)),
            now: Timestamp(0),
            next_number: 0,
            taken: BTreeMap::new(),
            acknowledged: BTreeSet::new(),
            durable: BTreeSet::new(),
            may_be_damaged: false,
            recovered: 0,
            hash: Hash::new(),
            trace,
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.now
    }

    pub(super) fn outcome(&self) -> Outcome {
        let (faults, steps) = self.disk.told();
        let mut hash = self.hash;
        hash.add(steps);
        let fates = [
            ("taken", self.taken.len() as u64),
            ("kept", self.durable.len() as u64),
            (
                "lost in a cut",
                (self.taken.len() - self.durable.len()) as u64,
            ),
            ("recovered", self.recovered),
        ];
        Outcome {
            accounting: Accounting::default(),
            fates: fates.into(),
            state_faults: faults,
            message_faults: 0,
            simulated: Duration::from_nanos(self.now.0),
            trace_hash: hash.value(),
        }
    }

    fn say(&mut self, node: &str, text: impl FnOnce() -> String) {
        let at = self.now;
        self.trace.add(|| Line::new(at, node, Vec::new(), text()));
    }

    /// Lives all lives.
    pub(super) fn run(&mut self) -> Result<(), Broken> {
        let options = self.options;
        for death in &options.deaths {
            self.disk.begin_life(Some(death.after_steps));
            self.live()?;
            self.die(*death);
        }
        // The last life ends in order, with a disk that is well; then the power goes.
        self.disk.heal();
        self.disk.begin_life(None);
        self.live()?;
        let last = DeathOptions {
            is_cut: true,
            after_steps: 0,
            survive_percent: 50,
        };
        self.die(last);
        self.disk.begin_life(None);
        let engine = self.start()?;
        drop(engine);
        Ok(())
    }

    fn die(&mut self, death: DeathOptions) {
        self.disk.die(death);
        self.hash.add(self.acknowledged.len() as u64);
        if !death.is_cut {
            self.say("farm", || "the process dies".to_owned());
            return;
        }
        self.say("farm", || {
            format!("power is cut; {} % survive", death.survive_percent)
        });
        self.may_be_damaged |= self.options.durability == Durability::None;
        self.acknowledged.clone_from(&self.durable);
    }

    fn config(&self) -> EngineConfig {
        let options = self.options;
        let (bytes, records, age_ms) = options.limits;
        let limits = Limits {
            bytes,
            records,
            age: Duration::from_millis(age_ms),
        };
        let streams = (0..options.streams).map(|stream| StreamConfig {
            name: format!("s{stream}"),
            limits,
        });
        let (sync_bytes, sync_ms) = options.sync;
        EngineConfig {
            folder: PathBuf::new(),
            writer: WriterConfig {
                project: "sim".to_owned(),
                node: "w".to_owned(),
                template: Template::parse(Template::DEFAULT).expect("the default is good"),
                workers: options.workers,
                assignment: Assignment::named(options.assignment).expect("drawn from the table"),
                segment_bytes: options.segment_bytes,
                record_bytes_max: u64::MAX,
                kinds: Kinds {
                    crc32c: options.has_crc32c,
                    xxh3: false,
                },
                sync_every: (options.durability == Durability::Every).then(|| SyncEvery {
                    bytes: sync_bytes,
                    time: Duration::from_millis(sync_ms),
                }),
                streams: streams.collect(),
                seed: options.seed,
            },
            durability: options.durability,
            mode: Some(options.mode),
            queue_bytes: u64::MAX,
            queue_records: options.queue_records,
            worker_bytes_per_s: None,
        }
    }

    /// Starts an engine, which recovers the folder, and compares the folder with what it has to hold. Returns none if
    /// the process dies meanwhile.
    fn start(&mut self) -> Result<Option<Engine<Numbered>>, Broken> {
        for _ in 0..STARTS_MAX {
            let folder = Arc::new(self.disk.clone());
            let catalogue = Arc::clone(&self.catalogue);
            match Engine::simulated(self.config(), folder, catalogue, &record::walk) {
                Ok((engine, found)) => {
                    self.recovered += found.iter().map(|one| one.records).sum::<u64>();
                    self.say("writer", || format!("starts; recovered: {found:?}"));
                    self.check_files()?;
                    return Ok(Some(engine));
                }
                Err(_) if self.disk.is_dead() => return Ok(None),
                Err(error) => self.say("writer", || format!("cannot start: {error}")),
            }
        }
        Err((
            Invariant::WritesInTime,
            format!("the writer has not started {STARTS_MAX} times"),
        ))
    }

    /// One life: records until the process dies, or until all are written and closed.
    fn live(&mut self) -> Result<(), Broken> {
        let Some(mut engine) = self.start()? else {
            return Ok(());
        };
        let last = self.next_number + self.options.records;
        while !self.disk.is_dead() && self.next_number < last {
            match self.dice.range(0, 9) {
                0..=4 => self.append(&mut engine),
                5..=7 => self.step(&mut engine),
                8 => self.turn(&mut engine)?,
                _ if self.dice.chance(20) => self.drain(&mut engine, false)?,
                _ => self.turn(&mut engine)?,
            }
        }
        self.drain(&mut engine, true)
    }

    fn append(&mut self, engine: &mut Engine<Numbered>) {
        let content = self.dice.range(0, self.options.content_max);
        if !engine.has_room(content) {
            return;
        }
        let number = self.next_number;
        self.next_number += 1;
        let stream = self.dice.range(0, u64::from(self.options.streams) - 1);
        let stream = u16::try_from(stream).expect("a few streams");
        // Some come after the first ones of the next block.
        let late = self.dice.range(0, 2);
        let block = number.saturating_sub(late) / self.options.block_records;
        let place = Place {
            run: RUN,
            stream: StreamId(stream),
            block,
        };
        let record = Numbered::new(number, place, content);
        engine
            .append(self.now, place, record)
            .expect("a record of a stream that there is");
        self.taken.insert(number, (stream, block));
    }

    fn step(&mut self, engine: &mut Engine<Numbered>) {
        let worker = self.dice.range(0, u64::from(self.options.workers) - 1);
        let worker = u32::try_from(worker).expect("a few workers");
        let orders = self.dice.range(1, self.options.orders_max);
        // A worker that gives up does so because the process is dead.
        engine.step(worker, orders as usize);
    }

    fn turn(&mut self, engine: &mut Engine<Numbered>) -> Result<(), Broken> {
        let ms = self.dice.pick(&[0, 1, 10]);
        self.now = self.now + Duration::from_millis(ms);
        engine.turn(self.now);
        while let Some(event) = engine.poll() {
            if let EngineEvent::Written(record) = event {
                self.hash.add(record.number);
                if self.disk.is_dead() {
                    // The process has died before it could say so.
                    continue;
                }
                self.say("writer", || format!("acknowledges {}", record.number));
                self.acknowledged.insert(record.number);
                if self.options.durability == Durability::Record {
                    self.durable.insert(record.number);
                }
            }
        }
        self.check_counts(engine)
    }

    /// Lets the engine do all that is due: at its end, or such that all is synced that `Every` promises.
    fn drain(&mut self, engine: &mut Engine<Numbered>, is_end: bool) -> Result<(), Broken> {
        if is_end {
            engine.end_files(self.now);
        }
        let every = Duration::from_millis(self.options.sync.1);
        let mut is_waited = false;
        for _ in 0..DRAIN_TURNS {
            if self.disk.is_dead() {
                return Ok(());
            }
            for worker in 0..self.options.workers {
                engine.step(worker, usize::MAX);
            }
            self.turn(engine)?;
            let is_done = engine.held() == (0, 0) && (!is_end || engine.open_files() == 0);
            if is_done && !std::mem::replace(&mut is_waited, true) {
                // From now on a sync is due for all that was written.
                self.now = self.now + every;
            } else if is_done && self.are_idle(engine)? {
                if self.options.durability == Durability::Every
                    || (is_end && self.options.durability == Durability::Close)
                {
                    self.durable.clone_from(&self.acknowledged);
                }
                return Ok(());
            }
        }
        Err((
            Invariant::WritesInTime,
            format!(
                "after {DRAIN_TURNS} turns {:?} records and bytes are not written, {} files not closed",
                engine.held(),
                engine.open_files()
            ),
        ))
    }

    /// Lets the workers do what waits for them, the engine order what follows from it, and so on: an order has at most
    /// two that follow.
    fn are_idle(&mut self, engine: &mut Engine<Numbered>) -> Result<bool, Broken> {
        for _ in 0..3 {
            for worker in 0..self.options.workers {
                engine.step(worker, usize::MAX);
            }
            self.turn(engine)?;
        }
        Ok(!self.disk.is_dead())
    }

    fn check_counts(&mut self, engine: &Engine<Numbered>) -> Result<(), Broken> {
        let mut unwritten = 0;
        for stream in 0..self.options.streams {
            let counts = engine.counts(StreamId(stream));
            let (records, bytes) = engine.in_flight(StreamId(stream));
            unwritten += records;
            if counts.taken_records != counts.written_records + records
                || counts.taken_bytes != counts.written_bytes + bytes
            {
                return Err((
                    Invariant::WriterBooks,
                    format!("stream {stream}: {counts:?}, and {records} records in flight"),
                ));
            }
        }
        // What is written may still wait for what stands before it.
        if unwritten > engine.held().0 {
            return Err((
                Invariant::WriterBooks,
                format!("{unwritten} records in flight, {} held", engine.held().0),
            ));
        }
        Ok(())
    }

    /// Compares all files with the catalogue, and their records with what was taken and acknowledged.
    fn check_files(&mut self) -> Result<(), Broken> {
        let files = self.disk.files();
        let rows = {
            let catalogue = self.catalogue.lock();
            let catalogue = catalogue.unwrap_or_else(PoisonError::into_inner);
            catalogue.rows(None)
        };
        let rows = rows.map_err(|error| (Invariant::WholeFiles, error.to_string()))?;
        let mut found = BTreeSet::new();
        for (name, bytes) in &files {
            let row = rows.iter().find(|row| row.file == *name);
            let Some(row) = row else {
                return Err((
                    Invariant::WholeFiles,
                    format!("{name} is there after a start, and the catalogue has no such file"),
                ));
            };
            self.check_file(row, bytes, &mut found)?;
        }
        for row in &rows {
            let is_there = files.contains_key(&row.file);
            if row.state == FileState::Open || !(is_there || self.may_be_damaged) {
                return Err((
                    Invariant::WholeFiles,
                    format!(
                        "after a start the catalogue has {row:?}; the file is there: {is_there}"
                    ),
                ));
            }
        }
        let lost: Vec<u64> = self.acknowledged.difference(&found).copied().collect();
        if !lost.is_empty() {
            return Err((
                Invariant::WrittenKept,
                format!("records {lost:?} were promised and are in no file"),
            ));
        }
        // What a recovery has closed is synced; without syncs files that were closed before are not.
        if self.options.durability != Durability::None {
            self.durable.clone_from(&found);
        }
        self.acknowledged = found;
        Ok(())
    }

    fn check_file(
        &self,
        row: &FileRow,
        bytes: &[u8],
        found: &mut BTreeSet<u64>,
    ) -> Result<(), Broken> {
        let mut summing = Summing::new(Kinds {
            crc32c: row.sums.crc32c.is_some(),
            xxh3: false,
        });
        summing.update(bytes);
        let is_same = row.sums.compare(&summing.sums()).is_ok();
        if !is_same && !self.may_be_damaged {
            return Err((
                Invariant::WholeFiles,
                format!("{row:?}, its file has {:?}", summing.sums()),
            ));
        }
        let mut rest = bytes;
        let (mut records, mut last) = (0, None);
        while let Ok(Some(record)) = record::read(&mut rest) {
            self.check_record(row, record)?;
            if last.is_some_and(|last| last >= record.number) || !found.insert(record.number) {
                return Err((
                    Invariant::WrittenOnce,
                    format!("record {} of {} is there twice", record.number, row.file),
                ));
            }
            last = Some(record.number);
            records += 1;
        }
        if records != row.records && !self.may_be_damaged {
            return Err((
                Invariant::WholeFiles,
                format!("{row:?}, its file has {records} whole records"),
            ));
        }
        Ok(())
    }

    fn check_record(&self, row: &FileRow, record: Found) -> Result<(), Broken> {
        let taken = self.taken.get(&record.number);
        let is_true = taken == Some(&(record.stream, record.block))
            && row.name.stream == format!("s{}", record.stream)
            && row.name.block == record.block
            && row.name.run == RUN;
        if is_true {
            return Ok(());
        }
        Err((
            Invariant::WrittenOnce,
            format!("{record:?} in {}, taken as {taken:?}", row.file),
        ))
    }
}
