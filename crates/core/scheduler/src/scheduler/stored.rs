//! Ack level `stored`: committed TFs outlive the EPN that has them on its disk, and an EPN with a full disk gets none.
//!
//! A TF whose EPN dies between the verdict and its acknowledgement is a *stray*: it stays committed, its parts are
//! released everywhere, and the next life of that EPN is asked to publish it. Only when the run ends without that life,
//! or its disk does not have the TF, it is abandoned.

use super::open_tf::Phase;
use super::peer::target_id;
use super::{Action, Recipient, Scheduler, Trace};
use sheaf_protocol::control::{Recover, Release};
use sheaf_protocol::{
    Control, DropReason, EpnId, FlpId, RangeSet, Record, Target, TfId, Timestamp,
};
use std::collections::BTreeSet;

/// A committed TF whose EPN has died with it on its disk.
#[derive(Debug)]
pub(super) struct Stray {
    /// The life that the verdict names.
    target: Target,
    missing: Vec<FlpId>,
    /// FLPs of the roster with a part in it.
    parts: Vec<FlpId>,
}

impl Scheduler {
    /// Returns the number of committed TFs that wait for the next life of the EPN that has them on its disk.
    #[must_use]
    pub fn strays(&self) -> usize {
        self.strays.len()
    }

    /// Returns whether a life of an EPN has its reported TFs on disk.
    pub(super) fn stores_durably(&self, target: Target) -> bool {
        let node = self.epns.get(&target.epn);
        node.filter(|node| node.target == target)
            .map_or(self.config.epns_are_durable, |node| node.is_durable)
    }

    /// Handles the end of a life of an EPN that has not acknowledged `tf`.
    pub(super) fn leave_committed(
        &mut self,
        now: Timestamp,
        tf: TfId,
        target: Target,
        is_durable: bool,
    ) {
        if !is_durable {
            return self.leave_unknown(now, tf, target);
        }
        let Some(open) = self.tfs.get(&tf) else {
            return;
        };
        let Phase::Committed { missing, .. } = &open.phase else {
            return;
        };
        let missing = missing.clone();
        let members = open.members.iter().map(|member| member.flp);
        let parts = members.filter(|flp| !missing.contains(flp)).collect();
        self.finish(tf, None);
        let stray = Stray {
            target,
            missing,
            parts,
        };
        self.strays.insert(tf, stray);
    }

    /// Handles an EPN that has joined: the TFs of its former lives are published by it, or are lost with their disk.
    pub(super) fn handle_epn_returned(&mut self, now: Timestamp, target: Target) {
        let former = |at: &Target| at.epn == target.epn && *at != target;
        // Of lives that this ICN knows from the log only.
        let committed: Vec<(TfId, Target)> = self
            .tfs
            .iter()
            .filter_map(|(tf, open)| match &open.phase {
                Phase::Committed { target, .. } if former(target) => Some((tf, *target)),
                _ => None,
            })
            .collect();
        let is_durable = self.stores_durably(target);
        for (tf, at) in committed {
            self.leave_committed(now, tf, at, is_durable);
        }
        if !is_durable {
            let lost: Vec<TfId> = self.strays_of(target.epn).map(|(tf, _)| tf).collect();
            lost.into_iter().for_each(|tf| self.abandon_stray(tf));
        }
        self.send_recover(target.epn);
    }

    fn strays_of(&self, epn: EpnId) -> impl Iterator<Item = (TfId, &Stray)> + '_ {
        let strays = self.strays.iter().map(|(tf, stray)| (*tf, stray));
        strays.filter(move |(_, stray)| stray.target.epn == epn)
    }

    fn send_recover(&mut self, epn: EpnId) {
        let items: Vec<Recover> = self
            .strays_of(epn)
            .map(|(tf, stray)| Recover {
                tf,
                incarnation: stray.target.incarnation,
                missing: stray.missing.clone(),
                parts: stray.parts.clone(),
            })
            .collect();
        for items in items.chunks(Control::ENTRIES_MAX / 16) {
            self.send(Recipient::Epn(epn), Control::Recover(items.to_vec()));
        }
    }

    /// Asks again for TFs that present EPNs have not acknowledged.
    pub(super) fn repeat_recover(&mut self) {
        let mut there: Vec<EpnId> = self.strays.values().map(|stray| stray.target.epn).collect();
        there.dedup();
        there.sort_unstable();
        there.dedup();
        there.retain(|epn| self.epns.contains_key(epn));
        there.into_iter().for_each(|epn| self.send_recover(epn));
    }

    /// Handles an EPN's report of the TFs that its former lives have stored: those that are not committed to it need
    /// not be kept.
    pub(super) fn handle_stored(&mut self, target: Target, tfs: &[TfId]) {
        let is_stray = |tf: &TfId| {
            let stray = self.strays.get(tf);
            stray.is_some_and(|stray| stray.target.epn == target.epn)
        };
        // An undecided TF is with its FLPs, and is built again.
        let unwanted: Vec<TfId> = tfs.iter().copied().filter(|tf| !is_stray(tf)).collect();
        if !unwanted.is_empty() {
            self.send(Recipient::Epn(target.epn), Control::Discard(unwanted));
        }
        self.send_recover(target.epn);
    }

    /// Handles an EPN that was asked to publish TFs of a former life, and does not have them.
    pub(super) fn handle_not_stored(&mut self, now: Timestamp, target: Target, tfs: &[TfId]) {
        for tf in tfs {
            let stray = self.strays.get(tf);
            if stray.is_some_and(|stray| stray.target.epn == target.epn) {
                self.abandon_stray(*tf);
            }
        }
        self.advance_run(now);
    }

    /// Returns whether `tf` was a stray that this EPN has now published.
    pub(super) fn handle_stray_ack(&mut self, target: Target, tf: TfId) -> bool {
        let stray = self.strays.get(&tf);
        if stray.is_none_or(|stray| stray.target.epn != target.epn) {
            return false;
        }
        if let Some(Stray { target, .. }) = self.strays.remove(&tf) {
            self.note_stray_end(target);
            self.done.insert(tf);
            // How long its EPN was away is no measure of the farm.
            let trace = Trace::default();
            self.accounting.target(target.epn).delivered += 1;
            self.actions.push_back(Action::Done { tf, target, trace });
        }
        true
    }

    /// Notes the end of a stray: a TF that was left out of the release of an EPN is in the next one.
    fn note_stray_end(&mut self, stored_by: Target) {
        if self.is_current(stored_by) {
            self.released_version += 1;
        }
    }

    fn abandon_stray(&mut self, tf: TfId) {
        if let Some(Stray { target, .. }) = self.strays.remove(&tf) {
            self.note_stray_end(target);
            self.accounting.abandoned += 1;
            let record = Record::Abandoned { tf, target };
            self.actions.push_back(Action::Append(record));
        }
    }

    /// Abandons all strays when the run ends.
    pub(super) fn abandon_strays(&mut self) {
        let strays: Vec<TfId> = self.strays.keys().copied().collect();
        strays.into_iter().for_each(|tf| self.abandon_stray(tf));
    }

    /// Returns the state of the release for one EPN. TFs that are committed to the life that it is in, and counted as
    /// stray while that was thought dead, are left out: the EPN discards what others have decided.
    pub(super) fn release_for(&self, target: Target) -> Release {
        let own: BTreeSet<TfId> = self.own_strays(target).collect();
        if own.is_empty() {
            return self.release();
        }
        let below = (TfId(0), self.released.floor());
        let mut left = RangeSet::default();
        for (mut first, end) in [below].into_iter().chain(self.released.ranges()) {
            for tf in own.range(first..end) {
                left.insert_range(first, *tf);
                first = tf.next();
            }
            left.insert_range(first, end);
        }
        Release::of(self.released_version, &left)
    }

    fn own_strays(&self, target: Target) -> impl Iterator<Item = TfId> + '_ {
        self.strays_of(target.epn)
            .filter(move |(_, stray)| stray.target == target)
            .map(|(tf, _)| tf)
    }

    /// Sends the release to all EPNs. While there are strays, to each by its name: an EPN that is thought dead may be
    /// back in the same life by the time that this leaves, and must not discard what it has stored.
    pub(super) fn send_release_to_epns(&mut self) {
        if self.strays.is_empty() {
            return self.send(Recipient::AllEpns, Control::Release(self.release()));
        }
        let targets: Vec<Target> = self.epns.values().map(|node| node.target).collect();
        for target in targets {
            let release = self.release_for(target);
            self.send(Recipient::Epn(target.epn), Control::Release(release));
        }
    }

    /// Returns whether TFs of a former life of `epn` wait for it.
    pub(super) fn has_strays(&self, epn: EpnId) -> bool {
        self.strays_of(epn).next().is_some()
    }

    /// Handles an EPN's report of whether its storage is full.
    pub(super) fn set_stuck(&mut self, now: Timestamp, target: Target, is_stuck: bool) {
        let id = target_id(target.epn);
        let was_stuck = self.view.get(id).is_some_and(|load| load.stuck);
        if was_stuck == is_stuck {
            return;
        }
        self.view.set_stuck(id, is_stuck);
        if is_stuck {
            self.move_all_from(now, target);
        }
    }

    /// Returns why a TF without room is shed: the storage, if every EPN that could take one reports so.
    pub(super) fn shed_reason(&self) -> DropReason {
        let mut there = self
            .view
            .targets()
            .iter()
            .filter(|load| load.enabled && load.available)
            .peekable();
        if there.peek().is_some() && there.all(|load| load.stuck) {
            DropReason::ShedStorageFull
        } else {
            DropReason::ShedOverload
        }
    }

    /// Returns the true reason of a skip: a source that was overrun because no storage takes anything is not to blame.
    pub(super) fn true_reason(&self, reason: DropReason) -> DropReason {
        let is_full = self.shed_reason() == DropReason::ShedStorageFull;
        if reason == DropReason::SourceOverrun && is_full {
            DropReason::ShedStorageFull
        } else {
            reason
        }
    }
}
