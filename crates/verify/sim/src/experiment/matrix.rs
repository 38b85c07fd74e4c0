//! The `[matrix]` table.

use super::layer;
use crate::scenario::{Mode, Push, Reaction, ScenarioError};
use crate::summary::Kind;
use serde::{Deserialize, Serialize};
use toml::de::DeTable;
use toml::{Spanned, Table, Value};

/// The `[matrix]` table: each list replaces a key, and every combination with every point is one point.
///
/// The keys below have their columns in results. Any other key of a farm is one as well, under its full name, such as
/// `processing.sigma` or `farm.capacity_bytes`; the label of a point names the values of these.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Matrix {
    /// Values of `flps`.
    pub flps: Vec<u32>,
    /// Values of `epns`.
    pub epns: Vec<u32>,
    /// Values of `rate_hz`.
    pub rate_hz: Vec<f64>,
    /// Values of `load`.
    pub load: Vec<f64>,
    /// Values of `size.bytes`.
    pub bytes: Vec<u64>,
    /// Values of `policy`.
    pub policy: Vec<String>,
    /// Values of `reaction`.
    pub reaction: Vec<Reaction>,
    /// Values of `mode`.
    pub mode: Vec<Mode>,
    /// Values of `push`.
    pub push: Vec<Push>,
    /// Values of `registry.suspect_ms`: how long a silent node goes unnoticed.
    pub suspect_ms: Vec<u64>,
    /// Values of `duration_s`.
    pub duration_s: Vec<f64>,
    /// Values of `topology`.
    pub topology: Vec<String>,
    /// Values of `source`.
    pub source: Vec<Kind>,
    /// Values of `writing.mix`.
    pub mix: Vec<String>,
    /// Values of `writing.drift`.
    pub drift: Vec<f64>,
    /// Values of `writing.workers`.
    pub workers: Vec<u32>,
    /// Values of `writing.assignment`.
    pub assignment: Vec<String>,
    /// Values of `serving.plane`.
    pub plane: Vec<String>,
    /// Values of `serving.clients`.
    pub clients: Vec<u32>,
    /// Lists of values of other keys, in the tables of a farm.
    #[serde(skip)]
    pub others: Table,
}

/// Key of a farm that a list of values replaces.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axis {
    /// Names of the tables around the key, and its own.
    path: Vec<String>,
    values: Vec<Value>,
    /// Whether the label of a point names the value, since nothing else in its row does.
    is_in_label: bool,
}

impl Axis {
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }
}

/// Keys of the matrix, the one that changes most seldom from point to point first.
const ORDER: [&str; 19] = [
    "source",
    "topology",
    "mode",
    "flps",
    "epns",
    "rate_hz",
    "load",
    "bytes",
    "policy",
    "reaction",
    "push",
    "suspect_ms",
    "duration_s",
    "mix",
    "drift",
    "workers",
    "assignment",
    "clients",
    "plane",
];

impl Matrix {
    /// Takes the lists of the table.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::Toml`] for a list of values of another type, with its line.
    pub(super) fn of(table: Spanned<DeTable<'_>>) -> Result<Self, ScenarioError> {
        let (span, table) = (table.span(), table.into_inner());
        let (mut known, mut others) = (DeTable::new(), DeTable::new());
        for (key, value) in table {
            let is_known = ORDER.contains(&key.as_ref().as_ref());
            let of = if is_known { &mut known } else { &mut others };
            of.insert(key, value);
        }
        let read = |table| toml::Deserializer::from(Spanned::new(span.clone(), table));
        Ok(Self {
            others: Table::deserialize(read(others))?,
            ..Self::deserialize(read(known))?
        })
    }

    /// Returns the keys that have values, and these; those that only labels name come first.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::Value`] for a key of the table that has no list.
    pub(super) fn axes(&self) -> Result<Vec<Axis>, ScenarioError> {
        let mut lists = Table::try_from(self).expect("lists of numbers and names have a TOML form");
        let known = ORDER.into_iter().filter_map(|key| match lists.remove(key) {
            Some(Value::Array(values)) if !values.is_empty() => Some(Axis {
                path: vec![key.to_owned()],
                values,
                is_in_label: false,
            }),
            _ => None,
        });
        let known: Vec<Axis> = known.collect();
        let mut axes = Vec::new();
        gather(&self.others, &[], &mut axes)?;
        axes.extend(known);
        Ok(axes)
    }
}

/// Adds the lists of `table`, which lies within the tables of `path`.
fn gather(table: &Table, path: &[String], axes: &mut Vec<Axis>) -> Result<(), ScenarioError> {
    for (key, value) in table {
        let path: Vec<String> = path.iter().chain([key]).cloned().collect();
        match value {
            Value::Table(inner) => gather(inner, &path, axes)?,
            Value::Array(values) if !values.is_empty() => axes.push(Axis {
                path,
                values: values.clone(),
                is_in_label: true,
            }),
            other => {
                let key = format!("matrix.{}", path.join("."));
                let expected = "a list of values of a key of farms";
                return Err(ScenarioError::value(&key, other, expected));
            }
        }
    }
    Ok(())
}

/// Returns every table with every value of the axis.
pub(super) fn vary(tables: &[Table], axis: &Axis) -> Vec<Table> {
    let vary_one = |table: &Table| {
        let table = table.clone();
        axis.values.iter().map(move |value| {
            let mut varied = table.clone();
            match axis.path.as_slice() {
                [key] => layer::set(&mut varied, key, value.clone()),
                path => layer::put_on(&mut varied, nested(path, value)),
            }
            if axis.is_in_label {
                let before = varied.get("label").and_then(Value::as_str);
                let named = format!("{} {value}", axis.path.join("."));
                let label = before.map_or(named.clone(), |label| format!("{label}, {named}"));
                varied.insert("label".to_owned(), label.into());
            }
            varied
        })
    };
    tables.iter().flat_map(vary_one).collect()
}

/// Returns the value within the tables of `path`.
fn nested(path: &[String], value: &Value) -> Table {
    let (key, within) = path.split_last().expect("a key has a name");
    let innermost = Table::from_iter([(key.clone(), value.clone())]);
    within.iter().rev().fold(innermost, |inner, table| {
        Table::from_iter([(table.clone(), inner.into())])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_list_has_its_place_in_the_order() {
        let lists = Table::try_from(Matrix::default()).expect("empty lists");
        let mut keys: Vec<&str> = lists.keys().map(String::as_str).collect();
        let mut order = ORDER;
        keys.sort_unstable();
        order.sort_unstable();
        assert_eq!(keys, order);
    }
    fn parsed(text: &str) -> Matrix {
        Matrix::of(DeTable::parse(text).expect("TOML")).expect("lists of the right type")
    }

    #[test]
    fn any_key_is_an_axis_and_labels_name_its_values() {
        let text = "policy = ['random']\nprocessing.sigma = [0.3, 1.0]\nhold_bytes = [7]";
        let matrix = parsed(text);
        let axes = matrix.axes().expect("only lists");
        let start = vec![toml::from_str("label = 'small'\nprocessing.ms = 2.0").expect("TOML")];
        let tables = axes.iter().fold(start, |tables, axis| vary(&tables, axis));
        let labels: Vec<&str> = tables
            .iter()
            .filter_map(|table| table["label"].as_str())
            .collect();
        assert_eq!(
            labels,
            [
                "small, hold_bytes 7, processing.sigma 0.3",
                "small, hold_bytes 7, processing.sigma 1.0"
            ]
        );
        let processing = &tables[1]["processing"];
        assert_eq!(processing["sigma"].as_float(), Some(1.0));
        assert_eq!(
            processing["ms"].as_float(),
            Some(2.0),
            "its neighbours stay"
        );
    }

    #[test]
    fn a_key_without_a_list_is_refused_by_name() {
        let matrix = parsed("processing.sigma = 0.3");
        let error = matrix.axes().expect_err("no list").to_string();
        assert!(error.contains("matrix.processing.sigma"), "{error}");
    }
}
