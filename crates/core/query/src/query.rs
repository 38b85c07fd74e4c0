//! A parsed expression, and its evaluation at one time or over a range.

use crate::error::Error;
use crate::eval::{Evaluator, Out};
use crate::options::{Budget, Options};
use crate::parse;
use crate::plan::{Kind, Node, Steps, Whole};
use crate::rows::{self, Merge, Row};
use crate::select::samples_of;
use crate::source::Source;
use crate::value::{Answer, Line, Point, Value};
use sheaf_samples::{Labels, Sample};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Times of a query over a range: `from_ms`, and every `step_ms` after it up to `to_ms`, included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First time, in ms since 1970-01-01 UTC.
    pub from_ms: i64,
    /// Last time, not before the first.
    pub to_ms: i64,
    /// Step, positive.
    pub step_ms: i64,
}

/// A parsed expression. Evaluations share nothing, so one query serves many at once.
#[derive(Debug)]
pub struct Query {
    node: Node,
}

impl Query {
    /// Reads `text`.
    ///
    /// # Errors
    ///
    /// [`Error::Parse`], [`Error::Unsupported`], [`Error::TooLong`] or [`Error::TooDeep`].
    pub fn parse(text: &str, options: &Options) -> Result<Self, Error> {
        let node = parse::parse(text, options)?;
        Ok(Self { node })
    }

    /// Returns the value at `at_ms`.
    ///
    /// # Errors
    ///
    /// If an operation has no result, a limit is reached, or the store fails.
    pub fn instant(
        &self,
        source: &dyn Source,
        at_ms: i64,
        options: &Options,
    ) -> Result<Answer, Error> {
        let steps = Steps::once(at_ms);
        let whole = Whole {
            start_ms: at_ms,
            end_ms: at_ms,
            step_ms: 0,
        };
        let mut evaluator = evaluator(source, options, whole);
        let at = |value: f64| Sample { at_ms, value };
        let value = if self.node.kind() == Kind::Matrix {
            let mut lines = evaluator.matrix(&self.node, &steps)?;
            lines.sort_by_cached_key(|line| rows::order(&line.labels));
            check_series(lines.len(), options)?;
            Value::Matrix(lines)
        } else {
            match evaluator.eval(&self.node, &steps)? {
                Out::Scalar(values) => Value::Scalar(at(values[0])),
                Out::Text(text) => Value::String(at_ms, text),
                Out::Vector(rows) => {
                    let rows = rows::merged(rows, Merge::Disjoint)?;
                    check_series(rows.len(), options)?;
                    let point = |row: Row| Point {
                        sample: at(row.values[0]),
                        labels: row.labels,
                    };
                    Value::Vector(rows.into_iter().map(point).collect())
                }
            }
        };
        Ok(answer(value, evaluator))
    }

    /// Returns the values at the steps of `range`, always a matrix.
    ///
    /// # Errors
    ///
    /// As of [`instant`](Self::instant); [`Error::Range`] or [`Error::TooManySteps`] for times that are none; a range
    /// vector or a string has no value over a range.
    pub fn range(
        &self,
        source: &dyn Source,
        range: Range,
        options: &Options,
    ) -> Result<Answer, Error> {
        if range.step_ms <= 0 {
            return Err(Error::Range(
                "zero or negative query resolution step widths are not accepted. Try a positive integer",
            ));
        }
        if range.to_ms < range.from_ms {
            return Err(Error::Range("end timestamp must not be before start time"));
        }
        let span_ms = range.to_ms.abs_diff(range.from_ms);
        let (steps, limit) = (
            (span_ms / range.step_ms.unsigned_abs()).saturating_add(1),
            options.steps_max,
        );
        if steps > limit {
            let found = steps;
            return Err(Error::TooManySteps { found, limit });
        }
        let kind = self.node.kind();
        if !matches!(kind, Kind::Scalar | Kind::Vector) {
            return Err(Error::parse(format!(
                "invalid expression type \"{kind}\" for range query, must be Scalar or instant Vector"
            )));
        }
        let steps = Steps {
            first_ms: range.from_ms,
            step_ms: range.step_ms,
            count: usize::try_from(steps).unwrap_or(usize::MAX),
        };
        let whole = Whole {
            start_ms: range.from_ms,
            end_ms: range.to_ms,
            step_ms: range.step_ms,
        };
        let mut evaluator = evaluator(source, options, whole);
        let rows = match evaluator.eval(&self.node, &steps)? {
            Out::Vector(rows) => rows::merged(rows, Merge::Disjoint)?,
            Out::Scalar(values) => {
                let labels = Arc::new(Labels::default());
                vec![Row { labels, values }]
            }
            Out::Text(_) => Vec::new(),
        };
        check_series(rows.len(), options)?;
        let line = |row: Row| Line {
            samples: samples_of(&row, &steps),
            labels: row.labels,
        };
        let mut lines: Vec<Line> = rows.into_iter().map(line).collect();
        lines.sort_by_cached_key(|line| rows::order(&line.labels));
        Ok(answer(Value::Matrix(lines), evaluator))
    }
}

fn evaluator<'a>(source: &'a dyn Source, options: &'a Options, whole: Whole) -> Evaluator<'a> {
    Evaluator {
        source,
        options,
        budget: Budget::new(options),
        whole,
        warnings: BTreeSet::new(),
    }
}

fn answer(value: Value, evaluator: Evaluator<'_>) -> Answer {
    Answer {
        value,
        warnings: evaluator.warnings.into_iter().collect(),
    }
}

fn check_series(found: usize, options: &Options) -> Result<(), Error> {
    let limit = options.series_max;
    if found > limit {
        return Err(Error::TooManySeries { found, limit });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
