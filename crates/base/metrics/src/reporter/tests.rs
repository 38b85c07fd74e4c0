//! Tests of a reporter with real sockets, decoded by the decoder of a collector.

use super::*;
use crate::reporting::{Derived, Policy, Reporting};
use sheaf_samples::Labels;
use sheaf_samples::client::{DROPPED, PROCESS, SENT};
use sheaf_samples::wire::DATAGRAM_BYTES;
use sheaf_samples::wire::line_protocol::{Decoder, Series};
use std::collections::BTreeMap;
use std::io::{BufRead as _, Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};

/// Time for what has to happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// Collector with all that it has received.
struct Collector {
    socket: UdpSocket,
    /// Time in ms and value of the samples of each series.
    samples: BTreeMap<String, Vec<(i64, f64)>>,
    count: u64,
}

impl Collector {
    fn new() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            socket,
            samples: BTreeMap::new(),
            count: 0,
        }
    }

    fn backend(&self, options: &str) -> Backend {
        let address = self.socket.local_addr().unwrap();
        format!("influxdb-udp://{address}{options}")
            .parse()
            .unwrap()
    }

    /// Takes one datagram.
    fn receive(&mut self) {
        let mut buffer = vec![0; 1 << 16];
        let length = self.socket.recv(&mut buffer).expect("a datagram comes");
        assert!(length <= DATAGRAM_BYTES, "datagram of {length} bytes");
        self.decode(&buffer[..length]);
    }

    fn decode(&mut self, bytes: &[u8]) {
        let mut decoder = Decoder::default();
        let mut lines = decoder.lines(bytes);
        while let Some(line) = lines.next_line() {
            let line = line.unwrap();
            let series = Series::parse(line.series).unwrap();
            for field in line.fields() {
                let labels = series.labels(field.name).unwrap();
                let sample = (line.at_ms.unwrap(), field.value.number().unwrap());
                self.samples
                    .entry(labels.to_string())
                    .or_default()
                    .push(sample);
                self.count += 1;
            }
        }
    }

    /// Values of the series whose PromQL notation begins so.
    fn values(&self, series: &str) -> Vec<f64> {
        let found = self
            .samples
            .iter()
            .filter(|(name, _)| name.starts_with(series));
        found
            .flat_map(|(_, samples)| samples.iter().map(|sample| sample.1))
            .collect()
    }

    /// Receives until a sample of the series is there.
    fn await_series(&mut self, series: &str) {
        let start = Instant::now();
        while self.values(series).is_empty() {
            assert!(
                start.elapsed() < PATIENCE,
                "no {series} in {:?}",
                self.samples.keys()
            );
            self.receive();
        }
    }
}

fn registry() -> Arc<Registry> {
    Arc::default()
}

/// A reporter with an interval of 20 ms and all the time of the processor that it wants.
fn quick(registry: &Arc<Registry>, backend: Backend) -> ReporterBuilder {
    Reporter::builder(registry.clone())
        .interval(Duration::from_millis(20))
        .cpu_share_max(1.0)
        .backend(backend)
}

#[test]
fn samples_line_up_and_the_account_is_what_arrived() {
    let registry = registry();
    let mut collector = Collector::new();
    let counters: Vec<_> = (0..60)
        .map(|index| registry.counter("frames_total", "Frames.", &[("flp", &index.to_string())]))
        .collect();
    registry.report_as(
        "frames_total",
        Reporting::new().derive(&[Derived::Increment]),
    );
    let reporter = quick(&registry, collector.backend(""))
        .tag("host", "h1")
        .process("flp-1")
        .start()
        .unwrap();
    for _ in 0..20 {
        counters.iter().for_each(|counter| counter.add(2));
        collector.receive();
    }
    // The last sample has the time at which it was taken, all others that of their interval.
    let times = collector.samples.values().flatten().map(|sample| sample.0);
    assert!(times.clone().count() > 0 && times.clone().all(|at_ms| at_ms % 20 == 0));
    drop(reporter);
    collector.socket.set_nonblocking(true).unwrap();
    let mut buffer = vec![0; DATAGRAM_BYTES];
    while let Ok(length) = collector.socket.recv(&mut buffer) {
        collector.decode(&buffer[..length]);
    }
    let sent = collector.values(SENT);
    assert_eq!(sent.last(), Some(&(collector.count as f64)));
    assert!(
        collector
            .values(DROPPED)
            .iter()
            .all(|dropped| *dropped == 0.0)
    );
    let process = format!("{PROCESS}=\"flp-1\"");
    let account = collector
        .samples
        .keys()
        .find(|name| name.starts_with(SENT))
        .unwrap();
    assert!(
        account.contains(&process) && account.contains("host=\"h1\""),
        "{account}"
    );
    // Each counter arrived, with its last value and all of its increments.
    for index in 0..60 {
        let labels = Labels::new([
            ("__name__", "frames_total"),
            ("flp", &index.to_string()),
            ("host", "h1"),
        ]);
        let samples = &collector.samples[&labels.unwrap().to_string()];
        assert_eq!(samples.last().unwrap().1, 40.0, "counter {index}");
        let increments = format!("frames_total_increment{{flp=\"{index}\"");
        let sum: f64 = collector.values(&increments).iter().sum();
        assert_eq!(sum, 40.0 - samples[0].1);
    }
}

#[test]
fn an_event_is_sent_before_the_next_sample() {
    let registry = registry();
    let mut collector = Collector::new();
    let event = registry.event("link_status", "A link.", &[("link", "3")], &["up"]);
    let reporter = Reporter::builder(registry.clone())
        .interval(Duration::from_secs(3600))
        .backend(collector.backend(""))
        .start()
        .unwrap();
    for up in [1.0, 0.0, 1.0] {
        event.send(&[up]);
    }
    while collector.values("link_status_up").len() < 3 {
        collector.receive();
    }
    assert_eq!(collector.values("link_status_up"), [1.0, 0.0, 1.0]);
    drop(reporter);
}

#[test]
fn a_flush_samples_now_and_labels_follow_the_run() {
    let registry = registry();
    let mut collector = Collector::new();
    registry.counter("a_total", "Things.", &[]).increment();
    let reporter = Reporter::builder(registry.clone())
        .interval(Duration::from_secs(3600))
        .backend(collector.backend(""))
        .tag("run", "1")
        .start()
        .unwrap();
    reporter.flush();
    collector.await_series("a_total{run=\"1\"}");
    reporter.set_tag("run", "2");
    reporter.flush();
    collector.await_series("a_total{run=\"2\"}");
    reporter.set_tag("run", "");
    drop(reporter);
    collector.await_series("a_total");
}

#[test]
fn verbosity_of_metrics_and_back_ends_changes_while_they_run() {
    let registry = registry();
    let (mut all, mut few) = (Collector::new(), Collector::new());
    registry.counter("vital_total", "Things.", &[]).increment();
    registry.counter("debug_total", "Things.", &[]).increment();
    registry.report_as("vital_total", Reporting::new().verbosity(Verbosity::Prod));
    registry.set_policy(Policy::new([("^debug_", Verbosity::Debug)]).unwrap());
    let reporter = quick(&registry, all.backend("?verbosity=debug"))
        .backend(few.backend("?verbosity=prod"))
        .start()
        .unwrap();
    all.await_series("debug_total");
    few.await_series("vital_total");
    let prod = few.samples.keys().all(|name| {
        ["vital_total", SENT, DROPPED]
            .iter()
            .any(|known| name.starts_with(known))
    });
    assert!(prod, "{:?}", few.samples.keys());
    registry.set_policy(Policy::default());
    reporter.set_verbosity(Some(&few.backend("").name()), Verbosity::Info);
    few.await_series("debug_total");
}

#[test]
fn a_dead_back_end_loses_its_own_samples_and_counts_them() {
    let registry = registry();
    let mut collector = Collector::new();
    // A port that was free a moment ago, and a listener that never accepts what does not fit into its queue.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = UdpSocket::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let dead: Backend = format!("influxdb-udp://{dead}").parse().unwrap();
    let mute = format!("influxdb-tcp://{}", silent.local_addr().unwrap());
    let reporter = quick(&registry, collector.backend(""))
        .backend(dead.clone())
        .backend(mute.parse().unwrap())
        .start()
        .unwrap();
    let [_, dropped] = own::account(&registry, &dead.name());
    let start = Instant::now();
    while dropped.value() == 0 {
        assert!(start.elapsed() < PATIENCE);
        collector.receive();
    }
    let [_, dropped] = own::account(&registry, &collector.backend("").name());
    assert_eq!(dropped.value(), 0);
    let end = Instant::now();
    drop(reporter);
    assert!(end.elapsed() < PATIENCE, "the end waits for no back end");
}

#[test]
fn a_metric_that_nothing_else_updates_is_brought_up_to_date_before_every_sample() {
    let registry = registry();
    let mut collector = Collector::new();
    let mut calls = 0;
    let reporter = quick(&registry, collector.backend(""))
        .before_sample(move |registry| {
            calls += 1;
            registry
                .counter("calls_total", "Calls.", &[])
                .raise_to(calls);
        })
        .start()
        .unwrap();
    while collector.values("calls_total").len() < 3 {
        collector.receive();
    }
    let calls = collector.values("calls_total");
    assert_eq!(
        calls,
        (1..=calls.len())
            .map(|call| call as f64)
            .collect::<Vec<_>>()
    );
    drop(reporter);
}

#[test]
fn a_registry_has_one_reporter_at_a_time() {
    let registry = registry();
    let none = || "none://".parse().unwrap();
    let first = quick(&registry, none()).start().unwrap();
    let second = quick(&registry, none()).start().unwrap_err();
    assert!(matches!(second, ReporterError::Second), "{second}");
    drop(first);
    let third = quick(&registry, none()).start();
    assert!(third.is_ok());
    let twice = quick(&Arc::default(), none()).backend(none()).start();
    assert!(matches!(twice, Err(ReporterError::Twice(name)) if name == "none://"));
}

/// Collector over HTTP that takes every request; returns its bodies.
fn http_collector(requests: usize) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("influxdb-http://{}?db=x", listener.local_addr().unwrap());
    let serve = move || {
        let (stream, _) = listener.accept().unwrap();
        let mut reader = std::io::BufReader::new(stream);
        let mut bodies = Vec::new();
        while bodies.len() < requests {
            let mut length = 0;
            loop {
                let mut line = String::new();
                assert!(reader.read_line(&mut line).unwrap() > 0, "a whole request");
                let line = line.trim_end().to_ascii_lowercase();
                if let Some(text) = line.strip_prefix("content-length:") {
                    length = text.trim().parse().unwrap();
                }
                if line.is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            bodies.push(String::from_utf8(body).unwrap());
            let answer = b"HTTP/1.1 204 No Content\r\n\r\n";
            reader.get_mut().write_all(answer).unwrap();
        }
        bodies
    };
    (uri, std::thread::spawn(serve))
}

#[test]
fn the_last_sample_goes_to_another_collector_if_that_of_now_is_away() {
    let registry = registry();
    registry.counter("frames_total", "Frames.", &[]).add(5);
    // Nothing listens there.
    let gone = TcpListener::bind("127.0.0.1:0").unwrap();
    let away = format!("influxdb-http://{}?db=x", gone.local_addr().unwrap());
    drop(gone);
    let (there, bodies) = http_collector(1);
    let backends = [&away, &there].map(|uri| uri.parse::<Backend>().unwrap());
    let first_up = |is_up: &[bool]| is_up.iter().position(|is_up| *is_up).unwrap_or(0);
    let reporter = Reporter::builder(registry.clone())
        .collectors(backends, first_up)
        .interval(Duration::from_secs(3600))
        .start()
        .unwrap();
    drop(reporter);
    let bodies = bodies.join().unwrap();
    assert!(bodies[0].contains("frames_total value=5i"), "{bodies:?}");
    assert!(
        bodies[0].contains(&there[..there.find('?').unwrap()]),
        "{bodies:?}"
    );
    let mut page = String::new();
    registry.encode(&mut page);
    assert!(
        page.contains("\nmonitor_client_collector_changes_total 1\n"),
        "{page}"
    );
}
