//! `sheaf samples`: checks, exports, copies and compacts the store of a collector that does not run.

use crate::fail;
use crate::json_file::print_either;
use anyhow::Context as _;
use serde_json::json;
use sheaf_sample_store::{Config, Disk, FsckReport, Store as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Check, export, copy or compact the samples that a collector has stored.
///
/// For a collector that is not running; a running one does the same by `POST /api/store/check` and
/// `POST /api/store/snapshot`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf samples check --data /var/lib/sheaf/monitor
  sheaf samples export --data /var/lib/sheaf/monitor --day 2026-11-25 --to day.parquet
  sheaf samples snapshot --data /var/lib/sheaf/monitor --to /backup/samples
  sheaf samples compact --data /var/lib/sheaf/monitor")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Action {
    /// Check every record: checksums, order, buckets against their samples.
    ///
    /// Exit status: 0 if nothing is wrong, 1 if something is.
    Check {
        /// Check the store in this folder.
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// Write buckets again that are damaged, wrong or missing, where their samples are there.
        #[arg(long)]
        repair: bool,
        /// Print the report as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Write the samples of a day (UTC) as a Parquet file.
    ///
    /// Columns: labels as a JSON object, time in ms, value.
    Export {
        /// Read the store in this folder.
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// Export this day.
        #[arg(long, value_name = "YYYY-MM-DD")]
        day: jiff::civil::Date,
        /// Write this file, which must not be there.
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
        /// Print the number of samples as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Write what waits in the log to tables, and merge tables.
    ///
    /// A running collector does both little by little; afterwards the folder has the bytes that its content needs.
    Compact {
        /// Compact the store in this folder.
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// Print the bytes of its tables as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Copy the store; files that never change are hard links where the disk can.
    Snapshot {
        /// Copy the store in this folder.
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// Write this folder, which must not be there.
        #[arg(long, value_name = "DIR")]
        to: PathBuf,
        /// Print the folder as JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Runs the command.
///
/// # Errors
///
/// The reason why the store cannot be opened, read or copied.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.action {
        Action::Check { data, repair, json } => check(data, *repair, *json),
        Action::Export {
            data,
            day,
            to,
            json,
        } => {
            let day_ms = day
                .to_zoned(jiff::tz::TimeZone::UTC)
                .context("the day has no midnight")?
                .timestamp()
                .as_millisecond();
            let count = open(data)?.export_day(day_ms, to)?;
            print_either(
                *json,
                &json!({"file": to, "samples": count}),
                &format!("{count} samples of {day} in {}\n", to.display()),
            )?;
            Ok(ExitCode::SUCCESS)
        }
        Action::Compact { data, json } => {
            let store = open(data)?;
            let before = store.stats().table_bytes;
            store.flush()?;
            store.compact()?;
            let after = store.stats().table_bytes;
            print_either(
                *json,
                &json!({"table_bytes": after, "before_bytes": before}),
                &format!("tables take {after} bytes, before {before}\n"),
            )?;
            Ok(ExitCode::SUCCESS)
        }
        Action::Snapshot { data, to, json } => {
            open(data)?.snapshot(to)?;
            print_either(
                *json,
                &json!({"folder": to}),
                &format!("a copy of {} is in {}\n", data.display(), to.display()),
            )?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Opens a store that is there: a folder that was mistyped is not made.
fn open(data: &Path) -> anyhow::Result<Disk> {
    if !data.join("format").is_file() {
        return Err(fail::bad_use(format!(
            "{}: found no store of samples, expected the folder `monitor.data` of a collector",
            data.display()
        )));
    }
    // Nothing is appended, so bounds of intake do not matter; what is stored is never too much.
    let config = Config {
        series_max: u32::MAX,
        ..Config::default()
    };
    Disk::open(data, config).map_err(|error| fail::bad_use(format!("{}: {error}", data.display())))
}

fn check(data: &Path, repair: bool, as_json: bool) -> anyhow::Result<ExitCode> {
    let report = open(data)?.fsck(repair)?;
    print_either(as_json, &report_json(&report), &(text(&report) + "\n"))?;
    Ok(if report.is_clean() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn report_json(report: &FsckReport) -> serde_json::Value {
    json!({
        "ok": report.is_clean(),
        "series": report.series,
        "chunks": report.chunks,
        "samples": report.samples,
        "bucket_records": report.bucket_records,
        "buckets_compared": report.buckets_compared,
        "log_groups": report.log_groups,
        "log_bytes_damaged": report.log_bytes_damaged,
        "damaged": report.damaged,
        "overlapping": report.overlapping,
        "wrong_buckets": report.wrong_buckets,
        "unnamed": report.unnamed,
        "repaired": report.repaired,
    })
}

fn text(report: &FsckReport) -> String {
    let mut lines = vec![
        format!("series             {}", report.series),
        format!("samples in chunks  {} in {}", report.samples, report.chunks),
        format!("buckets compared   {}", report.buckets_compared),
        format!("groups of the log  {}", report.log_groups),
    ];
    let mut add = |name: &str, found: &[String]| {
        lines.extend(found.iter().map(|one| format!("{name}: {one}")));
    };
    add("damaged", &report.damaged);
    add("overlapping", &report.overlapping);
    add("wrong buckets", &report.wrong_buckets);
    if report.log_bytes_damaged > 0 {
        lines.push(format!(
            "damaged: {} bytes of the head log",
            report.log_bytes_damaged
        ));
    }
    if report.unnamed > 0 {
        lines.push(format!("and {} findings more", report.unnamed));
    }
    if report.repaired > 0 {
        lines.push(format!("written again      {}", report.repaired));
    }
    lines.push(if report.is_clean() { "ok" } else { "NOT ok" }.to_owned());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_samples::{Labels, Sample};

    #[test]
    fn a_store_is_checked_copied_and_exported() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let store = Disk::open(&data, Config::default()).unwrap();
        let labels = Labels::new([("__name__", "load")]).unwrap();
        let series = store.intern(&labels).unwrap();
        let day_ms = 1_790_000_000_000_i64 / 86_400_000 * 86_400_000;
        let samples = (0..100).map(|second| {
            let at_ms = day_ms + second * 1000;
            (series, Sample { at_ms, value: 1.0 })
        });
        store.append(&samples.collect::<Vec<_>>()).unwrap();
        store.commit().unwrap();
        let error = open(&data).err().map(|error| error.to_string()).unwrap();
        assert!(error.contains("another process has the store"), "{error}");
        drop(store);

        let copy = dir.path().join("copy");
        open(&data).unwrap().snapshot(&copy).unwrap();
        let file = dir.path().join("day.parquet");
        assert_eq!(open(&copy).unwrap().export_day(day_ms, &file).unwrap(), 100);
        let compacted = Action::Compact {
            data: copy.clone(),
            json: true,
        };
        run(&Args { action: compacted }).unwrap();
        let report = open(&copy).unwrap().fsck(false).unwrap();
        assert!(text(&report).ends_with("ok"), "{}", text(&report));
        assert_eq!(report_json(&report)["samples"], 100);
    }

    #[test]
    fn a_folder_without_a_store_is_refused_and_not_made() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("mistyped");
        let error = open(&data).err().map(|error| error.to_string()).unwrap();
        assert!(error.contains("found no store of samples"), "{error}");
        assert!(!data.exists());
    }
}
