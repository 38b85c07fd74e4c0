//! The log of several ICNs: its messages, a member that gets any of them, and directories that were tampered with.

use crate::ops::Ops;
use sheaf_protocol::{Record, Term, Timestamp};
use sheaf_verdict_log::entry::Entry;
use sheaf_verdict_log::majority::{MajorityConfig, MajorityLedger, Message};
use sheaf_verdict_log::storage::{
    Disk, HardState, SimDisk, SimStorage, Storage, StorageError, StorageNotice,
};
use sheaf_verdict_log::{Ledger, Notice, Position};
use std::time::Duration;

/// Events of one input at most: what a longer one finds, a shorter one finds faster.
const STEPS_MAX: usize = 300;
/// Entries of the log that is tampered with.
const ENTRIES: u64 = 6;

/// A message between members: what is read is written in the same bytes.
pub fn ledger_message(bytes: &[u8]) {
    if let Ok(message) = Message::decode(bytes) {
        assert_eq!(message.encode(), bytes, "{message:?}");
    }
}

/// A member of a majority that receives whatever `bytes` are read as.
///
/// It always comes to rest, never commits what it does not have, and calls nothing durable that was not appended.
pub fn majority(bytes: &[u8]) {
    let mut ops = Ops::new(bytes);
    let disk = SimDisk::new(1);
    let open = || {
        let storage = SimStorage::open(&disk).expect("its own writes are never corrupt");
        MajorityLedger::new(MajorityConfig::new(0, 3, 1), storage).expect("the same seat")
    };
    let (mut ledger, mut now) = (open(), Timestamp(0));
    let (mut appended, mut durable) = (Position(0), Position(0));
    for _ in 0..STEPS_MAX {
        let Some(code) = ops.next() else { break };
        match code % 16 {
            0 => {
                let is_connected = !ops.once_in(4);
                ledger.handle_peer(now, ops.below(4), is_connected);
            }
            1 => appended = ledger.append(now, vec![Record::Over; usize::from(ops.below(3))]),
            2 if ops.once_in(4) => {
                drop(ledger);
                if ops.once_in(2) {
                    disk.fail_power();
                }
                ledger = open();
            }
            2 => {
                let bytes = ops.list(40, |ops| ops.next().unwrap_or(0));
                ledger.handle_message(now, ops.below(4), &bytes);
            }
            3 if ops.once_in(8) => ledger.resign(now),
            3..=5 => {
                let due = ledger
                    .next_due()
                    .map_or(Duration::ZERO, |due| due.since(now));
                now = now
                    + due.min(Duration::from_secs(1))
                    + Duration::from_millis(ops.number() % 64);
            }
            _ => {
                let from = ops.below(3);
                // What no decoder lets through does not reach the member either.
                let message = message(&mut ops).encode();
                ledger.handle_message(now, from, &message);
            }
        }
        for step in 0.. {
            assert!(step < 1000, "it does not come to rest");
            match ledger.poll(now) {
                Some(Notice::Lead { replay, .. }) => {
                    (appended, durable) = (Position(0), Position(0));
                    replay.for_each(drop);
                }
                Some(Notice::Durable(position)) => {
                    assert!(durable < position && position <= appended, "{position:?}");
                    durable = position;
                }
                Some(_) => {}
                None => break,
            }
        }
        assert!(ledger.committed() <= ledger.storage().last_index());
        assert!(
            ledger.next_due().is_none_or(|due| due > now),
            "due at once, again"
        );
    }
}

fn message(ops: &mut Ops<'_>) -> Message {
    let term = Term(ops.number());
    match ops.below(8) {
        0 => Message::AskVote {
            term,
            is_pre_vote: ops.once_in(2),
            last_index: ops.number(),
            last_term: Term(ops.number()),
        },
        1 => Message::Vote {
            term,
            asked: Term(ops.number()),
            is_pre_vote: ops.once_in(2),
            is_granted: !ops.once_in(3),
        },
        2..=4 => {
            let (previous_index, previous_term) = (ops.number(), Term(ops.number()));
            let first = previous_index.wrapping_add(1);
            let entries = ops.list(4, |ops| Term(ops.number()));
            let numbered = (0_u64..).zip(entries);
            Message::Append {
                term,
                round: ops.number(),
                previous_index,
                previous_term,
                commit: ops.number(),
                entries: numbered
                    .map(|(at, term)| Entry::no_op(term, first.wrapping_add(at)))
                    .collect(),
            }
        }
        5 => {
            let (round, index) = (ops.number(), ops.number());
            Message::Appended {
                term,
                round,
                outcome: if ops.once_in(2) {
                    Ok(index)
                } else {
                    Err(index)
                },
            }
        }
        6 => Message::Campaign { term },
        _ if ops.once_in(3) => Message::Install {
            term,
            round: ops.number(),
            base_index: ops.number(),
            base_term: Term(ops.number()),
        },
        _ if ops.once_in(2) => Message::AskState {
            term,
            nonce: ops.number(),
        },
        _ => Message::State {
            term,
            nonce: ops.number(),
            last_index: ops.number(),
            is_leader: ops.once_in(2),
        },
    }
}

/// A ledger directory, everything in it synced, that `bytes` tamper with.
///
/// Whatever is done to it, opening it gives all entries, or an error; without the mark of what is synced it may give
/// the first ones of them. What it gives can be read to its end and appended to.
pub fn ledger_files(bytes: &[u8]) {
    let disk = written();
    let names = disk.list().expect("a simulated disk can be listed");
    let mut ops = Ops::new(bytes);
    let mut is_mark_whole = true;
    while let Some(code) = ops.next() {
        let name = &names[usize::from(ops.below(16)) % names.len()];
        is_mark_whole &= name != "synced";
        match code % 8 {
            0 => drop(disk.remove(name)),
            1 => drop(disk.truncate(name, ops.number() % 1024)),
            2 => drop(disk.rename(name, &names[usize::from(ops.below(16)) % names.len()])),
            3 => {
                let bytes = ops.list(64, |ops| ops.next().unwrap_or(0));
                drop(disk.write_at(name, ops.number() % 1024, &bytes));
            }
            _ => {
                disk.flip_bit(name, ops.number() as usize % 1024, code / 8);
            }
        }
    }
    let mut storage = match SimStorage::open(&disk) {
        Ok(storage) => storage,
        Err(StorageError::Corrupt { .. } | StorageError::Io { .. }) => return,
        Err(error) => panic!("{error}"),
    };
    let last = storage.last_index();
    assert!(
        last == ENTRIES || (!is_mark_whole && last < ENTRIES),
        "{last} entries"
    );
    let entries = storage.replay(last).expect("a simulated disk can be read");
    for (index, entry) in (1..).zip(entries) {
        let entry = entry.expect("recovery has read it");
        assert_eq!(
            (entry.index, entry.records()),
            (index, Ok(vec![clock(index)]))
        );
    }
    storage.append(Entry::of(Term(9), last + 1, &[Record::Over]));
    sync(&mut storage);
    drop(storage);
    let storage = SimStorage::open(&disk).expect("it was whole and has been appended to");
    assert_eq!(storage.last_index(), last + 1);
}

fn clock(elapsed_ns: u64) -> Record {
    Record::Clock { elapsed_ns }
}

/// A directory with a few entries, all synced.
fn written() -> SimDisk {
    let disk = SimDisk::new(1);
    let mut storage = SimStorage::open(&disk).expect("a blank disk");
    storage.save(HardState {
        term: Term(1),
        ..HardState::default()
    });
    for index in 1..=ENTRIES {
        storage.append(Entry::of(Term(1), index, &[clock(index)]));
        sync(&mut storage);
    }
    drop(storage);
    disk
}

fn sync(storage: &mut SimStorage) {
    let ticket = storage.sync(Timestamp(0));
    while let Some(due) = storage.next_due() {
        while let Some(notice) = storage.poll(due) {
            assert!(
                matches!(notice, StorageNotice::Synced(done) if done <= ticket),
                "{notice:?}"
            );
        }
    }
}
