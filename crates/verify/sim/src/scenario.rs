//! A scenario: one farm, its load, its network and its faults, as one TOML file.
//!
//! [`Scenario`] is the description of one simulated run; [`ScenarioFile`] adds a `[matrix]` whose product gives
//! several. Everything is checked before anything runs, and an error names the key and the accepted values. All keys
//! with their defaults are in `docs/explanation/simulator.md`.

mod check;
mod file;
mod network;
mod parts;

pub use file::{Matrix, ScenarioFile};
pub use network::{Control, Network, Rack};
pub use parts::{
    Builder, Distribution, FarmLimits, Fault, FaultKind, Group, Legacy, Mode, Processing,
    SizeModel, Sizes, Stalls,
};

use serde::{Deserialize, Serialize};
use sheaf_membership::LivenessConfig;
pub use sheaf_placement::Reaction;
use sheaf_placement::UnknownPolicy;
pub use sheaf_stf_builder::flp::Push;
use thiserror::Error;

/// One simulated run.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    /// Name in results.
    pub name: String,
    /// Question that it answers, in a sentence.
    pub question: String,
    /// Sources.
    pub flps: u32,
    /// Builders at the beginning.
    pub epns: u32,
    /// TFs in a second.
    pub rate_hz: f64,
    /// How long TFs are made, in s; then the farm drains.
    pub duration_s: f64,
    /// Runs of each point: with `seed`, `seed + 1` and so on.
    pub iterations: u32,
    /// Everything random comes from it.
    pub seed: u64,
    /// Policy that chooses the EPN: a name of `sheaf_scheduler::policy`.
    pub policy: String,
    /// Reaction to EPNs that fail.
    pub reaction: Reaction,
    /// Sheaf's rules, or those of the prior systems.
    pub mode: Mode,
    /// Way of STFs to their EPN.
    pub push: Push,
    /// Sources that send to one EPN at a time, if [`push`](Self::push) is granted.
    pub granted_sources: u32,
    /// Bytes of STFs that an FLP keeps until their TF is decided.
    pub hold_bytes: u64,
    /// Loss in the literature for this point, in percent of TFs.
    pub published_loss_percent: Option<f64>,
    /// How large STFs are.
    pub size: Sizes,
    /// The prior systems' rules, in mode legacy.
    pub legacy: Legacy,
    /// Wires and switches.
    pub network: Network,
    /// Work of EPNs on a TF.
    pub processing: Processing,
    /// EPNs that differ from others, in the order of their ids; those behind the last group are ordinary.
    pub groups: Vec<Group>,
    /// The groups come again and again, up to the last EPN.
    pub groups_repeat: bool,
    /// Deadlines and bounds of the nodes.
    pub farm: FarmLimits,
    /// Liveness: delays until a silent or dead node is noticed.
    pub registry: LivenessConfig,
    /// Faults and their times.
    pub faults: Vec<Fault>,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            name: "scenario".to_owned(),
            question: String::new(),
            flps: 2,
            epns: 4,
            rate_hz: 50.0,
            duration_s: 10.0,
            iterations: 1,
            seed: 1,
            policy: "round-robin".to_owned(),
            reaction: Reaction::default(),
            mode: Mode::default(),
            push: Push::default(),
            granted_sources: 4,
            hold_bytes: 512 << 20,
            published_loss_percent: None,
            size: Sizes::default(),
            legacy: Legacy::default(),
            network: Network::default(),
            processing: Processing::default(),
            groups: Vec::new(),
            groups_repeat: false,
            farm: FarmLimits::default(),
            registry: LivenessConfig::default(),
            faults: Vec::new(),
        }
    }
}

/// Reason why a scenario cannot be run.
#[derive(Debug, Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("{path}: {error}")]
    Read {
        /// The file.
        path: String,
        /// Error of the system.
        error: std::io::Error,
    },
    /// Not TOML, an unknown key, or a value of the wrong type; the text has the line and what is accepted.
    #[error("not a scenario: {0}")]
    Toml(#[from] toml::de::Error),
    /// A value that makes no sense.
    #[error("{key}: found {found}, expected {expected}")]
    Value {
        /// The key, with the names of its tables.
        key: String,
        /// The value found.
        found: String,
        /// The accepted values.
        expected: String,
    },
    /// There is no such policy.
    #[error("policy: {0}")]
    Policy(#[from] UnknownPolicy),
}

impl ScenarioError {
    #[expect(
        clippy::needless_pass_by_value,
        reason = "callers give numbers and texts as they have them"
    )]
    pub(crate) fn value(key: &str, found: impl ToString, expected: &str) -> Self {
        Self::Value {
            key: key.to_owned(),
            found: found.to_string(),
            expected: expected.to_owned(),
        }
    }
}

impl Scenario {
    /// Returns the name of the rules in results: `"sheaf"`, or the legacy rules joined by `+`.
    #[must_use]
    pub fn mode_name(&self) -> String {
        match self.mode {
            Mode::Sheaf => "sheaf".to_owned(),
            Mode::Legacy => self.legacy.name(),
        }
    }

    /// Returns the number of TFs that are made in all.
    #[must_use]
    pub fn timeframes(&self) -> u64 {
        (self.rate_hz * self.duration_s).round() as u64
    }
}

#[cfg(test)]
mod tests;
