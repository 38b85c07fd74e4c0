//! The queue of a [`TfStore`], and the thread that works it off.
//!
//! Two lanes: writes of whole TFs, and orders about TFs that are written already. A full disk stops writes only:
//! what is committed is published all the same, and what is not wanted makes room.

use super::queue::{Order, Queue};
use super::worker::Failures;
use super::{DeliverError, SinkEvent, TfStore};
use crate::source::Wake;
use bytes::Bytes;
use sheaf_protocol::{RunId, Tf, TfId};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tracing::warn;

/// The two lanes. The EPN bounds them: a TF is in a slot, or it was found on the disk at the start.
#[derive(Default)]
struct Lanes {
    writes: VecDeque<Tf<Bytes>>,
    orders: VecDeque<Order>,
    /// The TF that the writer has.
    busy: Option<(RunId, TfId)>,
    /// TFs whose fate was known before they were written: what is written of them goes again.
    overtaken: BTreeSet<(RunId, TfId)>,
    events: VecDeque<SinkEvent>,
    is_ending: bool,
    /// Something failed at the last try. Inline only.
    is_stuck: bool,
}

impl Lanes {
    fn store(&mut self, tf: Tf<Bytes>) {
        self.writes.push_back(tf);
    }

    fn order(&mut self, order: Order) {
        let key = match &order {
            Order::Publish(tf) => (tf.run, tf.tf),
            Order::Unstore { run, tf, by_former } if !by_former => (*run, *tf),
            Order::Unstore { .. } | Order::Recover { .. } => {
                self.orders.push_back(order);
                return;
            }
        };
        let waits = |write: &Tf<Bytes>| (write.run, write.tf) == key;
        if self.busy == Some(key) {
            // Also while it is tried again and again: its success shows that the disk takes something.
            self.overtaken.insert(key);
        } else if self.writes.iter().any(waits) {
            self.writes.retain(|write| !waits(write));
            let (run, tf) = key;
            self.events.push_back(SinkEvent::Stored { run, tf });
        }
        self.orders.push_back(order);
    }
}

impl Lanes {
    /// Does all that can be done now, in the calling thread.
    fn work_inline(&mut self, store: &mut TfStore) {
        let was_stuck = self.is_stuck;
        self.is_stuck = false;
        for _ in 0..self.orders.len() {
            let Some(order) = self.orders.pop_front() else {
                break;
            };
            if let Err(error) = carry_out(store, &order, &mut self.events) {
                self.fail(tf_of(&order), &error, was_stuck);
                self.orders.push_back(order);
            }
        }
        while let Some(tf) = self.writes.pop_front() {
            if let Err(error) = store.store(&tf) {
                self.fail(tf.tf, &error, was_stuck);
                self.writes.push_front(tf);
                break;
            }
            let (run, tf) = (tf.run, tf.tf);
            self.events.push_back(SinkEvent::Stored { run, tf });
        }
        if was_stuck && !self.is_stuck {
            self.events.push_back(SinkEvent::Resumed);
        }
    }

    fn fail(&mut self, tf: TfId, error: &DeliverError, is_known: bool) {
        if !is_known && !self.is_stuck {
            self.events.push_back(SinkEvent::Failed {
                tf,
                error: error.to_string(),
                is_storage: true,
            });
        }
        self.is_stuck = true;
    }
}

/// Does one order.
fn carry_out(
    store: &mut TfStore,
    order: &Order,
    events: &mut VecDeque<SinkEvent>,
) -> Result<(), DeliverError> {
    match order {
        Order::Publish(tf) => {
            let delivery = store.publish(tf)?;
            events.push_back(SinkEvent::delivered(tf, delivery));
            events.push_back(SinkEvent::freed(tf.bytes()));
        }
        Order::Unstore { run, tf, by_former } => store.unstore(*run, *tf, *by_former)?,
        Order::Recover { run, item } => {
            let found = store.recover(*run, item)?;
            events.push_back(SinkEvent::Recovered {
                run: *run,
                tf: item.tf,
                incarnation: item.incarnation,
                found,
            });
        }
    }
    Ok(())
}

fn tf_of(order: &Order) -> TfId {
    match order {
        Order::Publish(tf) => tf.tf,
        Order::Unstore { tf, .. } => *tf,
        Order::Recover { item, .. } => item.tf,
    }
}

struct Shared {
    lanes: Mutex<Lanes>,
    /// Rings when there is something to do, or no more will come.
    offered: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Lanes> {
        // Nothing between lock and unlock can panic half-way.
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The node's side.
pub(super) struct StoreWorker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<usize>>,
}

impl StoreWorker {
    pub(super) fn spawn(store: TfStore, wake: Wake) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            lanes: Mutex::default(),
            offered: Condvar::new(),
        });
        let mut hands = Hands {
            shared: shared.clone(),
            store,
            wake,
            trouble: [None, None],
        };
        let thread = std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || hands.run())?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    fn with(&mut self, put: impl FnOnce(&mut Lanes)) {
        put(&mut self.shared.lock());
        self.shared.offered.notify_one();
    }
}

impl Queue for StoreWorker {
    fn offer(&mut self, tf: Tf<Bytes>) -> Result<(), Tf<Bytes>> {
        self.order(Order::Publish(tf));
        Ok(())
    }

    fn poll(&mut self) -> Option<SinkEvent> {
        self.shared.lock().events.pop_front()
    }

    fn finish(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        self.shared.lock().is_ending = true;
        self.shared.offered.notify_one();
        match thread.join() {
            Ok(0) => {}
            Ok(tfs) => warn!(tfs, "The storage ends with TFs that could not be stored"),
            Err(_) => warn!("The thread of the storage has panicked"),
        }
    }

    fn store(&mut self, tf: Tf<Bytes>) {
        self.with(|lanes| lanes.store(tf));
    }

    fn order(&mut self, order: Order) {
        self.with(|lanes| lanes.order(order));
    }
}

impl Drop for StoreWorker {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Storage that works in the calls of the node.
pub(super) struct InlineStore {
    store: TfStore,
    lanes: Lanes,
}

impl InlineStore {
    pub(super) fn new(store: TfStore) -> Self {
        Self {
            store,
            lanes: Lanes::default(),
        }
    }
}

impl Queue for InlineStore {
    fn offer(&mut self, tf: Tf<Bytes>) -> Result<(), Tf<Bytes>> {
        self.order(Order::Publish(tf));
        Ok(())
    }

    fn poll(&mut self) -> Option<SinkEvent> {
        self.lanes.work_inline(&mut self.store);
        self.lanes.events.pop_front()
    }

    fn store(&mut self, tf: Tf<Bytes>) {
        self.lanes.store(tf);
    }

    fn order(&mut self, order: Order) {
        self.lanes.order(order);
    }
}

enum Work {
    Order(Order),
    Write(Tf<Bytes>),
}

/// Something fails, and is tried again.
struct Trouble {
    failures: Failures,
    due: Instant,
}

/// The thread's side.
struct Hands {
    shared: Arc<Shared>,
    store: TfStore,
    wake: Wake,
    /// With writes, and with orders: a rename can work on a full disk.
    trouble: [Option<Trouble>; 2],
}

impl Work {
    fn lane(&self) -> usize {
        match self {
            Self::Write(_) => 0,
            Self::Order(_) => 1,
        }
    }
}

impl Hands {
    /// Gives the number of TFs that were not stored in the end.
    fn run(&mut self) -> usize {
        while let Some(work) = self.next() {
            let mut events = VecDeque::new();
            let done = match &work {
                Work::Order(order) => carry_out(&mut self.store, order, &mut events),
                Work::Write(tf) => self.write(tf, &mut events),
            };
            match done {
                Ok(()) => {
                    let was_in_trouble = self.trouble[work.lane()].take().is_some();
                    if was_in_trouble && self.trouble.iter().all(Option::is_none) {
                        events.push_back(SinkEvent::Resumed);
                    }
                    drop(work);
                    self.notify(events);
                }
                Err(error) => {
                    if let Some(left) = self.handle_failure(work, &error) {
                        return left;
                    }
                }
            }
        }
        0
    }

    /// How long the lane has to wait; `None` if it need not.
    fn pause(&self, lane: usize, lanes: &Lanes) -> Option<Duration> {
        let due = self.trouble[lane].as_ref()?.due;
        let left = due.saturating_duration_since(Instant::now());
        (!left.is_zero() && !lanes.is_ending).then_some(left)
    }

    /// Waits for the next thing to do: orders first; what failed when its pause is over.
    fn next(&mut self) -> Option<Work> {
        let shared = self.shared.clone();
        let mut lanes = shared.lock();
        loop {
            let pauses = [self.pause(0, &lanes), self.pause(1, &lanes)];
            if pauses[1].is_none()
                && let Some(order) = lanes.orders.pop_front()
            {
                return Some(Work::Order(order));
            }
            if pauses[0].is_none()
                && let Some(tf) = lanes.writes.pop_front()
            {
                lanes.busy = Some((tf.run, tf.tf));
                return Some(Work::Write(tf));
            }
            if lanes.is_ending {
                return None;
            }
            lanes = match pauses.into_iter().flatten().min() {
                Some(pause) => shared
                    .offered
                    .wait_timeout(lanes, pause)
                    .map_or_else(|poisoned| poisoned.into_inner().0, |(lanes, _)| lanes),
                None => shared
                    .offered
                    .wait(lanes)
                    .unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn write(
        &mut self,
        tf: &Tf<Bytes>,
        events: &mut VecDeque<SinkEvent>,
    ) -> Result<(), DeliverError> {
        self.store.store(tf)?;
        let (run, tf) = (tf.run, tf.tf);
        let is_overtaken = self.shared.lock().overtaken.contains(&(run, tf));
        if is_overtaken {
            self.store.unstore(run, tf, false)?;
        }
        let mut lanes = self.shared.lock();
        lanes.busy = None;
        // What overtook it in the meantime stands behind it in the other lane.
        lanes.overtaken.remove(&(run, tf));
        events.push_back(SinkEvent::Stored { run, tf });
        Ok(())
    }

    /// Puts `work` back to be tried again. When the node ends it is not; then gives what is left.
    fn handle_failure(&mut self, work: Work, error: &DeliverError) -> Option<usize> {
        let mut lanes = self.shared.lock();
        if lanes.is_ending {
            warn!(%error, "A TF is not stored, and the node ends");
            return Some(1 + lanes.writes.len() + lanes.orders.len());
        }
        let trouble = self.trouble[work.lane()].get_or_insert_with(|| Trouble {
            failures: Failures::default(),
            due: Instant::now(),
        });
        let told = trouble.failures.add(error);
        trouble.due = Instant::now() + trouble.failures.pause();
        let tf = match work {
            Work::Write(tf) => {
                let id = tf.tf;
                lanes.writes.push_front(tf);
                id
            }
            Work::Order(order) => {
                let id = tf_of(&order);
                lanes.orders.push_front(order);
                id
            }
        };
        if let Some(error) = told {
            // A failure that has not been read is replaced: a node that is stuck does not fill its memory.
            if matches!(lanes.events.back(), Some(SinkEvent::Failed { .. })) {
                lanes.events.pop_back();
            }
            lanes.events.push_back(SinkEvent::Failed {
                tf,
                error,
                is_storage: true,
            });
        }
        drop(lanes);
        (self.wake)();
        None
    }

    fn notify(&self, events: VecDeque<SinkEvent>) {
        self.shared.lock().events.extend(events);
        (self.wake)();
    }
}
