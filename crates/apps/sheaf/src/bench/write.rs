//! The command line of `sheaf bench write`.

use crate::{json_file, progress};
use anyhow::Context as _;
use sheaf_bench::write::{Options, measure, run_words};
use std::path::PathBuf;
use std::process::ExitCode;

/// Measure the writer beside `fio` on the same disk.
///
/// Writes streams of which one is hot to files, with checksums, by threads at the speed of the machine and by threads
/// of a stated rate; `fio` writes as much in requests of 1 MiB past the page cache, in turn with it. Each run has a
/// process of its own. Without `fio` its columns are left out.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf bench write --json write.json
  sheaf bench write --folder /data --bytes 20000000000 --workers 1,4,8")]
pub(super) struct WriteArgs {
    /// Write into this folder, on the disk to be measured.
    #[arg(long, value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// Write so many bytes in each run.
    #[arg(long, value_name = "BYTES", default_value_t = 4_000_000_000,
        value_parser = clap::value_parser!(u64).range(100_000_000..))]
    bytes: u64,
    /// Take so many rounds.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Write so many streams.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    streams: u16,
    /// Give this share of the bytes, in per cent, to the first stream.
    #[arg(long, value_name = "PERCENT", default_value_t = 70, value_parser = clap::value_parser!(u8).range(0..=100))]
    hot_percent: u8,
    /// Write records of so many bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 1_000_000,
        value_parser = clap::value_parser!(u64).range(1..=64 << 20))]
    record_bytes: u64,
    /// Compare these numbers of threads.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4", value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: Vec<u32>,
    /// Emulate threads of so many MB/s, a tenth of ATLAS' by default; 0: no such rows.
    #[arg(long, value_name = "MB/s", default_value_t = 61.5)]
    emulated_mb_s: f64,
    /// Begin with this seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the report as JSON to this file; `-`: standard output, and text to the standard error.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Words of one load.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct WriteLoadArgs {
    /// The load as JSON.
    words: String,
}

/// Runs the benchmark.
///
/// # Errors
///
/// A folder that cannot be written, or why a run did not come to its end in order.
pub(super) fn run(args: &WriteArgs) -> anyhow::Result<ExitCode> {
    json_file::check(args.json.as_deref())?;
    let options = Options {
        folder: args.folder.clone(),
        bytes: args.bytes,
        rounds: args.rounds,
        streams: args.streams,
        hot_share: f64::from(args.hot_percent) / 100.0,
        record_bytes: args.record_bytes,
        workers: args.workers.clone(),
        emulated_mb_s: (args.emulated_mb_s > 0.0).then_some(args.emulated_mb_s),
        seed: args.seed,
        program: sheaf_node::program::path().context("this program has no path")?,
    };
    let report = measure(&options, &mut |line| progress::line(line))?;
    if let Some(path) = &args.json {
        json_file::write(path, &report.to_json())?;
    }
    json_file::tell(args.json.as_deref(), &report.to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// Runs one load.
///
/// # Errors
///
/// Why it did not come to its end in order.
pub(super) fn load(args: &WriteLoadArgs) -> anyhow::Result<ExitCode> {
    run_words(&args.words).map(|()| ExitCode::SUCCESS)
}
