//! A scenario: one farm, its load, its network and its faults. The keys of a point of an experiment.
//!
//! Everything is checked before anything runs, and an error names the key and the accepted values. All keys with their
//! defaults are in `docs/explanation/simulator.md`; how points get theirs says [`experiment`](crate::experiment).

mod beam;
mod check;
pub(crate) mod lines;
mod network;
mod parts;
mod processing;
mod serving;
mod writing;

pub use beam::Beam;
pub use network::{Control, Network, Rack};
pub use parts::{
    AckLevel, Builder, FarmLimits, Fault, FaultKind, Group, Legacy, Mode, SizeModel, Sizes, Stalls,
};
pub use processing::{Distribution, Processing};
pub use writing::{BLOCK_S, Writing};

use crate::serving::Serving;
use crate::summary::Kind;
use serde::{Deserialize, Serialize};
use sheaf_membership::LivenessConfig;
pub use sheaf_placement::Reaction;
use sheaf_placement::{UnknownPolicy, policy};
pub use sheaf_stf_builder::flp::Push;
use thiserror::Error;

/// Name of the policy that knows how long each EPN will work on each TF; only a simulation has it.
pub const ORACLE: &str = "oracle";

/// One farm and what it is asked, live or simulated.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    /// Name in results.
    pub name: String,
    /// Question that it answers, in a sentence.
    pub question: String,
    /// Label for what the other keys do not name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// Whether it is measured or computed; the command decides if it is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Kind>,
    /// Network of a live point, and of a simulated one in place of `[network]`: a name that the lab knows, or a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<String>,
    /// Sources.
    pub flps: u32,
    /// Builders at the beginning.
    pub epns: u32,
    /// TFs in a second.
    pub rate_hz: f64,
    /// Work that comes ÷ the work that the consumers can do (ρ of queueing theory), in place of `rate_hz`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
    /// How long TFs are made, in s; then the farm drains.
    pub duration_s: f64,
    /// First part of a run whose TFs count in no wait, in s; 10 % of `duration_s` if it is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_up_s: Option<f64>,
    /// Runs of the point: with `seed`, `seed + 1` and so on.
    pub iterations: u32,
    /// Everything random comes from it.
    pub seed: u64,
    /// Policy that chooses the EPN: a name of `sheaf_placement::policy`; in a simulation also [`ORACLE`], and
    /// one of the [`systems`](crate::systems).
    pub policy: String,
    /// Reaction to EPNs that fail.
    pub reaction: Reaction,
    /// Sheaf's rules, or those of the prior systems.
    pub mode: Mode,
    /// Point at which EPNs acknowledge TFs.
    #[serde(skip_serializing_if = "AckLevel::is_default")]
    pub ack: AckLevel,
    /// Way of STFs to their EPN.
    pub push: Push,
    /// Sources that send to one EPN at a time, if [`push`](Self::push) is granted.
    pub granted_sources: u32,
    /// Bytes of STFs that an FLP keeps until their TF is decided.
    pub hold_bytes: u64,
    /// Loss in the literature for this point, in percent of TFs.
    pub published_loss_percent: Option<f64>,
    /// Runs that the published loss is the mean of; 1 if it is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published_runs: Option<u32>,
    /// Standard deviation of the TFs that they lost, if it was published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published_sd: Option<f64>,
    /// Note on the published loss, such as a printed value that was corrected, and why.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub published_note: String,
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
    /// Writers of files that are asked in place of a farm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writing: Option<Writing>,
    /// Servers behind one address that are asked in place of a farm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serving: Option<Serving>,
}

/// Subject of a scenario.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Subject<'a> {
    /// A farm.
    Farm,
    /// Writers of files.
    Writers(&'a Writing),
    /// Servers behind one address.
    Servers(&'a Serving),
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            name: "scenario".to_owned(),
            question: String::new(),
            label: String::new(),
            source: None,
            topology: None,
            flps: 2,
            epns: 4,
            rate_hz: 50.0,
            load: None,
            duration_s: 10.0,
            warm_up_s: None,
            iterations: 1,
            seed: 1,
            policy: policy::DEFAULT.to_owned(),
            reaction: Reaction::default(),
            mode: Mode::default(),
            ack: AckLevel::default(),
            push: Push::default(),
            granted_sources: 4,
            hold_bytes: 512 << 20,
            published_loss_percent: None,
            published_runs: None,
            published_sd: None,
            published_note: String::new(),
            size: Sizes::default(),
            legacy: Legacy::default(),
            network: Network::default(),
            processing: Processing::default(),
            groups: Vec::new(),
            groups_repeat: false,
            farm: FarmLimits::default(),
            registry: LivenessConfig::default(),
            faults: Vec::new(),
            writing: None,
            serving: None,
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
    #[error("not an experiment: {0}")]
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
    /// Returns what is asked.
    #[must_use]
    pub fn subject(&self) -> Subject<'_> {
        match (&self.writing, &self.serving) {
            (_, Some(serving)) => Subject::Servers(serving),
            (Some(writing), None) => Subject::Writers(writing),
            (None, None) => Subject::Farm,
        }
    }

    /// Returns the name of the rules in results: `"sheaf"`, or the legacy rules joined by `+`.
    #[must_use]
    pub fn mode_name(&self) -> String {
        match self.mode {
            Mode::Sheaf => "sheaf".to_owned(),
            Mode::Legacy => self.legacy.name(),
        }
    }

    /// Returns the first part of a run whose TFs count in no wait, in s.
    #[must_use]
    pub fn warm_up_s(&self) -> f64 {
        self.warm_up_s.unwrap_or(self.duration_s / 10.0)
    }

    /// Returns the group of an EPN, if there is one.
    #[must_use]
    pub fn group_of(&self, epn: u32) -> Option<Group> {
        let mut first = 0;
        let grouped: u32 = self.groups.iter().map(|group| group.epns).sum();
        let epn = match self.groups_repeat {
            true => epn.checked_rem(grouped)?,
            false => epn,
        };
        self.groups.iter().copied().find(|group| {
            let is_in = (first..first + group.epns).contains(&epn);
            first += group.epns;
            is_in
        })
    }

    /// Returns the bytes of a mean TF.
    #[must_use]
    pub fn tf_bytes(&self) -> f64 {
        self.size.bytes as f64 * f64::from(self.flps)
    }

    /// Returns the bits that the sources make in a second, in Mbit/s.
    #[must_use]
    pub fn offered_mbit_s(&self) -> f64 {
        self.tf_bytes() * 8.0 * self.rate_hz / 1e6
    }

    /// Returns the number of TFs of mean size that the consumers of all EPNs can do in a second; `None` if they take no
    /// time.
    fn consumer_rate_hz(&self) -> Option<f64> {
        let speed = |epn: u32| self.group_of(epn).map_or(1.0, |group| group.speed);
        let speeds: f64 = (0..self.epns).map(speed).sum();
        let rate = speeds * f64::from(self.processing.parallel) * 1000.0 / self.processing.ms;
        (rate > 0.0 && rate.is_finite()).then_some(rate)
    }

    /// Returns the work that comes ÷ the work that the consumers can do; `None` if they take no time.
    #[must_use]
    pub fn offered_load(&self) -> Option<f64> {
        self.consumer_rate_hz().map(|rate| self.rate_hz / rate)
    }

    /// Sets the rate of TFs to that of the [`load`](Self::load), if one is asked.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::Value`] if consumers take no time, so that there is no load.
    pub(crate) fn apply_load(&mut self) -> Result<(), ScenarioError> {
        let Some(load) = self.load else {
            return Ok(());
        };
        let Some(rate) = self.consumer_rate_hz() else {
            let expected = "a processing.ms above 0 beside it";
            return Err(ScenarioError::value("load", load, expected));
        };
        self.rate_hz = load * rate;
        Ok(())
    }

    /// Returns the number of TFs that are made in all.
    #[must_use]
    pub fn timeframes(&self) -> u64 {
        (self.rate_hz * self.duration_s).round() as u64
    }
}
