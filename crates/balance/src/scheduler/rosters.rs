//! Which sources make a TF whole: a list that changes only at a TF boundary.

use super::open_tf::Members;
use sheaf_frame::{RosterId, Source, TfId};

#[derive(Debug)]
struct Roster {
    first: TfId,
    id: RosterId,
    members: Members,
}

/// All rosters of a run that open TFs may still need, oldest first.
#[derive(Debug, Default)]
pub(super) struct Rosters {
    list: Vec<Roster>,
    last_id: u32,
}

impl Rosters {
    /// From `first` on a TF is whole with `members`.
    pub(super) fn change(&mut self, first: TfId, mut members: Vec<Source>) {
        members.sort_unstable();
        self.last_id += 1;
        self.list.retain(|roster| roster.first < first);
        self.list.push(Roster {
            first,
            id: RosterId(self.last_id),
            members: members.into(),
        });
    }

    /// From `first` on nobody waits for `source`.
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
            roster.members = roster
                .members
                .iter()
                .copied()
                .filter(|member| *member != source)
                .collect();
        }
    }

    /// The roster of `tf`; `None` before the run has one.
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
