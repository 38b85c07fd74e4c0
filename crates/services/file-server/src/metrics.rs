//! Metrics of a file server.

use crate::stream::Meter;
use sheaf_metrics::{Counter, Gauge, Metric, Registry};
use std::sync::Arc;

const SENT: Metric = Metric::counter(
    "file_server_sent_bytes_total",
    "Bytes of bodies sent to clients.",
)
.advice("its rate is the load of the server");
const RECEIVED: Metric = Metric::counter(
    "file_server_received_bytes_total",
    "Bytes of bodies received from clients.",
);
const REQUESTS: Metric = Metric::counter(
    "file_server_requests_total",
    "Requests answered, by method and class of the status.",
)
.labels(&["method", "status"])
.advice("`5xx`: the disk, or too few descriptors; the log has the reason");
const BROKEN: Metric = Metric::counter(
    "file_server_broken_total",
    "Transfers that ended before their last byte.",
)
.advice(
    "clients that gave up, a network that lost them, or a deadline of a drain that was too short",
);
const REFUSED: Metric = Metric::counter(
    "file_server_refused_total",
    "Connections closed for what their client did, by reason.",
)
.labels(&["reason"])
.advice(
    "`connections`: more at once than allowed, all with requests. `idle`: those without one, put off for new clients. \
     `head`: heads that are no HTTP, too long, or ambiguous. `slow`: clients \
     that held a connection and did not move. `tls`: handshakes that failed",
);
const ELSEWHERE: Metric = Metric::counter(
    "file_server_elsewhere_total",
    "Requests for files that are not here, by what came of them.",
)
.labels(&["outcome"])
.advice("`redirected`: another server has the file. `missing`: none has it. `unknown`: none that answers has it");
const CONNECTIONS: Metric = Metric::gauge("file_server_connections", "Open connections.");
const ACTIVE: Metric = Metric::gauge(
    "file_server_transfers_active",
    "Files on their way to or from clients.",
)
.advice("0: the server can be stopped without breaking a transfer");

/// Lists the metrics of a file server.
pub fn metrics() -> impl Iterator<Item = Metric> {
    [
        SENT,
        RECEIVED,
        REQUESTS,
        BROKEN,
        REFUSED,
        ELSEWHERE,
        CONNECTIONS,
        ACTIVE,
    ]
    .into_iter()
}

/// Methods that have counts of their own; the last stands for all others.
const METHODS: [&str; 13] = [
    "GET",
    "HEAD",
    "PUT",
    "DELETE",
    "OPTIONS",
    "PROPFIND",
    "PROPPATCH",
    "MKCOL",
    "COPY",
    "MOVE",
    "LOCK",
    "UNLOCK",
    "other",
];
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Reason why a connection was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Connections,
    Idle,
    Head,
    Slow,
    Tls,
}

impl Refused {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Connections, "connections"),
        (Self::Idle, "idle"),
        (Self::Head, "head"),
        (Self::Slow, "slow"),
        (Self::Tls, "tls"),
    ];
}

/// Counts of a server.
#[derive(Debug)]
pub(crate) struct Counts {
    pub(crate) sent: Arc<Counter>,
    pub(crate) received: Arc<Counter>,
    requests: Vec<Arc<Counter>>,
    pub(crate) broken: Arc<Counter>,
    refused: Vec<Arc<Counter>>,
    redirected: Arc<Counter>,
    missing: Arc<Counter>,
    unknown: Arc<Counter>,
    pub(crate) connections: Arc<Gauge>,
    pub(crate) active: Arc<Gauge>,
}

impl Counts {
    pub(crate) fn new(registry: &Registry) -> Self {
        let counter = |metric: &Metric, labels: &[(&str, &str)]| {
            registry.counter(metric.name, metric.help, labels)
        };
        let requests = METHODS.iter().flat_map(|method| {
            CLASSES.map(|class| counter(&REQUESTS, &[("method", method), ("status", class)]))
        });
        let refused = Refused::ALL.iter();
        Self {
            sent: counter(&SENT, &[]),
            received: counter(&RECEIVED, &[]),
            requests: requests.collect(),
            broken: counter(&BROKEN, &[]),
            refused: refused
                .map(|(_, reason)| counter(&REFUSED, &[("reason", reason)]))
                .collect(),
            redirected: counter(&ELSEWHERE, &[("outcome", "redirected")]),
            missing: counter(&ELSEWHERE, &[("outcome", "missing")]),
            unknown: counter(&ELSEWHERE, &[("outcome", "unknown")]),
            connections: registry.gauge(CONNECTIONS.name, CONNECTIONS.help, &[]),
            active: registry.gauge(ACTIVE.name, ACTIVE.help, &[]),
        }
    }

    pub(crate) fn answered(&self, method: &str, status: u16) {
        let method = METHODS.iter().position(|name| *name == method);
        let method = method.unwrap_or(METHODS.len() - 1);
        let class = usize::from((status / 100).clamp(1, 5)) - 1;
        self.requests[method * CLASSES.len() + class].increment();
    }

    pub(crate) fn refused(&self, why: Refused) {
        let at = Refused::ALL.iter().position(|(reason, _)| *reason == why);
        if let Some(counter) = at.and_then(|at| self.refused.get(at)) {
            counter.increment();
        }
    }

    /// Counts a request for a file that another server has.
    pub(crate) fn redirected(&self) {
        self.redirected.increment();
    }

    /// Counts a request for a file that no server has, or none of those that answer.
    pub(crate) fn elsewhere(&self, is_certain: bool) {
        let counter = if is_certain {
            &self.missing
        } else {
            &self.unknown
        };
        counter.increment();
    }

    /// Counts a transfer as active while the guard lives.
    pub(crate) fn transfer(&self) -> Active {
        Active::new(&self.active)
    }
}

impl Meter for Counts {
    fn sent(&self, bytes: u64) {
        self.sent.add(bytes);
    }
}

/// One more in a gauge while it lives.
#[derive(Debug)]
pub(crate) struct Active(Arc<Gauge>);

impl Active {
    pub(crate) fn new(gauge: &Arc<Gauge>) -> Self {
        gauge.add(1);
        Self(gauge.clone())
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.add(-1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_method_and_class() {
        let registry = Registry::default();
        let counts = Counts::new(&registry);
        counts.answered("GET", 206);
        counts.answered("BREW", 418);
        counts.refused(Refused::Slow);
        let transfer = counts.transfer();
        assert_eq!(counts.active.value(), 1);
        drop(transfer);
        assert_eq!(counts.active.value(), 0);
        let mut text = String::new();
        registry.encode(&mut text);
        for line in [
            "file_server_requests_total{method=\"GET\",status=\"2xx\"} 1",
            "file_server_requests_total{method=\"other\",status=\"4xx\"} 1",
            "file_server_refused_total{reason=\"slow\"} 1",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
    }
}
