//! A sink as the node holds it, whatever its kind.

use super::queue::{Order, Queue};
use super::store_worker::{InlineStore, StoreWorker};
use super::worker::Worker;
use super::{DeliverError, Patience, Sink, SinkError, SinkEvent, TfStore};
use crate::source::Wake;
use bytes::Bytes;
use sheaf_protocol::Tf;
use sheaf_protocol::control::Recover;
use sheaf_protocol::{RunId, TfId};
use sheaf_write::HandoffId;
use std::collections::{BTreeSet, VecDeque};

/// Sink of an EPN: a queue in, events out.
pub struct SinkHandle {
    queue: Box<dyn Queue>,
    former: Option<Vec<(RunId, TfId)>>,
}

impl std::fmt::Debug for SinkHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SinkHandle").finish_non_exhaustive()
    }
}

impl SinkHandle {
    /// Wraps the queue of a sink with a thread of its own kind.
    pub(super) fn new(queue: impl Queue + 'static) -> Self {
        Self {
            queue: Box::new(queue),
            former: None,
        }
    }

    /// Wraps the queue of a sink that stores TFs before they are committed; `former` are those of former lives.
    pub(super) fn storing(queue: impl Queue + 'static, former: Vec<(RunId, TfId)>) -> Self {
        Self {
            queue: Box::new(queue),
            former: Some(former),
        }
    }

    /// Runs `sink` in a thread of its own, unless it is instant. At most `queue_tfs` TFs are with it at once, the one
    /// in delivery included. `wake` is called when [`poll`](Self::poll) has something new.
    ///
    /// # Errors
    ///
    /// [`SinkError::Thread`] if the operating system gives no thread.
    pub fn spawn(sink: Box<dyn Sink>, queue_tfs: u32, wake: Wake) -> Result<Self, SinkError> {
        if sink.is_instant() {
            return Ok(Self::inline(sink, queue_tfs));
        }
        let worker = Worker::spawn(sink, queue_tfs, wake).map_err(SinkError::Thread)?;
        Ok(Self::new(worker))
    }

    /// Runs `sink` in the calls of [`offer`](Self::offer), whatever it is: for tests without threads.
    #[must_use]
    pub fn inline(sink: Box<dyn Sink>, queue_tfs: u32) -> Self {
        Self::new(Inline {
            sink,
            events: VecDeque::new(),
            events_max: 2 * queue_tfs.max(1) as usize,
            has_failed: false,
        })
    }

    /// Stores TFs before they are committed, in a thread of its own. `wake` is called as for [`spawn`](Self::spawn).
    ///
    /// # Errors
    ///
    /// [`SinkError::Thread`] if the operating system gives no thread.
    pub fn spawn_store(store: TfStore, wake: Wake) -> Result<Self, SinkError> {
        let former = store.former().collect();
        let worker = StoreWorker::spawn(store, wake).map_err(SinkError::Thread)?;
        Ok(Self {
            former: Some(former),
            ..Self::new(worker)
        })
    }

    /// Stores TFs in the calls of [`poll`](Self::poll): for tests without threads. What fails is tried with each.
    #[must_use]
    pub fn inline_store(store: TfStore) -> Self {
        Self {
            former: Some(store.former().collect()),
            ..Self::new(InlineStore::new(store))
        }
    }

    /// Takes the list of TFs that former lives have stored and not published; `None` for a sink that does not store.
    pub fn take_former(&mut self) -> Option<Vec<(RunId, TfId)>> {
        self.former.take()
    }

    /// Writes a TF so that it survives a crash; [`SinkEvent::Stored`] follows. Of a sink that stores only, as the
    /// next two.
    pub fn store(&mut self, tf: Tf<Bytes>) {
        self.queue.store(tf);
    }

    /// Removes what this life, or what former lives have stored of a TF.
    pub fn unstore(&mut self, run: RunId, tf: TfId, by_former: bool) {
        self.queue.order(Order::Unstore { run, tf, by_former });
    }

    /// Publishes what a former life has stored of a TF; [`SinkEvent::Recovered`] follows.
    pub fn recover(&mut self, run: RunId, item: Recover) {
        self.queue.order(Order::Recover { run, item });
    }

    /// Takes a TF.
    ///
    /// # Errors
    ///
    /// The TF itself if the queue is full. There is room again when [`poll`](Self::poll) has given an event.
    pub fn offer(&mut self, tf: Tf<Bytes>) -> Result<(), Tf<Bytes>> {
        self.queue.offer(tf)
    }

    /// As [`offer`](Self::offer), of a TF that may be written already, wholly or in part.
    ///
    /// # Errors
    ///
    /// As for [`offer`](Self::offer).
    pub fn offer_again(&mut self, tf: Tf<Bytes>) -> Result<(), Tf<Bytes>> {
        self.queue.offer_again(tf)
    }

    /// Takes back one TF that no thread has begun with. [`SinkEvent::Returned`] follows if that was so.
    pub fn recall_one(&mut self, id: HandoffId) {
        self.queue.recall_one(id);
    }

    /// Returns the next event, if there is one now.
    pub fn poll(&mut self) -> Option<SinkEvent> {
        self.queue.poll()
    }

    /// Takes back TFs of `run` that no consumer has been given, and that no consumer gets any more.
    /// [`SinkEvent::Returned`] follows for each of them.
    pub fn recall(&mut self, run: RunId, tfs: &BTreeSet<TfId>) {
        self.queue.recall(run, tfs);
    }

    /// Delivers what is in the queue, as far as the consumer takes it without being waited for, and ends. A consumer
    /// that is away, or takes nothing for a second, is given up; then a warning says how many TFs are left. Events can
    /// be polled afterwards; no TF is taken any more.
    pub fn finish(&mut self) {
        self.queue.finish();
    }
}

/// Sink that works in the calls of the node.
struct Inline {
    sink: Box<dyn Sink>,
    events: VecDeque<SinkEvent>,
    events_max: usize,
    /// Whether the last delivery failed.
    has_failed: bool,
}

impl Queue for Inline {
    fn offer(&mut self, tf: Tf<Bytes>) -> Result<(), Tf<Bytes>> {
        if self.events.len() >= self.events_max {
            return Err(tf);
        }
        match self.sink.deliver(&tf, &Patience::none()) {
            Ok(delivery) => {
                if std::mem::take(&mut self.has_failed) {
                    self.events.push_back(SinkEvent::Resumed);
                }
                let (bytes, is_held) = (tf.bytes(), delivery.is_held);
                self.events.push_back(SinkEvent::delivered(&tf, delivery));
                drop(tf);
                if !is_held {
                    self.events.push_back(SinkEvent::freed(bytes));
                }
                Ok(())
            }
            Err(error) => {
                self.has_failed = true;
                self.events.push_back(SinkEvent::Failed {
                    tf: tf.tf,
                    is_storage: matches!(error, DeliverError::Write { .. }),
                    error: error.to_string(),
                });
                Err(tf)
            }
        }
    }

    fn poll(&mut self) -> Option<SinkEvent> {
        let event = self.events.pop_front();
        event.or_else(|| {
            let (run, tf, bytes) = self.sink.finished()?;
            let held = Some((run, tf));
            Some(SinkEvent::Freed { bytes, held })
        })
    }
}
