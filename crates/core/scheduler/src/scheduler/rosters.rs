//! Rosters: the sources that make a TF whole, a list that changes only at a TF boundary.

use super::open_tf::Members;
use sheaf_protocol::{RosterId, Source, TfId};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Roster {
    pub(super) first: TfId,
    pub(super) id: RosterId,
    pub(super) members: Members,
}

/// All rosters of a run that open TFs may still need, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rosters {
    list: Vec<Roster>,
    last_id: u32,
    /// Changes that are not in the log yet.
    unrecorded: Vec<Roster>,
}

impl Rosters {
    /// Changes the roster: from `first` on a TF is whole with `members`.
    pub(super) fn change(&mut self, first: TfId, mut members: Vec<Source>) {
        members.sort_unstable();
        self.last_id += 1;
        self.list.retain(|roster| roster.first < first);
        let roster = Roster {
            first,
            id: RosterId(self.last_id),
            members: members.into(),
        };
        self.unrecorded.push(roster.clone());
        self.list.push(roster);
    }

    /// Restores a roster of the log: it replaces the one that begins at the same TF and, as a change does, all behind.
    pub(super) fn restore(&mut self, id: RosterId, first: TfId, mut members: Vec<Source>) {
        members.sort_unstable();
        self.last_id = self.last_id.max(id.0);
        self.list.retain(|roster| roster.first < first);
        let members = members.into();
        self.list.push(Roster { first, id, members });
    }

    /// Skips names: no roster after this one has had a name up to `last`.
    pub(super) fn skip_names(&mut self, last: RosterId) {
        self.last_id = self.last_id.max(last.0);
    }

    /// Returns the highest name that was ever given.
    pub(super) fn last_name(&self) -> RosterId {
        RosterId(self.last_id)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the list from the roster of `floor` on.
    pub(super) fn from(&self, floor: TfId) -> &[Roster] {
        let at = self.list.partition_point(|roster| roster.first <= floor);
        &self.list[at.saturating_sub(1)..]
    }

    /// Takes the changes that are not in the log yet, in the order in which they happened.
    pub(super) fn take_unrecorded(&mut self) -> Vec<Roster> {
        std::mem::take(&mut self.unrecorded)
    }

    /// Returns the members from the last change on.
    pub(super) fn newest(&self) -> Members {
        let newest = self.list.last().map(|roster| roster.members.clone());
        newest.unwrap_or_else(|| Members::from([]))
    }

    /// Returns every roster with its first TF, oldest first.
    pub(super) fn all(&self) -> impl Iterator<Item = (TfId, &Members)> + '_ {
        self.list
            .iter()
            .map(|roster| (roster.first, &roster.members))
    }

    /// Removes `source` from the rosters from `first` on.
    pub(super) fn take_out(&mut self, first: TfId, source: Source) {
        // Rosters of TFs that are decided are forgotten: then from the oldest one on.
        let oldest = self.list.first().map_or(first, |roster| roster.first);
        let first = first.max(oldest);
        let Some((_, covering)) = self.of(first) else {
            return;
        };
        let begins_there = self.list.iter().any(|roster| roster.first == first);
        if !begins_there {
            let at = self.list.partition_point(|roster| roster.first < first);
            self.list.insert(
                at,
                Roster {
                    first,
                    id: RosterId(0),
                    members: covering,
                },
            );
        }
        for roster in self.list.iter_mut().filter(|roster| roster.first >= first) {
            self.last_id += 1;
            roster.id = RosterId(self.last_id);
            let others = roster.members.iter().copied();
            roster.members = others.filter(|member| *member != source).collect();
            self.unrecorded.push(roster.clone());
        }
    }

    /// Returns the roster of `tf`; `None` before the run has one.
    pub(super) fn of(&self, tf: TfId) -> Option<(RosterId, Members)> {
        let roster = self.list.iter().rev().find(|roster| roster.first <= tf)?;
        Some((roster.id, roster.members.clone()))
    }

    /// Forgets rosters that no TF from `floor` on needs.
    pub(super) fn forget_below(&mut self, floor: TfId) {
        while self.list.len() > 1 && self.list[1].first <= floor {
            self.list.remove(0);
        }
    }
}
