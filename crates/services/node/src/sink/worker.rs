//! The thread of a sink, and the queue between it and the node.

use super::queue::Queue;
use super::{DeliverError, Delivery, Patience, Sink, SinkEvent, taken_back};
use crate::source::Wake;
use crate::source::stop::{Stopper, stop_cord};
use bytes::Bytes;
use sheaf_protocol::{RunId, Tf, TfId};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tracing::warn;

/// First pause before a TF is tried again; it doubles up to the last.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_LAST: Duration = Duration::from_secs(1);
/// How often a failure that goes on is logged.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// State shared by node and thread.
struct Shared {
    state: Mutex<State>,
    /// Rings when there is a TF, or no more will come.
    offered: Condvar,
    tfs_max: usize,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Tf<Bytes>>,
    /// Whether the thread has a TF that is neither in the queue nor delivered.
    is_busy: bool,
    /// Whether the thread sleeps until something is offered.
    is_asleep: bool,
    /// At most two for each TF that was taken, and one failure.
    events: VecDeque<SinkEvent>,
    is_ending: bool,
    /// TFs to be given back when the try under way has failed for want of a consumer.
    recalled: BTreeSet<(RunId, TfId)>,
}

impl State {
    fn take_next(&mut self) -> Option<Tf<Bytes>> {
        let tf = self.queue.pop_front();
        self.is_busy |= tf.is_some();
        tf
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing between lock and unlock can panic half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The node's side.
pub(super) struct Worker {
    shared: Arc<Shared>,
    stopper: Option<Stopper>,
    thread: Option<JoinHandle<u64>>,
}

impl Worker {
    pub(super) fn spawn(sink: Box<dyn Sink>, tfs_max: u32, wake: Wake) -> io::Result<Self> {
        let (stopper, stop) = stop_cord()?;
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            offered: Condvar::new(),
            tfs_max: tfs_max.max(1) as usize,
        });
        let hands = Hands {
            shared: shared.clone(),
            sink,
            patience: Patience::new(stop),
            wake,
        };
        let thread = std::thread::Builder::new()
            .name("sink".to_owned())
            .spawn(move || hands.run())?;
        Ok(Self {
            shared,
            stopper: Some(stopper),
            thread: Some(thread),
        })
    }
}

impl Queue for Worker {
    fn offer(&mut self, tf: Tf<Bytes>) -> Result<(), Tf<Bytes>> {
        let mut state = self.shared.lock();
        let tfs = state.queue.len() + usize::from(state.is_busy);
        let is_full = tfs >= self.shared.tfs_max || state.events.len() >= 2 * self.shared.tfs_max;
        if is_full || state.is_ending {
            return Err(tf);
        }
        state.queue.push_back(tf);
        let is_asleep = std::mem::take(&mut state.is_asleep);
        drop(state);
        // A ring costs a system call, also if it is not heard.
        if is_asleep {
            self.shared.offered.notify_one();
        }
        Ok(())
    }

    fn poll(&mut self) -> Option<SinkEvent> {
        self.shared.lock().events.pop_front()
    }

    fn recall(&mut self, run: RunId, tfs: &BTreeSet<TfId>) {
        let mut state = self.shared.lock();
        for tf in taken_back(&mut state.queue, run, tfs) {
            state.events.push_back(SinkEvent::returned(&tf));
        }
        state.recalled = tfs.iter().map(|tf| (run, *tf)).collect();
    }

    fn finish(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        self.shared.lock().is_ending = true;
        self.shared.offered.notify_one();
        self.stopper = None;
        match thread.join() {
            Ok(0) => {}
            Ok(tfs) => warn!(tfs, "The sink ends with TFs that no consumer has taken"),
            Err(_) => warn!("The thread of the sink has panicked"),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.finish();
    }
}

/// End of the work on one TF.
enum Outcome {
    /// Delivered; and whether a try had failed before.
    Delivered(Delivery, bool),
    /// Taken back: no consumer has the TF.
    Recalled,
    /// The node ends.
    Ending,
}

/// The thread's side.
struct Hands {
    shared: Arc<Shared>,
    sink: Box<dyn Sink>,
    patience: Patience,
    wake: Wake,
}

impl Hands {
    /// Returns the number of TFs that were not delivered in the end.
    fn run(mut self) -> u64 {
        while let Some(tf) = self.next() {
            let (delivery, has_failed) = match self.deliver(&tf) {
                Outcome::Delivered(delivery, has_failed) => (delivery, has_failed),
                Outcome::Recalled => {
                    self.notify([SinkEvent::returned(&tf)].into_iter());
                    continue;
                }
                Outcome::Ending => return 1 + self.shared.lock().queue.drain(..).count() as u64,
            };
            let delivered = SinkEvent::delivered(&tf, delivery);
            let bytes = tf.bytes();
            drop(tf);
            let resumed = has_failed.then_some(SinkEvent::Resumed);
            let events = [delivered, SinkEvent::freed(bytes)];
            self.notify(events.into_iter().chain(resumed));
        }
        0
    }

    /// The next TF; `None` when there is none and none will come.
    fn next(&mut self) -> Option<Tf<Bytes>> {
        let shared = self.shared.clone();
        if let Some(tf) = shared.lock().take_next() {
            return Some(tf);
        }
        loop {
            let again = self.sink.idle();
            let is_idle = |state: &mut State| {
                state.is_asleep = state.queue.is_empty() && !state.is_ending;
                state.is_asleep
            };
            let state = shared.lock();
            let mut state = match again {
                None => shared.offered.wait_while(state, is_idle),
                Some(again) => match shared.offered.wait_timeout_while(state, again, is_idle) {
                    Ok((state, _)) => Ok(state),
                    Err(poisoned) => Err(PoisonError::new(poisoned.into_inner().0)),
                },
            }
            .unwrap_or_else(PoisonError::into_inner);
            state.is_asleep = false;
            if let Some(tf) = state.take_next() {
                return Some(tf);
            }
            if state.is_ending {
                return None;
            }
        }
    }

    /// Delivers `tf`, however often that has to be tried, unless it is recalled or the node ends first.
    fn deliver(&mut self, tf: &Tf<Bytes>) -> Outcome {
        let mut failures = Failures::default();
        loop {
            let failed = match self.sink.deliver(tf, &self.patience) {
                Ok(delivery) => return Outcome::Delivered(delivery, failures.tries > 0),
                Err(error) => error,
            };
            if self.patience.is_ending() {
                warn!(tf_id = tf.tf.0, error = %failed, "A TF is not delivered, and the node ends");
                return Outcome::Ending;
            }
            // Of an error in the middle it is not known what the consumer has.
            let is_certain = !matches!(failed, DeliverError::Consumer { .. });
            if is_certain && self.shared.lock().recalled.contains(&(tf.run, tf.tf)) {
                return Outcome::Recalled;
            }
            if let Some(error) = failures.add(&failed) {
                self.notify_failed(SinkEvent::Failed {
                    tf: tf.tf,
                    error,
                    is_storage: matches!(failed, DeliverError::Write { .. }),
                });
            }
            if !matches!(failed, DeliverError::NoConsumer { .. }) {
                self.patience.pause(failures.pause());
            }
        }
    }

    fn notify(&self, events: impl Iterator<Item = SinkEvent>) {
        let mut state = self.shared.lock();
        state.is_busy = false;
        state.events.extend(events);
        drop(state);
        (self.wake)();
    }

    fn notify_failed(&self, event: SinkEvent) {
        let mut state = self.shared.lock();
        // A failure that has not been read is replaced: a node that is stuck does not fill its memory.
        if matches!(state.events.back(), Some(SinkEvent::Failed { .. })) {
            state.events.pop_back();
        }
        state.events.push_back(event);
        drop(state);
        (self.wake)();
    }
}

/// The failures of one TF.
#[derive(Default)]
pub(super) struct Failures {
    tries: u32,
    told: Option<Instant>,
}

impl Failures {
    /// Counts a failure. Returns what is to be logged of it, once a second.
    pub(super) fn add(&mut self, error: &DeliverError) -> Option<String> {
        self.tries = self.tries.saturating_add(1);
        if self.told.is_some_and(|told| told.elapsed() < TELL_EVERY) {
            return None;
        }
        self.told = Some(Instant::now());
        Some(match self.tries {
            1 => error.to_string(),
            tries => format!("{error} (tried {tries} times)"),
        })
    }

    pub(super) fn pause(&self) -> Duration {
        let doublings = self.tries.saturating_sub(1).min(8);
        (PAUSE_FIRST * 2_u32.pow(doublings)).min(PAUSE_LAST)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Wakes, delivered, tf, wakes};
    use super::super::{SinkHandle, recomputed};
    use super::*;
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    /// Does with each TF what the test tells it: delivers it, or fails.
    struct Told {
        begun: SyncSender<TfId>,
        answers: Receiver<bool>,
    }

    impl Sink for Told {
        fn name(&self) -> &'static str {
            "told"
        }

        fn deliver(&mut self, tf: &Tf<Bytes>, _: &Patience) -> Result<Delivery, DeliverError> {
            self.begun.send(tf.tf).unwrap();
            // Without a receiver of the result, it fails.
            if self.answers.recv().unwrap_or(false) {
                return Ok(recomputed(tf));
            }
            let source = io::ErrorKind::StorageFull.into();
            Err(DeliverError::Write {
                path: "disk".into(),
                source,
            })
        }
    }

    struct Test {
        sink: SinkHandle,
        wakes: Wakes,
        begun: Receiver<TfId>,
        answers: SyncSender<bool>,
    }

    fn told(queue_tfs: u32) -> Test {
        let (begun_sender, begun) = sync_channel(100);
        let (answers, answers_receiver) = sync_channel(100);
        let sink = Box::new(Told {
            begun: begun_sender,
            answers: answers_receiver,
        });
        let (wake, wakes) = wakes();
        Test {
            sink: SinkHandle::spawn(sink, queue_tfs, wake).unwrap(),
            wakes,
            begun,
            answers,
        }
    }

    #[test]
    fn a_full_queue_gives_the_tf_back_until_there_is_room() {
        let mut test = told(2);
        for id in 0..2 {
            test.sink.offer(tf(id, &[b"x"])).unwrap();
        }
        assert_eq!(test.begun.recv().unwrap(), TfId(0));
        let back = test.sink.offer(tf(2, &[b"x"])).unwrap_err();
        assert_eq!(back, tf(2, &[b"x"]));
        test.answers.send(true).unwrap();
        assert_eq!(test.wakes.next(&mut test.sink), delivered(&tf(0, &[b"x"])));
        test.sink.offer(back).unwrap();
        test.answers.send(true).unwrap();
        test.answers.send(true).unwrap();
    }

    #[test]
    fn a_tf_that_fails_is_kept_and_tried_again() {
        let mut test = told(2);
        test.sink.offer(tf(0, &[b"x"])).unwrap();
        for answer in [false, false, true] {
            test.answers.send(answer).unwrap();
        }
        let error = "cannot write disk: no storage space".to_owned();
        assert_eq!(
            test.wakes.next(&mut test.sink),
            SinkEvent::Failed {
                tf: TfId(0),
                error,
                is_storage: true
            }
        );
        assert_eq!(test.wakes.next(&mut test.sink), delivered(&tf(0, &[b"x"])));
        assert_eq!(test.wakes.next(&mut test.sink), SinkEvent::freed(1));
    }

    #[test]
    fn the_end_hands_over_what_is_left() {
        let mut test = told(8);
        for id in 0..5 {
            test.sink.offer(tf(id, &[b"x"])).unwrap();
            test.answers.send(true).unwrap();
        }
        test.sink.finish();
        for id in 0..5 {
            assert_eq!(test.sink.poll(), Some(delivered(&tf(id, &[b"x"]))));
            assert_eq!(test.sink.poll(), Some(SinkEvent::freed(1)));
        }
        assert_eq!(test.sink.poll(), None);
    }

    #[test]
    fn the_end_gives_up_what_fails() {
        let mut test = told(8);
        for id in 0..3 {
            test.sink.offer(tf(id, &[b"x"])).unwrap();
        }
        test.answers.send(true).unwrap();
        assert_eq!(test.wakes.next(&mut test.sink), delivered(&tf(0, &[b"x"])));
        drop(test.answers);
        test.sink.finish();
        let mut rest = std::iter::from_fn(|| test.sink.poll());
        assert!(rest.all(|event| !matches!(event, SinkEvent::Delivered { .. })));
        assert!(test.sink.offer(tf(9, &[])).is_err());
    }

    #[test]
    fn tfs_that_no_consumer_has_are_given_back_and_a_failing_one_after_its_try() {
        let mut test = told(8);
        for id in 0..3 {
            test.sink.offer(tf(id, &[b"x"])).unwrap();
        }
        assert_eq!(test.begun.recv().unwrap(), TfId(0));
        let run = tf(0, &[]).run;
        // TF 7 is not here, and TF 1 is of another run for this order.
        let other = sheaf_protocol::RunId(run.0 + 1);
        test.sink.recall(other, &BTreeSet::from([TfId(1)]));
        test.sink
            .recall(run, &BTreeSet::from([TfId(0), TfId(2), TfId(7)]));
        let returned = |id| SinkEvent::Returned {
            run,
            tf: TfId(id),
            attempt: tf(id, &[]).attempt,
            bytes: 1,
        };
        assert_eq!(test.sink.poll(), Some(returned(2)));
        assert_eq!(test.sink.poll(), None);
        test.answers.send(false).unwrap();
        assert_eq!(test.wakes.next(&mut test.sink), returned(0));
        test.answers.send(true).unwrap();
        assert_eq!(test.wakes.next(&mut test.sink), delivered(&tf(1, &[b"x"])));
    }

    #[test]
    fn failures_are_told_once_a_second_and_pauses_grow() {
        let error = DeliverError::NoConsumer { path: "p".into() };
        let mut failures = Failures::default();
        assert_eq!(
            failures.add(&error).as_deref(),
            Some("no consumer is connected at p")
        );
        assert_eq!(
            (failures.add(&error), failures.pause()),
            (None, 2 * PAUSE_FIRST)
        );
        failures.told = Instant::now().checked_sub(TELL_EVERY);
        let expected = "no consumer is connected at p (tried 3 times)";
        assert_eq!(failures.add(&error).as_deref(), Some(expected));
        failures.tries = u32::MAX;
        assert_eq!(failures.pause(), PAUSE_LAST);
    }
}
