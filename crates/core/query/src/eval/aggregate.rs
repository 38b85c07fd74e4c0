//! Aggregations: many series to one in each group, or a choice of them.

use crate::error::Error;
use crate::eval::Evaluator;
use crate::eval::functions::{is_label, quantile};
use crate::number;
use crate::plan::{Aggregate, Aggregator, Grouping, Steps};
use crate::rows::{ABSENT, Merge, Row, Table, is_absent, merged, present};
use sheaf_samples::{Labels, NAME};
use std::sync::Arc;

/// Rows of one group, in the order of the vector.
struct Group {
    labels: Arc<Labels>,
    rows: Vec<usize>,
}

pub(crate) fn eval(
    evaluator: &mut Evaluator<'_>,
    aggregate: &Aggregate,
    steps: &Steps,
) -> Result<Vec<Row>, Error> {
    let aggregator = aggregate.aggregator;
    if aggregator == Aggregator::CountValues {
        return count_values(evaluator, aggregate, steps);
    }
    let param = match &aggregate.param {
        Some(param) => evaluator.scalar(param, steps)?,
        None => Vec::new(),
    };
    let rows = evaluator.vector(&aggregate.node, steps)?;
    evaluator
        .budget
        .visit(rows.len() as u64 * steps.count as u64)?;
    let groups = groups(&rows, &aggregate.grouping);
    match aggregator {
        Aggregator::Quantile => {
            if let Some(q) = param.iter().find(|q| !(0.0..=1.0).contains(*q)) {
                evaluator.warn(format!(
                    "quantile value should be between 0 and 1, got {}",
                    number::plain(*q)
                ));
            }
            Ok(by_step(&rows, groups, steps, |step, values| {
                quantile(param[step], values)
            }))
        }
        Aggregator::Topk | Aggregator::Bottomk => {
            let counts = counts(&param)?;
            let is_top = aggregator == Aggregator::Topk;
            Ok(choose(&rows, groups, steps, |step, members| {
                extremes(members, counts[step], is_top);
            }))
        }
        Aggregator::Limitk => {
            let counts = counts(&param)?;
            Ok(choose(&rows, groups, steps, |step, members| {
                members.truncate(counts[step]);
            }))
        }
        Aggregator::LimitRatio => {
            if param.iter().any(|ratio| ratio.is_nan()) {
                return Err(Error::Execution(
                    "Ratio value is NaN, expected -1 to 1".to_owned(),
                ));
            }
            let places: Vec<f64> = rows.iter().map(|row| place(&row.labels)).collect();
            Ok(choose(&rows, groups, steps, |step, members| {
                let ratio = param[step].clamp(-1.0, 1.0);
                members.retain(|(_, row)| {
                    if ratio >= 0.0 {
                        places[*row] < ratio
                    } else {
                        places[*row] >= 1.0 + ratio
                    }
                });
            }))
        }
        _ => Ok(fold(&rows, groups, steps, aggregator)),
    }
}

/// Returns the labels that `labels` have in the result.
fn group_labels(labels: &Labels, grouping: &Grouping) -> Labels {
    let is_named = |name: &str| grouping.names.iter().any(|one| one == name);
    if grouping.is_without {
        labels.filter(|name| name != NAME && !is_named(name))
    } else if grouping.names.is_empty() {
        Labels::default()
    } else {
        labels.filter(is_named)
    }
}

fn groups(rows: &[Row], grouping: &Grouping) -> Vec<Group> {
    let mut groups: Table<Labels, Vec<usize>> = Table::default();
    for (index, row) in rows.iter().enumerate() {
        let labels = group_labels(&row.labels, grouping);
        groups.entry(labels).or_default().push(index);
    }
    let group = |(labels, rows)| Group {
        labels: Arc::new(labels),
        rows,
    };
    groups.into_iter().map(group).collect()
}

/// State of a group at one step.
#[derive(Clone, Copy)]
struct State {
    count: f64,
    /// Sum, peak, or sum of squared distances from the mean.
    value: f64,
    mean: f64,
}

fn fold(rows: &[Row], groups: Vec<Group>, steps: &Steps, aggregator: Aggregator) -> Vec<Row> {
    let out = groups.into_iter().map(|group| {
        let empty = State {
            count: 0.0,
            value: 0.0,
            mean: 0.0,
        };
        let mut states = vec![empty; steps.count];
        for row in &group.rows {
            for (state, value) in states.iter_mut().zip(&rows[*row].values) {
                if !is_absent(*value) {
                    add(state, *value, aggregator);
                }
            }
        }
        let value = |state: State| {
            if state.count == 0.0 {
                return ABSENT;
            }
            present(match aggregator {
                Aggregator::Avg => state.mean,
                Aggregator::Count => state.count,
                Aggregator::Group => 1.0,
                Aggregator::Stdvar => state.value / state.count,
                Aggregator::Stddev => (state.value / state.count).sqrt(),
                _ => state.value,
            })
        };
        Row {
            labels: group.labels,
            values: states.into_iter().map(value).collect(),
        }
    });
    out.filter(|row| !row.is_empty()).collect()
}

fn add(state: &mut State, value: f64, aggregator: Aggregator) {
    state.count += 1.0;
    let is_first = state.count == 1.0;
    match aggregator {
        Aggregator::Sum if is_first => state.value = value,
        Aggregator::Sum => state.value += value,
        Aggregator::Avg if is_first => state.mean = value,
        Aggregator::Avg => {
            if state.mean.is_infinite() {
                let is_same = value.is_infinite() && (state.mean > 0.0) == (value > 0.0);
                // Infinities cannot be subtracted; one stays against all but its opposite and NaN.
                if is_same || value.is_finite() {
                    return;
                }
            }
            // Both are divided first, so that large values do not overflow.
            state.mean += value / state.count - state.mean / state.count;
        }
        Aggregator::Min if is_first || value < state.value || state.value.is_nan() => {
            state.value = value;
        }
        Aggregator::Max if is_first || value > state.value || state.value.is_nan() => {
            state.value = value;
        }
        Aggregator::Stddev | Aggregator::Stdvar if is_first => state.mean = value,
        Aggregator::Stddev | Aggregator::Stdvar => {
            let delta = value - state.mean;
            state.mean += delta / state.count;
            state.value += delta * (value - state.mean);
        }
        _ => {}
    }
}

fn by_step(
    rows: &[Row],
    groups: Vec<Group>,
    steps: &Steps,
    run: impl Fn(usize, &mut [f64]) -> f64,
) -> Vec<Row> {
    let mut members = Vec::new();
    let out = groups.into_iter().map(|group| {
        let mut at = |step: usize| {
            let values = group.rows.iter().map(|row| rows[*row].values[step]);
            members.clear();
            members.extend(values.filter(|value| !is_absent(*value)));
            if members.is_empty() {
                ABSENT
            } else {
                present(run(step, &mut members))
            }
        };
        let values = (0..steps.count).map(&mut at).collect();
        Row {
            labels: group.labels,
            values,
        }
    });
    out.filter(|row| !row.is_empty()).collect()
}

/// Keeps the members of each group that `run` leaves over, in its order if there is one step.
fn choose(
    rows: &[Row],
    groups: Vec<Group>,
    steps: &Steps,
    mut run: impl FnMut(usize, &mut Vec<(f64, usize)>),
) -> Vec<Row> {
    let mut out = Vec::new();
    for group in groups {
        let mut chosen: Table<usize, Vec<f64>> = Table::default();
        let mut members = Vec::new();
        for step in 0..steps.count {
            members.clear();
            members.extend(
                group
                    .rows
                    .iter()
                    .map(|row| (rows[*row].values[step], *row))
                    .filter(|(value, _)| !is_absent(*value)),
            );
            run(step, &mut members);
            for (value, row) in &members {
                let values = chosen.entry(*row);
                values.or_insert_with(|| vec![ABSENT; steps.count])[step] = *value;
            }
        }
        out.extend(chosen.into_iter().map(|(row, values)| Row {
            labels: Arc::clone(&rows[row].labels),
            values,
        }));
    }
    out
}

/// Returns the parameter of `topk` as counts; what is below 1 chooses nothing.
fn counts(param: &[f64]) -> Result<Vec<usize>, Error> {
    let count = |value: &f64| {
        // Prometheus refuses what an int64 does not hold, NaN among it.
        if !(i64::MIN as f64..=i64::MAX as f64).contains(value) {
            let text = format!("Scalar value {} overflows int64", number::plain(*value));
            return Err(Error::Execution(text));
        }
        Ok(value.max(0.0) as usize)
    };
    param.iter().map(count).collect()
}

/// Leaves the `count` largest or smallest members, best first. NaN is worse than every number.
///
/// A later member replaces the worst one if that is worse or NaN, so of equal numbers the earlier ones stay. Which NaNs
/// stay is up to the heap, and that is the heap of Prometheus.
fn extremes(members: &mut Vec<(f64, usize)>, count: usize, is_top: bool) {
    let is_worse =
        |left: f64, right: f64| left.is_nan() || if is_top { left < right } else { left > right };
    let mut heap: Vec<(f64, usize)> = Vec::with_capacity(count.min(members.len()));
    for member in members.drain(..) {
        if heap.len() < count {
            heap.push(member);
            rise(&mut heap, is_worse);
        } else if let Some(worst) = heap.first()
            && is_worse(worst.0, member.0)
        {
            let last = heap.len() - 1;
            heap.swap(0, last);
            sink(&mut heap[..last], is_worse);
            heap[last] = member;
            rise(&mut heap, is_worse);
        }
    }
    heap.sort_by(|left, right| {
        let order = match (left.0.is_nan(), right.0.is_nan()) {
            (false, false) if is_top => right.0.total_cmp(&left.0),
            (false, false) => left.0.total_cmp(&right.0),
            (left, right) => left.cmp(&right),
        };
        order.then(left.1.cmp(&right.1))
    });
    *members = heap;
}

/// Moves the last item of a heap whose first is the worst to its place.
fn rise(heap: &mut [(f64, usize)], is_worse: impl Fn(f64, f64) -> bool) {
    let mut child = heap.len() - 1;
    while child > 0 {
        let parent = (child - 1) / 2;
        if !is_worse(heap[child].0, heap[parent].0) {
            break;
        }
        heap.swap(child, parent);
        child = parent;
    }
}

/// Moves the first item of such a heap to its place.
fn sink(heap: &mut [(f64, usize)], is_worse: impl Fn(f64, f64) -> bool) {
    let mut parent = 0;
    loop {
        let mut child = 2 * parent + 1;
        if child >= heap.len() {
            break;
        }
        if child + 1 < heap.len() && is_worse(heap[child + 1].0, heap[child].0) {
            child += 1;
        }
        if !is_worse(heap[child].0, heap[parent].0) {
            break;
        }
        heap.swap(parent, child);
        parent = child;
    }
}

/// Returns a number from 0 to 1 that only `labels` determine (FNV-1a, its bits mixed once more).
fn place(labels: &Labels) -> f64 {
    let hash = labels
        .as_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
    let hash = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let hash = hash ^ (hash >> 29);
    // As many bits as a float holds.
    (hash >> 11) as f64 / (1_u64 << 53) as f64
}

fn count_values(
    evaluator: &mut Evaluator<'_>,
    aggregate: &Aggregate,
    steps: &Steps,
) -> Result<Vec<Row>, Error> {
    let name = match &aggregate.param {
        Some(param) => evaluator.text(param, steps)?,
        None => String::new(),
    };
    if !is_label(&name) {
        return Err(Error::Execution(format!("invalid label name {name:?}")));
    }
    let rows = evaluator.vector(&aggregate.node, steps)?;
    evaluator
        .budget
        .visit(rows.len() as u64 * steps.count as u64)?;
    let mut grouping = Grouping {
        names: aggregate.grouping.names.clone(),
        is_without: aggregate.grouping.is_without,
    };
    if !grouping.is_without {
        grouping.names.push(name.clone());
    }
    let mut out: Table<Labels, Vec<f64>> = Table::default();
    for row in &rows {
        // Values repeat, and a label takes longer than a look at the values of this row.
        let mut seen: Vec<(u64, usize)> = Vec::new();
        for (step, value) in row.values.iter().enumerate() {
            if is_absent(*value) {
                continue;
            }
            let bits = value.to_bits();
            let place = match seen.iter().rev().take(16).find(|one| one.0 == bits) {
                Some((_, place)) => *place,
                None => {
                    let labels = row
                        .labels
                        .with(&name, &number::plain(*value))
                        .map_err(|error| Error::Execution(error.to_string()))?;
                    let labels = group_labels(&labels, &grouping);
                    if !out.contains_key(&labels) {
                        evaluator.budget.load(steps.count as u64)?;
                    }
                    let entry = out.entry(labels);
                    let place = entry.index();
                    entry.or_insert_with(|| vec![ABSENT; steps.count]);
                    seen.push((bits, place));
                    place
                }
            };
            let count = &mut out[place][step];
            *count = if is_absent(*count) { 1.0 } else { *count + 1.0 };
        }
    }
    let rows = out.into_iter().map(|(labels, values)| Row {
        labels: Arc::new(labels),
        values,
    });
    merged(rows.collect(), Merge::Disjoint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best(values: &[f64], count: usize, is_top: bool) -> Vec<usize> {
        let mut members: Vec<(f64, usize)> = values.iter().copied().zip(0..).collect();
        extremes(&mut members, count, is_top);
        members.into_iter().map(|one| one.1).collect()
    }

    #[test]
    fn extremes_are_best_first_and_nan_last() {
        let values = [1.0, f64::NAN, 3.0, 2.0, 3.0];
        assert_eq!(best(&values, 3, true), [2, 4, 3]);
        assert_eq!(best(&values, 2, false), [0, 3]);
        assert_eq!(best(&[f64::NAN, f64::NAN, 1.0], 2, true), [2, 0]);
        assert!(best(&values, 0, true).is_empty());
        assert_eq!(best(&values, 9, true), [2, 4, 3, 0, 1]);
        assert_eq!(best(&values, 9, false), [0, 3, 2, 4, 1]);
    }

    #[test]
    fn counts_beyond_an_integer_are_refused() {
        assert_eq!(counts(&[2.9, -1.0, 0.5]), Ok(vec![2, 0, 0]));
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 9.3e18] {
            assert!(counts(&[value]).is_err(), "{value}");
        }
    }

    #[test]
    fn places_spread_over_their_range() {
        let mut places: Vec<f64> = (0..1000)
            .map(|epn| place(&Labels::new([("epn", epn.to_string())]).unwrap()))
            .collect();
        places.sort_by(f64::total_cmp);
        assert!(places[0] >= 0.0 && places[999] < 1.0);
        let half = places.partition_point(|one| *one < 0.5);
        assert!((400..600).contains(&half), "{half}");
    }
}
