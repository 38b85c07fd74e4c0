//! `sheaf files check`: files read again and compared with their catalogue.

use crate::progress::{Amount, Bar};
use anyhow::Context as _;
use serde_json::json;
use sheaf_formats::StreamFormat;
use sheaf_formats::stf_file::{NextStf, next_stf};
use sheaf_formats::tf_file::{NextTf, next_tf};
use sheaf_stream_files::{
    Catalogue, FileRow, FileState, ShipState, Wanted, compare_file, compare_sums,
};
use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Read closed files again and compare them with the catalogue.
///
/// Bytes, records and checksums are compared, in files of the format raw bytes and checksums alone. Files that a
/// running writer has open are left out, and those that are shipped and deleted here. Exit status: 0 if nothing is
/// wrong, 1 if a file is damaged, gone, or without a row.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Check the files in these folders.
    #[arg(required = true, value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

/// Outcome of all files.
#[derive(Debug, Default)]
struct Report {
    files: u64,
    records: u64,
    bytes: u64,
    open: u64,
    deleted: u64,
    faults: Vec<String>,
}

/// Checks all folders.
///
/// # Errors
///
/// A folder without a catalogue, or standard output that cannot be written to.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut report = Report::default();
    let mut bar = Bar::new("checked", !args.json);
    let catalogues = super::catalogues(&args.folders)?;
    for (_, catalogue) in &catalogues {
        catalogue.each(&Wanted::default(), |row, shipped| {
            if !is_deleted(shipped) && row.state != FileState::Open {
                let (files, bytes) = (1, row.sums.bytes);
                bar.expect(Amount { files, bytes });
            }
        })?;
    }
    for (folder, catalogue) in catalogues {
        check_folder(&folder, &catalogue, &mut report, &mut bar)?;
    }
    bar.end();
    let text = if args.json {
        let object = json!({
            "files": report.files,
            "records": report.records,
            "bytes": report.bytes,
            "open": report.open,
            "deleted": report.deleted,
            "faults": report.faults,
        });
        format!("{object}\n")
    } else {
        let lines: String = report.faults.iter().map(|it| format!("{it}\n")).collect();
        format!(
            "{lines}{} files, {} records, {} bytes checked; {} open; {} shipped and deleted; {} faults\n",
            report.files,
            report.records,
            report.bytes,
            report.open,
            report.deleted,
            report.faults.len()
        )
    };
    io::stdout()
        .write_all(text.as_bytes())
        .context("cannot write to standard output")?;
    Ok(ExitCode::from(u8::from(!report.faults.is_empty())))
}

/// Whether a file is no more here, since its destinations have it, or may go at any time.
fn is_deleted(shipped: Option<ShipState>) -> bool {
    let goes = [Some(ShipState::Deletable), Some(ShipState::Deleted)];
    goes.contains(&shipped)
}

fn check_folder(
    folder: &Path,
    catalogue: &Catalogue,
    report: &mut Report,
    bar: &mut Bar,
) -> anyhow::Result<()> {
    let mut known = BTreeSet::new();
    let mut rows = Vec::new();
    catalogue.each(&Wanted::default(), |row, shipped| {
        rows.push((row.clone(), shipped));
    })?;
    for (row, shipped) in rows {
        known.insert(row.file.clone());
        if is_deleted(shipped) {
            report.deleted += 1;
            continue;
        }
        if row.state == FileState::Open {
            report.open += 1;
            continue;
        }
        let checked = check_file(folder, &row, bar);
        bar.file(row.sums.bytes);
        match checked {
            Ok(()) => {
                report.files += 1;
                report.records += row.records;
                report.bytes += row.sums.bytes;
            }
            Err(fault) => {
                let path = folder.join(&row.file);
                report.faults.push(format!("{}: {fault}", path.display()));
            }
        }
    }
    let cannot = || format!("cannot read {}", folder.display());
    for entry in std::fs::read_dir(folder).with_context(cannot)? {
        let entry = entry.with_context(cannot)?;
        let name = entry.file_name();
        let has_end = |name: &str| {
            let end = name.rsplit_once('.').map_or("", |(_, end)| end);
            StreamFormat::ALL.iter().any(|it| it.extension() == end)
        };
        let is_stray = name
            .to_str()
            .is_some_and(|name| has_end(name) && !known.contains(name));
        // A file that was closed after the rows were read has one now.
        if is_stray && catalogue.get(&name.to_string_lossy())?.is_none() {
            let path = entry.path();
            report.faults.push(format!(
                "{}: the catalogue does not have it",
                path.display()
            ));
        }
    }
    Ok(())
}

/// Compares a file with its row.
fn check_file(folder: &Path, row: &FileRow, bar: &mut Bar) -> Result<(), String> {
    let broken = |error: String| Err(io::Error::new(io::ErrorKind::InvalidData, error));
    let mut offset = 0;
    let mut is_whole = |bytes: u64| {
        offset += bytes;
        bar.within(offset);
        Ok(true)
    };
    match StreamFormat::of_file(&row.file) {
        StreamFormat::Tf => compare_file(folder, row, |reader| match next_tf(reader)? {
            NextTf::Whole(_, bytes) => is_whole(bytes),
            NextTf::Broken(error) => broken(error.to_string()),
            NextTf::End => Ok(false),
        }),
        StreamFormat::StfFile => compare_file(folder, row, |reader| match next_stf(reader)? {
            NextStf::Whole(_, bytes) => is_whole(bytes.len() as u64),
            NextStf::Broken(fault) => broken(fault.to_string()),
            NextStf::End => Ok(false),
        }),
        StreamFormat::Raw => compare_sums(folder, row),
    }
}
