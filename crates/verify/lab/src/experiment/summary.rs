//! Runs of a trial as one point of a summary.

use super::Trial;
use super::card::Card;
use super::published;
use super::result::{RunResult, ServersRun, WaitsRun, WritersRun, percent};
use crate::times::{Times, latency_of, quantile_of_sorted};
use sheaf_figures::stat;
use sheaf_sim::scenario::{Scenario, Writing};
use sheaf_sim::serving::Serving;
use sheaf_sim::summary::{Latency, Point, Served, Summary, Writers};
use std::collections::BTreeMap;

/// The summary of `runs`; trials without any run are left out.
#[must_use]
pub fn of(card: &Card, trials: &[Trial], runs: &[RunResult]) -> Summary {
    let mut summary = Summary::new(&card.experiment);
    summary.provenance.clone_from(&card.provenance);
    if card.is_quick {
        let note = "yes: one short run a point".to_owned();
        summary.provenance.insert("quick".to_owned(), note);
    }
    for trial in trials {
        let of_trial: Vec<&RunResult> = runs.iter().filter(|run| run.trial == trial.id).collect();
        if !of_trial.is_empty() {
            summary.points.push(point(trial, &of_trial));
        }
    }
    summary
}

fn point(trial: &Trial, runs: &[&RunResult]) -> Point {
    let valid: Vec<&RunResult> = runs.iter().copied().filter(|run| run.is_valid()).collect();
    let mean_of = |value: &dyn Fn(&RunResult) -> f64| {
        let values: Vec<f64> = valid.iter().map(|run| value(run)).collect();
        stat::mean(&values).unwrap_or(0.0)
    };
    let losses: Vec<f64> = valid.iter().map(|run| run.loss_percent()).collect();
    let announced = mean_of(&|run| run.announced as f64);
    let lost_mean = mean_of(&|run| run.lost as f64);
    let mut latencies: Vec<f64> = valid
        .iter()
        .flat_map(|run| run.latency_quantiles_us.iter().copied())
        .collect();
    latencies.sort_by(f64::total_cmp);
    let scenario = &trial.scenario;
    Point {
        label: trial.point_label(),
        flps: scenario.flps,
        epns: scenario.epns,
        rate_hz: scenario.rate_hz,
        bytes: scenario.size.bytes,
        load: scenario.offered_load(),
        policy: trial.rule(),
        reaction: scenario.reaction.name().to_owned(),
        mode: trial.mode_name(),
        push: scenario.push.name().to_owned(),
        source: trial.source,
        duration_s: scenario.duration_s,
        n: count(valid.len()),
        n_rejected: count(runs.iter().filter(|run| run.rejected.is_some()).count()),
        announced,
        lost_mean,
        loss_percent: percent(lost_mean, announced),
        loss_percent_ci95: stat::ci95_from_zero(&losses),
        out_of_order: mean_of(&|run| run.out_of_order as f64),
        goodput_mbit_s: mean_of(&|run| run.goodput_mbit_s),
        latency_us: latency_of(|q| quantile_of_sorted(&latencies, q)),
        wait_us: pooled(&valid, |waits| &waits.wait),
        turnaround_us: pooled(&valid, |waits| &waits.turnaround),
        unprocessed: mean_of(&|run| of_waits(run, |waits| waits.unprocessed)),
        died_unprocessed: mean_of(&|run| of_waits(run, |waits| waits.died_unprocessed)),
        published_loss_percent: scenario.published_loss_percent,
        published_runs: scenario.published_runs,
        published_sd: scenario.published_sd,
        published_note: scenario.published_note.clone(),
        lost_by: mean_by_cause(&valid),
        flp_peak_bytes: valid
            .iter()
            .map(|run| run.flp_peak_bytes)
            .max()
            .unwrap_or(0),
        epn_peak_bytes: valid
            .iter()
            .map(|run| run.epn_peak_bytes)
            .max()
            .unwrap_or(0),
        fairness: mean_of(&|run| run.fairness),
        reassigned: mean_of(&|run| run.reassigned as f64),
        writers: scenario
            .writing
            .as_ref()
            .map(|writing| writers(writing, scenario, &valid)),
        served: scenario.serving.as_ref().map(|serving| {
            let skipped = runs.iter().find_map(|run| run.skipped.clone());
            let skipped = skipped.filter(|_| valid.is_empty());
            served(serving, skipped, &valid)
        }),
    }
}

/// Returns the quantiles of a time over the TFs of all runs; `None` if it was not seen.
fn pooled(runs: &[&RunResult], of: fn(&WaitsRun) -> &Times) -> Option<Latency> {
    let waits = runs.iter().filter_map(|run| run.waits.as_ref());
    let mut values: Vec<f64> = waits
        .flat_map(|waits| of(waits).quantiles_us.iter().copied())
        .collect();
    values.sort_by(f64::total_cmp);
    (!values.is_empty()).then(|| latency_of(|q| quantile_of_sorted(&values, q)))
}

fn of_waits(run: &RunResult, of: fn(&WaitsRun) -> u64) -> f64 {
    run.waits.as_ref().map_or(0.0, |waits| of(waits) as f64)
}

/// Results of the runs of a point of servers.
fn served(serving: &Serving, skipped: Option<String>, runs: &[&RunResult]) -> Served {
    let servers: Vec<&ServersRun> = runs.iter().filter_map(|run| run.servers.as_ref()).collect();
    let values = |value: fn(&ServersRun) -> f64| -> Vec<f64> {
        servers.iter().map(|run| value(run)).collect()
    };
    let mean = |value: fn(&ServersRun) -> f64| stat::mean(&values(value)).unwrap_or(0.0);
    let most = |value: fn(&ServersRun) -> f64| values(value).into_iter().fold(0.0, f64::max);
    let of_runs = |value: fn(&RunResult) -> f64| {
        let values: Vec<f64> = runs.iter().map(|run| value(run)).collect();
        stat::mean(&values).unwrap_or(0.0)
    };
    Served {
        asked: serving.clone(),
        skipped,
        gbit_per_s: mean(|run| run.gbit_per_s),
        gbit_per_s_ci95: stat::ci95_from_zero(&values(|run| run.gbit_per_s)),
        gbit_per_s_max: most(|run| run.gbit_per_s_max),
        connections_per_s: mean(|run| run.connections_per_s),
        held_max: servers.iter().map(|run| run.held_max).max().unwrap_or(0),
        finished: mean(|run| run.finished as f64),
        failed: of_runs(|run| run.lost as f64),
        broken: mean(|run| run.broken as f64),
        drains: servers.iter().map(|run| run.drains).sum(),
        jain: of_runs(|run| run.fairness),
        fullest: mean(|run| fullest(&run.bytes)),
        cpu_s_per_gb: mean(|run| run.cpu_s_per_gb),
        others_share_max: most(|run| run.others_share),
        published_gbit_per_s: published::gbit_per_s(serving),
    }
}

/// Bytes of the fullest server ÷ mean of all; 0 of none.
fn fullest(bytes: &[u64]) -> f64 {
    let mean = bytes.iter().sum::<u64>() as f64 / bytes.len().max(1) as f64;
    let most = bytes.iter().copied().max().unwrap_or(0) as f64;
    match mean > 0.0 {
        true => most / mean,
        false => 0.0,
    }
}

/// Results of the runs of a point of writers.
fn writers(writing: &Writing, scenario: &Scenario, runs: &[&RunResult]) -> Writers {
    let values = |value: fn(&WritersRun) -> f64| -> Vec<f64> {
        let runs = runs.iter().filter_map(|run| run.writers.as_ref());
        runs.map(value).collect()
    };
    let mean = |value: fn(&WritersRun) -> f64| stat::mean(&values(value)).unwrap_or(0.0);
    let rates = values(|run| run.mb_per_s);
    let mb_per_s = mean(|run| run.mb_per_s);
    let bound = mean(|run| run.file_bound_mb_per_s);
    let is_one = writing.writers == 1;
    let choice = writing.choice().ok();
    let published = choice.and_then(|choice| choice.published(&writing.input_name()));
    Writers {
        input: writing.input_name(),
        mix: match writing.trace.is_empty() {
            true => writing.mix.clone(),
            false => String::new(),
        },
        workers: writing.workers,
        assignment: writing.assignment.clone(),
        count: writing.writers,
        policy: match is_one {
            true => String::new(),
            false => scenario.policy.clone(),
        },
        mb_per_s,
        mb_per_s_ci95: stat::ci95_from_zero(&rates),
        file_bound_mb_per_s: bound,
        loss_percent: match bound > 0.0 {
            true => 100.0 * (1.0 - mb_per_s / bound),
            false => 0.0,
        },
        fullest: mean(|run| run.fullest),
        published_mb_per_s: published.filter(|_| is_one),
    }
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

fn mean_by_cause(runs: &[&RunResult]) -> BTreeMap<String, f64> {
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    for (cause, lost) in runs.iter().flat_map(|run| &run.lost_by) {
        *sums.entry(cause.clone()).or_default() += *lost as f64;
    }
    for sum in sums.values_mut() {
        *sum /= runs.len().max(1) as f64;
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::super::Experiment;
    use super::*;

    fn runs() -> (Vec<Trial>, Vec<RunResult>) {
        let text = "name = 'x'\nquestion = '?'\n[base]\nsource = 'sim'\npublished_loss_percent = 0.5\n[matrix]\nbytes = [100, 200]";
        let trials = Experiment::parse(text, "x").unwrap().trials().unwrap();
        let run = |iteration, lost: u64, rejected: Option<&str>| {
            let mut run = RunResult {
                trial: trials[0].id.clone(),
                iteration,
                rejected: rejected.map(str::to_owned),
                announced: 1000,
                lost,
                lost_by: BTreeMap::from([("late-at-run-end".to_owned(), lost)]),
                tfs_by_epn: vec![10, 10],
                ..RunResult::default()
            };
            run.set_latencies(vec![f64::from(iteration) * 100.0; 10]);
            run
        };
        let runs = vec![
            run(1, 10, None),
            run(2, 30, None),
            run(3, 900, Some("window")),
        ];
        (trials, runs)
    }

    #[test]
    fn a_point_is_the_mean_of_runs_that_count_and_tells_how_many_do_not() {
        let (trials, runs) = runs();
        let card = Card {
            version: 1,
            experiment: "x".to_owned(),
            checksum: 0,
            is_quick: true,
            provenance: BTreeMap::new(),
        };
        let summary = of(&card, &trials, &runs);
        assert_eq!(summary.points.len(), 1, "the other trial has no runs");
        let point = &summary.points[0];
        assert_eq!((point.n, point.n_rejected), (2, 1));
        assert_eq!((point.lost_mean, point.loss_percent), (20.0, 2.0));
        // 1 and 3 %: 2 ± 12.7.
        assert!((point.loss_percent_ci95[1] - 14.706).abs() < 1e-3);
        assert_eq!(point.loss_percent_ci95[0], 0.0);
        assert_eq!(point.lost_by["late-at-run-end"], 20.0);
        assert_eq!(point.published_loss_percent, Some(0.5));
        assert_eq!((point.latency_us.p50, point.latency_us.max), (100.0, 200.0));
        assert!(summary.provenance.contains_key("quick"));
    }
}
