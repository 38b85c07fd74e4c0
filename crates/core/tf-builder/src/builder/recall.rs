//! Committed TFs: with the consumer, on the way to it, or given back because no consumer took them.

use super::{Action, TfBuilder};
use crate::slot::Slot;
use sheaf_protocol::control::Commit;
use sheaf_protocol::{Control, RunId, Tf, TfId, Timestamp, protect};

/// State of a committed TF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Committed {
    /// On the way to the consumer.
    Waiting,
    /// The consumer has the TF, and is to finish with it before it is acknowledged. Ack level `processed` only.
    Held,
    /// The consumer has the TF; with ack level `processed`, it has finished.
    Delivered,
    /// No consumer has the TF, and none will get it from this EPN.
    GivenBack,
}

impl<P: Clone> TfBuilder<P> {
    /// Handles commits of the ICN: delivers the TFs, or acknowledges again those that are delivered already.
    pub fn handle_commit(&mut self, now: Timestamp, items: &[Commit]) {
        for item in items {
            let known = self.committed.get(&item.tf).copied();
            let tombstone = protect!(Tombstones, known, else None);
            let committed = protect!(CommitReacknowledged, tombstone, else None);
            if self.released.contains(item.tf) {
                // Done before the present leader took over.
                self.acks.push(item.tf);
            } else if let Some(committed) = committed {
                self.answer_again(item.tf, committed);
            } else if !self.commit(now, item) {
                self.stats.impossible_commits += 1;
            }
        }
    }

    pub(super) fn commit(&mut self, now: Timestamp, item: &Commit) -> bool {
        let missing = &item.missing;
        let Some(found_missing) = self.slots.get(&item.tf).and_then(Slot::missing) else {
            return false;
        };
        let is_whole = found_missing.iter().all(|flp| missing.contains(flp));
        if protect!(CommittedContent, when !is_whole) {
            return false;
        }
        self.deliver(now, item)
    }

    /// Hands the slot of a TF to the consumer, without what its verdict lacks; `false` if there is none.
    pub(super) fn deliver(&mut self, now: Timestamp, item: &Commit) -> bool {
        let (tf, missing) = (item.tf, &item.missing);
        let Some(run) = self.run else {
            return false;
        };
        let Some(slot) = self.slots.remove(&tf) else {
            return false;
        };
        self.open_bytes -= slot.bytes();
        self.cancel_store(tf);
        let mut parts = slot.parts;
        // A part may have come after the report: the TF is as its verdict names it.
        parts.retain(|part| !missing.contains(&part.source.flp));
        parts.sort_unstable_by_key(|part| part.source);
        let built = Tf {
            run,
            tf,
            attempt: slot.attempt,
            is_redelivered: item.is_redelivered,
            parts,
            missing: missing.clone(),
        };
        self.stats.redelivered_tfs += u64::from(item.is_redelivered);
        self.sink_bytes += built.bytes();
        self.consumer.add(now, built.bytes());
        self.committed.insert(tf, Committed::Waiting);
        self.deliveries.push_back(built);
        true
    }

    /// Notes that the consumer has accepted a TF of `run` and of `bytes`, with `missing` FLPs missing. Consumers accept
    /// TFs in any order, and a TF of a former run must not be mistaken for the one of the same id in this run.
    pub fn handle_delivered(&mut self, run: RunId, tf: TfId, bytes: u64, missing: usize) {
        self.count_delivered(bytes, missing);
        if self.set_committed(run, tf, Committed::Delivered) {
            self.acks.push(tf);
        }
    }

    /// Notes that the consumer has accepted a TF and works on it: [`handle_processed`](Self::handle_processed) is to
    /// follow, and the acknowledgement waits for it. Arguments as of [`handle_delivered`](Self::handle_delivered).
    pub fn handle_held(&mut self, run: RunId, tf: TfId, bytes: u64, missing: usize) {
        protect!(ProcessedFirst, else return self.handle_delivered(run, tf, bytes, missing));
        self.count_delivered(bytes, missing);
        self.set_committed(run, tf, Committed::Held);
    }

    /// Notes that the consumer has finished with a TF of `run` that it held.
    pub fn handle_processed(&mut self, run: RunId, tf: TfId) {
        let is_held = self.committed.get(&tf) == Some(&Committed::Held);
        if is_held && self.set_committed(run, tf, Committed::Delivered) {
            self.acks.push(tf);
        }
    }

    fn count_delivered(&mut self, bytes: u64, missing: usize) {
        if missing == 0 {
            self.stats.delivered_complete += 1;
        } else {
            self.stats.delivered_incomplete += 1;
        }
        self.stats.delivered_bytes += bytes;
    }

    /// Sets the state of a committed TF of the present run; `false` if there is none.
    fn set_committed(&mut self, run: RunId, tf: TfId, state: Committed) -> bool {
        let committed = self.committed.get_mut(&tf);
        let committed = committed.filter(|_| self.run == Some(run));
        committed.map(|committed| *committed = state).is_some()
    }

    /// Notes that the consumer has released the memory of a TF of `bytes`: it has finished with the TF. The ICN is
    /// informed at once, so that it knows the pace of the consumer and the room that there is.
    pub fn handle_sink_freed(&mut self, now: Timestamp, bytes: u64) {
        self.sink_bytes = self.sink_bytes.saturating_sub(bytes);
        self.consumer.free(now, bytes);
    }

    /// Returns the report of what the consumer has finished with, unless an acknowledgement has told the ICN as much.
    pub(super) fn poll_freed(&mut self) -> Option<Action<P>> {
        let sink_bytes = self.sink_bytes;
        if self.run.is_none() || !self.consumer.has_less_than_reported(sink_bytes) {
            return None;
        }
        let consumed = self.consumer.report(sink_bytes);
        Some(Action::Send(Control::Freed(consumed)))
    }

    /// Answers a repeated message about a committed TF. A TF on the way to the consumer is acknowledged when it is
    /// delivered, and one that waits for the end of its processing when that has come.
    pub(super) fn answer_again(&mut self, tf: TfId, committed: Committed) {
        match committed {
            Committed::Waiting | Committed::Held => {}
            Committed::Delivered => self.acks.push(tf),
            Committed::GivenBack => self.undelivered.push(tf),
        }
    }

    /// Handles the ICN's order to give committed TFs back unless a consumer has them. A TF whose commit has not come is
    /// given back as well: it will not be delivered when the commit comes late. Returns these. One that a consumer
    /// still works on is acknowledged: the run is over, and no other EPN will build it.
    pub fn handle_recall(&mut self, tfs: &[TfId]) -> Vec<TfId> {
        let mut given_back = Vec::new();
        for tf in tfs {
            match self.committed.get(tf).copied() {
                _ if self.released.contains(*tf) => self.acks.push(*tf),
                Some(Committed::Waiting) => self.recalls.push(*tf),
                Some(Committed::Held) => {
                    self.committed.insert(*tf, Committed::Delivered);
                    self.acks.push(*tf);
                }
                Some(committed) => self.answer_again(*tf, committed),
                // What is on the disk is published by the next life of the EPN.
                None if self.stores_first() => {}
                None => {
                    self.discard(*tf);
                    self.committed.insert(*tf, Committed::GivenBack);
                    self.undelivered.push(*tf);
                    given_back.push(*tf);
                }
            }
        }
        given_back
    }

    /// Notes that a TF of `run` and of `bytes` was taken back from the consumer's queue, and that no consumer has it.
    pub fn handle_returned(&mut self, run: RunId, tf: TfId, bytes: u64) {
        self.sink_bytes = self.sink_bytes.saturating_sub(bytes);
        self.consumer.remove(bytes);
        if self.run == Some(run)
            && let Some(committed) = self.committed.get_mut(&tf)
        {
            *committed = Committed::GivenBack;
            self.stats.returned_tfs += 1;
            self.undelivered.push(tf);
        }
    }

    pub(super) fn poll_recalls(&mut self) -> Option<Action<P>> {
        if let (false, Some(run)) = (self.recalls.is_empty(), self.run) {
            let tfs = std::mem::take(&mut self.recalls);
            return Some(Action::Recall { run, tfs });
        }
        if self.undelivered.is_empty() {
            return None;
        }
        let count = self.undelivered.len().min(Control::ENTRIES_MAX);
        let tfs = self.undelivered.drain(..count).collect();
        Some(Action::Send(Control::Undelivered(tfs)))
    }
}
