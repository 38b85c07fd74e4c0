//! Accounting of sources that shards publish on request.

use serde::Serialize;
use sheaf_intake::{Intake, SourceStats};
use sheaf_samples::wire::Metadata;
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Sources of one answer at most, those with most trouble first.
pub(crate) const SHOWN_MAX: usize = 10_000;
/// How long publishing goes on after the last question.
const WANTED_FOR: Duration = Duration::from_secs(10);
/// How long a question waits for the shards.
const PATIENCE: Duration = Duration::from_secs(3);

/// One source of samples, for people and programs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct SourceRow {
    /// Name: value of its label, or address.
    pub(crate) source: String,
    /// Samples that came in.
    pub(crate) samples: u64,
    /// Samples taken.
    pub(crate) taken: u64,
    /// Lines and records that are bad, by code.
    pub(crate) bad: BTreeMap<&'static str, u64>,
    /// Samples refused, by reason.
    pub(crate) refused: BTreeMap<&'static str, u64>,
    /// Samples that the source reports as sent and that did not arrive.
    pub(crate) lost: u64,
    /// Samples that the source reports as sent.
    pub(crate) sent: u64,
    /// Samples that the source dropped itself.
    pub(crate) dropped: u64,
    /// Series known now.
    pub(crate) series: u64,
    /// Datagrams or requests.
    pub(crate) datagrams: u64,
    /// Bytes of these.
    pub(crate) bytes: u64,
    /// Times that its new series were cut off.
    pub(crate) cut_offs: u64,
    /// Latest sample, in ms since 1970.
    pub(crate) seen_ms: i64,
    /// How far its clock is ahead of the collector's, in ms; `null` if its samples have no time.
    pub(crate) clock_offset_ms: Option<i64>,
}

impl SourceRow {
    fn of(name: &str, stats: &SourceStats) -> Self {
        let bad = stats.bad.iter().map(|(code, count)| (code.name(), *count));
        let refused = stats.refused.iter();
        let refused = refused.map(|(reason, count)| (reason.name(), *count));
        Self {
            source: name.to_owned(),
            samples: stats.samples,
            taken: stats.taken,
            bad: bad.collect(),
            refused: refused.collect(),
            lost: stats.loss.lost(),
            sent: stats.loss.sent,
            dropped: stats.loss.dropped,
            series: stats.series,
            datagrams: stats.datagrams,
            bytes: stats.bytes,
            cut_offs: stats.cut_offs,
            seen_ms: stats.seen_ms,
            clock_offset_ms: stats.clock_offset_ms,
        }
    }

    /// Adds the same source as another shard has it.
    fn merge(&mut self, other: Self) {
        self.samples += other.samples;
        self.taken += other.taken;
        for (code, count) in other.bad {
            *self.bad.entry(code).or_default() += count;
        }
        for (reason, count) in other.refused {
            *self.refused.entry(reason).or_default() += count;
        }
        self.lost += other.lost;
        self.sent += other.sent;
        self.dropped += other.dropped;
        self.series += other.series;
        self.datagrams += other.datagrams;
        self.bytes += other.bytes;
        self.cut_offs += other.cut_offs;
        if other.seen_ms > self.seen_ms {
            self.seen_ms = other.seen_ms;
            self.clock_offset_ms = other.clock_offset_ms.or(self.clock_offset_ms);
        }
    }
}

/// Accounting of one shard at one time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    rows: Vec<SourceRow>,
    metadata: Vec<Metadata>,
    at: Option<Instant>,
}

impl Snapshot {
    pub(crate) fn of(intake: &Intake) -> Self {
        let rows = intake
            .sources()
            .map(|(name, stats)| SourceRow::of(name, stats));
        Self {
            rows: rows.collect(),
            metadata: intake.metadata().cloned().collect(),
            at: Some(Instant::now()),
        }
    }
}

/// Board on which shards publish, once a second while a client asks.
#[derive(Debug)]
pub(crate) struct Board {
    state: Mutex<State>,
    published: Condvar,
}

#[derive(Debug)]
struct State {
    shards: Vec<Snapshot>,
    wanted: Option<Instant>,
}

impl Board {
    pub(crate) fn new(shards: usize) -> Self {
        Self {
            state: Mutex::new(State {
                shards: vec![Snapshot::default(); shards],
                wanted: None,
            }),
            published: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_wanted(&self) -> bool {
        let wanted = self.lock().wanted;
        wanted.is_some_and(|at| at.elapsed() < WANTED_FOR)
    }

    pub(crate) fn publish(&self, shard: usize, snapshot: Snapshot) {
        self.lock().shards[shard] = snapshot;
        self.published.notify_all();
    }

    /// Returns what all shards know, not older than two seconds if they publish in time.
    fn fresh(&self) -> Vec<Snapshot> {
        let mut state = self.lock();
        state.wanted = Some(Instant::now());
        let is_old = |state: &mut State| {
            let fresh = |one: &Snapshot| one.at.is_some_and(|at| at.elapsed().as_secs() < 2);
            !state.shards.iter().all(fresh)
        };
        let waited = self.published.wait_timeout_while(state, PATIENCE, is_old);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.shards.clone()
    }

    /// Returns all sources, those that lost, sent bad or refused samples first. Waits up to some seconds: not for the
    /// thread of a runtime.
    pub(crate) fn sources(&self) -> Vec<SourceRow> {
        let mut rows: BTreeMap<String, SourceRow> = BTreeMap::new();
        for row in self.fresh().into_iter().flat_map(|shard| shard.rows) {
            match rows.get_mut(&row.source) {
                Some(known) => known.merge(row),
                None => drop(rows.insert(row.source.clone(), row)),
            }
        }
        let mut rows: Vec<SourceRow> = rows.into_values().collect();
        let trouble = |row: &SourceRow| {
            row.lost
                + row.dropped
                + row.bad.values().sum::<u64>()
                + row.refused.values().sum::<u64>()
        };
        rows.sort_by_key(|row| std::cmp::Reverse(trouble(row)));
        rows
    }

    /// Returns the descriptions of metrics that came in, by name.
    pub(crate) fn metadata(&self) -> Vec<Metadata> {
        let all = self.fresh().into_iter().flat_map(|shard| shard.metadata);
        let by_name: BTreeMap<String, Metadata> =
            all.map(|one| (one.family.clone(), one)).collect();
        by_name.into_values().collect()
    }
}
