//! Reports of shards on their sources, for the alarms that every source has.

use sheaf_intake::Intake;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Time between reports of one shard, in ms.
const EVERY_MS: i64 = 1_000;
/// The same, for more sources than that.
const MANY: usize = 10_000;
const EVERY_OF_MANY_MS: i64 = 5_000;

/// News of one source in one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct News {
    /// Samples that the source says it has sent to this shard, and those that arrived.
    pub(super) sent: u64,
    pub(super) arrived: u64,
    pub(super) clock_offset_ms: Option<i64>,
    /// Whether anything arrived since the last report.
    pub(super) is_seen: bool,
}

/// Latest report of every shard.
#[derive(Debug)]
pub(crate) struct Reports {
    shards: Mutex<Vec<Shard>>,
}

#[derive(Debug, Default)]
struct Shard {
    news: BTreeMap<String, News>,
    at_ms: i64,
    is_taken: bool,
}

impl Reports {
    pub(crate) fn new(shards: usize) -> Self {
        let shards = (0..shards).map(|_| Shard::default());
        Self {
            shards: Mutex::new(shards.collect()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Shard>> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the report of a shard, once a second or less.
    pub(crate) fn publish(&self, shard: usize, now_ms: i64, intake: &Intake) {
        let mut shards = self.lock();
        let Some(report) = shards.get_mut(shard) else {
            return;
        };
        let every_ms = if report.news.len() > MANY {
            EVERY_OF_MANY_MS
        } else {
            EVERY_MS
        };
        if (0..every_ms).contains(&(now_ms - report.at_ms)) {
            return;
        }
        let since_ms = report.at_ms;
        let news = intake.sources().map(|(name, stats)| {
            let before = report.news.get(name);
            // What was not read yet of the report before is still news.
            let was_seen = !report.is_taken && before.is_some_and(|one| one.is_seen);
            let news = News {
                sent: stats.loss.sent,
                arrived: stats.loss.arrived,
                clock_offset_ms: stats.clock_offset_ms,
                is_seen: was_seen || stats.seen_ms >= since_ms,
            };
            (name.to_owned(), news)
        });
        let news = news.collect();
        *report = Shard {
            news,
            at_ms: now_ms,
            is_taken: false,
        };
    }

    /// Takes the news of all shards together, if there are any since the last call.
    pub(super) fn take(&self) -> Option<BTreeMap<String, News>> {
        let mut shards = self.lock();
        if shards.iter().all(|one| one.is_taken || one.at_ms == 0) {
            return None;
        }
        let mut all: BTreeMap<String, News> = BTreeMap::new();
        for shard in shards.iter_mut() {
            for (name, news) in &shard.news {
                let sum = all.entry(name.clone()).or_default();
                sum.sent += news.sent;
                sum.arrived += news.arrived;
                if news.is_seen && !shard.is_taken {
                    sum.is_seen = true;
                    sum.clock_offset_ms = news.clock_offset_ms.or(sum.clock_offset_ms);
                }
            }
            shard.is_taken = true;
        }
        Some(all)
    }
}
