//! Several collectors side by side: a process reports to one of them at a time, and to another one while that does not
//! take anything.
//!
//! Each has a lane with an account of its own, so that what it lost is a number there. A batch that one collector has
//! not taken is sent to the next as a whole: parts of it may be stored twice, with the same times and values.

use super::shared::Shared;
use crate::batch::Batch;
use crate::count::Counter;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::info;

/// Choice among collectors, in their order: `true` for each that takes samples.
pub(super) type Choose = Box<dyn FnMut(&[bool]) -> usize + Send>;

/// Lanes of which one gets each batch.
pub(super) struct Group {
    lanes: Vec<Arc<Shared>>,
    /// Time after a failed attempt in which nothing is sent to a collector.
    pause: Duration,
    changes: Arc<Counter>,
    state: Mutex<State>,
}

struct State {
    choose: Choose,
    /// Time until which a collector counts as away.
    away_until: Vec<Option<Instant>>,
    /// Collector of the latest batch.
    current: Option<usize>,
}

impl Group {
    /// Returns a group of `lanes`, at least one.
    pub(super) fn new(
        lanes: Vec<Arc<Shared>>,
        choose: Choose,
        pause: Duration,
        changes: Arc<Counter>,
    ) -> Self {
        let state = State {
            choose,
            away_until: vec![None; lanes.len()],
            current: None,
        };
        Self {
            lanes,
            pause,
            changes,
            state: Mutex::new(state),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a batch to the collector of now.
    pub(super) fn push(&self, batch: &Arc<Batch>) {
        let mut state = self.lock();
        let (chosen, _) = state.chosen(Instant::now());
        self.follow(&mut state, chosen);
        self.lanes[chosen].push(batch);
    }

    /// Notes that an attempt of the lane `at` has failed. Returns whether what it has goes to another collector; if
    /// not, it tries again itself.
    pub(super) fn note_failure(&self, at: usize) -> bool {
        let mut state = self.lock();
        let now = Instant::now();
        state.away_until[at] = Some(now + self.pause);
        let (chosen, is_up) = state.chosen(now);
        is_up && chosen != at
    }

    /// Hands what the lane `at` has not sent to the collector of now: `batch`, and all that waits behind it.
    pub(super) fn hand_over(&self, at: usize, batch: Arc<Batch>) {
        let mut state = self.lock();
        let (chosen, _) = state.chosen(Instant::now());
        self.follow(&mut state, chosen);
        let waiting = self.lanes[at].queue.take_all();
        for batch in std::iter::once(batch).chain(waiting) {
            self.lanes[chosen].push(&batch);
        }
    }

    /// Lanes other than that of the latest batch.
    pub(super) fn spare(&self) -> Vec<Arc<Shared>> {
        let current = self.lock().current;
        let others = (0..).zip(&self.lanes);
        let others = others.filter(|(at, _)| current != Some(*at));
        others.map(|(_, lane)| lane.clone()).collect()
    }

    fn follow(&self, state: &mut State, chosen: usize) {
        let before = state.current.replace(chosen);
        if let Some(before) = before
            && before != chosen
        {
            self.changes.increment();
            let [from, to] = [before, chosen].map(|at| &self.lanes[at].name);
            info!(from, to, "Metrics go to another collector");
        }
    }
}

impl State {
    /// Returns the collector of `now`, and whether it takes samples as far as known.
    fn chosen(&mut self, now: Instant) -> (usize, bool) {
        let is_up = |until: &Option<Instant>| until.is_none_or(|until| until <= now);
        let is_up: Vec<bool> = self.away_until.iter().map(is_up).collect();
        let chosen = (self.choose)(&is_up).min(is_up.len() - 1);
        (chosen, is_up[chosen])
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.lanes.iter().map(|lane| &lane.name).collect();
        f.debug_tuple("Group").field(&names).finish()
    }
}
