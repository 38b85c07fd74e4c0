//! The way of records to one of several disks, or to none.
//!
//! An [`Intake`] is asked for a plan of all records that belong together, such as those of one TF: each goes to a disk
//! or is shed, or all of them wait. Each disk has a writer of its own; a block of a stream has a file on one of them at
//! a time. A new file goes to the disk that an [`Assignment`] chooses, weighted by the free space; a disk that fails,
//! is slow or full gets none. Overload by its name: [`Overload`].

use crate::assign::{Assigner, Assignment};
use crate::disk::{Disk, DiskLoad, LeftOut, Space};
use crate::fates::{Fates, Lost};
use crate::id::{Place, StreamId};
use crate::overload::{Overload, Pressure, ShedReason, Shedder};
use crate::writer::Counts;
use sheaf_placement::TargetId;
use sheaf_protect::protect;
use sheaf_protocol::Timestamp;
use std::collections::VecDeque;
use std::time::Duration;
use thiserror::Error;

/// Share of a queue, in thousandths, at which records go to the disks again and no longer to that for overload.
const SPILLED_ENOUGH: u64 = 500;

/// Configuration of an intake.
#[derive(Clone, Debug)]
pub struct IntakeConfig {
    /// Disks; with [`Overload::Spill`] the last one is that for overload, and gets nothing else.
    pub disks: u32,
    /// Assignment of files to disks: one of whole files.
    pub assignment: &'static Assignment,
    /// Behaviour when the disks take no more.
    pub overload: Overload,
    /// Class of each stream; those of the highest are never shed.
    pub classes: Vec<u16>,
    /// Bytes that may be with a disk at once; a record is taken beyond them if nothing else is.
    pub queue_bytes: u64,
    /// Records that may be with a disk at once.
    pub queue_records: u64,
    /// Percent of a queue at which the lowest class is shed.
    pub queue_high_percent: u32,
    /// Watermarks on the free space of each disk.
    pub space: Space,
    /// Age of the oldest record of a disk from which on it is slow.
    pub slow: Duration,
    /// Seed of assignments that draw lots.
    pub seed: u64,
}

/// Why a configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum IntakeError {
    /// There is no disk, or none beside that for overload.
    #[error("found {found} disks, expected {min} or more")]
    Disks {
        /// Disks found.
        found: u32,
        /// Least number.
        min: u32,
    },
    /// Streams would be shed, and all have one class.
    #[error("found one class of streams, expected two or more where streams are shed by class")]
    Classes,
    /// The watermarks on the free space are in the wrong order.
    #[error(
        "found {low} bytes free for the upper watermark, expected more than the {min} of the lower one"
    )]
    Space {
        /// The upper watermark.
        low: u64,
        /// The lower one.
        min: u64,
    },
    /// The watermark of the queue is no part of it.
    #[error("found {found} % of the queue, expected 1 to 99")]
    Queue {
        /// Percent found.
        found: u32,
    },
}

/// Record for which a way is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// Place of the record.
    pub place: Place,
    /// Bytes of the record.
    pub bytes: u64,
}

/// Way of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planned {
    /// To a disk.
    Write(TargetId),
    /// To none.
    Shed(ShedReason),
}

/// Change of a disk, or of the behaviour under overload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskNews {
    /// A disk gets no new files.
    LeftOut(TargetId, LeftOut),
    /// A disk gets files again.
    Back(TargetId),
    /// Records of so many classes are shed, from the lowest; 0: of none.
    Shedding(usize),
    /// Whether records go to the disk for overload.
    Spilling(bool),
}

/// Chooser of the way of each record.
#[derive(Debug)]
pub struct Intake {
    config: IntakeConfig,
    assigner: Assigner,
    disks: Vec<Disk>,
    shedder: Shedder,
    is_spilling: bool,
    announced: Vec<u64>,
    lost: Vec<Lost>,
    news: VecDeque<DiskNews>,
}

impl Intake {
    /// Creates an intake whose disks are well and empty.
    ///
    /// # Errors
    ///
    /// [`IntakeError`] if the configuration contradicts itself.
    pub fn new(config: IntakeConfig) -> Result<Self, IntakeError> {
        let (disks, streams) = (config.disks, config.classes.len());
        let min = 1 + u32::from(config.overload == Overload::Spill);
        if disks < min {
            return Err(IntakeError::Disks { found: disks, min });
        }
        let has_classes = config.classes.iter().min() != config.classes.iter().max();
        if config.overload == Overload::Shed && !has_classes {
            return Err(IntakeError::Classes);
        }
        let Space {
            min_bytes,
            low_bytes,
        } = config.space;
        if min_bytes > 0 && low_bytes <= min_bytes {
            return Err(IntakeError::Space {
                low: low_bytes,
                min: min_bytes,
            });
        }
        if !(1..=99).contains(&config.queue_high_percent) {
            let found = config.queue_high_percent;
            return Err(IntakeError::Queue { found });
        }
        let stream_count = u32::try_from(streams).unwrap_or(u32::MAX);
        Ok(Self {
            assigner: Assigner::new(config.assignment, disks, stream_count, config.seed),
            disks: (0..disks).map(|_| Disk::default()).collect(),
            shedder: Shedder::new(&config.classes),
            is_spilling: false,
            announced: vec![0; streams],
            lost: vec![Lost::default(); streams],
            news: VecDeque::new(),
            config,
        })
    }

    /// Notes the state of a disk.
    pub fn handle_load(&mut self, now: Timestamp, disk: TargetId, load: DiskLoad) {
        let slow = self.config.slow;
        if let Some(found) = self.disks.get_mut(disk.0 as usize) {
            found.handle_load(now, load, slow);
            self.tell(disk);
        }
    }

    /// Notes the free space of a disk; `None`: the disk does not say.
    pub fn handle_free(&mut self, disk: TargetId, free_bytes: Option<u64>) {
        let space = self.config.space;
        if let Some(found) = self.disks.get_mut(disk.0 as usize) {
            found.handle_free(free_bytes, space);
            self.tell(disk);
        }
        if let Some(bytes) = free_bytes {
            // In MiB: disks are filled in proportion to what they have free.
            let weight = u32::try_from(bytes >> 20).unwrap_or(u32::MAX).max(1);
            self.assigner.set_weight(disk, weight);
        }
    }

    fn tell(&mut self, disk: TargetId) {
        match self.disks[disk.0 as usize].take_news() {
            Some(Some(why)) => self.news.push_back(DiskNews::LeftOut(disk, why)),
            Some(None) => self.news.push_back(DiskNews::Back(disk)),
            None => {}
        }
    }

    /// Returns the next change.
    pub fn poll(&mut self) -> Option<DiskNews> {
        self.news.pop_front()
    }

    /// Plans the way of records that belong together, and counts them. `is_open` says whether a disk has a file of a
    /// place that takes further records. `None`: all have to wait, and none is counted.
    pub fn plan(
        &mut self,
        now: Timestamp,
        wants: &[Want],
        is_open: &dyn Fn(TargetId, Place) -> bool,
    ) -> Option<Vec<Planned>> {
        self.update();
        // Bytes and records of this plan at each disk.
        let mut given = vec![(0, 0); self.disks.len()];
        let mut plan = Vec::with_capacity(wants.len());
        for want in wants {
            if let Some(reason) = self.sheds(want.place.stream) {
                plan.push(Planned::Shed(reason));
                continue;
            }
            let disk = self.disk_of(now, want, &given, is_open)?;
            let (bytes, records) = &mut given[disk.0 as usize];
            *bytes += want.bytes;
            *records += 1;
            plan.push(Planned::Write(disk));
        }
        for (want, planned) in wants.iter().zip(&plan) {
            self.count(now, want, *planned);
        }
        Some(plan)
    }

    /// Notes that a writer has refused a record that was planned for it.
    pub fn handle_refused(&mut self, stream: StreamId) {
        if let Some(lost) = self.lost.get_mut(usize::from(stream.0)) {
            lost.refused += 1;
        }
    }

    /// Returns why a disk gets no new files; `None` if it does.
    #[must_use]
    pub fn left_out(&self, disk: TargetId) -> Option<LeftOut> {
        self.disks.get(disk.0 as usize)?.left_out()
    }

    /// Returns whether anything that is taken now would be written: some disk neither fails nor is too full.
    #[must_use]
    pub fn can_write(&self) -> bool {
        self.disks.iter().any(Disk::can_write)
    }

    /// Returns the records of a stream that no writer has taken.
    #[must_use]
    pub fn lost(&self, stream: StreamId) -> Lost {
        let lost = self.lost.get(usize::from(stream.0));
        lost.copied().unwrap_or_default()
    }

    /// Returns the fates of the records of a stream, from the accounting of the writers of all disks: what each has
    /// counted, and how many records are in flight there.
    pub fn fates(
        &self,
        stream: StreamId,
        writers: impl IntoIterator<Item = (Counts, u64)>,
    ) -> Fates {
        let lost = self.lost(stream);
        let announced = self.announced.get(usize::from(stream.0));
        let mut fates = Fates {
            announced: announced.copied().unwrap_or(0),
            shed: lost.shed_total(),
            refused: lost.refused,
            ..Fates::default()
        };
        for (counts, in_flight) in writers {
            fates.written += counts.written_records;
            fates.in_flight += in_flight;
        }
        fates
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &IntakeConfig {
        &self.config
    }

    /// Counts a record, and books it at its disk.
    fn count(&mut self, now: Timestamp, want: &Want, planned: Planned) {
        let stream = want.place.stream;
        let at = usize::from(stream.0);
        let (Some(announced), Some(lost)) = (self.announced.get_mut(at), self.lost.get_mut(at))
        else {
            return;
        };
        *announced += 1;
        match planned {
            Planned::Shed(reason) => {
                let at = ShedReason::ALL.iter().position(|one| *one == reason);
                let count = &mut lost.shed[at.expect("it is one of all")];
                *count += protect!(ShedCounted, 1, else 0);
                lost.shed_bytes += want.bytes;
            }
            Planned::Write(disk) => {
                if Some(disk) == spill_of(&self.config) {
                    lost.spilled += 1;
                }
                self.assigner.handle_given(now, stream, disk, want.bytes);
            }
        }
    }

    /// Returns why a record of `stream` is shed now.
    fn sheds(&self, stream: StreamId) -> Option<ShedReason> {
        let is_shed = self.config.overload == Overload::Shed;
        is_shed.then(|| self.shedder.sheds(stream)).flatten()
    }

    /// Chooses the disk of a record; `None` if it has to wait.
    fn disk_of(
        &mut self,
        now: Timestamp,
        want: &Want,
        given: &[(u64, u64)],
        is_open: &dyn Fn(TargetId, Place) -> bool,
    ) -> Option<TargetId> {
        let spill = spill_of(&self.config);
        let takes = |intake: &Self, disk| {
            intake.is_usable(disk) && intake.has_room(disk, want.bytes, given)
        };
        if self.is_spilling
            && let Some(spill) = spill.filter(|spill| takes(self, *spill))
        {
            return Some(spill);
        }
        let ordinary = ordinary_of(&self.config);
        let usable: Vec<TargetId> = ordinary
            .clone()
            .filter(|disk| self.is_usable(*disk))
            .collect();
        let chosen = match usable.iter().find(|disk| is_open(**disk, want.place)) {
            // Another one would mean another file: it is chosen when this one is slow.
            Some(disk) => takes(self, *disk).then_some(*disk),
            None => {
                let others = |disk: &TargetId| !(usable.contains(disk) && takes(self, *disk));
                let avoid: Vec<TargetId> = all_of(&self.config).filter(others).collect();
                self.choose(now, want, &avoid)
            }
        };
        if chosen.is_some() {
            return chosen;
        }
        if let Some(spill) = spill.filter(|spill| takes(self, *spill)) {
            self.set_spilling(true);
            return Some(spill);
        }
        if !usable.is_empty() {
            return None;
        }
        // No disk is well: what they take is written when one is.
        let may = |intake: &Self, disk: TargetId| {
            let is_low = intake.disks[disk.0 as usize].is_low();
            let is_kept = protect!(LowDiskKept, when is_low);
            !is_kept && intake.has_room(disk, want.bytes, given)
        };
        let open = ordinary.clone().find(|disk| is_open(*disk, want.place));
        if let Some(disk) = open.filter(|disk| !self.disks[disk.0 as usize].is_low()) {
            return may(self, disk).then_some(disk);
        }
        let others = |disk: &TargetId| spill == Some(*disk) || !may(self, *disk);
        let avoid: Vec<TargetId> = all_of(&self.config).filter(others).collect();
        self.choose(now, want, &avoid)
    }

    fn choose(&mut self, now: Timestamp, want: &Want, avoid: &[TargetId]) -> Option<TargetId> {
        if avoid.len() == self.disks.len() {
            return None;
        }
        self.assigner.choose_beside(now, want.place.stream, avoid)
    }

    fn is_usable(&self, disk: TargetId) -> bool {
        let left_out = self.disks[disk.0 as usize].left_out();
        let is_left_out = match left_out {
            None => false,
            Some(LeftOut::Low) => true,
            Some(LeftOut::Failing | LeftOut::Slow) => protect!(FaultyDiskLeftOut, when true),
        };
        !is_left_out
    }

    fn has_room(&self, disk: TargetId, bytes: u64, given: &[(u64, u64)]) -> bool {
        let load = &self.disks[disk.0 as usize].load;
        let (given_bytes, given_records) = given[disk.0 as usize];
        let records = load.held_records + given_records;
        let fits = load.held_bytes + given_bytes + bytes <= self.config.queue_bytes;
        records == 0 || (fits && records < self.config.queue_records)
    }

    /// Returns how much of the queue of a disk is filled, in thousandths.
    fn fill(&self, disk: TargetId) -> u64 {
        let load = &self.disks[disk.0 as usize].load;
        let of = |held: u64, bound: u64| {
            let permille = u128::from(held) * 1000 / u128::from(bound.max(1));
            u64::try_from(permille).unwrap_or(u64::MAX)
        };
        let bytes = of(load.held_bytes, self.config.queue_bytes);
        bytes.max(of(load.held_records, self.config.queue_records))
    }

    /// Decides what is shed and whether records are spilled, by the state of the disks.
    fn update(&mut self) {
        let ordinary = ordinary_of(&self.config);
        let usable: Vec<TargetId> = ordinary
            .clone()
            .filter(|disk| self.is_usable(*disk))
            .collect();
        match self.config.overload {
            Overload::Block => {}
            Overload::Spill => {
                let is_enough = |disk: &TargetId| self.fill(*disk) <= SPILLED_ENOUGH;
                if usable.is_empty() {
                    self.set_spilling(true);
                } else if usable.iter().any(is_enough) {
                    self.set_spilling(false);
                }
            }
            Overload::Shed => {
                let least = usable.iter().map(|disk| self.pressure(*disk));
                let pressure = least.reduce(Pressure::min).unwrap_or_else(|| {
                    let are_low = ordinary
                        .clone()
                        .all(|disk| self.disks[disk.0 as usize].is_low());
                    Pressure::full(match are_low {
                        true => ShedReason::Space,
                        false => ShedReason::Disk,
                    })
                });
                let before = self.shedder.level();
                self.shedder.set_pressure(pressure);
                let level = self.shedder.level();
                if level != before {
                    self.news.push_back(DiskNews::Shedding(level));
                }
            }
        }
    }

    fn set_spilling(&mut self, is_spilling: bool) {
        if std::mem::replace(&mut self.is_spilling, is_spilling) != is_spilling {
            self.news.push_back(DiskNews::Spilling(is_spilling));
        }
    }

    fn pressure(&self, disk: TargetId) -> Pressure {
        let high = u64::from(self.config.queue_high_percent) * 10;
        let queue = Pressure::between(self.fill(disk), high, 1000, ShedReason::Queue);
        let Space {
            min_bytes,
            low_bytes,
        } = self.config.space;
        match self.disks[disk.0 as usize].free_bytes {
            Some(free) if min_bytes > 0 => queue.max(Pressure::between(
                free,
                low_bytes,
                min_bytes,
                ShedReason::Space,
            )),
            Some(_) | None => queue,
        }
    }
}

/// Returns the disk for overload, if there is one.
fn spill_of(config: &IntakeConfig) -> Option<TargetId> {
    (config.overload == Overload::Spill).then(|| TargetId(config.disks - 1))
}

/// Returns all disks but that for overload.
fn ordinary_of(config: &IntakeConfig) -> impl Iterator<Item = TargetId> + Clone + use<> {
    let count = config.disks - u32::from(config.overload == Overload::Spill);
    (0..count).map(TargetId)
}

fn all_of(config: &IntakeConfig) -> impl Iterator<Item = TargetId> + use<> {
    (0..config.disks).map(TargetId)
}

#[cfg(test)]
mod tests;
