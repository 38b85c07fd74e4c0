//! The thread that appends, commits and maintains the store.

mod core;

pub use self::core::{Clock, KeepEvent, KeeperCore};

use crate::forward::Forwards;
use crate::metrics::Counts;
use crate::queue::Queue;
use crate::wall;
use sheaf_sample_store::{Disk, Store};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tracing::{error, info, warn};

/// How often the same is said in the log.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// The store, and whether it takes samples.
pub(crate) struct Kept {
    /// The store that queries read.
    pub(crate) store: Arc<dyn Store>,
    /// The same, where it is on disk.
    pub(crate) disk: Option<Arc<Disk>>,
    /// Set while the disk is full: writers get a code instead of an acknowledgement.
    pub(crate) is_full: AtomicBool,
}

/// Driver of the store.
pub(crate) struct Keeper {
    pub(crate) kept: Arc<Kept>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) forwards: Forwards,
    pub(crate) commit_every: Duration,
    /// Whether the oldest samples go when the disk is full.
    pub(crate) drops_oldest: bool,
}

/// The clocks of this machine.
struct Clocks(Instant);

impl Clock for Clocks {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn wall_ms(&self) -> i64 {
        wall::now_ms()
    }
}

impl Keeper {
    /// Works until the queue is closed and empty, and commits what is there.
    pub(crate) fn run(self) {
        let clocks = Clocks(Instant::now());
        let store = self.kept.store.clone();
        let disk = self.kept.disk.clone();
        let now = clocks.now();
        let mut core = KeeperCore::new(store, disk, self.commit_every, self.drops_oldest, now);
        let mut told = Told::default();
        let mut tell = |event: KeepEvent<'_>| self.note(&event, &mut told);
        while let Some(batches) = self.queue.take(clocks.0 + core.commit_at()) {
            for batch in &batches {
                self.forwards.give(batch);
                core.append(&clocks, batch, &mut tell);
            }
            core.turn(&clocks, &mut tell);
            self.kept.is_full.store(core.is_full(), Ordering::Relaxed);
        }
        core.end(&clocks, &mut tell);
        self.forwards.end();
    }

    /// Counts, and says what a person should know.
    fn note(&self, event: &KeepEvent<'_>, told: &mut Told) {
        match event {
            KeepEvent::Appended(appended) => self.counts.add_appended(appended),
            KeepEvent::Refused(reason, samples) => self.counts.add_refused(reason, *samples),
            KeepEvent::Committed(took) => self.counts.note_commit(*took),
            KeepEvent::Kept(stats) => self.counts.note_store(stats),
            KeepEvent::TakesAgain => info!("The store takes samples again"),
            KeepEvent::DroppedDay(day_ms) => warn!(
                day_ms,
                "The disk is full: samples of the oldest day are dropped"
            ),
            KeepEvent::NotDropped(error) => {
                error!(%error, "The oldest samples cannot be dropped");
            }
            KeepEvent::Failed(error) if told.is_due() => {
                error!(%error, "The store does not take samples; what it holds can be read");
            }
            KeepEvent::Failed(_) => {}
        }
    }
}

/// Limit of a repeating log line.
#[derive(Default)]
struct Told(Option<Instant>);

impl Told {
    fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = self.0.is_none_or(|told| now - told >= TELL_EVERY);
        if is_due {
            self.0 = Some(now);
        }
        is_due
    }
}
