//! Metrics of the sink `streams`.

use super::record::TfRecord;
use sheaf_metrics::{Metric, Registry};
use sheaf_protocol::Timestamp;
use sheaf_stream_files::Disks;
use sheaf_write::{ShedReason, StreamId};
use std::path::PathBuf;
use std::sync::Arc;

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
const ANNOUNCED: Metric = Metric::counter(
    "write_announced_total",
    "TFs or parts of TFs that a stream was to have: written, shed, refused or in flight.",
)
.labels(&["stream"]);
const SHED: Metric = Metric::counter(
    "write_shed_total",
    "TFs or parts of TFs that are in no file of a stream, by the reason.",
)
.labels(&["stream", "reason"])
.advice("the event logs name each; faster or more disks, or another order of `class`");
const REFUSED: Metric = Metric::counter(
    "write_refused_total",
    "TFs or parts of TFs that a writer refused.",
)
.labels(&["stream"]);
const IN_FLIGHT: Metric = Metric::gauge(
    "write_in_flight",
    "TFs or parts of TFs whose write has not returned.",
)
.labels(&["stream"]);
const SPILLED: Metric = Metric::counter(
    "write_spilled_total",
    "TFs or parts of TFs that went to the directory for overload.",
)
.labels(&["stream"])
.advice("the log says why; `sheaf ship` takes files of that directory as of any other");
const WORKER_BYTES: Metric = Metric::counter(
    "write_worker_bytes_total",
    "Bytes that a thread of a disk has written.",
)
.labels(&["disk", "worker"])
.advice("one far ahead of the others: another `assignment`, or `striped`");
const OPEN: Metric =
    Metric::gauge("write_open_files", "Files that are not closed.").labels(&["disk"]);
const QUEUED: Metric = Metric::gauge(
    "write_queued_bytes",
    "Bytes with the threads of a disk that are not acknowledged.",
)
.labels(&["disk"])
.advice("near `queue_mib`: the disk or the threads are the limit");
const LAG: Metric = Metric::gauge(
    "write_lag_seconds",
    "Age of the oldest TF that is with the threads of a disk, in whole seconds.",
)
.labels(&["disk"])
.advice("growing: writing has stopped, see the log");
const FAILURES: Metric = Metric::counter(
    "write_failures_total",
    "Writes to a disk that failed and were tried again, each counted once.",
)
.labels(&["disk"])
.advice("the log has the error");
const FREE: Metric = Metric::gauge(
    "write_free_bytes",
    "Bytes that a disk has free for this process.",
)
.labels(&["disk"])
.advice("falling to 0: what is closed has to go elsewhere");
const LEFT_OUT: Metric = Metric::gauge(
    "write_disk_left_out",
    "Whether a disk gets no new files, as it fails, is slow or full: 1 or 0.",
)
.labels(&["disk"])
.advice("the log says why; it gets files again when it has worked for a while");

/// All of them.
pub(in crate::sink) const METRICS: [Metric; 16] = [
    ANNOUNCED,
    TAKEN,
    WRITTEN,
    SHED,
    REFUSED,
    IN_FLIGHT,
    SPILLED,
    BYTES,
    FILES,
    WORKER_BYTES,
    OPEN,
    QUEUED,
    LAG,
    FAILURES,
    FREE,
    LEFT_OUT,
];

/// Metrics of one sink.
pub(super) struct Counters {
    registry: Arc<Registry>,
    streams: Vec<String>,
    /// Folders of the disks, by which they are called.
    disks: Vec<String>,
}

impl Counters {
    pub(super) fn new(registry: Arc<Registry>, streams: Vec<String>, folders: &[PathBuf]) -> Self {
        let disks = folders.iter().map(|path| path.display().to_string());
        Self {
            registry,
            streams,
            disks: disks.collect(),
        }
    }

    /// Brings all metrics up to date. `free` are the bytes that each disk has free.
    pub(super) fn export(&mut self, now: Timestamp, disks: &Disks<TfRecord>, free: &[Option<u64>]) {
        let registry = &self.registry;
        for (id, name) in (0..).map(StreamId).zip(&self.streams) {
            let (counts, fates) = (disks.counts(id), disks.fates(id));
            let lost = disks.intake().lost(id);
            let labels = [("stream", name.as_str())];
            registry.set(&ANNOUNCED, &labels, fates.announced);
            registry.set(&TAKEN, &labels, counts.taken_records);
            registry.set(&WRITTEN, &labels, fates.written);
            registry.set(&REFUSED, &labels, fates.refused);
            registry.set(&IN_FLIGHT, &labels, fates.in_flight);
            registry.set(&SPILLED, &labels, lost.spilled);
            registry.set(&BYTES, &labels, counts.written_bytes);
            registry.set(&FILES, &labels, counts.files_closed);
            for (reason, shed) in ShedReason::ALL.iter().zip(lost.shed) {
                let labels = [("stream", name.as_str()), ("reason", reason.name())];
                registry.set(&SHED, &labels, shed);
            }
        }
        for (((disk, engine), name), free) in disks.engines().zip(&self.disks).zip(free) {
            let labels = [("disk", name.as_str())];
            for (worker, bytes) in engine.worker_bytes().iter().enumerate() {
                let worker = worker.to_string();
                let labels = [("disk", name.as_str()), ("worker", worker.as_str())];
                registry.set(&WORKER_BYTES, &labels, *bytes);
            }
            registry.set(&OPEN, &labels, engine.open_files() as u64);
            registry.set(&QUEUED, &labels, engine.held().1);
            let oldest = engine.oldest();
            let lag = oldest.map_or(0, |oldest| now.since(oldest).as_secs());
            registry.set(&LAG, &labels, lag);
            registry.set(&FAILURES, &labels, disks.failures(disk));
            let is_left_out = disks.intake().left_out(disk).is_some();
            registry.set(&LEFT_OUT, &labels, is_left_out.into());
            // A folder that cannot be asked cannot be written either, and that is logged.
            if let Some(bytes) = free {
                registry.set(&FREE, &labels, *bytes);
            }
        }
    }
}
