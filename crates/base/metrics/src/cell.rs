//! Cells of a metric: which thread counts in which memory.
//!
//! Two threads that count in one cache line take it from each other at every addition, and an addition that others
//! could meet needs an instruction that locks the line. So the first threads of a process that record own a cell of
//! every metric, in cache lines of its own, where a load and a store will do; later threads share one more cell. A
//! reader adds all of them up. Why so: `docs/adr/2026-11-25-metrics-count-in-cells-of-threads.md`.

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

/// Cells of a counter or gauge that a thread owns.
const OWNED: usize = 8;
/// Cells of a counter or gauge: those that are owned, and one for all other threads.
const CELLS: usize = OWNED + 1;

/// Value in cache lines of its own: two of 64 bytes, since some processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

thread_local! {
    // `const` and without a destructor, so that reading it neither allocates nor fails.
    static SLOT: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Slot of the next thread that records for the first time.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Returns the slot of this thread. No other thread has it, neither now nor later, if it is below [`OWNED`].
#[inline]
pub(crate) fn slot() -> usize {
    SLOT.with(|slot| match slot.get() {
        usize::MAX => assign(slot),
        found => found,
    })
}

#[cold]
fn assign(slot: &Cell<usize>) -> usize {
    // Stays at OWNED from there on, so that it never wraps to a slot that is taken.
    let next = NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
        (next < OWNED).then_some(next + 1)
    });
    let found = next.unwrap_or(OWNED);
    slot.set(found);
    found
}

/// Adds `count` to a cell that this thread owns, or that others may add to as well.
#[inline]
pub(crate) fn add(cell: &AtomicU64, count: u64, is_owned: bool) {
    if is_owned {
        let sum = cell.load(Ordering::Relaxed).wrapping_add(count);
        cell.store(sum, Ordering::Relaxed);
    } else {
        cell.fetch_add(count, Ordering::Relaxed);
    }
}

/// Cells of a number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Sum([Padded<AtomicU64>; CELLS]);

impl Sum {
    #[inline]
    pub(crate) fn add(&self, count: u64) {
        let slot = slot();
        match self.0[..OWNED].get(slot) {
            Some(cell) => add(&cell.0, count, true),
            None => add(&self.0[OWNED].0, count, false),
        }
    }

    #[inline]
    pub(crate) fn value(&self) -> u64 {
        let cells = self.0.iter().map(|cell| cell.0.load(Ordering::Relaxed));
        cells.fold(0, u64::wrapping_add)
    }
}

/// Cells of a number that goes up and down.
#[derive(Debug, Default)]
pub(crate) struct Level([Padded<AtomicI64>; CELLS]);

impl Level {
    #[inline]
    pub(crate) fn add(&self, change: i64) {
        let slot = slot();
        if let Some(Padded(cell)) = self.0[..OWNED].get(slot) {
            let sum = cell.load(Ordering::Relaxed).wrapping_add(change);
            cell.store(sum, Ordering::Relaxed);
        } else {
            self.0[OWNED].0.fetch_add(change, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn value(&self) -> i64 {
        let cells = self.0.iter().map(|cell| cell.0.load(Ordering::Relaxed));
        cells.fold(0, i64::wrapping_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_given_to_one_thread_until_none_is_left() {
        let here = slot();
        assert_eq!(slot(), here);
        let slots = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2 * OWNED).map(|_| scope.spawn(slot)).collect();
            let slots = threads.into_iter().map(|thread| thread.join().unwrap());
            slots.collect::<Vec<_>>()
        });
        let mut owned: Vec<_> = slots.iter().filter(|slot| **slot < OWNED).collect();
        let count = owned.len();
        owned.sort_unstable();
        owned.dedup();
        assert_eq!(owned.len(), count, "a slot was given twice: {slots:?}");
        assert!(
            slots[OWNED..].iter().all(|slot| *slot <= OWNED),
            "{slots:?}"
        );
        assert!(count <= OWNED && slots.contains(&OWNED));
    }

    #[test]
    fn cells_do_not_share_cache_lines() {
        assert_eq!(size_of::<Sum>(), CELLS * 128);
        assert_eq!(align_of::<Sum>(), 128);
    }
}
