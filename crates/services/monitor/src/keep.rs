//! The thread that appends, commits and maintains the store.

use crate::forward::Forwards;
use crate::metrics::Counts;
use crate::queue::{Queue, Samples};
use crate::wall;
use sheaf_sample_store::{Disk, Store, StoreError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tracing::{error, info, warn};

/// Period of the work that no commit needs: sealing, levels, retention.
const MAINTAIN_EVERY: Duration = Duration::from_millis(500);
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

impl Keeper {
    /// Works until the queue is closed and empty, and commits what is there.
    pub(crate) fn run(self) {
        let mut told = Told::default();
        let mut commit_at = Instant::now() + self.commit_every;
        let mut maintain_at = Instant::now();
        while let Some(batches) = self.queue.take(commit_at) {
            for batch in &batches {
                self.forwards.give(batch);
                self.append(batch, &mut told);
            }
            let now = Instant::now();
            if now >= commit_at {
                self.commit(&mut told);
                commit_at = Instant::now() + self.commit_every;
            }
            if now >= maintain_at {
                self.maintain(&mut told);
                maintain_at = Instant::now() + MAINTAIN_EVERY;
            }
        }
        self.maintain(&mut told);
        self.commit(&mut told);
        self.forwards.end();
    }

    /// Appends a batch; what the store refuses is counted by reason.
    fn append(&self, batch: &Samples, told: &mut Told) {
        let store = &self.kept.store;
        let mut outcome = store.append(batch);
        if matches!(
            outcome,
            Err(StoreError::Busy { .. } | StoreError::Uncommitted)
        ) {
            self.maintain(told);
            self.commit(told);
            outcome = store.append(batch);
        }
        match outcome {
            Ok(appended) => self.counts.add_appended(&appended),
            Err(error) => {
                let reason = match error {
                    StoreError::Full { .. } => "full",
                    StoreError::Busy { .. } => "busy",
                    _ => "failed",
                };
                self.counts.add_refused(reason, batch.len() as u64);
                self.note(&error, told);
            }
        }
    }

    fn commit(&self, told: &mut Told) {
        let begin = Instant::now();
        match self.kept.store.commit() {
            Ok(()) => {
                self.counts.note_commit(begin.elapsed());
                if self.kept.is_full.swap(false, Ordering::Relaxed) {
                    info!("The store takes samples again");
                }
            }
            Err(error) => self.note(&error, told),
        }
    }

    fn maintain(&self, told: &mut Told) {
        if let Err(error) = self.kept.store.maintain(wall::now_ms()) {
            self.note(&error, told);
        }
        self.counts.note_store(&self.kept.store.stats());
    }

    /// Acts on what the store cannot do.
    fn note(&self, error: &StoreError, told: &mut Told) {
        let is_full = matches!(error, StoreError::Full { .. });
        if is_full && self.drops_oldest {
            match self.kept.disk.as_ref().map(|disk| disk.free_oldest_raw()) {
                Some(Ok(Some(day_ms))) => {
                    warn!(
                        day_ms,
                        "The disk is full: samples of the oldest day are dropped"
                    );
                    return;
                }
                Some(Ok(None)) | None => {}
                Some(Err(error)) => error!(%error, "The oldest samples cannot be dropped"),
            }
        }
        if is_full {
            self.kept.is_full.store(true, Ordering::Relaxed);
        }
        if told.is_due() {
            error!(%error, "The store does not take samples; what it holds can be read");
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
