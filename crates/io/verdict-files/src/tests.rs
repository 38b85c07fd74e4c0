//! Tests of real directories.

use super::*;
use sheaf_protocol::{Record, RunId, Term, TfId, Timestamp};
use sheaf_verdict_log::file::FileLedger;
use sheaf_verdict_log::storage::StorageError;
use sheaf_verdict_log::{Ledger, Notice};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

fn clock(elapsed_ns: u64) -> Record {
    Record::Clock { elapsed_ns }
}

/// Returns a real ledger and its waker.
fn real(folder: &Path) -> (FileLedger<FileStorage>, Receiver<()>) {
    let (wake, wakes): (SyncSender<()>, _) = sync_channel(1);
    let waker = move || match wake.try_send(()) {
        Ok(()) | Err(TrySendError::Full(())) => {}
        Err(TrySendError::Disconnected(())) => panic!("the test ended before its ledger"),
    };
    let storage = crate::open(folder, Box::new(waker)).expect("a fresh folder");
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
        let error = crate::open(&folder, Box::new(|| ())).unwrap_err();
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
