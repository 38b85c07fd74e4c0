//! A run of writers of files: the shipped engine with slow workers, or its brain in virtual time.
//!
//! Both get the same mixes from [`sheaf_sim::writers`], and the same brain assigns the files. A simulated run has the
//! rates and times of ATLAS; a live one has workers that are slower by `writing.scale` and blocks of
//! `writing.block_s`, and its rate is multiplied to the scale of ATLAS.

mod engine;

use super::Trial;
use super::live::Turn;
use super::result::{RunResult, WritersRun};
use engine::EngineRunError;
use sheaf_figures::stat;
use sheaf_sim::scenario::{ScenarioError, Writing};
use sheaf_sim::summary::Kind;
use sheaf_sim::writers::{self, FleetError, WritersError};
use sheaf_testbed::clock::{self, Interrupted};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// Reasons why a run of writers is not made.
#[derive(Debug, Error)]
pub enum WritersRunError {
    /// A signal asked this process to end.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// A value of the point.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The simulated writer.
    #[error(transparent)]
    Simulated(#[from] WritersError),
    /// The simulated fleet.
    #[error(transparent)]
    Fleet(#[from] FleetError),
    /// The live engine.
    #[error(transparent)]
    Engine(#[from] EngineRunError),
}

/// Records of a run, and what became of them.
struct Taken {
    records: u64,
    lost: u64,
    result: WritersRun,
    /// Longest wait, or the lags of all TFs, in µs.
    lags_us: Vec<f64>,
}

/// Makes a run of `writing`, the writers of `trial`. Files of a live one lie in a folder within `out`, and are removed.
///
/// # Errors
///
/// All of [`WritersRunError`].
pub(super) fn run(
    trial: &Trial,
    writing: &Writing,
    turn: &Turn,
    out: &Path,
) -> Result<RunResult, WritersRunError> {
    let begin = Instant::now();
    let began = SystemTime::now().duration_since(UNIX_EPOCH);
    let duration_s = trial.scenario.duration_s;
    let taken = match (trial.source, writing.writers) {
        (Kind::Live, _) => engine::run(writing, duration_s, turn.seed, out)?,
        (Kind::Sim, 1) => simulated(writing, duration_s, turn.seed)?,
        (Kind::Sim, _) => fleet(trial, writing, turn.seed)?,
    };
    clock::check_quit()?;
    let mut problems = Vec::new();
    if taken.lost > 0 && writing.writers == 1 {
        problems.push(format!(
            "{} of {} records are in no file",
            taken.lost, taken.records
        ));
    }
    let cause = match writing.writers {
        1 => "no-file",
        _ => "no-memory",
    };
    let lost_by = match taken.lost {
        0 => BTreeMap::new(),
        lost => BTreeMap::from([(cause.to_owned(), lost)]),
    };
    let mut result = RunResult {
        trial: trial.id.clone(),
        iteration: turn.iteration,
        attempt: turn.attempt,
        seed: turn.seed,
        began_unix_s: began.map_or(0, |began| began.as_secs()),
        wall_s: begin.elapsed().as_secs_f64(),
        generation_s: duration_s,
        announced: taken.records,
        lost: taken.lost,
        lost_by,
        goodput_mbit_s: taken.result.mb_per_s * 8.0,
        span_s: duration_s,
        fairness: stat::jain(&taken.result.bytes),
        problems,
        writers: Some(taken.result),
        ..RunResult::default()
    };
    result.set_latencies(taken.lags_us);
    Ok(result)
}

fn simulated(writing: &Writing, duration_s: f64, seed: u64) -> Result<Taken, WritersRunError> {
    let input = writing.input(duration_s)?;
    let outcome = writers::run(&input, writing.choice()?, writing.setup(seed))?;
    Ok(Taken {
        records: outcome.records + outcome.lost,
        lost: outcome.lost,
        result: WritersRun {
            mb_per_s: outcome.mb_s,
            file_bound_mb_per_s: outcome.file_bound_mb_s,
            fullest: outcome.fullest_share,
            files: outcome.files,
            bytes: Vec::new(),
        },
        lags_us: vec![outcome.wait_s_max * 1e6],
    })
}

fn fleet(trial: &Trial, writing: &Writing, seed: u64) -> Result<Taken, WritersRunError> {
    let fleet = writing.fleet(&trial.scenario, seed);
    let outcome = fleet.run(&writing.mix()?, writing.choice()?)?;
    Ok(Taken {
        records: outcome.tfs,
        lost: outcome.lost + outcome.lost_by_writers,
        result: WritersRun {
            mb_per_s: outcome.mb_s,
            file_bound_mb_per_s: outcome.file_bound_mb_s,
            fullest: outcome.fullest_writer(),
            files: outcome.files,
            bytes: outcome.writer_bytes,
        },
        lags_us: outcome.lag_ns.iter().map(|ns| *ns as f64 / 1e3).collect(),
    })
}
