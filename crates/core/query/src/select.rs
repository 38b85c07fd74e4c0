//! Selectors, ranges and subqueries: from a store to rows and windows.

use crate::error::Error;
use crate::eval::{Evaluator, wrong_kind};
use crate::plan::{Call, Kind, Node, Selector, Shift, Steps, Subquery};
use crate::rows::{ABSENT, Merge, Row, Table, merged, order, present, without_name};
use crate::source::{Data, Selection, Series, SourceError};
use crate::value::Line;
use crate::window::{Summary, Window};
use sheaf_samples::{Labels, Sample, is_stale};
use std::sync::Arc;

/// Series of a range, and where the windows lie in them.
struct Ranges {
    series: Vec<(Arc<Labels>, Data)>,
    shift: Shift,
    range_ms: i64,
}

impl Evaluator<'_> {
    /// Loads the series of `selector`, sorted by labels, without those that are empty.
    fn load(
        &mut self,
        selector: &Selector,
        from_ms: i64,
        to_ms: i64,
        bucket_ms: Option<i64>,
    ) -> Result<Vec<(Arc<Labels>, Data)>, Error> {
        let mut all: Table<Arc<Labels>, Data> = Table::default();
        for matchers in &selector.alternatives {
            let selection = Selection {
                matchers,
                from_ms,
                to_ms,
                bucket_ms,
            };
            for Series { labels, data } in self.source.select(&selection)? {
                let found = match &data {
                    Data::Samples(samples) => samples.len(),
                    Data::Buckets { level_ms, buckets } => {
                        if *level_ms <= 0 || bucket_ms.is_none_or(|g| g % level_ms != 0) {
                            let text = format!("buckets of {level_ms} ms where none are exact");
                            return Err(SourceError::Failed(text).into());
                        }
                        buckets.len()
                    }
                };
                self.budget.load(found as u64)?;
                if found > 0 {
                    all.insert(labels, data);
                }
            }
        }
        let mut all: Vec<_> = all.into_iter().collect();
        // Stores give any order; sums of floats and `topk` need one, and this is that of Prometheus.
        all.sort_by_cached_key(|(labels, _)| order(labels));
        Ok(all)
    }

    /// Returns for each series its value at each step: the latest within the lookback, unless it ended.
    pub(crate) fn select_instant(
        &mut self,
        selector: &Selector,
        steps: &Steps,
    ) -> Result<Vec<Row>, Error> {
        self.latest(selector, steps, |sample| sample.value)
    }

    /// Returns for each series what `take` makes of its latest sample at each step.
    pub(crate) fn latest(
        &mut self,
        selector: &Selector,
        steps: &Steps,
        take: impl Fn(Sample) -> f64,
    ) -> Result<Vec<Row>, Error> {
        let shift = selector.shift;
        let lookback_ms = self.options.lookback_ms;
        let meant = shift.steps(steps, &self.whole);
        let from_ms = meant.first_ms.saturating_sub(lookback_ms);
        let series = self.load(selector, from_ms, meant.last_ms(), None)?;
        let mut rows = Vec::with_capacity(series.len());
        for (labels, data) in series {
            let samples = samples(data)?;
            self.budget.load(steps.count as u64)?;
            let mut next = 0;
            let mut at = |at_ms: i64| {
                let meant_ms = shift.apply(at_ms, &self.whole);
                while samples.get(next).is_some_and(|one| one.at_ms <= meant_ms) {
                    next += 1;
                }
                let sample = samples[next.checked_sub(1)?];
                let is_seen = sample.at_ms >= meant_ms.saturating_sub(lookback_ms);
                (is_seen && !is_stale(sample.value)).then(|| take(sample))
            };
            let values: Vec<f64> = steps.times().map(|ms| at(ms).unwrap_or(ABSENT)).collect();
            let row = Row { labels, values };
            if !row.is_empty() {
                rows.push(row);
            }
        }
        Ok(rows)
    }

    /// Returns for each series what `run` makes of its window at each step.
    pub(crate) fn over_windows(
        &mut self,
        call: &Call,
        steps: &Steps,
        keeps_name: bool,
        run: impl Fn(&Window<'_>) -> Result<Option<f64>, Error>,
    ) -> Result<Vec<Row>, Error> {
        let scalars = self.scalars(call, steps)?;
        let ranges = self.ranges(call, steps, false)?;
        let mut at_step = vec![0.0; scalars.len()];
        let mut rows = Vec::with_capacity(ranges.series.len());
        for (labels, data) in ranges.series {
            let samples = living(samples(data)?);
            self.budget.load(steps.count as u64)?;
            let mut values = vec![ABSENT; steps.count];
            let mut window = Moving::default();
            for (step, at_ms) in steps.times().enumerate() {
                let to_ms = ranges.shift.apply(at_ms, &self.whole);
                let from_ms = to_ms.saturating_sub(ranges.range_ms);
                let part = window.to(&samples, from_ms, to_ms, |one| one.at_ms);
                if part.is_empty() {
                    continue;
                }
                self.budget.visit(part.len() as u64)?;
                for (to, from) in at_step.iter_mut().zip(&scalars) {
                    *to = from[step];
                }
                let value = run(&Window {
                    samples: part,
                    from_ms,
                    to_ms,
                    at_ms,
                    scalars: &at_step,
                })?;
                values[step] = value.map_or(ABSENT, present);
            }
            let labels = if keeps_name {
                labels
            } else {
                without_name(&labels)
            };
            rows.push(Row { labels, values });
        }
        merged(rows, Merge::Never)
    }

    /// As [`over_windows`](Self::over_windows), from buckets where the store gives them.
    pub(crate) fn fold_windows(
        &mut self,
        call: &Call,
        steps: &Steps,
        keeps_name: bool,
        of_samples: fn(&Window<'_>) -> Option<f64>,
        of_buckets: fn(&Summary) -> f64,
    ) -> Result<Vec<Row>, Error> {
        let ranges = self.ranges(call, steps, true)?;
        let mut rows = Vec::with_capacity(ranges.series.len());
        for (labels, data) in ranges.series {
            self.budget.load(steps.count as u64)?;
            let mut values = vec![ABSENT; steps.count];
            let ends = steps.times().map(|at_ms| {
                let to_ms = ranges.shift.apply(at_ms, &self.whole);
                (at_ms, to_ms.saturating_sub(ranges.range_ms), to_ms)
            });
            let mut visits = 0;
            match data {
                Data::Samples(samples) => {
                    let samples = living(samples);
                    let mut window = Moving::default();
                    for (value, (at_ms, from_ms, to_ms)) in values.iter_mut().zip(ends) {
                        let part = window.to(&samples, from_ms, to_ms, |one| one.at_ms);
                        if !part.is_empty() {
                            visits += part.len() as u64;
                            *value = of_samples(&Window {
                                samples: part,
                                from_ms,
                                to_ms,
                                at_ms,
                                scalars: &[],
                            })
                            .map_or(ABSENT, present);
                        }
                    }
                }
                Data::Buckets { buckets, .. } => {
                    let mut window = Moving::default();
                    for (value, (_, from_ms, to_ms)) in values.iter_mut().zip(ends) {
                        let part = window.to(&buckets, from_ms, to_ms, |one| one.start_ms);
                        visits += part.len() as u64;
                        // The bucket that begins at the end of the window has one value in it: that at its start.
                        let (whole, at_end) = match part.split_last() {
                            Some((last, whole)) if last.start_ms == to_ms => (whole, last.at_start),
                            _ => (part, None),
                        };
                        *value = Summary::of(whole, at_end)
                            .map_or(ABSENT, |summary| present(of_buckets(&summary)));
                    }
                }
            }
            self.budget.visit(visits)?;
            let labels = if keeps_name {
                labels
            } else {
                without_name(&labels)
            };
            rows.push(Row { labels, values });
        }
        merged(rows, Merge::Never)
    }

    fn ranges(&mut self, call: &Call, steps: &Steps, buckets: bool) -> Result<Ranges, Error> {
        let arg = call.args.iter().find(|arg| arg.kind() == Kind::Matrix);
        match arg {
            Some(Node::Matrix(selector, range_ms)) => {
                let shift = selector.shift;
                let meant = shift.steps(steps, &self.whole);
                let from_ms = meant.first_ms.saturating_sub(*range_ms);
                let mut bucket_ms = gcd(*range_ms, meant.first_ms);
                if meant.count > 1 {
                    bucket_ms = gcd(bucket_ms, meant.step_ms);
                }
                let bucket_ms = (buckets && bucket_ms > 0).then_some(bucket_ms);
                Ok(Ranges {
                    series: self.load(selector, from_ms, meant.last_ms(), bucket_ms)?,
                    shift,
                    range_ms: *range_ms,
                })
            }
            Some(Node::Subquery(subquery)) => {
                let lines = self.subquery(subquery, steps)?.into_iter();
                let series = lines.map(|line| (line.labels, Data::Samples(line.samples)));
                Ok(Ranges {
                    series: series.collect(),
                    shift: subquery.shift,
                    range_ms: subquery.range_ms,
                })
            }
            _ => Err(wrong_kind()),
        }
    }

    fn subquery(&mut self, subquery: &Subquery, steps: &Steps) -> Result<Vec<Line>, Error> {
        let meant = subquery.shift.steps(steps, &self.whole);
        let step_ms = subquery
            .step_ms
            .unwrap_or(self.options.subquery_step_ms)
            .max(1);
        let from_ms = meant.first_ms.saturating_sub(subquery.range_ms);
        // The first multiple of the step in the window.
        let mut first_ms = from_ms / step_ms * step_ms;
        if first_ms < from_ms {
            first_ms = first_ms.saturating_add(step_ms);
        }
        let span_ms = i128::from(meant.last_ms()) - i128::from(first_ms);
        if span_ms < 0 {
            return Ok(Vec::new());
        }
        let count = span_ms / i128::from(step_ms) + 1;
        self.budget.load(u64::try_from(count).unwrap_or(u64::MAX))?;
        let inner = Steps {
            first_ms,
            step_ms,
            count: usize::try_from(count).unwrap_or(usize::MAX),
        };
        let rows = self.vector(&subquery.node, &inner)?;
        self.budget.load(rows.len() as u64 * inner.count as u64)?;
        Ok(rows
            .into_iter()
            .map(|row| Line {
                samples: samples_of(&row, &inner),
                labels: row.labels,
            })
            .collect())
    }

    /// Returns the samples of a range or subquery as they are, for an instant query of one.
    pub(crate) fn matrix(&mut self, node: &Node, steps: &Steps) -> Result<Vec<Line>, Error> {
        match node {
            Node::Matrix(selector, range_ms) => {
                let to_ms = selector.shift.apply(steps.first_ms, &self.whole);
                let from_ms = to_ms.saturating_sub(*range_ms);
                let mut lines = Vec::new();
                for (labels, data) in self.load(selector, from_ms, to_ms, None)? {
                    let samples = living(samples(data)?);
                    if !samples.is_empty() {
                        lines.push(Line { labels, samples });
                    }
                }
                Ok(lines)
            }
            Node::Subquery(subquery) => self.subquery(subquery, steps),
            _ => Err(wrong_kind()),
        }
    }
}

/// Returns the values of `row` with their times.
pub(crate) fn samples_of(row: &Row, steps: &Steps) -> Vec<Sample> {
    steps
        .times()
        .zip(&row.values)
        .filter(|(_, value)| !is_stale(**value))
        .map(|(at_ms, value)| Sample {
            at_ms,
            value: *value,
        })
        .collect()
}

fn samples(data: Data) -> Result<Vec<Sample>, Error> {
    match data {
        Data::Samples(samples) => Ok(samples),
        Data::Buckets { .. } => {
            Err(SourceError::Failed("buckets where samples were asked for".to_owned()).into())
        }
    }
}

/// Returns `samples` without staleness markers, which functions over time never see.
fn living(mut samples: Vec<Sample>) -> Vec<Sample> {
    samples.retain(|sample| !is_stale(sample.value));
    samples
}

/// A window that moves forward over sorted items.
#[derive(Default)]
struct Moving {
    from: usize,
    to: usize,
}

impl Moving {
    /// Moves to the items from `from_ms` to `to_ms`, both included; neither may be below that of the call before.
    fn to<'a, T>(
        &mut self,
        items: &'a [T],
        from_ms: i64,
        to_ms: i64,
        at_ms: impl Fn(&T) -> i64,
    ) -> &'a [T] {
        while self.to < items.len() && at_ms(&items[self.to]) <= to_ms {
            self.to += 1;
        }
        while self.from < self.to && at_ms(&items[self.from]) < from_ms {
            self.from += 1;
        }
        &items[self.from..self.to]
    }
}

/// Greatest common divisor; 0 if both are 0.
fn gcd(left: i64, right: i64) -> i64 {
    let (mut left, mut right) = (left.unsigned_abs(), right.unsigned_abs());
    while right != 0 {
        (left, right) = (right, left % right);
    }
    i64::try_from(left).unwrap_or(1)
}
