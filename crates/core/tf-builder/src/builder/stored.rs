//! Ack level `stored`: a TF is on the disk before it is reported, and what a former life left there is cleared up.
//!
//! Between settled and reported a TF is stored: [`Action::Store`] out, [`TfBuilder::handle_stored`] in. What is
//! stored has a name that no reader looks at; the commit publishes it. So an EPN that dies between the verdict and
//! its acknowledgement comes back with the TF: it says which TFs its former lives have stored, and the ICN answers
//! for each whether it is to be published or removed. See `docs/adr/2026-11-21-stored-before-built.md`.

use super::{Action, TfBuilder};
use crate::slot::{Slot, Stored};
use crate::tf::Tf;
use sheaf_protocol::control::Recover;
use sheaf_protocol::{Control, FlpId, RunId, TfId, Timestamp};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What is on its way to the disk, and what former lives have left there.
#[derive(Debug)]
pub(super) struct Storing<P> {
    /// To be written.
    writes: VecDeque<Tf<P>>,
    /// With the writer, each with the bytes that nobody but the writer holds any more.
    busy: BTreeMap<(RunId, TfId), u64>,
    /// Stored by former lives and not published, as far as nothing was heard about them.
    former: BTreeSet<(RunId, TfId)>,
    /// TFs of this run that were published for a former life, or are just being: whether it is done.
    recovered: BTreeMap<TfId, bool>,
    /// To be done after the writes before them.
    orders: VecDeque<Action<P>>,
    said_at: Timestamp,
}

impl<P: Clone> Storing<P> {
    /// Whether the slot is on the disk as it is now; if not, sees to that.
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
            // It is looked at again when that write is done.
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
            parts,
            missing: missing.to_vec(),
        });
        false
    }
}

impl<P: Clone> TfBuilder<P> {
    /// From now on, TFs are stored before they are reported. `former` are those that former lives of the EPN have
    /// left stored and unpublished. Call it before the first event.
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

    /// Whether TFs are stored before they are reported.
    #[must_use]
    pub fn stores_first(&self) -> bool {
        self.storing.is_some()
    }

    /// TFs that former lives have left stored and that nothing was heard about yet, of whatever run.
    #[must_use]
    pub fn former_tfs(&self) -> usize {
        self.storing
            .as_ref()
            .map_or(0, |storing| storing.former.len())
    }

    /// The storage behind the consumer takes nothing, or takes again: the next heartbeat says so.
    pub fn set_storage_full(&mut self, is_full: bool) {
        self.is_storage_full = is_full;
    }

    /// Whether the storage behind the consumer takes nothing.
    #[must_use]
    pub fn is_storage_full(&self) -> bool {
        self.is_storage_full
    }

    /// What [`Action::Store`] asked for is done: the TF survives a crash.
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

    /// The ICN says that these TFs, stored by a life that it takes for dead, are committed to this EPN.
    pub fn handle_recover(&mut self, items: &[Recover]) {
        for item in items {
            if self.storing.is_some() && self.has_itself(item) {
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

    /// Whether it was this very life that stored the TF: cut off for long, it counted as dead. Then this is a commit.
    fn has_itself(&mut self, item: &Recover) -> bool {
        if let Some(is_handed_over) = self.delivered.get(&item.tf) {
            if *is_handed_over {
                self.acks.push(item.tf);
            }
            return true;
        }
        let slot = self.slots.get(&item.tf);
        slot.is_some_and(|slot| slot.stored != Stored::No) && self.commit(item.tf, &item.missing)
    }

    /// What [`Action::Recover`] asked for is done, or (`found` is false) cannot be: the TF is not on the disk.
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

    /// The ICN says that these TFs, stored by a former life, are not committed to this EPN.
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

    /// Tells the ICN which TFs of its run former lives have stored.
    pub(super) fn say_stored(&mut self, now: Timestamp) {
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
        let repeat = self.config.repeat();
        let is_due = self
            .storing
            .as_ref()
            .is_some_and(|s| !s.former.is_empty() && now.since(s.said_at) >= repeat);
        if is_due {
            self.say_stored(now);
        }
    }

    /// A committed TF is handed over with all its bytes: what is not begun to be stored is not stored.
    pub(super) fn cancel_store(&mut self, tf: TfId) {
        if let Some(storing) = &mut self.storing {
            storing.writes.retain(|write| write.tf != tf);
        }
    }

    /// A slot goes without a commit: what is stored of it goes, too.
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

    /// The run is left with everything in building. What is stored of it stays: it may be committed, and nobody is
    /// there to say so. Gives the bytes that only the writer holds from now on.
    pub(super) fn leave_stores(&mut self) -> u64 {
        let (Some(storing), Some(run)) = (&mut self.storing, self.run) else {
            return 0;
        };
        storing.writes.clear();
        storing.recovered.clear();
        let mut left = 0;
        for (tf, slot) in &self.slots {
            if let Some(bytes) = storing.busy.get_mut(&(run, *tf)) {
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

#[cfg(test)]
mod tests;
