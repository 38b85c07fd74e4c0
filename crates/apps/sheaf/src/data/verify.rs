//! `sheaf data verify`: checks a run again from the logs of its nodes.

mod sinks;

use crate::progress::Bar;
use crate::{abandoned, fail};
use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use sheaf_audit::{
    Audit, Contradiction, Evidence, Lives, Options, RosterSource, SourceAccounting,
    StreamAccounting, audit,
};
use sheaf_verdict_files::{ReadError, read_dir};
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Version of the schema.
const SCHEMA: u32 = 1;

/// Verify a run from the logs of its nodes: each timeframe has exactly one fate.
///
/// Reads the event logs (`*.events`) of a run, and its verdict log where there is one, and holds them against each
/// other: every timeframe (TF) that exists has exactly one verdict, was delivered at most once, by the EPN of its
/// verdict, with exactly the parts that its roster asks for, each with the digest that its source wrote down. No node
/// needs to run. Exit status: 0 if nothing contradicts it, 1 if something does, 2 if there is nothing to read, 3 if
/// nothing does and TFs are abandoned: an EPN ended before it acknowledged them.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf demo --duration 5s --keep run1; sheaf data verify run1
  sheaf data verify run1 --json -                    counts and the first contradiction, for machines
  sheaf data verify logs --sink /data/tfs             what the sinks wrote, too
  sheaf data verify logs --ledger /var/lib/sheaf/icn-0 --ledger /var/lib/sheaf/icn-1")]
pub(crate) struct Args {
    /// Read the event logs of the run in this directory, as a demo leaves it with --keep.
    #[arg(value_name = "RUN_DIR")]
    dir: PathBuf,
    /// Write the result as JSON to this file; `-`: standard output, and text to the standard error.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Read the verdict log of one ICN in this directory, in place of those in RUN_DIR; may be repeated.
    #[arg(long, value_name = "DIR")]
    ledger: Vec<PathBuf>,
    /// Check the files that the sinks `file` and `stf-file` wrote into this directory, too; may be repeated. Every TF
    /// delivered must stand in them once, byte for byte, and nothing else may.
    #[arg(long, value_name = "DIR")]
    sink: Vec<PathBuf>,
    /// Print all contradictions, not the first alone.
    #[arg(long)]
    all: bool,
    /// Exit with status 0 although timeframes are abandoned.
    #[arg(long)]
    allow_abandoned: bool,
}

/// Report of `--json`. `docs/reference/verify.md` describes every field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Report {
    schema: u32,
    version: String,
    run: Option<String>,
    ok: bool,
    event_logs: u64,
    lines: u64,
    ledgers: u64,
    records: u64,
    ledgers_damaged: Vec<String>,
    sinks: u64,
    sink_files: u64,
    sink_tfs: u64,
    sink_bytes: u64,
    sink_stf_tfs: u64,
    sink_raw_files: u64,
    lives: Lives,
    roster_source: RosterSource,
    over: bool,
    announced: u64,
    complete: u64,
    incomplete: u64,
    dropped: BTreeMap<String, u64>,
    in_flight: u64,
    unannounced: u64,
    abandoned: u64,
    redelivered: u64,
    delivered: u64,
    undelivered: u64,
    #[serde(default)]
    died_unprocessed: u64,
    #[serde(default)]
    unprocessed: u64,
    delivered_twice: u64,
    delivered_again: u64,
    mixed_target: u64,
    digest_mismatch: u64,
    consumer_faults: u64,
    bytes: u64,
    sources: BTreeMap<String, SourceAccounting>,
    #[serde(default)]
    streams: BTreeMap<String, StreamAccounting>,
    contradictions_total: u64,
    first_contradiction: Option<Contradiction>,
    contradictions: Vec<Contradiction>,
}

/// Runs the command.
///
/// # Errors
///
/// What cannot be read, or written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut evidence = Evidence::default();
    let event_logs = read_events(&mut evidence, &args.dir)?;
    let ledgers = read_ledgers(&mut evidence, args)?;
    if event_logs + ledgers == 0 {
        let dir = args.dir.display();
        return Err(fail::bad_use(format!(
            "{dir} holds no event log, expected files such as icn-0.events (sheaf demo leaves them with --keep)"
        )));
    }
    let stored = if args.sink.is_empty() {
        sinks::Read::default()
    } else {
        let bar = Bar::new("read", args.json.is_none());
        let read = sinks::read(&mut evidence, &args.sink, bar);
        read.map_err(|error| fail::bad_use(fail::message(&error)))?
    };
    let listed_max = if args.all { usize::MAX } else { 1 };
    let found = audit(
        &mut evidence,
        &Options {
            accounting: None,
            listed_max,
        },
    );
    let report = Report {
        sinks: args.sink.len() as u64,
        sink_files: stored.files,
        sink_tfs: stored.tfs,
        sink_bytes: stored.bytes,
        sink_stf_tfs: stored.stf_tfs,
        sink_raw_files: stored.raw_files,
        ..Report::new(&evidence, found, event_logs, ledgers, args.all)
    };
    tell(args, &report)?;
    Ok(ExitCode::from(report.status(args.allow_abandoned)))
}

fn read_events(evidence: &mut Evidence, dir: &Path) -> anyhow::Result<u64> {
    let bad = |error| fail::bad_use(format!("cannot read {}: {error}", dir.display()));
    let logs = evidence.read_dir(dir).map_err(bad)?;
    Ok(logs)
}

/// Reads the verdict log and says how many directories of it there are.
fn read_ledgers(evidence: &mut Evidence, args: &Args) -> anyhow::Result<u64> {
    let mut folders = args.ledger.clone();
    for folder in &folders {
        std::fs::read_dir(folder).map_err(|error| {
            fail::bad_use(format!(
                "cannot read --ledger {}: {error}",
                folder.display()
            ))
        })?;
    }
    if folders.is_empty() {
        let entries = std::fs::read_dir(&args.dir);
        let entries = entries.with_context(|| format!("cannot read {}", args.dir.display()))?;
        let found = entries.filter_map(|entry| Some(entry.ok()?.path()));
        folders = found
            .filter(|path| path.is_dir() && holds_ledger(path))
            .collect();
        folders.sort();
    }
    if !folders.is_empty() {
        evidence.read_ledger(&folders).map_err(fail::bad_use)?;
    }
    Ok(folders.len() as u64)
}

/// A damaged one is one, and is reported.
fn holds_ledger(path: &Path) -> bool {
    !matches!(read_dir(path), Err(ReadError::Nothing(_)))
}

impl Report {
    /// Returns the exit status.
    fn status(&self, allow_abandoned: bool) -> u8 {
        match (self.ok, self.abandoned) {
            (false, _) => 1,
            (true, 1..) if !allow_abandoned => abandoned::STATUS,
            (true, _) => 0,
        }
    }

    fn new(evidence: &Evidence, found: Audit, event_logs: u64, ledgers: u64, all: bool) -> Self {
        let (lines, records) = evidence.counts();
        let runs = evidence.runs();
        let ok = found.is_balanced() && found.consumer_faults == 0;
        let first_contradiction = found.contradictions.first().cloned();
        Self {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            run: (runs.len() == 1).then(|| runs[0].clone()),
            ok,
            event_logs,
            lines,
            ledgers,
            records,
            ledgers_damaged: evidence.damaged_ledgers().to_vec(),
            sinks: 0,
            sink_files: 0,
            sink_tfs: 0,
            sink_bytes: 0,
            sink_stf_tfs: 0,
            sink_raw_files: 0,
            lives: evidence.lives(),
            roster_source: found.roster_source,
            over: found.is_over,
            announced: found.announced,
            complete: found.complete,
            incomplete: found.incomplete,
            dropped: found.dropped,
            in_flight: found.in_flight,
            unannounced: found.unannounced,
            abandoned: found.abandoned,
            redelivered: found.redelivered,
            delivered: found.delivered,
            undelivered: found.undelivered,
            died_unprocessed: found.died_unprocessed,
            unprocessed: found.unprocessed,
            delivered_twice: found.delivered_twice,
            delivered_again: found.delivered_again,
            mixed_target: found.mixed_target,
            digest_mismatch: found.digest_mismatch,
            consumer_faults: found.consumer_faults,
            bytes: found.bytes,
            sources: found.sources,
            streams: found.streams,
            contradictions_total: found.contradictions_total,
            first_contradiction,
            contradictions: if all {
                found.contradictions
            } else {
                Vec::new()
            },
        }
    }

    fn to_json(&self) -> String {
        let mut text =
            serde_json::to_string_pretty(self).expect("names and numbers always have a JSON form");
        text.push('\n');
        text
    }
}

impl fmt::Display for Report {
    /// For people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let run = self.run.as_deref().unwrap_or("unknown");
        let state = if self.over {
            "over"
        } else {
            "not over, or cut short"
        };
        writeln!(f, "run {run}, {state}")?;
        let lives = &self.lives;
        writeln!(
            f,
            "  {} event logs with {} lines: lives of ICNs {}, FLPs {}, EPNs {}; {} ended in order",
            self.event_logs, self.lines, lives.icns, lives.flps, lives.epns, lives.ended
        )?;
        if self.ledgers > 0 {
            writeln!(
                f,
                "  verdict log of {} ICNs with {} records",
                self.ledgers, self.records
            )?;
        }
        for copy in &self.ledgers_damaged {
            writeln!(
                f,
                "  damaged copy of the verdict log, left out since most are whole: {copy}"
            )?;
        }
        if self.sinks > 0 {
            writeln!(
                f,
                "  sinks: {} TFs in {} files, {} bytes, compared with {} deliveries",
                self.sink_tfs, self.sink_files, self.sink_bytes, self.delivered
            )?;
        }
        if self.sink_stf_tfs > 0 {
            writeln!(
                f,
                "  sinks: {} of these TFs are in several streams of the format stf-file: checksums of closed files \
                 compared, TFs not",
                self.sink_stf_tfs
            )?;
        }
        if self.sink_raw_files > 0 {
            writeln!(
                f,
                "  sinks: {} of these files are of the format raw: checksums of closed files compared, TFs not",
                self.sink_raw_files
            )?;
        }
        writeln!(f, "  rosters are those of {}", self.roster_source.words())?;
        let dropped: u64 = self.dropped.values().sum();
        let mark = if self.ok { "✔" } else { "✘" };
        writeln!(
            f,
            "  announced {} = complete {} + incomplete {} + dropped {dropped} + in flight {} {mark}",
            self.announced, self.complete, self.incomplete, self.in_flight
        )?;
        if !self.dropped.is_empty() {
            writeln!(f, "  dropped: {}", counts(&self.dropped))?;
        }
        writeln!(
            f,
            "  delivered {}, twice {}, mixed {}, digest mismatches {}, abandoned {}, undelivered {}, unannounced {}",
            self.delivered,
            self.delivered_twice,
            self.mixed_target,
            self.digest_mismatch,
            self.abandoned,
            self.undelivered,
            self.unannounced
        )?;
        if self.redelivered > 0 {
            writeln!(
                f,
                "  redelivered {}, of which consumers got {} twice or more, marked but for one delivery at most",
                self.redelivered, self.delivered_again
            )?;
        }
        write!(f, "{}", abandoned::Warning(self.abandoned))?;
        if self.died_unprocessed + self.unprocessed > 0 {
            writeln!(
                f,
                "  warning: consumers had not finished with {} TFs of EPNs that died, and {} of EPNs that ended in order",
                self.died_unprocessed, self.unprocessed
            )?;
        }
        for (flp, accounting) in &self.sources {
            writeln!(
                f,
                "  {flp}: made {} = delivered {} + missing {} + dropped {} + abandoned {} + outside {} + in flight {}; \
                 skipped {}, refused {}",
                accounting.made,
                accounting.delivered,
                accounting.missing,
                accounting.dropped,
                accounting.abandoned,
                accounting.outside,
                accounting.in_flight,
                accounting.skipped,
                accounting.refused
            )?;
        }
        for (stream, fates) in &self.streams {
            let shed: u64 = fates.shed.values().sum();
            let reasons = match shed {
                0 => String::new(),
                _ => format!(" ({})", counts(&fates.shed)),
            };
            writeln!(
                f,
                "  stream {stream}: {} TFs = written {} + shed {shed}{reasons} + refused {}",
                fates.announced, fates.written, fates.refused
            )?;
        }
        if self.consumer_faults > 0 {
            writeln!(
                f,
                "  PROBLEM: consumers found {} faults in TFs",
                self.consumer_faults
            )?;
        }
        let told = if self.contradictions.is_empty() {
            self.first_contradiction.as_slice()
        } else {
            &self.contradictions
        };
        for found in told {
            writeln!(f, "  CONTRADICTION ({}): {found}", found.kind)?;
        }
        match self.contradictions_total - told.len() as u64 {
            0 if told.is_empty() => writeln!(f, "  no contradiction"),
            0 => Ok(()),
            more => writeln!(f, "  … and {more} more (--all tells them)"),
        }
    }
}

fn counts(counts: &BTreeMap<String, u64>) -> String {
    let mut text = String::new();
    for (index, (name, count)) in counts.iter().enumerate() {
        let comma = if index > 0 { ", " } else { "" };
        write!(text, "{comma}{name} {count}").expect("a string takes every text");
    }
    text
}

/// Tells the result to machines and people.
fn tell(args: &Args, report: &Report) -> anyhow::Result<()> {
    let mut text = report.to_string();
    let mut is_written = Ok(());
    match &args.json {
        Some(path) if path.as_os_str() == "-" => {
            // Who reads the standard output only may have closed the other.
            let _ = std::io::stderr().write_all(text.as_bytes());
            text = report.to_json();
        }
        Some(path) => {
            is_written = std::fs::write(path, report.to_json())
                .with_context(|| format!("cannot write {}", path.display()));
        }
        None => {}
    }
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        outcome => outcome.context("cannot write the result")?,
    }
    is_written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abandoned_tfs_are_part_of_the_exit_status_unless_allowed() {
        let mut report = Report {
            ok: true,
            ..Report::default()
        };
        assert_eq!(report.status(false), 0);
        report.abandoned = 1;
        assert_eq!((report.status(false), report.status(true)), (3, 0));
        assert!(report.to_string().contains("warning: 1 TFs are abandoned"));
        report.ok = false;
        assert_eq!(report.status(true), 1);
    }

    #[test]
    fn every_documented_field_is_there() {
        let value: serde_json::Value = serde_json::from_str(&Report::default().to_json()).unwrap();
        let page = include_str!("../../../../../docs/reference/verify.md");
        let (_, page) = page.split_once("## The result for machines").unwrap();
        let documented: Vec<&str> = page
            .lines()
            .filter_map(|line| {
                line.strip_prefix("| `")?
                    .split_once('`')
                    .map(|(name, _)| name)
            })
            .collect();
        for name in &documented {
            assert!(
                value.get(name).is_some(),
                "`{name}` is described and not written"
            );
        }
        for name in value.as_object().unwrap().keys() {
            assert!(
                documented.contains(&name.as_str()),
                "`{name}` is written and not described"
            );
        }
    }
}
