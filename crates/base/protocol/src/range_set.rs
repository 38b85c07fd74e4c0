//! A set of TFs as a floor and the ranges above it: what is decided, in a few words.

use crate::id::TfId;
use std::collections::BTreeMap;

/// A set of [`TfId`]s: everything below the floor, and ranges above it.
///
/// One TF that stays undecided for long costs one more range, not one entry for each TF decided meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet {
    floor: u64,
    /// First id of a range → first id behind it. Disjoint, not adjacent, all above `floor`.
    ranges: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// Creates the set of all TFs below `floor`.
    #[must_use]
    pub fn below(floor: TfId) -> Self {
        Self {
            floor: floor.0,
            ranges: BTreeMap::new(),
        }
    }

    /// Returns the lowest TF that is not in the set.
    #[must_use]
    pub fn floor(&self) -> TfId {
        TfId(self.floor)
    }

    /// Returns the ranges above the floor, each as its first TF and the first TF behind it.
    pub fn ranges(&self) -> impl ExactSizeIterator<Item = (TfId, TfId)> + '_ {
        self.ranges
            .iter()
            .map(|(first, end)| (TfId(*first), TfId(*end)))
    }

    /// Returns whether `tf` is in the set.
    #[must_use]
    pub fn contains(&self, tf: TfId) -> bool {
        tf.0 < self.floor
            || self
                .ranges
                .range(..=tf.0)
                .next_back()
                .is_some_and(|(_, end)| tf.0 < *end)
    }

    /// Returns the first TF behind the TFs without a gap that `tf` is one of; `None` if it is not in the set.
    #[must_use]
    pub fn end_of_range_with(&self, tf: TfId) -> Option<TfId> {
        if tf.0 < self.floor {
            return Some(self.floor());
        }
        let (_, end) = self.ranges.range(..=tf.0).next_back()?;
        (tf.0 < *end).then_some(TfId(*end))
    }

    /// Puts `tf` in; `false` if it was there already.
    pub fn insert(&mut self, tf: TfId) -> bool {
        if self.contains(tf) {
            return false;
        }
        self.insert_range(tf, tf.next());
        true
    }

    /// Puts in everything from `first` up to, not including, `end`.
    pub fn insert_range(&mut self, first: TfId, end: TfId) {
        let (mut first, mut end) = (first.0.max(self.floor), end.0);
        if first >= end {
            return;
        }
        if let Some((&before, &before_end)) = self.ranges.range(..=first).next_back()
            && before_end >= first
        {
            first = before;
            end = end.max(before_end);
            self.ranges.remove(&before);
        }
        while let Some((&after, &after_end)) = self.ranges.range(first..=end).next() {
            end = end.max(after_end);
            self.ranges.remove(&after);
        }
        if first <= self.floor {
            self.floor = end;
        } else {
            self.ranges.insert(first, end);
        }
    }

    /// Puts in everything below `floor`.
    pub fn raise_floor(&mut self, floor: TfId) {
        self.insert_range(TfId(self.floor), floor);
    }

    /// Puts in everything that `other` has.
    pub fn extend(&mut self, other: &Self) {
        self.raise_floor(other.floor());
        for (first, end) in other.ranges() {
            self.insert_range(first, end);
        }
    }

    /// Returns how many TFs are in the set.
    #[must_use]
    pub fn count(&self) -> u64 {
        let in_ranges: u64 = self.ranges.iter().map(|(first, end)| end - first).sum();
        self.floor.saturating_add(in_ranges)
    }

    /// Returns how many TFs from `first` up to, not including, `end` are not in the set.
    #[must_use]
    pub fn missing_in(&self, first: TfId, end: TfId) -> u64 {
        let first = first.0.max(self.floor);
        let mut missing = end.0.saturating_sub(first);
        for (range_first, range_end) in self.ranges() {
            let overlap = range_end
                .0
                .min(end.0)
                .saturating_sub(range_first.0.max(first));
            missing -= overlap;
        }
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_holds_what_a_plain_set_holds(
            steps in prop::collection::vec((0_u64..60, 1_u64..8, any::<bool>()), 0..60)
        ) {
            let mut set = RangeSet::default();
            let mut model = BTreeSet::new();
            for (first, count, single) in steps {
                if single {
                    prop_assert_eq!(set.insert(TfId(first)), model.insert(first));
                } else {
                    set.insert_range(TfId(first), TfId(first + count));
                    model.extend(first..first + count);
                }
                for tf in 0..70 {
                    prop_assert_eq!(set.contains(TfId(tf)), model.contains(&tf));
                }
                let missing = (5..40).filter(|tf| !model.contains(tf)).count() as u64;
                prop_assert_eq!(set.missing_in(TfId(5), TfId(40)), missing);
                let lowest_outside = (0..).find(|tf| !model.contains(tf)).unwrap();
                prop_assert_eq!(set.floor(), TfId(lowest_outside));
                let mut copy = RangeSet::default();
                copy.extend(&set);
                prop_assert_eq!(&copy, &set);
                prop_assert_eq!(set.count(), model.len() as u64);
            }
        }
    }
}
