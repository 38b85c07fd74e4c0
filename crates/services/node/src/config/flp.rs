//! The `[flp]` table.

use super::transport::TransportConfig;
use crate::source::SourceConfig;
use serde::{Deserialize, Serialize};
use sheaf_scheduler::{Mode, SchedulerConfig};
use sheaf_stf_builder::flp::{self, Pace, Push, WhenFull};

/// The `[flp]` table of a farm file.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct FlpConfig {
    /// Bytes of STFs kept until their TF is decided.
    pub hold_bytes: u64,
    /// STFs kept until their TF is decided.
    pub hold_stfs_max: u32,
    /// Behaviour when a TF is due while the hold is full.
    pub when_full: WhenFull,
    /// Whether STFs are pushed as soon as they are assigned, or large ones offered and fetched by the EPN.
    pub push: Push,
    /// With `push = "granted"`, STFs up to this size are pushed all the same, in bytes.
    pub eager_bytes: u64,
    /// TFs a second in data-driven mode; 0: as fast as the hold takes them. The ICN's clock rules in paced mode.
    pub rate_hz: f64,
    /// Largest STF that this FLP announces, in bytes. A larger one is skipped as `oversize`.
    pub stf_bytes_max: u64,
    /// Where it serves metrics; without it, nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<String>,
    /// Where STFs come from.
    pub source: SourceConfig,
}

impl Default for FlpConfig {
    fn default() -> Self {
        let brain = flp::FlpConfig::default();
        Self {
            hold_bytes: brain.hold_bytes,
            hold_stfs_max: brain.hold_stfs_max,
            when_full: brain.when_full,
            push: brain.push,
            eager_bytes: brain.eager_bytes,
            rate_hz: 100.0,
            stf_bytes_max: SchedulerConfig::default().stf_bytes_max,
            metrics: None,
            source: SourceConfig::default(),
        }
    }
}

impl FlpConfig {
    /// Memory for payloads: the hold, one STF that is being made, and what EPNs on the same machine may keep when the
    /// hold has released it. The payloads of a generator are slices of a pool of its own and take none.
    #[must_use]
    pub fn arena_bytes(&self, transport: &TransportConfig) -> u64 {
        let parts = if self.source.table().has_memory() {
            [self.stf_bytes_max, 0, 0]
        } else {
            [
                self.stf_bytes_max,
                self.hold_bytes,
                self.lent_bytes_max(transport),
            ]
        };
        parts.into_iter().fold(0, u64::saturating_add)
    }

    /// Bytes of it that are lent at once: a quarter of the hold, but 64 MiB if the hold has them.
    #[must_use]
    pub fn lent_bytes_max(&self, transport: &TransportConfig) -> u64 {
        match transport.shared_memory {
            true => (self.hold_bytes / 4).max(self.hold_bytes.min(64 << 20)),
            false => 0,
        }
    }

    /// Returns the configuration of the STF builder in a farm of `mode`.
    #[must_use]
    pub fn brain(&self, mode: Mode) -> flp::FlpConfig {
        let pace = if self.source.is_fed() {
            Pace::External
        } else if mode == Mode::Paced {
            Pace::Icn
        } else if self.rate_hz > 0.0 {
            Pace::RateHz(self.rate_hz)
        } else {
            Pace::Max
        };
        flp::FlpConfig {
            pace,
            when_full: self.when_full,
            hold_bytes: self.hold_bytes,
            hold_stfs_max: self.hold_stfs_max,
            push: self.push,
            eager_bytes: self.eager_bytes,
            ..flp::FlpConfig::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::StdinSource;
    use sheaf_stf_builder::GeneratorConfig;

    fn check(source: SourceConfig, rate_hz: f64, mode: Mode, expected: Pace) {
        let config = FlpConfig {
            source,
            rate_hz,
            ..FlpConfig::default()
        };
        assert_eq!(config.brain(mode).pace, expected);
    }

    #[test]
    fn a_producer_paces_before_the_icn_and_the_icn_before_the_rate() {
        let replay = SourceConfig::default;
        let stdin = || SourceConfig::Stdin(StdinSource {});
        check(replay(), 5.0, Mode::DataDriven, Pace::RateHz(5.0));
        check(replay(), 0.0, Mode::DataDriven, Pace::Max);
        check(replay(), 5.0, Mode::Paced, Pace::Icn);
        check(stdin(), 5.0, Mode::Paced, Pace::External);
        check(stdin(), 5.0, Mode::DataDriven, Pace::External);
    }

    #[test]
    fn only_payloads_that_are_written_take_memory_for_the_hold() {
        let mut config = FlpConfig::default();
        let (hold, largest) = (config.hold_bytes, config.stf_bytes_max);
        let transport = |shared_memory| TransportConfig {
            shared_memory,
            ..TransportConfig::default()
        };
        assert_eq!(config.arena_bytes(&transport(false)), hold + largest);
        let lent = hold / 4;
        assert_eq!(config.arena_bytes(&transport(true)), hold + largest + lent);
        config.hold_bytes = 5;
        assert_eq!(config.arena_bytes(&transport(true)), 5 + largest + 5);
        config.source = SourceConfig::Generator(GeneratorConfig::default());
        assert_eq!(config.arena_bytes(&transport(true)), largest);
    }

    #[test]
    fn the_defaults_are_those_of_the_brain() {
        let brain = FlpConfig::default().brain(Mode::DataDriven);
        assert_eq!(brain, flp::FlpConfig::default());
    }
}
