//! The `[matrix]` table.

use super::layer;
use crate::scenario::{Mode, Push, Reaction, ScenarioError};
use crate::summary::Kind;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

/// The `[matrix]` table: each list replaces a key, and every combination with every point is one point.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Matrix {
    /// Values of `flps`.
    pub flps: Vec<u32>,
    /// Values of `epns`.
    pub epns: Vec<u32>,
    /// Values of `rate_hz`.
    pub rate_hz: Vec<f64>,
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
}

/// Keys of the matrix, the one that changes most seldom from point to point first.
const ORDER: [&str; 18] = [
    "source",
    "topology",
    "mode",
    "flps",
    "epns",
    "rate_hz",
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
    /// Returns the keys that have values, and these.
    pub(super) fn axes(&self) -> Result<Vec<(&'static str, Vec<Value>)>, ScenarioError> {
        let mut lists = Table::try_from(self).expect("lists of numbers and names have a TOML form");
        let axes = ORDER.into_iter().filter_map(|key| match lists.remove(key) {
            Some(Value::Array(values)) if !values.is_empty() => Some((key, values)),
            _ => None,
        });
        Ok(axes.collect())
    }
}

/// Returns every table with every value of `key`.
pub(super) fn vary(tables: &[Table], key: &str, values: &[Value]) -> Vec<Table> {
    let vary_one = |table: &Table| {
        let table = table.clone();
        values.iter().map(move |value| {
            let mut varied = table.clone();
            layer::set(&mut varied, key, value.clone());
            varied
        })
    };
    tables.iter().flat_map(vary_one).collect()
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
}
