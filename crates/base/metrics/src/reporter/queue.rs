//! Batches that wait for a back end: bounded, the oldest goes first when there are too many.

use crate::batch::Batch;
use crate::reporting::Verbosity;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Queue between the thread that samples and that of a back end.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    batches: VecDeque<Arc<Batch>>,
    samples: usize,
    /// Latest time at which the back end may still send; none before the end.
    deadline: Option<Instant>,
    /// Whether the thread of the back end has ended.
    is_done: bool,
}

impl Queue {
    /// Samples that wait at most: minutes of a busy process, and some MiB.
    const SAMPLES_MAX: usize = 1 << 16;

    /// Adds `batch`. Returns the samples, as a back end of `verbosity` counts them, that were dropped for it: older
    /// ones, or its own once the thread of the back end has ended.
    pub(crate) fn push(&self, batch: Arc<Batch>, verbosity: Verbosity) -> usize {
        let mut state = self.lock();
        if state.is_done {
            return batch.samples(verbosity);
        }
        let mut dropped = 0;
        let samples = |batch: &Batch| batch.samples(Verbosity::Debug);
        state.samples += samples(&batch);
        state.batches.push_back(batch);
        while state.samples > Self::SAMPLES_MAX && state.batches.len() > 1 {
            let Some(oldest) = state.batches.pop_front() else {
                break;
            };
            state.samples -= samples(&oldest);
            dropped += oldest.samples(verbosity);
        }
        self.changed.notify_all();
        dropped
    }

    /// Takes out all batches without waiting.
    pub(crate) fn take_all(&self) -> VecDeque<Arc<Batch>> {
        let mut state = self.lock();
        state.samples = 0;
        std::mem::take(&mut state.batches)
    }

    /// Waits for a batch; none when the queue is closed and empty, or its deadline is over. The thread of the back end
    /// has ended then, and nothing more is taken.
    pub(crate) fn pop(&self) -> Option<Arc<Batch>> {
        let mut state = self.lock();
        loop {
            if is_over(state.deadline) {
                self.finish(state);
                return None;
            }
            if let Some(batch) = state.batches.pop_front() {
                state.samples -= batch.samples(Verbosity::Debug);
                return Some(batch);
            }
            if state.deadline.is_some() {
                self.finish(state);
                return None;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes no more batches to wait for, and lets those that are there be sent until `deadline`.
    pub(crate) fn close(&self, deadline: Instant) {
        self.lock().deadline = Some(deadline);
        self.changed.notify_all();
    }

    /// Waits for `pause` before another attempt. Returns `false` if there shall be none.
    pub(crate) fn pause(&self, pause: Duration) -> bool {
        let end = Instant::now() + pause;
        let mut state = self.lock();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if state.deadline.is_some() {
                return !is_over(state.deadline) && left.is_zero();
            }
            if left.is_zero() {
                return true;
            }
            // Also woken by each new batch.
            let woken = self.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn finish(&self, mut state: MutexGuard<'_, State>) {
        state.is_done = true;
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until the thread of the back end has ended, or `deadline` is over. Returns whether it has.
    pub(crate) fn await_end(&self, deadline: Instant) -> bool {
        let mut state = self.lock();
        while !state.is_done {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let woken = self.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_over(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Identity, Tags};
    use crate::derive::Number;

    fn batch(samples: usize) -> Arc<Batch> {
        let series = Arc::new(Identity::new("a", &[], &Tags::new()));
        let mut batch = Batch::default();
        batch.push(&series, Verbosity::Info, 0, |fields| {
            fields.extend(std::iter::repeat_n(("value", Number::Int(1)), samples));
            true
        });
        Arc::new(batch)
    }

    #[test]
    fn the_oldest_goes_when_there_are_too_many() {
        let queue = Queue::default();
        let half = Queue::SAMPLES_MAX / 2;
        assert_eq!(queue.push(batch(half - 1), Verbosity::Info), 0);
        assert_eq!(queue.push(batch(half), Verbosity::Info), 0);
        assert_eq!(queue.push(batch(7), Verbosity::Info), half - 1);
        // A back end that does not take the metric has not lost it.
        assert_eq!(queue.push(batch(2 * half), Verbosity::Prod), 0);
        queue.close(Instant::now() + Duration::from_secs(600));
        let left = std::iter::from_fn(|| queue.pop());
        let left = left.map(|batch| batch.samples(Verbosity::Info));
        assert_eq!(left.collect::<Vec<_>>(), [2 * half]);
    }

    #[test]
    fn a_closed_queue_gives_what_it_has_until_its_deadline() {
        let queue = Queue::default();
        queue.push(batch(1), Verbosity::Info);
        queue.push(batch(2), Verbosity::Info);
        queue.close(Instant::now() + Duration::from_secs(600));
        assert_eq!(queue.pop().unwrap().samples(Verbosity::Info), 1);
        queue.close(Instant::now());
        assert!(queue.pop().is_none());
        assert!(!queue.pause(Duration::ZERO));
    }

    #[test]
    fn a_back_end_that_hangs_is_waited_for_until_the_deadline() {
        let queue = Queue::default();
        assert!(!queue.await_end(Instant::now() + Duration::from_millis(2)));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| queue.await_end(Instant::now() + Duration::from_secs(600)));
            queue.close(Instant::now());
            assert!(queue.pop().is_none());
            assert!(waits.join().unwrap());
        });
        let dropped = queue.push(batch(3), Verbosity::Info);
        assert_eq!(dropped, 3, "the thread has ended");
    }

    #[test]
    fn a_pause_ends_early_when_the_queue_is_closed() {
        let queue = Queue::default();
        assert!(queue.pause(Duration::ZERO));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| queue.pause(Duration::from_secs(600)));
            queue.push(batch(1), Verbosity::Info);
            queue.close(Instant::now() + Duration::from_secs(600));
            assert!(!waits.join().unwrap(), "no further attempt");
        });
    }
}
