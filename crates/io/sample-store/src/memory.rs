//! A store that keeps nothing beyond its life: for tests, and for live views that need no disk.

use crate::config::Config;
use crate::head::Limits;
use crate::index::Index;
use crate::store::{Appended, SeriesId, Stats, Store, StoreError, Verdict};
use sheaf_query::{Selection, Series, Source, SourceError};
use sheaf_samples::{Labels, Matcher, Sample};
use std::sync::{Arc, PoisonError, RwLock};

/// Samples in memory, for as long as [`Config::raw_ms`] says.
#[derive(Debug)]
pub struct Memory {
    config: Config,
    inner: RwLock<Inner>,
}

#[derive(Debug)]
struct Inner {
    samples: sheaf_query::Memory,
    index: Index,
    /// Latest time by series.
    last_ms: Vec<i64>,
    limits: Limits,
    stats: Stats,
}

impl Memory {
    /// Returns an empty store.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let inner = Inner {
            samples: sheaf_query::Memory::new(),
            index: Index::default(),
            last_ms: Vec::new(),
            limits: Limits {
                clock_ms: None,
                newest_ms: i64::MIN,
                dropped_to_ms: i64::MIN,
            },
            stats: Stats::default(),
        };
        Self {
            config,
            inner: RwLock::new(inner),
        }
    }

    fn with<T>(&self, ask: impl FnOnce(&sheaf_query::Memory) -> T) -> T {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        ask(&inner.samples)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut inner)
    }
}

impl Store for Memory {
    fn intern(&self, labels: &Labels) -> Result<SeriesId, StoreError> {
        let limit = self.config.series_max;
        self.change(|inner| {
            if let Some(id) = inner.index.id(labels) {
                return Ok(SeriesId(id));
            }
            if inner.index.len() >= limit {
                return Err(StoreError::TooManySeries { limit });
            }
            inner.last_ms.push(i64::MIN);
            inner.stats.series += 1;
            Ok(SeriesId(inner.index.insert(labels.clone())))
        })
    }

    fn append(&self, batch: &[(SeriesId, Sample)]) -> Result<Appended, StoreError> {
        self.change(|inner| {
            let found =
                (inner.stats.head_samples + batch.len() as u64) * size_of::<Sample>() as u64;
            let limit = self.config.head_bytes_max;
            if found > limit {
                return Err(StoreError::Busy { found, limit });
            }
            let mut appended = Appended::default();
            for &(SeriesId(id), sample) in batch {
                let Some(labels) = inner.index.labels(id) else {
                    appended.unknown += 1;
                    continue;
                };
                let last_ms = &mut inner.last_ms[usize::try_from(id).expect("32 bits fit")];
                let verdict = inner.limits.judge(&self.config, *last_ms, sample.at_ms);
                appended.count(verdict);
                if verdict == Verdict::Accepted {
                    *last_ms = sample.at_ms.max(*last_ms);
                    inner.limits.newest_ms = sample.at_ms.max(inner.limits.newest_ms);
                    inner.samples.insert(labels, sample);
                }
            }
            inner.stats.head_samples += appended.accepted;
            inner.stats.appended.add(&appended);
            Ok(appended)
        })
    }

    fn commit(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn maintain(&self, now_ms: i64) -> Result<(), StoreError> {
        self.change(|inner| {
            inner.limits.clock_ms = Some(now_ms);
            // A clock that jumps ahead forgets only as much as samples confirm.
            let kept_from_ms = now_ms
                .min(inner.limits.newest_ms)
                .saturating_sub(self.config.raw_ms);
            inner.samples.forget_before(kept_from_ms);
        });
        Ok(())
    }

    fn stats(&self) -> Stats {
        self.change(|inner| inner.stats)
    }
}

impl Source for Memory {
    fn select(&self, selection: &Selection<'_>) -> Result<Vec<Series>, SourceError> {
        self.with(|samples| samples.select(selection))
    }

    fn label_names(
        &self,
        matchers: &[Matcher],
        from_ms: i64,
        to_ms: i64,
    ) -> Result<Vec<String>, SourceError> {
        self.with(|samples| samples.label_names(matchers, from_ms, to_ms))
    }

    fn label_values(
        &self,
        name: &str,
        matchers: &[Matcher],
        from_ms: i64,
        to_ms: i64,
    ) -> Result<Vec<String>, SourceError> {
        self.with(|samples| samples.label_values(name, matchers, from_ms, to_ms))
    }

    fn series(
        &self,
        matchers: &[Matcher],
        from_ms: i64,
        to_ms: i64,
    ) -> Result<Vec<Arc<Labels>>, SourceError> {
        self.with(|samples| samples.series(matchers, from_ms, to_ms))
    }
}
