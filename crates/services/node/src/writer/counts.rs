//! Metrics of a writer node.

use sheaf_metrics::{Metric, Registry};

const EPNS: Metric = Metric::gauge("writer_epns", "EPNs that have a stream open to the writer.");
const TFS: Metric = Metric::counter("writer_tfs_total", "TFs that came whole from EPNs.");
const BYTES: Metric = Metric::counter("writer_bytes_total", "Payload bytes of the TFs that came.");
const WRITTEN: Metric = Metric::counter(
    "writer_acknowledged_total",
    "TFs that were acknowledged as written.",
);
const AGAIN: Metric = Metric::counter(
    "writer_again_total",
    "TFs that came again and were here already.",
)
.advice("EPNs hand over again what was not acknowledged when a stream closed");
const VOID: Metric = Metric::counter(
    "writer_void_total",
    "Copies that were made void, as the TF is at another writer or is not committed.",
);
const QUEUED: Metric = Metric::gauge(
    "writer_queued_bytes",
    "Payload bytes that wait to be written.",
)
.advice("near `writer.capacity_bytes`: the disks are the limit");

/// All of them.
pub(crate) const METRICS: [Metric; 7] = [EPNS, TFS, BYTES, WRITTEN, AGAIN, VOID, QUEUED];

/// Counts of a writer node.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) tfs: u64,
    pub(super) bytes: u64,
    pub(super) written: u64,
    pub(super) again: u64,
    pub(super) void: u64,
}

impl Counts {
    /// Brings the metrics up to date; so many EPNs have a stream, and so many bytes wait to be written.
    pub(super) fn export(&self, registry: &Registry, epns: usize, queued_bytes: u64) {
        registry.set(&EPNS, &[], u64::try_from(epns).unwrap_or(u64::MAX));
        for (metric, count) in [
            (&TFS, self.tfs),
            (&BYTES, self.bytes),
            (&WRITTEN, self.written),
            (&AGAIN, self.again),
            (&VOID, self.void),
            (&QUEUED, queued_bytes),
        ] {
            registry.set(metric, &[], count);
        }
    }
}
