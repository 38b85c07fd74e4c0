//! `sheaf lab`: experiments with farms of real processes, on this machine and on others.

mod diagram;
mod experiment;
mod fit;
mod hosts;
mod monitor;
mod net;
mod numbers;
mod paper;

use crate::duration;
use crate::json_file::print_text;
use crate::{fail, json_file, progress};
use sheaf_lab::cell::Cell;
use sheaf_lab::report::{self, Row};
use sheaf_lab::{LabError, faults, kills, matrix, output, soak};
use sheaf_node::config::Threads;
use sheaf_testbed::machine;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Run experiments with farms of real processes, on this machine or on others.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Experiment {
    Faults(FaultsArgs),
    Soak(SoakArgs),
    Kills(KillsArgs),
    Net(net::NetArgs),
    Ceiling(net::CeilingArgs),
    Hosts(hosts::HostsArgs),
    Run(experiment::RunArgs),
    Report(experiment::ReportArgs),
    Plot(experiment::PlotArgs),
    Compare(experiment::CompareArgs),
    Calibrate(experiment::CalibrateArgs),
    Fit(fit::FitArgs),
    Machine(numbers::MachineArgs),
    Diagram(diagram::DiagramArgs),
    Paper(paper::PaperArgs),
    Monitor(Box<monitor::MonitorArgs>),
    /// Run one process of a legacy run; `sheaf lab run` starts it.
    #[command(hide = true)]
    LegacyNode {
        /// Use this configuration, as JSON.
        config: String,
    },
    /// Run `sheaf WORDS` for an ssh peer; `sheaf lab run --hosts` starts it.
    #[command(hide = true)]
    Attend {
        /// Run this command line.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

/// Inject faults into farms and measure losses, duplicates and recovery time.
///
/// Each cell of the matrix (docs/explanation/faults.md) has a farm of its own. Cells that need root or a tool that is
/// not there are skipped by name; with CI=true that is an error, and bounds are three times as wide. Exit status 1 if a
/// cell does not hold what was promised.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf lab faults --list                      what there is
  sheaf lab faults --quick                     nine cells within 90 s
  sheaf lab faults --cell epn-kill --trials 50 one cell, 50 times
  sheaf lab faults --all --json faults.json    the whole matrix")]
struct FaultsArgs {
    /// Run this cell; may be repeated.
    #[arg(long, value_name = "NAME")]
    cell: Vec<String>,
    /// Run the quick cells with few faults each.
    #[arg(long, conflicts_with_all = ["cell", "all"])]
    quick: bool,
    /// Run all cells: the default.
    #[arg(long, conflicts_with = "cell")]
    all: bool,
    /// Inject this many faults in each cell.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    trials: Option<u32>,
    /// Draw victims, moments and lengths from this seed.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Move STFs with so many threads in each FLP, EPN and writer: a number, or `auto`.
    #[arg(long, value_name = "N", default_value_t = Threads::Count(1))]
    threads: Threads,
    /// Multiply all bounds by this: 3 with CI=true, else 1.
    #[arg(long, value_name = "X")]
    slack: Option<f64>,
    /// Write the rows as JSON to this file; `-`: standard output, and text to the standard error.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Keep event logs and logs; those of cells that fail are kept anyway.
    #[arg(long)]
    keep: bool,
    /// Show the cells and whether they can run here.
    #[arg(long)]
    list: bool,
    /// Only remove what killed experiments left behind.
    #[arg(long)]
    clean: bool,
}

/// Run a farm for long, inject a random fault every 10 s, and check for leaks.
///
/// The farm has eight processes. Exit status 1 if memory or open files of a process grow, if a timeframe is not
/// accounted for, or if one is lost without a reason.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf lab soak                               45 s
  sheaf lab soak --duration 1h --json soak.json")]
struct SoakArgs {
    /// Run for this time.
    #[arg(long, value_name = "TIME", default_value = "45s", value_parser = duration::parse)]
    duration: Duration,
    /// Draw faults, victims and lengths from this seed.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Move STFs with so many threads in each FLP, EPN and writer: a number, or `auto`.
    #[arg(long, value_name = "N", default_value_t = Threads::Count(1))]
    threads: Threads,
    /// Write the report as JSON to this file; `-`: standard output, and text to the standard error.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Keep event logs and logs.
    #[arg(long)]
    keep: bool,
}

/// Kill EPNs of a paced farm and count losses, for several holds of the FLPs.
///
/// The farm has 200 Hz and six EPNs. With each hold twice: `kill` ends the process, `vanish` lets it fall silent
/// first, as a machine without power. Beside it stands what sources would have lost that free what they have sent.
/// Exit status 1 if the books are wrong or if anything is lost with the default hold.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf lab kills --kills 50
  sheaf lab kills --kills 10 --hold-ms 100,50 --json kills.json")]
struct KillsArgs {
    /// Kill this many EPNs with each hold.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    kills: u32,
    /// Compare these holds with the default one, in ms.
    #[arg(long, value_name = "MS", value_delimiter = ',', default_values_t = [250, 100, 50])]
    hold_ms: Vec<u64>,
    /// Draw victims and moments from this seed.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the rows as JSON to this file; `-`: standard output, and text to the standard error.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Keep event logs and logs.
    #[arg(long)]
    keep: bool,
}

/// Runs an experiment.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.experiment {
        Experiment::Faults(args) => run_faults(args),
        Experiment::Soak(args) => run_soak(args),
        Experiment::Kills(args) => run_kills(args),
        Experiment::Net(args) => net::run_net(args),
        Experiment::Ceiling(args) => net::run_ceiling(args),
        Experiment::Hosts(args) => hosts::run(args),
        Experiment::Run(args) => experiment::run(args),
        Experiment::Report(args) => experiment::report(args),
        Experiment::Plot(args) => experiment::plot(args),
        Experiment::Compare(args) => experiment::compare(args),
        Experiment::Calibrate(args) => experiment::calibrate(args),
        Experiment::Fit(args) => fit::run(args),
        Experiment::Machine(args) => numbers::run(args),
        Experiment::Diagram(args) => diagram::run(args),
        Experiment::Paper(args) => paper::run(args),
        Experiment::Monitor(args) => monitor::run(args),
        Experiment::LegacyNode { config } => run_legacy_node(config),
        Experiment::Attend { words } => {
            Ok(ExitCode::from(sheaf_testbed::hosts::attend::attend(words)?))
        }
    }
}

fn run_legacy_node(config: &str) -> anyhow::Result<ExitCode> {
    let config = serde_json::from_str(config).map_err(|error| fail::bad_use(error.to_string()))?;
    let report = sheaf_lab::experiment::legacy::run_node(&config)?;
    println!("{}", serde_json::to_string(&report)?);
    Ok(ExitCode::SUCCESS)
}

fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

fn run_faults(args: &FaultsArgs) -> anyhow::Result<ExitCode> {
    if args.list {
        print_text(&list())?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.clean {
        let removed = machine::clean().into_iter();
        print_text(
            &removed
                .map(|name| format!("removed {name}\n"))
                .collect::<String>(),
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    let options = faults::Options {
        cells: args.cell.clone(),
        quick: args.quick,
        trials: args.trials,
        seed: args.seed,
        keep: args.keep,
        threads: args.threads,
        must_run: is_ci(),
        slack: args.slack.unwrap_or(if is_ci() { 3.0 } else { 1.0 }),
    };
    progress::line(format_args!("seed {}", args.seed));
    let rows = faults::run(&options, tell).map_err(refuse)?;
    let is_ok = !rows.iter().any(Row::has_failed);
    finish(&report::table(&rows), &rows, args.json.as_deref(), is_ok)
}

fn run_soak(args: &SoakArgs) -> anyhow::Result<ExitCode> {
    let options = soak::Options {
        duration: args.duration,
        seed: args.seed,
        threads: args.threads,
        keep: args.keep,
    };
    progress::line(format_args!("seed {}", args.seed));
    let report = soak::run(&options, |text| progress::line(text))?;
    finish(
        &soak::text(&report),
        &report,
        args.json.as_deref(),
        report.ok,
    )
}

fn run_kills(args: &KillsArgs) -> anyhow::Result<ExitCode> {
    let options = kills::Options {
        kills: args.kills,
        hold_ms: args.hold_ms.clone(),
        seed: args.seed,
        keep: args.keep,
    };
    progress::line(format_args!("seed {}", args.seed));
    let rows = kills::run(&options, |row| {
        let hold = row
            .hold_ms
            .map_or("default".to_owned(), |ms| format!("{ms} ms"));
        progress::line(format_args!(
            "{} at ack {} with hold {hold}: {} lost in {:.1} s",
            row.how, row.ack, row.lost, row.wall_s
        ));
    })?;
    let is_ok = rows.iter().all(|row| row.ok);
    finish(&kills::table(&rows), &rows, args.json.as_deref(), is_ok)
}

/// Classifies errors that the user can mend as wrong use.
fn refuse(error: impl Into<LabError>) -> anyhow::Error {
    let error = error.into();
    if error.is_bad_use() {
        fail::bad_use(error)
    } else {
        error.into()
    }
}

fn tell(row: &Row) {
    let outcome = match (&row.skipped, row.ok) {
        (Some(why), _) => format!("skipped: {why}"),
        (None, true) => "ok".to_owned(),
        (None, false) => format!("NOT OK: {}", row.problems.join("; ")),
    };
    progress::line(format_args!(
        "{:<16} {:>5.1} s  {outcome}",
        row.cell, row.wall_s
    ));
}

/// Shows the result to people, and to machines if asked.
fn finish(
    text: &str,
    value: &impl serde::Serialize,
    json: Option<&Path>,
    is_ok: bool,
) -> anyhow::Result<ExitCode> {
    json_file::tell(json, text)?;
    if let Some(path) = json {
        output::write_json(path, value)?;
    }
    Ok(if is_ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn list() -> String {
    let line = |cell: &Cell| {
        let quick = if cell.is_quick { "quick" } else { "" };
        let why = cell
            .missing()
            .map_or(String::new(), |why| format!(" ({why})"));
        format!(
            "{:<16} {:<4} {quick:<5} {}{why}\n",
            cell.name, cell.number, cell.what
        )
    };
    matrix::cells().map(line).collect()
}
