//! Tests of the verdict log as evidence, from its files.

use super::super::*;
use super::run::*;
use sheaf_protocol::{Record, Timestamp};
use sheaf_verdict_files::{FileStorage, ReadError};
use sheaf_verdict_log::file::FileLedger;
use sheaf_verdict_log::{Ledger, Notice};
use std::fs;
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

/// Writes `records` to `folder`, as an ICN does in one of its lives.
fn keep(folder: &Path, records: Vec<Record>) {
    let (wake, wakes) = sync_channel(64);
    let waker = Box::new(move || {
        let _ = wake.try_send(());
    });
    let storage = sheaf_verdict_files::open(folder, waker).expect("the folder is free");
    let mut ledger = FileLedger::open(storage).expect("of a single ICN");
    assert!(matches!(next(&mut ledger, &wakes), Notice::Lead { .. }));
    let end = ledger.append(Timestamp(0), records);
    assert!(matches!(next(&mut ledger, &wakes), Notice::Durable(at) if at == end));
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

#[test]
fn the_files_of_several_lives_of_an_icn_are_one_verdict_log() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("ledger-icn-0");
    let run = Run::good();
    let (first, second) = run.ledger.split_at(run.ledger.len() / 2);
    keep(&folder, first.to_vec());
    keep(&folder, second.to_vec());

    let mut evidence = run.evidence(false);
    evidence.read_ledger(&[&folder]).unwrap();
    let found = audit(&mut evidence, &Options::default());
    assert!(found.is_balanced(), "{:#?}", found.contradictions);
    assert_eq!(found.roster_source, RosterSource::Ledger);
    assert_eq!(evidence.counts().1, run.ledger.len() as u64);

    // The verdict on TF 2 is written again in a third life.
    keep(&folder, vec![recorded(&complete(2, 1)).unwrap()]);
    let mut evidence = run.evidence(false);
    evidence.read_ledger(&[&folder]).unwrap();
    let found = audit(&mut evidence, &Options::default()).contradictions;
    assert_eq!(found[0].kind, Kind::TwoVerdicts);
    assert_eq!(found[0].tf, Some(2));
}

#[test]
fn a_damaged_verdict_log_is_a_finding_and_none_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger-icn-0");
    let run = Run::good();
    keep(&ledger, run.ledger.clone());
    keep(&ledger, vec![Record::Clock { elapsed_ns: 1 }]);
    for entry in fs::read_dir(&ledger).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 3;
        if bytes.len() > 300 {
            bytes[middle] ^= 0x40;
            fs::write(&path, bytes).unwrap();
        }
    }
    let mut evidence = run.evidence(false);
    evidence.read_ledger(&[&ledger]).unwrap();
    let found = audit(&mut evidence, &Options::default()).contradictions;
    assert_eq!(found[0].kind, Kind::Ledger);
    assert!(found[0].text.contains("ledger-icn-0"), "{found:#?}");

    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let error = run.evidence(false).read_ledger(&[&empty]).unwrap_err();
    assert!(matches!(error, ReadError::Nothing(_)), "{error}");
}

/// Flips a byte in the first large file of `folder`.
fn damage(folder: &Path) {
    let files = fs::read_dir(folder).unwrap();
    let large = files.map(|file| file.unwrap().path()).find_map(|path| {
        let bytes = fs::read(&path).unwrap();
        (bytes.len() > 300).then_some((path, bytes))
    });
    let (path, mut bytes) = large.expect("a file with records");
    let middle = bytes.len() / 3;
    bytes[middle] ^= 0x40;
    fs::write(&path, bytes).unwrap();
}

#[test]
fn one_damaged_copy_of_three_is_named_and_the_others_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let copies: Vec<_> = (0..3)
        .map(|icn| folder.path().join(format!("ledger-icn-{icn}")))
        .collect();
    let run = Run::good();
    for copy in &copies {
        keep(copy, run.ledger.clone());
        keep(copy, vec![Record::Clock { elapsed_ns: 1 }]);
    }
    for damaged in 0..3 {
        let mut evidence = run.evidence(false);
        if damaged > 0 {
            damage(&copies[damaged - 1]);
        }
        evidence.read_ledger(&copies).unwrap();
        let found = audit(&mut evidence, &Options::default());
        let named = evidence.damaged_ledgers();
        match damaged {
            0 => assert!(found.is_balanced() && named.is_empty(), "{found:#?}"),
            1 => {
                assert!(found.is_balanced(), "{:#?}", found.contradictions);
                assert_eq!(named.len(), 1, "{named:#?}");
                assert!(named[0].contains("ledger-icn-0"), "{named:#?}");
                assert_eq!(evidence.counts().1, run.ledger.len() as u64 + 1);
            }
            _ => {
                let kinds: Vec<_> = found.contradictions.iter().map(|c| c.kind).collect();
                assert!(
                    kinds.starts_with(&[Kind::Ledger, Kind::Ledger]),
                    "{kinds:?}"
                );
                assert!(named.is_empty(), "{named:#?}");
            }
        }
    }
}
