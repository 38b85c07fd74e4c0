//! Test with a real process and a real directory: killed, or failed, at every system call that changes the disk.
//!
//! Needs `strace` and the right to trace; without them it prints so and passes. The same steps are gone through on a
//! simulated disk, power failures included, in `storage/log_files/tests.rs`.

use sheaf_protocol::{Record, TfId, Timestamp};
use sheaf_verdict_files::{FileStorage, read_dir};
use sheaf_verdict_log::file::FileLedger;
use sheaf_verdict_log::{Ledger, Notice};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

/// Environment variable with the directory of the child.
const FOLDER: &str = "SHEAF_LEDGER_CHILD";

/// System calls that change a directory, and how the log uses them.
const CALLS: [&str; 7] = [
    "pwrite64",
    "fdatasync",
    "fsync",
    "ftruncate",
    "rename",
    "unlink",
    "openat",
];

/// Returns the appends of a life of a process, one after the other; the third fills a segment and begins another.
fn appends(life: u64) -> Vec<Vec<Record>> {
    let clock = |at: u64| {
        vec![Record::Clock {
            elapsed_ns: 100 * life + at,
        }]
    };
    let ranges = |at: u64| (0..8000).map(move |tf| (TfId(at + 2 * tf), TfId(at + 2 * tf + 1)));
    let large = (0..70).map(|at| Record::Done {
        ranges: ranges(at).collect(),
    });
    vec![clock(1), clock(2), large.collect(), clock(4), clock(5)]
}

fn open(folder: &Path) -> (FileLedger<FileStorage>, Receiver<()>) {
    let (wake, wakes) = sync_channel(1);
    let waker = Box::new(move || {
        // A pending wake need not be repeated.
        let _ = wake.try_send(());
    });
    let storage =
        sheaf_verdict_files::open(folder, waker).unwrap_or_else(|error| panic!("{error}"));
    (
        FileLedger::open(storage).expect("it is that of a single ICN"),
        wakes,
    )
}

fn next(ledger: &mut FileLedger<FileStorage>, wakes: &Receiver<()>) -> Notice {
    loop {
        if let Some(notice) = ledger.poll(Timestamp(0)) {
            return notice;
        }
        wakes
            .recv_timeout(Duration::from_secs(60))
            .expect("the writer rings");
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // The parent may have gone; then the output has no reader.
    drop(writeln!(out, "{line}").and_then(|()| out.flush()));
}

/// Runs the child under strace for the parent; without its variable it is no test.
#[test]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let (mut ledger, wakes) = open(Path::new(&folder));
    let mut open = Vec::new();
    loop {
        match next(&mut ledger, &wakes) {
            Notice::Lead { term, .. } => {
                say(&format!("lead {}", term.0));
                open = appends(term.0);
                open.reverse();
            }
            Notice::Durable(position) => say(&format!("durable {}", position.0)),
            Notice::Trouble(why) => {
                say(&format!("trouble {why}"));
                continue;
            }
            Notice::Healed => {
                say("healed");
                continue;
            }
            other => panic!("{other:?}"),
        }
        match open.pop() {
            Some(records) => drop(ledger.append(Timestamp(0), records)),
            None => return,
        }
    }
}

/// Runs the child in `folder`, under strace with `injection` if there is one.
fn run(folder: &Path, injection: Option<&str>) -> Output {
    let this = std::env::current_exe().expect("a test knows its own path");
    let mut command = match injection {
        Some(injection) => {
            let mut strace = Command::new("strace");
            strace
                .args(["-f", "-qq", "-o", "/dev/null", "-e", injection])
                .arg(this);
            strace
        }
        None => Command::new(this),
    };
    command.args(["--exact", "child", "--nocapture", "--test-threads=1"]);
    command.env(FOLDER, folder).stdin(Stdio::null());
    // With the search path that cargo sets, the loader opens files in vain, some hundred where it has many folders.
    command.env_remove("LD_LIBRARY_PATH");
    command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Returns the lines of the child, without those of the test harness.
fn said(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    let ours = ["lead ", "durable ", "trouble ", "healed"];
    // The harness writes the name of the test without an end of line before the first of ours.
    let strip = |line: &str| line.rsplit("... ").next().unwrap_or(line).to_owned();
    let lines = text.lines().map(strip);
    lines
        .filter(|line| ours.iter().any(|word| line.starts_with(word)))
        .collect()
}

fn can_trace() -> bool {
    let probe = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null", "true"])
        .output();
    probe.is_ok_and(|output| output.status.success())
}

/// Checks that `folder` holds the appends of the lives before and the first ones of the last life, at least as many as
/// were acknowledged.
fn check(folder: &Path, lives: &[(u64, usize)], case: &str) {
    let read = read_dir(folder).map(|read| read.records().collect::<Result<Vec<_>, _>>());
    let found = match read {
        Ok(records) => records.unwrap_or_else(|error| panic!("{case}: {error}")),
        // Killed before there was anything.
        Err(error) => {
            assert_eq!(lives.last(), Some(&(1, 0)), "{case}: {error}");
            return;
        }
    };
    let found: Vec<Record> = found.into_iter().map(|(_, _, record)| record).collect();
    let mut known = Vec::new();
    for (life, acknowledged) in lives {
        let appends = appends(*life);
        let (sure, rest) = appends.split_at(*acknowledged);
        known.extend(sure.iter().flatten().cloned());
        if *life == lives.last().map_or(0, |(life, _)| *life) {
            // The append that was going on, whole or not at all.
            let maybe = rest.first().map_or(&[][..], |records| &records[..]);
            let with_it = [&known[..], maybe].concat();
            assert!(
                found == known || found == with_it,
                "{case}: {} records",
                found.len()
            );
        }
    }
    // The next life finds the same.
    let (mut ledger, wakes) = open(folder);
    match next(&mut ledger, &wakes) {
        Notice::Lead { replay, .. } => assert!(replay.eq(found), "{case}"),
        other => panic!("{case}: {other:?}"),
    }
}

#[test]
fn a_process_killed_at_any_call_has_lost_nothing_that_it_said_was_durable() {
    if !can_trace() {
        println!("skipped: no strace here, or no right to trace");
        return;
    }
    let mut kills = 0;
    for call in CALLS {
        for life in 1..=2 {
            for when in 1.. {
                let folder = tempfile::tempdir().expect("a temporary folder");
                let folder = folder.path().join("ledger");
                let mut lives = Vec::new();
                if life == 2 {
                    assert_eq!(said(&run(&folder, None)).len(), 6);
                    lives.push((1, 5));
                }
                let output = run(
                    &folder,
                    Some(&format!("inject={call}:signal=KILL:when={when}")),
                );
                let acknowledged = said(&output)
                    .iter()
                    .filter(|line| line.starts_with("durable"))
                    .count();
                lives.push((life, acknowledged));
                let case = format!("{call} {when} of life {life}");
                check(&folder, &lives, &case);
                if output.status.success() {
                    break;
                }
                kills += 1;
                // Opening of libraries and the harness is before; the ledger's own come in the first hundred.
                assert!(when < 100, "{case}");
            }
        }
    }
    println!("{kills} kills");
    assert!(kills > 60, "{kills}");
}

#[test]
fn a_call_that_fails_once_is_said_and_made_good() {
    if !can_trace() {
        println!("skipped: no strace here, or no right to trace");
        return;
    }
    let mut seen = BTreeSet::new();
    for (call, error) in [
        ("pwrite64", "ENOSPC"),
        ("pwrite64", "EIO"),
        ("fdatasync", "EIO"),
    ] {
        // The first ones are of the recovery, which gives up.
        for when in 3..12 {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let folder = folder.path().join("ledger");
            let injection = format!("inject={call}:error={error}:when={when}");
            let output = run(&folder, Some(&injection));
            let said = said(&output);
            assert!(output.status.success(), "{injection}: {said:?}");
            let troubles = said
                .iter()
                .filter(|line| line.starts_with("trouble"))
                .count();
            let healed = said.iter().filter(|line| *line == "healed").count();
            assert_eq!(troubles, healed, "{injection}: {said:?}");
            seen.extend(said.into_iter().filter(|line| line.starts_with("trouble")));
            check(&folder, &[(1, 5)], &injection);
        }
    }
    let seen: Vec<String> = seen.into_iter().collect();
    for word in [
        "cannot write",
        "cannot sync",
        "No space left",
        "Input/output error",
    ] {
        assert!(
            seen.iter().any(|line| line.contains(word)),
            "{word}: {seen:?}"
        );
    }
}
