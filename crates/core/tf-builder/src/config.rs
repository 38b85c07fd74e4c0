//! Configuration of the builder.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The `[epn.build]` table of a farm file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct BuildConfig {
    /// Bytes for TFs in building and with the consumer. The EPN takes this much memory at its start.
    pub capacity_bytes: u64,
    /// TFs in building at once.
    pub tfs_in_building_max: u32,
    /// How long a TF waits for its missing STFs, in ms since its latest assignment, before the EPN reports it without
    /// them.
    pub stf_timeout_ms: u64,
    /// STFs fetched at once from FLPs that offer them (`flp.push = "granted"`).
    pub grants_max: u32,
    /// How long a requested STF keeps the place of another one, in ms.
    pub grant_ms: u64,
    /// How long an answer of the ICN is awaited before a report is repeated, in ms.
    pub repeat_ms: u64,
}

impl Default for BuildConfig {
    fn default() -> Self {
        Self {
            capacity_bytes: 256 << 20,
            tfs_in_building_max: 256,
            stf_timeout_ms: 2000,
            grants_max: 4,
            grant_ms: 200,
            repeat_ms: 100,
        }
    }
}

impl BuildConfig {
    pub(crate) fn stf_timeout(&self) -> Duration {
        Duration::from_millis(self.stf_timeout_ms)
    }

    pub(crate) fn grant(&self) -> Duration {
        Duration::from_millis(self.grant_ms)
    }

    pub(crate) fn repeat(&self) -> Duration {
        Duration::from_millis(self.repeat_ms)
    }
}
