//! Several disks as the targets of one writer: an engine for each, and an intake that says which record goes where.

use crate::engine::{Engine, EngineEvent};
use crate::worker::Record;
use sheaf_placement::TargetId;
use sheaf_protocol::Timestamp;
use sheaf_write::{
    Counts, DiskLoad, DiskNews, Fates, Intake, Place, Planned, Refused, StreamId, Want,
};
use std::collections::VecDeque;

/// News of the disks.
#[derive(Debug, PartialEq, Eq)]
pub enum DisksEvent<R> {
    /// A record is written, and all before it in its file.
    Written(R),
    /// Writing to a disk fails, and is tried again.
    Trouble {
        /// The disk.
        disk: TargetId,
        /// Error of the operating system.
        error: String,
    },
    /// A disk is left out or back, or the behaviour under overload has changed.
    Changed(DiskNews),
}

/// A disk and its engine.
#[derive(Debug)]
struct Disk<R: Record> {
    engine: Engine<R>,
    /// Workers whose orders fail now.
    troubled: u64,
    /// Whether an order has failed since the intake was told.
    has_failed: bool,
    /// Orders that failed and were tried again.
    failures: u64,
    error: String,
}

/// Disks of one writer.
#[derive(Debug)]
pub struct Disks<R: Record> {
    intake: Intake,
    disks: Vec<Disk<R>>,
    events: VecDeque<DisksEvent<R>>,
}

impl<R: Record> Disks<R> {
    /// Joins `engines`, one for each disk of `intake` in the same order.
    ///
    /// # Panics
    ///
    /// If their numbers differ.
    #[must_use]
    pub fn new(intake: Intake, engines: Vec<Engine<R>>) -> Self {
        assert_eq!(intake.config().disks as usize, engines.len(), "disks");
        let disk = |engine| Disk {
            engine,
            troubled: 0,
            has_failed: false,
            failures: 0,
            error: String::new(),
        };
        Self {
            intake,
            disks: engines.into_iter().map(disk).collect(),
            events: VecDeque::new(),
        }
    }

    /// Notes the free space of a disk; `None`: the disk does not say.
    pub fn set_free(&mut self, disk: TargetId, bytes: Option<u64>) {
        self.intake.handle_free(disk, bytes);
        self.take_news();
    }

    /// Plans the way of records that belong together, and counts them; `None`: all have to wait. Each record that is
    /// planned for a disk has to be given to [`append`](Self::append).
    pub fn plan(&mut self, now: Timestamp, wants: &[Want]) -> Option<Vec<Planned>> {
        self.observe(now);
        let disks = &self.disks;
        let is_open = |disk: TargetId, place| disks[disk.0 as usize].engine.is_open(place);
        let plan = self.intake.plan(now, wants, &is_open);
        self.take_news();
        plan
    }

    /// Takes a record to the disk that was planned; [`DisksEvent::Written`] follows.
    ///
    /// # Errors
    ///
    /// [`Refused`], with the record.
    pub fn append(
        &mut self,
        now: Timestamp,
        disk: TargetId,
        place: Place,
        record: R,
    ) -> Result<(), (Refused, R)> {
        let at = disk.0 as usize;
        if !self.disks[at].engine.is_open(place) {
            let others = self.disks.iter_mut().enumerate();
            for (_, other) in others.filter(|(other, _)| *other != at) {
                other.engine.end_moved(now, place);
            }
        }
        let taken = self.disks[at].engine.append(now, place, record);
        if taken.is_err() {
            self.intake.handle_refused(place.stream);
        }
        taken
    }

    /// Does all that is due at all disks.
    pub fn turn(&mut self, now: Timestamp) {
        for disk in &mut self.disks {
            disk.engine.turn(now);
        }
        self.take_events();
        self.observe(now);
    }

    /// Returns the next event.
    pub fn poll(&mut self) -> Option<DisksEvent<R>> {
        self.events.pop_front()
    }

    /// Returns the number of disks.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.intake.config().disks
    }

    /// Returns the engine of a disk.
    ///
    /// # Panics
    ///
    /// If there is no such disk.
    #[must_use]
    pub fn engine(&self, disk: TargetId) -> &Engine<R> {
        &self.disks[disk.0 as usize].engine
    }

    /// Returns all engines, with their disks.
    pub fn engines(&self) -> impl Iterator<Item = (TargetId, &Engine<R>)> {
        let engines = self.disks.iter().map(|disk| &disk.engine);
        (0..).map(TargetId).zip(engines)
    }

    /// Returns the orders to a disk that failed and were tried again.
    #[must_use]
    pub fn failures(&self, disk: TargetId) -> u64 {
        self.disks
            .get(disk.0 as usize)
            .map_or(0, |disk| disk.failures)
    }

    /// Returns the newest error of a disk, empty without one.
    #[must_use]
    pub fn error(&self, disk: TargetId) -> &str {
        let disk = self.disks.get(disk.0 as usize);
        disk.map_or("", |disk| &disk.error)
    }

    /// Returns the intake.
    #[must_use]
    pub fn intake(&self) -> &Intake {
        &self.intake
    }

    /// Returns the accounting of a stream over all disks.
    #[must_use]
    pub fn counts(&self, stream: StreamId) -> Counts {
        let all = self.disks.iter().map(|disk| disk.engine.counts(stream));
        all.fold(Counts::default(), Counts::plus)
    }

    /// Returns the fates of the records of a stream.
    #[must_use]
    pub fn fates(&self, stream: StreamId) -> Fates {
        let writers = self.disks.iter().map(|disk| {
            let (records, _) = disk.engine.in_flight(stream);
            (disk.engine.counts(stream), records)
        });
        self.intake.fates(stream, writers)
    }

    /// Returns records and bytes that are taken and not acknowledged.
    #[must_use]
    pub fn held(&self) -> (u64, u64) {
        let all = self.disks.iter().map(|disk| disk.engine.held());
        all.fold((0, 0), |sum, each| (sum.0 + each.0, sum.1 + each.1))
    }

    /// Returns the number of files that are not closed.
    #[must_use]
    pub fn open_files(&self) -> usize {
        let all = self.disks.iter().map(|disk| disk.engine.open_files());
        all.sum()
    }

    /// Lets a worker without a thread carry out orders; see [`Engine::step`].
    pub fn step(&mut self, disk: TargetId, worker: u32, orders_max: usize) -> bool {
        let disk = self.disks.get_mut(disk.0 as usize);
        disk.is_none_or(|disk| disk.engine.step(worker, orders_max))
    }

    /// Ends all files: each is closed when all that it has is written.
    pub fn end_files(&mut self, now: Timestamp) {
        for disk in &mut self.disks {
            disk.engine.end_files(now);
        }
    }

    /// Ends and closes all files, those of each disk for at most the time that `patience` gives, which is given whether
    /// the disk fails. Returns whether all are closed; the next life closes others.
    pub fn finish(
        &mut self,
        clock: impl Fn() -> Timestamp,
        patience: impl Fn(bool) -> std::time::Duration,
    ) -> bool {
        self.end_files(clock());
        // Those that fail come last: the others are closed in any case.
        let mut order: Vec<usize> = (0..self.disks.len()).collect();
        order.sort_by_key(|at| self.disks[*at].troubled > 0);
        let mut is_closed = true;
        for at in order {
            let disk = &mut self.disks[at];
            is_closed &= disk.engine.finish(&clock, patience(disk.troubled > 0));
        }
        self.take_events();
        is_closed
    }

    /// Tells the intake the state of the disks.
    fn observe(&mut self, now: Timestamp) {
        for (id, disk) in (0..).map(TargetId).zip(&mut self.disks) {
            let (held_records, held_bytes) = disk.engine.held();
            let load = DiskLoad {
                held_records,
                held_bytes,
                oldest: disk.engine.oldest(),
                is_failing: std::mem::take(&mut disk.has_failed) || disk.troubled > 0,
            };
            self.intake.handle_load(now, id, load);
        }
        self.take_news();
    }

    fn take_events(&mut self) {
        for (id, disk) in (0..).map(TargetId).zip(&mut self.disks) {
            while let Some(event) = disk.engine.poll() {
                match event {
                    EngineEvent::Written(record) => {
                        self.events.push_back(DisksEvent::Written(record));
                    }
                    EngineEvent::Trouble(error) => {
                        disk.troubled += 1;
                        disk.has_failed = true;
                        disk.failures += 1;
                        disk.error.clone_from(&error);
                        let trouble = DisksEvent::Trouble { disk: id, error };
                        self.events.push_back(trouble);
                    }
                    EngineEvent::Healed => disk.troubled = disk.troubled.saturating_sub(1),
                }
            }
        }
    }

    fn take_news(&mut self) {
        while let Some(news) = self.intake.poll() {
            self.events.push_back(DisksEvent::Changed(news));
        }
    }
}
