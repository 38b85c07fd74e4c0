//! An experiment: a question as a file, the points of its matrix, runs of them, and what they found.
//!
//! [`ExperimentFile`] has the keys of a file, [`Experiment`] its points, and [`Trial`] is one of them with everything
//! that a run needs to know. All is checked before anything is made: an error names the key and what it accepts. Each
//! run leaves a file in the result folder ([`store`]), so that an interrupted experiment goes on where it was.

pub mod card;
pub mod legacy;
mod likeness;
pub(crate) mod live;
#[cfg(feature = "parquet")]
mod parquet;
pub mod published;
pub mod result;
pub mod run;
mod servers;
mod side_by_side;
mod simulated;
pub mod store;
pub mod summary;
mod trial;
pub mod venue;
mod writers;

use live::Turn;
use result::RunResult;
use serde::Serialize;
use sheaf_sim::experiment::{Chaos, ExperimentFile, LiveSettings, Machine, POINTS_MAX};
use sheaf_sim::scenario::{Scenario, ScenarioError};
use sheaf_sim::summary::Kind;
use sheaf_testbed::hosts::Inventory;
use sheaf_testbed::input::{self, InputError};
use sheaf_testbed::net::TopologyError;
pub use simulated::SimulateError;
use std::path::Path;
use thiserror::Error;
pub use trial::Trial;
pub(crate) use trial::hz;

/// Points that a file may ask the lab for.
const TRIALS_MAX: usize = 2_000;
/// Runs of each point, if the file does not say it and a point is live. Simulated ones differ by their seed alone.
const LIVE_ITERATIONS: u32 = 3;
/// Length of a run with `--quick`, in s.
pub const QUICK_S: f64 = 5.0;
/// Most blocks of a run of writers with `--quick`: one in which no rate is known yet, and one that counts.
const QUICK_BLOCKS: f64 = 2.0;

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

/// An experiment: its points, and what all of them share. [`ExperimentFile`] has the keys of its file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Experiment {
    /// Name of the experiment and of its folder.
    pub name: String,
    /// Question of the experiment, in a sentence.
    pub question: String,
    /// Where the published values come from.
    pub reference: String,
    /// Runs of each point.
    pub iterations: u32,
    /// Everything random comes from it.
    pub seed: u64,
    /// Settings of live runs.
    pub live: LiveSettings,
    /// The machine of simulated points on a topology.
    #[serde(skip_serializing_if = "Machine::is_default")]
    pub machine: Machine,
    /// Nodes that are killed all the time.
    pub chaos: Option<Chaos>,
    /// Every combination of points, variants and the matrix, in the order of the file.
    pub points: Vec<Scenario>,
    /// Where live points are run, in place of their topologies; the file does not say it.
    #[serde(skip)]
    pub hosts: Option<Inventory>,
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

    /// Reads and checks the text of a file; `file` is for messages, and traces of sizes lie beside it.
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
        let parsed = parse_file(text, file)?;
        parsed.check_named().map_err(|error| wrong(error, file))?;
        let mut experiment = Self::of(&parsed, file, TRIALS_MAX, Kind::Live)?;
        experiment.hosts = hosts;
        experiment.check_name()?;
        experiment.trials()?;
        Ok(experiment)
    }

    /// As [`read`](Self::read), for the simulator's own command: points that name neither a source nor a topology are
    /// simulated. The file needs no name unless it is one of before the one schema.
    ///
    /// # Errors
    ///
    /// All of [`ExperimentError`].
    pub fn read_for_simulator(path: &Path) -> Result<Self, ExperimentError> {
        let file = path.display().to_string();
        let parsed = parse_file(&input::read(path)?, &file)?;
        if parsed.has_former_tables {
            parsed.check_named().map_err(|error| wrong(error, &file))?;
        }
        let experiment = Self::of(&parsed, &file, POINTS_MAX, Kind::Sim)?;
        experiment.trials()?;
        Ok(experiment)
    }

    /// Takes the points of `parsed`. `unsaid` is the source of a point that names neither it nor a topology.
    fn of(
        parsed: &ExperimentFile,
        file: &str,
        points_max: usize,
        unsaid: Kind,
    ) -> Result<Self, ExperimentError> {
        let folder = Path::new(file).parent().unwrap_or(Path::new(""));
        let points = parsed.points(folder, points_max);
        let mut points = points.map_err(|error| wrong(error, &parsed.name))?;
        for point in &mut points {
            let default = match point.topology {
                Some(_) => Kind::Live,
                None => unsaid,
            };
            point.source.get_or_insert(default);
            // Those of the experiment count: more runs of the same points are not another experiment.
            point.iterations = 1;
        }
        let is_live = |point: &Scenario| point.source == Some(Kind::Live);
        let iterations = match parsed.has_former_tables || points.iter().any(is_live) {
            true => LIVE_ITERATIONS,
            false => 1,
        };
        Ok(Self {
            name: parsed.name.clone(),
            question: parsed.question.clone(),
            reference: parsed.reference.clone(),
            iterations: parsed.iterations.unwrap_or(iterations),
            seed: parsed.seed,
            live: parsed.live.clone(),
            machine: parsed.machine,
            chaos: parsed.chaos.clone(),
            points,
            hosts: None,
        })
    }

    /// The same with one run of [`QUICK_S`] seconds a point, or of two blocks of writers if that is less.
    #[must_use]
    pub fn quick(mut self) -> Self {
        self.iterations = 1;
        let mut quick = self.last(QUICK_S);
        for point in &mut quick.points {
            if let Some(writing) = &point.writing {
                point.duration_s = point.duration_s.min(QUICK_BLOCKS * writing.block_s);
            }
        }
        quick
    }

    /// The same with runs of `seconds` each, of which the warm-up has the same share. What happens later does not
    /// happen.
    #[must_use]
    pub fn last(mut self, seconds: f64) -> Self {
        for point in &mut self.points {
            let share = seconds / point.duration_s;
            point.warm_up_s = point.warm_up_s.map(|warm_up_s| warm_up_s * share);
            point.duration_s = seconds;
            point.faults.retain(|fault| fault.at_s < seconds);
        }
        self
    }

    /// Every point, checked, in the order of the file. Points that a shorter duration made equal stand once.
    ///
    /// # Errors
    ///
    /// An [`ExperimentError`] of the first that makes no sense.
    pub fn trials(&self) -> Result<Vec<Trial>, ExperimentError> {
        self.check()?;
        let mut trials: Vec<Trial> = Vec::new();
        for point in &self.points {
            let trial = Trial::of(self, point)?;
            if !trials.contains(&trial) {
                trials.push(trial);
            }
        }
        for (index, trial) in trials.iter_mut().enumerate() {
            trial.number(index + 1);
        }
        Ok(trials)
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

    /// Checks the name, which is that of a folder of results.
    fn check_name(&self) -> Result<(), ExperimentError> {
        let is_fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if self.name.is_empty() || self.name.len() > 64 || !self.name.chars().all(is_fine) {
            let expected = "lower-case letters, digits and `-`, at most 64 of them";
            return Err(self.value("name", format!("{:?}", self.name), expected));
        }
        Ok(())
    }

    fn check(&self) -> Result<(), ExperimentError> {
        if self.iterations == 0 {
            return Err(self.value("iterations", 0, "at least 1"));
        }
        let live = &self.live;
        if !(0.1..=100.0).contains(&live.window_percent) {
            return Err(self.value("live.window_percent", live.window_percent, "0.1 to 100"));
        }
        for (key, percent) in [
            ("live.others_percent_max", live.others_percent_max),
            ("live.pressure_percent_max", live.pressure_percent_max),
        ] {
            if !(0.0..=100.0).contains(&percent) {
                return Err(self.value(key, percent, "0 to 100"));
            }
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
        Ok(())
    }
}

/// Simulates each of `trials` as often as a run of `experiment` does, and with its seeds; returns the runs of each.
///
/// # Errors
///
/// All of [`SimulateError`].
pub(crate) fn simulate(
    experiment: &Experiment,
    trials: &[&Trial],
) -> Result<Vec<Vec<RunResult>>, SimulateError> {
    let mut turns = Vec::new();
    for trial in trials {
        let iterations = 1..=experiment.iterations;
        turns.extend(iterations.map(|iteration| (*trial, Turn::of(experiment, iteration, 1))));
    }
    let mut runs = vec![Vec::new(); trials.len()];
    side_by_side::run(&turns, |trial, run| {
        let at = trials.iter().position(|one| one.id == trial.id);
        runs[at.expect("one of these trials")].push(run);
        Ok::<(), SimulateError>(())
    })?;
    for runs in &mut runs {
        runs.sort_by_key(|run| run.iteration);
    }
    Ok(runs)
}

fn parse_file(text: &str, file: &str) -> Result<ExperimentFile, ExperimentError> {
    ExperimentFile::parse(text).map_err(|error| wrong(error, file))
}

/// Says that `file`, or the experiment of that name, is wrong.
fn wrong(error: ScenarioError, file: &str) -> ExperimentError {
    let message = match error {
        ScenarioError::Read { path, error } => {
            return InputError::Read {
                path: path.into(),
                source: error,
            }
            .into();
        }
        ScenarioError::Value {
            key,
            found,
            expected,
        } => return InputError::value(file, key, found, expected).into(),
        ScenarioError::Toml(error) => error.to_string().trim().to_owned(),
        ScenarioError::Policy(error) => error.to_string(),
    };
    InputError::Parse {
        file: file.to_owned(),
        message,
    }
    .into()
}

/// Memory of each EPN of a live farm of this `scenario`, in bytes.
pub(crate) fn capacity_bytes(live: &LiveSettings, scenario: &Scenario) -> u64 {
    let offered = scenario.offered_mbit_s() * 1e6 / 8.0;
    let in_flight = offered * live.in_flight_ms as f64 / 1000.0 / f64::from(scenario.epns);
    let tf_bytes_max = u64::from(scenario.flps).saturating_mul(live::stf_bytes_max(scenario));
    let least = live.in_flight_tfs_min.saturating_mul(tf_bytes_max);
    (in_flight as u64).max(least)
}

#[cfg(test)]
mod tests;
