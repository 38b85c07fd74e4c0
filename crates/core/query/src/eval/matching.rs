//! Operators between two vectors: which elements meet, and what labels their result has.

use crate::error::Error;
use crate::eval::Evaluator;
use crate::eval::arithmetic::{Computed, compute};
use crate::plan::{Binary, Cardinality, Matching, Operator, Steps};
use crate::rows::{ABSENT, Merge, Row, Table, is_absent, merged, present};
use sheaf_samples::{Labels, NAME};
use std::sync::Arc;

pub(crate) fn eval(
    evaluator: &mut Evaluator<'_>,
    binary: &Binary,
    left: Vec<Row>,
    right: Vec<Row>,
    steps: &Steps,
) -> Result<Vec<Row>, Error> {
    evaluator
        .budget
        .visit((left.len() as u64 + right.len() as u64) * steps.count as u64)?;
    let mut keys = Keys::default();
    let left_keys = keys.of(&left, &binary.matching);
    let right_keys = keys.of(&right, &binary.matching);
    let keys = keys.0;
    if binary.operator.is_set() {
        return set(
            binary.operator,
            left,
            &left_keys,
            right,
            &right_keys,
            keys.len(),
            steps,
        );
    }
    let many_is_left = binary.matching.cardinality != Cardinality::OneToMany;
    let sides = if many_is_left {
        Sides {
            many: (left, left_keys),
            one: (right, right_keys),
        }
    } else {
        Sides {
            many: (right, right_keys),
            one: (left, left_keys),
        }
    };
    let mut pairs = Pairs {
        binary,
        sides: &sides,
        keys: &keys,
        many_is_left,
        steps,
        rows: Table::default(),
    };
    for step in 0..steps.count {
        pairs.step(evaluator, step)?;
    }
    let rows = pairs.rows.into_iter().map(|(_, row)| row).collect();
    merged(rows, Merge::Disjoint)
}

/// Labels by which elements meet, numbered.
#[derive(Default)]
struct Keys(Table<Labels, ()>);

impl Keys {
    fn of(&mut self, rows: &[Row], matching: &Matching) -> Vec<usize> {
        let key = |row: &Row| {
            let entry = self.0.entry(match_labels(&row.labels, matching));
            let index = entry.index();
            entry.or_default();
            index
        };
        rows.iter().map(key).collect()
    }
}

fn match_labels(labels: &Labels, matching: &Matching) -> Labels {
    let is_named = |name: &str| matching.names.iter().any(|one| one == name);
    if matching.is_on {
        labels.filter(is_named)
    } else {
        labels.filter(|name| name != NAME && !is_named(name))
    }
}

fn set(
    operator: Operator,
    mut left: Vec<Row>,
    left_keys: &[usize],
    mut right: Vec<Row>,
    right_keys: &[usize],
    keys: usize,
    steps: &Steps,
) -> Result<Vec<Row>, Error> {
    // Steps at which the other side has an element of the key; keys of one side alone have no list.
    let seen = |rows: &[Row], row_keys: &[usize]| {
        let mut seen: Vec<Vec<bool>> = vec![Vec::new(); keys];
        for (row, key) in rows.iter().zip(row_keys) {
            let seen = &mut seen[*key];
            seen.resize(steps.count, false);
            for (seen, value) in seen.iter_mut().zip(&row.values) {
                *seen |= !is_absent(*value);
            }
        }
        seen
    };
    let keep = |rows: &mut Vec<Row>, row_keys: &[usize], seen: &[Vec<bool>], wanted: bool| {
        for (row, key) in rows.iter_mut().zip(row_keys) {
            let seen = &seen[*key];
            row.map(|step, value| {
                let is_seen = seen.get(step).copied().unwrap_or(false);
                (is_seen == wanted).then_some(value)
            });
        }
    };
    match operator {
        Operator::And => keep(&mut left, left_keys, &seen(&right, right_keys), true),
        Operator::Unless => keep(&mut left, left_keys, &seen(&right, right_keys), false),
        _ => {
            keep(&mut right, right_keys, &seen(&left, left_keys), false);
            left.append(&mut right);
        }
    }
    merged(left, Merge::Disjoint)
}

/// Rows with their keys; the "one" side has one element of a key at a step.
struct Sides {
    many: (Vec<Row>, Vec<usize>),
    one: (Vec<Row>, Vec<usize>),
}

struct Pairs<'a> {
    binary: &'a Binary,
    sides: &'a Sides,
    keys: &'a Table<Labels, ()>,
    many_is_left: bool,
    steps: &'a Steps,
    /// Results by rows of both sides, `None` where a fill value stands for it.
    rows: Table<(Option<usize>, Option<usize>, usize), Row>,
}

impl Pairs<'_> {
    fn step(&mut self, evaluator: &mut Evaluator<'_>, step: usize) -> Result<(), Error> {
        let (many, many_keys) = &self.sides.many;
        let (one, one_keys) = &self.sides.one;
        let at = |rows: &[Row]| rows.iter().any(|row| !is_absent(row.values[step]));
        let matching = &self.binary.matching;
        let (fill_many, fill_one) = if self.many_is_left {
            (matching.fill_left, matching.fill_right)
        } else {
            (matching.fill_right, matching.fill_left)
        };
        let is_filled = fill_many.is_some() || fill_one.is_some();
        if !is_filled && (!at(many) || !at(one)) {
            return Ok(());
        }
        let mut ones: Vec<Option<usize>> = vec![None; self.keys.len()];
        for (index, row) in one.iter().enumerate() {
            if is_absent(row.values[step]) {
                continue;
            }
            let key = one_keys[index];
            if let Some(other) = ones[key].replace(index) {
                return Err(self.duplicate(key, row, &one[other]));
            }
        }
        let mut met: Vec<bool> = vec![false; self.keys.len()];
        let mut results: Table<(usize, Labels), ()> = Table::default();
        for (index, row) in many.iter().enumerate() {
            if is_absent(row.values[step]) {
                continue;
            }
            let key = many_keys[index];
            let value = match ones[key] {
                Some(other) => one[other].values[step],
                None => match fill_one {
                    Some(value) => value,
                    None => continue,
                },
            };
            let Some(value) = self.value(row.values[step], value) else {
                // Prometheus counts a match when it is made, and that is after the comparison.
                if ones[key].is_some() && fill_many.is_some() {
                    met[key] = true;
                }
                continue;
            };
            if matching.cardinality == Cardinality::OneToOne && met[key] {
                return Err(Error::Execution(
                    "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)".to_owned(),
                ));
            }
            met[key] = true;
            let place = (Some(index), ones[key], key);
            self.push(evaluator, place, step, value)?;
            if matching.cardinality != Cardinality::OneToOne {
                let labels = &self.rows[&place].labels;
                if results.insert((key, (**labels).clone()), ()).is_some() {
                    return Err(Error::Execution(
                        "multiple matches for labels: grouping labels must ensure unique matches"
                            .to_owned(),
                    ));
                }
            }
        }
        if let Some(fill) = fill_many {
            for (key, index) in ones.iter().enumerate() {
                if let (Some(index), false) = (index, met[key])
                    && let Some(value) = self.value(fill, one[*index].values[step])
                {
                    self.push(evaluator, (None, Some(*index), key), step, value)?;
                }
            }
        }
        Ok(())
    }

    fn value(&self, many: f64, one: f64) -> Option<f64> {
        let (left, right) = if self.many_is_left {
            (many, one)
        } else {
            (one, many)
        };
        match compute(self.binary.operator, left, right) {
            Computed::Number(value) => Some(value),
            Computed::Compared(holds) if self.binary.is_bool => Some(f64::from(u8::from(holds))),
            Computed::Compared(holds) => holds.then_some(left),
        }
    }

    fn push(
        &mut self,
        evaluator: &mut Evaluator<'_>,
        place: (Option<usize>, Option<usize>, usize),
        step: usize,
        value: f64,
    ) -> Result<(), Error> {
        if !self.rows.contains_key(&place) {
            evaluator.budget.load(self.steps.count as u64)?;
            let (key, ()) = self.keys.get_index(place.2).expect("a number of a key");
            let of = |rows: &[Row], index: Option<usize>| match index {
                Some(index) => Arc::clone(&rows[index].labels),
                None => Arc::new(key.clone()),
            };
            let labels = self.labels(
                &of(&self.sides.many.0, place.0),
                &of(&self.sides.one.0, place.1),
            )?;
            let values = vec![ABSENT; self.steps.count];
            self.rows.insert(place, Row { labels, values });
        }
        self.rows[&place].values[step] = present(value);
        Ok(())
    }

    /// Returns the labels of a result: those of the "many" side, and those that the "one" side gives.
    fn labels(&self, many: &Labels, one: &Labels) -> Result<Arc<Labels>, Error> {
        let matching = &self.binary.matching;
        let drops_name = self.binary.operator.drops_name(false);
        let is_single = matching.cardinality == Cardinality::OneToOne;
        let is_named = |name: &str| matching.names.iter().any(|other| other == name);
        let mut labels = many.filter(|name| {
            (!drops_name || name != NAME) && (!is_single || is_named(name) == matching.is_on)
        });
        for name in &matching.include {
            let value = one.get(name).unwrap_or_default();
            labels = labels
                .with(name, value)
                .map_err(|error| Error::Execution(error.to_string()))?;
        }
        if self.binary.is_bool && labels.name().is_some() {
            labels = labels.filter(|name| name != NAME);
        }
        Ok(Arc::new(labels))
    }

    fn duplicate(&self, key: usize, row: &Row, other: &Row) -> Error {
        let side = if self.many_is_left { "right" } else { "left" };
        let labels = self.keys.get_index(key).map(|(labels, ())| labels);
        let labels = labels.cloned().unwrap_or_default();
        Error::Execution(format!(
            "found duplicate series for the match group {labels} on the {side} hand-side of the operation: [{}, {}];many-to-many matching not allowed: matching labels must be unique on one side",
            row.labels, other.labels
        ))
    }
}
