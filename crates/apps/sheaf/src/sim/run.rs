//! `sheaf sim run`: the simulated points of an experiment, in virtual time.

use crate::{fail, json_file, progress};
use anyhow::Context as _;
use serde_json::json;
use sheaf_farm::proc::usage;
use sheaf_lab::experiment::{Experiment, ExperimentError};
use sheaf_lab::records::{Of, RecordsFile};
use sheaf_sim::des::{PointRun, Progress, Run, run_point};
use sheaf_sim::scenario::Scenario;
use sheaf_sim::summary::{Kind, Latency, Point, Summary};
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Simulate an experiment file: farms of any size on modelled networks.
///
/// The shipped scheduler, builder and hold run in it. A row a point is printed; --json, --csv and --out keep the
/// figures. Equal files and seeds give equal figures and the same trace hash. All keys of a file are in
/// docs/explanation/simulator.md.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf sim run experiments/scenarios/small.toml                       seconds of a small farm
  sheaf sim run experiments/scenarios/incast.toml --csv incast.csv     1 to 24 FLPs into one EPN, granted and pushed
  sheaf sim run experiments/scale-250x1750.toml --json s.json
  sheaf sim run experiments/scenarios/small.toml --records tfs.csv     a row a TF, with all its times
  sheaf sim run experiments/scenarios/small.toml --seed 7 --duration 2 other seed, 2 s only")]
pub(crate) struct Args {
    /// Read this experiment (TOML); its simulated points are run.
    file: PathBuf,
    /// Use this seed in place of that of the file.
    #[arg(long)]
    seed: Option<u64>,
    /// Make TFs for this time, in s, in place of that of the file.
    #[arg(long, value_name = "SECONDS")]
    duration: Option<f64>,
    /// Make this many runs of each point, in place of those of the file.
    #[arg(long, value_name = "N")]
    iterations: Option<u32>,
    /// Write events, speed, memory, trace hash and the points as JSON to this file; `-`: standard output, and text to
    /// the standard error.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write one row a point to this file.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write one row a TF, with the time of each of its steps, to this file: .csv, or .parquet in builds that have it.
    #[arg(long, value_name = "FILE")]
    records: Option<PathBuf>,
    /// Write summary.json, points.csv and runs.csv into this folder, which must not hold results yet.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Result of a whole command.
struct Totals {
    events: u64,
    stfs: u64,
    simulated_s: f64,
    wall_s: f64,
    trace_hash: u64,
}

/// Simulates an experiment file.
///
/// # Errors
///
/// A file that is no experiment, results that are there already, books that do not agree, or a file that cannot be
/// written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (name, scenarios) = read(args)?;
    if let Some(folder) = &args.out {
        claim(folder)?;
    }
    run_all(args, &name, &scenarios)
}

/// The points of the file, with what the command line says of them.
fn read(args: &Args) -> anyhow::Result<(String, Vec<Scenario>)> {
    let refuse = |error: ExperimentError| {
        // Errors of reading name the file, those of points the experiment.
        let (file, text) = (args.file.display().to_string(), error.to_string());
        fail::bad_use(match text.contains(&file) {
            true => text,
            false => format!("{file}: {text}"),
        })
    };
    let mut experiment = Experiment::read_for_simulator(&args.file).map_err(refuse)?;
    if let Some(duration_s) = args.duration {
        experiment = experiment.last(duration_s);
    }
    experiment.seed = args.seed.unwrap_or(experiment.seed);
    let iterations = args.iterations.unwrap_or(experiment.iterations);
    let trials = experiment.trials().map_err(refuse)?;
    if trials.iter().any(|trial| trial.scenario.writing.is_some()) {
        return Err(fail::bad_use(format!(
            "{}: found points with [writing], expected farms; `sheaf lab run` simulates writers, too",
            args.file.display()
        )));
    }
    let simulated = trials.into_iter().filter(|trial| trial.source == Kind::Sim);
    let scenarios: Vec<Scenario> = simulated
        .map(|trial| Scenario {
            iterations,
            ..trial.scenario
        })
        .collect();
    if scenarios.is_empty() {
        let expected = "no point has source = \"sim\"; `sheaf lab run` makes live ones";
        return Err(fail::bad_use(format!(
            "{}: {expected}",
            args.file.display()
        )));
    }
    Ok((experiment.name, scenarios))
}

/// Makes the folder of results, or says that there are others.
fn claim(folder: &Path) -> anyhow::Result<()> {
    if folder.join("summary.json").exists() {
        return Err(fail::bad_use(format!(
            "--out: {} holds results already, expected a new or empty folder",
            folder.display()
        )));
    }
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

fn run_all(args: &Args, name: &str, scenarios: &[Scenario]) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    let mut bar = Bar::new(scenarios, began);
    let records = args.records.as_deref().map(RecordsFile::create);
    let mut records = records.transpose().map_err(fail::bad_use)?;
    let mut points = Vec::new();
    for (index, scenario) in scenarios.iter().enumerate() {
        let mut written = Ok(());
        let take = |run: &Run| {
            if let (Some(file), Ok(())) = (&mut records, &written) {
                written = file.add(&Of {
                    point: index,
                    label: &scenario.label,
                    seed: run.seed,
                    records: &run.records,
                });
            }
        };
        let progress = |iteration, at| bar.tell(index, iteration, at);
        let point = run_point(scenario, progress, take).map_err(fail::bad_use)?;
        written?;
        points.push(point);
    }
    if let Some(file) = records {
        file.finish()?;
    }
    bar.end();
    let totals = totals(&points, began.elapsed());
    let broken: Vec<String> = points
        .iter()
        .flat_map(|point| &point.runs)
        .filter(|run| !run.is_conserved())
        .map(|run| format!("seed {}: {run:?}", run.seed))
        .collect();
    let mut summary = Summary::new(name);
    summary.points = points.iter().map(|point| point.point.clone()).collect();
    summary.provenance = [
        ("command", std::env::args().collect::<Vec<_>>().join(" ")),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect();
    keep(args, &summary, &points, &totals)?;
    let text = table(&summary.points) + &closing(&totals);
    json_file::tell(args.json.as_deref(), &text)?;
    if broken.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    anyhow::bail!(
        "the books do not agree with what happened: {}",
        broken.join("; ")
    )
}

fn totals(points: &[PointRun], wall: Duration) -> Totals {
    let runs = || points.iter().flat_map(|point| &point.runs);
    Totals {
        events: runs().map(|run| run.events).sum(),
        stfs: runs().map(|run| run.stfs).sum(),
        simulated_s: runs().map(|run| run.simulated_ns as f64 / 1e9).sum(),
        wall_s: wall.as_secs_f64(),
        trace_hash: points.iter().fold(0, |hash: u64, point| {
            hash.rotate_left(17) ^ point.trace_hash
        }),
    }
}

fn keep(
    args: &Args,
    summary: &Summary,
    points: &[PointRun],
    totals: &Totals,
) -> anyhow::Result<()> {
    let write = |path: &Path, text: String| {
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    let rows = || {
        let mut text = Point::CSV_HEADER.to_owned() + "\n";
        for point in &summary.points {
            text += &point.csv();
            text.push('\n');
        }
        text
    };
    if let Some(path) = &args.json {
        let used = usage(std::process::id()).unwrap_or_default();
        let text = json!({
            "format": summary.format,
            "experiment": summary.experiment,
            "events": totals.events,
            "events_per_s": totals.events as f64 / totals.wall_s,
            "simulated_s": totals.simulated_s,
            "wall_s": totals.wall_s,
            "cpu_s": used.cpu_s,
            "rss_bytes_max": used.rss_bytes_max,
            "trace_hash": format!("{:016x}", totals.trace_hash),
            "points": summary.points,
        });
        json_file::write(path, &format!("{text:#}\n"))?;
    }
    if let Some(path) = &args.csv {
        write(path, rows())?;
    }
    if let Some(folder) = &args.out {
        write(&folder.join("points.csv"), rows())?;
        write(&folder.join("runs.csv"), runs_csv(points))?;
        write(&folder.join("summary.json"), summary.to_json() + "\n")?;
    }
    Ok(())
}

/// Every run as it was, before any mean.
fn runs_csv(points: &[PointRun]) -> String {
    let mut text = "point,seed,announced,complete,lost,out_of_order,in_flight,bytes,span_ns,goodput_mbit_s,\
        reassigned,timeouts,stfs,flp_peak_bytes,epn_peak_bytes,fairness,events,simulated_ns,trace_hash\n"
        .to_owned();
    for (index, point) in points.iter().enumerate() {
        for run in &point.runs {
            let _ = writeln!(
                text,
                "{index},{},{},{},{},{},{},{},{},{:.4},{},{},{},{},{},{:.6},{},{},{:016x}",
                run.seed,
                run.announced,
                run.complete,
                run.lost(),
                run.out_of_order,
                run.in_flight,
                run.bytes,
                run.span_ns,
                run.goodput_mbit_s(),
                run.reassigned,
                run.timeouts,
                run.stfs,
                run.flp_peak_bytes,
                run.epn_peak_bytes,
                run.fairness(),
                run.events,
                run.simulated_ns,
                run.trace_hash,
            );
        }
    }
    text
}

fn table(points: &[Point]) -> String {
    let mut text = format!(
        "{:>9} {:>6} {:>10} {:<16} {:<8} {:>8} {:>8} {:>9} {:>10} {:>10} {:>10} {:>10} {:>10} {:>8} {:>6}  {}\n",
        "FLPs:EPNs",
        "Hz",
        "bytes",
        "policy",
        "push",
        "TFs",
        "lost",
        "lost %",
        "Mbit/s",
        "p50 ms",
        "p99 ms",
        "wait p50",
        "wait p99",
        "peak MB",
        "fair",
        "mode"
    );
    for point in points {
        let nodes = format!("{}:{}", point.flps, point.epns);
        let _ = writeln!(
            text,
            "{nodes:>9} {:>6} {:>10} {:<16} {:<8} {:>8.0} {:>8.1} {:>9.3} {:>10.2} {:>10.2} {:>10.2} {:>10} {:>10} {:>8.1} {:>6.3}  {}",
            point.rate_hz,
            point.bytes,
            point.policy,
            point.push,
            point.announced,
            point.lost_mean,
            point.loss_percent,
            point.goodput_mbit_s,
            point.latency_us.p50 / 1000.0,
            point.latency_us.p99 / 1000.0,
            wait(point, |times| times.p50),
            wait(point, |times| times.p99),
            point.epn_peak_bytes as f64 / 1e6,
            point.fairness,
            mode(point),
        );
    }
    text
}

/// Time from announce to the begin of processing, in ms.
fn wait(point: &Point, of: impl Fn(&Latency) -> f64) -> String {
    let times = point.wait_us.as_ref();
    times.map_or("-".to_owned(), |times| format!("{:.2}", of(times) / 1000.0))
}

/// The mode, why TFs were lost, and those that no consumer has finished.
fn mode(point: &Point) -> String {
    let mut text = point.mode.clone();
    for (what, tfs) in [
        ("unprocessed", point.unprocessed),
        ("died-unprocessed", point.died_unprocessed),
    ] {
        if tfs > 0.0 {
            let _ = write!(text, ", {what} {tfs:.1}");
        }
    }
    for (cause, lost) in &point.lost_by {
        let _ = write!(text, ", {cause} {lost:.1}");
    }
    text
}

fn closing(totals: &Totals) -> String {
    format!(
        "{} events in {:.1} s ({:.2} million/s), {} STFs, {:.1} s simulated ({:.2} × real time), trace {:016x}\n",
        totals.events,
        totals.wall_s,
        totals.events as f64 / totals.wall_s / 1e6,
        totals.stfs,
        totals.simulated_s,
        totals.simulated_s / totals.wall_s,
        totals.trace_hash,
    )
}

/// How far it is, on a terminal.
struct Bar {
    runs: f64,
    iterations: u32,
    began: Instant,
    told_at: Instant,
    is_terminal: bool,
}

impl Bar {
    fn new(scenarios: &[Scenario], began: Instant) -> Self {
        let iterations = scenarios.first().map_or(1, |scenario| scenario.iterations);
        Self {
            runs: scenarios.len() as f64 * f64::from(iterations),
            iterations,
            began,
            told_at: began,
            is_terminal: std::io::stderr().is_terminal(),
        }
    }

    fn tell(&mut self, point: usize, iteration: u32, at: Progress) {
        let every = Duration::from_secs(if self.is_terminal { 1 } else { 10 });
        if self.told_at.elapsed() < every {
            return;
        }
        self.told_at = Instant::now();
        let before = point as f64 * f64::from(self.iterations) + f64::from(iteration);
        let within = (at.simulated_s / at.duration_s).min(1.0);
        let part = ((before + within) / self.runs).clamp(1e-6, 1.0);
        let spent_s = self.began.elapsed().as_secs_f64();
        let left_s = spent_s * (1.0 - part) / part;
        let line = format!(
            "{:5.1} %  run {:.0} of {:.0}, {:.1} of {:.1} s simulated, {left_s:.0} s left",
            part * 100.0,
            before + 1.0,
            self.runs,
            at.simulated_s,
            at.duration_s,
        );
        if self.is_terminal {
            progress::part(format_args!("\r{line}   "));
        } else {
            progress::line(line);
        }
    }

    fn end(&self) {
        if self.is_terminal {
            progress::part(format_args!("\r{:78}\r", ""));
        }
    }
}
