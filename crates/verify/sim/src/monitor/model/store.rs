//! Expected content of a store, and of what survives a death.

use super::super::names::OutName;
use super::Passing;
use super::books::{Books, REPLACED, STORED};
use sheaf_sample_store::{Appended, Config};
use std::collections::BTreeMap;

/// Content of a store, as queries answer it: by series, time and value.
pub(in crate::monitor) type Found = BTreeMap<OutName, BTreeMap<i64, f64>>;

/// Length of a day, the partition of samples.
pub(in crate::monitor) const DAY_MS: i64 = 86_400_000;

/// A time of a series.
#[derive(Clone, Debug)]
pub(in crate::monitor) struct Entry {
    /// The value that was appended last.
    pub(in crate::monitor) value: f64,
    /// The value that the last commit made durable, if it was there.
    committed: Option<f64>,
    client: Option<u16>,
}

/// Content of a store over all its lives.
#[derive(Debug)]
pub(in crate::monitor) struct StoreModel {
    late_ms: i64,
    future_ms: i64,
    /// Clock of the last upkeep of this life.
    pub(in crate::monitor) clock_ms: Option<i64>,
    pub(in crate::monitor) series: BTreeMap<OutName, BTreeMap<i64, Entry>>,
    /// Appended since the last commit.
    dirty: Vec<Passing>,
    /// Samples before it were dropped, to make room.
    pub(in crate::monitor) dropped_to_ms: i64,
    /// The day that a dying collector may have dropped ends here.
    pub(in crate::monitor) maybe_dropped_to_ms: Option<i64>,
}

impl StoreModel {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            late_ms: config.late_ms,
            future_ms: config.future_ms,
            clock_ms: None,
            series: BTreeMap::new(),
            dirty: Vec::new(),
            dropped_to_ms: i64::MIN,
            maybe_dropped_to_ms: None,
        }
    }

    /// Takes a sample or refuses it; returns the name of its fate.
    pub(super) fn append(&mut self, passing: Passing, counts: &mut Appended) -> &'static str {
        let series = self.series.entry(passing.name).or_default();
        let at_ms = passing.at_ms;
        let newest_ms = series.last_key_value().map(|pair| *pair.0);
        if self
            .clock_ms
            .is_some_and(|clock_ms| at_ms > clock_ms + self.future_ms)
        {
            counts.future += 1;
            return "future";
        }
        if newest_ms.is_some_and(|newest_ms| at_ms < newest_ms - self.late_ms) {
            counts.late += 1;
            return "late";
        }
        if at_ms < self.dropped_to_ms {
            counts.expired += 1;
            return "expired";
        }
        counts.accepted += 1;
        self.dirty.push(passing);
        if let Some(entry) = series.get_mut(&at_ms) {
            entry.value = passing.value;
            return REPLACED;
        }
        let entry = Entry {
            value: passing.value,
            committed: None,
            client: passing.client,
        };
        series.insert(at_ms, entry);
        STORED
    }

    /// A commit succeeded: all that was appended is durable.
    pub(in crate::monitor) fn commit(&mut self) {
        for passing in self.dirty.drain(..) {
            let series = self.series.get_mut(&passing.name);
            if let Some(entry) = series.and_then(|series| series.get_mut(&passing.at_ms)) {
                entry.committed = Some(entry.value);
            }
        }
    }

    /// Samples that no commit has made durable.
    pub(in crate::monitor) fn uncommitted(&self) -> usize {
        self.dirty.len()
    }

    /// End of the oldest day that has samples.
    pub(in crate::monitor) fn oldest_day_end_ms(&self) -> Option<i64> {
        let firsts = self.series.values().filter_map(|series| {
            let mut range = series.range(self.dropped_to_ms..);
            range.next().map(|pair| *pair.0)
        });
        Some((firsts.min()?.div_euclid(DAY_MS) + 1) * DAY_MS)
    }

    /// After a death: what was committed has to be in `found`, and nothing that was not sent. What is there from now on
    /// is what was found.
    ///
    /// # Errors
    ///
    /// A sample that is lost, or from nowhere.
    pub(in crate::monitor) fn adopt(
        &mut self,
        found: &Found,
        books: &mut Books,
    ) -> Result<(), String> {
        let mut uncommitted: BTreeMap<(OutName, i64), Vec<f64>> = BTreeMap::new();
        for one in self.dirty.drain(..) {
            let values = uncommitted.entry((one.name, one.at_ms)).or_default();
            values.push(one.value);
        }
        self.settle_drop(found);
        let nothing = BTreeMap::new();
        let raw_from_ms = self.dropped_to_ms;
        for (name, series) in &mut self.series {
            let found = found.get(name).unwrap_or(&nothing);
            let mut lost = Vec::new();
            for (&at_ms, entry) in series.iter_mut().filter(|pair| *pair.0 >= raw_from_ms) {
                let was_appended = |value| {
                    let values = uncommitted.get(&(*name, at_ms));
                    values.is_some_and(|values| values.contains(&value))
                };
                match (found.get(&at_ms), entry.committed) {
                    (None, Some(value)) => {
                        return Err(format!("{name:?} at {at_ms}: {value} was committed"));
                    }
                    (None, None) => lost.push(at_ms),
                    (Some(&value), committed) => {
                        if committed != Some(value) && !was_appended(value) {
                            return Err(format!(
                                "{name:?} at {at_ms}: found {value}, expected {committed:?}, the one committed"
                            ));
                        }
                        // What queries have shown stays, whatever dies next.
                        entry.value = value;
                        entry.committed = Some(value);
                    }
                }
            }
            for at_ms in lost {
                let entry = series.remove(&at_ms).expect("seen above");
                books.lose(entry.client);
            }
        }
        Ok(())
    }

    /// Finds out whether the day that was being dropped at the death is gone.
    fn settle_drop(&mut self, found: &Found) {
        let Some(to_ms) = self.maybe_dropped_to_ms.take() else {
            return;
        };
        let is_there = |(name, series): (&OutName, &BTreeMap<i64, Entry>)| {
            let committed = series.iter().filter(|(at_ms, entry)| {
                **at_ms < to_ms && **at_ms >= self.dropped_to_ms && entry.committed.is_some()
            });
            let found = found.get(name);
            let has = |at_ms: &i64| found.is_some_and(|found| found.contains_key(at_ms));
            committed.map(|pair| pair.0).all(has)
        };
        if !self.series.iter().all(is_there) {
            self.dropped_to_ms = to_ms;
        }
    }
}
