//! An experiment: a question as a file, the points of its matrix, runs of them, and what they found.
//!
//! [`Experiment`] is the file, [`Trial`] one point with everything that a run needs to know. All is checked before
//! anything is made: an error names the key and what it accepts. Each run leaves a file in the result folder
//! ([`store`]), so that an interrupted experiment goes on where it was.

pub mod card;
pub mod legacy;
mod likeness;
pub(crate) mod live;
#[cfg(feature = "parquet")]
mod parquet;
pub mod result;
pub mod run;
mod simulated;
pub mod store;
pub mod summary;
mod trial;
pub mod venue;

use serde::{Deserialize, Serialize};
use sheaf_sim::scenario::{Fault, Mode, Push, Reaction, Scenario, ScenarioError};
use sheaf_sim::summary::Kind;
use sheaf_testbed::hosts::Inventory;
use sheaf_testbed::input::{self, InputError};
use sheaf_testbed::net::TopologyError;
use std::path::Path;
use thiserror::Error;
pub use trial::Trial;

/// Points that one file may ask for.
const TRIALS_MAX: usize = 2_000;
/// Length of a run with `--quick`, in s.
pub const QUICK_S: f64 = 5.0;

/// Why an experiment cannot be run. Nothing has been made of it.
#[derive(Debug, Error)]
pub enum ExperimentError {
    /// The file cannot be used.
    #[error(transparent)]
    Input(#[from] InputError),
    /// A point cannot be simulated.
    #[error("{experiment}: point {point}: {error}")]
    Scenario {
        /// The experiment.
        experiment: String,
        /// The point.
        point: String,
        /// Reason of the refusal.
        error: Box<ScenarioError>,
    },
    /// Topology cannot be made.
    #[error(transparent)]
    Topology(#[from] TopologyError),
}

/// Keys that differ from point to point. A missing key is taken from `[base]`, then from the defaults.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct PointSpec {
    /// Label for what the other keys do not name.
    pub label: Option<String>,
    /// Sources.
    pub flps: Option<u32>,
    /// Builders.
    pub epns: Option<u32>,
    /// TFs in a second.
    pub rate_hz: Option<f64>,
    /// Payload bytes of a mean STF of one FLP.
    pub bytes: Option<u64>,
    /// Policy that chooses the EPN.
    pub policy: Option<String>,
    /// Reaction to failing EPNs.
    pub reaction: Option<Reaction>,
    /// Sheaf's rules, or those of the prior systems.
    pub mode: Option<Mode>,
    /// How STFs come to their EPN.
    pub push: Option<Push>,
    /// Silence that makes a node suspect, in ms.
    pub suspect_ms: Option<u64>,
    /// Processing time of simulated consumers, in ms a TF; live ones take none.
    pub processing_ms: Option<f64>,
    /// How long a run generates, in s.
    pub duration_s: Option<f64>,
    /// The topology; a simulated point without one has the network of `[scenario]`.
    pub topology: Option<String>,
    /// Whether it is measured or computed.
    pub source: Option<Kind>,
    /// Published loss in percent of TFs; of the prior systems, whatever the mode of this point.
    pub published_loss_percent: Option<f64>,
    /// Timed faults, in place of the list of the file.
    pub fault: Option<Vec<Fault>>,
}

/// The `[matrix]` table: each list replaces a key, and every combination with every point is one trial.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Matrix {
    /// Values of `flps`.
    pub flps: Vec<u32>,
    /// Values of `epns`.
    pub epns: Vec<u32>,
    /// Values of `rate_hz`.
    pub rate_hz: Vec<f64>,
    /// Values of `bytes`.
    pub bytes: Vec<u64>,
    /// Values of `policy`.
    pub policy: Vec<String>,
    /// Values of `reaction`.
    pub reaction: Vec<Reaction>,
    /// Values of `mode`.
    pub mode: Vec<Mode>,
    /// Values of `push`.
    pub push: Vec<Push>,
    /// Values of `suspect_ms`.
    pub suspect_ms: Vec<u64>,
    /// Values of `duration_s`.
    pub duration_s: Vec<f64>,
    /// Values of `topology`.
    pub topology: Vec<String>,
    /// Values of `source`.
    pub source: Vec<Kind>,
}

/// The `[live]` table: configuration of nodes in namespaces.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct LiveSettings {
    /// TFs in EPNs at once, as a time of the offered rate, in ms: their memory follows. Beyond it TFs wait at the FLPs.
    pub in_flight_ms: u64,
    /// The same for one EPN at least, in TFs.
    pub in_flight_tfs_min: u64,
    /// How long an EPN has for a TF, in ms.
    pub tf_deadline_ms: u64,
    /// How far the time of the generation may be off, in percent: a run that is further off is rejected.
    pub window_percent: f64,
    /// How often a rejected run is made again.
    pub retries: u32,
    /// Whether heartbeats of legacy runs are paced by FairMQ's rate limiter with its dead band of 1/64.
    pub legacy_dead_band: bool,
    /// Whether the counting builder of legacy runs looks at the order of messages: experiment-2 did, experiment-1 sent
    /// no number of the heartbeat with the data, and took any.
    pub legacy_order: bool,
}

impl Default for LiveSettings {
    fn default() -> Self {
        Self {
            in_flight_ms: 150,
            in_flight_tfs_min: 2,
            tf_deadline_ms: 1000,
            window_percent: 1.0,
            retries: 2,
            legacy_dead_band: false,
            legacy_order: true,
        }
    }
}

impl LiveSettings {
    /// Memory of each EPN of a farm of this `scenario`, in bytes.
    pub(crate) fn capacity_bytes(&self, scenario: &Scenario) -> u64 {
        let offered = trial::offered_mbit_s(scenario) * 1e6 / 8.0;
        let in_flight = offered * self.in_flight_ms as f64 / 1000.0 / f64::from(scenario.epns);
        let tf_bytes_max = u64::from(scenario.flps).saturating_mul(live::stf_bytes_max(scenario));
        let least = self.in_flight_tfs_min.saturating_mul(tf_bytes_max);
        (in_flight as u64).max(least)
    }
}

/// The `[machine]` table: what simulated points on a topology take for the machine that live ones share, and that is no
/// matter of its cables. Defaults were measured, docs/explanation/simulator.md, "Calibration".
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Machine {
    /// From process to process on two nodes, bytes and words alike: waking, reading, thinking, writing; in µs.
    pub hop_us: u64,
    /// Payload rate that the processors of the machine carry for all nodes where links charge frames, in Mbit/s.
    pub frames_mbit_s: f64,
    /// The same where links charge segments in bulk.
    pub bulk_mbit_s: f64,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            hop_us: 90,
            frames_mbit_s: 1400.0,
            bulk_mbit_s: 9000.0,
        }
    }
}

impl Machine {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The `[chaos]` table: nodes that are killed all the time, and come again.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Chaos {
    /// From one kill to the next, in s.
    pub every_s: f64,
    /// How long a node stays away, in s.
    pub away_s: f64,
    /// Whether FLPs are killed, too; what they held is lost.
    #[serde(default)]
    pub flps: bool,
}

/// An experiment file.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Name of the experiment and of its folder.
    pub name: String,
    /// Question of the experiment, in a sentence.
    pub question: String,
    /// Where the published values come from.
    #[serde(default)]
    pub reference: String,
    /// Runs of each point.
    #[serde(default = "three")]
    pub iterations: u32,
    /// Everything random comes from it.
    #[serde(default = "one")]
    pub seed: u64,
    /// Keys shared by all points.
    #[serde(default)]
    pub base: PointSpec,
    /// Points; none is one point with nothing of its own.
    #[serde(default)]
    pub point: Vec<PointSpec>,
    /// Variants combined with every point, a few keys at a time; a label is appended to that of the point.
    #[serde(default)]
    pub variant: Vec<PointSpec>,
    /// Variants combined with every point and variant.
    #[serde(default)]
    pub matrix: Matrix,
    /// Settings of live runs.
    #[serde(default)]
    pub live: LiveSettings,
    /// The machine of simulated points on a topology.
    #[serde(default, skip_serializing_if = "Machine::is_default")]
    pub machine: Machine,
    /// Timed faults.
    #[serde(default)]
    pub fault: Vec<Fault>,
    /// Nodes that are killed all the time.
    #[serde(default)]
    pub chaos: Option<Chaos>,
    /// Keys of simulated points alone, and the rules of legacy ones (`legacy`), the bytes that FLPs
    /// hold (`hold_bytes`) and the sizes (`size`) of all. The keys of a scenario, docs/explanation/simulator.md; those
    /// of a point are replaced.
    #[serde(default)]
    pub scenario: Scenario,
    /// Where live points are run, in place of their topologies; the file does not say it.
    #[serde(skip)]
    pub hosts: Option<Inventory>,
}

fn three() -> u32 {
    3
}

fn one() -> u64 {
    1
}

impl Experiment {
    /// Reads and checks a file.
    ///
    /// # Errors
    ///
    /// All of [`ExperimentError`].
    pub fn read(path: &Path) -> Result<Self, ExperimentError> {
        Self::parse(&input::read(path)?, &path.display().to_string())
    }

    /// Reads and checks the text of a file; `file` is for messages.
    ///
    /// # Errors
    ///
    /// All of [`ExperimentError`] but those of reading.
    pub fn parse(text: &str, file: &str) -> Result<Self, ExperimentError> {
        Self::parse_for(text, file, None)
    }

    /// As [`parse`](Self::parse), for live points that are run on `hosts` and need no topology then.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse).
    pub fn parse_for(
        text: &str,
        file: &str,
        hosts: Option<Inventory>,
    ) -> Result<Self, ExperimentError> {
        let mut experiment: Self = input::parse(text, file)?;
        experiment.hosts = hosts;
        experiment.trials()?;
        Ok(experiment)
    }

    /// The same with one run of [`QUICK_S`] seconds a point.
    #[must_use]
    pub fn quick(mut self) -> Self {
        self.iterations = 1;
        self.last(QUICK_S)
    }

    /// The same with runs of `seconds` each. What happens later does not happen.
    #[must_use]
    pub fn last(mut self, seconds: f64) -> Self {
        let all = self
            .point
            .iter_mut()
            .chain(&mut self.variant)
            .chain([&mut self.base]);
        for spec in all {
            spec.duration_s = Some(seconds);
            if let Some(faults) = &mut spec.fault {
                faults.retain(|fault| fault.at_s < seconds);
            }
        }
        self.matrix.duration_s.clear();
        self.fault.retain(|fault| fault.at_s < seconds);
        self.scenario.faults.retain(|fault| fault.at_s < seconds);
        self
    }

    /// Every combination, checked, in the order of the file. Points that a shorter duration made equal stand once.
    ///
    /// # Errors
    ///
    /// An [`ExperimentError`] of the first that makes no sense.
    pub fn trials(&self) -> Result<Vec<Trial>, ExperimentError> {
        self.check()?;
        let none = [PointSpec::default()];
        let points = if self.point.is_empty() {
            &none[..]
        } else {
            &self.point
        };
        let variants = if self.variant.is_empty() {
            &none[..]
        } else {
            &self.variant
        };
        let of_point = |point| {
            variants
                .iter()
                .map(move |variant| self.spec(point, variant))
        };
        let mut specs: Vec<PointSpec> = points.iter().flat_map(of_point).collect();
        let matrix = &self.matrix;
        vary(&mut specs, &matrix.source, |s, v| s.source = Some(*v));
        vary(&mut specs, &matrix.topology, |s, v| {
            s.topology = Some(v.clone());
        });
        vary(&mut specs, &matrix.mode, |s, v| s.mode = Some(*v));
        vary(&mut specs, &matrix.flps, |s, v| s.flps = Some(*v));
        vary(&mut specs, &matrix.epns, |s, v| s.epns = Some(*v));
        vary(&mut specs, &matrix.rate_hz, |s, v| s.rate_hz = Some(*v));
        vary(&mut specs, &matrix.bytes, |s, v| s.bytes = Some(*v));
        vary(&mut specs, &matrix.policy, |s, v| {
            s.policy = Some(v.clone());
        });
        vary(&mut specs, &matrix.reaction, |s, v| s.reaction = Some(*v));
        vary(&mut specs, &matrix.push, |s, v| s.push = Some(*v));
        vary(&mut specs, &matrix.suspect_ms, |s, v| {
            s.suspect_ms = Some(*v);
        });
        vary(&mut specs, &matrix.duration_s, |s, v| {
            s.duration_s = Some(*v);
        });
        if specs.len() > TRIALS_MAX {
            let expected = format!("at most {TRIALS_MAX} points");
            return Err(self.value("matrix", specs.len(), expected));
        }
        let mut trials: Vec<Trial> = Vec::new();
        for spec in &specs {
            let trial = Trial::of(self, spec)?;
            if !trials.contains(&trial) {
                trials.push(trial);
            }
        }
        for (index, trial) in trials.iter_mut().enumerate() {
            trial.number(index + 1);
        }
        Ok(trials)
    }

    /// The simulated points, for the simulator's own command.
    ///
    /// # Errors
    ///
    /// As [`trials`](Self::trials).
    pub fn scenarios(&self) -> Result<Vec<Scenario>, ExperimentError> {
        let trials = self.trials()?.into_iter();
        let simulated = trials.filter(|trial| trial.source == Kind::Sim);
        Ok(simulated.map(|trial| trial.scenario).collect())
    }

    /// A point in a variant: what the variant says, else the point, else the base.
    fn spec(&self, point: &PointSpec, variant: &PointSpec) -> PointSpec {
        let labels = [&point.label, &variant.label].into_iter().flatten();
        let labels: Vec<&str> = labels.map(String::as_str).collect();
        PointSpec {
            label: (!labels.is_empty()).then(|| labels.join(" ")),
            ..over(&over(variant, point), &self.base)
        }
    }

    /// For messages: `key` is wrong.
    pub(crate) fn value(
        &self,
        key: &str,
        found: impl ToString,
        expected: impl ToString,
    ) -> ExperimentError {
        InputError::value(&self.name, key, found, expected).into()
    }

    fn check(&self) -> Result<(), ExperimentError> {
        let is_fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if self.name.is_empty() || self.name.len() > 64 || !self.name.chars().all(is_fine) {
            let expected = "lower-case letters, digits and `-`, at most 64 of them";
            return Err(self.value("name", format!("{:?}", self.name), expected));
        }
        if self.iterations == 0 {
            return Err(self.value("iterations", 0, "at least 1"));
        }
        let live = &self.live;
        if !(0.1..=100.0).contains(&live.window_percent) {
            return Err(self.value("live.window_percent", live.window_percent, "0.1 to 100"));
        }
        if live.in_flight_ms == 0 || live.in_flight_tfs_min == 0 {
            return Err(self.value("live.in_flight_ms, live.in_flight_tfs_min", 0, "at least 1"));
        }
        if let Some(chaos) = &self.chaos {
            let is_positive = chaos.every_s.is_finite() && chaos.every_s > 0.0;
            let is_back = chaos.away_s > 0.0 && chaos.away_s < chaos.every_s;
            if !is_positive || !is_back {
                let found = format!("every {} s, away {} s", chaos.every_s, chaos.away_s);
                let expected = "times above 0, away_s shorter than every_s";
                return Err(self.value("chaos", found, expected));
            }
        }
        for (key, length) in [
            ("fault", self.fault.len()),
            ("chaos", usize::from(self.chaos.is_some())),
        ] {
            if length > 0 && !self.scenario.faults.is_empty() {
                let found = format!("{key} and scenario.faults");
                return Err(self.value(key, found, "one list of faults: [[fault]] or [chaos]"));
            }
        }
        Ok(())
    }
}

/// `point`, and `base` where it says nothing.
fn over(point: &PointSpec, base: &PointSpec) -> PointSpec {
    let (point, base) = (point.clone(), base.clone());
    PointSpec {
        label: point.label.or(base.label),
        flps: point.flps.or(base.flps),
        epns: point.epns.or(base.epns),
        rate_hz: point.rate_hz.or(base.rate_hz),
        bytes: point.bytes.or(base.bytes),
        policy: point.policy.or(base.policy),
        reaction: point.reaction.or(base.reaction),
        mode: point.mode.or(base.mode),
        push: point.push.or(base.push),
        suspect_ms: point.suspect_ms.or(base.suspect_ms),
        processing_ms: point.processing_ms.or(base.processing_ms),
        duration_s: point.duration_s.or(base.duration_s),
        topology: point.topology.or(base.topology),
        source: point.source.or(base.source),
        published_loss_percent: point.published_loss_percent.or(base.published_loss_percent),
        fault: point.fault.or(base.fault),
    }
}

fn vary<V>(specs: &mut Vec<PointSpec>, values: &[V], set: impl Fn(&mut PointSpec, &V)) {
    // Far more than are allowed: the reader refuses the count.
    if values.is_empty() || specs.len() > 10 * TRIALS_MAX {
        return;
    }
    let one = |spec: &PointSpec| {
        let spec = spec.clone();
        let set = &set;
        values.iter().map(move |value| {
            let mut varied = spec.clone();
            set(&mut varied, value);
            varied
        })
    };
    *specs = specs.iter().flat_map(one).collect();
}

#[cfg(test)]
mod tests;
