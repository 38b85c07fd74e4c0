//! Metrics of the sink `shm`.

use sheaf_metrics::{Counter, Gauge, Metric, Registry};
use sheaf_transport::handover::Answer;
use std::sync::Arc;

const CONSUMERS: Metric =
    Metric::gauge("node_shm_consumers", "Consumers that are connected.").advice("0: all are away");
const LENT: Metric = Metric::gauge(
    "node_shm_lent_bytes",
    "Payload bytes that consumers have or are offered.",
)
.advice("near `consumer_bytes_max` × consumers: they are slow");
const TAKEN: Metric = Metric::counter("node_shm_taken_total", "TFs that a consumer has taken.");
const RECLAIMED: Metric = Metric::counter(
    "node_shm_called_back_total",
    "TFs that were reclaimed from a consumer before it took them, and offered to another.",
)
.advice("consumers die, or stop");
const GONE: Metric = Metric::counter(
    "node_shm_gone_total",
    "TFs that a consumer had and had not returned when it died.",
)
.advice("consumers crash: these TFs were not processed");
const COPIED: Metric = Metric::counter(
    "node_shm_copied_bytes_total",
    "Payload bytes copied for a consumer because they lay in no memory that can be shared.",
)
.advice("growing: the arena is full; more `epn.build.capacity_bytes`");

const TAGGED: Metric = Metric::counter(
    "node_shm_tagged_total",
    "TFs that a consumer has given back with a tag.",
);
const PRODUCTS: Metric = Metric::counter(
    "node_shm_product_bytes_total",
    "Bytes of products that consumers have given back.",
);

/// All of them.
pub(in crate::sink) const METRICS: [Metric; 8] = [
    CONSUMERS, LENT, TAKEN, RECLAIMED, GONE, COPIED, TAGGED, PRODUCTS,
];

pub(super) struct Counters {
    pub(super) consumers: Arc<Gauge>,
    pub(super) lent_bytes: Arc<Gauge>,
    pub(super) taken: Arc<Counter>,
    pub(super) called_back: Arc<Counter>,
    pub(super) gone: Arc<Counter>,
    pub(super) copied_bytes: Arc<Counter>,
    tagged: Arc<Counter>,
    product_bytes: Arc<Counter>,
}

impl Counters {
    pub(super) fn new(registry: &Registry) -> Self {
        let counter = |metric: Metric| registry.counter(metric.name, metric.help, &[]);
        let gauge = |metric: Metric| registry.gauge(metric.name, metric.help, &[]);
        Self {
            consumers: gauge(CONSUMERS),
            lent_bytes: gauge(LENT),
            taken: counter(TAKEN),
            called_back: counter(RECLAIMED),
            gone: counter(GONE),
            copied_bytes: counter(COPIED),
            tagged: counter(TAGGED),
            product_bytes: counter(PRODUCTS),
        }
    }

    /// Notes what a consumer said of a TF.
    pub(super) fn note(&self, answer: &Answer) {
        if !answer.tags.is_empty() {
            self.tagged.increment();
        }
        if let Some(product) = &answer.product {
            self.product_bytes.add(product.len() as u64);
        }
    }
}
