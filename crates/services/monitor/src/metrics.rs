//! Metrics of the collector about itself.

use sheaf_intake::SourceStats;
use sheaf_metrics::{Counter, Histogram, Metric, Registry, Row, Scale};
use sheaf_sample_store::{Appended, Stats};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const REFUSED: Metric = Metric::counter(
    "monitor_store_refused_total",
    "Samples that the store did not take, by reason.",
)
.labels(&["reason"])
.advice(
    "`full`: the disk; free space or allow `monitor.store.drop_oldest_when_full`. `series`: raise \
     `monitor.store.series_max`, or see which source explodes. `late`, `future`: clocks of sources. `busy`: the disk \
     is too slow. `failed`: the log of the collector has the reason",
);
const COMMIT: Metric = Metric::histogram(
    "monitor_store_commit_seconds",
    "Time of a commit of the store to the disk, in seconds.",
)
.advice("above `monitor.commit_ms`: the disk is too slow");
const BAD: Metric = Metric::counter(
    "monitor_samples_bad_total",
    "Lines, records and values that could not be read, by code.",
)
.labels(&["code"])
.advice("which source: `/api/sources`; what each code means: monitoring-protocols.md");
const TURNED_AWAY: Metric = Metric::counter(
    "monitor_samples_refused_total",
    "Readable samples that were refused, by reason.",
)
.labels(&["reason"])
.advice("which source: `/api/sources`; what each reason means: monitoring-protocols.md");

/// Counts of all shards.
const OF_INTAKE: &[Row<Intakes>] = &[
    Row::counter(
        "monitor_datagrams_total",
        "Datagrams and requests received.",
        "",
        |all| all.sum(|total| total.datagrams),
    ),
    Row::counter("monitor_bytes_total", "Bytes received.", "", |all| {
        all.sum(|total| total.bytes)
    }),
    Row::counter(
        "monitor_samples_total",
        "Samples received; equal to taken + refused + bad.",
        "its rate is the load of the collector",
        |all| all.sum(|total| total.samples),
    ),
    Row::counter(
        "monitor_samples_taken_total",
        "Samples taken.",
        "healthy: as fast as received",
        |all| all.sum(|total| total.taken),
    ),
    Row::counter(
        "monitor_samples_lost_total",
        "Samples that clients report as sent and that did not arrive.",
        "**alarm**: which source: `/api/sources`; then `monitor_kernel_drops_total` and the network",
        |all| all.sum(|total| total.loss.lost()),
    ),
    Row::counter(
        "monitor_kernel_drops_total",
        "Datagrams that the kernel dropped because the receive buffer was full.",
        "raise net.core.rmem_max and `monitor.receive_buffer_bytes`, or `monitor.receivers`",
        |all| all.shards.values().map(|(_, drops)| drops).sum(),
    ),
    Row::gauge(
        "monitor_series",
        "Series known to the intake.",
        "growing without end: a source makes up label values",
        |all| all.sum(|total| total.series),
    ),
];

/// State of the store.
const OF_STORE: &[Row<Stats>] = &[
    Row::counter(
        "monitor_store_samples_total",
        "Samples accepted by the store.",
        "",
        |stats| stats.appended.accepted,
    ),
    Row::gauge(
        "monitor_store_series",
        "Series in the store.",
        "",
        |stats| stats.series,
    ),
    Row::gauge(
        "monitor_store_head_samples",
        "Samples in memory that are not yet in a chunk.",
        "",
        |stats| stats.head_samples,
    ),
    Row::gauge(
        "monitor_store_head_bytes",
        "Bytes of memory of series and their samples that are not yet in a chunk.",
        "",
        |stats| stats.head_bytes,
    ),
    Row::gauge(
        "monitor_store_log_bytes",
        "Bytes of the head log on disk.",
        "",
        |stats| stats.log_bytes,
    ),
    Row::gauge(
        "monitor_store_table_bytes",
        "Bytes of the tables on disk.",
        "",
        |stats| stats.table_bytes,
    ),
];

/// Lists the metrics of the collector, for the reference page.
pub fn all() -> impl Iterator<Item = Metric> {
    let intake = OF_INTAKE.iter().map(|row| row.metric);
    let store = OF_STORE.iter().map(|row| row.metric);
    intake
        .chain([BAD, TURNED_AWAY, REFUSED, COMMIT])
        .chain(store)
        .chain(crate::alarms::metrics())
        .chain(crate::security::metrics())
        .chain(crate::forward::metrics())
        .chain(crate::peers::metrics())
}

/// Totals of each shard: accounting and datagrams that the kernel dropped.
#[derive(Debug, Default)]
struct Intakes {
    shards: BTreeMap<usize, (SourceStats, u64)>,
}

impl Intakes {
    fn sum(&self, of: impl Fn(&SourceStats) -> u64) -> u64 {
        self.shards.values().map(|(total, _)| of(total)).sum()
    }
}

/// Everything that the collector counts.
#[derive(Debug)]
pub(crate) struct Counts {
    pub(crate) registry: Arc<Registry>,
    intakes: Mutex<Intakes>,
    commit: Arc<Histogram>,
}

impl Counts {
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
        let commit = registry.histogram(COMMIT.name, COMMIT.help, &[], Scale::DURATION_NS);
        Self {
            registry,
            intakes: Mutex::default(),
            commit,
        }
    }

    /// Replaces the totals of a shard.
    pub(crate) fn note_intake(&self, shard: usize, total: &SourceStats, drops: u64) {
        let mut intakes = self.intakes.lock().unwrap_or_else(PoisonError::into_inner);
        intakes.shards.insert(shard, (total.clone(), drops));
        self.registry.export(OF_INTAKE, &intakes);
        let (mut bad, mut refused) = (BTreeMap::new(), BTreeMap::new());
        for (total, _) in intakes.shards.values() {
            for (code, count) in &total.bad {
                *bad.entry(code.name()).or_insert(0) += count;
            }
            for (reason, count) in &total.refused {
                *refused.entry(reason.name()).or_insert(0) += count;
            }
        }
        for (code, count) in bad {
            self.registry.set(&BAD, &[("code", code)], count);
        }
        for (reason, count) in refused {
            self.registry
                .set(&TURNED_AWAY, &[("reason", reason)], count);
        }
    }

    pub(crate) fn note_store(&self, stats: &Stats) {
        self.registry.export(OF_STORE, stats);
    }

    pub(crate) fn note_commit(&self, took: Duration) {
        self.commit
            .record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(crate) fn add_appended(&self, appended: &Appended) {
        for (reason, count) in [
            ("late", appended.late),
            ("expired", appended.expired),
            ("future", appended.future),
            ("series", appended.unknown),
        ] {
            self.add_refused(reason, count);
        }
    }

    pub(crate) fn add_refused(&self, reason: &'static str, count: u64) {
        if count > 0 {
            self.refused(reason).add(count);
        }
    }

    fn refused(&self, reason: &'static str) -> Arc<Counter> {
        self.registry
            .counter(REFUSED.name, REFUSED.help, &[("reason", reason)])
    }
}
