//! State of a lane that other threads see: its queue, its verbosity, its counts.

use super::queue::Queue;
use crate::batch::Batch;
use crate::count::Counter;
use crate::reporting::Verbosity;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

/// State that a lane shares with the thread that samples.
#[derive(Debug)]
pub(super) struct Shared {
    /// URI without options.
    pub(super) name: String,
    pub(super) queue: Queue,
    verbosity: AtomicU8,
    /// Whether the URI states the verbosity.
    pub(super) is_stated: bool,
    pub(super) sent: Arc<Counter>,
    pub(super) dropped: Arc<Counter>,
    /// Processor time of the lane so far, in ns.
    cpu_ns: AtomicU64,
}

impl Shared {
    pub(super) fn new(
        name: String,
        (verbosity, is_stated): (Verbosity, bool),
        sent: Arc<Counter>,
        dropped: Arc<Counter>,
    ) -> Self {
        Self {
            name,
            queue: Queue::default(),
            verbosity: AtomicU8::new(verbosity as u8),
            is_stated,
            sent,
            dropped,
            cpu_ns: AtomicU64::new(0),
        }
    }

    pub(super) fn verbosity(&self) -> Verbosity {
        Verbosity::ALL[usize::from(self.verbosity.load(Ordering::Relaxed))]
    }

    pub(super) fn set_verbosity(&self, verbosity: Verbosity) {
        self.verbosity.store(verbosity as u8, Ordering::Relaxed);
    }

    pub(super) fn cpu(&self) -> Duration {
        Duration::from_nanos(self.cpu_ns.load(Ordering::Relaxed))
    }

    /// Notes the processor time of the lane so far.
    pub(super) fn note_cpu(&self, ns: u64) {
        self.cpu_ns.store(ns, Ordering::Relaxed);
    }

    /// Hands a batch to the lane.
    pub(super) fn push(&self, batch: &Arc<Batch>) {
        let dropped = self.queue.push(batch.clone(), self.verbosity());
        self.dropped.add(dropped as u64);
    }
}
