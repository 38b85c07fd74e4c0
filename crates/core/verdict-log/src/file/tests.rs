//! Tests of one ICN on a simulated and on a real disk.

use super::*;
use crate::storage::{DiskFaults, FileStorage, SimDisk, SimStorage};
use sheaf_protocol::{RunId, TfId};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

fn clock(elapsed_ns: u64) -> Record {
    Record::Clock { elapsed_ns }
}

/// One ICN in virtual time.
struct Sim {
    now: Timestamp,
    ledger: FileLedger<SimStorage>,
}

impl Sim {
    fn start(disk: &SimDisk) -> Self {
        let storage = SimStorage::open(disk).expect("a crash leaves a good log");
        Self {
            now: Timestamp(0),
            ledger: FileLedger::open(storage).expect("it is that of a single ICN"),
        }
    }

    /// Polls until nothing is due before `until`; returns the notices as text.
    fn run(&mut self, until_ms: u64) -> Vec<String> {
        let until = Timestamp(until_ms * 1_000_000);
        let mut said = Vec::new();
        loop {
            while let Some(notice) = self.ledger.poll(self.now) {
                said.push(match notice {
                    Notice::Lead { term, replay } => {
                        format!("lead {} after {}", term.0, replay.count())
                    }
                    Notice::Durable(position) => format!("durable {}", position.0),
                    other => format!("{other:?}"),
                });
            }
            match self.ledger.next_due() {
                Some(due) if due <= until => self.now = due,
                _ => break,
            }
        }
        self.now = until;
        said
    }
}

#[test]
fn each_life_leads_in_the_next_term_and_finds_what_was_durable() {
    let disk = SimDisk::new(1);
    for life in 1..=5_u64 {
        let mut sim = Sim::start(&disk);
        assert_eq!(
            sim.run(10),
            [format!("lead {life} after {}", 2 * (life - 1))]
        );
        sim.ledger.append(sim.now, vec![clock(life)]);
        sim.ledger.append(sim.now, vec![clock(life)]);
        // The second one waits while the disk is at the first, and comes with the next batch.
        assert_eq!(sim.run(20), ["durable 1", "durable 2"]);
        drop(sim);
        disk.fail_power();
    }
}

#[test]
fn what_comes_while_the_disk_works_goes_with_the_next_batch() {
    let mut sim = Sim::start(&SimDisk::new(1));
    sim.run(10);
    for at in 1..=100 {
        assert_eq!(sim.ledger.append(sim.now, vec![clock(at)]), Position(at));
    }
    assert_eq!(sim.run(20), ["durable 1", "durable 100"]);
    assert_eq!(sim.ledger.status().records, 100);
}

#[test]
fn a_full_disk_is_said_once_and_what_was_appended_comes_when_there_is_space() {
    let disk = SimDisk::new(1);
    let mut sim = Sim::start(&disk);
    sim.run(10);
    disk.set_faults(DiskFaults {
        is_full: true,
        ..DiskFaults::default()
    });
    sim.ledger.append(sim.now, vec![clock(1)]);
    let said = sim.run(500);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("No space left on device"), "{said:?}");
    assert!(sim.ledger.status().trouble.is_some());
    sim.ledger.append(sim.now, vec![clock(2)]);
    disk.set_faults(DiskFaults::default());
    assert_eq!(sim.run(1000), ["Healed", "durable 1", "durable 2"]);
    assert_eq!(sim.ledger.status().trouble, None);
}

#[test]
fn nothing_is_appended_before_it_leads() {
    let mut sim = Sim::start(&SimDisk::new(1));
    assert_eq!(sim.ledger.append(sim.now, vec![clock(1)]), Position(0));
    assert_eq!(sim.run(10), ["lead 1 after 0"]);
}

/// Returns a real ledger and its waker.
fn real(folder: &Path) -> (FileLedger<FileStorage>, Receiver<()>) {
    let (wake, wakes): (SyncSender<()>, _) = sync_channel(1);
    let waker = move || match wake.try_send(()) {
        Ok(()) | Err(TrySendError::Full(())) => {}
        Err(TrySendError::Disconnected(())) => panic!("the test ended before its ledger"),
    };
    let storage = FileStorage::open(folder, Box::new(waker)).expect("a fresh folder");
    (FileLedger::open(storage).expect("a fresh folder"), wakes)
}

/// Returns the next notice, awaited by its wake.
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

#[test]
fn a_real_directory_keeps_the_log_over_restarts_and_is_read_by_others() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("ledger");
    assert!(matches!(
        read_dir(&folder),
        Err(ReadError::Storage(StorageError::Io { .. }))
    ));
    for life in 1..=3 {
        let (mut ledger, wakes) = real(&folder);
        let Notice::Lead { term, replay } = next(&mut ledger, &wakes) else {
            panic!("life {life} does not lead");
        };
        assert_eq!(term, Term(life));
        assert_eq!(replay.count() as u64, 3 * (life - 1));
        let records = vec![
            Record::Opened { run: RunId(life) },
            clock(1),
            Record::Done {
                ranges: vec![(TfId(0), TfId(life))],
            },
        ];
        let position = ledger.append(Timestamp(0), records);
        assert!(matches!(next(&mut ledger, &wakes), Notice::Durable(at) if at == position));

        // Others look on, and only one writes.
        let read = read_dir(&folder).unwrap();
        assert_eq!(read.findings.torn, None);
        let records: Vec<_> = read.records().map(Result::unwrap).collect();
        assert_eq!(records.len() as u64, 3 * life);
        assert_eq!(
            records.last().map(|(term, index, _)| (*term, *index)),
            Some((Term(life), life))
        );
        let error = FileStorage::open(&folder, Box::new(|| ())).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("{} is in use by another process", folder.display())
        );
    }
}

#[test]
fn the_newest_of_several_directories_is_that_of_the_highest_last_term() {
    let folder = tempfile::tempdir().unwrap();
    let folders = [folder.path().join("a"), folder.path().join("b")];
    for (folder, lives) in folders.iter().zip([2, 1]) {
        for _ in 0..lives {
            let (mut ledger, wakes) = real(folder);
            next(&mut ledger, &wakes);
            ledger.append(Timestamp(0), vec![clock(1)]);
            next(&mut ledger, &wakes);
        }
    }
    let newest = read_newest(&folders).unwrap();
    assert_eq!(
        (newest.folder(), newest.newest()),
        (&*folders[0], (Term(2), 2))
    );
    let empty = folder.path().join("c");
    std::fs::create_dir(&empty).unwrap();
    let error = read_newest(&[&folders[0], &empty]).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("{} holds no ledger", empty.display())
    );
}
