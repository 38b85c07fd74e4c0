//! The hold: STFs that an FLP keeps until their TF is decided.

use sheaf_protocol::{Attempt, Stf, Target, TfId, Timestamp};
use std::collections::BTreeMap;

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
    stfs: BTreeMap<TfId, Held>,
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
        self.stfs.iter_mut().map(|(tf, held)| (*tf, held))
    }

    /// Releases every STF for which `is_released` holds, oldest first; returns their number.
    pub(crate) fn release(&mut self, is_released: impl Fn(TfId) -> bool) -> u64 {
        let before = self.stfs.len();
        let bytes = &mut self.bytes;
        self.stfs.retain(|tf, held| {
            let released = is_released(*tf);
            if released {
                *bytes -= held.stf.bytes();
            }
            !released
        });
        (before - self.stfs.len()) as u64
    }

    pub(crate) fn clear(&mut self) -> u64 {
        let count = self.stfs.len() as u64;
        *self = Self::default();
        count
    }
}
