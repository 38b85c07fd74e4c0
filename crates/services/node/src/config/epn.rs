//! The `[epn]` table.

use crate::digest::PayloadDigest;
use crate::sink::{Ack, SinkConfig};
use serde::{Deserialize, Serialize};
use sheaf_tf_builder::BuildConfig;

/// The `[epn]` table of a farm file.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct EpnConfig {
    /// Where the EPN listens for STFs, HOST:PORT or `unix:PATH`. Port 0: any free one. Here and in the next two `{epn}`
    /// stands for the index of the EPN.
    pub listen: String,
    /// Address announced to FLPs; by default the one where the EPN listens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advertise: Option<String>,
    /// Further addresses where it listens for STFs, of other network cards. FLPs are shared out over all, and take the
    /// next one where they reach no EPN.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listen_also: Vec<String>,
    /// Share of the work relative to other EPNs.
    pub weight: f64,
    /// TFs that may wait for the consumer. When one more is committed it waits in the EPN, its memory counted.
    pub queue_tfs: u32,
    /// When a TF counts as built: a reported TF can still be delivered after a failure of that kind.
    pub ack: Ack,
    /// Payloads whose digest is computed when they are received.
    pub digest: PayloadDigest,
    /// Where it serves metrics; without it, nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<String>,
    /// How TFs are put together.
    pub build: BuildConfig,
    /// Consumer of the TFs.
    pub sink: SinkConfig,
}

impl Default for EpnConfig {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:0".to_owned(),
            advertise: None,
            listen_also: Vec::new(),
            weight: 1.0,
            queue_tfs: 64,
            ack: Ack::Built,
            digest: PayloadDigest::default(),
            metrics: None,
            build: BuildConfig::default(),
            sink: SinkConfig::default(),
        }
    }
}

impl EpnConfig {
    /// Bytes of the arena: what is built, and a fourth of it for what is with the consumer or cannot be filled: small
    /// bodies share blocks, and one that is kept keeps its block.
    #[must_use]
    pub fn arena_bytes(&self) -> u64 {
        self.build.capacity_bytes.saturating_mul(5) / 4
    }

    /// The weight in thousandths, as it is sent to the ICN.
    #[must_use]
    pub fn weight_milli(&self) -> u32 {
        (self.weight * 1000.0).round().clamp(1.0, 1e9) as u32 // a cast of what was just clamped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_is_told_in_thousandths() {
        for (weight, milli) in [(1.0, 1000), (0.25, 250), (1e-9, 1), (2.0005, 2001)] {
            let config = EpnConfig {
                weight,
                ..EpnConfig::default()
            };
            assert_eq!(config.weight_milli(), milli);
        }
    }
}
