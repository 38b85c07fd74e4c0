//! Work of the consumer: the bytes that it has, those that it has finished with, and the time that it took for them.

use sheaf_protocol::Timestamp;
use sheaf_protocol::control::Consumed;

/// Counts of the work of a consumer, from commit to the release of the memory.
///
/// A queue before a consumer belongs to it: while the queue is not empty, the consumer works.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Consumer {
    /// Bytes of committed TFs that it has or that wait for it.
    waiting_bytes: u64,
    freed_bytes: u64,
    busy_ns: u64,
    /// End of the time that `busy_ns` counts, while there is something to do.
    counted_to: Timestamp,
    /// Bytes with the consumer as the ICN was told last.
    reported_bytes: u64,
}

impl Consumer {
    /// Notes a TF of `bytes` that is committed.
    pub(crate) fn add(&mut self, now: Timestamp, bytes: u64) {
        if self.waiting_bytes == 0 {
            self.counted_to = now;
        }
        self.waiting_bytes += bytes;
    }

    /// Notes a TF of `bytes` that the consumer has finished with.
    pub(crate) fn free(&mut self, now: Timestamp, bytes: u64) {
        // Bytes of a run that was left are not counted.
        if self.waiting_bytes > 0 {
            let spent = now.since(self.counted_to).as_nanos();
            self.busy_ns += u64::try_from(spent).unwrap_or(u64::MAX);
            self.counted_to = now.max(self.counted_to);
            self.freed_bytes += bytes;
        }
        self.remove(bytes);
    }

    /// Notes bytes that no consumer will have.
    pub(crate) fn remove(&mut self, bytes: u64) {
        self.waiting_bytes = self.waiting_bytes.saturating_sub(bytes);
    }

    /// Returns the report for the ICN, which also has to know of `sink_bytes`.
    pub(crate) fn consumed(&self, sink_bytes: u64) -> Consumed {
        Consumed {
            sink_bytes,
            freed_bytes: self.freed_bytes,
            busy_ns: self.busy_ns,
        }
    }

    /// Returns the same, and notes that the ICN knows it.
    pub(crate) fn report(&mut self, sink_bytes: u64) -> Consumed {
        self.reported_bytes = sink_bytes;
        self.consumed(sink_bytes)
    }

    /// Returns whether the consumer has less than the ICN was told.
    pub(crate) fn has_less_than_reported(&self, sink_bytes: u64) -> bool {
        sink_bytes < self.reported_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_not_work() {
        let mut consumer = Consumer::default();
        consumer.add(Timestamp(100), 10);
        consumer.add(Timestamp(130), 20);
        consumer.free(Timestamp(150), 10);
        consumer.free(Timestamp(190), 20);
        // Nothing to do for 1000 ns.
        consumer.add(Timestamp(1190), 5);
        consumer.free(Timestamp(1200), 5);
        let consumed = consumer.consumed(0);
        assert_eq!((consumed.freed_bytes, consumed.busy_ns), (35, 100));
    }

    #[test]
    fn what_no_consumer_takes_is_no_work() {
        let mut consumer = Consumer::default();
        consumer.add(Timestamp(100), 10);
        consumer.remove(10);
        consumer.add(Timestamp(300), 10);
        consumer.free(Timestamp(310), 10);
        consumer.free(Timestamp(400), 99);
        let consumed = consumer.consumed(0);
        assert_eq!((consumed.freed_bytes, consumed.busy_ns), (10, 10));
    }
}
