//! The command line of `sheaf bench hostile`.

use crate::{duration, json_file, progress};
use anyhow::Context as _;
use sheaf_bench::hostile::{Attack, Options, measure};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Attack a file server, and measure what honest clients and its memory feel of it.
///
/// Starts `sheaf files serve` for each attack, with honest clients beside it, and reports their times, the memory of
/// the server, and which status the attack got. The first row has no attack. Exit status: 0 if no request of an honest
/// client failed and no smuggled request was answered, 1 if not. See docs/how-to/bench.md.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf bench hostile
  sheaf bench hostile --attacks slow-heads,idle --idle 5000 --duration 20s
  sheaf bench hostile --json docs/results/hostile.json --markdown docs/results/hostile.md")]
pub(super) struct HostileArgs {
    /// Take these attacks; by default all.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',',
        value_parser = clap::builder::PossibleValuesParser::new(Attack::ALL.map(Attack::name)))]
    attacks: Vec<String>,
    /// Hold so many idle connections.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    idle: u32,
    /// Hold so many connections that send or take a byte a second.
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    slow: u32,
    /// Run so many honest clients.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1000))]
    honest: u16,
    /// Let each of them ask so many times a second.
    #[arg(long, value_name = "HZ", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    rate: u16,
    /// Attack for so long; slow heads are put off after 10 s, slow readers within 60 s.
    #[arg(long, value_name = "TIME", default_value = "40s", value_parser = duration::parse)]
    duration: Duration,
    /// Write the report as a page in Markdown to this file.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write the report as JSON to this file; `-`: standard output, and text to the standard error.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs the attacks.
///
/// # Errors
///
/// The reason why a server could not be started or measured.
pub(super) fn run(args: &HostileArgs) -> anyhow::Result<ExitCode> {
    json_file::check(args.json.as_deref())?;
    let is_wanted = |attack: &Attack| {
        args.attacks.is_empty() || args.attacks.iter().any(|name| name == attack.name())
    };
    let options = Options {
        program: sheaf_node::program::path().context("cannot find this program")?,
        attacks: Attack::ALL.into_iter().filter(is_wanted).collect(),
        idle: args.idle as usize,
        slow: args.slow as usize,
        honest: args.honest.into(),
        rate_hz: args.rate.into(),
        window: args.duration,
    };
    let report = measure(&options, &mut |line| progress::line(line))?;
    let page = report.to_markdown();
    if let Some(path) = &args.markdown {
        super::write(path, &page)?;
    }
    json_file::tell(args.json.as_deref(), &page)?;
    if let Some(path) = &args.json {
        json_file::write(path, &report.to_json())?;
    }
    Ok(ExitCode::from(u8::from(!report.broken.is_empty())))
}
