//! `sheaf data records`: a row a timeframe of a live run, with its times.

use crate::{fail, json_file};
use anyhow::Context as _;
use serde::Serialize;
use sheaf_lab::records::live::{self, LiveRun};
use sheaf_lab::records::{Of, RecordsFile};
use sheaf_sim::summary::Latency;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

/// Version of the schema.
const SCHEMA: u32 = 1;

/// Write a row for each timeframe of a run, with its times, its EPN and its fate.
///
/// Reads the event logs (`*.events`) of a run on one machine. The columns are those of `sheaf sim run --records`.
/// Prints how long timeframes (TFs) waited for a consumer, and until they were done with: from the first STF of a TF
/// that was made. The begin of processing is known where a consumer holds TFs, as with the sink `shm`. Exit status: 0
/// if the rows are written, 2 if there is nothing to read.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf demo --duration 5s --keep run1; sheaf data records run1 --out tfs.csv
  sheaf data records run1 --out tfs.parquet --json -      times and fates, for machines")]
pub(crate) struct Args {
    /// Read the event logs of the run in this directory, as a demo leaves it with --keep.
    #[arg(value_name = "RUN_DIR")]
    dir: PathBuf,
    /// Write the rows to this file, FILE.csv or FILE.parquet.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write times and fates as JSON to this file; `-`: standard output, and text to the standard error.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Times and fates.
#[derive(Serialize)]
struct Report {
    schema: u32,
    run: String,
    tfs: u64,
    fates: BTreeMap<&'static str, u64>,
    wait_us: Option<Distribution>,
    turnaround_us: Option<Distribution>,
}

/// Distribution of a time, in µs.
#[derive(Serialize)]
struct Distribution {
    tfs: u64,
    p50: f64,
    p90: f64,
    p99: f64,
    max: f64,
}

impl Distribution {
    fn of((tfs, us): (u64, Latency)) -> Self {
        Self {
            tfs,
            p50: us.p50,
            p90: us.p90,
            p99: us.p99,
            max: us.max,
        }
    }
}

impl Report {
    fn of(run: &LiveRun) -> Self {
        Self {
            schema: SCHEMA,
            run: run.run.clone(),
            tfs: run.records.len() as u64,
            fates: run.fates(),
            wait_us: run.wait_us().map(Distribution::of),
            turnaround_us: run.turnaround_us().map(Distribution::of),
        }
    }

    fn text(&self) -> String {
        let fates = self.fates.iter().map(|(fate, tfs)| format!("{fate} {tfs}"));
        let fates = fates.collect::<Vec<_>>().join(", ");
        let mut text = format!("run {}: {} TFs: {fates}\n", self.run, self.tfs);
        let rows = [
            ("wait for a consumer", &self.wait_us),
            ("until done", &self.turnaround_us),
        ];
        for (name, times) in rows {
            text += &match times {
                Some(times) => format!(
                    "  {name:<20} p50 {:.3} ms, p90 {:.3} ms, p99 {:.3} ms, longest {:.3} ms, of {} TFs\n",
                    times.p50 / 1e3,
                    times.p90 / 1e3,
                    times.p99 / 1e3,
                    times.max / 1e3,
                    times.tfs
                ),
                None => format!("  {name:<20} not known: no log tells it\n"),
            };
        }
        text
    }
}

/// Runs the command.
///
/// # Errors
///
/// Logs that cannot be read, or a file that cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let json = args.json.as_deref();
    json_file::check(json)?;
    if let Some(path) = &args.out {
        RecordsFile::check(path).map_err(fail::bad_use)?;
    }
    let found = live::read(&args.dir).map_err(fail::bad_use)?;
    if let Some(path) = &args.out {
        let mut file = RecordsFile::create(path).map_err(fail::bad_use)?;
        file.add(&Of {
            point: 0,
            label: "live",
            seed: 0,
            records: &found.records,
        })?;
        file.finish()?;
    }
    let report = Report::of(&found);
    json_file::tell(json, &report.text())?;
    if let Some(path) = json {
        let text = serde_json::to_string_pretty(&report);
        let text = text.context("cannot write the result as JSON")?;
        json_file::write(path, &(text + "\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}
