//! Figures of reporting about itself, as ordinary metrics of the process.

use crate::count::{Counter, Gauge};
use crate::registry::Registry;
use crate::table::Metric;
use sheaf_samples::client::{BACKEND, DROPPED, SENT};
use std::sync::Arc;
use std::time::Duration;

const SENT_METRIC: Metric = Metric::counter(SENT, "Samples given to a back end of metrics.")
    .labels(&[BACKEND])
    .advice("the collector compares its growth with what has arrived");
const DROPPED_METRIC: Metric = Metric::counter(
    DROPPED,
    "Samples dropped in this process before a back end of metrics got them.",
)
.labels(&[BACKEND])
.advice("growing: the back end is away, slow or refuses them; the log says which");
const SUPPRESSED: Metric = Metric::counter(
    "monitor_client_samples_suppressed_total",
    "Series not sampled because their value has not changed, summed over all samples.",
)
.advice("");
const EVENTS_DROPPED: Metric = Metric::counter(
    "monitor_client_events_dropped_total",
    "Events dropped because too many came within 100 ms.",
)
.advice("more than 8192 within 100 ms: count instead");
const INTERVAL: Metric = Metric::gauge(
    "monitor_client_interval_seconds",
    "Time between two samples of the metrics of this process, in seconds.",
)
.advice("longer than configured: reporting would take more than its share of a core");
const CHANGES: Metric = Metric::counter(
    "monitor_client_collector_changes_total",
    "Times that samples went on to another one of several collectors.",
)
.advice("growing: a collector goes away and comes back, or none is reached; the log names them");
const CPU: Metric = Metric::counter(
    "monitor_client_cpu_seconds_total",
    "Processor time that reporting metrics took, in seconds.",
);

/// Lists the metrics of reporting itself, for a reference page.
#[must_use]
pub fn reporter_metrics() -> Vec<Metric> {
    vec![
        SENT_METRIC,
        DROPPED_METRIC,
        SUPPRESSED,
        EVENTS_DROPPED,
        INTERVAL,
        CHANGES,
        CPU,
    ]
}

/// Handles of these metrics.
#[derive(Debug)]
pub(super) struct Own {
    suppressed: Arc<Counter>,
    events_dropped: Arc<Counter>,
    interval: Arc<Gauge>,
    cpu: Arc<Counter>,
}

impl Own {
    pub(super) fn new(registry: &Registry, interval: Duration) -> Self {
        let counter = |metric: Metric| registry.counter(metric.name, metric.help, &[]);
        let own = Self {
            suppressed: counter(SUPPRESSED),
            events_dropped: counter(EVENTS_DROPPED),
            interval: registry.gauge(INTERVAL.name, INTERVAL.help, &[]),
            cpu: counter(CPU),
        };
        own.note(interval, Duration::ZERO);
        own
    }

    /// Notes the interval and the processor time so far.
    pub(super) fn note(&self, interval: Duration, cpu: Duration) {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.interval.set_u64(ns(interval));
        self.cpu.raise_to(ns(cpu));
    }

    pub(super) fn suppressed(&self, samples: u64) {
        self.suppressed.add(samples);
    }

    pub(super) fn events_dropped(&self, total: u64) {
        self.events_dropped.raise_to(total);
    }
}

/// Returns the counter of changes of the collector.
pub(super) fn changes(registry: &Registry) -> Arc<Counter> {
    registry.counter(CHANGES.name, CHANGES.help, &[])
}

/// Returns the counters of samples sent to the back end `name`, and dropped before.
pub(super) fn account(registry: &Registry, name: &str) -> [Arc<Counter>; 2] {
    [SENT_METRIC, DROPPED_METRIC]
        .map(|metric| registry.counter(metric.name, metric.help, &[(BACKEND, name)]))
}
