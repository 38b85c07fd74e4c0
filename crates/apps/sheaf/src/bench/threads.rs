//! The command line of `sheaf bench threads`.

use crate::json_file;
use crate::progress;
use sheaf_bench::threads::{self, Options};
use sheaf_node::config::Threads;
use std::path::PathBuf;
use std::process::ExitCode;

/// Measure one endpoint that receives with one thread or several.
///
/// Senders pass encoded frames from memory to their sockets by `sendfile`, which costs them little. The endpoint does
/// what that of an EPN does: one arena for all bodies, CRC-32C on the way, and every frame is compared with what was
/// sent. Numbers of threads take turns; the first one is what the others are held against. See docs/how-to/threads.md.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf bench threads                                  one thread and two, bodies of 10 kB and 1 MB
  sheaf bench threads --threads 1 --threads 4 --senders 8
  sheaf bench threads --rounds 15 --json threads.json")]
pub(super) struct ThreadsArgs {
    /// Receive with so many threads; may be repeated. With 1, that of the caller, as `node.threads` says.
    #[arg(long, value_name = "N", default_values = ["1", "2"],
        value_parser = clap::value_parser!(u8).range(1..=i64::from(Threads::MAX)))]
    threads: Vec<u8>,
    /// Send bodies of so many bytes; may be repeated.
    #[arg(long, value_name = "BYTES", default_values = ["10000", "1000000"],
        value_parser = clap::value_parser!(u32).range(1..=64_000_000))]
    size: Vec<u32>,
    /// Send with so many threads, each over a connection of its own.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=1024))]
    senders: u16,
    /// Take so many rounds of each row.
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Measure for so many seconds in each round.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    seconds: f64,
    /// Use this congestion control, by its kernel name.
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    congestion: String,
    /// Write the report as JSON to this file; `-`: standard output, and text to the standard error.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok();
    let seconds = seconds.filter(|seconds| (0.01..=3600.0).contains(seconds));
    seconds.ok_or_else(|| format!("found `{text}`, expected seconds from 0.01 to 3600"))
}

/// Measures all rows.
///
/// # Errors
///
/// The reason why a row was not measured.
pub(super) fn run(args: &ThreadsArgs) -> anyhow::Result<ExitCode> {
    json_file::check(args.json.as_deref())?;
    let options = Options {
        threads: args.threads.iter().copied().map(usize::from).collect(),
        sizes: args.size.iter().map(|bytes| *bytes as usize).collect(),
        senders: args.senders.into(),
        rounds: args.rounds,
        seconds: args.seconds,
        warm_up_seconds: 0.3,
        congestion: args.congestion.clone(),
    };
    let report = threads::measure(&options, &mut |row| progress::line(row))?;
    json_file::tell(args.json.as_deref(), &report.to_string())?;
    if let Some(path) = &args.json {
        json_file::write(path, &report.to_json())?;
    }
    Ok(ExitCode::SUCCESS)
}
