//! Checkpoint that a verdict log begins with, whose own begin was removed.

use sheaf_protocol::{Checkpoint, DropReason, RangeSet, TfId, Verdict};
use std::collections::{BTreeMap, BTreeSet};

/// Verdicts that are known from their sums only.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summed {
    head: Checkpoint,
    /// TFs decided and done.
    released: RangeSet,
    /// TFs decided and not done then; their verdicts stand in the checkpoint.
    undone: BTreeSet<TfId>,
    /// Of these: TFs whose verdict in the checkpoint is an amendment.
    amended: BTreeSet<TfId>,
}

impl Summed {
    pub(super) fn new(head: &Checkpoint) -> Self {
        Self {
            head: head.clone(),
            released: RangeSet::below(head.floor),
            undone: BTreeSet::new(),
            amended: BTreeSet::new(),
        }
    }

    pub(super) fn add_released(&mut self, ranges: &[(TfId, TfId)]) {
        for (first, end) in ranges {
            self.released.insert_range(*first, *end);
        }
    }

    pub(super) fn add_undone(&mut self, tf: TfId, is_amendment: bool) {
        self.undone.insert(tf);
        if is_amendment {
            self.amended.insert(tf);
        }
    }

    /// Returns whether the verdict of `tf` in the checkpoint is an amendment.
    pub(crate) fn has_amended(&self, tf: u64) -> bool {
        self.amended.contains(&TfId(tf))
    }

    /// Returns whether it counts the verdict on `tf`.
    pub(crate) fn has(&self, tf: u64) -> bool {
        self.is_done(tf) || self.undone.contains(&TfId(tf))
    }

    /// Returns whether `tf` was decided and done: later events do not concern it.
    pub(crate) fn is_done(&self, tf: u64) -> bool {
        self.released.contains(TfId(tf))
    }

    /// Returns the first TF that no source had named.
    pub(crate) fn frontier(&self) -> u64 {
        self.head.frontier.0
    }

    /// Returns how often each verdict and amendment occurs in it, by name.
    pub(crate) fn counts(&self) -> Counts {
        Counts::of(&self.head)
    }
}

/// Number of occurrences of each verdict and amendment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts(BTreeMap<String, u64>);

impl Counts {
    pub(super) fn of(head: &Checkpoint) -> Self {
        let mut counts = Self::default();
        counts.add("complete", head.complete);
        counts.add("incomplete", head.incomplete);
        counts.add("abandoned", head.abandoned);
        for reason in DropReason::ALL {
            counts.add(reason.name(), head.dropped[reason.index()]);
        }
        counts
    }

    pub(crate) fn add(&mut self, name: &str, times: u64) {
        if times > 0 {
            *self.0.entry(name.to_owned()).or_default() += times;
        }
    }

    /// Takes one off, for a verdict that was amended.
    pub(super) fn remove(&mut self, name: &str) {
        if let Some(count) = self.0.get_mut(name) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.0.remove(name);
            }
        }
    }

    pub(super) fn add_verdict(&mut self, verdict: &Verdict) {
        let name = match verdict {
            Verdict::Complete { .. } => "complete",
            Verdict::Incomplete { .. } => "incomplete",
            Verdict::Dropped { reason } => reason.name(),
        };
        self.add(name, 1);
    }

    /// Returns the names whose numbers differ, with the one here and the one there.
    pub(crate) fn differ(&self, other: &Self) -> Vec<(String, u64, u64)> {
        let names: BTreeSet<&String> = self.0.keys().chain(other.0.keys()).collect();
        let of = |counts: &Self, name: &String| counts.0.get(name).copied().unwrap_or(0);
        let pairs = names
            .into_iter()
            .map(|name| (name.clone(), of(self, name), of(other, name)));
        pairs.filter(|(_, here, there)| here != there).collect()
    }
}
