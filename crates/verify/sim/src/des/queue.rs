//! Queue of events: by time, and in the order of their insertion where times are equal.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Time of the simulation, in ns.
pub(super) type Nanos = u64;

/// One ms in ns.
pub(super) const MS: Nanos = 1_000_000;

/// Converts seconds into ns.
pub(super) fn seconds(s: f64) -> Nanos {
    (s * 1e9).round() as Nanos
}

/// Future events.
#[derive(Debug)]
pub(super) struct Queue<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    count: u64,
    now: Nanos,
    popped: u64,
}

#[derive(Debug)]
struct Entry<E> {
    at: Nanos,
    /// Sequence number: makes equal times a total order, so that a run is the same on every machine.
    sequence: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.sequence) == (other.at, other.sequence)
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

impl<E> Queue<E> {
    pub(super) fn new() -> Self {
        Self {
            heap: BinaryHeap::new(),
            count: 0,
            now: 0,
            popped: 0,
        }
    }

    /// Returns the time of the last event taken out.
    pub(super) fn now(&self) -> Nanos {
        self.now
    }

    /// Returns the number of events taken out so far.
    pub(super) fn popped(&self) -> u64 {
        self.popped
    }

    /// Inserts an event at `at`, or now if that has passed.
    pub(super) fn push(&mut self, at: Nanos, event: E) {
        self.count += 1;
        self.heap.push(Reverse(Entry {
            at: at.max(self.now),
            sequence: self.count,
            event,
        }));
    }

    /// Takes out the next event, and moves the time there.
    pub(super) fn pop(&mut self) -> Option<E> {
        let Reverse(entry) = self.heap.pop()?;
        self.now = entry.at;
        self.popped += 1;
        Some(entry.event)
    }
}

/// Values that an event refers to by number: each is taken out once.
#[derive(Debug)]
pub(super) struct Shelf<T> {
    items: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Shelf<T> {
    pub(super) fn new() -> Self {
        Self {
            items: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(super) fn put(&mut self, item: T) -> u32 {
        if let Some(at) = self.free.pop() {
            self.items[at as usize] = Some(item);
            return at;
        }
        self.items.push(Some(item));
        u32::try_from(self.items.len() - 1).expect("fewer than 2^32 events are to come")
    }

    pub(super) fn take(&mut self, at: u32) -> T {
        self.free.push(at);
        let item = self.items[at as usize].take();
        item.expect("an event takes what it refers to once")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_in_the_order_of_their_birth_where_times_are_equal() {
        let mut queue = Queue::new();
        for (at, event) in [(5, 'c'), (3, 'a'), (5, 'd'), (3, 'b'), (9, 'e')] {
            queue.push(at, event);
        }
        let mut order = String::new();
        while let Some(event) = queue.pop() {
            order.push(event);
            if event == 'b' {
                queue.push(1, 'x'); // Too late: it happens now.
            }
        }
        assert_eq!(order, "abxcde");
        assert_eq!((queue.now(), queue.popped()), (9, 6));
    }

    #[test]
    fn a_shelf_gives_back_what_was_put_there_and_uses_its_places_again() {
        let mut shelf = Shelf::new();
        let (a, b) = (shelf.put("a"), shelf.put("b"));
        assert_eq!((shelf.take(b), shelf.put("c")), ("b", b));
        assert_eq!((shelf.take(a), shelf.take(b)), ("a", "c"));
    }
}
