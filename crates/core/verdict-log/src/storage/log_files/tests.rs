//! Tests of every step at which a writer can die or fail, and of the recovery afterwards.

use super::*;
use crate::storage::layout::{SYNCED, segment_name};
use crate::storage::reader::LogReader;
use crate::storage::{DiskFaults, SimDisk};
use bytes::Bytes;
use sheaf_protocol::Term;

fn append(index: u64, term: u64, bytes: u8) -> Op {
    let mut body = vec![0; Entry::HEAD_BYTES + usize::from(bytes)];
    body[0] = 1;
    Op::Append(Entry {
        term: Term(term),
        index,
        body: Bytes::from(body),
    })
}

fn save(term: u64, vote: Option<u16>) -> Op {
    Op::Save(HardState {
        term: Term(term),
        vote,
        seat: None,
    })
}

/// Returns batches with every kind of step: new segments, cuts within and beyond one, cuts between appends.
fn script() -> Vec<Vec<Op>> {
    vec![
        vec![save(1, Some(0))],
        vec![append(1, 1, 0), append(2, 1, 40)],
        vec![append(3, 1, 200), append(4, 1, 9), append(5, 1, 100)],
        vec![save(2, None), append(6, 2, 90), append(7, 2, 90)],
        vec![Op::Truncate(7), append(7, 3, 20), append(8, 3, 250)],
        vec![
            append(9, 3, 10),
            append(10, 3, 10),
            Op::Truncate(4),
            append(4, 4, 5),
        ],
        vec![save(5, Some(2)), append(5, 5, 255), append(6, 5, 255)],
        vec![
            Op::Truncate(1),
            append(1, 6, 1),
            append(2, 6, 255),
            append(3, 6, 30),
        ],
    ]
}

/// Possible state of a log after some of the script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Model {
    entries: Vec<(u64, Term)>,
    state: Option<HardState>,
}

impl Model {
    fn apply(&mut self, op: &Op) {
        match op {
            Op::Append(entry) => self.entries.push((entry.index, entry.term)),
            Op::Truncate(from) => self.entries.retain(|(index, _)| index < from),
            Op::Save(state) => self.state = Some(*state),
            Op::Release(_) | Op::Reset(..) => unreachable!("they have tests of their own"),
        }
    }
}

/// Returns the states that the log goes through, one more than there are operations; a cut goes through all its
/// lengths.
fn history() -> Vec<(usize, Model)> {
    let mut model = Model::default();
    let mut all = vec![(0, model.clone())];
    for (at, op) in script().iter().flatten().enumerate() {
        if let Op::Truncate(from) = op {
            while model.entries.last().is_some_and(|(index, _)| index >= from) {
                all.push((at, model.clone()));
                model.entries.pop();
            }
        }
        model.apply(op);
        all.push((at + 1, model.clone()));
    }
    all
}

fn open(disk: &SimDisk) -> (LogFiles<SimDisk>, Model) {
    let (mut files, found) = LogFiles::open(disk.clone()).expect("no crash makes a log corrupt");
    files.set_segment_bytes(300);
    let mut reader = LogReader::new(disk.clone());
    let read = |index| {
        reader
            .read(index, found.last_index)
            .expect("the scan has read it")
    };
    let entries = (1..=found.last_index)
        .map(read)
        .map(|entry| (entry.index, entry.term))
        .collect();
    let state = found.state;
    (files, Model { entries, state })
}

/// Runs the script until the process dies; returns the number of acknowledged operations.
fn run(disk: &SimDisk) -> usize {
    let Ok((mut files, _)) = LogFiles::open(disk.clone()) else {
        return 0;
    };
    files.set_segment_bytes(300);
    let mut acknowledged = 0;
    for batch in script() {
        let count = batch.len();
        let mut ops = VecDeque::from(batch);
        while files.write(&mut ops).is_err() {
            if disk.is_dead() {
                return acknowledged;
            }
        }
        acknowledged += count;
    }
    acknowledged
}

fn check_crash(seed: u64, step: u64, with_power: bool) -> bool {
    let disk = SimDisk::new(seed);
    drop(open(&disk));
    disk.die_at(step);
    let acknowledged = run(&disk);
    let has_died = disk.is_dead();
    if with_power {
        disk.fail_power();
    }
    disk.start_process();
    let (mut files, found) = open(&disk);
    let case = format!("seed {seed}, step {step}, power {with_power}, {acknowledged} acknowledged");
    let allowed = history();
    let mut allowed = allowed.iter().filter(|(done, _)| *done >= acknowledged);
    assert!(
        allowed.any(|(_, model)| model.entries == found.entries),
        "{case}: found {:?}",
        found.entries
    );
    let mut allowed = history()
        .into_iter()
        .filter(|(done, _)| *done >= acknowledged);
    assert!(
        allowed.any(|(_, model)| model.state == found.state),
        "{case}: {:?}",
        found.state
    );

    // It goes on, and its next operations last too.
    let next = found.entries.len() as u64 + 1;
    let mut ops = VecDeque::from([save(9, None), append(next, 9, 7)]);
    files
        .write(&mut ops)
        .unwrap_or_else(|error| panic!("{case}: {error}"));
    disk.fail_power();
    let (_, again) = open(&disk);
    assert_eq!(
        again.entries[..found.entries.len()],
        found.entries,
        "{case}"
    );
    assert_eq!(again.entries.last(), Some(&(next, Term(9))), "{case}");
    has_died
}

#[test]
fn a_kill_at_any_step_loses_nothing_that_was_acknowledged() {
    let mut steps = 0;
    while check_crash(steps, steps, false) {
        steps += 1;
    }
    assert!(steps > 90, "{steps} steps");
}

#[test]
fn a_power_failure_at_any_step_loses_nothing_that_was_acknowledged() {
    for step in 0.. {
        let died: Vec<bool> = (0..40).map(|seed| check_crash(seed, step, true)).collect();
        if !died.contains(&true) {
            break;
        }
    }
}

#[test]
fn a_disk_that_fails_now_and_then_leaves_no_bytes_that_count() {
    for seed in 0..300 {
        let disk = SimDisk::new(seed);
        drop(open(&disk));
        disk.set_faults(DiskFaults {
            error_once_in: 4,
            ..DiskFaults::default()
        });
        let (mut files, mut at) = loop {
            if let Ok((mut files, _)) = LogFiles::open(disk.clone()) {
                files.set_segment_bytes(300);
                break (files, 0);
            }
        };
        for batch in script() {
            at += batch.len();
            let mut ops = VecDeque::from(batch);
            while let Err(error) = files.write(&mut ops) {
                assert!(
                    matches!(error, StorageError::Io { .. }),
                    "seed {seed}: {error}"
                );
            }
        }
        assert!(disk.totals().errors > 0);
        disk.set_faults(DiskFaults::default());
        drop(files);
        disk.fail_power();
        let (_, found) = open(&disk);
        let (done, last) = history().pop().expect("it is never empty");
        assert_eq!((at, found), (done, last), "seed {seed}");
    }
}

#[test]
fn a_full_disk_refuses_and_goes_on_when_there_is_space() {
    let disk = SimDisk::new(1);
    let (mut files, _) = open(&disk);
    files
        .write(&mut VecDeque::from([save(1, None), append(1, 1, 3)]))
        .unwrap();
    let set_full = |is_full| {
        disk.set_faults(DiskFaults {
            is_full,
            ..DiskFaults::default()
        });
    };
    set_full(true);
    let mut ops = VecDeque::from([append(2, 1, 3)]);
    for _ in 0..3 {
        let error = files.write(&mut ops).unwrap_err().to_string();
        assert_eq!(
            error,
            "cannot write /sim/log-00000000000000000001: No space left on device (os error 28)"
        );
        assert_eq!(ops.len(), 1);
    }
    let (_, found) = open(&disk.clone());
    assert_eq!(found.entries, [(1, Term(1))]);
    set_full(false);
    files.write(&mut ops).unwrap();
    disk.fail_power();
    assert_eq!(open(&disk).1.entries, [(1, Term(1)), (2, Term(1))]);
}

/// Returns a log of nine entries in several segments, all acknowledged.
fn nine() -> SimDisk {
    let disk = SimDisk::new(7);
    let (mut files, _) = open(&disk);
    files.write(&mut VecDeque::from([save(1, None)])).unwrap();
    for index in 1..=9 {
        files
            .write(&mut VecDeque::from([append(index, 1, 60)]))
            .unwrap();
    }
    disk
}

#[test]
fn a_flipped_bit_in_what_was_synced_is_named_and_never_cut() {
    let names = nine().list().unwrap();
    assert!(names.len() > 4, "{names:?}");
    let mut flips = 0;
    for name in names.iter().filter(|name| *name != SYNCED) {
        for byte in 0.. {
            let disk = nine();
            if !disk.flip_bit(name, byte, byte as u8) {
                break;
            }
            match LogFiles::open(disk.clone()) {
                Err(StorageError::Corrupt { file, offset, .. }) => {
                    assert_eq!(file, disk.path(name));
                    assert!(offset <= byte as u64, "{name} at {byte}: {offset}");
                }
                Err(other) => panic!("{name} at {byte}: {other}"),
                Ok(_) => panic!("{name} at {byte} goes unseen"),
            }
            flips += 1;
        }
    }
    assert!(flips > 800, "{flips}");
}

#[test]
fn without_the_mark_later_entries_bear_witness() {
    for byte in [40, 76, 146, 246] {
        let disk = nine();
        disk.remove(SYNCED).unwrap();
        // The last segment holds several entries; its first one is bad.
        let last = disk
            .list()
            .unwrap()
            .into_iter()
            .rfind(|name| name.starts_with("log-"));
        let last = last.unwrap();
        assert!(disk.flip_bit(&last, byte, 0));
        let outcome = LogFiles::open(disk.clone());
        if byte < 234 {
            assert!(
                matches!(outcome, Err(StorageError::Corrupt { .. })),
                "byte {byte}"
            );
        } else {
            let (_, found) = outcome.expect("the last entry could be a torn write");
            assert_eq!(
                found.torn.map(|torn| torn.why),
                Some("the checksum of an entry is wrong")
            );
        }
    }
}

#[test]
fn what_is_missing_altogether_is_named() {
    let check = |name: &str, expected: &str| {
        let disk = nine();
        disk.remove(name).unwrap();
        let error = LogFiles::open(disk).unwrap_err().to_string();
        assert_eq!(error, expected);
    };
    check(
        "state",
        "/sim/state is corrupt at byte 0: it is missing, and there are entries, in what was synced",
    );
    check(
        &segment_name(1),
        "/sim/log-00000000000000000004 is corrupt at byte 0: it begins with entry 4, and no checkpoint stands \
         for those before, in what was synced",
    );
    check(
        &segment_name(7),
        "/sim/log-00000000000000000004 is corrupt at byte 331: entry 7 is missing, in what was synced",
    );
}

/// Returns an entry that is a whole checkpoint.
fn checkpoint(index: u64, term: u64) -> Op {
    let mut body = vec![1, 1, 0, 0, 0];
    sheaf_protocol::Record::Checkpoint(Box::default()).encode_into(&mut body);
    Op::Append(Entry {
        term: Term(term),
        index,
        body: Bytes::from(body),
    })
}

/// Returns a script in which three segments go at their front, the log is cut down to its new begin, and then it is
/// replaced by another one.
fn cutting_script() -> Vec<Vec<Op>> {
    let many = |range: std::ops::Range<u64>| range.map(|index| append(index, 1, 90));
    let mut first: Vec<Op> = vec![save(1, None)];
    first.extend(many(1..8));
    vec![
        first,
        vec![checkpoint(8, 1), append(9, 1, 90)],
        vec![Op::Release(8), append(10, 1, 90)],
        vec![Op::Truncate(10), append(10, 2, 9)],
        vec![Op::Reset(20, Term(2)), checkpoint(21, 3)],
        vec![append(22, 3, 200), append(23, 3, 200)],
        vec![Op::Truncate(21), checkpoint(21, 4)],
    ]
}

#[test]
fn a_crash_while_a_log_is_cut_at_its_front_leaves_one_without_gaps() {
    let mut steps = 0;
    for step in 0.. {
        let mut has_died = false;
        for seed in 0..20 {
            let disk = SimDisk::new(seed);
            drop(open(&disk));
            disk.die_at(step);
            let mut acknowledged = 0;
            if let Ok((mut files, _)) = LogFiles::open(disk.clone()) {
                files.set_segment_bytes(300);
                for batch in cutting_script() {
                    let mut ops = VecDeque::from(batch);
                    if files.write(&mut ops).is_err() {
                        break;
                    }
                    acknowledged += 1;
                }
            }
            has_died |= disk.is_dead();
            if seed % 2 == 0 {
                disk.fail_power();
            }
            disk.start_process();
            let case = format!("step {step}, seed {seed}, {acknowledged} batches acknowledged");
            let (mut files, found) =
                LogFiles::open(disk.clone()).unwrap_or_else(|error| panic!("{case}: {error}"));
            let (base, last) = (found.base, found.last_index);
            // Acknowledged entries are there: the last one and the begin behind every batch.
            let least = [0, 7, 9, 10, 10, 21, 23, 21][acknowledged];
            let may_be_cut = matches!(acknowledged, 3 | 4 | 6);
            assert!(last >= least || may_be_cut, "{case}: {base:?} to {last}");
            assert!(
                base.0 < 8 || base == (20, Term(2)),
                "{case}: {base:?} to {last}"
            );
            assert_eq!(base.0 == 20, last >= 20, "{case}");
            if acknowledged >= 3 {
                assert!(base.0 > 0 || last == 0, "{case}: nothing was removed");
            }
            let mut reader = LogReader::new(disk.clone());
            for index in base.0 + 1..=last {
                let entry = reader.read(index, last);
                let entry = entry.unwrap_or_else(|error| panic!("{case}: {error}"));
                assert_eq!(entry.index, index, "{case}");
            }
            // It goes on.
            files.set_segment_bytes(300);
            let mut ops = VecDeque::from([save(9, None), checkpoint(last + 1, 9)]);
            files
                .write(&mut ops)
                .unwrap_or_else(|error| panic!("{case}: {error}"));
            drop(files);
            disk.fail_power();
            let (_, again) = LogFiles::open(disk.clone()).expect(&case);
            assert_eq!((again.base, again.last_index), (base, last + 1), "{case}");
        }
        if !has_died {
            break;
        }
        steps = step;
    }
    assert!(steps > 40, "{steps} steps");
}

#[test]
fn a_crash_on_a_disk_that_fails_now_and_then_leaves_nothing_that_looks_like_a_loss() {
    for seed in 0..600 {
        let (name, script) = match seed % 2 {
            0 => ("script", script()),
            _ => ("cutting script", cutting_script()),
        };
        let ops: VecDeque<Op> = script.into_iter().flatten().collect();
        for step in (0..120).step_by(3) {
            let mut ops = ops.clone();
            let disk = SimDisk::new(seed);
            let (mut files, _) = open(&disk);
            disk.set_faults(DiskFaults {
                error_once_in: 5,
                ..DiskFaults::default()
            });
            disk.die_at(step);
            files.set_segment_bytes(300);
            let mut tries = 0;
            while files.write(&mut ops).is_err() && !disk.is_dead() {
                tries += 1;
                assert!(tries < 1000, "{name}, seed {seed}: it never heals: {ops:?}");
            }
            drop(files);
            if seed % 4 > 1 {
                disk.fail_power();
            }
            disk.set_faults(DiskFaults::default());
            disk.start_process();
            if let Err(error) = LogFiles::open(disk.clone()) {
                panic!("{name}, seed {seed}, step {step}: {error}");
            }
        }
    }
}

/// A removal of a segment that did not become durable, and a power failure while the one before it is written again.
#[test]
fn a_removed_segment_that_comes_back_is_not_taken_for_the_next_one() {
    let mut lives = 0;
    for seed in 0..4000 {
        let disk = SimDisk::new(seed);
        let (mut files, _) = open(&disk);
        let mut begin = VecDeque::from([save(1, None), append(1, 1, 9)]);
        files.write(&mut begin).expect("the disk works");
        disk.set_faults(DiskFaults {
            error_once_in: 3,
            ..DiskFaults::default()
        });
        disk.die_at(seed % 50);
        let mut ops: VecDeque<Op> = (2..6).map(|index| append(index, 1, 200)).collect();
        while files.write(&mut ops).is_err() && !disk.is_dead() {}
        drop(files);
        lives += u32::from(disk.is_dead());
        disk.fail_power();
        disk.set_faults(DiskFaults::default());
        disk.start_process();
        if let Err(error) = LogFiles::open(disk.clone()) {
            panic!("seed {seed}: {error}");
        }
    }
    assert!(lives > 1000, "only {lives} deaths");
}

/// Runs lives that end one after the other on a disk that fails now and then, and at last loses the power. A life
/// answers for all that it has read at its start.
#[test]
fn what_a_life_on_a_failing_disk_has_left_outlasts_the_power() {
    let mut reread = 0;
    for seed in 0..2000 {
        let disk = SimDisk::new(seed);
        let (mut files, _) = open(&disk);
        disk.set_faults(DiskFaults {
            error_once_in: 6,
            ..DiskFaults::default()
        });
        disk.die_at(seed % 100);
        files.set_segment_bytes(300);
        let mut ops: VecDeque<Op> = script().into_iter().flatten().collect();
        while files.write(&mut ops).is_err() && !disk.is_dead() {}
        drop(files);
        disk.set_faults(DiskFaults::default());
        disk.start_process();
        let (files, found) = open(&disk);
        drop(files);
        disk.fail_power();
        let (_, again) = open(&disk);
        assert_eq!(again, found, "seed {seed}");
        reread += found.entries.len();
    }
    assert!(reread > 2000, "only {reread} entries");
}
