//! `sheaf lab machine`: the numbers of a machine by which simulated points come closest to live ones.

use super::experiment::INTERRUPTED;
use crate::progress;
use sheaf_lab::experiment::SimulateError;
use sheaf_lab::machine::{self, MachineFit, MachineFitError};
use sheaf_lab::output;
use sheaf_lab::results::Results;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Find numbers of `[machine]` by which simulated points come closest to live ones.
///
/// Reads results of an experiment with variants of both sources, such as experiments/machine.toml, and simulates its
/// points again with other numbers, one number after the other, until no change brings medians of latency and wait
/// closer to the live ones. `sheaf lab run --machine FILE` takes the numbers for other experiments on this machine.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf lab run experiments/machine.toml
  sheaf lab machine results/machine --out machine.toml
  sheaf lab run experiments/holdout.toml --machine machine.toml")]
pub(super) struct MachineArgs {
    /// Read this folder of results.
    #[arg(value_name = "DIR")]
    results: PathBuf,
    /// Write the numbers as the table `[machine]` of an experiment to this file.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write numbers and errors as JSON to this file; `-`: standard output, and text to the standard error.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Shows the numbers.
pub(super) fn run(args: &MachineArgs) -> anyhow::Result<ExitCode> {
    let results = Results::read(&args.results).map_err(super::refuse)?;
    let Some(found) = fit(&results, &args.results)? else {
        return Ok(ExitCode::from(INTERRUPTED));
    };
    if let Some(out) = &args.out {
        output::write(out, machine::toml(&results, &found))?;
    }
    super::finish(&machine::table(&found), &found, args.json.as_deref(), true)
}

/// Searches for the numbers, and tells how far it is; `None` after a signal.
pub(super) fn fit(results: &Results, folder: &Path) -> anyhow::Result<Option<MachineFit>> {
    sheaf_testbed::clock::end_on_signals()?;
    let mut next = Instant::now();
    let found = machine::fit(results, folder, |tried| {
        if Instant::now() >= next {
            next = Instant::now() + Duration::from_secs(5);
            progress::line(format_args!(
                "{} sets of numbers tried, mean distance {:.1} %, changes by {:.0} %",
                tried.tries,
                100.0 * tried.distance,
                100.0 * (tried.factor - 1.0)
            ));
        }
    });
    match found {
        Err(MachineFitError::Simulate(SimulateError::Interrupted(_))) => {
            eprintln!("interrupted");
            Ok(None)
        }
        found => found.map(Some).map_err(super::refuse),
    }
}
