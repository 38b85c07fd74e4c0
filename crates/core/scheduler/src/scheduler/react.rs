//! List of EPNs that the policy chooses from: [`Reaction`] in the scheduler.
//!
//! Under every reaction, the verdicts stay as they are: a TF that was committed to a dead EPN is abandoned or waits for
//! its next life, an undecided one is with its FLPs and is built elsewhere, sooner or later.

use super::peer::target_id;
use super::{Record, Scheduler};
use sheaf_placement::Reaction;
use sheaf_protocol::{EpnId, Target, Timestamp};
use std::collections::BTreeSet;

/// The EPNs that may get work.
#[derive(Debug, Default)]
pub(super) struct List {
    /// Fixed list; `None` while every EPN may get work.
    fixed: Option<BTreeSet<EpnId>>,
    /// Until when nothing is placed.
    resets_until: Timestamp,
}

impl List {
    pub(super) fn has(&self, epn: EpnId) -> bool {
        self.fixed.as_ref().is_none_or(|list| list.contains(&epn))
    }

    /// Restores the list from the log.
    pub(super) fn restore(&mut self, epns: Vec<EpnId>) {
        self.fixed = Some(epns.into_iter().collect());
    }
}

impl Scheduler {
    /// Returns the reaction to the deaths of EPNs.
    #[must_use]
    pub fn reaction(&self) -> Reaction {
        self.config.reaction
    }

    /// Fixes the list to the present EPNs, if the reaction wants a fixed one and the log has none.
    pub(super) fn fix_list(&mut self) {
        if !self.config.reaction.fixes_list() {
            // The log may be of a leader with another configuration.
            self.list = List::default();
        } else if self.list.fixed.is_none() && self.has_begun() {
            self.list.fixed = Some(self.epns.keys().copied().collect());
            self.append_list();
        }
        let epns: Vec<EpnId> = self.epns.keys().copied().collect();
        for epn in epns {
            self.view.set_listed(target_id(epn), self.list.has(epn));
        }
    }

    fn append_list(&mut self) {
        if let Some(list) = &self.list.fixed {
            let epns = list.iter().copied().collect();
            self.append(Record::Listed { epns });
        }
    }

    /// Returns whether the list has just been rebuilt and nothing is placed yet.
    pub(super) fn is_resetting(&self, now: Timestamp) -> bool {
        now < self.list.resets_until
    }

    /// Returns whether silence and death of an EPN change nothing about its share of work.
    pub(super) fn ignores_deaths(&self) -> bool {
        self.config.reaction == Reaction::None && self.has_begun()
    }

    /// Returns whether a dead EPN goes on getting TFs; one that has left on its own account does not.
    pub(super) fn stays_listed(&self, epn: EpnId) -> bool {
        let is_leaving = self.epns.get(&epn).is_some_and(|node| node.is_leaving);
        self.ignores_deaths() && !is_leaving
    }

    /// Marks an EPN as dead while it stays in the list, with its bookings for undecided TFs.
    pub(super) fn bury(&mut self, target: Target) {
        let Some(node) = self.epns.get_mut(&target.epn) else {
            return;
        };
        node.is_dead = true;
        node.is_cut = true;
        for (_, bytes) in node.losing.drain(..) {
            self.view.release(target_id(target.epn), bytes);
        }
    }

    /// Forgets the bookings of the dead life of an EPN when a new life comes.
    pub(super) fn forget_dead(&mut self, epn: EpnId) {
        if let Some(dead) = self.epns.remove(&epn) {
            for tf in self.tfs.values_mut() {
                tf.bookings.retain(|booking| booking.target != dead.target);
            }
        }
    }

    /// Takes an EPN off the list when its life is over: under `reinitialise` for ever, and nothing is placed for a
    /// while, unless it had announced that it leaves.
    pub(super) fn unlist(&mut self, now: Timestamp, epn: EpnId) {
        if self.config.reaction != Reaction::Reinitialise {
            return;
        }
        let was_listed = self
            .list
            .fixed
            .as_mut()
            .is_some_and(|list| list.remove(&epn));
        if was_listed {
            self.append_list();
            let is_leaving = self.epns.get(&epn).is_some_and(|node| node.is_leaving);
            if !is_leaving {
                self.list.resets_until = now + self.config.reset();
            }
        }
    }
}
