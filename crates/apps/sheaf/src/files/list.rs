//! `sheaf files list`: what is in the catalogue of a writer.

use anyhow::Context as _;
use serde_json::{Value, json};
use sheaf_stream_files::{FileRow, FileState};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

/// List files with their sizes, rates and checksums; a writer may be running.
///
/// Of an open file records, bytes and checksum are those at its last sync, and `age` is the time since it was opened.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// List the files in these folders.
    #[arg(required = true, value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Only files of this run.
    #[arg(long, value_name = "NUMBER")]
    run: Option<u64>,
    /// Only files of this stream.
    #[arg(long, value_name = "NAME")]
    stream: Option<String>,
    /// Only files in this state.
    #[arg(long, value_enum)]
    state: Option<State>,
    /// Print one JSON object for each file, one a line.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum State {
    Open,
    Closed,
    Recovered,
}

impl From<State> for FileState {
    fn from(state: State) -> Self {
        match state {
            State::Open => Self::Open,
            State::Closed => Self::Closed,
            State::Recovered => Self::Recovered,
        }
    }
}

/// Prints the list.
///
/// # Errors
///
/// A folder without a catalogue, or standard output that cannot be written to.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_ns = now.map_or(0, |since| {
        i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
    });
    let mut text = String::new();
    let (mut files, mut bytes, mut records) = (0_u64, 0_u64, 0_u64);
    for (folder, catalogue) in super::catalogues(&args.folders)? {
        for row in catalogue.rows(args.state.map(FileState::from))? {
            let is_wanted = args.run.is_none_or(|run| run == row.name.run)
                && args
                    .stream
                    .as_ref()
                    .is_none_or(|name| *name == row.name.stream);
            if !is_wanted {
                continue;
            }
            files += 1;
            bytes += row.sums.bytes;
            records += row.records;
            if args.json {
                text += &format!("{}\n", json_of(&folder, &row));
            } else {
                if files == 1 {
                    text += &header();
                }
                text += &line_of(&row, now_ns);
            }
        }
    }
    if !args.json {
        text += &format!("{files} files, {records} records, {bytes} bytes\n");
    }
    let printed = std::io::stdout().write_all(text.as_bytes());
    match printed {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        printed => printed.context("cannot write to standard output")?,
    }
    Ok(ExitCode::SUCCESS)
}

fn header() -> String {
    format!(
        "{:<9} {:>10} {:>14} {:>8} {:>9} {:>8}  FILE\n",
        "STATE", "RECORDS", "BYTES", "AGE s", "MB/s", "ADLER32"
    )
}

fn line_of(row: &FileRow, now_ns: i64) -> String {
    let open_ns = row.closed_ns.unwrap_or(now_ns) - row.opened_ns;
    let open_s = open_ns.max(0) as f64 / 1e9;
    let rate = if open_s > 0.0 {
        row.sums.bytes as f64 / 1e6 / open_s
    } else {
        0.0
    };
    let age_s = (now_ns - row.opened_ns).max(0) as f64 / 1e9;
    format!(
        "{:<9} {:>10} {:>14} {age_s:>8.0} {rate:>9.1} {:08x}  {}\n",
        row.state.name(),
        row.records,
        row.sums.bytes,
        row.sums.adler32,
        row.file
    )
}

/// Returns a row as JSON.
fn json_of(folder: &std::path::Path, row: &FileRow) -> Value {
    json!({
        "directory": folder,
        "file": row.file,
        "state": row.state.name(),
        "run": row.name.run,
        "stream": row.name.stream,
        "block": row.name.block,
        "node": row.name.node,
        "seq": row.name.seq,
        "records": row.records,
        "bytes": row.sums.bytes,
        "adler32": format!("{:08x}", row.sums.adler32),
        "crc32c": row.sums.crc32c.map(|sum| format!("{sum:08x}")),
        "xxh3": row.sums.xxh3.map(|sum| format!("{sum:016x}")),
        "opened_ns": row.opened_ns,
        "closed_ns": row.closed_ns,
    })
}
