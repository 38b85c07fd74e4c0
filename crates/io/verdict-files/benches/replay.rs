//! Benchmark of a leader's start after a run of some length.
//!
//! Workload: a log of verdicts, five an append, written before; with a checkpoint of 40 sources and 100 undone TFs
//! every 5,000 records, or without any. One figure is a start: opening the directory, and every record that is
//! replayed. Unit: time a start. `SHEAF_BENCH_DIR` names the folder as for the bench `append`. The checksum is the
//! number of records that are replayed.

use divan::Bencher;
use sheaf_protocol::{
    Attempt, Checkpoint, EpnId, FlpId, Incarnation, Record, SummedSource, Target, TfId, Timestamp,
    Verdict,
};
use sheaf_verdict_files::FileStorage;
use sheaf_verdict_log::file::FileLedger;
use sheaf_verdict_log::{Ledger, Notice, Replay};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;
use tempfile::TempDir;

/// Verdicts of the run: 100,000 are 8 minutes at 200 Hz.
const TFS: [u64; 3] = [10_000, 100_000, 400_000];
const GROUP: u64 = 5;
const CHECKPOINT_EVERY: u64 = 5000;

fn main() {
    let (whole, short) = (written(10_000, false), written(10_000, true));
    println!(
        "replay: {} records, {} from the last checkpoint on",
        start(whole.path()),
        start(short.path())
    );
    divan::main();
}

fn target(tf: u64) -> Target {
    Target {
        epn: EpnId((tf % 350) as u16),
        incarnation: Incarnation(1),
    }
}

fn verdict(tf: u64) -> Record {
    Record::Verdict {
        tf: TfId(tf),
        attempt: Attempt(1),
        verdict: Verdict::Complete { target: target(tf) },
        bytes: 275_000,
    }
}

/// Returns the records that stand for all TFs up to `end`.
fn checkpoint(end: u64) -> Vec<Record> {
    let head = Checkpoint {
        frontier: TfId(end),
        floor: TfId(end.saturating_sub(100)),
        complete: end,
        ..Checkpoint::default()
    };
    let source = |flp| SummedSource {
        flp: FlpId(flp),
        built: end,
    };
    let sources = (0..40).map(source).collect();
    let mut records = vec![
        Record::Checkpoint(Box::new(head)),
        Record::Sources { sources },
    ];
    records.extend((end.saturating_sub(100)..end).map(|tf| Record::Undone {
        tf: TfId(tf),
        attempt: Attempt(1),
        verdict: Verdict::Complete { target: target(tf) },
        bytes: 275_000,
    }));
    records
}

fn open(folder: &Path) -> (FileLedger<FileStorage>, Receiver<()>, Replay) {
    let (wake, wakes) = sync_channel(1);
    let waker = Box::new(move || {
        // A pending wake need not be repeated.
        let _ = wake.try_send(());
    });
    let storage = sheaf_verdict_files::open(folder, waker).expect("the folder of a bench");
    let mut ledger = FileLedger::open(storage).expect("a log of one ICN");
    loop {
        match ledger.poll(Timestamp(0)) {
            Some(Notice::Lead { replay, .. }) => return (ledger, wakes, replay),
            Some(_) => {}
            None => wakes
                .recv_timeout(Duration::from_secs(60))
                .expect("the writer rings"),
        }
    }
}

fn written(tfs: u64, with_checkpoints: bool) -> TempDir {
    let within = std::env::var_os("SHEAF_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = tempfile::tempdir_in(within).expect("the folder of a bench can be written");
    let (mut ledger, wakes, _) = open(folder.path());
    for first in (0..tfs).step_by(GROUP as usize) {
        let mut last = ledger.append(Timestamp(0), (first..first + GROUP).map(verdict).collect());
        let end = first + GROUP;
        if with_checkpoints && end.is_multiple_of(CHECKPOINT_EVERY) {
            last = ledger.append(Timestamp(0), checkpoint(end));
        }
        // As a farm does: it decides no more than the log keeps up with.
        let mut is_durable = !end.is_multiple_of(1000);
        while !is_durable {
            match ledger.poll(Timestamp(0)) {
                Some(Notice::Durable(at)) => is_durable = at >= last,
                Some(_) => {}
                None => wakes
                    .recv_timeout(Duration::from_secs(60))
                    .expect("the writer rings"),
            }
        }
    }
    folder
}

fn start(folder: &Path) -> usize {
    let (ledger, _, replay) = open(folder);
    let records = replay.count();
    drop(ledger);
    records
}

#[divan::bench(args = TFS, sample_count = 10, sample_size = 1)]
fn whole(bencher: Bencher<'_, '_>, tfs: u64) {
    let folder = written(tfs, false);
    bencher.bench_local(|| start(folder.path()));
}

#[divan::bench(args = TFS, sample_count = 10, sample_size = 1)]
fn from_checkpoint(bencher: Bencher<'_, '_>, tfs: u64) {
    let folder = written(tfs, true);
    bencher.bench_local(|| start(folder.path()));
}
