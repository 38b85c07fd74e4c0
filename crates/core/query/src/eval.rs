//! Evaluation of a plan, step by step in time and series by series.
//!
//! This module answers which value each kind of node has. Selectors and windows are in `select`, operators in
//! `binary`, `arithmetic` and `matching`, aggregations in `aggregate`, functions in `functions`.

use crate::error::Error;
use crate::options::{Budget, Options};
use crate::plan::{Call, Kind, Node, Steps, Whole};
use crate::rows::{self, Merge, Row, merged, without_name};
use crate::source::Source;
use sheaf_samples::Labels;
use std::collections::BTreeSet;
use std::sync::Arc;

mod aggregate;
mod arithmetic;
mod binary;
pub(crate) mod functions;
mod matching;

use functions::{Run, TABLE};

/// Value of a node at all steps.
#[derive(Debug)]
pub(crate) enum Out {
    Scalar(Vec<f64>),
    Text(String),
    Vector(Vec<Row>),
}

/// State of one query.
pub(crate) struct Evaluator<'a> {
    pub(crate) source: &'a dyn Source,
    pub(crate) options: &'a Options,
    pub(crate) budget: Budget,
    pub(crate) whole: Whole,
    pub(crate) warnings: BTreeSet<String>,
}

impl Evaluator<'_> {
    pub(crate) fn eval(&mut self, node: &Node, steps: &Steps) -> Result<Out, Error> {
        if steps.count > 1 && !matches!(node, Node::Number(_) | Node::Text(_)) && node.is_fixed() {
            let out = self.eval(node, &Steps { count: 1, ..*steps })?;
            return self.repeated(out, steps.count);
        }
        match node {
            Node::Number(number) => Ok(Out::Scalar(vec![*number; steps.count])),
            Node::Text(text) => Ok(Out::Text(text.clone())),
            Node::Vector(selector) => self.select_instant(selector, steps).map(Out::Vector),
            Node::Negate(inner) => match self.eval(inner, steps)? {
                Out::Scalar(mut values) => {
                    values.iter_mut().for_each(|value| *value = -*value);
                    Ok(Out::Scalar(values))
                }
                Out::Vector(mut rows) => {
                    for row in &mut rows {
                        row.labels = without_name(&row.labels);
                        row.map(|_, value| Some(-value));
                    }
                    merged(rows, Merge::Never).map(Out::Vector)
                }
                Out::Text(_) => Err(wrong_kind()),
            },
            Node::Call(call) => self.call(call, steps),
            Node::Aggregate(aggregate) => aggregate::eval(self, aggregate, steps).map(Out::Vector),
            Node::Binary(binary) => binary::eval(self, binary, steps),
            // Only a call takes them, and asks for them by itself.
            Node::Matrix(..) | Node::Subquery(_) => Err(wrong_kind()),
        }
    }

    pub(crate) fn vector(&mut self, node: &Node, steps: &Steps) -> Result<Vec<Row>, Error> {
        match self.eval(node, steps)? {
            Out::Vector(rows) => Ok(rows),
            _ => Err(wrong_kind()),
        }
    }

    pub(crate) fn scalar(&mut self, node: &Node, steps: &Steps) -> Result<Vec<f64>, Error> {
        match self.eval(node, steps)? {
            Out::Scalar(values) => Ok(values),
            _ => Err(wrong_kind()),
        }
    }

    pub(crate) fn text(&mut self, node: &Node, steps: &Steps) -> Result<String, Error> {
        match self.eval(node, steps)? {
            Out::Text(text) => Ok(text),
            _ => Err(wrong_kind()),
        }
    }

    fn call(&mut self, call: &Call, steps: &Steps) -> Result<Out, Error> {
        match TABLE[call.function.0].run {
            Run::Map(map) => {
                let mut rows = self.vector(&call.args[0], steps)?;
                for row in &mut rows {
                    row.labels = without_name(&row.labels);
                    row.map(|_, value| Some(map(value)));
                }
                merged(rows, Merge::Disjoint).map(Out::Vector)
            }
            Run::MapWith(map) => {
                let mut rows = self.vector(&call.args[0], steps)?;
                let scalars = self.scalars(call, steps)?;
                let mut at_step = vec![0.0; scalars.len()];
                for row in &mut rows {
                    row.labels = without_name(&row.labels);
                    row.map(|step, value| {
                        for (to, from) in at_step.iter_mut().zip(&scalars) {
                            *to = from[step];
                        }
                        map(value, &at_step)
                    });
                }
                merged(rows, Merge::Disjoint).map(Out::Vector)
            }
            Run::Window(run) => self
                .over_windows(call, steps, false, |window| Ok(run(window)))
                .map(Out::Vector),
            Run::NamedWindow(run) => self
                .over_windows(call, steps, true, |window| Ok(run(window)))
                .map(Out::Vector),
            Run::Fold {
                samples,
                buckets,
                keeps_name,
            } => self
                .fold_windows(call, steps, keeps_name, samples, buckets)
                .map(Out::Vector),
            Run::Scalars(run) => {
                let scalars = self.scalars(call, steps)?;
                let mut at_step = vec![0.0; scalars.len()];
                let value = |step: usize| {
                    for (to, from) in at_step.iter_mut().zip(&scalars) {
                        *to = from[step];
                    }
                    run(&at_step)
                };
                Ok(Out::Scalar((0..steps.count).map(value).collect()))
            }
            Run::Custom(run) => run(self, call, steps),
            Run::Refused(_) => Err(wrong_kind()),
        }
    }

    /// Returns the scalar arguments of `call`, each at all steps.
    pub(crate) fn scalars(&mut self, call: &Call, steps: &Steps) -> Result<Vec<Vec<f64>>, Error> {
        let scalars = call.args.iter().filter(|arg| arg.kind() == Kind::Scalar);
        scalars.map(|arg| self.scalar(arg, steps)).collect()
    }

    /// Returns a vector of one element without labels.
    pub(crate) fn unlabelled(values: Vec<f64>) -> Row {
        Row {
            labels: Arc::new(Labels::default()),
            values: values.into_iter().map(rows::present).collect(),
        }
    }

    fn repeated(&mut self, out: Out, count: usize) -> Result<Out, Error> {
        Ok(match out {
            Out::Scalar(values) => Out::Scalar(vec![values[0]; count]),
            Out::Vector(rows) => {
                self.budget.load(rows.len() as u64 * count as u64)?;
                let repeat = |row: Row| Row {
                    values: vec![row.values[0]; count],
                    labels: row.labels,
                };
                Out::Vector(rows.into_iter().map(repeat).collect())
            }
            text @ Out::Text(_) => text,
        })
    }

    pub(crate) fn warn(&mut self, text: String) {
        // A bound: names of labels come into some of them.
        if self.warnings.len() < 32 {
            self.warnings.insert(text);
        }
    }
}

/// A type that the parser let through; a bug, but no panic.
pub(crate) fn wrong_kind() -> Error {
    Error::Execution("the types of the expression do not fit together".to_owned())
}
