//! Which units of an arena are free.

use std::collections::BTreeMap;

/// Free extents in units, by their first unit. Disjoint and never adjacent: neighbours are merged at once.
///
/// First fit in the order of addresses. It keeps the free space at the far end in one piece, which large
/// bodies need, and reuses the extent that was freed last soon, while it is still in the cache;
/// next fit would walk through the whole arena and miss on every body. The walk over the holes is short,
/// because bodies are freed in about the order in which they came, and it is done once a block.
#[derive(Debug)]
pub(crate) struct FreeList {
    extents: BTreeMap<usize, usize>,
}

impl FreeList {
    /// Creates a list in which all of `units` are free.
    pub(crate) fn new(units: usize) -> Self {
        Self {
            extents: (units > 0).then_some((0, units)).into_iter().collect(),
        }
    }

    /// Takes the first extent that is large enough and answers with its first unit.
    pub(crate) fn take(&mut self, units: usize) -> Option<usize> {
        let (&first, &free) = self.extents.iter().find(|(_, free)| **free >= units)?;
        self.extents.remove(&first);
        if free > units {
            self.extents.insert(first + units, free - units);
        }
        Some(first)
    }

    /// Gives an extent back that [`take`](Self::take) gave.
    pub(crate) fn give(&mut self, first: usize, units: usize) {
        let (mut first, mut units) = (first, units);
        if let Some((&before, &before_units)) = self.extents.range(..first).next_back() {
            debug_assert!(
                before + before_units <= first,
                "extent at unit {first} is free twice"
            );
            if before + before_units == first {
                self.extents.remove(&before);
                first = before;
                units += before_units;
            }
        }
        if let Some(after_units) = self.extents.remove(&(first + units)) {
            units += after_units;
        }
        self.extents.insert(first, units);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        #[cfg_attr(miri, ignore = "takes minutes, and needs files")]
        fn extents_never_overlap_and_grow_together_again(
            steps in prop::collection::vec((1_usize..9, any::<prop::sample::Index>()), 1..200)
        ) {
            let mut list = FreeList::new(64);
            let mut taken: Vec<(usize, usize)> = Vec::new();
            for (units, index) in steps {
                if let Some(first) = list.take(units) {
                    prop_assert!(first + units <= 64);
                    let apart = |(other, size): &(usize, usize)| {
                        other + size <= first || first + units <= *other
                    };
                    prop_assert!(taken.iter().all(apart));
                    taken.push((first, units));
                } else {
                    let (first, units) = taken.swap_remove(index.index(taken.len()));
                    list.give(first, units);
                }
            }
            for (first, units) in taken {
                list.give(first, units);
            }
            prop_assert_eq!(list.take(64), Some(0));
        }
    }
}
