//! Functions that order the elements of an instant query; in a range they change nothing.

use crate::error::Error;
use crate::eval::{Evaluator, Out};
use crate::plan::{Call, Steps};
use crate::rows::Row;
use std::cmp::Ordering;

pub(crate) fn sort(
    evaluator: &mut Evaluator<'_>,
    call: &Call,
    steps: &Steps,
) -> Result<Out, Error> {
    ordered(evaluator, call, steps, |left, right| {
        by_value(left, right, Ordering::is_lt)
    })
}

pub(crate) fn sort_desc(
    evaluator: &mut Evaluator<'_>,
    call: &Call,
    steps: &Steps,
) -> Result<Out, Error> {
    ordered(evaluator, call, steps, |left, right| {
        by_value(left, right, Ordering::is_gt)
    })
}

fn ordered(
    evaluator: &mut Evaluator<'_>,
    call: &Call,
    steps: &Steps,
    mut order: impl FnMut(&Row, &Row) -> Ordering,
) -> Result<Out, Error> {
    let mut rows = evaluator.vector(&call.args[0], steps)?;
    if steps.count == 1 {
        rows.sort_by(&mut order);
    }
    Ok(Out::Vector(rows))
}

/// Compares the values; NaN comes last in both directions.
fn by_value(left: &Row, right: &Row, is_first: fn(Ordering) -> bool) -> Ordering {
    let (left, right) = (left.values[0], right.values[0]);
    match left.partial_cmp(&right) {
        Some(Ordering::Equal) => Ordering::Equal,
        Some(order) if is_first(order) => Ordering::Less,
        Some(_) => Ordering::Greater,
        None => left.is_nan().cmp(&right.is_nan()),
    }
}

pub(crate) fn sort_by_label(
    evaluator: &mut Evaluator<'_>,
    call: &Call,
    steps: &Steps,
) -> Result<Out, Error> {
    let names = names(evaluator, call, steps)?;
    ordered(evaluator, call, steps, |left, right| {
        by_labels(left, right, &names)
    })
}

pub(crate) fn sort_by_label_desc(
    evaluator: &mut Evaluator<'_>,
    call: &Call,
    steps: &Steps,
) -> Result<Out, Error> {
    let names = names(evaluator, call, steps)?;
    ordered(evaluator, call, steps, |left, right| {
        by_labels(right, left, &names)
    })
}

fn names(evaluator: &mut Evaluator<'_>, call: &Call, steps: &Steps) -> Result<Vec<String>, Error> {
    let names = call.args.iter().skip(1);
    names.map(|name| evaluator.text(name, steps)).collect()
}

fn by_labels(left: &Row, right: &Row, names: &[String]) -> Ordering {
    let value = |row: &Row, name: &str| row.labels.get(name).unwrap_or_default().to_owned();
    let mut orders = names
        .iter()
        .map(|name| natural(&value(left, name), &value(right, name)));
    orders
        .find(|order| order.is_ne())
        .unwrap_or_else(|| left.labels.iter().cmp(right.labels.iter()))
}

/// Compares texts so that numbers in them count as numbers: `epn2` before `epn10`.
fn natural(left: &str, right: &str) -> Ordering {
    let (mut left, mut right) = (left, right);
    loop {
        let (one, other) = match (part(left), part(right)) {
            (Some(one), Some(other)) => (one, other),
            (one, other) => return one.is_some().cmp(&other.is_some()),
        };
        let is_digit = |text: &str| text.starts_with(|one: char| one.is_ascii_digit());
        let order = if is_digit(one) && is_digit(other) {
            let (short, long) = (one.trim_start_matches('0'), other.trim_start_matches('0'));
            let lengths = short.len().cmp(&long.len());
            lengths.then(short.cmp(long)).then(one.cmp(other))
        } else {
            one.cmp(other)
        };
        if order.is_ne() {
            return order;
        }
        (left, right) = (&left[one.len()..], &right[other.len()..]);
    }
}

/// Returns the digits, or all but digits, at the start of `text`.
fn part(text: &str) -> Option<&str> {
    let is_digit = text.chars().next()?.is_ascii_digit();
    let end = text.find(|one: char| one.is_ascii_digit() != is_digit);
    Some(&text[..end.unwrap_or(text.len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_labels_count_as_numbers() {
        let mut names = ["epn10", "epn2", "epn", "epn02", "a1b3", "a1b20", ""];
        names.sort_by(|left, right| natural(left, right));
        assert_eq!(
            names,
            ["", "a1b3", "a1b20", "epn", "epn02", "epn2", "epn10"]
        );
    }
}
