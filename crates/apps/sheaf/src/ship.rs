//! `sheaf ship`: files of writers to permanent storage.

use crate::json_file::{self, JsonFlag};
use crate::logging::Usual;
use crate::progress::{Amount, Bar};
use crate::s3_access::s3_access;
use crate::{duration, fail, files};
use anyhow::Context as _;
use serde_json::{Value, json};
use sheaf_node::shutdown::Shutdown;
use sheaf_ship::{
    Access, Backoff, DeleteRule, Destination, Progress, ShipConfig, Shipper, schemes,
};
use sheaf_stream_files::{ShipState, Shipments};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// States in which a destination has the file.
const THERE: [ShipState; 3] = [
    ShipState::Verified,
    ShipState::Deletable,
    ShipState::Deleted,
];

/// Ship closed files to permanent storage, verify them, and free the disk.
///
/// Takes the files that are closed by the catalogues of the folders, the oldest first; a writer may be running. A file
/// counts as shipped when its checksum at the destination is that of the catalogue. What fails is tried again, with
/// pauses up to a minute or as --retry-max says. What is done stands in the catalogue: the next start goes on where
/// this one ended, however it ended. Exit status: 0; 1 if a file is damaged, or could not be shipped before the end.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = after_help())]
pub(crate) struct Args {
    /// Ship the files in these folders, or in the folders in them.
    #[arg(required = true, value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Ship every file to this destination; may be repeated: then to each of them.
    #[arg(long, required_unless_present = "status", value_name = "ADDRESS")]
    to: Vec<String>,
    /// End when nothing waits any more; without it, wait for further files until a signal.
    #[arg(long)]
    once: bool,
    /// Print how far all files are, and end; a shipper may be running.
    #[arg(long, conflicts_with_all = ["to", "once"])]
    status: bool,
    /// Copy so many files at once.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    parallel: u32,
    /// Copy at most so many MB a second, all files together; not for programs that copy by themselves.
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    limit_mb_per_s: Option<u64>,
    /// Delete files here that all destinations have, the oldest first, while the disk has less than so many MiB free.
    #[arg(long, value_name = "MIB")]
    keep_free_mib: Option<u64>,
    /// Delete every file here that all destinations have.
    #[arg(long, conflicts_with = "keep_free_mib")]
    delete: bool,
    /// Keep files for so long after they were closed, however full the disk is.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration::parse)]
    keep_for: Duration,
    /// Wait at most so long before a file that failed is tried again.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration::parse)]
    retry_max: Duration,
    /// Send the token in this file with every request over HTTP.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Check certificates of https by this authority, a PEM file.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Reach s3 at this server; without it, and without AWS_ENDPOINT_URL, at AWS.
    #[arg(long, value_name = "URL")]
    s3_endpoint: Option<String>,
    /// Sign requests to s3 for this region; without it AWS_REGION, or us-east-1.
    #[arg(long, value_name = "NAME")]
    s3_region: Option<String>,
    /// Take the keys of s3 from this file, as ~/.aws/credentials; without it AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY.
    #[arg(long, value_name = "FILE")]
    s3_credentials: Option<PathBuf>,
    /// Send files to s3 in parts so large, each held in memory meanwhile.
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(5..=1024))]
    s3_part_mib: u64,
    #[command(flatten)]
    flag: JsonFlag,
}

fn after_help() -> String {
    let mut text = "Destinations:\n".to_owned();
    for scheme in schemes() {
        let _ = writeln!(text, "  {}\n      {}", scheme.example, scheme.doc);
    }
    text += "\nExamples:
  sheaf ship /data --to /mnt/store --once
  sheaf ship /data --to root://eos.example.org//eos/raw --keep-free-mib 500000
  sheaf ship /data --to https://store.example.org/raw --ca ca.pem --token-file token
  sheaf ship /data --to s3://bucket/raw --s3-endpoint http://store:8333 --delete
  sheaf ship /data --status";
    text
}

impl Args {
    /// Returns how much is logged without a flag.
    pub(crate) fn usual(&self) -> Usual {
        if self.status {
            Usual::Warn
        } else {
            Usual::Info
        }
    }
}

/// Ships until nothing waits, or until a signal.
///
/// # Errors
///
/// A folder without a catalogue, a destination that cannot work, or a catalogue that fails.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let folders: Vec<PathBuf> = files::catalogues(&args.folders)
        .map_err(fail::bad_use)?
        .into_iter()
        .map(|(folder, _)| folder)
        .collect();
    if args.status {
        return status(&folders, args.flag.json);
    }
    let access = access(args);
    let destinations = args.to.iter().map(|to| Destination::open(to, &access));
    let destinations = destinations
        .collect::<Result<Vec<_>, _>>()
        .map_err(fail::bad_use)?;
    let free_below = match (args.delete, args.keep_free_mib) {
        (true, _) => Some(u64::MAX),
        (false, mib) => mib.map(|mib| mib.saturating_mul(1 << 20)),
    };
    let config = ShipConfig {
        parallel: args.parallel,
        bytes_per_s: args.limit_mb_per_s.map(|mb| mb.saturating_mul(1_000_000)),
        backoff: Backoff {
            first: Duration::from_secs(1).min(args.retry_max),
            last: args.retry_max,
        },
        delete: free_below.map(|free_below| DeleteRule {
            free_below,
            age_min: args.keep_for,
        }),
        is_once: args.once,
        seed: std::process::id().into(),
    };
    let shutdown = Shutdown::on_signals().context("cannot handle signals")?;
    let mut shipper = Shipper::open(&folders, destinations, config).map_err(fail::bad_use)?;
    let mut bar = Bar::new("shipped", !args.flag.json);
    let mut there_before = None;
    let progress = shipper.run(&|| shutdown.is_requested(), |progress| {
        let amount = |states: &[ShipState]| Amount {
            files: progress.files(states),
            bytes: progress.bytes(states),
        };
        let (mut there, all) = (amount(&THERE), amount(&ShipState::ALL));
        // Files on their way count by what is copied, of all that this program has begun with.
        let copied = progress.copied_bytes;
        let before = *there_before.get_or_insert(there.bytes);
        let under_way = there.bytes + progress.bytes(&[ShipState::Copying]);
        there.bytes = (before + copied).clamp(there.bytes, under_way);
        bar.tell(there, all, copied);
    })?;
    bar.end();
    json_file::print_either(args.flag.json, &to_json(&progress), &text(&progress))?;
    let left = progress.files(&[ShipState::Damaged])
        + match args.once {
            true => progress.files(&[ShipState::Queued, ShipState::Copying]),
            false => 0,
        };
    Ok(ExitCode::from(u8::from(left > 0)))
}

fn access(args: &Args) -> Access {
    let mut s3 = s3_access(&args.s3_endpoint, &args.s3_region, &args.s3_credentials);
    s3.part_bytes = Some(args.s3_part_mib << 20);
    Access {
        token_file: args.token_file.clone(),
        ca: args.ca.clone(),
        s3,
    }
}

fn status(folders: &[PathBuf], is_json: bool) -> anyhow::Result<ExitCode> {
    let mut progress = Progress::default();
    for folder in folders {
        let shipments = Shipments::open(folder)?;
        for address in shipments.destinations()? {
            let totals = shipments.totals(&address)?;
            progress.add(&address, &totals);
        }
    }
    json_file::print_either(is_json, &to_json(&progress), &text(&progress))?;
    Ok(ExitCode::SUCCESS)
}

fn to_json(progress: &Progress) -> Value {
    let destinations = progress.totals.iter().map(|(address, totals)| {
        let states: serde_json::Map<String, Value> = totals
            .iter()
            .map(|total| {
                let value = json!({"files": total.files, "bytes": total.bytes});
                (total.state.name().to_owned(), value)
            })
            .collect();
        json!({"destination": address, "states": states})
    });
    json!({
        "destinations": destinations.collect::<Vec<_>>(),
        "copied_bytes": progress.copied_bytes,
        "failed_attempts": progress.failed_attempts,
        "deleted_files": progress.deleted_files,
    })
}

fn text(progress: &Progress) -> String {
    let mut text = String::new();
    for (address, totals) in &progress.totals {
        let _ = writeln!(text, "{address}");
        for total in totals {
            let (state, files, bytes) = (total.state.name(), total.files, total.bytes);
            let _ = writeln!(text, "  {state:<10}{files:>10} files {bytes:>16} bytes");
        }
        if totals.is_empty() {
            text += "  no closed files\n";
        }
    }
    if progress.totals.is_empty() {
        text += "nothing is shipped from there\n";
    }
    text
}
