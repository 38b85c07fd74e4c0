//! Operators between numbers, and between vectors and numbers.

use crate::error::Error;
use crate::eval::arithmetic::{Computed, compute};
use crate::eval::{Evaluator, Out, matching, wrong_kind};
use crate::plan::{Binary, Steps};
use crate::rows::{Merge, Row, merged, without_name};

pub(crate) fn eval(
    evaluator: &mut Evaluator<'_>,
    binary: &Binary,
    steps: &Steps,
) -> Result<Out, Error> {
    let left = evaluator.eval(&binary.left, steps)?;
    let right = evaluator.eval(&binary.right, steps)?;
    let operator = binary.operator;
    match (left, right) {
        (Out::Scalar(mut left), Out::Scalar(right)) => {
            for (left, right) in left.iter_mut().zip(right) {
                *left = match compute(operator, *left, right) {
                    Computed::Number(value) => value,
                    Computed::Compared(holds) => f64::from(u8::from(holds)),
                };
            }
            Ok(Out::Scalar(left))
        }
        (Out::Vector(rows), Out::Scalar(scalars)) => {
            with_scalar(rows, binary, |step, value| (value, scalars[step])).map(Out::Vector)
        }
        (Out::Scalar(scalars), Out::Vector(rows)) => {
            with_scalar(rows, binary, |step, value| (scalars[step], value)).map(Out::Vector)
        }
        (Out::Vector(left), Out::Vector(right)) => {
            matching::eval(evaluator, binary, left, right, steps).map(Out::Vector)
        }
        _ => Err(wrong_kind()),
    }
}

fn with_scalar(
    mut rows: Vec<Row>,
    binary: &Binary,
    sides: impl Fn(usize, f64) -> (f64, f64),
) -> Result<Vec<Row>, Error> {
    let drops_name = binary.operator.drops_name(binary.is_bool);
    for row in &mut rows {
        if drops_name {
            row.labels = without_name(&row.labels);
        }
        row.map(|step, value| {
            let (left, right) = sides(step, value);
            match compute(binary.operator, left, right) {
                Computed::Number(value) => Some(value),
                Computed::Compared(holds) if binary.is_bool => Some(f64::from(u8::from(holds))),
                // The value of the vector stays, on whichever side it stands.
                Computed::Compared(holds) => holds.then_some(value),
            }
        });
    }
    merged(rows, Merge::Disjoint)
}
