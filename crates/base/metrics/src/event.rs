//! Events: values of which every single one is sent, not a sample of them.
//!
//! A handle writes into a ring that all events of a registry share, and the thread of a [`Reporter`](crate::Reporter)
//! empties it at least every 100 ms. The ring has a bound: what finds it full is dropped and counted.

use crossbeam_queue::ArrayQueue;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

/// Values that an event has at most.
pub const EVENT_FIELDS_MAX: usize = 4;

/// Handle of an event with its labels.
#[derive(Debug)]
pub struct Event {
    /// Place in the list of all series.
    id: u32,
    fields: Vec<&'static str>,
    ring: Arc<Ring>,
}

/// Event as it waits to be sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Record {
    pub(crate) id: u32,
    pub(crate) at_ms: i64,
    pub(crate) values: [f64; EVENT_FIELDS_MAX],
}

/// Events of a registry that wait to be sent.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    /// Made when a reporter begins: without one, events go nowhere.
    queue: OnceLock<ArrayQueue<Record>>,
    dropped: AtomicU64,
}

impl Event {
    pub(crate) fn new(id: u32, fields: Vec<&'static str>, ring: Arc<Ring>) -> Self {
        Self { id, fields, ring }
    }

    /// Sends `values`, one for each field, with the time of now. Without a reporter they go nowhere.
    ///
    /// Never allocates, locks, waits or fails; when the ring is full, the event is dropped and counted.
    ///
    /// # Panics
    ///
    /// In builds with assertions, if there are more or fewer values than fields.
    pub fn send(&self, values: &[f64]) {
        debug_assert_eq!(values.len(), self.fields.len(), "fields {:?}", self.fields);
        let mut record = Record {
            id: self.id,
            at_ms: now_ms(),
            values: [f64::NAN; EVENT_FIELDS_MAX],
        };
        for (place, value) in record.values.iter_mut().zip(values) {
            *place = *value;
        }
        self.ring.push(record);
    }

    /// Names of the fields.
    pub(crate) fn fields(&self) -> &[&'static str] {
        &self.fields
    }
}

impl Ring {
    /// Events that wait at most: a burst of 80,000 a second until the ring is emptied.
    const EVENTS_MAX: usize = 8192;

    /// Makes room for events, from now on.
    pub(crate) fn open(&self) {
        self.queue.get_or_init(|| ArrayQueue::new(Self::EVENTS_MAX));
    }

    fn push(&self, record: Record) {
        if let Some(queue) = self.queue.get()
            && queue.push(record).is_err()
        {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes the event that has waited longest.
    pub(crate) fn pop(&self) -> Option<Record> {
        self.queue.get()?.pop()
    }

    /// Number of events that wait.
    pub(crate) fn len(&self) -> usize {
        self.queue.get().map_or(0, ArrayQueue::len)
    }

    /// Events that found the ring full.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// Time in ms since 1970 (UTC).
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(ring: &Arc<Ring>) -> Event {
        Event::new(3, vec!["a", "b"], ring.clone())
    }

    #[test]
    fn without_a_reporter_events_go_nowhere() {
        let ring = Arc::default();
        event(&ring).send(&[1.0, 2.0]);
        assert_eq!((ring.pop(), ring.dropped()), (None, 0));
    }

    #[test]
    fn every_value_is_kept_in_order_until_the_ring_is_full() {
        let ring = Arc::default();
        let event = event(&ring);
        ring.open();
        for value in 0..Ring::EVENTS_MAX + 5 {
            event.send(&[value as f64, -1.0]);
        }
        assert_eq!(ring.dropped(), 5);
        let values = std::iter::from_fn(|| ring.pop()).map(|record| record.values[0]);
        assert!(values.eq((0..Ring::EVENTS_MAX).map(|value| value as f64)));
    }

    #[test]
    fn an_event_has_the_time_at_which_it_was_sent() {
        let ring = Arc::default();
        let event = event(&ring);
        ring.open();
        let before = now_ms();
        event.send(&[0.0, 0.0]);
        let record = ring.pop().unwrap();
        assert!((before..=now_ms()).contains(&record.at_ms));
        assert_eq!(record.id, 3);
        assert!(record.values[2].is_nan());
    }
}
