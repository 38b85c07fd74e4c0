//! `sheaf bench transport`: the transport alone, beside plain TCP and other libraries.
//!
//! `args` says what is wanted and `kinds` what there is to measure; `stage` makes the networks, `rig` does one run,
//! with `iperf3` for the program that speaks its own language and `serve` for receivers at another host; `report` makes
//! rows of the runs, `table` and `page` show them.

pub(crate) mod args;
mod iperf3;
mod kinds;
mod page;
mod report;
mod rig;
mod serve;
mod stage;
mod stat;
mod table;

use super::cpus::Cpus;
use anyhow::Context as _;
use args::{Path, TransportArgs};
use kinds::Found;
use report::{Report, Row, Run};
use rig::{Case, Rig};
use serve::Remote;
use stage::Stage;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Instant;

/// Runs it.
///
/// # Errors
///
/// What is wrong with the arguments, or what cannot be written.
pub(crate) fn run(args: &TransportArgs) -> anyhow::Result<ExitCode> {
    if let Some(address) = args.serve {
        serve::serve(args, address)?;
        return Ok(ExitCode::SUCCESS);
    }
    let report = measure(args)?;
    // To machines first: a reader of the table may have gone.
    if let Some(path) = &args.json {
        write(path, &report.to_json())?;
    }
    let figures = page::figures(&report)?;
    if let Some(folder) = &args.plots {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        for figure in &figures {
            write(&folder.join(format!("{}.svg", figure.name)), &figure.svg)?;
        }
    }
    if let Some(path) = &args.html {
        write(path, &page::html(&report, &figures))?;
    }
    let text = report.to_string();
    std::io::stdout()
        .write_all(text.as_bytes())
        .context("cannot write the table")?;
    Ok(ExitCode::SUCCESS)
}

fn write(path: &std::path::Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn measure(args: &TransportArgs) -> anyhow::Result<Report> {
    let (found, missing) = kinds::find(args)?;
    for one in &missing {
        eprintln!("skipped: {one}");
    }
    let cpus = Cpus::allowed(args.pin.unwrap_or(true)).context("cannot read the CPU affinity")?;
    let remote = args.remote.as_deref().map(Remote::start).transpose()?;
    let at = match (&remote, args.connect, &args.token) {
        (Some(remote), ..) => Some((remote.address, remote.token.clone())),
        (None, Some(address), Some(token)) => Some((address, token.clone())),
        _ => None,
    };
    let paths = if at.is_some() {
        vec![Path::Remote]
    } else {
        args.paths.clone()
    };
    let mut rows = Vec::new();
    let mut progress = Progress::new(paths.len() * cases(args).len());
    for path in paths {
        let stage = Stage::make(path, &args.congestion)?;
        if let Some(doubt) = &stage.doubt {
            eprintln!(
                "{doubt}; congestion control {} is in force",
                stage.congestion
            );
        }
        let rig = Rig {
            args,
            stage: &stage,
            cpus: &cpus,
            remote: at.clone(),
        };
        for case in cases(args) {
            rows.extend(measure_case(&rig, path, &case, &found, &mut progress));
            progress.case_done();
        }
    }
    Ok(Report::new(args, &cpus, rows, missing))
}

fn cases(args: &TransportArgs) -> Vec<Case> {
    let mut cases = Vec::new();
    for &shape in &args.shapes {
        for &binds in &args.binds {
            for &queue in &args.queues {
                cases.extend(args.sizes.iter().map(|&bytes| Case {
                    shape,
                    bytes,
                    queue,
                    binds,
                    pool_bytes: args.pool_bytes,
                    receive_bytes: args.receive_bytes.unwrap_or(args.pool_bytes),
                }));
            }
        }
    }
    cases
}

/// Takes rounds until each transport has enough undisturbed ones, or twice as many were taken. A transport that
/// fails is told and left out from then on.
fn measure_case(
    rig: &Rig<'_>,
    path: Path,
    case: &Case,
    found: &[Found],
    progress: &mut Progress,
) -> Vec<Row> {
    let wanted = rig.args.pairs as usize;
    let mut tracks: Vec<(&Found, Vec<Run>, Option<String>)> = found
        .iter()
        .map(|one| (one, Vec::new(), one.refuses(path, case.shape, case.bytes)))
        .collect();
    for round in 0..2 * wanted {
        let mut plain = None;
        for (one, runs, failed) in &mut tracks {
            let kept = runs.iter().filter(|run| run.is_kept()).count();
            let is_plain = one.kind.name == kinds::KINDS[0].name;
            if failed.is_some() || (kept >= wanted && !is_plain) {
                continue;
            }
            match rig.run(one, case) {
                Ok(figures) => {
                    progress.tell(path, case, one.kind.name, round, &figures);
                    if is_plain {
                        plain = Some(figures.clone());
                    }
                    let plain = plain.clone();
                    runs.push(Run { figures, plain });
                }
                Err(error) => {
                    eprintln!("{} is left out: {error:#}", one.kind.name);
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
            congestion_wanted: &rig.args.congestion,
            congestion: &rig.stage.congestion,
            stage_doubt: rig.stage.doubt.as_deref(),
            is_pinned: rig.cpus.pair().is_some(),
            failed,
        };
        Row::new(one.kind, case, &runs, &conditions)
    });
    rows.collect()
}

/// Tells on the standard error how far it is.
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

    fn tell(&self, path: Path, case: &Case, name: &str, round: usize, figures: &rig::RunFigures) {
        let left = if self.done == 0 {
            String::new()
        } else {
            let spent = self.began.elapsed().as_secs_f64();
            let left_s = spent / self.done as f64 * (self.cases - self.done) as f64;
            format!(", about {:.0} min left", (left_s / 60.0).ceil())
        };
        eprintln!(
            "{}/{}{left}: {path} {} {} bytes, round {}: {name} {:.0} MB/s, {:.3} CPU s/GB, busy {:.2}",
            self.done + 1,
            self.cases,
            case.shape,
            case.bytes,
            round + 1,
            figures.mb_per_s,
            figures.cpu_s_per_gb,
            figures.busy_ratio
        );
    }
}
