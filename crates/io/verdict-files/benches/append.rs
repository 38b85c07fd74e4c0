//! Benchmark of the time until a verdict is durable.
//!
//! Workload: appends of 1, 10, 100 and 1000 verdicts, one at a time: the next one when the last one is durable. `file`
//! is one ICN on its own disk, `majority` three ICNs in this process, each with a directory of its own on the same
//! disk and no network between them; both with a real `fdatasync`. Unit: time an append, verdicts a second.
//! `SHEAF_BENCH_DIR` names the folder of the directories (the system's temporary one if it is not set): the figure is
//! that of its disk. `cargo bench --profile ci -p sheaf-verdict-files` measures; under `cargo test` every bench runs
//! once. The checksum is the digest of the records that are read back.

use divan::{Bencher, counter::ItemsCount};
use sheaf_protocol::{
    Attempt, Digest, EpnId, Incarnation, Record, Target, TfId, Timestamp, Verdict,
};
use sheaf_verdict_files::{FileStorage, read_dir};
use sheaf_verdict_log::file::FileLedger;
use sheaf_verdict_log::majority::{MajorityConfig, MajorityLedger};
use sheaf_verdict_log::{Ledger, Notice, Position};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const GROUPS: [u64; 4] = [1, 10, 100, 1000];

fn main() {
    let folder = folder();
    let mut one = One::open(folder.path());
    for group in GROUPS {
        one.append(verdicts(group));
    }
    drop(one);
    let read = read_dir(folder.path()).expect("it was just written");
    let (mut digest, mut bytes) = (Digest::default(), Vec::new());
    for record in read.records() {
        let (_, _, record) = record.expect("it was just written");
        bytes.clear();
        record.encode_into(&mut bytes);
        digest.update(&bytes);
    }
    println!(
        "append: {} records, checksum {:08x}",
        read.findings.records,
        digest.value()
    );
    divan::main();
}

fn folder() -> TempDir {
    let within = std::env::var_os("SHEAF_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    tempfile::tempdir_in(within).expect("the folder of a bench can be written")
}

fn verdicts(count: u64) -> Vec<Record> {
    let verdict = |tf| Record::Verdict {
        tf: TfId(tf),
        attempt: Attempt(1),
        verdict: Verdict::Complete {
            target: Target {
                epn: EpnId((tf % 350) as u16),
                incarnation: Incarnation(1),
            },
        },
        bytes: 275_000,
    };
    (0..count).map(verdict).collect()
}

fn storage(folder: &Path, wake: SyncSender<()>) -> FileStorage {
    let waker = Box::new(move || {
        // A pending wake need not be repeated.
        let _ = wake.try_send(());
    });
    sheaf_verdict_files::open(folder, waker).expect("the folder of a bench is empty")
}

/// One ICN.
struct One {
    ledger: FileLedger<FileStorage>,
    wakes: Receiver<()>,
}

impl One {
    fn open(folder: &Path) -> Self {
        let (wake, wakes) = sync_channel(1);
        let ledger = FileLedger::open(storage(folder, wake)).expect("a fresh log");
        let mut one = Self { ledger, wakes };
        one.wait(|notice| matches!(notice, Notice::Lead { .. }));
        one
    }

    fn append(&mut self, records: Vec<Record>) {
        let position = self.ledger.append(Timestamp(0), records);
        self.wait(|notice| matches!(notice, Notice::Durable(at) if *at == position));
    }

    fn wait(&mut self, is_it: impl Fn(&Notice) -> bool) {
        loop {
            while let Some(notice) = self.ledger.poll(Timestamp(0)) {
                if is_it(&notice) {
                    return;
                }
            }
            self.wakes
                .recv_timeout(Duration::from_secs(60))
                .expect("the writer rings");
        }
    }
}

/// Three ICNs, driven by one loop.
struct Three {
    ledgers: Vec<MajorityLedger<FileStorage>>,
    leader: Option<usize>,
    durable: Position,
    wakes: Receiver<()>,
    began: Instant,
}

impl Three {
    fn open(folder: &Path) -> Self {
        let (wake, wakes) = sync_channel(1);
        let member = |icn: u16| {
            let storage = storage(&folder.join(icn.to_string()), wake.clone());
            MajorityLedger::new(MajorityConfig::new(icn, 3, 1), storage).expect("a fresh log")
        };
        let mut three = Self {
            ledgers: (0..3).map(member).collect(),
            leader: None,
            durable: Position(0),
            wakes,
            began: Instant::now(),
        };
        for (at, ledger) in three.ledgers.iter_mut().enumerate() {
            for other in (0..3_u16).filter(|other| usize::from(*other) != at) {
                ledger.handle_peer(Timestamp(0), other, true);
            }
        }
        while three.leader.is_none() {
            three.turn();
        }
        three
    }

    fn now(&self) -> Timestamp {
        Timestamp(0) + self.began.elapsed()
    }

    /// Does all pending work, and then waits for more.
    fn turn(&mut self) {
        let now = self.now();
        let mut is_quiet = true;
        for at in 0..self.ledgers.len() {
            while let Some(notice) = self.ledgers[at].poll(now) {
                is_quiet = false;
                match notice {
                    Notice::Send { to, message } => {
                        let from = u16::try_from(at).expect("three members");
                        self.ledgers[usize::from(to)].handle_message(now, from, &message);
                    }
                    Notice::Lead { .. } => self.leader = Some(at),
                    Notice::Durable(position) => self.durable = position,
                    Notice::Deposed { why, .. } => panic!("{why}"),
                    Notice::Trouble(_) | Notice::Healed => {}
                }
            }
        }
        if is_quiet {
            let due = self.ledgers.iter().filter_map(Ledger::next_due).min();
            let wait = due.map_or(Duration::from_millis(10), |due| due.since(self.now()));
            // Either is a reason to look again.
            let _ = self.wakes.recv_timeout(wait);
        }
    }

    fn append(&mut self, records: Vec<Record>) {
        let now = self.now();
        let leader = self.leader.expect("a leader");
        let position = self.ledgers[leader].append(now, records);
        while self.durable < position {
            self.turn();
        }
    }
}

#[divan::bench(args = GROUPS)]
fn file(bencher: Bencher<'_, '_>, group: u64) {
    let folder = folder();
    let mut one = One::open(folder.path());
    bencher
        .counter(ItemsCount::new(group))
        .with_inputs(|| verdicts(group))
        .bench_local_values(|records| one.append(records));
}

#[divan::bench(args = GROUPS)]
fn majority(bencher: Bencher<'_, '_>, group: u64) {
    let folder = folder();
    let mut three = Three::open(folder.path());
    bencher
        .counter(ItemsCount::new(group))
        .with_inputs(|| verdicts(group))
        .bench_local_values(|records| three.append(records));
}
