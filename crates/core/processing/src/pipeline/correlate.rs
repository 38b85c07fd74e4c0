//! Expressions over all series: evaluated at their times, results passed on as samples.

use super::{Core, Pipeline, Role};
use crate::chain::Chain;
use crate::output::Output;
use crate::plan::Plan;
use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use sheaf_query::{Source, Value};
use sheaf_samples::{Labels, NAME, STALE, Sample};
use std::sync::Arc;

/// State of one `correlate` operator.
#[derive(Debug)]
pub(super) struct Correlation {
    pub(super) operator: u16,
    interval_ms: i64,
    /// Time of the last evaluation.
    last_ms: Option<i64>,
    /// Series of the last evaluation.
    pub(super) series: IndexMap<Arc<Labels>, Chain, FxBuildHasher>,
}

/// Correlations of `plan`, without results. Shards have none: their live head is not that of all series.
pub(super) fn correlations(plan: &Plan, role: Role) -> Vec<Correlation> {
    let found = plan
        .operators
        .iter()
        .enumerate()
        .filter_map(|(at, planned)| {
            let correlate = planned.operator.correlation()?;
            (role != Role::Shard).then(|| Correlation {
                operator: u16::try_from(at).expect("bounded by the plan"),
                interval_ms: correlate.interval_ms,
                last_ms: None,
                series: IndexMap::default(),
            })
        });
    found.collect()
}

impl Correlation {
    /// Time of the evaluation that is due at `now_ms`.
    fn due_ms(&self, now_ms: i64) -> Option<i64> {
        let at_ms = now_ms.div_euclid(self.interval_ms) * self.interval_ms;
        self.last_ms
            .is_none_or(|last_ms| last_ms < at_ms)
            .then_some(at_ms)
    }
}

impl Pipeline {
    /// Evaluates the correlations that are due over `source`, the live head of all series. To be called before
    /// [`poll`](Self::poll), so that windows take the results.
    ///
    /// A series that is no longer in the result gets a marker of staleness, then it ends.
    pub fn poll_correlations(&mut self, now_ms: i64, source: &dyn Source, output: &mut Output) {
        self.core.deliver(output);
        for at in 0..self.core.correlations.len() {
            let correlation = &self.core.correlations[at];
            let Some(at_ms) = correlation.due_ms(now_ms) else {
                continue;
            };
            let operator = usize::from(correlation.operator);
            let planned = &self.plan.operators[operator];
            let correlate = planned.operator.correlation().expect("it says so");
            let results = match correlate.evaluate(source, at_ms) {
                Ok(value) => samples(value),
                Err(error) => {
                    self.core.failed(operator, error);
                    Vec::new()
                }
            };
            self.core.correlations[at].last_ms = Some(at_ms);
            self.core.correlate(&self.plan, at, at_ms, results, output);
        }
        debug_assert!(self.core.stats.is_balanced(), "{:?}", self.core.stats);
    }

    /// Time of the next [`poll_correlations`](Self::poll_correlations) that has something to do.
    #[must_use]
    pub fn next_correlation_ms(&self) -> Option<i64> {
        let next = |one: &Correlation| {
            one.last_ms
                .map_or(i64::MIN, |last_ms| last_ms + one.interval_ms)
        };
        self.core.correlations.iter().map(next).min()
    }
}

/// Labels and values of a result.
fn samples(value: Value) -> Vec<(Arc<Labels>, f64)> {
    match value {
        Value::Scalar(sample) => vec![(Arc::new(Labels::default()), sample.value)],
        Value::Vector(points) => points
            .into_iter()
            .map(|one| (one.labels, one.sample.value))
            .collect(),
        // Refused when the configuration was read.
        Value::String(..) | Value::Matrix(_) => Vec::new(),
    }
}

impl Core {
    fn failed(&mut self, operator: usize, error: String) {
        let stats = &mut self.stats.operators[operator];
        stats.failed += 1;
        stats.last_failure = error;
    }

    /// Passes `results` on as samples at `at_ms`, and ends the series that are not among them.
    fn correlate(
        &mut self,
        plan: &Plan,
        at: usize,
        at_ms: i64,
        results: Vec<(Arc<Labels>, f64)>,
        output: &mut Output,
    ) {
        let operator = usize::from(self.correlations[at].operator);
        let planned = &plan.operators[operator];
        let name = &planned.operator.correlation().expect("it says so").output;
        let mut before = std::mem::take(&mut self.correlations[at].series);
        let mut now: IndexMap<Arc<Labels>, Chain, FxBuildHasher> = IndexMap::default();
        for (labels, value) in results {
            let labels = match labels.with(NAME, name) {
                Ok(labels) => Arc::new(labels),
                Err(error) => {
                    self.failed(operator, error.to_string());
                    continue;
                }
            };
            if now.contains_key(&labels) {
                self.failed(operator, format!("two results for {labels}"));
                continue;
            }
            let known = before.swap_remove(&labels);
            let (groups, max) = (self.groups() + before.len() + now.len(), self.groups_max);
            if known.is_none() && groups >= max {
                self.stats
                    .over("groups_max", &planned.id, max as u64, &labels);
                continue;
            }
            let mut chain =
                known.unwrap_or_else(|| self.compile(plan, operator + 1, &labels, Vec::new()));
            self.deliver(output);
            self.stats.made += 1;
            self.pass(&mut chain, Sample { at_ms, value }, at_ms, output);
            now.insert(labels, chain);
        }
        self.end_results(before, at_ms, output);
        self.correlations[at].series = now;
    }

    /// Marks series of a correlation as stale and gives their chains up.
    pub(super) fn end_results(
        &mut self,
        series: IndexMap<Arc<Labels>, Chain, FxBuildHasher>,
        at_ms: i64,
        output: &mut Output,
    ) {
        for (_, mut chain) in series {
            self.stats.made += 1;
            let value = STALE;
            self.pass(&mut chain, Sample { at_ms, value }, at_ms, output);
            self.release(chain);
        }
        self.deliver(output);
    }
}
