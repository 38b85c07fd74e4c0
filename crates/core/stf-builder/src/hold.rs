//! The hold: STFs that an FLP keeps until their TF is decided.

use sheaf_protocol::{Attempt, RangeSet, Stf, Target, TfId, TfTable, Timestamp};

/// Progress of an STF on its way to the EPN that it is assigned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Nothing has been sent for it on the stream that is open to the EPN now.
    Waiting,
    /// Offered to the EPN, which has not asked for it yet.
    Offered,
    /// Passed to the stream that is open now.
    Sent,
}

/// One STF that is held.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) stf: Stf,
    /// When the STF was last announced.
    pub(crate) announced_at: Timestamp,
    /// The latest assignment of its TF.
    pub(crate) assigned: Option<(Attempt, Target)>,
    pub(crate) progress: Progress,
}

impl Held {
    /// Returns whether the STF is to go to `target`. An assignment of a former leader (attempt 0) does not count: the
    /// present one assigns it again, here or elsewhere.
    pub(crate) fn is_assigned_to(&self, target: Target) -> bool {
        self.assigned
            .is_some_and(|(attempt, to)| to == target && attempt > Attempt(0))
    }
}

/// All STFs of the run that are not released, with their bytes counted.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    stfs: TfTable<Held>,
    bytes: u64,
}

impl Hold {
    pub(crate) fn len(&self) -> usize {
        self.stfs.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn insert(&mut self, now: Timestamp, stf: Stf) {
        self.bytes += stf.bytes();
        let held = Held {
            announced_at: now,
            assigned: None,
            progress: Progress::Waiting,
            stf,
        };
        let replaced = self.stfs.insert(held.stf.tf, held);
        debug_assert!(replaced.is_none(), "an STF is made once");
    }

    pub(crate) fn contains(&self, tf: TfId) -> bool {
        self.stfs.contains_key(&tf)
    }

    pub(crate) fn get_mut(&mut self, tf: TfId) -> Option<&mut Held> {
        self.stfs.get_mut(&tf)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (TfId, &mut Held)> {
        self.stfs.iter_mut()
    }

    /// Releases the STF of `tf`; `false` if it is not held.
    pub(crate) fn release(&mut self, tf: TfId) -> bool {
        let held = self.stfs.remove(&tf);
        self.bytes -= held.as_ref().map_or(0, |held| held.stf.bytes());
        held.is_some()
    }

    /// Returns the first STF held from a TF on.
    fn first_from(&self, from: TfId) -> Option<TfId> {
        self.stfs.range(from..).next().map(|(tf, _)| tf)
    }

    /// Releases every STF of `released`; returns their number. Its cost grows with the STFs released and the ranges of
    /// the set, and not with the STFs that stay.
    pub(crate) fn release_all(&mut self, released: &RangeSet) -> u64 {
        let mut count = 0;
        let held_below = (TfId(0), released.floor());
        for (first, end) in std::iter::once(held_below).chain(released.ranges()) {
            while let Some(tf) = self.first_from(first).filter(|tf| *tf < end) {
                count += u64::from(self.release(tf));
            }
        }
        count
    }

    pub(crate) fn clear(&mut self) -> u64 {
        let count = self.stfs.len() as u64;
        *self = Self::default();
        count
    }
}
