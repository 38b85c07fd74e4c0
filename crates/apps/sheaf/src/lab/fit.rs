//! `sheaf lab fit`: the values of a key that explain published losses.

use crate::fail;
use sheaf_lab::results::Results;
use sheaf_lab::{fit, output};
use std::path::PathBuf;
use std::process::ExitCode;

/// Find the values of a key that explain published losses.
///
/// The experiment sweeps the key, with at least ten runs a value. A value explains a published mean of n runs if that
/// mean lies within the central 95 % of the means of n runs that were made with the value.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf lab run experiments/stalls.toml
  sheaf lab fit results/stalls --x legacy.start_stalls.probability --svg stalls.svg
  sheaf lab fit results/stalls --x legacy.start_stalls.probability --page stalls.md --json stalls.json")]
pub(super) struct FitArgs {
    /// Read this folder of results.
    #[arg(value_name = "DIR")]
    results: PathBuf,
    /// Fit this key.
    #[arg(long, value_name = "KEY")]
    x: String,
    /// Write the fit as a page of Markdown to this file.
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// Draw the values over the offered load into this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write the fit as JSON to this file; `-`: standard output, and text to the standard error.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Shows the fit.
pub(super) fn run(args: &FitArgs) -> anyhow::Result<ExitCode> {
    let results = Results::read(&args.results).map_err(super::refuse)?;
    let found = fit::of(&results, &args.x).map_err(fail::bad_use)?;
    if let Some(page) = &args.page {
        output::write(page, fit::markdown(&results, &found))?;
    }
    if let Some(svg) = &args.svg {
        output::write(svg, &fit::draw(&found)?)?;
    }
    super::finish(&fit::table(&found), &found, args.json.as_deref(), true)
}
