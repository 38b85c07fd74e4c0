//! All runs of an experiment, one after the other, into a folder that keeps what is done.

use super::ExperimentError;
use super::legacy::{self, LegacyError};
use super::live::{self, LiveError, Turn};
use super::result::{MachineRun, RunResult};
use super::servers::{self, ServersRunError};
use super::simulated::SimulateError;
use super::store::{ConcludeError, ReadError, Store, StoreError};
use super::venue::{Stage, StageError, Venue};
use super::writers::{self, WritersRunError};
use super::{Experiment, Trial, side_by_side};

use sheaf_sim::experiment::Machine;
use sheaf_sim::scenario::{Mode, Subject};
use sheaf_sim::summary::{Kind, Summary};
use sheaf_testbed::IoError;
use sheaf_testbed::clock::{self, Interrupted};
use sheaf_testbed::hosts::{Fleet, OpenError, PushError};
use sheaf_testbed::interference::Interference;
use sheaf_testbed::machine::Folder;
use sheaf_testbed::net;
use sheaf_testbed::tool::Missing;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time that a run takes beside its generation: start, drain, counting.
const OVERHEAD_S: f64 = 3.0;

/// How an experiment is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The experiment.
    pub experiment: Experiment,
    /// The text of its file.
    pub text: String,
    /// Whether runs were cut short.
    pub is_quick: bool,
    /// The folder of results.
    pub out: PathBuf,
    /// Only trials whose name or line holds one of these; none: all.
    pub only: Vec<String>,
    /// Commit that the program was built of.
    pub commit: String,
}

/// How far an experiment is.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Runs that are done, those of earlier times included.
    pub done: usize,
    /// All of them.
    pub total: usize,
    /// How long the rest will take.
    pub left: Duration,
    /// The trial that is next, or was just run.
    pub line: String,
    /// Result of the latest run; `None` before a run.
    pub result: Option<RunResult>,
}

/// Reasons why an experiment does not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The experiment makes no sense. Nothing has been made of it.
    #[error(transparent)]
    Experiment(Box<ExperimentError>),
    /// Live points need something that the machine lacks. Nothing has been made.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// A signal asked this process to end. The same call goes on.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// A folder, a run's file or a signal handler.
    #[error(transparent)]
    Io(#[from] IoError),
    /// Hosts are not connected.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Hosts are not ready.
    #[error(transparent)]
    Ready(#[from] PushError),
    /// The folder of results is not opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Runs of earlier times cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// No summary is made of the runs.
    #[error(transparent)]
    Conclude(#[from] ConcludeError),
    /// The venue of a point is not made.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// A point is not simulated.
    #[error(transparent)]
    Simulate(#[from] SimulateError),
    /// A live run is not made.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// A legacy run is not made.
    #[error(transparent)]
    Legacy(#[from] LegacyError),
    /// A run of writers is not made.
    #[error(transparent)]
    Writers(#[from] WritersRunError),
    /// A run of servers is not made.
    #[error(transparent)]
    Servers(#[from] ServersRunError),
}

impl From<ExperimentError> for RunError {
    fn from(error: ExperimentError) -> Self {
        Self::Experiment(Box::new(error))
    }
}

/// The trials of `options`.
///
/// # Errors
///
/// [`RunError::Experiment`], also if nothing is left of `only`.
pub fn select(options: &Options) -> Result<Vec<Trial>, RunError> {
    let mut trials = options.experiment.trials()?;
    let is_wanted = |trial: &Trial| {
        let line = trial.line();
        let mut words = options.only.iter();
        options.only.is_empty() || words.any(|word| trial.id.contains(word) || line.contains(word))
    };
    let known: Vec<String> = trials.iter().map(|trial| trial.id.clone()).collect();
    trials.retain(is_wanted);
    if trials.is_empty() {
        let found = format!("{:?}", options.only.join(", "));
        let expected = format!("part of one of: {}", known.join(", "));
        return Err(options.experiment.value("--only", found, expected).into());
    }
    for trial in &trials {
        trial.check_on_hosts(&options.experiment)?;
    }
    Ok(trials)
}

/// Makes the runs that are missing; `tell` is called before and after each.
///
/// # Errors
///
/// [`RunError::Experiment`], [`RunError::Store`], [`RunError::Missing`] before anything is made;
/// [`RunError::Interrupted`], after which the same call goes on; and what stands in the way of a run.
pub fn run(options: &Options, mut tell: impl FnMut(&Progress)) -> Result<Summary, RunError> {
    let all = options.experiment.trials()?;
    let trials = select(options)?;
    // Writers need a folder alone, and servers say themselves what they need.
    let is_farm = |trial: &Trial| trial.scenario.subject() == Subject::Farm;
    let is_live = |trial: &Trial| trial.source == Kind::Live && is_farm(trial);
    let (trials, skipped) = possible(trials)?;
    let mut stage = None;
    let mut provenance = BTreeMap::new();
    match &options.experiment.hosts {
        Some(inventory) if trials.iter().any(is_live) => {
            let fleet = Fleet::open(inventory)?;
            provenance = fleet.provenance()?;
            stage = Some(Stage::Hosts(fleet));
        }
        _ if trials.iter().any(is_live) => net::needs()?,
        _ => {}
    }
    provenance.insert("commit".to_owned(), options.commit.clone());
    if !options.experiment.machine.is_default() {
        provenance.insert("numbers".to_owned(), numbers(&options.experiment.machine));
    }
    let store = Store::open(
        &options.out,
        &options.experiment,
        &options.text,
        options.is_quick,
        provenance,
    )?;
    clock::end_on_signals()?;
    for name in sheaf_testbed::machine::clean() {
        tracing::info!(name, "Removed what an earlier experiment left");
    }
    for run in &skipped {
        store.keep(run)?;
        tell(&Progress {
            result: Some(run.clone()),
            ..Progress::default()
        });
    }
    let outcome = run_all(options, &trials, &store, &mut stage, &mut tell);
    // What there is counts, also after an interruption.
    let summary = store.conclude(&all)?;
    outcome.map(|()| summary)
}

/// Returns the numbers of `machine` in a line: `hop_us = 70, stf_us = 64, …`.
fn numbers(machine: &Machine) -> String {
    let table = toml::to_string(machine).expect("numbers have a TOML form");
    table.lines().collect::<Vec<_>>().join(", ")
}

/// Splits `trials` into those that this machine can run, and runs that stand for the others, with the reason.
fn possible(trials: Vec<Trial>) -> Result<(Vec<Trial>, Vec<RunResult>), RunError> {
    let (mut possible, mut skipped) = (Vec::new(), Vec::new());
    for trial in trials {
        let missing = match trial.scenario.subject() {
            Subject::Servers(serving) => servers::missing(&trial, serving)?,
            Subject::Farm | Subject::Writers(_) => None,
        };
        match missing {
            Some(why) => skipped.push(servers::skipped(&trial, why)),
            None => possible.push(trial),
        }
    }
    match skipped.first() {
        Some(RunResult {
            skipped: Some(why), ..
        }) if possible.is_empty() => Err(Missing(why.clone()).into()),
        _ => Ok((possible, skipped)),
    }
}

fn run_all(
    options: &Options,
    trials: &[Trial],
    store: &Store,
    stage: &mut Option<Stage>,
    tell: &mut impl FnMut(&Progress),
) -> Result<(), RunError> {
    let mut runs = store.runs()?;
    let iterations = options.experiment.iterations;
    run_simulated(options, trials, store, &mut runs, tell)?;
    let mut clock = Pace::default();
    for iteration in 1..=iterations {
        for trial in trials {
            while let Some(attempt) = next_attempt(&runs, trial, iteration) {
                clock::check_quit()?;
                let progress = |runs: &[RunResult], clock: &Pace, result| Progress {
                    done: done(runs, trials, iterations),
                    total: trials.len() * iterations as usize,
                    left: clock.left(runs, trials, iterations),
                    line: trial.line(),
                    result,
                };
                tell(&progress(&runs, &clock, None));
                let begin = Instant::now();
                let turn = Turn::of(&options.experiment, iteration, attempt);
                let result = run_one(trial, &turn, stage, &options.out).or_else(|error| {
                    // What fails after a signal fails because of it.
                    clock::check_quit()?;
                    Err(error)
                })?;
                clock.took(trial, begin.elapsed());
                store.keep(&result)?;
                runs.push(result.clone());
                tell(&progress(&runs, &clock, Some(result)));
            }
        }
    }
    Ok(())
}

/// Makes the simulated runs that are missing, several at a time: they have no clock but their own.
fn run_simulated(
    options: &Options,
    trials: &[Trial],
    store: &Store,
    runs: &mut Vec<RunResult>,
    tell: &mut impl FnMut(&Progress),
) -> Result<(), RunError> {
    let iterations = options.experiment.iterations;
    let is_simulated =
        |trial: &&Trial| trial.source == Kind::Sim && trial.scenario.subject() == Subject::Farm;
    let mut turns: Vec<(&Trial, Turn)> = Vec::new();
    for iteration in 1..=iterations {
        for trial in trials.iter().filter(is_simulated) {
            let attempt = next_attempt(runs, trial, iteration);
            turns.extend(
                attempt.map(|attempt| (trial, Turn::of(&options.experiment, iteration, attempt))),
            );
        }
    }
    if turns.is_empty() {
        return Ok(());
    }
    let total = trials.len() * iterations as usize;
    let (before, begin) = (done(runs, trials, iterations), Instant::now());
    let mut made = 0;
    let outcome = side_by_side::run::<RunError>(&turns, |trial, result| {
        store.keep(&result)?;
        runs.push(result.clone());
        made += 1;
        let each = begin.elapsed() / made;
        let open = turns.len() - made as usize;
        tell(&Progress {
            done: before + made as usize,
            total,
            left: each.saturating_mul(u32::try_from(open).unwrap_or(u32::MAX)),
            line: trial.line(),
            result: Some(result),
        });
        Ok(())
    });
    outcome.or_else(|error| {
        // What fails after a signal fails because of it.
        clock::check_quit()?;
        Err(error)
    })
}

fn run_one(
    trial: &Trial,
    turn: &Turn,
    stage: &mut Option<Stage>,
    out: &Path,
) -> Result<RunResult, RunError> {
    match trial.scenario.subject() {
        Subject::Writers(writing) => return Ok(writers::run(trial, writing, turn, out)?),
        Subject::Servers(serving) => return Ok(servers::run(trial, serving, turn)?),
        Subject::Farm => {}
    }
    let venue = match (trial.source, &trial.venue) {
        (Kind::Live, Some(venue)) => venue,
        _ => return Ok(super::simulated::run(trial, turn)?),
    };
    let stage = on_stage(stage, venue)?;
    let folder = Folder::make(false)?;
    let interference = Interference::begin()?;
    let mut result = match (trial.scenario.mode, stage) {
        (Mode::Legacy, Stage::Net(net)) => legacy::run(trial, net, turn, &folder)?,
        _ => live::run(trial, stage, turn, folder)?,
    };
    let machine = MachineRun {
        others_percent: 100.0 * interference.user_share()?,
        steal_percent: 100.0 * interference.steal_share()?,
        pressure_percent: interference.pressure_share().map(|share| 100.0 * share),
    };
    // Nodes on other hosts have processors of their own.
    if let Stage::Net(_) = stage {
        let starved = machine.starved(&trial.live);
        result.rejected = result.rejected.or(starved);
        result.machine = Some(machine);
    }
    Ok(result)
}

/// Returns the network made for `venue`, now or earlier.
fn on_stage<'a>(stage: &'a mut Option<Stage>, venue: &Venue) -> Result<&'a Stage, StageError> {
    let kept = stage.take().filter(|stage| stage.is(venue));
    // Another one is gone by now: there may not be room for both.
    let made = match kept {
        Some(kept) => kept,
        None => Stage::make(venue)?,
    };
    Ok(stage.insert(made))
}

/// The attempt that comes next at run `iteration` of `trial`; `None` if it is done or was tried often enough.
fn next_attempt(runs: &[RunResult], trial: &Trial, iteration: u32) -> Option<u32> {
    let attempts = runs
        .iter()
        .filter(|run| run.trial == trial.id && run.iteration == iteration);
    let mut last = 0;
    for run in attempts {
        if run.is_valid() {
            return None;
        }
        last = last.max(run.attempt);
    }
    (last <= trial.live.retries).then_some(last + 1)
}

fn done(runs: &[RunResult], trials: &[Trial], iterations: u32) -> usize {
    let is_done = |trial: &Trial, iteration| next_attempt(runs, trial, iteration).is_none();
    let of_trial = |trial| {
        (1..=iterations)
            .filter(|iteration| is_done(trial, *iteration))
            .count()
    };
    trials.iter().map(of_trial).sum()
}

/// How much longer than their generation runs take, here and now.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    overhead_s: f64,
    /// Real time for a simulated second.
    simulated: f64,
    live_runs: u32,
    sim_runs: u32,
}

impl Pace {
    fn took(&mut self, trial: &Trial, time: Duration) {
        let generation_s = length_s(trial);
        if trial.source == Kind::Live {
            self.overhead_s += time.as_secs_f64() - generation_s;
            self.live_runs += 1;
        } else {
            self.simulated += time.as_secs_f64() / generation_s;
            self.sim_runs += 1;
        }
    }

    fn expected_s(&self, trial: &Trial) -> f64 {
        let generation_s = length_s(trial);
        if trial.source == Kind::Sim {
            let factor = if self.sim_runs > 0 {
                self.simulated / f64::from(self.sim_runs)
            } else {
                0.5
            };
            return factor * generation_s;
        }
        let overhead = if self.live_runs > 0 {
            self.overhead_s / f64::from(self.live_runs)
        } else {
            OVERHEAD_S
        };
        generation_s + overhead
    }

    fn left(&self, runs: &[RunResult], trials: &[Trial], iterations: u32) -> Duration {
        let open = trials.iter().map(|trial| {
            let missing = (1..=iterations)
                .filter(|iteration| next_attempt(runs, trial, *iteration).is_some());
            missing.count() as f64 * self.expected_s(trial)
        });
        Duration::try_from_secs_f64(open.sum()).unwrap_or_default()
    }
}

/// Time for which a run generates, with that before what is measured.
fn length_s(trial: &Trial) -> f64 {
    let duration_s = trial.scenario.duration_s;
    match trial.scenario.subject() {
        Subject::Servers(serving) => duration_s + serving.warm_up_s(duration_s),
        Subject::Farm | Subject::Writers(_) => duration_s,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trials() -> Vec<Trial> {
        let text = "name = 'x'\nquestion = '?'\n[base]\ntopology = 'pi-cluster'\nduration_s = 30.0\nepns = 2\n\
                    [matrix]\nbytes = [100, 200]";
        Experiment::parse(text, "x").unwrap().trials().unwrap()
    }

    fn run_of(trial: &Trial, iteration: u32, attempt: u32, rejected: bool) -> RunResult {
        RunResult {
            trial: trial.id.clone(),
            iteration,
            attempt,
            rejected: rejected.then(|| "too long".to_owned()),
            ..RunResult::default()
        }
    }

    #[test]
    fn a_rejected_run_is_made_again_and_given_up_after_two_more() {
        let trials = trials();
        let trial = &trials[0];
        let mut runs = Vec::new();
        for attempt in 1..=3 {
            assert_eq!(next_attempt(&runs, trial, 1), Some(attempt));
            runs.push(run_of(trial, 1, attempt, true));
        }
        assert_eq!(next_attempt(&runs, trial, 1), None);
        assert_eq!(next_attempt(&runs, trial, 2), Some(1));
        runs.push(run_of(trial, 2, 1, false));
        assert_eq!(next_attempt(&runs, trial, 2), None);
        assert_eq!(done(&runs, &trials, 2), 2);
    }

    #[test]
    fn the_time_left_is_that_of_runs_that_are_missing() {
        let trials = trials();
        let mut pace = Pace::default();
        assert_eq!(pace.left(&[], &trials, 2), Duration::from_secs(4 * 33));
        pace.took(&trials[0], Duration::from_secs(32));
        let runs = [run_of(&trials[0], 1, 1, false)];
        assert_eq!(pace.left(&runs, &trials, 2), Duration::from_secs(3 * 32));
    }

    #[test]
    fn only_what_is_asked_for_is_run_and_nonsense_is_refused_with_what_there_is() {
        let text =
            "name = 'x'\nquestion = '?'\n[base]\nsource = 'sim'\n[matrix]\nbytes = [100, 200]";
        let mut options = Options {
            experiment: Experiment::parse(text, "x").unwrap(),
            text: text.to_owned(),
            is_quick: false,
            out: PathBuf::new(),
            only: vec!["200b".to_owned()],
            commit: String::new(),
        };
        assert_eq!(select(&options).unwrap().len(), 1);
        options.only = vec!["moon".to_owned()];
        let error = select(&options).unwrap_err().to_string();
        assert!(
            error.contains("--only: found \"moon\", expected part of one of: 001-"),
            "{error}"
        );
    }
}
