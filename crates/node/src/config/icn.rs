//! The `[icn]` table.

use serde::{Deserialize, Serialize};
use sheaf_balance::SchedulerConfig;
use sheaf_membership::LivenessConfig;

/// The `[icn]` table of a farm file.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct IcnConfig {
    /// Where the ICN listens and where all nodes find it.
    pub address: String,
    /// Where it serves metrics; without it, nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<String>,
    /// How TFs are placed.
    pub scheduler: SchedulerConfig,
    /// How long silence may last.
    pub liveness: LivenessConfig,
}

impl Default for IcnConfig {
    fn default() -> Self {
        Self {
            address: "127.0.0.1:7000".to_owned(),
            metrics: None,
            scheduler: SchedulerConfig::default(),
            liveness: LivenessConfig::default(),
        }
    }
}
