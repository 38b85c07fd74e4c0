//! Metrics of the sink `writers`.

use sheaf_metrics::{Metric, Registry};
use sheaf_write::Handoff;
use std::sync::Arc;

const UNACKNOWLEDGED: Metric = Metric::gauge(
    "sink_writer_unacknowledged_tfs",
    "TFs that a writer node has and has not acknowledged.",
)
.labels(&["writer"])
.advice("at `epn.sink.window_tfs` all the time: the writer is the limit");
const BYTES: Metric = Metric::gauge(
    "sink_writer_unacknowledged_bytes",
    "Payload bytes that a writer node has and has not acknowledged.",
)
.labels(&["writer"]);
const TAKES: Metric = Metric::gauge(
    "sink_writer_takes",
    "Whether a writer node takes TFs: 1 or 0.",
)
.labels(&["writer"])
.advice("0: it is away, silent, or its disks are full; the log says which");
const WAITING: Metric = Metric::gauge(
    "sink_writer_waiting_tfs",
    "TFs that wait for a writer node.",
)
.advice("above 0: no writer has room, see `sink_writer_takes`");
const MOVED: Metric = Metric::counter(
    "sink_writer_moved_total",
    "TFs that were sent to another writer node, as the one before had not acknowledged them.",
);
const TO_VOID: Metric = Metric::gauge(
    "sink_writer_to_void",
    "Copies of moved TFs at writer nodes that are still to be made void.",
)
.advice("they are voided when their writer comes back");

/// All of them.
pub(in crate::sink) const METRICS: [Metric; 6] =
    [UNACKNOWLEDGED, BYTES, TAKES, WAITING, MOVED, TO_VOID];

/// Metrics of one sink.
pub(super) struct Counters {
    registry: Arc<Registry>,
    writers: u16,
}

impl Counters {
    pub(super) fn new(registry: Arc<Registry>, writers: u16) -> Self {
        Self { registry, writers }
    }

    /// Brings the metrics up to date.
    pub(super) fn export(&self, handoff: &Handoff) {
        for writer in 0..self.writers {
            let (tfs, bytes, takes) = handoff.load(writer);
            let name = writer.to_string();
            let labels = [("writer", name.as_str())];
            self.registry.set(&UNACKNOWLEDGED, &labels, tfs.into());
            self.registry.set(&BYTES, &labels, bytes);
            self.registry.set(&TAKES, &labels, takes.into());
        }
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        self.registry.set(&WAITING, &[], number(handoff.waiting()));
        self.registry.set(&MOVED, &[], handoff.moved());
        self.registry.set(&TO_VOID, &[], number(handoff.to_void()));
    }
}
