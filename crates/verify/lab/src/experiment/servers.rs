//! A run of servers behind one address: one window of the load test of [`sheaf_bench::serve`], with rates at the scale
//! of the original.

use super::Trial;
use super::live::Turn;
use super::result::{LATENCY_POINTS, RunResult, ServersRun};
use crate::times::latency_of;
use sheaf_bench::serve::{Fault, Placement, Point, PointError, Sample};
use sheaf_load::Spread;
use sheaf_sim::serving::{self, Method, Serving, ServingFault};
use sheaf_testbed::IoError;
use sheaf_testbed::clock::{self, Interrupted};
use sheaf_testbed::tool::{self, Missing};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// Largest rate of bodies ÷ rate of the cables that is no error of the measurement.
const BEYOND_CABLES: f64 = 1.05;

/// Reasons why a run of servers is not made.
#[derive(Debug, Error)]
pub enum ServersRunError {
    /// A signal asked this process to end.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// This program has no path.
    #[error(transparent)]
    Io(#[from] IoError),
    /// Something that was there before the first run is missing now.
    #[error(transparent)]
    Missing(#[from] Missing),
}

impl ServersRunError {
    /// Whether the machine lacks something.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Missing(_))
    }
}

/// Returns what this machine lacks for `serving`.
///
/// # Errors
///
/// [`IoError`] if this program has no path.
pub(super) fn missing(trial: &Trial, serving: &Serving) -> Result<Option<String>, IoError> {
    Ok(point(trial, serving, 1)?.missing())
}

/// Makes a run of `serving`, the servers of `trial`. One that does not come to its end is rejected.
///
/// # Errors
///
/// All of [`ServersRunError`].
pub(super) fn run(
    trial: &Trial,
    serving: &Serving,
    turn: &Turn,
) -> Result<RunResult, ServersRunError> {
    let begin = Instant::now();
    let began = SystemTime::now().duration_since(UNIX_EPOCH);
    let point = point(trial, serving, turn.seed)?;
    let measured = point.measure();
    // What fails after a signal fails because of it.
    clock::check_quit()?;
    let mut result = match measured {
        Ok(sample) => of_sample(serving, &point, &sample),
        Err(PointError::Missing(why)) => return Err(Missing(why).into()),
        Err(PointError::Failed(why)) => RunResult {
            rejected: Some(format!("it did not come to its end: {why}")),
            ..RunResult::default()
        },
    };
    result.trial.clone_from(&trial.id);
    result.iteration = turn.iteration;
    result.attempt = turn.attempt;
    result.seed = turn.seed;
    result.began_unix_s = began.map_or(0, |began| began.as_secs());
    result.wall_s = begin.elapsed().as_secs_f64();
    Ok(result)
}

/// Returns the run that stands for all runs of `trial`, which this machine cannot make.
pub(super) fn skipped(trial: &Trial, why: String) -> RunResult {
    RunResult {
        trial: trial.id.clone(),
        iteration: 1,
        skipped: Some(why),
        ..RunResult::default()
    }
}

fn point(trial: &Trial, serving: &Serving, seed: u64) -> Result<Point, IoError> {
    let window_s = trial.scenario.duration_s;
    let rate = |mbit: f64| (mbit > 0.0).then_some(mbit);
    Ok(Point {
        plane: serving.plane.clone(),
        engine: serving.engine.clone(),
        servers: serving.servers as usize,
        clients: serving.clients,
        client_hosts: serving.client_hosts as usize,
        placement: match serving.placement {
            serving::Placement::Even => Placement::Even,
            serving::Placement::Random => Placement::Random,
        },
        object_bytes: serving.object_bytes,
        is_upload: serving.method == Method::Put,
        server_mbit: rate(serving.server_mbit),
        client_mbit: rate(serving.client_mbit),
        drains: serving.drains,
        fault: serving.fault.map(|fault| match fault {
            ServingFault::ServerKilled => Fault::ServerKilled,
            ServingFault::ServerCut => Fault::ServerCut,
            ServingFault::DirectorKilled => Fault::DirectorKilled,
        }),
        window: Duration::from_secs_f64(window_s),
        warm_up: Duration::from_secs_f64(serving.warm_up_s(window_s)),
        seed,
        program: tool::program()?,
    })
}

fn of_sample(serving: &Serving, point: &Point, sample: &Sample) -> RunResult {
    let outcome = &sample.outcome;
    let failed = outcome.failures();
    let mut problems = Vec::new();
    if point.must_fail() && failed == 0 {
        problems.push("no transfer failed by the fault: this table cannot fail".to_owned());
    }
    if point.fault.is_none() && outcome.broken() > 0 {
        problems.push(format!("{} transfers broken", outcome.broken()));
    }
    if outcome.window_bytes == 0 {
        problems.push("no byte came in the window".to_owned());
    }
    // A server that answered nothing has no name in the outcome, and had no bytes. Where bytes of an upload go is known
    // at its end.
    let mut bytes: Vec<u64> = match serving.method {
        Method::Get => outcome.servers.values().map(|it| it.bytes).collect(),
        Method::Put => {
            let finished = outcome.servers.values().map(|it| it.finished);
            let named = finished.filter(|count| *count > 0);
            named.map(|count| count * serving.object_bytes).collect()
        }
    };
    bytes.resize(bytes.len().max(serving.servers as usize), 0);
    let gbit_per_s = sample.gbit_per_s() * serving.scale;
    let bound = bound_gbit_per_s(serving);
    let rejected = (gbit_per_s > bound * BEYOND_CABLES).then(|| {
        format!(
            "found {gbit_per_s:.1} Gbit/s, expected at most the {bound:.1} of the cables: clients took in the window \
             what had come before it, so the machine was too busy or the window too short"
        )
    });
    let mut result = RunResult {
        rejected,
        generation_s: outcome.seconds,
        announced: outcome.started,
        lost: failed,
        lost_by: outcome
            .failed
            .iter()
            .map(|(failure, count)| (failure.name().to_owned(), *count))
            .collect(),
        goodput_mbit_s: gbit_per_s * 1e3,
        span_s: outcome.seconds,
        fairness: sheaf_figures::stat::jain(&bytes),
        faults: u64::from(point.fault.is_some()),
        problems,
        servers: Some(ServersRun {
            gbit_per_s,
            gbit_per_s_max: sample.gbit_per_s_max() * serving.scale,
            connections_per_s: sample.connections_per_s(),
            held_max: outcome.held_max,
            finished: outcome.finished,
            broken: outcome.broken(),
            drains: sample.drains,
            cpu_s_per_gb: sample.cpu_s_per_gb(),
            others_share: sample.others_share,
            bytes,
        }),
        ..RunResult::default()
    };
    set_latencies(&mut result, &outcome.latencies.transfer);
    result
}

/// Returns what the cables of all servers, or of all client hosts, carry in Gbit/s at the scale of the original.
fn bound_gbit_per_s(serving: &Serving) -> f64 {
    let places = [
        (serving.servers, serving.server_mbit),
        (serving.client_hosts, serving.client_mbit),
    ];
    let cables = places.into_iter().filter(|(_, mbit)| *mbit > 0.0);
    let rates = cables.map(|(count, mbit)| f64::from(count) * mbit * serving.scale / 1e3);
    rates.fold(f64::INFINITY, f64::min)
}

/// Takes in the times of transfers.
fn set_latencies(result: &mut RunResult, spread: &Spread) {
    let at = |q: f64| spread.quantile_ms(q) * 1e3;
    if spread.count() > 0 {
        result.latency_us = latency_of(at);
        let points =
            (0..LATENCY_POINTS).map(|index| at(index as f64 / (LATENCY_POINTS - 1) as f64));
        result.latency_quantiles_us = points.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_load::{Failure, Outcome, Served};

    fn sample(failed: u64, bytes: [u64; 2]) -> Sample {
        let mut outcome = Outcome {
            seconds: 2.0,
            started: 10 + failed,
            finished: 10,
            window_bytes: bytes.iter().sum(),
            ..Outcome::default()
        };
        if failed > 0 {
            outcome.failed.insert(Failure::Reset, failed);
        }
        for (name, bytes) in ["s1", "s2"].into_iter().zip(bytes) {
            let served = Served { finished: 5, bytes };
            outcome.servers.insert(name.to_owned(), served);
        }
        Sample {
            outcome,
            cpu_s: 1.0,
            drains: 0,
            others_share: 0.0,
        }
    }

    fn result(fault: Option<ServingFault>, sample: &Sample) -> RunResult {
        let text = "name = 'x'\nquestion = '?'\n[serving]\nplane = 'userspace'\nservers = 4\n";
        let experiment = super::super::Experiment::parse(text, "x").unwrap();
        let trial = &experiment.trials().unwrap()[0];
        let serving = Serving {
            fault,
            ..trial.scenario.serving.clone().unwrap()
        };
        let point = point(trial, &serving, 1).unwrap();
        of_sample(&serving, &point, sample)
    }

    #[test]
    fn rates_have_the_scale_of_the_original_and_servers_without_bytes_count() {
        let run = result(None, &sample(0, [60_000_000, 20_000_000]));
        let servers = run.servers.unwrap();
        assert!((servers.gbit_per_s - 16.0).abs() < 1e-9, "{servers:?}");
        assert!((run.goodput_mbit_s - 16_000.0).abs() < 1e-6);
        assert_eq!(servers.bytes, [60_000_000, 20_000_000, 0, 0]);
        // (60 + 20)² ÷ (4 × (60² + 20²))
        assert!((run.fairness - 0.4).abs() < 1e-9, "{}", run.fairness);
        assert_eq!((run.announced, run.lost, run.problems.len()), (10, 0, 0));
        assert_eq!(run.rejected, None);
    }

    #[test]
    fn a_run_that_is_faster_than_the_cables_is_rejected() {
        // Four servers with 200 Mbit/s: 40 Gbit/s at the scale of the original, 200 MB in 2 s here.
        assert_eq!(result(None, &sample(0, [100_000_000; 2])).rejected, None);
        let beyond = result(None, &sample(0, [110_000_000; 2])).rejected.unwrap();
        let told = "found 44.0 Gbit/s, expected at most the 40.0 of the cables";
        assert!(beyond.contains(told), "{beyond}");
        let free = Serving {
            server_mbit: 0.0,
            client_mbit: 0.0,
            ..Serving::default()
        };
        assert_eq!(bound_gbit_per_s(&free), f64::INFINITY);
        assert_eq!(bound_gbit_per_s(&Serving::default()), 50.0);
    }

    #[test]
    fn a_fault_that_nothing_shows_and_a_break_without_a_fault_are_problems() {
        let bytes = [1_000_000; 2];
        let killed = Some(ServingFault::DirectorKilled);
        assert!(result(killed, &sample(3, bytes)).problems.is_empty());
        let blind = result(killed, &sample(0, bytes)).problems;
        assert!(blind[0].contains("this table cannot fail"), "{blind:?}");
        let broken = result(None, &sample(3, bytes));
        assert_eq!(broken.problems, ["3 transfers broken"]);
        assert_eq!(broken.lost_by["reset"], 3);
        let none = result(None, &sample(0, [0; 2])).problems;
        assert_eq!(none, ["no byte came in the window"]);
    }
}
