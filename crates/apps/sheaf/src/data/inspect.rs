//! `sheaf data inspect`: what is in files of detector data, and what is wrong with them.

use crate::fail;
use anyhow::Context as _;
use sheaf_farm::proc;
use sheaf_formats::FaultKind;
use sheaf_formats::inspect::{Content, FileFormat, Inspection};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Print pages, links, orbits, heartbeat frames and faults of data files.
///
/// Reads ALICE raw data (RDH 6 and 7), TF files of DataDistribution, KM3NeT DAQ records and packets, and LCLS-II
/// XTC2. Exit status: 0 if all files are clean, 1 if one has faults, 2 if one cannot be read (missing, a directory,
/// empty); the others are printed all the same. A file is read whole: it takes as much memory as it is large.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Inspect these files.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print one JSON object for each file, one a line.
    #[arg(long)]
    json: bool,
    /// Read the files in this format; `auto` decides by their first bytes.
    #[arg(long, value_enum, default_value_t = Format::Auto)]
    format: Format,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Format {
    Auto,
    Rdh,
    Km3net,
    Xtc2,
    StfFile,
}

impl Format {
    fn given(self) -> Option<FileFormat> {
        match self {
            Self::Auto => None,
            Self::Rdh => Some(FileFormat::Rdh),
            Self::Km3net => Some(FileFormat::Km3net),
            Self::Xtc2 => Some(FileFormat::Xtc2),
            Self::StfFile => Some(FileFormat::StfFile),
        }
    }
}

/// How the worst of several files went; the order is that of the exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Status {
    Clean = 0,
    Faults = 1,
    Unreadable = 2,
}

/// Runs the command on standard output and error.
///
/// # Errors
///
/// If standard output cannot be written to. A reader that has seen enough (`| head`) is no error.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let status = match print(args, &mut out, &mut io::stderr()) {
        Err((status, error)) if error.kind() == io::ErrorKind::BrokenPipe => status,
        Err((_, error)) => return Err(error).context("cannot write to standard output"),
        Ok(status) => status,
    };
    Ok(ExitCode::from(status as u8))
}

/// Prints all files. An error carries the status of those printed so far.
fn print(
    args: &Args,
    out: &mut impl Write,
    errors: &mut impl Write,
) -> Result<Status, (Status, io::Error)> {
    let mut worst = Status::Clean;
    for path in &args.files {
        let inspection = match read(path) {
            Ok(bytes) => Inspection::of(&path.to_string_lossy(), &bytes, args.format.given()),
            Err(error) => {
                worst = Status::Unreadable;
                // Where errors cannot be printed, the exit status still shows them.
                let _ = writeln!(errors, "sheaf: {}", fail::message(&error));
                continue;
            }
        };
        worst = worst.max(if inspection.faults.is_empty() {
            Status::Clean
        } else {
            Status::Faults
        });
        let text = if args.json {
            json(&inspection)
        } else {
            table(&inspection)
        };
        // Flushed after each file, so that a reader sees it when it is done and a closed pipe ends the work.
        out.write_all(text.as_bytes())
            .and_then(|()| out.flush())
            .map_err(|error| (worst, error))?;
    }
    Ok(worst)
}

/// The bytes of a file that has any. What never ends, such as `/dev/zero`, or leaves no memory to others is not read.
pub(crate) fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let memory = proc::memory_available_bytes().unwrap_or(u64::MAX);
    let bytes = read_up_to(path, memory / 4 * 3)
        .with_context(|| format!("cannot read {}", path.display()))?;
    anyhow::ensure!(
        !bytes.is_empty(),
        "cannot read {}: the file is empty",
        path.display()
    );
    Ok(bytes)
}

fn read_up_to(path: &Path, bytes_max: u64) -> anyhow::Result<Vec<u8>> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut bytes = Vec::new();
    if size <= bytes_max {
        bytes.try_reserve(usize::try_from(size)?)?;
        file.take(bytes_max.saturating_add(1))
            .read_to_end(&mut bytes)?;
    }
    // Pipes and devices have no size.
    let found = size.max(bytes.len() as u64);
    anyhow::ensure!(
        found <= bytes_max,
        "it has {found} bytes or more, expected at most {bytes_max}: three quarters of the memory that is free"
    );
    Ok(bytes)
}

fn json(inspection: &Inspection) -> String {
    let mut line =
        serde_json::to_string(inspection).expect("names and numbers always have a JSON form");
    line.push('\n');
    line
}

/// Faults and notes of one kind that are shown one by one.
const SHOWN_MAX: usize = 20;

/// One file as a table for people.
fn table(inspection: &Inspection) -> String {
    let mut text = String::new();
    let name: String = inspection
        .file
        .chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect();
    line(&mut text, &format!("{name}: {}", verdict(inspection)));
    row(&mut text, "format", inspection.format.name());
    row(&mut text, "bytes", &inspection.bytes.to_string());
    for (label, value) in rows(&inspection.content) {
        row(&mut text, label, &value);
    }
    let faults = inspection
        .faults
        .iter()
        .map(|f| (f.offset, f.kind.name(), &f.detail));
    list(&mut text, "faults", inspection.faults.len(), faults);
    let notes = inspection
        .notes
        .iter()
        .map(|n| (n.offset, n.kind.name(), &n.detail));
    list(&mut text, "notes", inspection.notes.len(), notes);
    if inspection.left_out > 0 {
        row(
            &mut text,
            "left out",
            &format!("{} more faults and notes", inspection.left_out),
        );
    }
    line(&mut text, "");
    text
}

fn verdict(inspection: &Inspection) -> String {
    let faults = inspection.faults.len();
    match inspection.faults.first() {
        None => "clean".to_owned(),
        Some(fault) if fault.kind == FaultKind::Truncated && faults == 1 => {
            "cut at the end".to_owned()
        }
        Some(_) if faults == 1 => "1 fault".to_owned(),
        Some(_) => format!("{faults} faults"),
    }
}

/// The numbers of a file under the names that its JSON has.
fn rows(content: &Content) -> Vec<(&'static str, String)> {
    match content {
        Content::Rdh(c) => vec![
            ("rdh_versions", listed(&c.rdh_versions)),
            ("data_formats", listed(&c.data_formats)),
            ("pages", c.pages.to_string()),
            ("payload_bytes", c.payload_bytes.to_string()),
            ("fee_ids", ranges(c.fee_ids.iter().map(|id| i64::from(*id)))),
            (
                "links",
                listed(
                    c.links
                        .iter()
                        .map(|l| format!("{}.{}.{}", l.cru, l.dw, l.link)),
                ),
            ),
            (
                "orbits",
                ranges(c.orbits.iter().map(|orbit| i64::from(*orbit))),
            ),
            ("hbf_opened", c.hbf_opened.to_string()),
            ("hbf_closed", c.hbf_closed.to_string()),
            ("tf_starts", c.tf_starts.to_string()),
        ],
        Content::Records(c) => vec![
            ("records", c.records.to_string()),
            ("record_types", counted(&c.record_types)),
            ("versions", listed(&c.versions)),
            ("detectors", listed(&c.detectors)),
            ("runs", listed(&c.runs)),
            (
                "frame_indices",
                ranges(c.frame_indices.iter().map(|index| i64::from(*index))),
            ),
            (
                "utc_s",
                ranges(c.utc_s.iter().map(|second| i64::from(*second))),
            ),
            ("frames", c.frames.to_string()),
            ("hits", c.hits.to_string()),
            ("record_bytes", span(c.record_bytes)),
        ],
        Content::Packets(c) => vec![
            ("packets", c.packets.to_string()),
            ("packet_types", counted(&c.packet_types)),
            ("runs", listed(&c.runs)),
            ("modules", listed(&c.modules)),
            (
                "time_stamps",
                listed(
                    c.time_stamps
                        .iter()
                        .map(|(s, tick)| format!("{s} s + {tick}")),
                ),
            ),
            ("sequences", listed(&c.sequences)),
            ("packet_bytes", span(c.packet_bytes)),
        ],
        Content::Xtc2(c) => vec![
            ("datagrams", c.datagrams.to_string()),
            ("services", counted(&c.services)),
            ("events", c.events.to_string()),
            ("event_extent_bytes", span(c.event_extent_bytes)),
            (
                "first_event",
                c.first_event
                    .map_or("none".to_owned(), |time| format!("{time} s")),
            ),
            (
                "last_event",
                c.last_event
                    .map_or("none".to_owned(), |time| format!("{time} s")),
            ),
            ("leftover_bytes", c.leftover_bytes.to_string()),
        ],
        Content::StfFile(c) => vec![
            ("tfs", c.tfs.to_string()),
            ("tf_bytes", span(c.tf_bytes)),
            ("run_numbers", listed(&c.run_numbers)),
            (
                "tf_counters",
                ranges(c.tf_counters.iter().map(|counter| i64::from(*counter))),
            ),
            (
                "first_orbits",
                ranges(c.first_orbits.iter().map(|orbit| i64::from(*orbit))),
            ),
            ("blocks", c.blocks.to_string()),
            ("payload_bytes", c.payload_bytes.to_string()),
            ("equipment", counted(&c.equipment)),
            ("write_time_ms", span(c.write_time_ms)),
            ("leftover_bytes", c.leftover_bytes.to_string()),
        ],
    }
}

fn list<'a>(
    text: &mut String,
    label: &str,
    count: usize,
    entries: impl Iterator<Item = (u64, &'static str, &'a String)>,
) {
    row(
        text,
        label,
        &if count == 0 {
            "none".to_owned()
        } else {
            count.to_string()
        },
    );
    for (offset, kind, detail) in entries.take(SHOWN_MAX) {
        line(text, &format!("    byte {offset}: {kind}: {detail}"));
    }
    if count > SHOWN_MAX {
        line(
            text,
            &format!("    and {} more (--json lists them)", count - SHOWN_MAX),
        );
    }
}

fn row(text: &mut String, label: &str, value: &str) {
    line(text, &format!("  {label:<19} {value}"));
}

fn line(text: &mut String, content: &str) {
    writeln!(text, "{content}").expect("a String takes any text");
}

/// Values one by one, the first dozen.
fn listed<T: std::fmt::Display>(values: impl IntoIterator<Item = T>) -> String {
    const LISTED_MAX: usize = 12;
    let mut values = values.into_iter();
    let mut shown: Vec<String> = values
        .by_ref()
        .take(LISTED_MAX)
        .map(|value| value.to_string())
        .collect();
    let more = values.count();
    if more > 0 {
        shown.push(format!("and {more} more"));
    }
    if shown.is_empty() {
        "none".to_owned()
    } else {
        shown.join(", ")
    }
}

/// Ascending values, neighbours drawn together, and how many there are.
fn ranges(values: impl Iterator<Item = i64>) -> String {
    let mut ranges: Vec<(i64, i64)> = Vec::new();
    let mut count = 0;
    for value in values {
        count += 1;
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == value => *last = value,
            _ => ranges.push((value, value)),
        }
    }
    let shown = ranges.into_iter().map(|(first, last)| {
        if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        }
    });
    format!("{} ({count})", listed(shown))
}

fn counted<K: std::fmt::Display>(counts: &std::collections::BTreeMap<K, u64>) -> String {
    listed(
        counts
            .iter()
            .map(|(name, count)| format!("{name}: {count}")),
    )
}

fn span(range: Option<(u64, u64)>) -> String {
    range.map_or("none".to_owned(), |(smallest, largest)| {
        format!("{smallest} to {largest}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../../testdata")
            .join(name)
    }

    fn printed(files: &[PathBuf], json: bool) -> (Status, String, String) {
        let args = Args {
            files: files.to_vec(),
            json,
            format: Format::Auto,
        };
        let (mut out, mut errors) = (Vec::new(), Vec::new());
        let status = print(&args, &mut out, &mut errors).unwrap();
        (
            status,
            String::from_utf8(out).unwrap(),
            String::from_utf8(errors).unwrap(),
        )
    }

    #[test]
    fn what_is_larger_than_memory_or_never_ends_is_refused() {
        let expected = "expected at most 1000";
        let large = tempfile::NamedTempFile::new().unwrap();
        large.as_file().set_len(3 << 40).unwrap();
        for path in [large.path(), Path::new("/dev/zero")] {
            let error = read_up_to(path, 1000).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        large.as_file().set_len(1000).unwrap();
        assert_eq!(read_up_to(large.path(), 1000).unwrap().len(), 1000);
    }

    #[test]
    fn the_status_of_every_file_of_the_data_set_is_pinned() {
        let faulty = [
            "1_hbf_bad_cdp_structure.raw",
            "err_not_hbf.raw",
            "test_hsd.xtc2",
        ];
        let folders = ["alice-its-rdh7", "km3net-daq", "lcls-xtc2"];
        let folders = folders
            .into_iter()
            .chain(["lcls-xtc2/intg_det", "lcls-xtc2/mixed_rate"]);
        let mut files = 0;
        for entry in folders.flat_map(|folder| std::fs::read_dir(data(folder)).unwrap()) {
            let path = entry.unwrap().path();
            if path.is_dir() {
                continue;
            }
            files += 1;
            let is_faulty = faulty.iter().any(|name| path.ends_with(name));
            let expected = if is_faulty {
                Status::Faults
            } else {
                Status::Clean
            };
            for json in [false, true] {
                let (status, out, errors) = printed(std::slice::from_ref(&path), json);
                assert_eq!(
                    (status, errors.as_str()),
                    (expected, ""),
                    "{}",
                    path.display()
                );
                assert_eq!(out.lines().count() == 1, json);
            }
        }
        assert_eq!(files, 33);
    }

    #[test]
    fn what_cannot_be_read_is_named_and_the_rest_is_printed() {
        let files = [
            data("missing.raw"),
            data("alice-its-rdh7"),
            data("alice-its-rdh7/10_rdh.raw"),
        ];
        let (status, out, errors) = printed(&files, true);
        assert_eq!(status, Status::Unreadable);
        assert_eq!(out.lines().count(), 1);
        assert!(
            errors
                .lines()
                .all(|line| line.starts_with("sheaf: cannot read ")),
            "{errors}"
        );
        assert_eq!(errors.lines().count(), 2);
    }

    #[test]
    fn the_table_says_what_is_in_a_file() {
        let (_, out, _) = printed(&[data("alice-its-rdh7/err_not_hbf.raw")], false);
        let lines: Vec<&str> = out.lines().collect();
        assert!(lines[0].ends_with("err_not_hbf.raw: 3 faults"), "{out}");
        assert!(lines.contains(&"  orbits              512 (1)"), "{out}");
        assert!(lines.contains(&"  links               23.0.8"), "{out}");
        let fault = "    byte 160: unclosed-hbf: HBF of orbit 512 on link 23.0.8 is not closed: the input \
                     ends after its page 0";
        assert!(lines.contains(&fault), "{out}");
    }

    #[test]
    fn a_reader_that_leaves_ends_the_work() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let files = vec![data("alice-its-rdh7/err_not_hbf.raw")];
        let args = Args {
            files,
            json: true,
            format: Format::Auto,
        };
        let (status, error) = print(&args, &mut Closed, &mut io::sink()).unwrap_err();
        assert_eq!(
            (status, error.kind()),
            (Status::Faults, io::ErrorKind::BrokenPipe)
        );
    }

    #[test]
    fn many_values_are_drawn_together() {
        assert_eq!(ranges([1, 2, 3, 7].into_iter()), "1-3, 7 (4)");
        assert_eq!(
            ranges((0..30).map(|n| 2 * n)).split(", and ").nth(1),
            Some("18 more (30)")
        );
        assert_eq!(listed::<u8>([]), "none");
    }
}
