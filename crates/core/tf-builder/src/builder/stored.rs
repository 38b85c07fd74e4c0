//! Ack level `stored`: a TF is on the disk before it is reported, and TFs of former lives are published or removed.
//!
//! A TF is stored after it is settled and before it is reported: [`Action::Store`] out, [`TfBuilder::handle_stored`]
//! in. A stored TF has a name that no reader looks at; the commit publishes it. So an EPN that dies between the verdict
//! and its acknowledgement comes back with the TF: it reports the TFs that its former lives have stored, and the ICN
//! answers for each whether to publish or remove it. See `docs/adr/2026-11-21-stored-before-built.md`.

use super::{Action, TfBuilder};
use crate::slot::{Slot, Stored};
use sheaf_protocol::control::{Commit, Recover};
use sheaf_protocol::{Control, FlpId, RunId, Tf, TfId, Timestamp};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// TFs on their way to the disk, and TFs that former lives have left there.
#[derive(Debug)]
pub(super) struct Storing<P> {
    /// TFs to be written.
    writes: VecDeque<Tf<P>>,
    /// TFs with the writer, each with the bytes that only the writer still holds.
    busy: BTreeMap<(RunId, TfId), u64>,
    /// TFs stored by former lives and not published, of which the ICN has not decided yet.
    former: BTreeSet<(RunId, TfId)>,
    /// TFs of this run that are published for a former life, and whether the publication is done.
    recovered: BTreeMap<TfId, bool>,
    /// Actions to be done after the writes before them.
    orders: VecDeque<Action<P>>,
    said_at: Timestamp,
}

impl<P: Clone> Storing<P> {
    /// Returns whether the slot is on the disk as it is now; if not, queues the write.
    pub(super) fn has_stored(
        &mut self,
        run: RunId,
        tf: TfId,
        slot: &mut Slot<P>,
        missing: &[FlpId],
    ) -> bool {
        let snapshot = (slot.changes, missing.to_vec());
        match &slot.stored {
            Stored::Done(stored) if *stored == snapshot => return true,
            // The slot is looked at again when that write is done.
            Stored::Busy(_) => return false,
            Stored::No | Stored::Done(_) => {}
        }
        slot.stored = Stored::Busy(snapshot);
        let mut parts = slot.parts.clone();
        parts.sort_unstable_by_key(|part| part.source);
        self.writes.push_back(Tf {
            run,
            tf,
            attempt: slot.attempt,
            is_redelivered: false,
            parts,
            missing: missing.to_vec(),
        });
        false
    }
}

impl<P: Clone> TfBuilder<P> {
    /// Switches to ack level `stored`: from now on, TFs are stored before they are reported. `former` are those that
    /// former lives of the EPN have left stored and unpublished. To be called before the first event.
    pub fn store_first(&mut self, former: impl IntoIterator<Item = (RunId, TfId)>) {
        self.storing = Some(Storing {
            writes: VecDeque::new(),
            busy: BTreeMap::new(),
            former: former.into_iter().collect(),
            recovered: BTreeMap::new(),
            orders: VecDeque::new(),
            said_at: Timestamp(0),
        });
    }

    /// Returns whether TFs are stored before they are reported.
    #[must_use]
    pub fn stores_first(&self) -> bool {
        self.storing.is_some()
    }

    /// Returns the number of TFs, of all runs, that former lives have left stored and that the ICN has not decided
    /// about.
    #[must_use]
    pub fn former_tfs(&self) -> usize {
        self.storing
            .as_ref()
            .map_or(0, |storing| storing.former.len())
    }

    /// Sets whether the storage behind the consumer is full, for the next heartbeat.
    pub fn set_storage_full(&mut self, is_full: bool) {
        self.is_storage_full = is_full;
    }

    /// Returns whether the storage behind the consumer is full.
    #[must_use]
    pub fn is_storage_full(&self) -> bool {
        self.is_storage_full
    }

    /// Handles the end of an [`Action::Store`]: the TF survives a crash.
    pub fn handle_stored(&mut self, now: Timestamp, run: RunId, tf: TfId) {
        let Some(storing) = &mut self.storing else {
            return;
        };
        let Some(bytes) = storing.busy.remove(&(run, tf)) else {
            return;
        };
        self.sink_bytes = self.sink_bytes.saturating_sub(bytes);
        if self.run != Some(run) {
            return;
        }
        let Some(slot) = self.slots.get_mut(&tf) else {
            return;
        };
        if let Stored::Busy(snapshot) = std::mem::take(&mut slot.stored) {
            slot.stored = Stored::Done(snapshot);
            self.stats.stored_tfs += 1;
            self.report(now, tf);
        }
    }

    /// Handles the ICN's notice that these TFs, stored by a life that it presumes dead, are committed to this EPN.
    pub fn handle_recover(&mut self, now: Timestamp, items: &[Recover]) {
        for item in items {
            if self.storing.is_some() && self.has_itself(now, item) {
                continue;
            }
            let (Some(storing), Some(run)) = (&mut self.storing, self.run) else {
                return;
            };
            match storing.recovered.get(&item.tf) {
                Some(true) => self.acks.push(item.tf),
                Some(false) => {}
                None => {
                    storing.recovered.insert(item.tf, false);
                    storing.former.remove(&(run, item.tf));
                    let item = item.clone();
                    storing.orders.push_back(Action::Recover { run, item });
                }
            }
        }
    }

    /// Returns whether this very life stored the TF: cut off for long, it was presumed dead. Then this is a commit.
    fn has_itself(&mut self, now: Timestamp, item: &Recover) -> bool {
        if let Some(committed) = self.committed.get(&item.tf).copied() {
            self.answer_again(item.tf, committed);
            return true;
        }
        let Some(slot) = self.slots.get(&item.tf) else {
            return false;
        };
        if slot.stored == Stored::No {
            return false;
        }
        // Farms that store TFs deliver none again.
        let commit = Commit {
            tf: item.tf,
            is_redelivered: false,
            missing: item.missing.clone(),
        };
        if slot.roster.is_some() && self.commit(now, &commit) {
            return true;
        }
        // The roster of the verdict may not have come yet, of a new leader or with fewer FLPs: its parts are named.
        let slot = self.slots.get(&item.tf);
        slot.is_some_and(|slot| has_the_parts_of(slot, item)) && self.deliver(now, &commit)
    }

    /// Handles the end of an [`Action::Recover`]; `found` is false if the TF is not on the disk.
    pub fn handle_recovered(&mut self, run: RunId, tf: TfId, found: bool) {
        if self.run != Some(run) {
            return;
        }
        let Some(storing) = &mut self.storing else {
            return;
        };
        if found {
            storing.recovered.insert(tf, true);
            self.stats.recovered_tfs += 1;
            self.acks.push(tf);
        } else {
            storing.recovered.remove(&tf);
            self.stats.not_stored_tfs += 1;
            self.messages.push_back(Control::NotStored(vec![tf]));
        }
    }

    /// Handles the ICN's notice that these TFs, stored by a former life, are not committed to this EPN.
    pub fn handle_discard(&mut self, tfs: &[TfId]) {
        let (Some(storing), Some(run)) = (&mut self.storing, self.run) else {
            return;
        };
        for tf in tfs {
            if storing.former.remove(&(run, *tf)) {
                storing.orders.push_back(Action::Unstore {
                    run,
                    tf: *tf,
                    by_former: true,
                });
            }
        }
    }

    /// Reports to the ICN which TFs of its run former lives have stored.
    pub(super) fn send_stored(&mut self, now: Timestamp) {
        let (Some(storing), Some(run)) = (&mut self.storing, self.run) else {
            return;
        };
        storing.said_at = now;
        let of_run = storing
            .former
            .range((run, TfId(0))..=(run, TfId(u64::MAX)))
            .map(|(_, tf)| *tf);
        // The rest follows when these are answered.
        let tfs: Vec<TfId> = of_run.take(Control::ENTRIES_MAX).collect();
        if !tfs.is_empty() {
            self.messages.push_back(Control::Stored(tfs));
        }
    }

    pub(super) fn repeat_stored(&mut self, now: Timestamp) {
        let repeat = self.repeat();
        let is_due = self
            .storing
            .as_ref()
            .is_some_and(|s| !s.former.is_empty() && now.since(s.said_at) >= repeat);
        if is_due {
            self.send_stored(now);
        }
    }

    /// Cancels the write of a committed TF, unless it has begun: the TF is delivered with all its bytes.
    pub(super) fn cancel_store(&mut self, tf: TfId) {
        if let Some(storing) = &mut self.storing {
            storing.writes.retain(|write| write.tf != tf);
        }
    }

    /// Removes the stored copy of a slot that goes without a commit.
    pub(super) fn unstore(&mut self, tf: TfId, slot: &Slot<P>) {
        let (Some(storing), Some(run)) = (&mut self.storing, self.run) else {
            return;
        };
        if slot.stored == Stored::No {
            return;
        }
        storing.writes.retain(|write| write.tf != tf);
        if let Some(bytes) = storing.busy.get_mut(&(run, tf)) {
            *bytes = slot.bytes();
            self.sink_bytes += slot.bytes();
        }
        storing.orders.push_back(Action::Unstore {
            run,
            tf,
            by_former: false,
        });
    }

    /// Leaves the run and drops all TFs in building. Their stored copies stay: they may be committed, and the ICN that
    /// knows is not there. Returns the bytes that only the writer holds from now on.
    pub(super) fn leave_stores(&mut self) -> u64 {
        let (Some(storing), Some(run)) = (&mut self.storing, self.run) else {
            return 0;
        };
        storing.writes.clear();
        storing.recovered.clear();
        let mut left = 0;
        for (tf, slot) in self.slots.iter() {
            if let Some(bytes) = storing.busy.get_mut(&(run, tf)) {
                *bytes = slot.bytes();
                left += slot.bytes();
            }
        }
        left
    }

    pub(super) fn poll_storing(&mut self) -> Option<Action<P>> {
        let storing = self.storing.as_mut()?;
        if let Some(tf) = storing.writes.pop_front() {
            storing.busy.insert((tf.run, tf.tf), 0);
            return Some(Action::Store(tf));
        }
        storing.orders.pop_front()
    }
}

/// Returns whether a slot has one part for each FLP that the verdict has, and no other but of FLPs that it lacks.
fn has_the_parts_of<P>(slot: &Slot<P>, item: &Recover) -> bool {
    let (of_verdict, others): (Vec<FlpId>, Vec<FlpId>) = slot
        .parts
        .iter()
        .map(|part| part.source.flp)
        .partition(|flp| item.parts.contains(flp));
    let found: BTreeSet<FlpId> = of_verdict.iter().copied().collect();
    found.len() == of_verdict.len()
        && item.parts.iter().all(|flp| found.contains(flp))
        && others.iter().all(|flp| item.missing.contains(flp))
}

#[cfg(test)]
mod tests;
