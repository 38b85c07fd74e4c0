//! A simulated run.

use super::Trial;
use super::live::Turn;
use super::result::{RunResult, WaitsRun};
use sheaf_sim::des::{self, Waits};
use sheaf_sim::scenario::Mode;
use sheaf_testbed::clock::{self, Interrupted};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// Reasons why a point is not simulated.
#[derive(Debug, Error)]
pub enum SimulateError {
    /// A signal asked this process to end.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// The simulator refuses the scenario.
    #[error("point {point}: {why}")]
    Scenario {
        /// The point.
        point: String,
        /// Reason of the refusal.
        why: String,
    },
}

/// Simulates `trial` once.
///
/// # Errors
///
/// All of [`SimulateError`].
pub(super) fn run(trial: &Trial, turn: &Turn) -> Result<RunResult, SimulateError> {
    let begin = Instant::now();
    let began = SystemTime::now().duration_since(UNIX_EPOCH);
    let run =
        des::run(&trial.scenario, turn.seed, |_| clock::check_quit().is_ok()).map_err(|error| {
            SimulateError::Scenario {
                point: trial.line(),
                why: error.to_string(),
            }
        })?;
    clock::check_quit()?;
    let mut lost_by = run.lost_by.clone();
    if run.in_flight > 0 {
        lost_by.insert("no-verdict".to_owned(), run.in_flight);
    }
    let mut problems = Vec::new();
    if !run.is_conserved() {
        problems.push("the accounting of the simulated farm does not add up".to_owned());
    }
    let mut result = RunResult {
        trial: trial.id.clone(),
        iteration: turn.iteration,
        attempt: turn.attempt,
        seed: turn.seed,
        began_unix_s: began.map_or(0, |began| began.as_secs()),
        wall_s: begin.elapsed().as_secs_f64(),
        generation_s: trial.scenario.duration_s,
        announced: run.announced,
        lost: lost_by.values().sum(),
        lost_by,
        out_of_order: run.out_of_order,
        offered_mbit_s: trial.offered_mbit_s(),
        goodput_mbit_s: run.goodput_mbit_s(),
        span_s: run.span_ns as f64 / 1e9,
        tfs_by_epn: run.tfs_by_epn.iter().map(|(tfs, _)| *tfs).collect(),
        fairness: run.fairness(),
        reassigned: run.reassigned,
        flp_peak_bytes: run.flp_peak_bytes,
        epn_peak_bytes: run.epn_peak_bytes,
        faults: trial.scenario.faults.len() as u64,
        problems,
        ..RunResult::default()
    };
    let us = run.latencies_ns.iter().map(|ns| *ns as f64 / 1e3);
    result.set_latencies(us.collect());
    if trial.scenario.mode == Mode::Sheaf {
        result.waits = Some(WaitsRun::of(&Waits {
            waits_ns: run.waits_ns,
            turnarounds_ns: run.turnarounds_ns,
            unprocessed: run.unprocessed,
            died_unprocessed: run.died_unprocessed,
        }));
    }
    Ok(result)
}
