//! Metrics of the sink `streams`.

use super::record::TfRecord;
use sheaf_metrics::{Metric, Registry};
use sheaf_protocol::Timestamp;
use sheaf_stream_files::{Engine, free_bytes};
use sheaf_write::StreamId;
use std::sync::Arc;
use std::time::Duration;

const TAKEN: Metric = Metric::counter(
    "write_taken_total",
    "TFs or parts of TFs taken for a stream.",
)
.labels(&["stream"]);
const WRITTEN: Metric = Metric::counter(
    "write_written_total",
    "TFs or parts of TFs whose write has returned.",
)
.labels(&["stream"])
.advice("behind `write_taken_total`: the difference is in flight");
const BYTES: Metric = Metric::counter(
    "write_written_bytes_total",
    "Bytes whose write has returned.",
)
.labels(&["stream"]);
const FILES: Metric =
    Metric::counter("write_files_closed_total", "Files with their final name.").labels(&["stream"]);
const WORKER_BYTES: Metric = Metric::counter(
    "write_worker_bytes_total",
    "Bytes that a thread has written.",
)
.labels(&["worker"])
.advice("one far ahead of the others: another `assignment`, or `striped`");
const OPEN: Metric = Metric::gauge("write_open_files", "Files that are not closed.");
const QUEUED: Metric = Metric::gauge(
    "write_queued_bytes",
    "Bytes with the threads that are not acknowledged.",
)
.advice("near `queue_mib`: the disk or the threads are the limit");
const LAG: Metric = Metric::gauge(
    "write_lag_seconds",
    "Age of the oldest TF that is with the threads, in whole seconds.",
)
.advice("growing: writing has stopped, see the log");
const FAILURES: Metric = Metric::counter(
    "write_failures_total",
    "Writes that failed and were tried again, each counted once.",
)
.advice("the log has the error");
const FREE: Metric = Metric::gauge(
    "write_free_bytes",
    "Bytes that the disk of the folder has free for this process.",
)
.advice("falling to 0: what is closed has to go elsewhere");

/// All of them.
pub(in crate::sink) const METRICS: [Metric; 10] = [
    TAKEN,
    WRITTEN,
    BYTES,
    FILES,
    WORKER_BYTES,
    OPEN,
    QUEUED,
    LAG,
    FAILURES,
    FREE,
];

/// Time between two looks at the free space.
const FREE_EVERY: Duration = Duration::from_secs(1);

/// Metrics of one sink.
pub(super) struct Counters {
    registry: Arc<Registry>,
    streams: Vec<String>,
    pub(super) failures: u64,
    free_at: Option<Timestamp>,
}

impl Counters {
    pub(super) fn new(registry: Arc<Registry>, streams: Vec<String>) -> Self {
        Self {
            registry,
            streams,
            failures: 0,
            free_at: None,
        }
    }

    /// Brings all metrics up to date.
    pub(super) fn export(&mut self, now: Timestamp, engine: &Engine<TfRecord>) {
        let registry = &self.registry;
        for (id, name) in (0..).map(StreamId).zip(&self.streams) {
            let counts = engine.counts(id);
            let labels = [("stream", name.as_str())];
            registry.set(&TAKEN, &labels, counts.taken_records);
            registry.set(&WRITTEN, &labels, counts.written_records);
            registry.set(&BYTES, &labels, counts.written_bytes);
            registry.set(&FILES, &labels, counts.files_closed);
        }
        for (worker, bytes) in engine.worker_bytes().iter().enumerate() {
            let worker = worker.to_string();
            registry.set(&WORKER_BYTES, &[("worker", worker.as_str())], *bytes);
        }
        registry.set(&OPEN, &[], engine.open_files() as u64);
        registry.set(&QUEUED, &[], engine.held().1);
        let lag = engine
            .oldest()
            .map_or(0, |oldest| now.since(oldest).as_secs());
        registry.set(&LAG, &[], lag);
        registry.set(&FAILURES, &[], self.failures);
        if self.free_at.is_none_or(|at| now.since(at) >= FREE_EVERY) {
            self.free_at = Some(now);
            // A folder that cannot be asked cannot be written either, and that is logged.
            if let Ok(bytes) = free_bytes(engine.folder()) {
                registry.set(&FREE, &[], bytes);
            }
        }
    }
}
