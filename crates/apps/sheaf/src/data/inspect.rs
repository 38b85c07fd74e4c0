//! `sheaf data inspect`: what is in files of detector data, and what is wrong with them.

use super::file_view::FileView;
use crate::fail;
use anyhow::Context as _;
use sheaf_formats::FaultKind;
use sheaf_formats::inspect::{Content, FileFormat, Inspection};
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Print pages, links, orbits, heartbeat frames and faults of data files.
///
/// Reads ALICE raw data (RDH 6 and 7), TF files of DataDistribution and of Sheaf, KM3NeT DAQ records and packets, and
/// LCLS-II XTC2, in files of any size. The last line sums up. Exit status: 0 if all files are clean, 1 if one has
/// faults, 2 if one cannot be read (missing, a directory, empty) or is of no known format; the others are printed all
/// the same.
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
    TfFile,
}

impl Format {
    fn given(self) -> Option<FileFormat> {
        match self {
            Self::Auto => None,
            Self::Rdh => Some(FileFormat::Rdh),
            Self::Km3net => Some(FileFormat::Km3net),
            Self::Xtc2 => Some(FileFormat::Xtc2),
            Self::StfFile => Some(FileFormat::StfFile),
            Self::TfFile => Some(FileFormat::TfFile),
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
    let mut sum = Summary::default();
    for path in &args.files {
        let inspection = match inspect(path, args.format.given()) {
            Ok(inspection) => inspection,
            Err(error) => {
                sum.unreadable += 1;
                // Where errors cannot be printed, the exit status still shows them.
                let _ = writeln!(errors, "sheaf: {}", fail::message(&error));
                continue;
            }
        };
        sum.add(&inspection);
        let text = if args.json {
            json(&inspection)
        } else {
            table(&inspection)
        };
        // Flushed after each file, so that a reader sees it when it is done and a closed pipe ends the work.
        out.write_all(text.as_bytes())
            .and_then(|()| out.flush())
            .map_err(|error| (sum.status(), error))?;
    }
    if !args.json {
        writeln!(out, "{sum}")
            .and_then(|()| out.flush())
            .map_err(|error| (sum.status(), error))?;
    }
    Ok(sum.status())
}

/// Inspects one file, a window at a time.
fn inspect(path: &Path, format: Option<FileFormat>) -> anyhow::Result<Inspection> {
    let cannot = || format!("cannot inspect {}", path.display());
    let mut view = FileView::open(path)?;
    let inspection = Inspection::of_view(&path.to_string_lossy(), &mut view, format);
    view.finish().with_context(cannot)?;
    inspection.with_context(cannot)
}

/// Outcome of all files.
#[derive(Clone, Copy, Debug, Default)]
struct Summary {
    clean: u64,
    faulty: u64,
    unreadable: u64,
    bytes: u64,
    faults: u64,
}

impl Summary {
    fn add(&mut self, inspection: &Inspection) {
        let faults = inspection.faults.len() as u64;
        self.bytes += inspection.bytes;
        self.faults += faults;
        self.clean += u64::from(faults == 0);
        self.faulty += u64::from(faults > 0);
    }

    fn status(self) -> Status {
        match (self.unreadable, self.faulty) {
            (0, 0) => Status::Clean,
            (0, _) => Status::Faults,
            _ => Status::Unreadable,
        }
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "files: {}, {} bytes: {} clean, {} with faults ({}), {} not read",
            self.clean + self.faulty + self.unreadable,
            self.bytes,
            self.clean,
            self.faulty,
            self.faults,
            self.unreadable
        )
    }
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
    if !inspection.cut_lists.is_empty() {
        let most = Inspection::LISTED_MAX;
        let names = listed(&inspection.cut_lists);
        row(
            &mut text,
            "not all listed",
            &format!("{names}: the first {most} values"),
        );
    }
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
        Content::TfFile(c) => vec![
            ("run", c.run.clone()),
            ("tf", c.tf.to_string()),
            ("attempt", c.attempt.to_string()),
            ("redelivered", c.redelivered.to_string()),
            ("payload_bytes", c.payload_bytes.to_string()),
            (
                "parts",
                listed(c.parts.iter().map(|part| {
                    format!(
                        "flp:{} {} bytes of {}, {}",
                        part.flp, part.bytes, part.format, part.digest
                    )
                })),
            ),
            ("missing", listed(&c.missing)),
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
                if json {
                    serde_json::from_str::<serde_json::Value>(&out).unwrap();
                } else {
                    let last = out.lines().last().unwrap();
                    assert!(last.starts_with("files: 1, "), "{last}");
                }
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
    fn what_is_of_no_known_format_is_told_with_its_first_bytes() {
        let files = [data("README.md"), data("alice-its-rdh7/10_rdh.raw")];
        for json in [false, true] {
            let (status, out, errors) = printed(&files, json);
            assert_eq!(status, Status::Unreadable);
            let found = "README.md: no known format: the file starts with [23, 20,";
            assert!(errors.contains(found), "{errors}");
            for line in out.lines().filter(|_| json) {
                serde_json::from_str::<serde_json::Value>(line).unwrap();
            }
            if !json {
                let last = out.lines().last().unwrap();
                assert_eq!(
                    last,
                    "files: 2, 1200 bytes: 1 clean, 0 with faults (0), 1 not read"
                );
            }
        }
    }

    #[test]
    fn a_tf_file_of_sheaf_is_checked_by_its_digests() {
        let payload = bytes::Bytes::from_static(b"payload");
        let part = sheaf_protocol::Part {
            source: sheaf_protocol::Source {
                flp: sheaf_protocol::FlpId(3),
                incarnation: sheaf_protocol::Incarnation(4),
            },
            format: sheaf_protocol::PayloadFormat::Opaque,
            digest: sheaf_protocol::crc32c(&payload),
            bytes: 7,
            payload,
        };
        let tf = sheaf_protocol::Tf {
            run: sheaf_protocol::RunId(0xabc),
            tf: sheaf_protocol::TfId(7),
            attempt: sheaf_protocol::Attempt(1),
            is_redelivered: false,
            parts: vec![part],
            missing: vec![sheaf_protocol::FlpId(9)],
        };
        let head = sheaf_formats::tf_file::tf_file_head(&tf);
        let mut bytes = [&head[..], b"payload"].concat();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &bytes).unwrap();
        let files = [file.path().to_owned()];
        let (status, out, _) = printed(&files, false);
        assert_eq!(status, Status::Clean);
        for line in [
            "format              tf-file",
            "tf                  7",
            "missing             9",
        ] {
            assert!(out.contains(line), "{out}");
        }
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        std::fs::write(file.path(), &bytes).unwrap();
        let (status, out, _) = printed(&files, true);
        assert_eq!(status, Status::Faults);
        let value: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(value["faults"][0]["kind"], "bad-digest");
        assert_eq!(value["faults"][0]["offset"], head.len());
        assert_eq!(
            (&value["tf"], &value["run"]),
            (&7.into(), &"0000000000000abc".into())
        );
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
