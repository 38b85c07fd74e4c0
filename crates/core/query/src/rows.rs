//! Intermediate results: one row of values for each series.
//!
//! A row is dense: one value for each step, with the staleness marker where the series has none. No arithmetic gives
//! that marker, since it is a signalling NaN, and selectors drop it, so it cannot be mistaken for a value.

use crate::error::Error;
use indexmap::IndexMap;
use indexmap::map::Entry;
use rustc_hash::FxBuildHasher;
use sheaf_samples::{Labels, NAME, STALE, is_stale};
use std::sync::Arc;

/// A step without value.
pub(crate) const ABSENT: f64 = STALE;

pub(crate) fn is_absent(value: f64) -> bool {
    is_stale(value)
}

/// Returns `value` as an element of a row. A computed NaN is never the marker of absence, but one read may be.
pub(crate) fn present(value: f64) -> f64 {
    if is_absent(value) { f64::NAN } else { value }
}

/// Table whose order is that of insertion: the same from run to run.
pub(crate) type Table<K, V> = IndexMap<K, V, FxBuildHasher>;

#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) labels: Arc<Labels>,
    /// One for each step.
    pub(crate) values: Vec<f64>,
}

impl Row {
    pub(crate) fn is_empty(&self) -> bool {
        self.values.iter().all(|value| is_absent(*value))
    }

    /// Replaces each value by what `map` makes of it at its step.
    pub(crate) fn map(&mut self, mut map: impl FnMut(usize, f64) -> Option<f64>) {
        for (step, value) in self.values.iter_mut().enumerate() {
            if !is_absent(*value) {
                *value = map(step, *value).map_or(ABSENT, present);
            }
        }
    }
}

/// Returns `labels` without the name of the metric.
pub(crate) fn without_name(labels: &Arc<Labels>) -> Arc<Labels> {
    match labels.name() {
        None => Arc::clone(labels),
        Some(_) => Arc::new(labels.filter(|name| name != NAME)),
    }
}

/// Returns bytes that compare as labels do in Prometheus: by first name, its value, second name, and so on.
pub(crate) fn order(labels: &Labels) -> Vec<u8> {
    let mut key = Vec::with_capacity(labels.as_bytes().len());
    for (name, value) in labels.iter() {
        for text in [name, value] {
            key.extend_from_slice(text.as_bytes());
            key.push(0);
        }
    }
    key
}

/// When rows of equal labels are one series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Merge {
    /// If they have no step in common.
    Disjoint,
    /// Never.
    Never,
}

/// Returns the rows that have a value, each label set once.
///
/// # Errors
///
/// If rows of equal labels cannot be merged.
pub(crate) fn merged(rows: Vec<Row>, merge: Merge) -> Result<Vec<Row>, Error> {
    let mut places: Table<Arc<Labels>, usize> =
        Table::with_capacity_and_hasher(rows.len(), FxBuildHasher);
    let mut out: Vec<Row> = Vec::with_capacity(rows.len());
    for row in rows.into_iter().filter(|row| !row.is_empty()) {
        match places.entry(Arc::clone(&row.labels)) {
            Entry::Vacant(place) => {
                place.insert(out.len());
                out.push(row);
            }
            Entry::Occupied(place) => {
                if merge == Merge::Never {
                    return Err(Error::same_labels());
                }
                let first = &mut out[*place.get()];
                for (value, other) in first.values.iter_mut().zip(row.values) {
                    match (is_absent(*value), is_absent(other)) {
                        (_, true) => {}
                        (true, false) => *value = other,
                        (false, false) => return Err(Error::same_labels()),
                    }
                }
            }
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(job: &str, values: &[f64]) -> Row {
        Row {
            labels: Arc::new(Labels::new([("job", job)]).unwrap()),
            values: values.to_vec(),
        }
    }

    #[test]
    fn rows_of_equal_labels_merge_only_without_common_steps() {
        let rows = || {
            vec![
                row("a", &[1.0, ABSENT]),
                row("b", &[ABSENT; 2]),
                row("a", &[ABSENT, 2.0]),
            ]
        };
        let found = merged(rows(), Merge::Disjoint).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].values, [1.0, 2.0]);
        assert_eq!(
            merged(rows(), Merge::Never).unwrap_err(),
            Error::same_labels()
        );
        let both = vec![row("a", &[1.0]), row("a", &[1.0])];
        assert_eq!(
            merged(both, Merge::Disjoint).unwrap_err(),
            Error::same_labels()
        );
    }

    #[test]
    fn labels_are_ordered_by_names_and_values() {
        let of = |value: &str| Labels::new([("job", value), ("z", "1")]).unwrap();
        let mut labels = [of("b"), of("aa"), of("a"), Labels::default()];
        labels.sort_by_cached_key(order);
        assert_eq!(labels, [Labels::default(), of("a"), of("aa"), of("b")]);
    }

    #[test]
    fn arithmetic_never_makes_the_marker_of_absence() {
        for value in [
            ABSENT + 1.0,
            -ABSENT,
            ABSENT * 0.0,
            f64::NAN,
            f64::INFINITY - f64::INFINITY,
        ] {
            assert!(!is_absent(value));
        }
    }
}
