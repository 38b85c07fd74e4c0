//! Everything that a seed of the family `writers` stands for.

use crate::dice::Dice;
use sheaf_stream_files::{Durability, IoMode};
use sheaf_write::{Overload, Unit, assignments};

/// End of one life of the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeathOptions {
    /// Whether the machine loses power; else the process alone dies.
    pub is_cut: bool,
    /// Steps of the disk in this life before the one that it dies in.
    pub after_steps: u64,
    /// Blocks in 100 that were not synced and survive a cut.
    pub survive_percent: u64,
}

/// Fault of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFault {
    /// No room for so many writes.
    Full(u64),
    /// Number of writes that fail, each after a part of its bytes.
    WritesFail(u64),
    /// Number of syncs that fail; the kernel forgets what they could not write.
    SyncsFail(u64),
    /// Number of syncs of the folder that fail.
    FolderSyncsFail(u64),
    /// Number of commits of the catalogue that are refused, as by a lock that another process keeps.
    CommitsRefused(u64),
}

/// All that is drawn from a seed.
#[derive(Clone, Debug, PartialEq)]
pub struct WritingOptions {
    /// The seed.
    pub seed: u64,
    /// Streams.
    pub streams: u16,
    /// Workers.
    pub workers: u32,
    /// Name of the assignment.
    pub assignment: &'static str,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Most bytes of the content of a record.
    pub content_max: u64,
    /// Way to the disk.
    pub mode: IoMode,
    /// When data is made durable.
    pub durability: Durability,
    /// Bytes and time, in ms, of the periodic sync.
    pub sync: (u64, u64),
    /// Bytes, records and age in ms at which a file is closed.
    pub limits: (u64, u64, u64),
    /// Records of a block.
    pub block_records: u64,
    /// Whether a CRC-32C is taken beside Adler-32.
    pub has_crc32c: bool,
    /// Records that may be with the workers.
    pub queue_records: u32,
    /// Most orders of a batch of a worker.
    pub orders_max: u64,
    /// Records of each life.
    pub records: u64,
    /// Deaths, one a life; the last life ends in order.
    pub deaths: Vec<DeathOptions>,
    /// Faults of the disk, by the step over all lives before which they begin.
    pub faults: Vec<(u64, DiskFault)>,
    /// Disks beside the first one, each with its faults; the last one is that for overload, if records are spilled.
    pub others: Vec<Vec<(u64, DiskFault)>>,
    /// Name of the assignment of files to disks.
    pub disk_assignment: &'static str,
    /// Behaviour when the disks take no more.
    pub overload: Overload,
    /// Class of each stream.
    pub classes: Vec<u16>,
    /// Bytes that may be with a disk.
    pub queue_bytes: u64,
    /// Age in ms of the oldest record of a disk that is slow.
    pub slow_ms: u64,
    /// Percent of the steps of a life before which a disk has another free space; 0: there is room for all.
    pub space_percent: u64,
    /// Whether the records of the last stream have their ends in a list beside the file.
    pub has_lists: bool,
}

impl WritingOptions {
    /// Draws the options of `seed`.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let mut dice = Dice::new(seed ^ 0x7772_6974_6572_7300);
        let dice = &mut dice;
        let assignments = assignments();
        let at = dice.range(0, assignments.len() as u64 - 1) as usize;
        let records = dice.range(10, 120);
        let deaths = (0..dice.range(1, 4)).map(|_| DeathOptions {
            is_cut: dice.chance(60),
            after_steps: dice.range(0, records * 4),
            survive_percent: dice.pick(&[0, 10, 50, 90, 100]),
        });
        let deaths: Vec<_> = deaths.collect();
        let faults = match dice.chance(50) {
            true => dice.range(1, 5),
            false => 0,
        };
        let steps = records * 3 * (deaths.len() as u64 + 1);
        let mut faults: Vec<_> = (0..faults)
            .map(|_| (dice.range(0, steps), draw_fault(dice)))
            .collect();
        faults.sort_unstable_by_key(|(step, _)| *step);
        let streams = dice.pick(&[1, 1, 2, 3]);
        let disks = DisksOptions::draw(seed, streams, steps);
        Self {
            seed,
            streams,
            others: disks.others,
            disk_assignment: disks.assignment,
            overload: disks.overload,
            classes: disks.classes,
            queue_bytes: disks.queue_bytes,
            slow_ms: disks.slow_ms,
            space_percent: disks.space_percent,
            workers: dice.pick(&[1, 2, 2, 3, 4]),
            assignment: assignments[at].name,
            segment_bytes: dice.pick(&[1, 600, 5_000, 40_000]),
            content_max: dice.pick(&[0, 60, 700, 9_000]),
            mode: dice.pick(&[IoMode::Direct, IoMode::Direct, IoMode::Buffered]),
            durability: dice.pick(&[
                Durability::None,
                Durability::Close,
                Durability::Every,
                Durability::Every,
                Durability::Every,
                Durability::Record,
            ]),
            sync: (dice.pick(&[1, 2_000, 50_000]), dice.pick(&[1, 20, 1_000])),
            limits: (
                dice.pick(&[2_000, 30_000, u64::MAX]),
                dice.pick(&[1, 7, 1_000]),
                dice.pick(&[5, 100, 1_000_000]),
            ),
            block_records: dice.pick(&[3, 20, 1_000]),
            has_crc32c: dice.chance(70),
            queue_records: dice.pick(&[1, 4, 30]),
            orders_max: dice.pick(&[1, 4, 100]),
            records,
            deaths,
            faults,
            has_lists: dice.chance(30),
        }
    }
}

/// Options of several disks, and of overload.
struct DisksOptions {
    others: Vec<Vec<(u64, DiskFault)>>,
    assignment: &'static str,
    overload: Overload,
    classes: Vec<u16>,
    queue_bytes: u64,
    slow_ms: u64,
    space_percent: u64,
}

impl DisksOptions {
    /// Draws them by dice of their own: the seeds of one disk stay what they were.
    fn draw(seed: u64, streams: u16, steps: u64) -> Self {
        let mut dice = Dice::new(seed ^ 0x6d61_6e79_6469_736b);
        let dice = &mut dice;
        let classes: Vec<u16> = (0..streams).map(|_| dice.pick(&[0, 1, 2])).collect();
        let has_classes = classes.iter().min() != classes.iter().max();
        let overload = match dice.range(0, 5) {
            0 | 1 if has_classes => Overload::Shed,
            2 | 3 => Overload::Spill,
            _ => Overload::Block,
        };
        let least = u64::from(overload == Overload::Spill);
        let others = dice.pick(&[0, 0, 1, 2]).max(least);
        let others = (0..others).map(|_| {
            let mut faults: Vec<_> = (0..dice.pick(&[0, 0, 1, 3]))
                .map(|_| (dice.range(0, steps), draw_fault(dice)))
                .collect();
            faults.sort_unstable_by_key(|(step, _)| *step);
            faults
        });
        let others = others.collect();
        let files = assignments().iter().filter(|row| row.unit == Unit::File);
        let files: Vec<&str> = files.map(|row| row.name).collect();
        Self {
            others,
            assignment: files[dice.range(0, files.len() as u64 - 1) as usize],
            overload,
            classes,
            queue_bytes: dice.pick(&[u64::MAX, u64::MAX, 3_000, 20_000]),
            slow_ms: dice.pick(&[1, 30, 1_000_000]),
            space_percent: dice.pick(&[0, 0, 2, 10]),
        }
    }
}

fn draw_fault(dice: &mut Dice) -> DiskFault {
    let count = dice.pick(&[1, 1, 2, 5]);
    match dice.range(0, 5) {
        0 => DiskFault::Full(count),
        1 => DiskFault::WritesFail(count),
        2 | 3 => DiskFault::SyncsFail(count),
        4 => DiskFault::FolderSyncsFail(count),
        _ => DiskFault::CommitsRefused(count),
    }
}
