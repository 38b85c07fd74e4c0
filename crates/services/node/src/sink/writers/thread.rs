//! The thread between an EPN and the streams to its writers.

use super::counters::Counters;
use super::links::{Done, Links, LinksEvent};
use crate::clock::Clock;
use crate::sink::queue::{Order, Queue};
use crate::sink::{SinkError, SinkEvent, stated_of};
use crate::source::Wake;
use bytes::Bytes;
use sheaf_metrics::Registry;
use sheaf_protocol::{RunId, Tf, TfId, Timestamp};
use sheaf_transport::{Tcp, Transport as _, Waker};
use std::collections::{BTreeSet, VecDeque};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tracing::{error, info, warn};

/// Longest time without a look at deadlines.
const TICK: Duration = Duration::from_millis(10);
/// Period at which metrics are brought up to date.
const COUNT_EVERY: Duration = Duration::from_millis(250);
/// Time without an acknowledgement after which an ending EPN waits no longer.
const FINISH: Duration = Duration::from_secs(5);
/// How long the start waits for writers to list what they hold of former lives.
const HELD_WITHIN: Duration = Duration::from_secs(3);

#[derive(Default)]
struct State {
    queue: VecDeque<Tf<Bytes>>,
    to_store: VecDeque<Tf<Bytes>>,
    orders: VecDeque<Order>,
    recalls: VecDeque<(RunId, BTreeSet<TfId>)>,
    /// TFs that the thread has taken and not delivered.
    taken: usize,
    events: VecDeque<SinkEvent>,
    is_ending: bool,
}

#[derive(Default)]
struct Desk(Mutex<State>);

impl Desk {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The node's side.
pub(super) struct WritersThread {
    desk: Arc<Desk>,
    waker: Waker,
    tfs_max: usize,
    thread: Option<JoinHandle<()>>,
}

impl WritersThread {
    /// Begins the thread; returns the TFs that writers hold of former lives, if TFs are stored.
    pub(super) fn spawn(
        links: Links<Tcp>,
        waker: Waker,
        is_storing: bool,
        queue_tfs: u32,
        registry: Arc<Registry>,
        wake: Wake,
    ) -> Result<(Self, Vec<(RunId, TfId)>), SinkError> {
        let desk = Arc::new(Desk::default());
        let (said, hear): (SyncSender<Vec<(RunId, TfId)>>, Receiver<_>) = sync_channel(1);
        let hands = Hands {
            desk: Arc::clone(&desk),
            counters: Counters::new(registry, links.writers()),
            clock: Clock::start(),
            wake,
            newest: TfId(0),
            counted_at: None,
        };
        let thread = std::thread::Builder::new()
            .name("sink".to_owned())
            .spawn(move || hands.run(links, is_storing.then_some(said)))
            .map_err(SinkError::Thread)?;
        let thread = Self {
            desk,
            waker,
            tfs_max: queue_tfs.max(1) as usize,
            thread: Some(thread),
        };
        let former = match is_storing {
            true => hear.recv().unwrap_or_default(),
            false => Vec::new(),
        };
        Ok((thread, former))
    }

    fn ring(&self) {
        if let Err(error) = self.waker.wake() {
            warn!(%error, "Cannot wake the thread of the sink");
        }
    }
}

impl Queue for WritersThread {
    fn offer(&mut self, tf: Tf<Bytes>) -> Result<(), Tf<Bytes>> {
        let mut state = self.desk.lock();
        let is_full = state.queue.len() + state.taken >= self.tfs_max
            || state.events.len() >= 2 * self.tfs_max;
        if is_full || state.is_ending {
            return Err(tf);
        }
        state.queue.push_back(tf);
        drop(state);
        self.ring();
        Ok(())
    }

    fn poll(&mut self) -> Option<SinkEvent> {
        self.desk.lock().events.pop_front()
    }

    fn recall(&mut self, run: RunId, tfs: &BTreeSet<TfId>) {
        self.desk.lock().recalls.push_back((run, tfs.clone()));
        self.ring();
    }

    fn store(&mut self, tf: Tf<Bytes>) {
        self.desk.lock().to_store.push_back(tf);
        self.ring();
    }

    fn order(&mut self, order: Order) {
        self.desk.lock().orders.push_back(order);
        self.ring();
    }

    fn finish(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        self.desk.lock().is_ending = true;
        self.ring();
        if thread.join().is_err() {
            warn!("The thread of the sink has panicked");
        }
    }
}

impl Drop for WritersThread {
    fn drop(&mut self) {
        self.finish();
    }
}

/// The thread's side.
struct Hands {
    desk: Arc<Desk>,
    counters: Counters,
    clock: Clock,
    wake: Wake,
    newest: TfId,
    counted_at: Option<Timestamp>,
}

impl Hands {
    /// Runs until the node ends. Sends what writers hold of former lives to `say`, once.
    fn run(mut self, mut links: Links<Tcp>, mut say: Option<SyncSender<Vec<(RunId, TfId)>>>) {
        let begun = self.clock.now();
        let mut progress = begun;
        let mut events = Vec::new();
        loop {
            if let Err(error) = links.transport().poll(&mut events, Some(TICK)) {
                error!(%error, "The streams to writers cannot go on");
                return;
            }
            let now = self.clock.now();
            for event in events.drain(..) {
                links.handle(now, event);
            }
            let is_ending = self.take(&mut links);
            links.handle_tick(now);
            if self.report(&mut links) {
                progress = now;
            }
            if say.is_some() && (links.have_said_held() || now.since(begun) >= HELD_WITHIN) {
                let former = links.former();
                if !links.have_said_held() {
                    warn!(
                        "A writer has not said in time what it holds; it stays unpublished there"
                    );
                }
                if !former.is_empty() {
                    info!(tfs = former.len(), "Writers hold TFs of former lives");
                }
                // The node is there: it waits for this.
                let _ = say.take().map(|say| say.send(former));
            }
            if self
                .counted_at
                .is_none_or(|at| now.since(at) >= COUNT_EVERY)
            {
                self.counted_at = Some(now);
                self.counters.export(links.handoff());
            }
            if is_ending {
                let is_idle = links.tfs() == 0 && !links.has_messages();
                if is_idle || now.since(progress) >= FINISH {
                    break;
                }
            } else {
                progress = now;
            }
        }
        self.counters.export(links.handoff());
        let tfs = links.tfs() + self.desk.lock().queue.drain(..).count();
        if tfs > 0 {
            warn!(
                tfs,
                "The sink ends with TFs that no writer has acknowledged"
            );
        }
        links.finish();
        // What is queued at the transport leaves with the next polls.
        for _ in 0..50 {
            if links.is_closed() || links.transport().poll(&mut events, Some(TICK)).is_err() {
                break;
            }
            let now = self.clock.now();
            for event in events.drain(..) {
                links.handle(now, event);
            }
        }
    }

    /// Takes all that the node has for the writers. Returns whether it ends.
    fn take(&mut self, links: &mut Links<Tcp>) -> bool {
        let mut state = self.desk.lock();
        let queue = std::mem::take(&mut state.queue);
        state.taken += queue.len();
        let to_store = std::mem::take(&mut state.to_store);
        let orders = std::mem::take(&mut state.orders);
        let recalls = std::mem::take(&mut state.recalls);
        let is_ending = state.is_ending;
        drop(state);
        for tf in to_store {
            self.newest = tf.tf;
            links.store(tf);
        }
        for tf in queue {
            self.newest = tf.tf;
            links.offer(tf);
        }
        for order in orders {
            match order {
                Order::Publish(tf) => links.offer(tf),
                Order::Unstore { run, tf, by_former } => links.unstore(run, tf, by_former),
                Order::Recover { run, item } => links.recover(run, &item),
            }
        }
        let mut has_news = false;
        for (run, tfs) in recalls {
            for tf in links.recall(run, &tfs) {
                has_news = true;
                let mut state = self.desk.lock();
                state.taken -= 1;
                state.events.push_back(SinkEvent::returned(&tf));
            }
        }
        if has_news {
            (self.wake)();
        }
        is_ending
    }

    /// Reports what has happened to the node. Returns whether a TF was acknowledged.
    fn report(&self, links: &mut Links<Tcp>) -> bool {
        let (mut has_news, mut has_progress) = (false, false);
        while let Some(event) = links.poll_event() {
            has_news = true;
            let mut state = self.desk.lock();
            match event {
                LinksEvent::Done(Done { tf, streams }) => {
                    has_progress = true;
                    let bytes = tf.bytes();
                    // The digests were compared on arrival; writers compare them again.
                    let delivery = crate::sink::Delivery {
                        streams,
                        ..stated_of(&tf)
                    };
                    state.taken -= 1;
                    state.events.push_back(SinkEvent::delivered(&tf, delivery));
                    state.events.push_back(SinkEvent::freed(bytes));
                }
                LinksEvent::Stored(run, tf) => {
                    has_progress = true;
                    state.events.push_back(SinkEvent::Stored { run, tf });
                }
                LinksEvent::Recovered {
                    run,
                    tf,
                    incarnation,
                    found,
                } => state.events.push_back(SinkEvent::Recovered {
                    run,
                    tf,
                    incarnation,
                    found,
                }),
                LinksEvent::Stuck(error) => state.events.push_back(SinkEvent::Failed {
                    tf: self.newest,
                    error,
                    is_storage: true,
                }),
                LinksEvent::Resumed => state.events.push_back(SinkEvent::Resumed),
            }
        }
        if has_news {
            (self.wake)();
        }
        has_progress
    }
}
