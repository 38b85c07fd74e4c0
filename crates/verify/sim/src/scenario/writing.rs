//! The `[writing]` table: a point that asks writers of files, in place of a farm.

use super::{Mode, Scenario, ScenarioError};
use crate::writers::{Choice, Fleet, FleetError, Input, Mix, Setup, Trace};
use serde::{Deserialize, Serialize};
use std::fmt::Display;

/// Length of a block for the brain of a writer, in s: that of ATLAS, which its windows of 5 s are made for.
pub const BLOCK_S: f64 = 60.0;
/// Most workers of an experiment.
const WORKERS_MAX: u32 = 64;

/// Streams, and the writers that they go to.
///
/// Live points run the shipped engine on this machine, with workers that are slower than ATLAS' by `scale` and blocks
/// of `block_s` in place of 60 s. Simulated ones have the rates and times of ATLAS. Results have ATLAS' scale.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Writing {
    /// Mix of streams, by name.
    pub mix: String,
    /// Spread of the shares from block to block: sigma of a lognormal factor, 0 for steady ones.
    pub drift: f64,
    /// File of recorded streams, in place of a mix: lines `SECONDS,STREAM,BYTES`, relative to the experiment.
    pub trace: String,
    /// The records of the trace; read with the file.
    #[serde(skip)]
    pub recorded: Trace,
    /// Workers of a writer.
    pub workers: u32,
    /// Assignment of files to workers, or `joint-N`: the first N streams share a worker, as in the slides of ATLAS.
    pub assignment: String,
    /// Rate of a worker in MB/s, at the scale of ATLAS: 615 fits the figures of the slides.
    pub worker_mb_s: f64,
    /// Factor by which emulated workers are slower: the token bucket of a live one has `worker_mb_s` ÷ this.
    pub scale: f64,
    /// Length of a block of a run, in s. Simulated runs have as many blocks, of 60 s.
    pub block_s: f64,
    /// Bytes of a record of a live run.
    pub record_bytes: u64,
    /// Writers. Above 1 the point is simulated, and its `epns` choose among them by `policy`.
    pub writers: u32,
    /// Offered rate ÷ bound of whole files, with several writers; one is offered as much as it takes.
    pub load: f64,
    /// Time from one report of the load of a writer to the next, in ms.
    pub report_ms: u64,
    /// TFs that the memory of an EPN holds until they are written.
    pub epn_tfs_max: u32,
}

impl Default for Writing {
    fn default() -> Self {
        let (setup, fleet) = (Setup::default(), Fleet::default());
        Self {
            mix: "sfo-2016".to_owned(),
            drift: 0.0,
            trace: String::new(),
            recorded: Trace::default(),
            workers: setup.workers,
            assignment: "open-rate".to_owned(),
            worker_mb_s: setup.worker_mb_s,
            scale: 10.0,
            block_s: 2.0,
            record_bytes: 20_000,
            writers: 1,
            load: fleet.load,
            report_ms: fleet.report_ms,
            epn_tfs_max: fleet.epn_tfs_max,
        }
    }
}

impl Writing {
    /// Returns what the writers are offered in a run of `duration_s`.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::Value`] for an unknown mix.
    pub fn input(&self, duration_s: f64) -> Result<Input, ScenarioError> {
        if !self.trace.is_empty() {
            return Ok(Input::Trace(self.recorded.clone()));
        }
        let mix = self.mix()?;
        let blocks = self.blocks(duration_s);
        Ok(Input::Mix { mix, blocks })
    }

    /// Takes the records of the trace from the text of its file.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::Value`] for a line that is no record.
    pub(crate) fn set_trace(&mut self, text: &str) -> Result<(), ScenarioError> {
        let recorded = Trace::parse(text);
        let file = &self.trace;
        self.recorded =
            recorded.map_err(|error| wrong("writing.trace", &format!("{file}: {error}")))?;
        Ok(())
    }

    /// Returns the mix.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::Value`] for an unknown one.
    pub fn mix(&self) -> Result<Mix, ScenarioError> {
        Mix::named(&self.mix, self.drift).map_err(|error| wrong("writing.mix", &error))
    }

    /// Returns the way in which files get their workers.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::Value`] for an unknown one.
    pub fn choice(&self) -> Result<Choice, ScenarioError> {
        Choice::named(&self.assignment).map_err(|error| wrong("writing.assignment", &error))
    }

    /// Returns the number of blocks in a run of `duration_s`, the last one perhaps cut.
    #[must_use]
    pub fn blocks(&self, duration_s: f64) -> u64 {
        ((duration_s / self.block_s).ceil() as u64).max(1)
    }

    /// Returns the conditions of a simulated writer.
    #[must_use]
    pub fn setup(&self, seed: u64) -> Setup {
        Setup {
            workers: self.workers,
            worker_mb_s: self.worker_mb_s,
            block_s: BLOCK_S,
            seed,
            ..Setup::default()
        }
    }

    /// Returns the fleet of a point with several writers, behind `epns` EPNs that choose by `policy`.
    #[must_use]
    pub fn fleet(&self, scenario: &Scenario, seed: u64) -> Fleet {
        Fleet {
            writers: self.writers,
            epns: scenario.epns,
            policy: scenario.policy.clone(),
            load: self.load,
            report_ms: self.report_ms,
            epn_tfs_max: self.epn_tfs_max,
            blocks: self.blocks(scenario.duration_s),
            of_writer: self.setup(seed),
        }
    }

    /// Returns the name of what is offered.
    #[must_use]
    pub fn input_name(&self) -> String {
        match (self.trace.as_str(), self.drift > 0.0) {
            ("", false) => self.mix.clone(),
            ("", true) => format!("{}, drift {}", self.mix, self.drift),
            (trace, _) => trace.to_owned(),
        }
    }

    /// Checks every value of a point with writers, also those that are not in this table.
    ///
    /// # Errors
    ///
    /// A [`ScenarioError`] that names the first wrong key and the accepted values.
    pub(super) fn check(&self, scenario: &Scenario) -> Result<(), ScenarioError> {
        let in_range = |key: &str, found: f64, least: f64, most: f64| {
            let is_in = (least..=most).contains(&found);
            let expected = format!("{least} to {most}");
            is_in
                .then_some(())
                .ok_or_else(|| ScenarioError::value(&format!("writing.{key}"), found, &expected))
        };
        self.choice()?;
        in_range("workers", self.workers.into(), 1.0, WORKERS_MAX.into())?;
        in_range("drift", self.drift, 0.0, 3.0)?;
        in_range("worker_mb_s", self.worker_mb_s, 1e-3, 1e6)?;
        in_range("scale", self.scale, 1.0, 1e6)?;
        in_range("block_s", self.block_s, 0.1, BLOCK_S)?;
        in_range("record_bytes", self.record_bytes as f64, 1.0, 1e6)?;
        let duration_s = scenario.duration_s;
        if !(duration_s.is_finite() && duration_s > 0.0 && duration_s <= 1e6) {
            return Err(ScenarioError::value(
                "duration_s",
                duration_s,
                "above 0, at most 1000000",
            ));
        }
        match self.trace.is_empty() {
            true => drop(self.mix()?),
            false if self.recorded.records.is_empty() => {
                let expected = "a file with at least one record";
                return Err(ScenarioError::value("writing.trace", &self.trace, expected));
            }
            false => {}
        }
        if scenario.mode != Mode::Sheaf {
            let expected = "sheaf in points with [writing]";
            return Err(ScenarioError::value("mode", "legacy", expected));
        }
        if !scenario.faults.is_empty() {
            let expected = "none in points with [writing]";
            return Err(ScenarioError::value(
                "faults",
                scenario.faults.len(),
                expected,
            ));
        }
        if let Some(topology) = &scenario.topology {
            let expected = "none in points with [writing]";
            return Err(ScenarioError::value("topology", topology, expected));
        }
        if self.writers != 1 {
            if !self.trace.is_empty() {
                let expected = "a mix for several writers";
                return Err(ScenarioError::value("writing.trace", &self.trace, expected));
            }
            if scenario.source != Some(crate::summary::Kind::Sim) {
                let expected = "\"sim\" for several writers";
                return Err(ScenarioError::value("source", "\"live\"", expected));
            }
            self.fleet(scenario, 1)
                .check()
                .map_err(|error| match error {
                    FleetError::Policy(error) => ScenarioError::Policy(error),
                    error => wrong("writing", &error),
                })?;
        }
        Ok(())
    }
}

/// Says that the value of `key` is wrong, as `error` has it: what was found, and what is accepted.
fn wrong(key: &str, error: &dyn Display) -> ScenarioError {
    let text = error.to_string();
    let (found, expected) = text.split_once(", expected ").unwrap_or((&text, "another"));
    let found = found.strip_prefix("found ").unwrap_or(found);
    ScenarioError::value(key, found, expected)
}
