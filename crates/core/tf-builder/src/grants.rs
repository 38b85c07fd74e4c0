//! What FLPs have offered, and which of it is asked for now: a few STFs at a time, the oldest TF first.

use sheaf_protocol::{Source, TfId, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Offers that are remembered. What is offered beyond is not fetched: its TF moves at its deadline.
const OFFERS_MAX: usize = 1 << 16;

/// One STF: ordered by TF, so that TFs become whole one after the other.
type Key = (TfId, Source);

/// Offers that wait, and offers that were granted and have not come yet.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    waiting: BTreeSet<Key>,
    /// When they were granted.
    granted: BTreeMap<Key, Timestamp>,
    /// Granted long ago. They keep nobody waiting, and are asked for again when nothing else is to be had.
    overdue: BTreeSet<Key>,
}

impl Grants {
    /// How many offers wait or are granted.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + self.granted.len() + self.overdue.len()
    }

    /// An offer replaces one of before, and what was granted of that: the source offers anew when it has forgotten.
    pub(crate) fn offer(&mut self, tf: TfId, source: Source) {
        self.done(tf, source);
        if self.len() < OFFERS_MAX {
            self.waiting.insert((tf, source));
        }
    }

    /// It is here, or will not come.
    pub(crate) fn done(&mut self, tf: TfId, source: Source) {
        let key = (tf, source);
        self.waiting.remove(&key);
        self.overdue.remove(&key);
        self.granted.remove(&key);
    }

    /// Whatever is kept for which `is_wanted` does not hold goes.
    pub(crate) fn keep_only(&mut self, is_wanted: impl Fn(TfId, Source) -> bool) {
        self.waiting.retain(|(tf, source)| is_wanted(*tf, *source));
        self.overdue.retain(|(tf, source)| is_wanted(*tf, *source));
        self.granted
            .retain(|(tf, source), _| is_wanted(*tf, *source));
    }

    /// Grants that were not answered for so long make room for others: a source that hangs does not hold them up.
    pub(crate) fn expire(&mut self, now: Timestamp, after: Duration) {
        let overdue = &mut self.overdue;
        self.granted.retain(|key, granted_at| {
            let is_late = now.since(*granted_at) >= after;
            if is_late {
                overdue.insert(*key);
            }
            !is_late
        });
    }

    /// The next to ask for, while fewer than `max` are under way.
    pub(crate) fn next(&mut self, now: Timestamp, max: usize) -> Option<Key> {
        if self.granted.len() >= max {
            return None;
        }
        let fresh = self.waiting.pop_first();
        let key = fresh.or_else(|| self.overdue.pop_first())?;
        self.granted.insert(key, now);
        Some(key)
    }
}
