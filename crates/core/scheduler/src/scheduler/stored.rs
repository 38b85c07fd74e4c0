//! Ack level `stored`: committed TFs outlive the EPN that has them on its disk, and a full disk takes none.
//!
//! A TF whose EPN dies between the verdict and its acknowledgement is a *stray*: it stays committed, its parts are
//! released everywhere, and the next life of that EPN is told to publish it. Only when the run ends without that
//! life, or its disk does not have the TF, it is abandoned.

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
}

impl Scheduler {
    /// Committed TFs that wait for the next life of the EPN that has them on its disk.
    #[must_use]
    pub fn strays(&self) -> usize {
        self.strays.len()
    }

    /// Whether a life of an EPN has on its disk what it reports.
    pub(super) fn stores_durably(&self, target: Target) -> bool {
        let node = self.epns.get(&target.epn);
        node.filter(|node| node.target == target)
            .map_or(self.config.epns_keep, |node| node.is_durable)
    }

    /// The life of an EPN is over that has not acknowledged `tf`.
    pub(super) fn leave_committed(&mut self, tf: TfId, target: Target, is_durable: bool) {
        if !is_durable {
            self.abandon(tf, target);
            return;
        }
        let Some(Phase::Committed { missing, .. }) = self.tfs.get(&tf).map(|open| &open.phase)
        else {
            return;
        };
        let missing = missing.clone();
        self.finish(tf, None);
        self.strays.insert(tf, Stray { target, missing });
    }

    /// An EPN has joined: its former lives' TFs are published by it, or are lost with their disk.
    pub(super) fn handle_epn_returned(&mut self, target: Target) {
        let former = |at: &Target| at.epn == target.epn && *at != target;
        // Of lives that this ICN knows from the log only.
        let committed: Vec<(TfId, Target)> = self
            .tfs
            .iter()
            .filter_map(|(tf, open)| match &open.phase {
                Phase::Committed { target, .. } if former(target) => Some((*tf, *target)),
                _ => None,
            })
            .collect();
        let is_durable = self.stores_durably(target);
        for (tf, at) in committed {
            self.leave_committed(tf, at, is_durable);
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
            })
            .collect();
        for items in items.chunks(Control::ENTRIES_MAX / 16) {
            self.send(Recipient::Epn(epn), Control::Recover(items.to_vec()));
        }
    }

    /// Says again what EPNs that are there have not acknowledged.
    pub(super) fn repeat_recover(&mut self) {
        let mut there: Vec<EpnId> = self.strays.values().map(|stray| stray.target.epn).collect();
        there.dedup();
        there.sort_unstable();
        there.dedup();
        there.retain(|epn| self.epns.contains_key(epn));
        there.into_iter().for_each(|epn| self.send_recover(epn));
    }

    /// An EPN says what its former lives have stored: of what is not committed to it, it need not keep anything.
    pub(super) fn handle_stored(&mut self, target: Target, tfs: &[TfId]) {
        let is_stray = |tf: &TfId| {
            let stray = self.strays.get(tf);
            stray.is_some_and(|stray| stray.target.epn == target.epn)
        };
        // An undecided TF is with its FLPs, and is built anew.
        let unwanted: Vec<TfId> = tfs.iter().copied().filter(|tf| !is_stray(tf)).collect();
        if !unwanted.is_empty() {
            self.send(Recipient::Epn(target.epn), Control::Discard(unwanted));
        }
        self.send_recover(target.epn);
    }

    /// An EPN was told to publish TFs of a former life, and does not have them.
    pub(super) fn handle_not_stored(&mut self, now: Timestamp, target: Target, tfs: &[TfId]) {
        for tf in tfs {
            let stray = self.strays.get(tf);
            if stray.is_some_and(|stray| stray.target.epn == target.epn) {
                self.abandon_stray(*tf);
            }
        }
        self.advance_run(now);
    }

    /// Whether `tf` was a stray that this EPN has now published.
    pub(super) fn handle_stray_ack(&mut self, target: Target, tf: TfId) -> bool {
        let stray = self.strays.get(&tf);
        if stray.is_none_or(|stray| stray.target.epn != target.epn) {
            return false;
        }
        if let Some(Stray { target, .. }) = self.strays.remove(&tf) {
            self.note_stray_end(target);
            self.done.insert(tf);
            // How long its EPN was away says nothing about the farm.
            let trace = Trace::default();
            self.actions.push_back(Action::Done { tf, target, trace });
        }
        true
    }

    /// What was left out of the release of an EPN is in the next one.
    fn note_stray_end(&mut self, stored_by: Target) {
        if self.is_current(stored_by) {
            self.released_version += 1;
        }
    }

    fn abandon_stray(&mut self, tf: TfId) {
        if let Some(Stray { target, .. }) = self.strays.remove(&tf) {
            self.note_stray_end(target);
            self.books.abandoned += 1;
            let record = Record::Abandoned { tf, target };
            self.actions.push_back(Action::Append(record));
        }
    }

    /// The run ends and nobody comes back for them.
    pub(super) fn abandon_strays(&mut self) {
        let strays: Vec<TfId> = self.strays.keys().copied().collect();
        strays.into_iter().for_each(|tf| self.abandon_stray(tf));
    }

    /// The state of the release for one EPN. What is committed to the life that it is in, and counted as stray while
    /// that was thought dead, is left out: the EPN discards what others have decided.
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

    /// Tells all EPNs what is released. While there are strays, each by its name: who is thought dead may be back in
    /// the same life by the time that this leaves, and must not discard what it has stored.
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

    /// Whether TFs of a former life of `epn` wait for it.
    pub(super) fn has_strays(&self, epn: EpnId) -> bool {
        self.strays_of(epn).next().is_some()
    }

    /// An EPN says whether its storage takes anything.
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

    /// Why a TF goes that nobody has room for: the storage, if every EPN that could take one says so.
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

    /// A source that was overrun because no storage takes anything is not to blame.
    pub(super) fn true_reason(&self, reason: DropReason) -> DropReason {
        let is_full = self.shed_reason() == DropReason::ShedStorageFull;
        if reason == DropReason::SourceOverrun && is_full {
            DropReason::ShedStorageFull
        } else {
            reason
        }
    }
}
