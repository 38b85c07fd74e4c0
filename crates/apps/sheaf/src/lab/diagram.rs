//! `sheaf lab diagram`: the best policy by farm and load.

use crate::fail;
use anyhow::Context as _;
use clap::ValueEnum;
use sheaf_lab::output;
use sheaf_lab::report::diagram::{Diagram, Time};
use sheaf_lab::results::Results;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Time that policies are compared by.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Measure {
    /// From the announce of a TF to the begin of its processing.
    Wait,
    /// From the announce of a TF to the end of its processing.
    Turnaround,
}

/// Draw the best policy by farm and load, of one or more experiments.
///
/// Rows are farms at which several policies were run with the same TFs, columns are loads. A cell has the colour of the
/// policy with the shortest time (p99), and the ratio of the default to it, or of the next one where the default is the
/// best, with its interval of 95 %.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf lab diagram results/policies-waits --out diagram.svg
  sheaf lab diagram docs/results/data/policies-*.json.gz --time wait --page diagram.md --out diagram.svg")]
pub(super) struct DiagramArgs {
    /// Read these folders of results, or files of data.
    #[arg(value_name = "DIR", required = true)]
    results: Vec<PathBuf>,
    /// Compare by this time.
    #[arg(long, value_name = "TIME", value_enum, default_value = "turnaround")]
    time: Measure,
    /// Draw into this file.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write the cells as a page of Markdown to this file.
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// Write the cells as JSON to this file; `-`: standard output, and text to the standard error.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Draws.
pub(super) fn run(args: &DiagramArgs) -> anyhow::Result<ExitCode> {
    let time = match args.time {
        Measure::Wait => Time::Wait,
        Measure::Turnaround => Time::Turnaround,
    };
    let diagram = of(&args.results, time)?;
    if let Some(out) = &args.out {
        output::write(out, diagram.draw()?)?;
    }
    if let Some(page) = &args.page {
        let svg = args.out.as_deref().and_then(Path::file_name);
        let svg = svg.map_or("diagram.svg".into(), |name| name.to_string_lossy());
        output::write(page, diagram.markdown(&svg))?;
    }
    super::finish(&diagram.table(), &diagram, args.json.as_deref(), true)
}

/// Returns the diagram of the results at `places`.
pub(super) fn of(places: &[PathBuf], time: Time) -> anyhow::Result<Diagram> {
    let read = |place: &PathBuf| Results::read(place).map_err(super::refuse);
    let all = places
        .iter()
        .map(read)
        .collect::<anyhow::Result<Vec<Results>>>()?;
    Diagram::of(&all, time)
        .with_context(|| "found no farm with several policies and records of TFs, expected one")
        .map_err(|error| fail::bad_use(error.to_string()))
}
