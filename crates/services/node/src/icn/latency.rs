//! How long TFs take, stage by stage and EPN by EPN.

use crate::status::Quantiles;
use sheaf_metrics::{Histogram, Metric, Registry, Scale};
use sheaf_protocol::{EpnId, Target};
use sheaf_scheduler::Trace;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Names of the stages, in the order of a TF's life; the last one is the whole of it.
pub(super) const STAGES: [&str; 5] = [
    "announce_to_assign",
    "assign_to_first_byte",
    "first_to_last_byte",
    "last_byte_to_commit",
    "total",
];

pub(super) const LATENCY: Metric = Metric::histogram(
    "balance_tf_latency_seconds",
    "Time that a delivered TF took, by stage, in seconds.",
)
    .labels(&["stage"])
    .advice("stages: `announce_to_assign` (the latest assignment), `assign_to_first_byte`, `first_to_last_byte`, \
         `last_byte_to_commit` (until the EPN has acknowledged the commit), `total`. The stage tells where: \
         the slowest FLP, or no room; streams or EPN; network, or an FLP that lags; ICN, control streams or \
         the consumer");

#[derive(Debug)]
pub(super) struct Latencies {
    stages: [Arc<Histogram>; STAGES.len()],
    by_epn: BTreeMap<EpnId, Histogram>,
}

impl Latencies {
    /// Histograms that are metrics of `registry`, too.
    pub(super) fn new(registry: &Registry) -> Self {
        let stages = STAGES.map(|stage| {
            let labels = [("stage", stage)];
            registry.histogram(LATENCY.name, LATENCY.help, &labels, Scale::DURATION_NS)
        });
        Self {
            stages,
            by_epn: BTreeMap::new(),
        }
    }

    pub(super) fn record(&mut self, target: Target, trace: &Trace) {
        let durations = [
            trace.announce_to_assign_ns,
            trace.assign_to_first_byte_ns,
            trace.first_to_last_byte_ns,
            trace.last_byte_to_commit_ns,
            trace.total_ns,
        ];
        for (histogram, ns) in self.stages.iter().zip(durations) {
            histogram.record(ns);
        }
        let of_epn = self.by_epn.entry(target.epn).or_default();
        of_epn.record(trace.total_ns);
    }

    /// Every stage by name.
    pub(super) fn stages(&self) -> impl Iterator<Item = (&'static str, Quantiles)> + '_ {
        STAGES
            .into_iter()
            .zip(self.stages.iter().map(|histogram| quantiles_us(histogram)))
    }

    pub(super) fn of_epn(&self, epn: EpnId) -> Quantiles {
        self.by_epn.get(&epn).map(quantiles_us).unwrap_or_default()
    }
}

/// A histogram of ns in three figures of µs.
fn quantiles_us(histogram: &Histogram) -> Quantiles {
    let snapshot = histogram.snapshot();
    let us = |ns: u64| ns as f64 / 1000.0;
    Quantiles {
        p50: us(snapshot.quantile(0.5)),
        p99: us(snapshot.quantile(0.99)),
        max: us(snapshot.max()),
    }
}
