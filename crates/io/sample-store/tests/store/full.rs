//! Disks that are full.

use super::{BEGIN_MS, buckets, config, intern, open, samples};
use sheaf_sample_store::{Config, Disk, SeriesId, Space, Store as _, StoreError};
use sheaf_samples::Sample;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A disk with as much room as the test says.
struct Room(Arc<AtomicU64>);

impl Space for Room {
    fn free_bytes(&self, _: &Path) -> std::io::Result<u64> {
        Ok(self.0.load(Relaxed))
    }
}

/// Bits that no codec makes smaller.
fn noise(at: u64) -> u64 {
    let mixed = (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 27)
}

fn batch(id: SeriesId, from: i64, count: i64) -> Vec<(SeriesId, Sample)> {
    let of = |at: i64| Sample {
        at_ms: BEGIN_MS + at * 1000,
        value: f64::from_bits(noise(at.cast_unsigned())),
    };
    (from..from + count).map(|at| (id, of(at))).collect()
}

fn is_full<T>(result: &Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::Full { .. }))
}

#[test]
fn a_full_disk_refuses_and_goes_on_when_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let free = Arc::new(AtomicU64::new(1000));
    let config = Config {
        reserve_bytes: 500,
        flush_age_ms: 1000,
        ..config()
    };
    let store = Disk::open_with(dir.path(), config, Box::new(Room(Arc::clone(&free)))).unwrap();
    let id = intern(&store, 0);
    store.append(&batch(id, 0, 100)).unwrap();
    store.commit().unwrap();
    store.append(&batch(id, 100, 100)).unwrap();
    free.store(499, Relaxed);
    let refused = store.commit();
    assert!(is_full(&refused), "{refused:?}");
    assert!(is_full(&store.append(&batch(id, 200, 100))));
    assert_eq!(samples(&store, 0, i64::MIN, i64::MAX).len(), 200);
    // What waits is sealed and stays in memory.
    store.maintain(BEGIN_MS + 200_000).unwrap();
    store.maintain(BEGIN_MS + 5_000_000).unwrap();
    assert!(is_full(&store.maintain(BEGIN_MS + 5_001_000)));
    assert_eq!(samples(&store, 0, i64::MIN, i64::MAX).len(), 200);
    free.store(500, Relaxed);
    store.commit().unwrap();
    store.append(&batch(id, 200, 100)).unwrap();
    store.commit().unwrap();
    store.maintain(BEGIN_MS + 5_002_000).unwrap();
    assert_eq!(store.stats().unflushed_bytes, 0);
    assert_eq!(samples(&store, 0, i64::MIN, i64::MAX).len(), 300);
}

/// Samples that memory had of a day when that was dropped were sealed afterwards, and buckets computed again from them
/// alone. Found by `sheaf sim torture --kind monitor --one 1088`.
#[test]
fn buckets_keep_the_samples_that_memory_had_of_a_dropped_day() {
    const DAY_MS: i64 = 86_400_000;
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &config());
    let (old, new) = (intern(&store, 0), intern(&store, 1));
    store.append(&batch(old, 0, 5)).unwrap();
    store.append(&batch(new, 2 * 86_400, 1)).unwrap();
    for call in 0..100 {
        store.commit().unwrap();
        store.maintain(BEGIN_MS + 2 * DAY_MS + call * 5000).unwrap();
    }
    // Late for the day and not for its series.
    let late = Sample {
        at_ms: BEGIN_MS + 3500,
        value: 1.0,
    };
    assert_eq!(store.append(&[(old, late)]).unwrap().accepted, 1);
    let count = |store: &Disk| {
        let found = buckets(store, 0, BEGIN_MS, BEGIN_MS + 9_999, 10_000);
        found.iter().map(|one| one.count).sum::<u64>()
    };
    assert_eq!(count(&store), 6);
    assert_eq!(store.free_oldest_raw().unwrap(), Some(BEGIN_MS));
    assert_eq!(count(&store), 6);
    store.flush().unwrap();
    assert_eq!(count(&store), 6);
    drop(store);
    let store = open(dir.path(), &config());
    store.flush().unwrap();
    assert_eq!(count(&store), 6);
    assert!(store.fsck(false).unwrap().is_clean());
}

/// A day whose chunks waited for their tables was passed over when the day after it was derived, and dropping it
/// afterwards moved the border of what is dropped back. Found by `sheaf sim torture --kind monitor`, seeds 1048 and
/// 1088.
#[test]
fn a_day_that_comes_to_the_tables_after_its_successor_is_derived_and_stays_dropped() {
    const DAY_MS: i64 = 86_400_000;
    let dir = tempfile::tempdir().unwrap();
    let config = Config {
        flush_age_ms: i64::MAX,
        ..config()
    };
    let store = open(dir.path(), &config);
    let [first, second, last] = [0, 1, 2].map(|number| intern(&store, number));
    store.append(&batch(second, 86_400, 5)).unwrap();
    store.flush().unwrap();
    store.append(&batch(first, 0, 5)).unwrap();
    store.append(&batch(last, 3 * 86_400, 1)).unwrap();
    store.commit().unwrap();
    // Sealed, and too early for a level.
    for _ in 0..40 {
        store.maintain(BEGIN_MS + DAY_MS).unwrap();
    }
    for _ in 0..40 {
        store.maintain(BEGIN_MS + 3 * DAY_MS).unwrap();
    }
    let count = |store: &Disk, number: u32, from_ms: i64| {
        let found = buckets(store, number, from_ms, from_ms + 9_999, 10_000);
        found.iter().map(|one| one.count).sum::<u64>()
    };
    let check = |store: &Disk| {
        assert_eq!(count(store, 0, BEGIN_MS), 5);
        assert_eq!(count(store, 1, BEGIN_MS + DAY_MS), 5);
    };
    check(&store);
    let dropped: Vec<i64> = std::iter::from_fn(|| store.free_oldest_raw().unwrap()).collect();
    assert!(
        dropped.contains(&BEGIN_MS) && dropped.contains(&(BEGIN_MS + DAY_MS)),
        "{dropped:?}"
    );
    check(&store);
    drop(store);
    let store = open(dir.path(), &config);
    check(&store);
    // Late, and of a day that was dropped.
    let appended = store.append(&batch(second, 86_410, 1)).unwrap();
    assert_eq!(appended.expired, 1, "{appended:?}");
}

/// A file system in memory, of 4 MiB; nothing is left of it afterwards.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=4m", "sheaf-sample-store"]);
        let mounted = mount.arg(dir.path()).output();
        mounted
            .is_ok_and(|output| output.status.success())
            .then_some(Self(dir))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.0.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "umount");
    }
}

#[test]
fn a_real_full_disk_loses_nothing_that_was_committed() {
    let Some(disk) = Tmpfs::mount() else {
        println!("skipped: a_real_full_disk_loses_nothing_that_was_committed (no right to mount)");
        return;
    };
    let dir = disk.0.path().join("store");
    let ballast = disk.0.path().join("ballast");
    std::fs::write(&ballast, vec![1; 1 << 20]).unwrap();
    let store = open(&dir, &config());
    let id = intern(&store, 0);
    let (mut appended, mut committed) = (0, 0);
    let refused = loop {
        store.append(&batch(id, appended, 5000)).unwrap();
        appended += 5000;
        match store.commit() {
            Ok(()) => committed = appended,
            Err(error) => break error,
        }
        assert!(appended < 1_000_000, "4 MiB are never full");
    };
    assert!(matches!(refused, StoreError::Full { .. }), "{refused}");
    assert!(committed > 50_000, "{committed} samples fit");
    assert!(is_full(&store.append(&batch(id, appended, 1))));
    assert!(is_full(&store.commit()), "there is still no room");
    let count = |store: &Disk| i64::try_from(samples(store, 0, i64::MIN, i64::MAX).len()).unwrap();
    assert_eq!(count(&store), appended);
    // A process that dies now has lost what was refused, and that alone. A drop writes nothing.
    drop(store);
    let copied = tempfile::tempdir().unwrap();
    let copy = copied.path().join("store");
    let copying = Command::new("cp").arg("-r").args([&dir, &copy]).status();
    assert!(copying.unwrap().success());
    let store = open(&copy, &config());
    assert_eq!(count(&store), committed);
    assert!(store.fsck(false).unwrap().is_clean());
    drop(store);
}

#[test]
fn a_real_full_disk_is_used_again_when_there_is_room() {
    let Some(disk) = Tmpfs::mount() else {
        println!("skipped: a_real_full_disk_is_used_again_when_there_is_room (no right to mount)");
        return;
    };
    let dir = disk.0.path().join("store");
    let ballast = disk.0.path().join("ballast");
    std::fs::write(&ballast, vec![1; 3 << 20]).unwrap();
    let store = open(&dir, &config());
    let id = intern(&store, 0);
    let mut appended = 0;
    while {
        store.append(&batch(id, appended, 5000)).unwrap();
        appended += 5000;
        store.commit().is_ok()
    } {
        assert!(appended < 1_000_000, "1 MiB is never full");
    }
    std::fs::remove_file(&ballast).unwrap();
    store.commit().unwrap();
    store.append(&batch(id, appended, 100)).unwrap();
    store.commit().unwrap();
    drop(store);
    let store = open(&dir, &config());
    let found = samples(&store, 0, i64::MIN, i64::MAX).len();
    assert_eq!(i64::try_from(found).unwrap(), appended + 100);
}
