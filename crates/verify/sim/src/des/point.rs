//! One point of a scenario file: its runs, and their row.

use super::tally::quantiles;
use super::{Progress, Run, run_with};
use crate::scenario::{Mode, Scenario, ScenarioError};
use crate::summary::{Kind, Point};
use sheaf_figures::stat;
use sheaf_placement::Policy;
use sheaf_protocol::splitmix;
use std::collections::BTreeMap;

/// The runs of a point, and its row.
#[derive(Clone, Debug)]
pub struct PointRun {
    /// The row.
    pub point: Point,
    /// The runs, without their latencies.
    pub runs: Vec<Run>,
    /// Hash of all events of all runs.
    pub trace_hash: u64,
}

/// Does all runs of a scenario, from its seed on. `progress` is called with the number and the progress of the run, and
/// `take` with each run, whose records are dropped then.
///
/// # Errors
///
/// A [`ScenarioError`] if the scenario cannot be run.
pub fn run_point(
    scenario: &Scenario,
    mut progress: impl FnMut(u32, Progress),
    take: impl FnMut(&Run),
) -> Result<PointRun, ScenarioError> {
    let tell = |iteration, at| {
        progress(iteration, at);
        true
    };
    run_point_with(scenario, |_| None, tell, take)
}

/// As [`run_point`], with what `policy` makes for each run, from its seed, in place of the policy of the scenario if
/// that is one. If `progress` returns `false`, the run is broken off there.
///
/// # Errors
///
/// A [`ScenarioError`] if the scenario cannot be run.
pub fn run_point_with(
    scenario: &Scenario,
    mut policy: impl FnMut(u64) -> Option<Box<dyn Policy>>,
    mut progress: impl FnMut(u32, Progress) -> bool,
    mut take: impl FnMut(&Run),
) -> Result<PointRun, ScenarioError> {
    let mut runs = Vec::new();
    let mut samples = Samples::default();
    let mut trace_hash = 0u64;
    for iteration in 0..scenario.iterations {
        let seed = scenario.seed.wrapping_add(u64::from(iteration));
        let mut run = run_with(scenario, seed, policy(seed), |at| progress(iteration, at))?;
        trace_hash = splitmix::mix(trace_hash ^ run.trace_hash);
        take(&run);
        run.records = Vec::new();
        samples.latencies.append(&mut run.latencies_ns);
        samples.waits.append(&mut run.waits_ns);
        samples.turnarounds.append(&mut run.turnarounds_ns);
        runs.push(run);
    }
    let point = row(scenario, &runs, &mut samples);
    Ok(PointRun {
        point,
        runs,
        trace_hash,
    })
}

/// Times of all TFs of all runs, in ns.
#[derive(Default)]
struct Samples {
    latencies: Vec<u64>,
    waits: Vec<u64>,
    turnarounds: Vec<u64>,
}

fn row(scenario: &Scenario, runs: &[Run], samples: &mut Samples) -> Point {
    let mean = |value: &dyn Fn(&Run) -> f64| {
        let values: Vec<f64> = runs.iter().map(value).collect();
        stat::mean(&values).unwrap_or(0.0)
    };
    let losses: Vec<f64> = runs.iter().map(loss_percent).collect();
    let mut lost_by: BTreeMap<String, f64> = BTreeMap::new();
    for run in runs {
        for (cause, count) in &run.lost_by {
            *lost_by.entry(cause.clone()).or_default() += *count as f64 / runs.len() as f64;
        }
    }
    let most = |value: fn(&Run) -> u64| runs.iter().map(value).max().unwrap_or(0);
    Point {
        label: scenario.name.clone(),
        flps: scenario.flps,
        epns: scenario.epns,
        rate_hz: scenario.rate_hz,
        bytes: scenario.size.bytes,
        load: scenario.offered_load(),
        policy: scenario.policy.clone(),
        reaction: scenario.reaction.name().to_owned(),
        mode: scenario.mode_name(),
        push: scenario.push.name().to_owned(),
        source: Kind::Sim,
        duration_s: scenario.duration_s,
        n: runs.len() as u32,
        n_rejected: 0,
        announced: mean(&|run| run.announced as f64),
        lost_mean: mean(&|run| run.lost() as f64),
        loss_percent: stat::mean(&losses).unwrap_or(0.0),
        loss_percent_ci95: stat::ci95_from_zero(&losses),
        out_of_order: mean(&|run| run.out_of_order as f64),
        goodput_mbit_s: mean(&Run::goodput_mbit_s),
        latency_us: quantiles(&mut samples.latencies),
        wait_us: Some(quantiles(&mut samples.waits)).filter(|_| scenario.mode == Mode::Sheaf),
        turnaround_us: Some(quantiles(&mut samples.turnarounds))
            .filter(|_| scenario.mode == Mode::Sheaf),
        unprocessed: mean(&|run| run.unprocessed as f64),
        died_unprocessed: mean(&|run| run.died_unprocessed as f64),
        published_loss_percent: scenario.published_loss_percent,
        published_runs: scenario.published_runs,
        published_sd: scenario.published_sd,
        published_note: scenario.published_note.clone(),
        lost_by,
        flp_peak_bytes: most(|run| run.flp_peak_bytes),
        epn_peak_bytes: most(|run| run.epn_peak_bytes),
        fairness: mean(&Run::fairness),
        reassigned: mean(&|run| run.reassigned as f64),
        writers: None,
        served: None,
    }
}

fn loss_percent(run: &Run) -> f64 {
    if run.announced == 0 {
        return 0.0;
    }
    100.0 * run.lost() as f64 / run.announced as f64
}
