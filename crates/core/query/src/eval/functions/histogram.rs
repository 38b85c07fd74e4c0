//! Quantiles of classic histograms: series of cumulative counts with the label `le`.

use crate::error::Error;
use crate::eval::functions::labels::{is_label, set};
use crate::eval::{Evaluator, Out};
use crate::number;
use crate::plan::{Call, Steps};
use crate::rows::{ABSENT, Merge, Row, Table, is_absent, merged, present, without_name};
use sheaf_samples::Labels;
use std::sync::Arc;

const BOUND: &str = "le";

/// One histogram: its labels without bound, and rows of counts by bound.
struct Histogram {
    labels: Arc<Labels>,
    rows: Vec<(f64, Vec<f64>)>,
}

pub(crate) fn quantile(
    evaluator: &mut Evaluator<'_>,
    call: &Call,
    steps: &Steps,
) -> Result<Out, Error> {
    let q = evaluator.scalar(&call.args[0], steps)?;
    let rows = evaluator.vector(&call.args[1], steps)?;
    let histograms = histograms(evaluator, rows);
    let out = histograms.iter().map(|one| Row {
        labels: without_name(&one.labels),
        values: values(one, &q),
    });
    let out = out.collect();
    warn_of_quantiles(evaluator, &q);
    merged(out, Merge::Disjoint).map(Out::Vector)
}

/// Several quantiles at once, told apart by a label.
pub(crate) fn quantiles(
    evaluator: &mut Evaluator<'_>,
    call: &Call,
    steps: &Steps,
) -> Result<Out, Error> {
    let rows = evaluator.vector(&call.args[0], steps)?;
    let name = evaluator.text(&call.args[1], steps)?;
    if !is_label(&name) {
        let text = format!("invalid label name in histogram_quantiles(): {name}");
        return Err(Error::Execution(text));
    }
    let quantiles = evaluator.scalars(call, steps)?;
    let histograms = histograms(evaluator, rows);
    let count = histograms.len() as u64 * quantiles.len() as u64 * steps.count as u64;
    evaluator.budget.load(count)?;
    let mut out = Vec::new();
    for histogram in &histograms {
        let labels = without_name(&histogram.labels);
        for q in &quantiles {
            // A quantile may differ from step to step, and its label with it: one row for each value.
            let mut distinct: Vec<f64> = Vec::new();
            for value in q {
                if !distinct.iter().any(|one| one.to_bits() == value.to_bits()) {
                    distinct.push(*value);
                }
            }
            let all = values(histogram, q);
            evaluator
                .budget
                .load((distinct.len() as u64 - 1) * steps.count as u64)?;
            for one in distinct {
                let mut row = Row {
                    labels: set(&labels, &name, &number::plain(one))?,
                    values: all.clone(),
                };
                row.map(|step, value| (q[step].to_bits() == one.to_bits()).then_some(value));
                out.push(row);
            }
        }
    }
    for q in &quantiles {
        warn_of_quantiles(evaluator, q);
    }
    merged(out, Merge::Disjoint).map(Out::Vector)
}

fn warn_of_quantiles(evaluator: &mut Evaluator<'_>, quantiles: &[f64]) {
    if let Some(q) = quantiles.iter().find(|q| !(0.0..=1.0).contains(*q)) {
        evaluator.warn(format!(
            "quantile value should be between 0 and 1, got {}",
            number::plain(*q)
        ));
    }
}

fn histograms(evaluator: &mut Evaluator<'_>, rows: Vec<Row>) -> Vec<Histogram> {
    let mut all: Table<Labels, Vec<(f64, Vec<f64>)>> = Table::default();
    for row in rows {
        let bound = row.labels.get(BOUND).unwrap_or_default();
        let Some(bound) = number::parse_bound(bound) else {
            let name = row.labels.name().unwrap_or_default();
            evaluator.warn(format!(
                "bucket label \"le\" is missing or has a malformed value of {bound:?} for metric {name:?}"
            ));
            continue;
        };
        let labels = row.labels.filter(|name| name != BOUND);
        all.entry(labels).or_default().push((bound, row.values));
    }
    let histogram = |(labels, mut rows): (Labels, Vec<(f64, Vec<f64>)>)| {
        rows.sort_by(|left, right| left.0.total_cmp(&right.0));
        Histogram {
            labels: Arc::new(labels),
            rows,
        }
    };
    all.into_iter().map(histogram).collect()
}

fn values(histogram: &Histogram, q: &[f64]) -> Vec<f64> {
    let mut buckets = Vec::with_capacity(histogram.rows.len());
    let at = |(step, q): (usize, &f64)| {
        buckets.clear();
        let rows = histogram.rows.iter();
        buckets.extend(
            rows.map(|(bound, values)| (*bound, values[step]))
                .filter(|(_, count)| !is_absent(*count)),
        );
        if buckets.is_empty() {
            ABSENT
        } else {
            present(of_buckets(*q, &mut buckets))
        }
    };
    q.iter().enumerate().map(at).collect()
}

/// Returns the quantile `q` of buckets `(bound, count)`, sorted by bound, at least one.
fn of_buckets(q: f64, buckets: &mut Vec<(f64, f64)>) -> f64 {
    if q.is_nan() {
        return f64::NAN;
    }
    if q < 0.0 {
        return f64::NEG_INFINITY;
    }
    if q > 1.0 {
        return f64::INFINITY;
    }
    if buckets.last().is_none_or(|last| last.0 != f64::INFINITY) {
        return f64::NAN;
    }
    // Bounds that differ in their text alone are one bucket.
    buckets.dedup_by(|next, kept| {
        let is_same = next.0 == kept.0;
        if is_same {
            kept.1 += next.1;
        }
        is_same
    });
    // Rounding of sums may leave counts that fall; a cumulative count cannot.
    let mut highest = buckets[0].1;
    for bucket in buckets.iter_mut() {
        if bucket.1 > highest {
            highest = bucket.1;
        } else if bucket.1 < highest {
            bucket.1 = highest;
        }
    }
    let [.., (before_last, _), (_, observations)] = buckets[..] else {
        return f64::NAN;
    };
    if observations == 0.0 {
        return f64::NAN;
    }
    let mut rank = q * observations;
    let place = first_with(buckets.len() - 1, |index| buckets[index].1 >= rank);
    if place == buckets.len() - 1 {
        return before_last;
    }
    let (end, mut count) = buckets[place];
    if place == 0 && end <= 0.0 {
        return end;
    }
    let mut begin = 0.0;
    if place > 0 {
        let before = buckets[place - 1];
        begin = before.0;
        count -= before.1;
        rank -= before.1;
    }
    begin + (end - begin) * (rank / count)
}

/// Returns the first index below `count` that `holds`, by bisection even if NaN breaks the order; else `count`.
fn first_with(count: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = usize::midpoint(low, high);
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(q: f64, buckets: &[(f64, f64)], expected: f64) {
        let found = of_buckets(q, &mut buckets.to_vec());
        assert!(
            found == expected || found.is_nan() && expected.is_nan(),
            "{q} of {buckets:?}: {found}, expected {expected}"
        );
    }

    #[test]
    fn quantiles_lie_in_their_bucket() {
        let buckets = [(1.0, 10.0), (2.0, 30.0), (f64::INFINITY, 40.0)];
        check(0.0, &buckets, 0.0);
        check(0.25, &buckets, 1.0);
        check(0.5, &buckets, 1.5);
        check(0.9, &buckets, 2.0);
        check(-0.1, &buckets, f64::NEG_INFINITY);
        check(1.1, &buckets, f64::INFINITY);
        check(f64::NAN, &buckets, f64::NAN);
    }

    #[test]
    fn odd_histograms_have_a_defined_result() {
        check(0.5, &[(1.0, 10.0)], f64::NAN);
        check(0.5, &[(f64::INFINITY, 10.0)], f64::NAN);
        check(0.5, &[(1.0, 0.0), (f64::INFINITY, 0.0)], f64::NAN);
        check(0.1, &[(-1.0, 5.0), (f64::INFINITY, 10.0)], -1.0);
        check(0.5, &[(1.0, 2.0), (1.0, 3.0), (f64::INFINITY, 10.0)], 1.0);
        check(1.0, &[(1.0, 8.0), (2.0, 7.0), (f64::INFINITY, 8.0)], 1.0);
    }
}
