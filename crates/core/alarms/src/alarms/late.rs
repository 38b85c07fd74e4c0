//! Late rules: which queries are due, and what becomes of their results.

use super::Alarms;
use crate::condition::Verdict;
use crate::rule::{Condition, RecordRule};
use sheaf_query::{Options, Query, Source, Value};
use sheaf_samples::{Labels, NAME, Sample};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A query to run, at one time, over the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluation {
    /// Number, by which the result is given back.
    pub id: u64,
    /// Expression in PromQL.
    pub query: String,
    /// Second expression, whose rows end alerts that fire.
    pub clear: Option<String>,
    /// Time of the query, in ms since 1970-01-01 UTC.
    pub at_ms: i64,
}

/// Result of an [`Evaluation`].
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Evaluated {
    /// Rows of `query`.
    pub rows: Vec<Row>,
    /// Rows of `clear`; empty without.
    pub clear: Vec<Row>,
}

/// One series of an instant vector; a scalar is a row without labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Labels of the series.
    pub labels: Arc<Labels>,
    /// Value of the series.
    pub value: f64,
}

/// A sample that a recording rule made, for the store.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// Series.
    pub labels: Arc<Labels>,
    /// Value at the time of the evaluation.
    pub sample: Sample,
}

/// Runs an evaluation over a store.
///
/// # Errors
///
/// Why an expression has no value, or that its value is a text or a matrix.
pub fn evaluate(
    source: &dyn Source,
    evaluation: &Evaluation,
    options: &Options,
) -> Result<Evaluated, String> {
    let rows = |text: &str| {
        let query = Query::parse(text, options).map_err(|error| error.to_string())?;
        let answer = query
            .instant(source, evaluation.at_ms, options)
            .map_err(|error| error.to_string())?;
        match answer.value {
            Value::Scalar(sample) => Ok(vec![Row {
                labels: Arc::default(),
                value: sample.value,
            }]),
            Value::Vector(points) => Ok(points
                .into_iter()
                .map(|one| Row {
                    labels: one.labels,
                    value: one.sample.value,
                })
                .collect()),
            other => Err(format!(
                "a {} as value of {text:?}, expected a vector",
                other.kind()
            )),
        }
    };
    let clear = evaluation.clear.as_deref().map_or(Ok(Vec::new()), rows)?;
    Ok(Evaluated {
        rows: rows(&evaluation.query)?,
        clear,
    })
}

/// One late rule of a group.
#[derive(Clone, Debug)]
pub(super) enum Item {
    Alert(usize),
    Record(RecordState),
}

/// Rule that makes a series, and what is known of it.
#[derive(Clone, Debug)]
pub(super) struct RecordState {
    pub(super) rule: RecordRule,
    /// Why the latest evaluation failed.
    pub(super) error: Option<String>,
    pub(super) evaluated_ms: Option<i64>,
}

/// Rules that are evaluated together.
#[derive(Clone, Debug)]
pub(super) struct GroupState {
    pub(super) name: String,
    /// File that the group stands in.
    pub(super) file: String,
    pub(super) interval_ms: i64,
    pub(super) items: Vec<Item>,
    pub(super) next_ms: Option<i64>,
    /// Evaluations without result.
    running: BTreeSet<u64>,
}

impl GroupState {
    pub(super) fn new(file: &str, name: &str, interval_ms: i64, items: Vec<Item>) -> Self {
        Self {
            name: name.to_owned(),
            file: file.to_owned(),
            interval_ms: interval_ms.max(1),
            items,
            next_ms: None,
            running: BTreeSet::new(),
        }
    }

    /// When the group is due; at once before its first evaluation.
    pub(super) fn next_ms(&self) -> Option<i64> {
        (!self.items.is_empty()).then(|| self.next_ms.unwrap_or(i64::MIN))
    }
}

/// An evaluation without result.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    group: usize,
    item: usize,
    at_ms: i64,
}

impl Alarms {
    /// Returns the queries that are due, in the order in which they have to run: later rules of a group may read what
    /// earlier ones record.
    ///
    /// A group is evaluated at multiples of its interval. Times that have passed are left out and counted, and so is a
    /// group whose results are not all there yet.
    pub fn due(&mut self, now_ms: i64) -> Vec<Evaluation> {
        let mut found = Vec::new();
        for (at, group) in self.groups.iter_mut().enumerate() {
            if group.next_ms().is_none_or(|next_ms| next_ms > now_ms) {
                continue;
            }
            let at_ms = now_ms - now_ms.rem_euclid(group.interval_ms);
            let missed = group
                .next_ms
                .map_or(0, |next_ms| (at_ms - next_ms) / group.interval_ms);
            self.stats.evaluations_missed += missed.max(0).unsigned_abs();
            group.next_ms = Some(at_ms + group.interval_ms);
            if !group.running.is_empty() {
                self.stats.evaluations_missed += 1;
                continue;
            }
            for (index, item) in group.items.iter().enumerate() {
                let (query, clear) = match item {
                    Item::Record(record) => (&record.rule.expr, None),
                    Item::Alert(rule) => match &self.rules[*rule].rule.condition {
                        Condition::Late { query, clear, .. } => (query, clear.clone()),
                        _ => continue,
                    },
                };
                let id = self.next_evaluation;
                self.next_evaluation += 1;
                group.running.insert(id);
                self.evaluations.insert(
                    id,
                    Pending {
                        group: at,
                        item: index,
                        at_ms,
                    },
                );
                found.push(Evaluation {
                    id,
                    query: query.clone(),
                    clear,
                    at_ms,
                });
            }
        }
        found
    }

    /// Takes in the result of an evaluation, or why there is none: then alerts stay as they are.
    pub fn handle_evaluated(&mut self, now_ms: i64, id: u64, result: Result<Evaluated, String>) {
        let Some(Pending { group, item, at_ms }) = self.evaluations.remove(&id) else {
            return;
        };
        self.groups[group].running.remove(&id);
        self.stats.evaluations_failed += u64::from(result.is_err());
        match (&mut self.groups[group].items[item], result) {
            (Item::Alert(rule), Ok(evaluated)) => {
                let rule = *rule;
                self.take_late(now_ms, rule, &evaluated);
            }
            (Item::Alert(rule), Err(error)) => self.rules[*rule].error = Some(error),
            (Item::Record(record), Ok(evaluated)) => {
                (record.error, record.evaluated_ms) = (None, Some(now_ms));
                let rule = record.rule.clone();
                self.record(at_ms, &rule, evaluated.rows);
            }
            (Item::Record(record), Err(error)) => record.error = Some(error),
        }
    }

    fn take_late(&mut self, now_ms: i64, rule: usize, evaluated: &Evaluated) {
        self.rules[rule].evaluated_ms = Some(now_ms);
        let Condition::Late { test, clear, .. } = &self.rules[rule].rule.condition else {
            return;
        };
        let (test, has_clear) = (*test, clear.is_some());
        let key = |labels: &Labels| Arc::new(labels.filter(|name| name != NAME));
        let mut rows: Vec<(Arc<Labels>, f64)> = evaluated
            .rows
            .iter()
            .map(|row| (key(&row.labels), row.value))
            .collect();
        if has_clear {
            // An alert that fires goes on until the second expression has a row for it.
            let cleared: BTreeSet<Arc<Labels>> =
                evaluated.clear.iter().map(|row| key(&row.labels)).collect();
            let active: BTreeSet<Arc<Labels>> = rows.iter().map(|row| Arc::clone(&row.0)).collect();
            let firing = self
                .alerts
                .of_rule(rule)
                .filter_map(|id| self.alerts.get(id));
            let held = firing.filter(|one| {
                one.open_ms.is_some() && !active.contains(&one.key) && !cleared.contains(&one.key)
            });
            let held: Vec<_> = held
                .map(|one| (Arc::clone(&one.key), one.machine.value()))
                .collect();
            rows.extend(held);
        }
        self.take_result(now_ms, rule, rows, |value, is_firing| match test {
            Some(test) => test.verdict(value, is_firing),
            None => Verdict::Active(value),
        });
    }

    fn record(&mut self, at_ms: i64, record: &RecordRule, rows: Vec<Row>) {
        for row in rows {
            let mut pairs: BTreeMap<&str, &str> = row.labels.iter().collect();
            pairs.extend(
                record
                    .labels
                    .iter()
                    .map(|(name, value)| (name.as_str(), value.as_str())),
            );
            pairs.insert(NAME, &record.name);
            let Ok(labels) = Labels::new(pairs) else {
                continue;
            };
            if self.recorded.len() >= self.config.waiting_max.max(1) {
                self.recorded.pop_front();
                self.stats.waiting_dropped += 1;
            }
            self.recorded.push_back(Recorded {
                labels: Arc::new(labels),
                sample: Sample {
                    at_ms,
                    value: row.value,
                },
            });
        }
    }

    /// Takes the next sample of a recording rule.
    pub fn poll_recorded(&mut self) -> Option<Recorded> {
        self.recorded.pop_front()
    }
}
