//! One seed: lives of a writer with one or several disks, and what its files have to hold after each.

mod files;

use super::disk::SimDisk;
use super::options::{DeathOptions, WritingOptions};
use super::record::{self, Numbered};
use crate::dice::Dice;
use crate::farm::Outcome;
use crate::invariant::{Broken, Invariant};
use crate::trace::{Hash, Line, Trace};
use crate::watch::Accounting;
use sheaf_placement::TargetId;
use sheaf_protocol::Timestamp;
use sheaf_stream_files::{
    Catalogue, Disks, DisksEvent, Durability, Engine, EngineConfig, Labels, Record as _,
};
use sheaf_write::{
    Assignment, Intake, IntakeConfig, Kinds, Limits, Overload, Place, Planned, Space, StreamConfig,
    StreamId, SyncEvery, Template, Want, WriterConfig, disk_nodes,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Run of all records.
const RUN: u64 = 3;
/// Turns within which all has to be done when the disk is well.
const DRAIN_TURNS: u64 = 3_000;
/// Starts of one life: a fault of the disk may prevent some of them.
const STARTS_MAX: u64 = 100;

/// Watermarks on the free space, where it is limited, and the free spaces that a disk may have.
const SPACE: Space = Space {
    min_bytes: 100,
    low_bytes: 200,
};
const FREE: [u64; 5] = [50, 120, 150, 250, 1_000];
/// Time after a failure within which a disk gets nothing if another one is well.
const FAULTY: Duration = Duration::from_secs(5);

/// A disk, and what the watcher knows of it.
struct Ground {
    disk: SimDisk,
    catalogue: Arc<Mutex<Catalogue>>,
    /// Whether it was below the lower watermark and not yet above the upper one.
    is_low: bool,
    /// Whether it was ever below it in this life.
    was_low: bool,
    /// When it failed last in this life.
    failed_at: Option<Timestamp>,
}

/// Everything of one seed.
pub(super) struct World<'a> {
    options: &'a WritingOptions,
    dice: Dice,
    grounds: Vec<Ground>,
    now: Timestamp,
    next_number: u64,
    /// All records that an engine has taken: stream and block.
    taken: BTreeMap<u64, (u16, u64)>,
    /// Records shed, by stream, in this life; and all of them in all lives.
    shed: Vec<u64>,
    shed_total: u64,
    /// Records announced in this life, by stream.
    announced: Vec<u64>,
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
        let faults = std::iter::once(&options.faults).chain(&options.others);
        let grounds = (0..).zip(faults).map(|(at, faults)| {
            let disk_dice = Dice::new(options.seed ^ 0x6469_736b ^ at << 40);
            let catalogue = Catalogue::in_memory().expect("SQLite makes a database in memory");
            Ground {
                disk: SimDisk::new(disk_dice, faults),
                catalogue: Arc::new(Mutex::new(catalogue)),
                is_low: false,
                was_low: false,
                failed_at: None,
            }
        });
        let streams = usize::from(options.streams);
        Self {
            options,
            dice: Dice::new(options.seed),
            grounds: grounds.collect(),
            now: Timestamp(0),
            next_number: 0,
            taken: BTreeMap::new(),
            shed: vec![0; streams],
            shed_total: 0,
            announced: vec![0; streams],
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
        let mut hash = self.hash;
        let mut faults = 0;
        for ground in &self.grounds {
            let (injected, steps) = ground.disk.told();
            faults += injected;
            hash.add(steps);
        }
        let fates = [
            ("taken", self.taken.len() as u64),
            ("kept", self.durable.len() as u64),
            (
                "lost in a cut",
                (self.taken.len() - self.durable.len()) as u64,
            ),
            ("recovered", self.recovered),
            ("shed", self.shed_total),
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

    /// Whether the process is dead. What kills it at one disk ends it at all.
    fn is_dead(&self) -> bool {
        let is_dead = self.grounds.iter().any(|ground| ground.disk.is_dead());
        if is_dead {
            self.grounds.iter().for_each(|ground| ground.disk.kill());
        }
        is_dead
    }

    fn say(&mut self, node: &str, text: impl FnOnce() -> String) {
        let at = self.now;
        self.trace.add(|| Line::new(at, node, Vec::new(), text()));
    }

    /// Lives all lives.
    pub(super) fn run(&mut self) -> Result<(), Broken> {
        let options = self.options;
        for death in &options.deaths {
            self.begin_life(Some(death.after_steps));
            self.live()?;
            self.die(*death);
        }
        // The last life ends in order, with disks that are well; then the power goes.
        self.grounds.iter().for_each(|ground| ground.disk.heal());
        self.begin_life(None);
        self.live()?;
        let last = DeathOptions {
            is_cut: true,
            after_steps: 0,
            survive_percent: 50,
        };
        self.die(last);
        self.begin_life(None);
        let disks = self.start()?;
        drop(disks);
        Ok(())
    }

    /// Begins a life that ends after so many steps of one of the disks.
    fn begin_life(&mut self, dies_after: Option<u64>) {
        let count = self.grounds.len() as u64;
        let deadly = match count {
            1 => 0,
            _ => self.dice.range(0, count - 1),
        };
        for (at, ground) in (0..).zip(&mut self.grounds) {
            let dies_after = dies_after.filter(|_| at == deadly);
            ground.disk.begin_life(dies_after);
            (ground.is_low, ground.was_low, ground.failed_at) = (false, false, None);
        }
        self.shed.fill(0);
        self.announced.fill(0);
    }

    fn die(&mut self, death: DeathOptions) {
        self.grounds
            .iter()
            .for_each(|ground| ground.disk.die(death));
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

    fn intake(&self) -> IntakeConfig {
        let options = self.options;
        IntakeConfig {
            disks: u32::try_from(self.grounds.len()).expect("a few disks"),
            assignment: Assignment::named(options.disk_assignment).expect("drawn from the table"),
            overload: options.overload,
            classes: options.classes.clone(),
            queue_bytes: options.queue_bytes,
            queue_records: options.queue_records.into(),
            queue_high_percent: 75,
            space: match options.space_percent {
                0 => Space::default(),
                _ => SPACE,
            },
            slow: Duration::from_millis(options.slow_ms),
            seed: options.seed,
        }
    }

    fn config(&self, node: String) -> EngineConfig {
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
                node,
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
            labels: Labels::default(),
            worker_bytes_per_s: None,
        }
    }

    /// Starts an engine for each disk, which recovers its folder, and compares the folders with what they have to hold.
    /// Returns none if the process dies meanwhile.
    fn start(&mut self) -> Result<Option<Disks<Numbered>>, Broken> {
        let found = self.grounds.iter().map(|ground| {
            let catalogue = ground.catalogue.lock();
            let catalogue = catalogue.unwrap_or_else(PoisonError::into_inner);
            catalogue.newest_node().expect("it is in memory")
        });
        let names = disk_nodes("w", &found.collect::<Vec<_>>());
        let names = names.map_err(|error| (Invariant::WholeFiles, error.to_string()))?;
        let mut engines = Vec::new();
        for (at, name) in names.into_iter().enumerate() {
            match self.start_disk(at, &name)? {
                Some(engine) => engines.push(engine),
                None => return Ok(None),
            }
        }
        self.check_files()?;
        let intake = Intake::new(self.intake()).expect("the options are good");
        Ok(Some(Disks::new(intake, engines)))
    }

    fn start_disk(&mut self, at: usize, name: &str) -> Result<Option<Engine<Numbered>>, Broken> {
        for _ in 0..STARTS_MAX {
            // Of records with entries in a list the bytes tell nothing.
            let last = self.listed();
            let walk = move |reader: &mut dyn Read| {
                let found = record::read(reader)?;
                let found = found.filter(|record| Some(record.stream) != last);
                Ok(found.map(|record| record.bytes))
            };
            let ground = &self.grounds[at];
            let folder = Arc::new(ground.disk.clone());
            let catalogue = Arc::clone(&ground.catalogue);
            let config = self.config(name.to_owned());
            match Engine::simulated(config, folder, catalogue, &walk) {
                Ok((engine, found)) => {
                    self.recovered += found.iter().map(|one| one.records).sum::<u64>();
                    self.say("writer", || {
                        format!("starts at disk {at}; recovered: {found:?}")
                    });
                    return Ok(Some(engine));
                }
                Err(_) if self.is_dead() => return Ok(None),
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
        let Some(mut disks) = self.start()? else {
            return Ok(());
        };
        let last = self.next_number + self.options.records;
        while !self.is_dead() && self.next_number < last {
            let percent = self.options.space_percent;
            if percent > 0 && self.dice.chance(percent) {
                self.set_free(&mut disks);
            }
            match self.dice.range(0, 9) {
                0..=4 => self.append(&mut disks)?,
                5..=7 => self.step(&mut disks),
                8 => self.turn(&mut disks)?,
                _ if self.dice.chance(20) => self.drain(&mut disks, false)?,
                _ => self.turn(&mut disks)?,
            }
        }
        self.drain(&mut disks, true)
    }

    fn set_free(&mut self, disks: &mut Disks<Numbered>) {
        let at = self.any_disk();
        let bytes = self.dice.pick(&FREE);
        let ground = &mut self.grounds[at.0 as usize];
        let mark = match ground.is_low {
            true => SPACE.low_bytes,
            false => SPACE.min_bytes,
        };
        ground.is_low = bytes < mark;
        ground.was_low |= ground.is_low;
        self.say("farm", || format!("disk {} has {bytes} bytes free", at.0));
        disks.set_free(at, Some(bytes));
    }

    fn any_disk(&mut self) -> TargetId {
        let last = self.grounds.len() as u64 - 1;
        let at = match last {
            0 => 0,
            last => self.dice.range(0, last),
        };
        TargetId(u32::try_from(at).expect("a few disks"))
    }

    /// Brings records that belong together, as those of a TF: one for each of some streams.
    fn append(&mut self, disks: &mut Disks<Numbered>) -> Result<(), Broken> {
        let content = self.dice.range(0, self.options.content_max);
        let streams = u64::from(self.options.streams);
        let first = self.dice.range(0, streams - 1);
        let count = self.dice.range(1, streams);
        // Some come after the first ones of the next block.
        let late = self.dice.range(0, 2);
        let block = self.next_number.saturating_sub(late) / self.options.block_records;
        let places = (first..first + count).map(|stream| Place {
            run: RUN,
            stream: StreamId(u16::try_from(stream % streams).expect("a few streams")),
            block,
        });
        let records = places.zip(self.next_number..);
        let listed = self.listed();
        let numbered = |place: Place, number| {
            let is_listed = listed == Some(place.stream.0);
            Numbered::new(number, place, content).listed(is_listed)
        };
        let records: Vec<(Place, Numbered)> = records
            .map(|(place, number)| (place, numbered(place, number)))
            .collect();
        let want = |(place, record): &(Place, Numbered)| Want {
            place: *place,
            bytes: record.bytes(),
        };
        let wants: Vec<Want> = records.iter().map(want).collect();
        let Some(plan) = disks.plan(self.now, &wants) else {
            return Ok(());
        };
        self.next_number += count;
        for (planned, want) in plan.iter().zip(&wants) {
            self.check_planned(disks, *planned, *want)?;
        }
        for ((place, record), planned) in records.into_iter().zip(plan) {
            let (number, stream) = (record.number, usize::from(place.stream.0));
            self.announced[stream] += 1;
            match planned {
                Planned::Shed(reason) => {
                    self.shed[stream] += 1;
                    self.shed_total += 1;
                    self.say("writer", || format!("sheds {number}: {}", reason.name()));
                }
                Planned::Write(disk) => {
                    disks
                        .append(self.now, disk, place, record)
                        .expect("a record of a stream that there is");
                    self.taken.insert(number, (place.stream.0, block));
                }
            }
        }
        Ok(())
    }

    /// Checks the way of a record by what the watcher itself has seen of the disks.
    fn check_planned(
        &self,
        disks: &Disks<Numbered>,
        planned: Planned,
        want: Want,
    ) -> Result<(), Broken> {
        let broken = |text: String| Err((Invariant::OverloadByName, text));
        let classes = &self.options.classes;
        let class = classes[usize::from(want.place.stream.0)];
        let at = match planned {
            Planned::Shed(reason) => {
                let is_top = classes.iter().all(|other| *other <= class);
                if is_top || self.options.overload != Overload::Shed {
                    return broken(format!("{want:?} of class {class} is shed: {reason:?}"));
                }
                return Ok(());
            }
            Planned::Write(disk) => disk.0 as usize,
        };
        if self.grounds[at].is_low {
            return broken(format!("{want:?} goes to disk {at}, which is too full"));
        }
        let failed_at = self.grounds[at].failed_at;
        let is_faulty = failed_at.is_some_and(|failed| self.now.since(failed) < FAULTY);
        let ordinary = self.grounds.len() - usize::from(self.options.overload == Overload::Spill);
        let is_well = |(other, ground): &(usize, &Ground)| {
            let disk = TargetId(u32::try_from(*other).expect("a few disks"));
            *other != at
                && !ground.was_low
                && ground.failed_at.is_none()
                && disks.intake().left_out(disk).is_none()
                && disks.engine(disk).held() == (0, 0)
        };
        let well = self.grounds[..ordinary].iter().enumerate().find(is_well);
        if let Some((other, _)) = well.filter(|_| is_faulty && at < ordinary) {
            return broken(format!(
                "{want:?} goes to disk {at}, which failed at {failed_at:?}, and disk {other} is well"
            ));
        }
        Ok(())
    }

    /// Returns the stream whose files have lists of their records.
    fn listed(&self) -> Option<u16> {
        self.options.has_lists.then(|| self.options.streams - 1)
    }

    fn step(&mut self, disks: &mut Disks<Numbered>) {
        let disk = self.any_disk();
        let worker = self.dice.range(0, u64::from(self.options.workers) - 1);
        let worker = u32::try_from(worker).expect("a few workers");
        let orders = self.dice.range(1, self.options.orders_max);
        // A worker that gives up does so because the process is dead.
        disks.step(disk, worker, orders as usize);
    }

    fn turn(&mut self, disks: &mut Disks<Numbered>) -> Result<(), Broken> {
        let ms = self.dice.pick(&[0, 1, 10]);
        self.now = self.now + Duration::from_millis(ms);
        let is_dead = self.is_dead();
        disks.turn(self.now);
        while let Some(event) = disks.poll() {
            match event {
                DisksEvent::Written(record) => {
                    self.hash.add(record.number);
                    if is_dead {
                        // The process has died before it could say so.
                        continue;
                    }
                    self.say("writer", || format!("acknowledges {}", record.number));
                    self.acknowledged.insert(record.number);
                    if self.options.durability == Durability::Record {
                        self.durable.insert(record.number);
                    }
                }
                DisksEvent::Trouble { disk, .. } => {
                    self.grounds[disk.0 as usize].failed_at = Some(self.now);
                }
                DisksEvent::Changed(news) => self.say("writer", || format!("{news:?}")),
            }
        }
        self.check_counts(disks)
    }

    fn step_all(&mut self, disks: &mut Disks<Numbered>) {
        for disk in (0..disks.count()).map(TargetId) {
            for worker in 0..self.options.workers {
                // What dies at one disk is dead at the next one.
                if !self.is_dead() {
                    disks.step(disk, worker, usize::MAX);
                }
            }
        }
    }

    /// Lets the engines do all that is due: at their end, or such that all is synced that `Every` promises.
    fn drain(&mut self, disks: &mut Disks<Numbered>, is_end: bool) -> Result<(), Broken> {
        if is_end {
            disks.end_files(self.now);
        }
        let every = Duration::from_millis(self.options.sync.1);
        let mut waited = 0;
        for _ in 0..DRAIN_TURNS {
            if self.is_dead() {
                return Ok(());
            }
            self.step_all(disks);
            self.turn(disks)?;
            let is_done = disks.held() == (0, 0) && (!is_end || disks.open_files() == 0);
            if is_done && waited < 2 {
                // A sync that was under way as a record was written need not have it: the next one, which is due a
                // period after that one has ended, has all.
                waited += 1;
                self.are_idle(disks)?;
                self.now = self.now + every;
            } else if is_done && self.are_idle(disks)? {
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
                disks.held(),
                disks.open_files()
            ),
        ))
    }

    /// Lets the workers do what waits for them, the engines order what follows from it, and so on: an order has at most
    /// two that follow.
    fn are_idle(&mut self, disks: &mut Disks<Numbered>) -> Result<bool, Broken> {
        for _ in 0..3 {
            self.step_all(disks);
            self.turn(disks)?;
        }
        Ok(!self.is_dead())
    }

    fn check_counts(&mut self, disks: &Disks<Numbered>) -> Result<(), Broken> {
        let mut unwritten = 0;
        for stream in 0..self.options.streams {
            let (id, at) = (StreamId(stream), usize::from(stream));
            let fates = disks.fates(id);
            let is_same = fates.announced == self.announced[at] && fates.shed == self.shed[at];
            if !fates.is_balanced() || !is_same {
                return Err((
                    Invariant::WriterBooks,
                    format!(
                        "stream {stream}: {fates:?}, expected {} announced and {} shed",
                        self.announced[at], self.shed[at]
                    ),
                ));
            }
            unwritten += fates.in_flight;
            for (disk, engine) in disks.engines() {
                let counts = engine.counts(id);
                let (records, bytes) = engine.in_flight(id);
                if counts.taken_records != counts.written_records + records
                    || counts.taken_bytes != counts.written_bytes + bytes
                {
                    return Err((
                        Invariant::WriterBooks,
                        format!(
                            "disk {}, stream {stream}: {counts:?}, and {records} records in flight",
                            disk.0
                        ),
                    ));
                }
            }
        }
        // What is written may still wait for what stands before it.
        if unwritten > disks.held().0 {
            return Err((
                Invariant::WriterBooks,
                format!("{unwritten} records in flight, {} held", disks.held().0),
            ));
        }
        Ok(())
    }
}
