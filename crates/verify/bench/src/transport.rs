//! The transport alone, beside plain TCP and other libraries.
//!
//! `options` says what is asked and `kinds` what there is to measure; `stage` makes the networks, `rig` does one run,
//! with `iperf3` for the program that speaks its own language and `serve` for receivers at another host; `report` makes
//! rows of the runs, `table` and `page` show them. [`peer`] is one side of our own transport.

mod iperf3;
mod kinds;
mod options;
mod page;
pub mod peer;
mod report;
mod rig;
mod serve;
mod stage;
mod table;

use crate::cpus::Cpus;
use anyhow::Context as _;
use kinds::Found;
pub use kinds::names;
pub use options::{Options, Path, Receivers, SIZES, Shape, Side};
pub use page::Figure;
pub use report::Report;
use report::{Row, Run};
use rig::{Case, Rig, RunFigures};
use serve::Remote;
pub use serve::Server;
use stage::Stage;
use std::time::Instant;

/// Runs the benchmark; `tell` takes a line for each run, and for whatever is left out.
///
/// # Errors
///
/// [`Missing`](crate::Missing) if a transport that was asked for is not there, or what stands in the way of a network.
pub fn measure(options: &Options, tell: &mut dyn FnMut(&str)) -> anyhow::Result<Report> {
    let (found, missing) = kinds::find(options)?;
    for one in &missing {
        tell(&format!("skipped: {one}"));
    }
    let cpus = Cpus::allowed(options.pin).context("cannot read the CPU affinity")?;
    let remote = match &options.receivers {
        Receivers::Host(host) => Some(Remote::start(host)?),
        Receivers::Here | Receivers::Server { .. } => None,
    };
    let at = match (&remote, &options.receivers) {
        (Some(remote), _) => Some((remote.address, remote.token.clone())),
        (None, Receivers::Server { address, token }) => Some((*address, token.clone())),
        (None, _) => None,
    };
    let paths = if at.is_some() {
        vec![Path::Remote]
    } else {
        options.paths.clone()
    };
    let mut rows = Vec::new();
    let mut progress = Progress::new(paths.len() * cases(options).len());
    for path in paths {
        let stage = Stage::make(path, &options.congestion)?;
        if let Some(doubt) = &stage.doubt {
            tell(&format!(
                "{doubt}; congestion control {} is in force",
                stage.congestion
            ));
        }
        let rig = Rig {
            options,
            stage: &stage,
            cpus: &cpus,
            remote: at.clone(),
        };
        for case in cases(options) {
            rows.extend(measure_case(&rig, path, &case, &found, &mut progress, tell));
            progress.case_done();
        }
    }
    Ok(Report::new(options, &cpus, rows, missing))
}

/// Runs `case` with the transport `found`.
fn run(rig: &Rig<'_>, found: &Found, case: &Case) -> anyhow::Result<RunFigures> {
    let done = if found.is_iperf3() {
        iperf3::run(rig, found, case)
    } else {
        rig.run(found, case)
    };
    done.with_context(|| format!("{} with messages of {} bytes", found.kind.name, case.bytes))
}

fn cases(options: &Options) -> Vec<Case> {
    let mut cases = Vec::new();
    for &shape in &options.shapes {
        for &binds in &options.binds {
            for &queue in &options.queues {
                cases.extend(options.sizes.iter().map(|&bytes| Case {
                    shape,
                    bytes,
                    queue,
                    binds,
                    pool_bytes: options.pool_bytes,
                    receive_bytes: options.receive_bytes.unwrap_or(options.pool_bytes),
                }));
            }
        }
    }
    cases
}

/// Takes rounds until each transport has enough undisturbed ones, or twice as many were taken. A transport that
/// fails is left out from then on.
fn measure_case(
    rig: &Rig<'_>,
    path: Path,
    case: &Case,
    found: &[Found],
    progress: &mut Progress,
    tell: &mut dyn FnMut(&str),
) -> Vec<Row> {
    let wanted = rig.options.pairs as usize;
    let mut tracks: Vec<(&Found, Vec<Run>, Option<String>)> = found
        .iter()
        .map(|one| {
            let refused = one.refuses(path, case.shape, case.binds, case.bytes);
            (one, Vec::new(), refused)
        })
        .collect();
    for round in 0..2 * wanted {
        let mut plain = None;
        for (one, runs, failed) in &mut tracks {
            let kept = runs.iter().filter(|run| run.is_kept()).count();
            let is_plain = one.kind.name == kinds::KINDS[0].name;
            if failed.is_some() || (kept >= wanted && !is_plain) {
                continue;
            }
            match run(rig, one, case) {
                Ok(figures) => {
                    tell(&progress.line(path, case, one.kind.name, round, &figures));
                    if is_plain {
                        plain = Some(figures.clone());
                    }
                    let plain = plain.clone();
                    runs.push(Run { figures, plain });
                }
                Err(error) => {
                    tell(&format!("{} is left out: {error:#}", one.kind.name));
                    *failed = Some(format!("{error:#}"));
                }
            }
        }
        let is_enough = |(_, runs, failed): &(_, Vec<Run>, Option<String>)| {
            failed.is_some() || runs.iter().filter(|run| run.is_kept()).count() >= wanted
        };
        if tracks.iter().all(is_enough) {
            break;
        }
    }
    let rows = tracks.into_iter().map(|(one, runs, failed)| {
        let conditions = report::Conditions {
            path,
            congestion_wanted: &rig.options.congestion,
            congestion: &rig.stage.congestion,
            stage_doubt: rig.stage.doubt.as_deref(),
            is_pinned: rig.cpus.pair().is_some(),
            failed,
        };
        Row::new(one.kind, case, &runs, &conditions)
    });
    rows.collect()
}

/// How far a benchmark is.
#[derive(Debug)]
struct Progress {
    began: Instant,
    cases: usize,
    done: usize,
}

impl Progress {
    fn new(cases: usize) -> Self {
        Self {
            began: Instant::now(),
            cases,
            done: 0,
        }
    }

    fn case_done(&mut self) {
        self.done += 1;
    }

    fn line(
        &self,
        path: Path,
        case: &Case,
        name: &str,
        round: usize,
        figures: &RunFigures,
    ) -> String {
        let left = if self.done == 0 {
            String::new()
        } else {
            let spent = self.began.elapsed().as_secs_f64();
            let left_s = spent / self.done as f64 * (self.cases - self.done) as f64;
            format!(", about {:.0} min left", (left_s / 60.0).ceil())
        };
        format!(
            "{}/{}{left}: {path} {} {} bytes, round {}: {name} {:.0} MB/s, {:.3} CPU s/GB, busy {:.2}",
            self.done + 1,
            self.cases,
            case.shape,
            case.bytes,
            round + 1,
            figures.mb_per_s,
            figures.cpu_s_per_gb,
            figures.busy_ratio
        )
    }
}
