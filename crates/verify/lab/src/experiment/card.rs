//! Card of a folder of results: the experiment that it belongs to.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Identity of an experiment and provenance of its results.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Card {
    /// Version of this file: 1.
    pub version: u32,
    /// Name of the experiment.
    pub experiment: String,
    /// CRC-32C of the experiment as it was read, its length of runs included.
    pub checksum: u32,
    /// Whether runs were cut short.
    pub is_quick: bool,
    /// Commit, command, host, kernel, processors, by name.
    pub provenance: BTreeMap<String, String>,
}
