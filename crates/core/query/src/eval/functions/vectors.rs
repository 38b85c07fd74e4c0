//! Functions between scalars and vectors, and of what is absent.

use crate::error::Error;
use crate::eval::{Evaluator, Out};
use crate::plan::{Call, Node, Steps};
use crate::rows::{ABSENT, Merge, Row, is_absent, merged, without_name};
use sheaf_samples::Labels;
use std::sync::Arc;

pub(crate) fn time(_: &mut Evaluator<'_>, _: &Call, steps: &Steps) -> Result<Out, Error> {
    Ok(Out::Scalar(steps.times().map(seconds).collect()))
}

/// Begin of the query.
pub(crate) fn start(evaluator: &mut Evaluator<'_>, _: &Call, steps: &Steps) -> Result<Out, Error> {
    let value = seconds(evaluator.whole.start_ms);
    Ok(Out::Scalar(vec![value; steps.count]))
}

/// End of the query.
pub(crate) fn end(evaluator: &mut Evaluator<'_>, _: &Call, steps: &Steps) -> Result<Out, Error> {
    let value = seconds(evaluator.whole.end_ms);
    Ok(Out::Scalar(vec![value; steps.count]))
}

/// Time between begin and end of the query.
pub(crate) fn range(evaluator: &mut Evaluator<'_>, _: &Call, steps: &Steps) -> Result<Out, Error> {
    let whole = evaluator.whole;
    let value = seconds(whole.end_ms.saturating_sub(whole.start_ms));
    Ok(Out::Scalar(vec![value; steps.count]))
}

/// Step of the query, 0 if it has none.
pub(crate) fn step(evaluator: &mut Evaluator<'_>, _: &Call, steps: &Steps) -> Result<Out, Error> {
    let value = seconds(evaluator.whole.step_ms);
    Ok(Out::Scalar(vec![value; steps.count]))
}

fn seconds(at_ms: i64) -> f64 {
    at_ms as f64 / 1000.0
}

pub(crate) fn vector(
    evaluator: &mut Evaluator<'_>,
    call: &Call,
    steps: &Steps,
) -> Result<Out, Error> {
    let values = evaluator.scalar(&call.args[0], steps)?;
    Ok(Out::Vector(vec![Evaluator::unlabelled(values)]))
}

/// Value of the only element, or NaN.
pub(crate) fn scalar(
    evaluator: &mut Evaluator<'_>,
    call: &Call,
    steps: &Steps,
) -> Result<Out, Error> {
    let rows = evaluator.vector(&call.args[0], steps)?;
    let value = |step: usize| {
        let mut present = rows.iter().map(|row| row.values[step]);
        let mut present = present.by_ref().filter(|value| !is_absent(*value));
        match (present.next(), present.next()) {
            (Some(value), None) => value,
            _ => f64::NAN,
        }
    };
    Ok(Out::Scalar((0..steps.count).map(value).collect()))
}

/// Time of each element: of its sample if the argument is a selector, else of the step.
pub(crate) fn timestamp(
    evaluator: &mut Evaluator<'_>,
    call: &Call,
    steps: &Steps,
) -> Result<Out, Error> {
    let mut rows = match &call.args[0] {
        Node::Vector(selector) => {
            evaluator.latest(selector, steps, |sample| seconds(sample.at_ms))?
        }
        other => {
            let mut rows = evaluator.vector(other, steps)?;
            for row in &mut rows {
                row.map(|step, _| Some(seconds(steps.time(step))));
            }
            rows
        }
    };
    for row in &mut rows {
        row.labels = without_name(&row.labels);
    }
    merged(rows, Merge::Disjoint).map(Out::Vector)
}

pub(crate) fn absent(
    evaluator: &mut Evaluator<'_>,
    call: &Call,
    steps: &Steps,
) -> Result<Out, Error> {
    let rows = evaluator.vector(&call.args[0], steps)?;
    Ok(missing(&rows, &call.args[0], steps))
}

pub(crate) fn absent_over_time(
    evaluator: &mut Evaluator<'_>,
    call: &Call,
    steps: &Steps,
) -> Result<Out, Error> {
    // With their names, as equal labels are no error here.
    let rows = evaluator.over_windows(call, steps, true, |_| Ok(Some(1.0)))?;
    Ok(missing(&rows, &call.args[0], steps))
}

/// Returns 1 at each step at which no row has a value, with the labels that the selector `node` fixes.
fn missing(rows: &[Row], node: &Node, steps: &Steps) -> Out {
    let mut values = vec![1.0; steps.count];
    for row in rows {
        for (value, other) in values.iter_mut().zip(&row.values) {
            if !is_absent(*other) {
                *value = ABSENT;
            }
        }
    }
    let labels = match node {
        Node::Vector(selector) | Node::Matrix(selector, _) => selector.absent.clone(),
        _ => Labels::default(),
    };
    let labels = Arc::new(labels);
    let row = Row { labels, values };
    Out::Vector(if row.is_empty() { vec![] } else { vec![row] })
}
