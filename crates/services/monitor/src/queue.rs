//! Queue between the shards and the store.

use sheaf_protect::protect;
use sheaf_sample_store::SeriesId;
use sheaf_samples::Sample;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Samples of one handover.
pub type Samples = Vec<(SeriesId, Sample)>;

/// Bounded queue of samples. Full, it blocks: a thread stops receiving, so that datagrams wait in the kernel, and a
/// request is not read. Nothing that was taken is dropped here.
#[derive(Debug)]
pub struct Queue {
    state: Mutex<State>,
    /// Rings when there is something, or nothing will come.
    filled: Condvar,
    /// Rings when there is room again.
    room: Condvar,
    samples_max: usize,
}

#[derive(Debug, Default)]
struct State {
    batches: VecDeque<Samples>,
    samples: usize,
    is_closed: bool,
}

impl Queue {
    /// Returns an empty queue that has room for about `samples_max` samples.
    #[must_use]
    pub fn new(samples_max: usize) -> Self {
        Self {
            state: Mutex::default(),
            filled: Condvar::new(),
            room: Condvar::new(),
            samples_max,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing between lock and unlock can panic half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a batch; always, so that a caller looks for room before it reads what would become one.
    pub fn push(&self, batch: Samples) {
        if batch.is_empty() {
            return;
        }
        let mut state = self.lock();
        state.samples += batch.len();
        state.batches.push_back(batch);
        drop(state);
        self.filled.notify_one();
    }

    /// Returns whether a batch more may come.
    #[must_use]
    pub fn has_room(&self) -> bool {
        protect!(QueueBound, requires self.lock().samples < self.samples_max)
    }

    /// Waits for room, for at most `patience`; returns whether there is some.
    pub fn wait_for_room(&self, patience: Duration) -> bool {
        let is_full = |state: &mut State| state.samples >= self.samples_max;
        let waited = self.room.wait_timeout_while(self.lock(), patience, is_full);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.samples < self.samples_max
    }

    /// Takes everything that is there; waits until `until` for something. `None`: the queue is closed and empty.
    pub fn take(&self, until: Instant) -> Option<VecDeque<Samples>> {
        let is_idle = |state: &mut State| state.batches.is_empty() && !state.is_closed;
        let patience = until.saturating_duration_since(Instant::now());
        let waited = self
            .filled
            .wait_timeout_while(self.lock(), patience, is_idle);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.is_closed && state.batches.is_empty() {
            return None;
        }
        state.samples = 0;
        let batches = std::mem::take(&mut state.batches);
        drop(state);
        self.room.notify_all();
        Some(batches)
    }

    /// Samples that wait.
    #[must_use]
    pub fn samples(&self) -> usize {
        self.lock().samples
    }

    /// Ends the queue: what is in it is still taken.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.filled.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(count: usize) -> Samples {
        let sample = Sample {
            at_ms: 0,
            value: 0.0,
        };
        vec![(SeriesId(0), sample); count]
    }

    #[test]
    fn a_full_queue_has_no_room_until_it_is_taken() {
        let queue = Queue::new(10);
        assert!(queue.has_room());
        queue.push(batch(10));
        assert!(!queue.has_room());
        assert!(!queue.wait_for_room(Duration::ZERO));
        let taken = queue.take(Instant::now()).unwrap();
        assert_eq!(taken.len(), 1);
        assert!(queue.has_room() && queue.samples() == 0);
    }

    #[test]
    fn a_closed_queue_gives_what_it_has_first() {
        let queue = Queue::new(10);
        queue.push(batch(3));
        queue.close();
        assert_eq!(queue.take(Instant::now()).unwrap().len(), 1);
        assert!(
            queue
                .take(Instant::now() + Duration::from_secs(60))
                .is_none()
        );
    }
}
