//! Table of timeframes that are under way, in the order of their ids.

use crate::TfId;
use std::collections::VecDeque;
use std::ops::{Index, RangeFrom};

/// Ids of a chunk. More make fewer chunks, and cost more where ids lie apart.
const CHUNK: u64 = u16::BITS as u64;

/// Map of timeframes to values, in the order of their ids.
///
/// Timeframes under way lie close together, a few thousand at most, and each is looked up a dozen times while it is
/// built. So the values lie in chunks of 16 consecutive ids, and the chunks side by side: without gaps a value is found
/// by two indices. Ids that lie apart cost a chunk each, and a search.
#[derive(Clone, Debug)]
pub struct TfTable<V> {
    /// In the order of their ids; none is empty.
    chunks: VecDeque<Chunk<V>>,
    len: usize,
    /// A chunk that is not in use, for the next one.
    spare: Option<Chunk<V>>,
}

#[derive(Clone, Debug)]
struct Chunk<V> {
    /// The first id, divided by [`CHUNK`].
    at: u64,
    /// Bits of the slots that have a value.
    used: u16,
    /// As many as [`CHUNK`].
    slots: Box<[Option<V>]>,
}

fn place(tf: TfId) -> (u64, usize) {
    (tf.0 / CHUNK, (tf.0 % CHUNK) as usize)
}

impl<V> Chunk<V> {
    fn new(at: u64) -> Self {
        Self {
            at,
            used: 0,
            slots: std::iter::repeat_with(|| None)
                .take(CHUNK as usize)
                .collect(),
        }
    }
}

impl<V> Default for TfTable<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V> TfTable<V> {
    /// Creates an empty table.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            chunks: VecDeque::new(),
            len: 0,
            spare: None,
        }
    }

    /// Returns the number of timeframes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns where a chunk is; or where it would be, if there is none.
    fn find(&self, at: u64) -> Result<usize, usize> {
        let first = self.chunks.front().ok_or(0_usize)?.at;
        // Without gaps, which is as it should be.
        let guess = usize::try_from(at.wrapping_sub(first)).unwrap_or(usize::MAX);
        match self.chunks.get(guess) {
            Some(chunk) if chunk.at == at => Ok(guess),
            _ => self.chunks.binary_search_by_key(&at, |chunk| chunk.at),
        }
    }

    /// Returns the value of a timeframe.
    #[must_use]
    pub fn get(&self, tf: &TfId) -> Option<&V> {
        let (at, slot) = place(*tf);
        self.chunks[self.find(at).ok()?].slots[slot].as_ref()
    }

    /// Returns the value of a timeframe, to be changed.
    pub fn get_mut(&mut self, tf: &TfId) -> Option<&mut V> {
        let (at, slot) = place(*tf);
        let found = self.find(at).ok()?;
        self.chunks[found].slots[slot].as_mut()
    }

    /// Returns whether the table has a timeframe.
    #[must_use]
    pub fn contains_key(&self, tf: &TfId) -> bool {
        self.get(tf).is_some()
    }

    /// Returns the chunk of this number; a new one if there is none.
    fn chunk(&mut self, at: u64) -> &mut Chunk<V> {
        let found = self.find(at).unwrap_or_else(|between| {
            let chunk = match self.spare.take() {
                Some(spare) => Chunk { at, ..spare },
                None => Chunk::new(at),
            };
            self.chunks.insert(between, chunk);
            between
        });
        &mut self.chunks[found]
    }

    /// Adds a timeframe, or gives it another value. Returns the value that it had.
    pub fn insert(&mut self, tf: TfId, value: V) -> Option<V> {
        let (at, slot) = place(tf);
        let chunk = self.chunk(at);
        chunk.used |= 1 << slot;
        let former = chunk.slots[slot].replace(value);
        self.len += usize::from(former.is_none());
        former
    }

    /// Returns the value of a timeframe, to be changed; the timeframe is added if it was not there.
    pub fn get_or_insert_with(&mut self, tf: TfId, value: impl FnOnce() -> V) -> &mut V {
        let (at, slot) = place(tf);
        self.len += usize::from(!self.contains_key(&tf));
        let chunk = self.chunk(at);
        chunk.used |= 1 << slot;
        chunk.slots[slot].get_or_insert_with(value)
    }

    /// Removes a timeframe. Returns its value.
    pub fn remove(&mut self, tf: &TfId) -> Option<V> {
        let (at, slot) = place(*tf);
        let found = self.find(at).ok()?;
        let chunk = &mut self.chunks[found];
        let value = chunk.slots[slot].take()?;
        chunk.used &= !(1 << slot);
        self.len -= 1;
        if chunk.used == 0 {
            self.spare = self.chunks.remove(found);
        }
        Some(value)
    }

    /// Returns all timeframes in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (TfId, &V)> {
        self.range(TfId(0)..)
    }

    /// Returns the timeframes from one on, in order.
    pub fn range(&self, from: RangeFrom<TfId>) -> impl DoubleEndedIterator<Item = (TfId, &V)> {
        let first = from.start;
        let from = self.find(place(first).0);
        let chunks = self.chunks.range(from.unwrap_or_else(|between| between)..);
        let all = chunks.flat_map(|chunk| {
            let used = (0..CHUNK).filter(|slot| chunk.used >> slot & 1 == 1);
            used.filter_map(move |slot| {
                let value = chunk.slots[slot as usize].as_ref()?;
                Some((TfId(chunk.at * CHUNK + slot), value))
            })
        });
        // Only the first chunk has earlier ones.
        all.filter(move |(tf, _)| *tf >= first)
    }

    /// Returns all ids in order.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = TfId> {
        self.iter().map(|(tf, _)| tf)
    }

    /// Returns all values in the order of the ids.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// Returns all timeframes in order, their values to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (TfId, &mut V)> {
        self.chunks.iter_mut().flat_map(|chunk| {
            let first = chunk.at * CHUNK;
            let slots = (0..CHUNK).zip(chunk.slots.iter_mut());
            slots.filter_map(move |(slot, value)| Some((TfId(first + slot), value.as_mut()?)))
        })
    }

    /// Removes all timeframes of which `keep` is false.
    pub fn retain(&mut self, keep: impl Fn(TfId, &V) -> bool) {
        let gone = self.iter().filter(|(tf, value)| !keep(*tf, value));
        let gone: Vec<TfId> = gone.map(|(tf, _)| tf).collect();
        for tf in gone {
            self.remove(&tf);
        }
    }

    /// Returns all values in the order of the ids, to be changed.
    pub fn values_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut V> {
        let chunks = self.chunks.iter_mut();
        chunks.flat_map(|chunk| chunk.slots.iter_mut().flatten())
    }
}

impl<V> Index<&TfId> for TfTable<V> {
    type Output = V;

    /// # Panics
    ///
    /// If the table does not have the timeframe.
    fn index(&self, tf: &TfId) -> &V {
        self.get(tf).expect("the table has the timeframe")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Steps of one test: how a timeframe is added, changed or removed.
    fn steps() -> impl Strategy<Value = Vec<(u8, u64)>> {
        let near = 0_u64..300;
        let far = (0_u64..100).prop_map(|tf| (1 << 40) + tf);
        let last = (0_u64..70).prop_map(|before| u64::MAX - before);
        prop::collection::vec(
            (0_u8..5, prop_oneof![9 => near, 1 => far, 1 => last]),
            0..400,
        )
    }

    proptest! {
        #[test]
        fn a_table_is_a_map_in_order(steps in steps(), from in 0_u64..300) {
            let (mut table, mut map) = (TfTable::new(), BTreeMap::new());
            for (at, (step, tf)) in steps.into_iter().enumerate() {
                let tf = TfId(tf);
                match step {
                    0 => prop_assert_eq!(table.insert(tf, at), map.insert(tf, at)),
                    1 => prop_assert_eq!(
                        table.get_or_insert_with(tf, || at),
                        map.entry(tf).or_insert(at)
                    ),
                    2 => prop_assert_eq!(table.get_mut(&tf), map.get_mut(&tf)),
                    _ => prop_assert_eq!(table.remove(&tf), map.remove(&tf)),
                }
                prop_assert_eq!(table.get(&tf), map.get(&tf));
                prop_assert_eq!(table.contains_key(&tf), map.contains_key(&tf));
                prop_assert_eq!((table.len(), table.is_empty()), (map.len(), map.is_empty()));
            }
            for value in table.values_mut().chain(map.values_mut()) {
                *value += 1;
            }
            for (tf, value) in table.iter_mut() {
                *value += tf.0 as usize % 3;
            }
            for (tf, value) in &mut map {
                *value += tf.0 as usize % 3;
            }
            table.retain(|_, value| value % 5 != 0);
            map.retain(|_, value| *value % 5 != 0);
            let of_map = || map.iter().map(|(tf, value)| (*tf, value));
            prop_assert!(table.iter().eq(of_map()));
            prop_assert!(table.iter().rev().eq(of_map().rev()));
            prop_assert!(table.keys().eq(map.keys().copied()));
            prop_assert!(table.values().eq(map.values()));
            let from = TfId(from);
            prop_assert!(table.range(from..).eq(of_map().filter(|(tf, _)| *tf >= from)));
            prop_assert_eq!(table.iter().next_back(), of_map().next_back());
            // Nothing stays of chunks whose timeframes are gone.
            let ids: Vec<TfId> = table.keys().collect();
            for tf in ids {
                prop_assert_eq!(table[&tf], map[&tf]);
                table.remove(&tf);
            }
            prop_assert!(table.chunks.is_empty() && table.is_empty());
        }
    }
}
