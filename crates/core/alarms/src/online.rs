//! Online rules: evaluated as samples arrive, without a query.
//!
//! This module answers *which rules read this series, and what do they say of its new sample?* Values of single series
//! are judged at once; functions over windows and expressions over many series at the next tick after a sample, and
//! once a second without one, because samples leave windows too.

mod band;
mod node;
mod plan;
mod window;

pub(crate) use band::{Band, Moments};
pub(crate) use plan::{Plan, Shape};

use crate::condition::Verdict;
use node::Row;
use sheaf_samples::{Labels, NAME, Sample, is_stale};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use window::Samples;

/// Time between evaluations of what has changed, in ms.
const TICK_MS: i64 = 100;
/// Time between evaluations of what has not, in ms.
const SWEEP_MS: i64 = 1000;

/// Number of a series, given by the caller; small numbers, because they are places in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesHandle(pub u32);

/// Answer of an online rule about a series.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) plan: usize,
    /// Labels of the series, without its name.
    pub(crate) key: Arc<Labels>,
    /// Arrival of the data.
    pub(crate) data_ms: i64,
    pub(crate) outcome: Outcome,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome {
    /// A value to hold against the threshold.
    Value(f64),
    Verdict(Verdict),
}

/// Result of an expression over many series.
pub(crate) struct Rows {
    pub(crate) plan: usize,
    pub(crate) rows: Result<Vec<Row>, String>,
}

/// A series that some rule reads.
#[derive(Debug)]
struct Live {
    labels: Arc<Labels>,
    /// Labels without the name.
    key: Arc<Labels>,
    last: Sample,
    /// Arrival of the last sample.
    seen_ms: i64,
    trackers: Vec<Tracker>,
}

/// State that one input of one plan keeps of one series.
#[derive(Debug)]
struct Tracker {
    plan: usize,
    input: usize,
    samples: Option<Samples>,
    moments: Option<Moments>,
    is_dirty: bool,
}

#[derive(Debug, Default)]
struct PlanState {
    /// Series of each input, by handle.
    members: Vec<BTreeSet<u32>>,
    is_dirty: bool,
    /// Absence: arrival of the latest sample of any series.
    seen_ms: Option<i64>,
}

/// All online rules and the series that they read.
#[derive(Debug)]
pub(crate) struct Online {
    plans: Vec<Plan>,
    states: Vec<PlanState>,
    by_name: BTreeMap<String, Vec<(usize, usize)>>,
    series: Vec<Option<Live>>,
    count: usize,
    series_max: usize,
    lookback_ms: i64,
    dirty: Vec<(u32, usize)>,
    tick_ms: Option<i64>,
    sweep_ms: Option<i64>,
    /// Samples that windows dropped: out of order, or beyond their bound.
    pub(crate) dropped: u64,
    /// Series beyond the bound.
    pub(crate) refused: u64,
    /// Moments that were restored and wait for their series.
    restored: BTreeMap<(usize, Arc<Labels>), Moments>,
}

impl Online {
    pub(crate) fn new(plans: Vec<Plan>, series_max: usize, lookback_ms: i64) -> Self {
        let mut by_name: BTreeMap<String, Vec<(usize, usize)>> = BTreeMap::new();
        for (at, plan) in plans.iter().enumerate() {
            for (index, input) in plan.inputs.iter().enumerate() {
                by_name
                    .entry(input.name.clone())
                    .or_default()
                    .push((at, index));
            }
        }
        let states = plans.iter().map(|plan| PlanState {
            members: vec![BTreeSet::new(); plan.inputs.len()],
            ..PlanState::default()
        });
        Self {
            states: states.collect(),
            plans,
            by_name,
            series: Vec::new(),
            count: 0,
            series_max,
            lookback_ms,
            dirty: Vec::new(),
            tick_ms: None,
            sweep_ms: None,
            dropped: 0,
            refused: 0,
            restored: BTreeMap::new(),
        }
    }

    pub(crate) fn plans(&self) -> impl Iterator<Item = &Plan> {
        self.plans.iter()
    }

    pub(crate) fn plan(&self, plan: usize) -> &Plan {
        &self.plans[plan]
    }

    /// Longest time that a rule looks back, in ms.
    pub(crate) fn range_ms(&self) -> i64 {
        let ranges = self.plans.iter().map(Plan::range_ms);
        ranges.chain([self.lookback_ms]).max().unwrap_or(0)
    }

    /// Adds a series; returns whether any rule reads it, so that samples of others need not come here.
    pub(crate) fn add_series(&mut self, handle: SeriesHandle, labels: &Arc<Labels>) -> bool {
        let Some(readers) = labels.name().and_then(|name| self.by_name.get(name)) else {
            return false;
        };
        let is_reader = |(plan, input): &&(usize, usize)| {
            self.plans[*plan].inputs[*input]
                .matchers
                .iter()
                .all(|matcher| matcher.is_match(labels))
        };
        let readers: Vec<(usize, usize)> = readers.iter().filter(is_reader).copied().collect();
        if readers.is_empty() {
            return false;
        }
        let index = handle.0 as usize;
        if self.count >= self.series_max || index >= self.series_max.saturating_mul(16) {
            self.refused += 1;
            return false;
        }
        if self.series.len() <= index {
            self.series.resize_with(index + 1, || None);
        }
        let mut trackers = Vec::with_capacity(readers.len());
        for (plan, input) in readers {
            let window = self.plans[plan].inputs[input].window;
            let moments = matches!(self.plans[plan].shape, Shape::Band(_));
            let moments = moments.then(|| {
                self.restored
                    .remove(&(plan, Arc::clone(labels)))
                    .unwrap_or_default()
            });
            self.states[plan].members[input].insert(handle.0);
            trackers.push(Tracker {
                plan,
                input,
                samples: window.map(|window| Samples::new(window.range_ms)),
                moments,
                is_dirty: false,
            });
        }
        let live = Live {
            labels: Arc::clone(labels),
            key: Arc::new(labels.filter(|name| name != NAME)),
            last: Sample {
                at_ms: i64::MIN,
                value: f64::NAN,
            },
            seen_ms: i64::MIN,
            trackers,
        };
        if self.series[index].replace(live).is_none() {
            self.count += 1;
        }
        true
    }

    /// Forgets a series; gives `out` that it is missing to the rules that judge it by itself.
    pub(crate) fn remove_series(
        &mut self,
        now_ms: i64,
        handle: SeriesHandle,
        out: &mut Vec<Observed>,
    ) {
        let Some(live) = self
            .series
            .get_mut(handle.0 as usize)
            .and_then(Option::take)
        else {
            return;
        };
        self.count -= 1;
        for tracker in live.trackers {
            let state = &mut self.states[tracker.plan];
            state.is_dirty = true;
            state.members[tracker.input].remove(&handle.0);
            if matches!(
                self.plans[tracker.plan].shape,
                Shape::Series(_) | Shape::Band(_)
            ) {
                let (key, outcome) = (Arc::clone(&live.key), Outcome::Verdict(Verdict::Missing));
                out.push(Observed {
                    plan: tracker.plan,
                    key,
                    data_ms: now_ms,
                    outcome,
                });
            }
        }
    }

    /// Takes in a sample and gives `out` what rules say of it at once.
    pub(crate) fn handle_sample(
        &mut self,
        now_ms: i64,
        handle: SeriesHandle,
        sample: Sample,
        out: &mut Vec<Observed>,
    ) {
        let Some(Some(live)) = self.series.get_mut(handle.0 as usize) else {
            return;
        };
        if sample.at_ms < live.last.at_ms {
            self.dropped += 1;
            return;
        }
        live.last = sample;
        live.seen_ms = now_ms;
        let is_end = is_stale(sample.value);
        for (at, tracker) in live.trackers.iter_mut().enumerate() {
            let state = &mut self.states[tracker.plan];
            let mut say = |outcome| {
                out.push(Observed {
                    plan: tracker.plan,
                    key: Arc::clone(&live.key),
                    data_ms: now_ms,
                    outcome,
                });
            };
            match &self.plans[tracker.plan].shape {
                Shape::Absent { .. } if is_end => {}
                Shape::Absent { .. } => state.seen_ms = Some(now_ms),
                Shape::Across { .. } => state.is_dirty = true,
                Shape::Series(_) | Shape::Band(_) if is_end => {
                    say(Outcome::Verdict(Verdict::Missing));
                }
                Shape::Series(_) if tracker.samples.is_none() => say(Outcome::Value(sample.value)),
                Shape::Series(_) => {}
                Shape::Band(band) => {
                    if let (Some(moments), None) = (&mut tracker.moments, &tracker.samples) {
                        let verdict = moments.verdict(band, sample.at_ms, sample.value);
                        if let Some(verdict) = verdict {
                            say(Outcome::Verdict(verdict));
                        }
                    }
                }
            }
            if let Some(samples) = &mut tracker.samples {
                self.dropped += samples.push(sample);
                if !tracker.is_dirty {
                    tracker.is_dirty = true;
                    self.dirty.push((handle.0, at));
                }
            }
        }
    }

    /// Takes in a sample of before a restart: it fills windows and says nothing.
    pub(crate) fn handle_past(&mut self, handle: SeriesHandle, sample: Sample) {
        let Some(Some(live)) = self.series.get_mut(handle.0 as usize) else {
            return;
        };
        if sample.at_ms < live.last.at_ms {
            return;
        }
        live.last = sample;
        live.seen_ms = live.seen_ms.max(sample.at_ms);
        // What had arrived after the last tick waits for the next one.
        let is_new = self.tick_ms.is_none_or(|tick_ms| sample.at_ms > tick_ms);
        for (at, tracker) in live.trackers.iter_mut().enumerate() {
            let state = &mut self.states[tracker.plan];
            state.is_dirty |= is_new;
            if !is_stale(sample.value) {
                state.seen_ms = state.seen_ms.max(Some(sample.at_ms));
            }
            if let Some(samples) = &mut tracker.samples {
                samples.push(sample);
                if is_new && !tracker.is_dirty {
                    tracker.is_dirty = true;
                    self.dirty.push((handle.0, at));
                }
            }
        }
    }

    /// Evaluates windows and expressions over many series, if a tick has passed.
    pub(crate) fn tick(&mut self, now_ms: i64, out: &mut Vec<Observed>) -> Vec<Rows> {
        if self
            .tick_ms
            .is_some_and(|tick_ms| (0..TICK_MS).contains(&(now_ms - tick_ms)))
        {
            return Vec::new();
        }
        self.tick_ms = Some(now_ms);
        let is_sweep = self
            .sweep_ms
            .is_none_or(|sweep_ms| !(0..SWEEP_MS).contains(&(now_ms - sweep_ms)));
        if is_sweep {
            self.sweep_ms = Some(now_ms);
            self.sweep(now_ms, out);
        } else {
            for (handle, at) in std::mem::take(&mut self.dirty) {
                self.evaluate(now_ms, handle, at, out);
            }
        }
        let mut found = Vec::new();
        for plan in 0..self.plans.len() {
            if self.states[plan].is_dirty || is_sweep {
                self.states[plan].is_dirty = false;
                found.extend(self.across(plan, now_ms));
                self.absence(plan, now_ms, out);
            }
        }
        found
    }

    fn sweep(&mut self, now_ms: i64, out: &mut Vec<Observed>) {
        self.dirty.clear();
        for plan in 0..self.plans.len() {
            let is_by_series = matches!(self.plans[plan].shape, Shape::Series(_) | Shape::Band(_));
            if !is_by_series || self.plans[plan].inputs[0].window.is_none() {
                continue;
            }
            for handle in self.states[plan].members[0].clone() {
                let live = self.series[handle as usize].as_ref();
                let at =
                    live.and_then(|live| live.trackers.iter().position(|one| one.plan == plan));
                if let Some(at) = at {
                    self.evaluate(now_ms, handle, at, out);
                }
            }
        }
    }

    /// Evaluates the window of one series.
    fn evaluate(&mut self, now_ms: i64, handle: u32, at: usize, out: &mut Vec<Observed>) {
        let Some(Some(live)) = self.series.get_mut(handle as usize) else {
            return;
        };
        let Some(tracker) = live.trackers.get_mut(at) else {
            return;
        };
        tracker.is_dirty = false;
        let plan = &self.plans[tracker.plan];
        let (Some(samples), Some(window)) =
            (&mut tracker.samples, plan.inputs[tracker.input].window)
        else {
            return;
        };
        let value = samples.value(window.function, now_ms);
        let outcome = match (&plan.shape, value) {
            (Shape::Series(_), Some(value)) => Outcome::Value(value),
            (Shape::Band(band), Some(value)) => {
                let verdict = tracker
                    .moments
                    .as_mut()
                    .and_then(|one| one.verdict(band, now_ms, value));
                Outcome::Verdict(verdict.unwrap_or(Verdict::Missing))
            }
            (Shape::Series(_) | Shape::Band(_), None) => Outcome::Verdict(Verdict::Missing),
            _ => return,
        };
        let (key, data_ms) = (Arc::clone(&live.key), live.seen_ms);
        out.push(Observed {
            plan: tracker.plan,
            key,
            data_ms,
            outcome,
        });
    }

    fn across(&mut self, plan: usize, now_ms: i64) -> Option<Rows> {
        let Shape::Across { node, .. } = &self.plans[plan].shape else {
            return None;
        };
        let (inputs, members) = (&self.plans[plan].inputs, &self.states[plan].members);
        let (series, lookback_ms) = (&mut self.series, self.lookback_ms);
        let mut rows = |index: usize| {
            let mut rows = Vec::with_capacity(members[index].len());
            for handle in &members[index] {
                let Some(live) = series[*handle as usize].as_mut() else {
                    continue;
                };
                let value = match inputs[index].window {
                    Some(window) => {
                        let is_this = |one: &&mut Tracker| one.plan == plan && one.input == index;
                        let tracker = live.trackers.iter_mut().find(is_this);
                        tracker
                            .and_then(|one| one.samples.as_mut())
                            .and_then(|one| one.value(window.function, now_ms))
                    }
                    None => {
                        let counts = now_ms.saturating_sub(live.seen_ms) < lookback_ms
                            && !is_stale(live.last.value);
                        counts.then_some(live.last.value)
                    }
                };
                let is_named = inputs[index].window.is_none();
                let labels = || live.labels.filter(|name| is_named || name != NAME);
                rows.extend(value.map(|value| (labels(), value)));
            }
            rows
        };
        let rows = node.rows(&mut rows);
        Some(Rows { plan, rows })
    }

    fn absence(&mut self, plan: usize, now_ms: i64, out: &mut Vec<Observed>) {
        let Shape::Absent { window_ms, labels } = &self.plans[plan].shape else {
            return;
        };
        // The first look counts as a sample: a series needs the time to appear.
        let seen_ms = *self.states[plan].seen_ms.get_or_insert(now_ms);
        let is_absent = now_ms - seen_ms >= window_ms.unwrap_or(self.lookback_ms);
        let verdict = if is_absent {
            Verdict::Active(1.0)
        } else {
            Verdict::Clear(0.0)
        };
        let outcome = Outcome::Verdict(verdict);
        out.push(Observed {
            plan,
            key: Arc::new(labels.clone()),
            data_ms: now_ms,
            outcome,
        });
    }

    /// Time of the next tick, if there is a rule to evaluate then.
    pub(crate) fn next_tick_ms(&self) -> Option<i64> {
        (!self.plans.is_empty()).then(|| self.tick_ms.map_or(i64::MIN, |tick_ms| tick_ms + TICK_MS))
    }

    /// Moments of all bands, and arrivals of absences: what no store can give back.
    pub(crate) fn saved_moments(&self) -> impl Iterator<Item = (usize, &Arc<Labels>, &Moments)> {
        let live = self.series.iter().flatten().flat_map(|live| {
            let moments = |tracker: &'_ Tracker| tracker.plan;
            live.trackers
                .iter()
                .filter_map(move |one| Some((moments(one), &live.labels, one.moments.as_ref()?)))
        });
        live.chain(
            self.restored
                .iter()
                .map(|(key, moments)| (key.0, &key.1, moments)),
        )
    }

    pub(crate) fn restore_moments(&mut self, plan: usize, labels: Arc<Labels>, moments: Moments) {
        self.restored.insert((plan, labels), moments);
    }

    pub(crate) fn seen_ms(&self, plan: usize) -> Option<i64> {
        self.states[plan].seen_ms
    }

    pub(crate) fn restore_seen(&mut self, plan: usize, seen_ms: i64) {
        self.states[plan].seen_ms = Some(seen_ms);
    }

    pub(crate) fn clocks(&self) -> [Option<i64>; 2] {
        [self.tick_ms, self.sweep_ms]
    }

    pub(crate) fn restore_clocks(&mut self, [tick_ms, sweep_ms]: [Option<i64>; 2]) {
        (self.tick_ms, self.sweep_ms) = (tick_ms, sweep_ms);
    }
}
