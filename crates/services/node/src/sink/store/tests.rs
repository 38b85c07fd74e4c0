//! The storage on a disk that fails or stops at any step, with and without the power.

mod model;

use super::super::tests::tf;
use super::super::{SinkEvent, SinkHandle};
use super::*;
use model::{Loss, Model};
use sheaf_protocol::EpnId;
use std::path::Path;

const RUN: RunId = RunId(0xabc);

fn life(incarnation: u64) -> Target {
    Target {
        epn: EpnId(3),
        incarnation: Incarnation(incarnation),
    }
}

fn open(disk: &Model, incarnation: u64) -> Result<TfStore, SinkError> {
    TfStore::open_on(Box::new(disk.clone()), "/d".into(), life(incarnation))
}

fn payload(id: u64) -> Vec<u8> {
    vec![u8::try_from(id).unwrap(); 1000]
}

fn a_tf(id: u64) -> Tf<Bytes> {
    tf(id, &[b"abc", &payload(id)])
}

fn recover(store: &mut TfStore, id: u64, of: u64) -> Result<Option<Recovered>, DeliverError> {
    let item = Recover {
        tf: TfId(id),
        incarnation: Incarnation(of),
        missing: a_tf(id).missing,
        parts: a_tf(id).parts.iter().map(|part| part.source.flp).collect(),
    };
    store.recover(RUN, &item)
}

/// Runs one life of an EPN and returns the TFs reported, and those acknowledged as published.
#[derive(Debug, Default)]
struct Promises {
    reported: Vec<u64>,
    published: Vec<u64>,
}

/// Four TFs: 1 and 4 are committed and published, 2 is decided elsewhere, 3 is committed, but that is not heard.
fn live(disk: &Model, promises: &mut Promises) -> Result<(), String> {
    let text = |error: DeliverError| error.to_string();
    let mut store = open(disk, 1).map_err(|error| error.to_string())?;
    for id in 1..=3 {
        store.store(&a_tf(id)).map_err(text)?;
        promises.reported.push(id);
    }
    store.publish(&a_tf(1)).map_err(text)?;
    promises.published.push(1);
    store.unstore(RUN, TfId(2), false).map_err(text)?;
    store.store(&a_tf(4)).map_err(text)?;
    promises.reported.push(4);
    store.publish(&a_tf(4)).map_err(text)?;
    promises.published.push(4);
    Ok(())
}

/// The next life learns which of the reported TFs are committed (1, 3, 4), publishes these and removes the others.
fn clear_up(disk: &Model, incarnation: u64, promises: &Promises) -> Result<(), String> {
    let text = |error: DeliverError| error.to_string();
    let mut store = open(disk, incarnation).map_err(|error| error.to_string())?;
    let former: Vec<(RunId, TfId)> = store.former().collect();
    let committed: Vec<u64> = promises
        .reported
        .iter()
        .copied()
        .filter(|id| *id != 2)
        .collect();
    for id in &committed {
        let found = recover(&mut store, *id, 1).map_err(text)?;
        let found = found.ok_or_else(|| format!("TF {id} was reported and is not there"))?;
        assert_eq!(found.parts, recomputed(&a_tf(*id)).parts);
    }
    for (run, tf) in former {
        if !committed.contains(&tf.0) {
            store.unstore(run, tf, true).map_err(text)?;
        }
    }
    Ok(())
}

/// Checks that every visible file is whole.
fn check_visible(disk: &Model) -> Vec<String> {
    let files = disk.files();
    for (path, bytes) in &files {
        if path.extension().is_some_and(|extension| extension == "tf") {
            let read = read_tf_file(bytes);
            let read = read.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            assert_eq!(read.parts.last().unwrap().payload, payload(read.tf.0));
        }
    }
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    files.iter().map(|(path, _)| name(path)).collect()
}

fn check_end(disk: &Model, promises: &Promises) {
    let committed = promises.reported.iter().filter(|id| **id != 2);
    let expected: Vec<String> = committed.map(|id| format!("tf-{id:012}.tf")).collect();
    assert_eq!(check_visible(disk), expected, "{promises:?}");
}

#[test]
fn a_kill_or_a_power_loss_at_any_step_loses_nothing_that_was_reported() {
    for loss in Loss::ALL {
        let mut step = 0;
        loop {
            let disk = Model::new("/d");
            disk.stop_at(step);
            let mut promises = Promises::default();
            let end = live(&disk, &mut promises);
            let was_stopped = disk.crash(loss);
            assert_eq!(was_stopped, end.is_err(), "step {step}: {end:?}");
            check_visible(&disk);
            clear_up(&disk, 2, &promises)
                .unwrap_or_else(|error| panic!("{loss:?} {step}: {error}"));
            check_end(&disk, &promises);
            if !was_stopped {
                assert!(step > 30, "{step} steps are less than there are");
                break;
            }
            step += 1;
        }
    }
}

#[test]
fn a_second_crash_while_the_first_is_cleared_up_loses_nothing_either() {
    for loss in Loss::ALL {
        for first in (0..60).step_by(3) {
            let mut step = 0;
            loop {
                let disk = Model::new("/d");
                disk.stop_at(first);
                let mut promises = Promises::default();
                let _ = live(&disk, &mut promises);
                disk.crash(loss);
                disk.stop_at(step);
                let end = clear_up(&disk, 2, &promises);
                let was_stopped = disk.crash(loss);
                assert_eq!(
                    was_stopped,
                    end.is_err(),
                    "{loss:?} {first} {step}: {end:?}"
                );
                check_visible(&disk);
                clear_up(&disk, 3, &promises)
                    .unwrap_or_else(|error| panic!("{loss:?} {first} {step}: {error}"));
                check_end(&disk, &promises);
                if !was_stopped {
                    break;
                }
                step += 1;
            }
        }
    }
}

#[test]
fn a_step_that_fails_once_is_tried_again_and_leaves_nothing() {
    let mut step = 0;
    loop {
        let disk = Model::new("/d");
        let Ok(mut store) = open(&disk, 1) else {
            panic!("an empty directory can be opened")
        };
        let failed = disk.fail_at(step, io::ErrorKind::StorageFull);
        for id in 1..=2 {
            while store.store(&a_tf(id)).is_err() {
                assert!(
                    check_visible(&disk)
                        .iter()
                        .all(|name| !name.ends_with(".part"))
                );
            }
        }
        while store.publish(&a_tf(1)).is_err() {}
        while store.unstore(RUN, TfId(2), false).is_err() {}
        assert_eq!(check_visible(&disk), ["tf-000000000001.tf"], "step {step}");
        if !failed.has_happened() {
            break;
        }
        step += 1;
    }
    assert!(step > 12, "{step} steps are less than there are");
}

#[test]
fn a_commit_that_leaves_out_a_part_that_was_stored_publishes_without_it() {
    let disk = Model::new("/d");
    let mut store = open(&disk, 1).unwrap();
    let whole = Tf {
        missing: vec![],
        ..a_tf(5)
    };
    store.store(&whole).unwrap();
    let mut without = whole.clone();
    without.parts.remove(0);
    without.missing = vec![FlpId(0)];
    store.publish(&without).unwrap();
    let files = disk.files();
    let [(_, bytes)] = files.as_slice() else {
        panic!("{files:?}")
    };
    assert_eq!(read_tf_file(bytes).unwrap().missing, [FlpId(0)]);
    // And the same after a crash.
    store
        .store(&Tf {
            missing: vec![],
            ..a_tf(6)
        })
        .unwrap();
    let mut next = open(&disk, 2).unwrap();
    let item = Recover {
        tf: TfId(6),
        incarnation: Incarnation(1),
        missing: vec![FlpId(0)],
        parts: vec![FlpId(1)],
    };
    let found = next.recover(RUN, &item).unwrap().unwrap();
    assert_eq!((found.missing, found.parts.len()), (vec![0], 1));
    assert_eq!(
        check_visible(&disk),
        ["tf-000000000005.tf", "tf-000000000006.tf"]
    );
}

/// Found by the torture test (`--kind outside --one 94665550556`, at 160a81a).
#[test]
fn a_tf_stored_with_an_older_roster_is_published_as_its_verdict_says() {
    let disk = Model::new("/d");
    let stored = Tf {
        missing: vec![FlpId(7)],
        ..a_tf(5)
    };
    open(&disk, 1).unwrap().store(&stored).unwrap();
    let found = recover(&mut open(&disk, 2).unwrap(), 5, 1)
        .unwrap()
        .unwrap();
    assert_eq!((found.missing, found.parts.len()), (vec![9], 2));
    assert_eq!(check_visible(&disk), ["tf-000000000005.tf"]);
}

#[test]
fn a_damaged_file_and_one_of_another_life_are_not_taken_for_the_tf() {
    let disk = Model::new("/d");
    open(&disk, 1).unwrap().store(&a_tf(5)).unwrap();
    assert_eq!(recover(&mut open(&disk, 2).unwrap(), 5, 9).unwrap(), None);
    let disk = Model::new("/d");
    open(&disk, 1).unwrap().store(&a_tf(5)).unwrap();
    disk.damage(300);
    assert_eq!(recover(&mut open(&disk, 2).unwrap(), 5, 1).unwrap(), None);
}

#[test]
fn epns_may_share_a_directory() {
    let disk = Model::new("/d");
    open(&disk, 1).unwrap().store(&a_tf(5)).unwrap();
    let other = Target {
        epn: EpnId(33),
        incarnation: Incarnation(2),
    };
    let store = TfStore::open_on(Box::new(disk.clone()), "/d".into(), other).unwrap();
    assert_eq!(store.former().count(), 0);
    assert_eq!(
        open(&disk, 2).unwrap().former().collect::<Vec<_>>(),
        [(RUN, TfId(5))]
    );
}

#[test]
fn a_full_disk_stops_writes_and_nothing_else_and_is_told_once() {
    let disk = Model::new("/d");
    let mut sink = SinkHandle::inline_store(open(&disk, 1).unwrap());
    let stored = |id| SinkEvent::Stored {
        run: RUN,
        tf: TfId(id),
    };
    sink.store(a_tf(1));
    sink.store(a_tf(2));
    assert_eq!(
        [sink.poll(), sink.poll()],
        [Some(stored(1)), Some(stored(2))]
    );
    disk.set_full(true);
    sink.store(a_tf(3));
    let failed = sink.poll().unwrap();
    assert!(
        matches!(
            &failed,
            SinkEvent::Failed {
                is_storage: true,
                ..
            }
        ),
        "{failed:?}"
    );
    assert_eq!(sink.poll(), None);
    // What is committed is published on a full disk, too.
    sink.offer(a_tf(1)).unwrap();
    assert!(matches!(
        sink.poll(),
        Some(SinkEvent::Delivered { tf: TfId(1), .. })
    ));
    assert!(matches!(sink.poll(), Some(SinkEvent::Freed { .. })));
    sink.unstore(RUN, TfId(2), false);
    assert_eq!(sink.poll(), None);
    assert_eq!(check_visible(&disk), ["tf-000000000001.tf"]);
    disk.set_full(false);
    assert_eq!(
        [sink.poll(), sink.poll()],
        [Some(stored(3)), Some(SinkEvent::Resumed)]
    );
}

#[test]
fn the_thread_tries_a_full_disk_again_until_there_is_room() {
    let disk = Model::new("/d");
    let (wake, wakes) = super::super::tests::wakes();
    let mut sink = SinkHandle::spawn_store(open(&disk, 1).unwrap(), wake).unwrap();
    disk.set_full(true);
    sink.store(a_tf(1));
    assert!(matches!(wakes.next(&mut sink), SinkEvent::Failed { .. }));
    // Decided elsewhere, it still is what the disk is tried with, and leaves nothing.
    sink.unstore(RUN, TfId(1), false);
    disk.set_full(false);
    let stored = SinkEvent::Stored {
        run: RUN,
        tf: TfId(1),
    };
    let mut event = wakes.next(&mut sink);
    while matches!(event, SinkEvent::Failed { .. }) {
        event = wakes.next(&mut sink);
    }
    assert_eq!(event, stored);
    assert_eq!(wakes.next(&mut sink), SinkEvent::Resumed);
    sink.finish();
    assert_eq!(check_visible(&disk), Vec::<String>::new());
}

#[test]
fn a_real_disk_keeps_to_the_same_names() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = TfStore::open(folder.path().into(), life(1)).unwrap();
    store.store(&a_tf(7)).unwrap();
    store.store(&a_tf(8)).unwrap();
    store.publish(&a_tf(7)).unwrap();
    let mut next = TfStore::open(folder.path().into(), life(2)).unwrap();
    assert_eq!(next.former().collect::<Vec<_>>(), [(RUN, TfId(8))]);
    assert!(recover(&mut next, 8, 1).unwrap().is_some());
    assert!(
        recover(&mut next, 7, 1).unwrap().is_some(),
        "published by the former life"
    );
    assert_eq!(recover(&mut next, 9, 1).unwrap(), None);
    let run = folder.path().join("run-0000000000000abc");
    let mut names: Vec<_> = std::fs::read_dir(run)
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["tf-000000000007.tf", "tf-000000000008.tf"]);
}
