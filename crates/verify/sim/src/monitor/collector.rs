//! The collector under test: the parts that its threads drive, over files on a simulated disk.

use super::client::Parcel;
use super::disk::SimDisk;
use super::options::{MonitorOptions, Operators};
use sheaf_intake::Outcome;
use sheaf_monitor::cores::{Clock, KeepEvent, KeeperCore, Listener, Queue, ShardCore};
use sheaf_processing::{OutputSample, Pipeline, Role};
use sheaf_sample_store::{Appended, Disk, SeriesId, Store as _};
use std::cell::Cell;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Report of the keeper, without borrows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Appended(Appended),
    Refused(&'static str, u64),
    Committed,
    /// Upkeep ended, by this clock in ms since 1970.
    Maintained(i64),
    DroppedDay(i64),
    NotDropped,
}

/// Clock of one turn of the keeper: that of the world, and the time that the disk takes.
struct TurnClock<'a> {
    now_ms: i64,
    wall_ms: i64,
    disk: &'a SimDisk,
    /// Time that upkeep read last.
    read_ms: Cell<i64>,
}

impl<'a> TurnClock<'a> {
    fn new(now_ms: i64, wall_ms: i64, disk: &'a SimDisk) -> Self {
        let read_ms = Cell::new(wall_ms);
        Self {
            now_ms,
            wall_ms,
            disk,
            read_ms,
        }
    }
}

impl Clock for TurnClock<'_> {
    fn now(&self) -> Duration {
        let now_ms = self.now_ms + self.disk.lock().spent_ms;
        Duration::from_millis(now_ms.unsigned_abs())
    }

    fn wall_ms(&self) -> i64 {
        self.read_ms.set(self.wall_ms + self.disk.lock().spent_ms);
        self.read_ms.get()
    }
}

/// Counts what goes by on the way to the queue.
#[derive(Debug, Default)]
pub(super) struct Ears {
    pub(super) samples: u64,
    pub(super) not_stored: u64,
}

impl Listener for Ears {
    fn handle_sample(&mut self, _: &OutputSample, id: Option<SeriesId>) {
        self.samples += 1;
        self.not_stored += u64::from(id.is_none());
    }
}

/// One life of the collector.
pub(super) struct Collector {
    pub(super) shard: ShardCore,
    pub(super) queue: Arc<Queue>,
    pub(super) store: Arc<Disk>,
    pub(super) ears: Ears,
    /// Datagrams that the kernel keeps until the collector receives them, with their numbers at the client.
    pub(super) kernel: VecDeque<(Parcel, usize)>,
    /// Datagrams that it dropped since it was asked.
    pub(super) kernel_drops: u64,
    keeper: KeeperCore,
    /// Until then the thread of the keeper waits for the disk.
    keeper_busy_until_ms: i64,
    /// Whether requests are refused, as the thread of HTTP has read it.
    is_full: bool,
}

impl Collector {
    pub(super) fn start(
        dir: &Path,
        disk: &SimDisk,
        options: &MonitorOptions,
        operators: &Operators,
        now_ms: i64,
    ) -> Result<Self, String> {
        let opened = Disk::open_with(dir, options.store.clone(), Box::new(disk.clone()));
        let store = Arc::new(opened.map_err(|error| error.to_string())?);
        let pipeline = Pipeline::new(&operators.config(), Role::Whole);
        let pipeline = pipeline.map_err(|error| error.to_string())?;
        let queue = Arc::new(Queue::new(options.queue_max));
        Ok(Self {
            shard: ShardCore::new(&options.intake, pipeline, store.clone(), queue.clone()),
            keeper: KeeperCore::new(
                store.clone(),
                Some(store.clone()),
                Duration::from_millis(options.commit_ms),
                options.drops_oldest,
                Duration::from_millis(now_ms.unsigned_abs()),
            ),
            queue,
            store,
            ears: Ears::default(),
            kernel: VecDeque::new(),
            kernel_drops: 0,
            keeper_busy_until_ms: 0,
            is_full: false,
        })
    }

    pub(super) fn take(&mut self, wall_ms: i64, parcel: &Parcel) -> Outcome {
        let Parcel {
            peer,
            protocol,
            bytes,
            ..
        } = parcel;
        self.shard
            .take(wall_ms, *peer, *protocol, bytes, &mut self.ears)
    }

    /// Returns whether a request is taken, as HTTP decides it: there is room on the disk and in the queue.
    pub(super) fn takes_requests(&self) -> bool {
        !self.is_full && self.queue.has_room()
    }

    /// One turn of the thread that keeps the store, if the disk does not hold it up.
    pub(super) fn keep(&mut self, now_ms: i64, wall_ms: i64, disk: &SimDisk) -> Vec<Kept> {
        let mut kept = Vec::new();
        if now_ms < self.keeper_busy_until_ms {
            return kept;
        }
        disk.lock().spent_ms = 0;
        let clock = TurnClock::new(now_ms, wall_ms, disk);
        let mut tell = |event: KeepEvent<'_>| match event {
            KeepEvent::Appended(appended) => kept.push(Kept::Appended(*appended)),
            KeepEvent::Refused(reason, count) => kept.push(Kept::Refused(reason, count)),
            KeepEvent::Committed(_) => kept.push(Kept::Committed),
            KeepEvent::Kept(_) => kept.push(Kept::Maintained(clock.read_ms.get())),
            KeepEvent::DroppedDay(day_ms) => kept.push(Kept::DroppedDay(day_ms)),
            KeepEvent::NotDropped(_) => kept.push(Kept::NotDropped),
            KeepEvent::TakesAgain | KeepEvent::Failed(_) => {}
        };
        let batches = self.queue.take(std::time::Instant::now());
        for batch in batches.unwrap_or_default() {
            self.keeper.append(&clock, &batch, &mut tell);
        }
        self.keeper.turn(&clock, &mut tell);
        self.is_full = self.keeper.is_full();
        self.keeper_busy_until_ms = now_ms + disk.lock().spent_ms;
        kept
    }

    /// Until then the thread of the keeper waits for the disk.
    pub(super) fn busy_until_ms(&self) -> i64 {
        self.keeper_busy_until_ms
    }

    /// Ends as a process that is asked to: all that it took is committed.
    pub(super) fn end(&mut self, now_ms: i64, wall_ms: i64, disk: &SimDisk) -> Vec<Kept> {
        self.keeper_busy_until_ms = 0;
        let mut kept = self.keep(now_ms, wall_ms, disk);
        let clock = TurnClock::new(now_ms, wall_ms, disk);
        self.keeper.end(&clock, &mut |event| {
            if matches!(event, KeepEvent::Committed(_)) {
                kept.push(Kept::Committed);
            }
        });
        kept
    }

    /// Samples that the store counts as accepted in this life.
    pub(super) fn accepted(&self) -> u64 {
        self.store.stats().appended.accepted
    }
}
