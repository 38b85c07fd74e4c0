//! The command line of `sheaf bench icn`.

use crate::json_file::{self, print_text};
use crate::progress;
use anyhow::Context as _;
use sheaf_bench::icn::{self, Options, RowOptions, Shape};
use sheaf_placement::policy;
use std::path::PathBuf;
use std::process::ExitCode;

/// Measure the ICN alone: decisions a second on one core, and its memory.
///
/// Leads TFs through the scheduler from their announces, one of each FLP, over assignment, report, commit and
/// acknowledgement to their release, while half as many TFs as there are EPNs are open. No sockets, no files: encoding
/// and system calls come on top. Each row is a process of its own. See docs/how-to/bench.md.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf bench icn                                        10 x 10, 250 x 1,750 and 1,000 x 10,000
  sheaf bench icn --shape 250x1750 --policy all          every policy
  sheaf bench icn --rounds 15 --json icn.json")]
pub(super) struct IcnArgs {
    /// Measure a farm of FLPs x EPNs; may be repeated.
    #[arg(long, value_name = "NxM", value_parser = icn::parse_shape,
        default_values = ["10x10", "250x1750", "1000x10000"])]
    shape: Vec<Shape>,
    /// Measure this policy, by its name in the farm file, or `all`; may be repeated.
    #[arg(long, value_name = "NAME", default_values = ["round-robin", policy::DEFAULT])]
    policy: Vec<String>,
    /// Lead so many TFs in a round.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    tfs: u64,
    /// Take so many rounds for each row.
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Keep rows on one CPU; on by default if there are two.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pin: Option<bool>,
    /// Write the report as JSON to this file; `-`: standard output, and text to the standard error.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Options of one row.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct IcnRowArgs {
    /// Measure a farm of FLPs x EPNs.
    #[arg(long, value_parser = icn::parse_shape)]
    shape: Shape,
    /// Measure this policy.
    #[arg(long)]
    policy: String,
    /// Lead so many TFs in a round.
    #[arg(long)]
    tfs: u64,
    /// Take so many rounds.
    #[arg(long)]
    rounds: u32,
}

/// Measures all rows.
///
/// # Errors
///
/// The reason why a row was not measured.
pub(super) fn run(args: &IcnArgs) -> anyhow::Result<ExitCode> {
    json_file::check(args.json.as_deref())?;
    let mut policies = args.policy.clone();
    if policies.iter().any(|name| name == "all") {
        policies = policy::NAMES
            .iter()
            .map(|name| (*name).to_owned())
            .collect();
    }
    for name in &policies {
        policy::by_name(name, 1).map_err(crate::fail::bad_use)?;
    }
    let options = Options {
        shapes: args.shape.clone(),
        policies,
        tfs: args.tfs,
        rounds: args.rounds,
        pin: args.pin.unwrap_or(true),
        program: sheaf_node::program::path().context("cannot find this program")?,
    };
    let report = icn::measure(&options, &mut |row| progress::line(row))?;
    json_file::tell(args.json.as_deref(), &report.to_string())?;
    if let Some(path) = &args.json {
        json_file::write(path, &report.to_json())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures one row.
///
/// # Errors
///
/// As [`icn::row`].
pub(super) fn row(args: &IcnRowArgs) -> anyhow::Result<ExitCode> {
    let row = icn::row(&RowOptions {
        shape: args.shape,
        policy: args.policy.clone(),
        tfs: args.tfs,
        rounds: args.rounds,
    })?;
    print_text(&format!("{}\n", row.to_json()))?;
    Ok(ExitCode::SUCCESS)
}
