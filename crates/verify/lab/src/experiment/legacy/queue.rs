//! The queue of a connection, bounded in messages as ZeroMQ's are.

use sheaf_sim::prior::Outbox;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Lanes that are filled by a thread each, and emptied by one that takes a turn at each.
#[derive(Debug)]
pub(super) struct Lanes<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    /// Messages of a lane.
    most: usize,
}

#[derive(Debug)]
struct State<T> {
    lanes: Vec<Lane<T>>,
    /// Index of the next queue in turn.
    next: usize,
    is_closed: bool,
}

#[derive(Debug)]
struct Lane<T> {
    messages: Outbox<T>,
    is_over: bool,
}

impl<T> Lanes<T> {
    pub(super) fn new(most: usize) -> Self {
        Self {
            state: Mutex::new(State {
                lanes: Vec::new(),
                next: 0,
                is_closed: false,
            }),
            changed: Condvar::new(),
            most,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more lane; its number.
    pub(super) fn add(&self) -> usize {
        let mut state = self.lock();
        state.lanes.push(Lane {
            messages: Outbox::new(self.most),
            is_over: false,
        });
        state.lanes.len() - 1
    }

    /// Puts `message` into a lane, if there is room.
    pub(super) fn try_push(&self, lane: usize, message: T) -> bool {
        let mut state = self.lock();
        let is_taken = state.lanes[lane].messages.offer(message);
        if is_taken {
            self.changed.notify_all();
        }
        is_taken
    }

    /// Puts `message` into a lane, when there is room.
    pub(super) fn push(&self, lane: usize, message: T) {
        let mut state = self.lock();
        while !state.lanes[lane].messages.has_room() {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        let is_taken = state.lanes[lane].messages.offer(message);
        debug_assert!(is_taken, "there was room under this lock");
        self.changed.notify_all();
    }

    /// Nothing more comes into a lane.
    pub(super) fn end(&self, lane: usize) {
        self.lock().lanes[lane].is_over = true;
        self.changed.notify_all();
    }

    /// No lane comes any more.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Messages that wait.
    pub(super) fn waiting(&self) -> usize {
        self.lock()
            .lanes
            .iter()
            .map(|lane| lane.messages.len())
            .sum()
    }

    /// The next message, of the lanes in turn; `None` when all lanes are over and no more come.
    pub(super) fn pop(&self) -> Option<T> {
        let mut state = self.lock();
        loop {
            let count = state.lanes.len();
            for step in 0..count {
                let at = (state.next + step) % count;
                if let Some(message) = state.lanes[at].messages.pop() {
                    state.next = (at + 1) % count;
                    self.changed.notify_all();
                    return Some(message);
                }
            }
            if state.is_closed && state.lanes.iter().all(|lane| lane.is_over) {
                return None;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_emptied_in_turn_and_a_full_one_takes_no_more() {
        let lanes = Lanes::new(2);
        let [a, b] = [lanes.add(), lanes.add()];
        assert!(lanes.try_push(a, "a1") && lanes.try_push(a, "a2") && lanes.try_push(b, "b1"));
        assert!(!lanes.try_push(a, "a3"));
        let order: Vec<&str> = (0..3).filter_map(|_| lanes.pop()).collect();
        assert_eq!(order, ["a1", "b1", "a2"]);
        assert_eq!(lanes.waiting(), 0);
        lanes.end(a);
        lanes.end(b);
        lanes.close();
        assert_eq!(lanes.pop(), None);
    }

    #[test]
    fn who_waits_for_room_goes_on_when_there_is_some() {
        let lanes = std::sync::Arc::new(Lanes::new(1));
        let lane = lanes.add();
        lanes.push(lane, 1);
        let other = lanes.clone();
        let thread = std::thread::spawn(move || other.push(lane, 2));
        assert_eq!(lanes.pop(), Some(1));
        thread.join().unwrap();
        assert_eq!(lanes.pop(), Some(2));
    }
}
