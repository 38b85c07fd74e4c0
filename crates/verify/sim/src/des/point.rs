//! One point of a scenario file: its runs, and their row.

use super::tally::quantiles;
use super::{Progress, Run, run};
use crate::scenario::{Mode, Scenario, ScenarioError};
use crate::summary::{Kind, Point};
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
    mut take: impl FnMut(&Run),
) -> Result<PointRun, ScenarioError> {
    let mut runs = Vec::new();
    let mut samples = Samples::default();
    let mut trace_hash = 0u64;
    for iteration in 0..scenario.iterations {
        let seed = scenario.seed.wrapping_add(u64::from(iteration));
        let mut run = run(scenario, seed, |at| {
            progress(iteration, at);
            true
        })?;
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
    let mean = |value: &dyn Fn(&Run) -> f64| mean_of(runs.iter().map(value));
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
        loss_percent: mean_of(losses.iter().copied()),
        loss_percent_ci95: interval95(&losses),
        out_of_order: mean(&|run| run.out_of_order as f64),
        goodput_mbit_s: mean(&Run::goodput_mbit_s),
        latency_us: quantiles(&mut samples.latencies),
        wait_us: Some(quantiles(&mut samples.waits)).filter(|_| scenario.mode == Mode::Sheaf),
        turnaround_us: Some(quantiles(&mut samples.turnarounds))
            .filter(|_| scenario.mode == Mode::Sheaf),
        unprocessed: mean(&|run| run.unprocessed as f64),
        died_unprocessed: mean(&|run| run.died_unprocessed as f64),
        published_loss_percent: scenario.published_loss_percent,
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

fn mean_of(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut count) = (0.0, 0u32);
    for value in values {
        sum += value;
        count += 1;
    }
    if count == 0 {
        0.0
    } else {
        sum / f64::from(count)
    }
}

/// Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom; above, the normal one is near enough.
const T95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// Returns the interval of the mean by Student's t, not below 0; the mean itself if there is one value.
fn interval95(values: &[f64]) -> [f64; 2] {
    let mean = mean_of(values.iter().copied());
    if values.len() < 2 {
        return [mean, mean];
    }
    let count = values.len() as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let error = (squares / (count - 1.0) / count).sqrt();
    let t = T95.get(values.len() - 2).copied().unwrap_or(1.96);
    [(mean - t * error).max(0.0), mean + t * error]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_students_t() {
        assert_eq!(interval95(&[3.0]), [3.0, 3.0]);
        // Mean 2, standard deviation 1, n = 3: 2 ± 4.303 / √3.
        let [low, high] = interval95(&[1.0, 2.0, 3.0]);
        assert_eq!(low, 0.0);
        assert!((high - 4.4844).abs() < 1e-3, "{high}");
    }
}
