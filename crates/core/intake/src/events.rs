//! Events summed up: counters, gauges, observations and sets of StatsD.
//!
//! | event | series | value |
//! | --- | --- | --- |
//! | count | the name | sum of all counts, so a counter |
//! | gauge | the name | last value |
//! | observation | name with `quantile` 0.5, 0.9 and 0.99 | quantiles of the interval |
//! | | `_count`, `_sum` | sums of all observations, so counters |
//! | set | the name | number of different members in the interval |
//!
//! Sums of the last interval are given out by the first tick after it; what did not change is repeated once a minute.

use crate::batch::{Batch, SeriesHandle};
use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use sheaf_samples::wire::statsd::Change;
use sheaf_samples::{Labels, LabelsError, NAME, Sample};
use std::collections::BTreeSet;

/// Quantiles of observations.
const QUANTILES: [(&str, f64); 3] = [("0.5", 0.5), ("0.9", 0.9), ("0.99", 0.99)];
/// Observations of an interval that quantiles are taken of, at most; beyond it every second, fourth, … is kept.
const KEPT_MAX: usize = 1_024;
/// Members of a set that are distinguished in an interval, at most.
const MEMBERS_MAX: usize = 10_000;
/// Time after which a value is given out although it did not change.
const REPEAT_MS: i64 = 60_000;

/// Labels of the series that an event of `labels` goes to, as many as [`series_count`] says.
///
/// # Errors
///
/// If the name is too long to get a suffix.
pub(crate) fn series_of(labels: &Labels, change: Change<'_>) -> Result<Vec<Labels>, LabelsError> {
    if !matches!(change, Change::Observe { .. }) {
        return Ok(vec![labels.clone()]);
    }
    let with = |suffix: &str, quantile: &str| {
        let name = format!("{}{suffix}", labels.name().unwrap_or_default());
        labels.with(NAME, &name)?.with("quantile", quantile)
    };
    let quantiles = QUANTILES.iter().map(|(text, _)| with("", text));
    quantiles
        .chain([with("_count", ""), with("_sum", "")])
        .collect()
}

/// Number of series that an event goes to.
pub(crate) fn series_count(change: Change<'_>) -> usize {
    match change {
        Change::Observe { .. } => QUANTILES.len() + 2,
        _ => 1,
    }
}

#[derive(Debug)]
enum State {
    /// Counter or gauge.
    Number(f64),
    Observations {
        count: f64,
        sum: f64,
        kept: Vec<f64>,
        /// One of so many observations is kept.
        stride: u64,
        seen: u64,
    },
    Set(BTreeSet<String>),
}

#[derive(Debug)]
struct Sum {
    state: State,
    handles: Vec<SeriesHandle>,
    is_changed: bool,
    given_ms: i64,
}

/// Sums of all events, by their first series.
#[derive(Debug, Default)]
pub(crate) struct Events {
    sums: IndexMap<SeriesHandle, Sum, FxBuildHasher>,
    flushed_ms: Option<i64>,
}

impl Events {
    /// Adds an event to the sum whose series are `handles`.
    ///
    /// A name that was used for another type of event before begins from the start.
    pub(crate) fn add(&mut self, handles: Vec<SeriesHandle>, change: Change<'_>) {
        let sum = self.sums.entry(handles[0]).or_insert_with(|| Sum {
            state: State::Number(0.0),
            handles: Vec::new(),
            is_changed: false,
            given_ms: 0,
        });
        sum.handles = handles;
        sum.is_changed = true;
        sum.state.add(change);
    }

    /// Gives out what is due, and forgets the sums of series that have ended.
    pub(crate) fn flush(
        &mut self,
        now_ms: i64,
        flush_ms: i64,
        is_open: impl Fn(SeriesHandle) -> bool,
        out: &mut Batch,
    ) {
        // A clock that steps back does not stop the flushes.
        let is_due = |last_ms: i64| now_ms < last_ms || now_ms - last_ms >= flush_ms;
        if !self.flushed_ms.is_none_or(is_due) {
            return;
        }
        self.flushed_ms = Some(now_ms);
        self.sums
            .retain(|_, sum| sum.handles.iter().all(|handle| is_open(*handle)));
        for sum in self.sums.values_mut() {
            if sum.is_changed || now_ms - sum.given_ms >= REPEAT_MS {
                let values = sum.state.values();
                let samples = sum
                    .handles
                    .iter()
                    .zip(values)
                    .filter_map(|(handle, value)| {
                        let sample = Sample {
                            at_ms: now_ms,
                            value: value?,
                        };
                        Some((*handle, sample))
                    });
                out.samples.extend(samples);
                sum.is_changed = matches!(&sum.state, State::Set(members) if !members.is_empty());
                sum.given_ms = now_ms;
                sum.state.clear();
            }
        }
    }
}

impl State {
    fn add(&mut self, change: Change<'_>) {
        match (&mut *self, change) {
            (Self::Number(sum), Change::Count(value) | Change::Add(value)) => *sum += value,
            (Self::Number(sum), Change::Set(value)) => *sum = value,
            (
                Self::Observations {
                    count,
                    sum,
                    kept,
                    stride,
                    seen,
                },
                Change::Observe { value, weight },
            ) => {
                *count += weight;
                *sum += value * weight;
                if *seen % *stride == 0 {
                    if kept.len() == KEPT_MAX {
                        let mut is_even = false;
                        kept.retain(|_| {
                            is_even = !is_even;
                            is_even
                        });
                        *stride *= 2;
                    }
                    if *seen % *stride == 0 {
                        kept.push(value);
                    }
                }
                *seen += 1;
            }
            (Self::Set(members), Change::Member(member)) => {
                if members.len() < MEMBERS_MAX && !members.contains(member) {
                    members.insert(member.to_owned());
                }
            }
            (_, change) => {
                *self = match change {
                    Change::Count(value) | Change::Add(value) | Change::Set(value) => {
                        Self::Number(value)
                    }
                    Change::Observe { .. } => Self::Observations {
                        count: 0.0,
                        sum: 0.0,
                        kept: Vec::new(),
                        stride: 1,
                        seen: 0,
                    },
                    Change::Member(_) => Self::Set(BTreeSet::new()),
                };
                if matches!(change, Change::Observe { .. } | Change::Member(_)) {
                    self.add(change);
                }
            }
        }
    }

    /// Values of the series, in the order of [`series_of`]; quantiles of nothing have none.
    fn values(&mut self) -> Vec<Option<f64>> {
        match self {
            Self::Number(value) => vec![Some(*value)],
            #[expect(clippy::cast_precision_loss, reason = "10,000 at most")]
            Self::Set(members) => vec![Some(members.len() as f64)],
            Self::Observations {
                count, sum, kept, ..
            } => {
                kept.sort_by(f64::total_cmp);
                let quantiles = QUANTILES.iter().map(|(_, part)| quantile(kept, *part));
                quantiles.chain([Some(*count), Some(*sum)]).collect()
            }
        }
    }

    /// Begins the next interval.
    fn clear(&mut self) {
        match self {
            Self::Number(_) => {}
            Self::Observations {
                kept, stride, seen, ..
            } => {
                kept.clear();
                *stride = 1;
                *seen = 0;
            }
            Self::Set(members) => members.clear(),
        }
    }
}

/// Smallest value that `part` of the sorted `values` do not exceed.
fn quantile(values: &[f64], part: f64) -> Option<f64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a place among 1,024 at most"
    )]
    let place = (part * values.len() as f64).ceil() as usize;
    values.get(place.max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HANDLES: [SeriesHandle; 5] = [
        SeriesHandle { slot: 0, life: 0 },
        SeriesHandle { slot: 1, life: 0 },
        SeriesHandle { slot: 2, life: 0 },
        SeriesHandle { slot: 3, life: 0 },
        SeriesHandle { slot: 4, life: 0 },
    ];

    /// Values that a flush at `now_ms` gives out.
    fn flushed(events: &mut Events, now_ms: i64) -> Vec<f64> {
        let mut out = Batch::default();
        events.flush(now_ms, 1_000, |_| true, &mut out);
        out.samples.iter().map(|one| one.1.value).collect()
    }

    #[test]
    fn counters_add_up_and_are_repeated_once_a_minute() {
        let mut events = Events::default();
        let add = |events: &mut Events, change| events.add(HANDLES[..1].to_vec(), change);
        add(&mut events, Change::Count(2.0));
        add(&mut events, Change::Count(3.0));
        assert_eq!(flushed(&mut events, 1_000), [5.0]);
        add(&mut events, Change::Count(1.0));
        assert_eq!(flushed(&mut events, 1_500), [0.0; 0]);
        assert_eq!(flushed(&mut events, 2_000), [6.0]);
        assert_eq!(flushed(&mut events, 3_000), [0.0; 0]);
        assert_eq!(flushed(&mut events, 62_000), [6.0]);
    }

    #[test]
    fn gauges_are_set_and_changed() {
        let mut events = Events::default();
        for change in [Change::Set(4.0), Change::Add(-1.5)] {
            events.add(HANDLES[..1].to_vec(), change);
        }
        assert_eq!(flushed(&mut events, 1_000), [2.5]);
    }

    #[test]
    fn observations_have_quantiles_of_the_interval_and_sums_of_all() {
        let mut events = Events::default();
        for value in 1..=100 {
            let value = f64::from(value);
            events.add(HANDLES.to_vec(), Change::Observe { value, weight: 2.0 });
        }
        assert_eq!(
            flushed(&mut events, 1_000),
            [50.0, 90.0, 99.0, 200.0, 10_100.0]
        );
        events.add(
            HANDLES.to_vec(),
            Change::Observe {
                value: 7.0,
                weight: 1.0,
            },
        );
        assert_eq!(
            flushed(&mut events, 2_000),
            [7.0, 7.0, 7.0, 201.0, 10_107.0]
        );
        // A minute later there are no quantiles of nothing.
        assert_eq!(flushed(&mut events, 62_000), [201.0, 10_107.0]);
    }

    #[test]
    fn quantiles_of_many_observations_take_bounded_memory() {
        let mut events = Events::default();
        for value in 0..100_000 {
            let value = f64::from(value);
            events.add(HANDLES.to_vec(), Change::Observe { value, weight: 1.0 });
        }
        let State::Observations { kept, .. } = &events.sums[0].state else {
            panic!("observations")
        };
        assert!(kept.len() <= KEPT_MAX);
        let values = flushed(&mut events, 1_000);
        assert!((values[0] - 50_000.0).abs() < 500.0, "{values:?}");
        assert_eq!(values[3], 100_000.0);
    }

    #[test]
    fn members_of_a_set_are_counted_once_an_interval() {
        let mut events = Events::default();
        let add =
            |events: &mut Events, member| events.add(HANDLES[..1].to_vec(), Change::Member(member));
        for member in ["a", "b", "a"] {
            add(&mut events, member);
        }
        assert_eq!(flushed(&mut events, 1_000), [2.0]);
        add(&mut events, "a");
        assert_eq!(flushed(&mut events, 2_000), [1.0]);
    }

    #[test]
    fn sums_of_ended_series_are_forgotten() {
        let mut events = Events::default();
        events.add(HANDLES[..1].to_vec(), Change::Count(1.0));
        events.flush(1_000, 1_000, |_| false, &mut Batch::default());
        assert!(events.sums.is_empty());
    }
}
