//! Processes that are killed, and machines that lose power.

use super::{BEGIN_MS, config, intern, open, samples};
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_sample_store::{Config, Disk, SeriesId, Space, Step, Store as _};
use sheaf_samples::Sample;
use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

const SERIES: u32 = 20;
/// The folder that a child works in.
const CHILD: &str = "SHEAF_SAMPLE_STORE_CHILD";

/// Chunks and tables are written all the time.
fn busy() -> Config {
    Config {
        seal_samples: 50,
        seal_age_ms: 100_000,
        flush_bytes: 4096,
        flush_age_ms: 10_000,
        ..config()
    }
}

fn value(number: u32, round: i64) -> f64 {
    f64::from(number) + f64::from(i32::try_from(round).unwrap()) / 8.0
}

/// Appends one round: a sample a second of every series, some of them late.
fn append(store: &sheaf_sample_store::Disk, ids: &[SeriesId], round: i64) {
    let mut batch = Vec::new();
    for (number, &id) in (0..SERIES).zip(ids) {
        // Every second round is appended before the one that comes before it in time.
        let at_ms = BEGIN_MS + (round ^ 1) * 1000;
        let value = value(number, round);
        batch.push((id, Sample { at_ms, value }));
    }
    assert_eq!(store.append(&batch).unwrap().accepted, u64::from(SERIES));
}

/// Every sample of the first `rounds` rounds is there.
fn check(dir: &Path, rounds: i64) {
    let store = open(dir, &busy());
    for number in 0..SERIES {
        let found = samples(&store, number, i64::MIN, i64::MAX);
        for round in 0..rounds {
            let at_ms = BEGIN_MS + (round ^ 1) * 1000;
            let at = found.binary_search_by_key(&at_ms, |one| one.at_ms);
            let at = at.unwrap_or_else(|_| panic!("round {round} of series {number} is lost"));
            assert_eq!(found[at].value.to_bits(), value(number, round).to_bits());
        }
    }
    let report = store.fsck(false).unwrap();
    assert!(report.is_clean(), "{report:?}");
}

/// Not a test by itself: the process that is killed. Prints the number of rounds that are committed.
#[test]
fn child() {
    let Ok(dir) = std::env::var(CHILD) else {
        return;
    };
    let (dir, first) = dir.rsplit_once('@').expect("a folder and a round");
    let store = open(Path::new(dir), &busy());
    let ids: Vec<SeriesId> = (0..SERIES).map(|number| intern(&store, number)).collect();
    for round in first.parse::<i64>().unwrap().. {
        append(&store, &ids, round);
        store.commit().unwrap();
        println!("committed {}", round + 1);
        store.maintain(BEGIN_MS + round * 1000).unwrap();
    }
}

#[test]
fn what_was_committed_survives_sigkill() {
    let seed = 7;
    println!("seed {seed}");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let dir = tempfile::tempdir().unwrap();
    let mut rounds = 0;
    for life in 0..3 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::child", "--nocapture"])
            .env(CHILD, format!("{}@{rounds}", dir.path().display()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let until = rounds + random.random_range(100..400);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        while rounds < until {
            let line = lines.next().expect("the child lives").unwrap();
            if let Some(committed) = line.rsplit_once("committed ") {
                rounds = committed.1.parse().unwrap();
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What it committed between the last line that was read and its death.
        for line in lines.map_while(Result::ok) {
            if let Some((_, Ok(more))) = line
                .rsplit_once("committed ")
                .map(|(front, more)| (front, more.parse()))
            {
                rounds = more;
            }
        }
        println!("life {life}: {rounds} rounds");
        check(dir.path(), rounds);
    }
}

/// Copies a folder as the disk has it.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let into = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &into);
        } else {
            std::fs::copy(entry.path(), into).unwrap();
        }
    }
}

/// A loss of power takes what was written and not synced. The folder is copied as it is after a commit; of the group
/// that was being written some bytes reached the disk, or its length did and its bytes did not.
#[test]
fn what_was_committed_survives_a_loss_of_power() {
    for seed in 0..6 {
        println!("seed {seed}");
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let dir = tempfile::tempdir().unwrap();
        let (work, copied) = (dir.path().join("work"), dir.path().join("copied"));
        let rounds = random.random_range(1..200);
        {
            let store = open(&work, &busy());
            let ids: Vec<SeriesId> = (0..SERIES).map(|number| intern(&store, number)).collect();
            for round in 0..rounds {
                append(&store, &ids, round);
                store.commit().unwrap();
                if random.random_range(0..3) == 0 {
                    store.maintain(BEGIN_MS + round * 1000).unwrap();
                }
            }
            append(&store, &ids, rounds + 10);
        }
        copy(&work, &copied);
        {
            let store = open(&work, &busy());
            let ids: Vec<SeriesId> = (0..SERIES).map(|number| intern(&store, number)).collect();
            append(&store, &ids, rounds + 10);
            store.commit().unwrap();
        }
        let log = newest_log(&work);
        let bytes = std::fs::read(&log).unwrap();
        let reached = random.random_range(0..bytes.len());
        let path = copied.join("log").join(log.file_name().unwrap());
        std::fs::write(&path, &bytes[..reached]).unwrap();
        if random.random() {
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            file.set_len(bytes.len() as u64).unwrap();
        }
        check(&copied, rounds);
    }
}

fn newest_log(dir: &Path) -> std::path::PathBuf {
    let entries = std::fs::read_dir(dir.join("log")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.max().expect("a store has a log")
}

/// A disk whose process dies before the step of a number, counted down; no step happens from then on.
struct Dies(Arc<AtomicI64>);

impl Space for Dies {
    fn before(&self, _: Step<'_>) -> std::io::Result<()> {
        match self.0.fetch_sub(1, Relaxed) {
            ..=0 => Err(std::io::Error::other("dead")),
            _ => Ok(()),
        }
    }

    fn free_bytes(&self, _: &Path) -> std::io::Result<u64> {
        Ok(u64::MAX)
    }
}

/// Chunks that a death left without seals overlapped those that the next life made, as soon as a late sample moved the
/// begin of a chunk. Found by `sheaf sim torture --kind monitor --one 55`.
#[test]
fn a_death_in_any_step_of_upkeep_leaves_no_damage() {
    let config = Config {
        seal_samples: 4,
        flush_bytes: 1,
        ..config()
    };
    let at_ms = |round: i64| BEGIN_MS + round * 1000;
    let one = |round: i64| Sample {
        at_ms: at_ms(round),
        value: value(1, round),
    };
    for steps in 1..30 {
        let dir = tempfile::tempdir().unwrap();
        let left = Arc::new(AtomicI64::new(i64::MAX));
        let disk = Box::new(Dies(left.clone()));
        let store = Disk::open_with(dir.path(), config.clone(), disk).unwrap();
        let id = intern(&store, 1);
        let mut committed = 0;
        for round in 0..200 {
            if round == 40 {
                left.store(steps, Relaxed);
            }
            if store.append(&[(id, one(round))]).is_err() {
                break;
            }
            if store.commit().is_ok() && left.load(Relaxed) >= 0 {
                committed = round + 1;
            }
            let _ = store.maintain(at_ms(round));
        }
        assert!((40..200).contains(&committed), "{steps} steps: {committed}");
        drop(store);
        let store = open(dir.path(), &config);
        let found = samples(&store, 1, i64::MIN, i64::MAX).len();
        assert!(i64::try_from(found).unwrap() >= committed, "{steps} steps");
        // Before each sample one that comes late, so that every begin of a chunk moves.
        for round in 30..committed {
            let late = Sample {
                at_ms: at_ms(round) - 500,
                value: 0.5,
            };
            assert_eq!(store.append(&[(id, late)]).unwrap().accepted, 1);
        }
        store.commit().unwrap();
        store.flush().unwrap();
        let report = store.fsck(false).unwrap();
        assert!(report.is_clean(), "{steps} steps: {report:?}");
        let all = samples(&store, 1, i64::MIN, i64::MAX).len();
        assert_eq!(i64::try_from(all - found).unwrap(), committed - 30);
    }
}

/// A disk that refuses every sync and cut, if so asked, and notes what it is asked for.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<(bool, Vec<String>)>>);

impl Space for Notes {
    fn before(&self, step: Step<'_>) -> std::io::Result<()> {
        let mut notes = self.0.lock().unwrap();
        let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
        match step {
            Step::LogSync(_) | Step::LogCut { .. } if notes.0 => {
                return Err(std::io::Error::other("dead"));
            }
            Step::LogSync(file) => notes.1.push(format!("sync {}", name(file))),
            Step::LogBegin(file) => notes.1.push(format!("begin {}", name(file))),
            _ => {}
        }
        Ok(())
    }

    fn free_bytes(&self, _: &Path) -> std::io::Result<u64> {
        Ok(u64::MAX)
    }
}

/// Groups that a killed process had written and not synced were shown by the next one, and gone with the power after
/// that; with them went the labels of series whose samples were committed. Found by
/// `sheaf sim torture --kind monitor --one 8`.
#[test]
fn what_a_killed_process_wrote_is_synced_before_it_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Notes::default();
    let store = Disk::open_with(dir.path(), config(), Box::new(disk.clone())).unwrap();
    let id = intern(&store, 1);
    store
        .append(&[(
            id,
            Sample {
                at_ms: BEGIN_MS,
                value: 1.0,
            },
        )])
        .unwrap();
    disk.0.lock().unwrap().0 = true;
    store.commit().unwrap_err();
    drop(store);
    *disk.0.lock().unwrap() = (false, Vec::new());
    let store = Disk::open_with(dir.path(), config(), Box::new(disk.clone())).unwrap();
    assert_eq!(samples(&store, 1, i64::MIN, i64::MAX).len(), 1);
    let notes = disk.0.lock().unwrap().1.clone();
    let (synced, begun) = (&notes[0], &notes[1]);
    assert!(synced.starts_with("sync "), "{notes:?}");
    assert!(begun.starts_with("begin "), "{notes:?}");
}
