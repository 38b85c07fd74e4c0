//! Table of series: by the bytes of a line, and by labels.
//!
//! The bytes of a line that name a series are the key as they stand, so a known series costs one hash and no
//! allocation. Lines that order their tags in another way have a key each and one series: labels decide.
//! See `docs/adr/2026-11-25-raw-series-bytes-are-the-key.md`.

use crate::batch::SeriesHandle;
use crate::sources::SourceRef;
use indexmap::{Equivalent, IndexMap};
use rustc_hash::FxBuildHasher;
use sheaf_samples::Labels;
use std::hash::{Hash, Hasher};

/// Series part and field name of a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key<'a> {
    pub(crate) series: &'a [u8],
    pub(crate) field: &'a [u8],
}

/// [`Key`] in the table, in one allocation.
#[derive(Debug)]
struct Owned {
    bytes: Box<[u8]>,
    series: u32,
}

impl Owned {
    fn key(&self) -> Key<'_> {
        let (series, field) = self.bytes.split_at(self.series as usize);
        Key { series, field }
    }
}

impl Hash for Key<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.series);
        state.write(self.field);
    }
}

impl Hash for Owned {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl PartialEq for Owned {
    fn eq(&self, other: &Self) -> bool {
        self.series == other.series && self.bytes == other.bytes
    }
}

impl Eq for Owned {}

impl Equivalent<Owned> for Key<'_> {
    fn equivalent(&self, owned: &Owned) -> bool {
        let key = owned.key();
        key.series == self.series && key.field == self.field
    }
}

/// Meaning of a series to the intake itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    /// Samples that a client sent, [`sheaf_samples::client::SENT`].
    Sent,
    /// Samples that a client dropped, [`sheaf_samples::client::DROPPED`].
    Dropped,
}

/// State of the series that has a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) life: u32,
    pub(crate) source: SourceRef,
    /// Latest sample, in s of the intake's time.
    pub(crate) seen_s: i64,
    pub(crate) kind: Kind,
    /// Keys of lines that name the series.
    keys: u8,
}

/// Keys of one series at most: orders of its tags. Lines in further orders are taken as well, on the slow path.
const KEYS_MAX: u8 = 8;

/// All series of an intake.
#[derive(Debug, Default)]
pub(crate) struct SeriesTable {
    keys: IndexMap<Owned, SeriesHandle, FxBuildHasher>,
    labels: IndexMap<Labels, u32, FxBuildHasher>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Where the sweeps of the two tables go on.
    next_key: usize,
    next_labels: usize,
}

impl SeriesTable {
    /// Place of the series with the bytes `key`.
    #[inline]
    pub(crate) fn of_key(&mut self, key: &Key<'_>) -> Option<(SeriesHandle, &mut Slot)> {
        let handle = *self.keys.get(key)?;
        let slot = &mut self.slots[handle.slot as usize];
        // The series of a key may have ended.
        (slot.life == handle.life).then_some((handle, slot))
    }

    /// Place of the series with `labels`.
    pub(crate) fn of_labels(&mut self, labels: &Labels) -> Option<(SeriesHandle, &mut Slot)> {
        let place = *self.labels.get(labels)?;
        let slot = &mut self.slots[place as usize];
        let life = slot.life;
        Some((SeriesHandle { slot: place, life }, slot))
    }

    /// Returns whether the series of `handle` has not ended.
    pub(crate) fn is_open(&self, handle: SeriesHandle) -> bool {
        let slot = self.slots.get(handle.slot as usize);
        slot.is_some_and(|slot| slot.life == handle.life)
    }

    /// Opens a series that the table does not have.
    pub(crate) fn open(
        &mut self,
        labels: Labels,
        source: SourceRef,
        now_s: i64,
        kind: Kind,
    ) -> SeriesHandle {
        let place = self.free.pop().unwrap_or_else(|| {
            let place = u32::try_from(self.slots.len()).expect("series_max is below 2^32");
            self.slots.push(Slot {
                life: 0,
                source,
                seen_s: now_s,
                kind,
                keys: 0,
            });
            place
        });
        let slot = &mut self.slots[place as usize];
        *slot = Slot {
            source,
            seen_s: now_s,
            kind,
            keys: 0,
            ..*slot
        };
        let life = slot.life;
        self.labels.insert(labels, place);
        SeriesHandle { slot: place, life }
    }

    /// Names a series by the bytes `key`, too.
    pub(crate) fn add_key(&mut self, key: &Key<'_>, handle: SeriesHandle) {
        let slot = &mut self.slots[handle.slot as usize];
        if slot.keys == KEYS_MAX {
            return;
        }
        slot.keys += 1;
        let owned = Owned {
            bytes: [key.series, key.field].concat().into_boxed_slice(),
            series: u32::try_from(key.series.len()).expect("line_bytes_max is below 2^32"),
        };
        self.keys.insert(owned, handle);
    }

    /// Number of series.
    pub(crate) fn len(&self) -> usize {
        self.labels.len()
    }

    /// Number of keys: at least one for each series that came as a line.
    pub(crate) fn keys(&self) -> usize {
        self.keys.len()
    }

    /// Looks at `share` of the table, a part of 1000, and ends the series without samples since `before_s`; each ended
    /// one is given to `end`.
    pub(crate) fn sweep(
        &mut self,
        share: u64,
        before_s: i64,
        mut end: impl FnMut(SeriesHandle, &Slot),
    ) {
        let steps = |length: usize| {
            let part = length as u64 * share.min(1000) / 1000;
            usize::try_from(part).unwrap_or(usize::MAX).min(length) + 1
        };
        for _ in 0..steps(self.labels.len()) {
            let Some((_, &place)) = self.labels.get_index(self.next_labels) else {
                self.next_labels = 0;
                continue;
            };
            let slot = &mut self.slots[place as usize];
            if slot.seen_s >= before_s {
                self.next_labels += 1;
                continue;
            }
            let life = slot.life;
            end(SeriesHandle { slot: place, life }, slot);
            slot.life = slot.life.wrapping_add(1);
            self.free.push(place);
            // The last one moves here and is looked at next.
            self.labels.swap_remove_index(self.next_labels);
        }
        for _ in 0..steps(self.keys.len()) {
            let Some((_, handle)) = self.keys.get_index(self.next_key) else {
                self.next_key = 0;
                continue;
            };
            if self.slots[handle.slot as usize].life == handle.life {
                self.next_key += 1;
            } else {
                self.keys.swap_remove_index(self.next_key);
            }
        }
    }
}
