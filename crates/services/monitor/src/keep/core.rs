//! When is the store committed and kept up, and what happens to samples that it does not take?
//!
//! One thread drives it with a clock, and so does the fault simulator with one of its own.

use crate::queue::Samples;
use sheaf_sample_store::{Appended, Disk, Stats, Store, StoreError};
use std::sync::Arc;
use std::time::Duration;

/// Period of the work that no commit needs: sealing, levels, retention.
const MAINTAIN_EVERY: Duration = Duration::from_millis(500);

/// Clocks of a driver.
pub trait Clock {
    /// Time since any fixed instant; never steps back.
    fn now(&self) -> Duration;
    /// Time in ms since 1970-01-01 UTC.
    fn wall_ms(&self) -> i64;
}

/// Report of a keeper.
#[derive(Debug)]
pub enum KeepEvent<'a> {
    /// Fates of the samples of a batch.
    Appended(&'a Appended),
    /// Samples that the store did not take, and the reason in metrics.
    Refused(&'static str, u64),
    /// A commit succeeded and took so long.
    Committed(Duration),
    /// The disk was full and has room again.
    TakesAgain,
    /// The disk is full, and the samples of the day that begins then were dropped.
    DroppedDay(i64),
    /// The oldest samples should go, and cannot.
    NotDropped(&'a StoreError),
    /// The store does not do what it was asked for.
    Failed(&'a StoreError),
    /// State after upkeep.
    Kept(&'a Stats),
}

/// Driver of a store, without a thread.
pub struct KeeperCore {
    store: Arc<dyn Store>,
    /// The same, where it is on disk.
    disk: Option<Arc<Disk>>,
    commit_every: Duration,
    /// Whether the oldest samples go when the disk is full.
    drops_oldest: bool,
    commit_at: Duration,
    maintain_at: Duration,
    is_full: bool,
}

impl KeeperCore {
    /// Returns a keeper that commits for the first time `commit_every` after `now`.
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        disk: Option<Arc<Disk>>,
        commit_every: Duration,
        drops_oldest: bool,
        now: Duration,
    ) -> Self {
        Self {
            store,
            disk,
            commit_every,
            drops_oldest,
            commit_at: now + commit_every,
            maintain_at: now,
            is_full: false,
        }
    }

    /// Time of the next commit, by [`Clock::now`].
    #[must_use]
    pub fn commit_at(&self) -> Duration {
        self.commit_at
    }

    /// Returns whether the disk was full at the last commit: writers get a code instead of an acknowledgement.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Appends a batch; what the store refuses is counted by reason.
    pub fn append(
        &mut self,
        clock: &dyn Clock,
        batch: &Samples,
        tell: &mut dyn FnMut(KeepEvent<'_>),
    ) {
        let mut outcome = self.store.append(batch);
        if matches!(
            outcome,
            Err(StoreError::Busy { .. } | StoreError::Uncommitted)
        ) {
            self.maintain(clock, tell);
            self.commit(clock, tell);
            outcome = self.store.append(batch);
        }
        match outcome {
            Ok(appended) => tell(KeepEvent::Appended(&appended)),
            Err(error) => {
                let reason = match error {
                    StoreError::Full { .. } => "full",
                    StoreError::Busy { .. } => "busy",
                    _ => "failed",
                };
                tell(KeepEvent::Refused(reason, batch.len() as u64));
                self.note(&error, tell);
            }
        }
    }

    /// Commits and keeps the store up, each if its time has come.
    pub fn turn(&mut self, clock: &dyn Clock, tell: &mut dyn FnMut(KeepEvent<'_>)) {
        let now = clock.now();
        if now >= self.commit_at {
            self.commit(clock, tell);
            self.commit_at = clock.now() + self.commit_every;
        }
        if now >= self.maintain_at {
            self.maintain(clock, tell);
            self.maintain_at = clock.now() + MAINTAIN_EVERY;
        }
    }

    /// Keeps the store up and commits, for the last time.
    pub fn end(&mut self, clock: &dyn Clock, tell: &mut dyn FnMut(KeepEvent<'_>)) {
        self.maintain(clock, tell);
        self.commit(clock, tell);
    }

    fn commit(&mut self, clock: &dyn Clock, tell: &mut dyn FnMut(KeepEvent<'_>)) {
        let begin = clock.now();
        match self.store.commit() {
            Ok(()) => {
                tell(KeepEvent::Committed(clock.now().saturating_sub(begin)));
                if std::mem::take(&mut self.is_full) {
                    tell(KeepEvent::TakesAgain);
                }
            }
            Err(error) => self.note(&error, tell),
        }
    }

    fn maintain(&mut self, clock: &dyn Clock, tell: &mut dyn FnMut(KeepEvent<'_>)) {
        if let Err(error) = self.store.maintain(clock.wall_ms()) {
            self.note(&error, tell);
        }
        tell(KeepEvent::Kept(&self.store.stats()));
    }

    /// Acts on what the store cannot do.
    fn note(&mut self, error: &StoreError, tell: &mut dyn FnMut(KeepEvent<'_>)) {
        let is_full = matches!(error, StoreError::Full { .. });
        if is_full && self.drops_oldest {
            match self.disk.as_ref().map(|disk| disk.free_oldest_raw()) {
                Some(Ok(Some(day_ms))) => return tell(KeepEvent::DroppedDay(day_ms)),
                Some(Ok(None)) | None => {}
                Some(Err(error)) => tell(KeepEvent::NotDropped(&error)),
            }
        }
        self.is_full |= is_full;
        tell(KeepEvent::Failed(error));
    }
}
