//! Configuration of the processing, as it stands in a file.

use crate::table::Table;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The table of a configuration file that describes a pipeline.
///
/// Operators work in their order, each on what the one before it passed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProcessingConfig {
    /// Names of all places that samples can go to, in the order of the bits of
    /// [`Destinations`](crate::Destinations): levels of the store, the live view, alarms, forwarders.
    pub destinations: Vec<String>,
    /// Bounds of each pipeline.
    pub limits: Limits,
    /// Tables of `enrich`, by name.
    pub tables: BTreeMap<String, Table>,
    /// Operators: `kind` and the keys of that kind.
    pub operator: Vec<Map<String, Value>>,
}

impl Default for ProcessingConfig {
    fn default() -> Self {
        let names = ["raw", "10s", "1min", "1h", "live", "alarms"];
        Self {
            destinations: names.map(str::to_owned).to_vec(),
            limits: Limits::default(),
            tables: BTreeMap::new(),
            operator: Vec::new(),
        }
    }
}

/// Bounds of one pipeline. What is over one of them is refused, counted and named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Registered input series.
    pub series_max: usize,
    /// Output series.
    pub outputs_max: usize,
    /// Groups of all windows and series of all correlations.
    pub groups_max: usize,
    /// Partial aggregates in memory: for each group, those intervals of the step that are not closed.
    pub open_windows_max: usize,
    /// Buckets of one sketch of a quantile; with more its relative error doubles.
    pub sketch_bins_max: usize,
    /// Rows of one table.
    pub table_rows_max: usize,
    /// How long a merger waits for the watermark of a shard beyond `late_ms`, in ms.
    pub shard_wait_ms: i64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            series_max: 1_000_000,
            outputs_max: 2_000_000,
            groups_max: 500_000,
            open_windows_max: 2_000_000,
            sketch_bins_max: 512,
            table_rows_max: 100_000,
            shard_wait_ms: 5_000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_and_written() {
        let text = r#"
            destinations = ["raw", "vm"]
            [limits]
            series_max = 10
            [tables.hosts]
            columns = ["host", "rack"]
            rows = [["flp1", "A3"]]
            [[operator]]
            kind = "on_change"
            deadband = 0.5
        "#;
        let config: ProcessingConfig = toml::from_str(text).unwrap();
        assert_eq!(config.limits.series_max, 10);
        assert_eq!(config.limits.outputs_max, 2_000_000);
        assert_eq!(config.operator[0]["deadband"], 0.5);
        let written = toml::to_string(&config).unwrap();
        assert_eq!(
            toml::from_str::<ProcessingConfig>(&written).unwrap(),
            config
        );
        let error = toml::from_str::<ProcessingConfig>("[limits]\nserie_max = 1").unwrap_err();
        assert!(error.to_string().contains("serie_max"), "{error}");
    }
}
