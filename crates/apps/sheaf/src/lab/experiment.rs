//! `sheaf lab run`: the runs of an experiment file.

use crate::json_file::print_text;
use crate::{duration, fail, progress};
use anyhow::Context as _;
use sheaf_lab::LabError;
use sheaf_lab::experiment::Experiment;
use sheaf_lab::experiment::result::RunResult;
use sheaf_lab::experiment::run::{self, Options, Progress, RunError};
use sheaf_lab::plot::{self, Question, Series};
use sheaf_lab::report::{markdown, pages};
use sheaf_lab::results::Results;
use sheaf_lab::{calibrate, compare, machine, output};
use sheaf_testbed::hosts::{Inventory, OpenError};
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Exit status after a signal.
pub(super) const INTERRUPTED: u8 = 130;

/// Run an experiment file: every point of its matrix, live or simulated.
///
/// Live points need root, or machines to run on (--hosts); planes that this machine lacks are named, and not run. Each
/// run leaves a file in the folder of results: after an interruption the same command goes on where it was. Runs whose
/// generation takes longer or shorter than it should are rejected, told, and made again.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf lab run experiments/round-robin-icn.toml --list
  sheaf lab run experiments/round-robin-icn.toml --quick
  sheaf lab run experiments/round-robin-icn.toml --iterations 30 --out results/round-robin
  sheaf lab run experiments/network-baseline.toml --only legacy --duration 10s
  sheaf lab run experiments/failover.toml --only sheaf --hosts stand.toml
  sheaf lab run experiments/sfo-2016.toml --page sfo-2016.md
  sheaf lab run experiments/lvs-gridftp.toml --duration 12s")]
pub(super) struct RunArgs {
    /// Read this experiment file.
    #[arg(value_name = "EXPERIMENT")]
    file: PathBuf,
    /// Run every point once, for 5 s.
    #[arg(long, conflicts_with_all = ["iterations", "duration"])]
    quick: bool,
    /// Make this many runs of each point, in place of those of the file.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    iterations: Option<u32>,
    /// Generate for this time in each run, in place of that of the file.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    duration: Option<Duration>,
    /// Run only points with this in their name or description; may be repeated.
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Write results into this folder; without it, results/NAME, or results/NAME-quick.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Run live points on the machines of this inventory (see `sheaf lab hosts`), in place of namespaces.
    #[arg(long, value_name = "INVENTORY")]
    hosts: Option<PathBuf>,
    /// Take the numbers of the machine for simulated points from this file of `sheaf lab machine`.
    #[arg(long, value_name = "FILE")]
    machine: Option<PathBuf>,
    /// Show the points, and run nothing.
    #[arg(long)]
    list: bool,
    /// Write the summary as JSON to this file; `-`: standard output, and text to the standard error.
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    json: Option<PathBuf>,
    /// Write the results as a page of Markdown to this file.
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    page: Option<PathBuf>,
}

/// Write a page of HTML with all figures of a folder of results.
///
/// The figures lie beside it as SVG files, too. Reads what `sheaf lab run` or `sheaf sim run` left. Writes report.html
/// and plots/ into the same folder.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf lab report results/round-robin-icn
  sheaf lab report summary.json --out page")]
pub(super) struct ReportArgs {
    /// Read this folder of results, or summary.json.
    #[arg(value_name = "DIR")]
    results: PathBuf,
    /// Write into this folder, in place of that of the results.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write the summary as JSON to this file; `-`: standard output, and text to the standard error.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the results as a page of Markdown to this file.
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
}

/// Draw one value of a folder of results over another.
///
/// Values go by their names in summary.json (load, latency_us.p99) and in the files of runs (waits.wait.us.p99); one
/// that runs have is drawn as their mean with its interval of 95 %.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf lab plot results/policies-waits --x load --y waits.wait.us.p99 --by policy \\
      --where 'label=35 EPNs' --log-y --out waits.svg
  sheaf lab plot results/scale --x epns --y goodput_mbit_s --json -")]
pub(super) struct PlotArgs {
    /// Read this folder of results, or summary.json.
    #[arg(value_name = "DIR")]
    results: PathBuf,
    /// Draw over this value.
    #[arg(long, value_name = "NAME")]
    x: String,
    /// Draw this value.
    #[arg(long, value_name = "NAME")]
    y: String,
    /// Draw a line for each of these values; may be repeated.
    #[arg(long, value_name = "NAME")]
    by: Vec<String>,
    /// Draw only points with this value; may be repeated.
    #[arg(long = "where", value_name = "NAME=VALUE", value_parser = equation)]
    only: Vec<(String, String)>,
    /// Make the axis below logarithmic.
    #[arg(long)]
    log_x: bool,
    /// Make the axis beside logarithmic.
    #[arg(long)]
    log_y: bool,
    /// Write the figure to this file, as SVG; without it, only the numbers are shown.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write the lines as JSON to this file; `-`: standard output, and text to the standard error.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Parses `NAME=VALUE`.
fn equation(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=');
    parts
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .ok_or_else(|| format!("found {text:?}, expected NAME=VALUE"))
}

/// Compare two sets of results: differences and their significance.
///
/// Differences are given in standard deviations, too. Points are the same if the same was asked; if that names one
/// point only, rules and way may differ, so that sheaf can be compared with legacy, and live with simulated.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf lab compare results/before results/after")]
pub(super) struct CompareArgs {
    /// Read this folder of results, or summary.json.
    a: PathBuf,
    /// Compare with this folder of results, or summary.json.
    b: PathBuf,
    /// Write the comparison as JSON to this file; `-`: standard output, and text to the standard error.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Compare simulated with live points of one experiment.
///
/// Losses differ by percentage points, goodput and quantiles of latency and wait by percent of the live figure, each
/// the median of its runs; then the median error over all points, the worst, and how many are within the aim: 1 point
/// of loss, 2 % of goodput, 10 % of latency, 15 % of wait.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf lab run experiments/calibration.toml
  sheaf lab calibrate results/calibration --json calibration.json
  sheaf lab calibrate results/holdout --page holdout.md")]
pub(super) struct CalibrateArgs {
    /// Read this folder of results, or summary.json.
    #[arg(value_name = "DIR")]
    results: PathBuf,
    /// Write the errors as a page of Markdown to this file.
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// Write the errors as JSON to this file; `-`: standard output, and text to the standard error.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Writes the page.
pub(super) fn report(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let results = Results::read(&args.results).map_err(super::refuse)?;
    let beside = if args.results.is_dir() {
        Some(args.results.as_path())
    } else {
        args.results.parent()
    };
    let folder = args.out.as_deref().or(beside).unwrap_or(Path::new("."));
    let page = pages::write(&results, folder).map_err(super::refuse)?;
    write_page(args.page.as_deref(), &results)?;
    let text = format!("{}{}\n", pages::table(&results.summary), page.display());
    super::finish(&text, &results.summary, args.json.as_deref(), true)
}

/// Draws.
pub(super) fn plot(args: &PlotArgs) -> anyhow::Result<ExitCode> {
    let results = Results::read(&args.results).map_err(super::refuse)?;
    let question = Question {
        x: args.x.clone(),
        y: args.y.clone(),
        by: args.by.clone(),
        only: args.only.clone(),
        is_log_x: args.log_x,
        is_log_y: args.log_y,
    };
    let series = draw(&results, &question, args.out.as_deref())?;
    let text = plot::table(&question, &series);
    super::finish(&text, &series, args.json.as_deref(), true)
}

/// Returns the lines that answer `question`, and draws them into `file`, if there is one.
pub(super) fn draw(
    results: &Results,
    question: &Question,
    file: Option<&Path>,
) -> anyhow::Result<Vec<Series>> {
    let series = plot::series(results, question).map_err(fail::bad_use)?;
    if let Some(file) = file {
        let experiment = &results.summary.experiment;
        let svg = plot::draw(experiment, question, &series).map_err(fail::bad_use)?;
        output::write(file, &svg)?;
    }
    Ok(series)
}

/// Compares.
pub(super) fn compare(args: &CompareArgs) -> anyhow::Result<ExitCode> {
    let read = |path: &Path| Results::read(path).map_err(super::refuse);
    let comparison = compare::of(&read(&args.a)?, &read(&args.b)?);
    super::finish(
        &compare::table(&comparison),
        &comparison,
        args.json.as_deref(),
        true,
    )
}

/// Shows the errors of the simulator.
pub(super) fn calibrate(args: &CalibrateArgs) -> anyhow::Result<ExitCode> {
    let results = Results::read(&args.results).map_err(super::refuse)?;
    let calibration = calibrate::of(&results, &args.results).map_err(super::refuse)?;
    if let Some(page) = &args.page {
        output::write(page, calibrate::markdown(&results, &calibration))?;
    }
    super::finish(
        &calibrate::table(&calibration),
        &calibration,
        args.json.as_deref(),
        true,
    )
}

/// Runs it.
pub(super) fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let options = options(args).map_err(super::refuse)?;
    let trials = run::select(&options).map_err(super::refuse)?;
    if args.list {
        let lines = trials
            .iter()
            .map(|trial| format!("{:<36} {}\n", trial.id, trial.line()));
        print_text(&lines.collect::<String>())?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some((results, page)) = make(&options)? else {
        return Ok(ExitCode::from(INTERRUPTED));
    };
    write_page(args.page.as_deref(), &results)?;
    let summary = &results.summary;
    let text = format!(
        "{}results are in {}, shown by {}\n",
        pages::table(summary),
        options.out.display(),
        page.display()
    );
    super::finish(&text, summary, args.json.as_deref(), true)
}

/// Makes the runs that are missing, and the page of HTML. Returns all results, and the path of the page; `None` after a
/// signal, with a line on the standard error.
pub(super) fn make(options: &Options) -> anyhow::Result<Option<(Results, PathBuf)>> {
    let mut bar = Bar::default();
    let outcome = run::run(options, |progress| bar.tell(progress));
    bar.clear();
    match outcome {
        Ok(_) => {}
        Err(RunError::Interrupted(_) | RunError::Open(OpenError::Interrupted(_))) => {
            let out = options.out.display();
            eprintln!("interrupted; the same command goes on with {out}");
            return Ok(None);
        }
        Err(error) => return Err(super::refuse(error)),
    }
    let results = Results::read(&options.out).map_err(super::refuse)?;
    let page = pages::write(&results, &options.out).map_err(super::refuse)?;
    Ok(Some((results, page)))
}

/// Writes the page of Markdown, if one is asked for.
pub(super) fn write_page(path: Option<&Path>, results: &Results) -> anyhow::Result<()> {
    let Some(path) = path else {
        return Ok(());
    };
    std::fs::write(path, markdown::page(results))
        .with_context(|| format!("cannot write {}", path.display()))
}

fn options(args: &RunArgs) -> Result<Options, LabError> {
    let hosts = args.hosts.as_deref().map(Inventory::read).transpose()?;
    let mut options = options_of(&args.file, hosts)?;
    if args.quick {
        options.experiment = options.experiment.quick();
        options.is_quick = true;
        options.out.as_mut_os_string().push("-quick");
    }
    if let Some(duration) = args.duration {
        options.experiment = options.experiment.last(duration.as_secs_f64());
    }
    if let Some(iterations) = args.iterations {
        options.experiment.iterations = iterations;
    }
    if let Some(out) = &args.out {
        options.out.clone_from(out);
    }
    if let Some(file) = &args.machine {
        options.experiment.machine = machine::read(file)?;
    }
    options.only.clone_from(&args.only);
    Ok(options)
}

/// Returns what runs all of the experiment in `file`, with results in a folder of its name.
pub(super) fn options_of(file: &Path, hosts: Option<Inventory>) -> Result<Options, LabError> {
    let text = sheaf_testbed::input::read(file)?;
    let experiment = Experiment::parse_for(&text, &file.display().to_string(), hosts)?;
    Ok(Options {
        out: Path::new("results").join(&experiment.name),
        only: Vec::new(),
        is_quick: false,
        commit: env!("SHEAF_COMMIT").to_owned(),
        text,
        experiment,
    })
}

/// Progress of the runs: a bar at a terminal, and a line a run.
#[derive(Default)]
struct Bar {
    is_drawn: bool,
}

impl Bar {
    const CELLS: usize = 24;

    fn tell(&mut self, at: &Progress) {
        self.clear();
        if let Some(result) = &at.result {
            progress::line(line_of(result, at));
        }
        if std::io::stderr().is_terminal() && progress::is_shown() {
            let full = Self::CELLS * at.done / at.total.max(1);
            let bar: String = (0..Self::CELLS)
                .map(|cell| if cell < full { '#' } else { '.' })
                .collect();
            let left = clock(at.left);
            let Progress {
                done, total, line, ..
            } = at;
            let line: String = line.chars().take(60).collect();
            progress::part(format_args!("[{bar}] {done}/{total}, {left} left  {line}"));
            self.is_drawn = true;
        }
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            progress::part("\r\x1b[K");
        }
    }
}

fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds / 3600 {
        0 => format!("{:02}:{:02}", seconds / 60, seconds % 60),
        hours => format!("{hours}:{:02}:{:02}", seconds / 60 % 60, seconds % 60),
    }
}

fn line_of(result: &RunResult, progress: &Progress) -> String {
    if let Some(why) = &result.skipped {
        return format!("{}: not run: {why}", result.trial);
    }
    let head = format!(
        "{}/{} {} run {}",
        progress.done, progress.total, result.trial, result.iteration
    );
    let mut line = match (&result.rejected, &result.writers, &result.servers) {
        (Some(why), ..) => format!("{head}: rejected: {why}"),
        (None, _, Some(servers)) => format!(
            "{head}: {:.2} Gbit/s, {} of {} transfers failed, {} broken, median {:.1} s, Jain {:.3}",
            servers.gbit_per_s,
            result.lost,
            result.announced,
            servers.broken,
            result.latency_us.p50 / 1e6,
            result.fairness
        ),
        (None, Some(writers), None) => format!(
            "{head}: {:.0} MB/s of {:.0} by whole files, {} of {} records lost",
            writers.mb_per_s, writers.file_bound_mb_per_s, result.lost, result.announced
        ),
        (None, None, None) => format!(
            "{head}: {} of {} lost ({:.2} %), {} out of order, {:.2} Mbit/s, p99 {:.1} ms",
            result.lost,
            result.announced,
            result.loss_percent(),
            result.out_of_order,
            result.goodput_mbit_s,
            result.latency_us.p99 / 1000.0
        ),
    };
    if !std::io::stderr().is_terminal() {
        line += &format!(", {} left", clock(progress.left));
    }
    for problem in &result.problems {
        line += &format!("\n    problem: {problem}");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_is_read_at_a_glance() {
        for (seconds, text) in [(59, "00:59"), (754, "12:34"), (4503, "1:15:03")] {
            assert_eq!(clock(Duration::from_secs(seconds)), text);
        }
    }
}
