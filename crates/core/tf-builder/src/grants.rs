//! Offers of FLPs, and grants: a few STFs at a time, the oldest TF first.

use sheaf_protocol::{Source, TfId, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Upper bound of remembered offers. An offer beyond it is not fetched: its TF moves at its deadline.
const OFFERS_MAX: usize = 1 << 16;

/// Name of one STF: ordered by TF, so that TFs become whole one after the other.
type Key = (TfId, Source);

/// Offers that wait, and offers that are granted and not answered yet.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    waiting: BTreeSet<Key>,
    /// Granted offers, and when the grant was made.
    granted: BTreeMap<Key, Timestamp>,
    /// Offers granted long ago. They do not delay others, and are requested again when no other offer is left.
    overdue: BTreeSet<Key>,
}

impl Grants {
    /// Returns the number of offers that wait or are granted.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + self.granted.len() + self.overdue.len()
    }

    /// Adds an offer. It replaces an earlier one and its grant: the source offers again when it has lost the grant.
    pub(crate) fn offer(&mut self, tf: TfId, source: Source) {
        self.done(tf, source);
        if self.len() < OFFERS_MAX {
            self.waiting.insert((tf, source));
        }
    }

    /// Removes the offer of an STF that is here, or will not come.
    pub(crate) fn done(&mut self, tf: TfId, source: Source) {
        let key = (tf, source);
        self.waiting.remove(&key);
        self.overdue.remove(&key);
        self.granted.remove(&key);
    }

    /// Removes all offers for which `is_wanted` does not hold.
    pub(crate) fn keep_only(&mut self, is_wanted: impl Fn(TfId, Source) -> bool) {
        self.waiting.retain(|(tf, source)| is_wanted(*tf, *source));
        self.overdue.retain(|(tf, source)| is_wanted(*tf, *source));
        self.granted
            .retain(|(tf, source), _| is_wanted(*tf, *source));
    }

    /// Makes room for other grants when `after` has passed without an answer: a source that hangs does not delay
    /// others.
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

    /// Returns the next STF to request, while fewer than `max` are under way.
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
