//! Metrics of a director.

use crate::event::Status;
use sheaf_metrics::{Counter, Metric, Registry, Scale};
use sheaf_serve::{Order, ServerStatus, ServiceStatus};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const SERVICE: &[&str] = &["service"];
const SERVER: &[&str] = &["service", "server"];

const UP: Metric = Metric::gauge(
    "serve_server_up",
    "Whether a server passes its checks: 1 or 0.",
)
.labels(SERVER)
.advice("0: `sheaf serve status` has the reason");
const HELD: Metric = Metric::gauge(
    "serve_server_held",
    "Whether a server passes its checks and changed too often: 1 or 0.",
)
.labels(SERVER)
.advice("the server restarts, or its network flaps; it returns when it was well for `flap_s`");
const DRAINING: Metric = Metric::gauge(
    "serve_server_draining",
    "Whether a server gets no new connection by order: 1 or 0.",
)
.labels(SERVER)
.advice("`sheaf serve add` ends a drain");
const SLOTS: Metric = Metric::gauge("serve_server_slots", "Slots of a server.").labels(SERVER);
const PINS: Metric = Metric::gauge(
    "serve_server_pins",
    "Connections that stay at a server though their slot has moved.",
)
.labels(SERVER)
.advice("they end by themselves, at the latest after `drain_s`");
const CONNECTIONS: Metric = Metric::gauge(
    "serve_server_connections",
    "Connections that the agent of a server listed last.",
)
.labels(SERVER);
const FACTOR: Metric = Metric::gauge(
    "serve_server_weight_factor",
    "Factor on the weight of a server by its measured load.",
)
.labels(SERVER)
.advice("far below 1: the server is busier than the others at its weight");
const PACKETS: Metric = Metric::counter(
    "serve_forwarded_packets_total",
    "Packets from clients that went to a server; connections where the plane sees no packets.",
)
.labels(SERVER)
.advice("its rate by server shows whether shares are as configured");
const BYTES: Metric = Metric::counter(
    "serve_forwarded_bytes_total",
    "Bytes from clients that went to a server.",
)
.labels(SERVER);
const MOVING: Metric = Metric::gauge("serve_moving_slots", "Slots that are on the move.")
    .labels(SERVICE)
    .advice(
        "above 0 for longer than seconds: an agent does not answer, or the plane does not follow",
    );
const GIVEN_UP: Metric = Metric::counter(
    "serve_given_up_total",
    "Connections whose server was given up: it was gone, or its drain had reached the deadline.",
)
.labels(SERVICE)
.advice("transfers that break; a longer `drain_s` lets them end");
const BEHIND: Metric = Metric::gauge(
    "serve_plane_behind",
    "Whether the plane does not follow the table: 1 or 0.",
)
.labels(SERVICE)
.advice("1: `sheaf serve status` and the log have the reason, `sheaf serve doctor` what to mend");
const APPLY: Metric = Metric::histogram(
    "serve_apply_seconds",
    "Time in which the plane carried a table out.",
)
.labels(SERVICE);
const APPLY_FAILED: Metric = Metric::counter(
    "serve_apply_failed_total",
    "Tables that the plane did not carry out; each is tried again.",
)
.labels(SERVICE)
.advice("the log has the reason");
const CHECKS: Metric = Metric::counter(
    "serve_checks_total",
    "Checks of a server, by result: good or failed.",
)
.labels(&["service", "server", "result"])
.advice("`failed`: `sheaf serve status` has the reason of the last one");
const CHANGES: Metric = Metric::counter(
    "serve_health_changes_total",
    "Changes of a server from up to down and back.",
)
.labels(SERVER)
.advice("a server that flaps");
const UNANSWERED: Metric = Metric::counter(
    "serve_agent_unanswered_total",
    "Questions for connections, and orders to check its server, that an agent did not answer.",
)
.labels(SERVER)
.advice(
    "without an answer, all connections of a moved slot stay until `drain_s`, and a server is checked at its own \
     address alone",
);
const ORDERS: Metric =
    Metric::counter("serve_orders_total", "Orders carried out, by kind.").labels(&["order"]);

/// Lists the metrics of a director.
pub fn metrics() -> impl Iterator<Item = Metric> {
    [
        UP,
        HELD,
        DRAINING,
        SLOTS,
        PINS,
        CONNECTIONS,
        FACTOR,
        PACKETS,
        BYTES,
        MOVING,
        GIVEN_UP,
        BEHIND,
        APPLY,
        APPLY_FAILED,
        CHECKS,
        CHANGES,
        UNANSWERED,
        ORDERS,
    ]
    .into_iter()
}

/// Counter of something that starts at zero again from time to time, such as those of a plane.
#[derive(Debug, Default)]
struct Restarting {
    last: u64,
}

impl Restarting {
    /// Adds to `counter` the growth since the value before.
    fn add(&mut self, counter: &Counter, value: u64) {
        let before = std::mem::replace(&mut self.last, value);
        counter.add(value.checked_sub(before).unwrap_or(value));
    }
}

/// Metrics of one director.
#[derive(Debug)]
pub(crate) struct Meters {
    registry: Arc<Registry>,
    /// Packets and bytes that planes counted last, by service and server.
    counted: BTreeMap<(String, String), [Restarting; 2]>,
}

impl Meters {
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
        Self {
            registry,
            counted: BTreeMap::new(),
        }
    }

    fn counter(&self, metric: &Metric, labels: &[(&str, &str)]) -> Arc<Counter> {
        self.registry.counter(metric.name, metric.help, labels)
    }

    fn set(&self, metric: &Metric, labels: &[(&str, &str)], value: u64) {
        let gauge = self.registry.gauge(metric.name, metric.help, labels);
        gauge.set_u64(value);
    }

    /// Takes over a state, for the page that is about to be written.
    pub(crate) fn take(&mut self, status: &Status) {
        let mut before = std::mem::take(&mut self.counted);
        for service in &status.services {
            self.take_service(service);
            let counted = status.counted.get(&service.name);
            for server in &service.servers {
                self.take_server(&service.name, server);
                let key = (service.name.clone(), server.name.clone());
                let [mut packets, mut bytes] = before.remove(&key).unwrap_or_default();
                if let Some(counted) = counted.and_then(|servers| servers.get(&server.name)) {
                    let labels = [("service", &*service.name), ("server", &*server.name)];
                    packets.add(&self.counter(&PACKETS, &labels), counted.packets);
                    bytes.add(&self.counter(&BYTES, &labels), counted.bytes);
                }
                self.counted.insert(key, [packets, bytes]);
            }
        }
        for (service, server) in before.into_keys() {
            self.forget(&service, &server);
        }
    }

    fn take_service(&self, service: &ServiceStatus) {
        let labels = [("service", service.name.as_str())];
        self.set(&MOVING, &labels, service.moving as u64);
        self.set(&BEHIND, &labels, service.plane_error.is_some().into());
        self.counter(&GIVEN_UP, &labels).raise_to(service.given_up);
    }

    fn take_server(&self, service: &str, server: &ServerStatus) {
        let labels = [("service", service), ("server", server.name.as_str())];
        self.set(&UP, &labels, server.is_up.into());
        self.set(&HELD, &labels, server.is_held.into());
        self.set(&DRAINING, &labels, server.is_draining.into());
        self.set(&SLOTS, &labels, server.slots as u64);
        self.set(&PINS, &labels, server.pins as u64);
        let connections = server.connections.unwrap_or(0);
        self.set(&CONNECTIONS, &labels, connections as u64);
        let factor = self.registry.real_gauge(FACTOR.name, FACTOR.help, &labels);
        factor.set(server.factor);
    }

    /// Sets to zero what is left of a server that was removed: series stay until the process ends.
    fn forget(&self, service: &str, server: &str) {
        let labels = [("service", service), ("server", server)];
        for metric in [&UP, &HELD, &DRAINING, &SLOTS, &PINS, &CONNECTIONS] {
            self.set(metric, &labels, 0);
        }
    }

    pub(crate) fn applied(&self, service: &str, time: Duration, is_done: bool) {
        let labels = [("service", service)];
        let scale = Scale::DURATION_NS;
        let all = self
            .registry
            .histogram(APPLY.name, APPLY.help, &labels, scale);
        all.record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        let failed = self.counter(&APPLY_FAILED, &labels);
        failed.add((!is_done).into());
    }

    pub(crate) fn checked(&self, service: &str, server: &str, is_good: bool) {
        let result = if is_good { "good" } else { "failed" };
        let labels = [("service", service), ("server", server), ("result", result)];
        self.counter(&CHECKS, &labels).increment();
    }

    pub(crate) fn changed(&self, service: &str, server: &str) {
        let labels = [("service", service), ("server", server)];
        self.counter(&CHANGES, &labels).increment();
    }

    pub(crate) fn unanswered(&self, service: &str, server: &str) {
        let labels = [("service", service), ("server", server)];
        self.counter(&UNANSWERED, &labels).increment();
    }

    pub(crate) fn ordered(&self, order: &Order) {
        self.counter(&ORDERS, &[("order", order.kind())])
            .increment();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_planes::Counted;
    use sheaf_serve::Step;

    fn status(server: &str, packets: u64) -> Status {
        let server_status = ServerStatus {
            name: server.to_owned(),
            addresses: Vec::new(),
            is_up: true,
            is_held: false,
            error: None,
            is_draining: false,
            is_drained: false,
            weight: 1.0,
            factor: 0.5,
            slots: 4093,
            leaving: 0,
            pins: 3,
            connections: Some(7),
            bytes_per_s: None,
            used: None,
        };
        let service = ServiceStatus {
            name: "files".to_owned(),
            addresses: Vec::new(),
            port: 80,
            step: Step::Steady,
            slots: 4093,
            moving: 0,
            pins: 3,
            given_up: 2,
            plane_error: None,
            table: String::new(),
            servers: vec![server_status],
        };
        let counted = Counted {
            packets,
            bytes: packets * 100,
        };
        Status {
            director: "d1".to_owned(),
            plane: "nft".to_owned(),
            uptime_s: 1.0,
            services: vec![service],
            counted: [("files".to_owned(), [(server.to_owned(), counted)].into())].into(),
        }
    }

    fn value(registry: &Registry, series: &str) -> String {
        let mut text = String::new();
        registry.encode(&mut text);
        let line = text.lines().find(|line| line.starts_with(series));
        let line = line.unwrap_or_else(|| panic!("no {series} in:\n{text}"));
        line.rsplit(' ').next().unwrap_or_default().to_owned()
    }

    #[test]
    fn counts_of_a_plane_that_begins_at_zero_again_go_on() {
        let registry = Arc::new(Registry::default());
        let mut meters = Meters::new(registry.clone());
        for packets in [10, 15, 4] {
            meters.take(&status("s1", packets));
        }
        let series = "serve_forwarded_packets_total{server=\"s1\",service=\"files\"}";
        assert_eq!(value(&registry, series), "19");
        let series = "serve_given_up_total{service=\"files\"}";
        assert_eq!(value(&registry, series), "2");
        let series = "serve_server_weight_factor{server=\"s1\",service=\"files\"}";
        assert_eq!(value(&registry, series), "0.5");
    }

    #[test]
    fn a_server_that_was_removed_is_down_and_has_nothing() {
        let registry = Arc::new(Registry::default());
        let mut meters = Meters::new(registry.clone());
        meters.take(&status("s1", 10));
        meters.take(&status("s2", 1));
        for (server, slots) in [("s1", "0"), ("s2", "4093")] {
            let series = format!("serve_server_slots{{server=\"{server}\",service=\"files\"}}");
            assert_eq!(value(&registry, &series), slots);
        }
    }

    #[test]
    fn every_metric_that_is_recorded_is_listed() {
        let registry = Arc::new(Registry::default());
        let mut meters = Meters::new(registry.clone());
        meters.take(&status("s1", 10));
        meters.applied("files", Duration::from_millis(3), false);
        meters.checked("files", "s1", true);
        meters.changed("files", "s1");
        meters.unanswered("files", "s1");
        let server = "s1".to_owned();
        meters.ordered(&Order::Drain { server });
        let mut text = String::new();
        registry.encode(&mut text);
        let found = text.lines().filter_map(|line| {
            let line = line.strip_prefix("# TYPE ")?;
            line.split(' ').next()
        });
        let mut listed: Vec<&str> = metrics().map(|metric| metric.name).collect();
        listed.sort_unstable();
        assert_eq!(found.collect::<Vec<_>>(), listed);
    }
}
