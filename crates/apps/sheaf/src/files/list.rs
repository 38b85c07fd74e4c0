//! `sheaf files list`: what is in the catalogue of a writer.

use anyhow::Context as _;
use serde_json::{Value, json};
use sheaf_stream_files::{Catalogue, FileRow, FileState, Label, ShipState, Wanted};
use std::collections::BTreeMap;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

/// List files with their sizes, rates and checksums; a writer may be running.
///
/// Of an open file records, bytes and checksum are those at its last sync, and `age` is the time since it was opened.
/// `shipped` is how far `sheaf ship` is with it, of several destinations the one that is least far; `places` of the
/// JSON names all of them, with the state of the file at each.
#[derive(Debug, clap::Args)]
#[group(id = "list")]
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
    let wanted = Wanted {
        state: args.state.map(FileState::from),
        run: args.run,
        stream: args.stream.clone(),
    };
    let mut out = BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
    let catalogues = super::catalogues(&args.folders)?;
    let printed = print(args, &catalogues, &wanted, now_ns, &mut out);
    match printed.and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        printed => printed.context("cannot list the files")?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints all rows that are wanted, and their sums.
fn print(
    args: &Args,
    catalogues: &[(PathBuf, Catalogue)],
    wanted: &Wanted,
    now_ns: i64,
    out: &mut impl Write,
) -> io::Result<()> {
    let (mut files, mut bytes, mut records) = (0_u64, 0_u64, 0_u64);
    for (folder, catalogue) in catalogues {
        let mut printed = Ok(());
        let mut places: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        if args.json {
            for (file, place) in catalogue.places(None).map_err(io::Error::other)? {
                let place =
                    json!({ "destination": place.destination, "state": place.state.name() });
                places.entry(file).or_default().push(place);
            }
        }
        let each = catalogue.each(wanted, |row, shipped| {
            if printed.is_err() {
                return;
            }
            files += 1;
            bytes += row.sums.bytes;
            records += row.records;
            printed = if args.json {
                let mut facts = json_of(folder, row, shipped);
                facts["places"] = json!(places.remove(&row.file).unwrap_or_default());
                writeln!(out, "{facts}")
            } else {
                let head = match files {
                    1 => out.write_all(header().as_bytes()),
                    _ => Ok(()),
                };
                head.and_then(|()| print_line(out, row, shipped, now_ns))
            };
        });
        printed?;
        each.map_err(io::Error::other)?;
    }
    match args.json {
        true => Ok(()),
        false => writeln!(out, "{files} files, {records} records, {bytes} bytes"),
    }
}

fn header() -> String {
    format!(
        "{:<9} {:>9} {:>10} {:>14} {:>8} {:>9} {:>8}  FILE\n",
        "STATE", "SHIPPED", "RECORDS", "BYTES", "AGE s", "MB/s", "ADLER32"
    )
}

fn print_line(
    out: &mut impl Write,
    row: &FileRow,
    shipped: Option<ShipState>,
    now_ns: i64,
) -> io::Result<()> {
    let open_ns = row.closed_ns.unwrap_or(now_ns) - row.opened_ns;
    let open_s = open_ns.max(0) as f64 / 1e9;
    let rate = if open_s > 0.0 {
        row.sums.bytes as f64 / 1e6 / open_s
    } else {
        0.0
    };
    let age_s = (now_ns - row.opened_ns).max(0) as f64 / 1e9;
    writeln!(
        out,
        "{:<9} {:>9} {:>10} {:>14} {age_s:>8.0} {rate:>9.1} {:08x}  {}",
        row.state.name(),
        shipped.map_or("-", ShipState::name),
        row.records,
        row.sums.bytes,
        row.sums.adler32,
        row.file
    )
}

/// Returns a row as JSON.
fn json_of(folder: &Path, row: &FileRow, shipped: Option<ShipState>) -> Value {
    let label = Label {
        file: &row.file,
        name: &row.name,
        records: row.records,
        sums: &row.sums,
    };
    let mut facts = label.json();
    for (key, value) in [
        ("directory", json!(folder)),
        ("state", json!(row.state.name())),
        ("shipped", json!(shipped.map(ShipState::name))),
        ("opened_ns", json!(row.opened_ns)),
        ("closed_ns", json!(row.closed_ns)),
    ] {
        facts[key] = value;
    }
    facts
}
