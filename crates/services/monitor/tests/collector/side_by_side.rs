//! Collectors side by side: sources spread over them, one is lost, and each answers for all.

use super::{PATIENCE, ask, begin, config, get, now_ns};
use sheaf_metrics::{Backend, Counter, Registry, Reporter};
use sheaf_monitor::config::PeerConfig;
use sheaf_monitor::{Monitor, MonitorConfig};
use sheaf_placement::Spread;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SOURCES: usize = 24;

/// Settings of a collector that asks `peers` as well.
fn beside(data: &Path, peers: &[SocketAddr]) -> MonitorConfig {
    let peer = |at: &SocketAddr| PeerConfig {
        url: format!("http://{at}/"),
        ..PeerConfig::default()
    };
    MonitorConfig {
        peer: peers.iter().map(peer).collect(),
        ..config(data)
    }
}

/// Process that reports one counter to one of several collectors.
struct Source {
    name: String,
    frames: Arc<Counter>,
    reporter: Reporter,
}

impl Source {
    fn start(number: usize, collectors: &[String]) -> Self {
        let name = format!("epn:{number}");
        let registry = Arc::new(Registry::default());
        let frames = registry.counter("frames_total", "Frames.", &[]);
        let mut spread = Spread::new(&name, collectors.iter().map(String::as_str));
        let backends = collectors.iter().map(|uri| uri.parse::<Backend>().unwrap());
        let reporter = Reporter::builder(registry)
            .collectors(backends, move |is_up| spread.choose(is_up))
            .collector_pause(Duration::from_secs(3600))
            // Samples are taken when they are asked for.
            .interval(Duration::from_secs(3600))
            .cpu_share_max(1.0)
            .tag("source", &name)
            .process(&name)
            .start()
            .unwrap();
        Self {
            name,
            frames,
            reporter,
        }
    }

    fn step(&self) {
        self.frames.increment();
        self.reporter.flush();
    }
}

/// Values of `frames_total` by source, as a matrix of the last hour.
fn frames(at: SocketAddr) -> (BTreeMap<String, Vec<u64>>, serde_json::Value) {
    let answer = get(at, "/api/v1/query?query=frames_total%5B1h%5D");
    let rows = answer["data"]["result"].as_array().unwrap().iter();
    let frames = rows.map(|row| {
        let values = row["values"].as_array().unwrap().iter();
        let values = values.map(|pair| pair[1].as_str().unwrap().parse().unwrap());
        let source = row["metric"]["source"].as_str().unwrap().to_owned();
        (source, values.collect())
    });
    (frames.collect(), answer["warnings"].clone())
}

/// Asks until every source has `last` as its latest value.
#[track_caller]
fn await_frames(at: SocketAddr, last: u64) {
    let begun = Instant::now();
    loop {
        let (found, _) = frames(at);
        let is_there = |values: &Vec<u64>| values.last() == Some(&last);
        if found.len() == SOURCES && found.values().all(is_there) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{last}: {found:?}");
    }
}

/// Sources that a collector has itself.
fn own_sources(at: SocketAddr) -> BTreeSet<String> {
    let answer = get(at, "/api/sources?own=1");
    let rows = answer["sources"].as_array().unwrap().iter();
    rows.map(|row| row["source"].as_str().unwrap().to_owned())
        .collect()
}

fn uri(monitor: &Monitor) -> String {
    format!("influxdb-http://{}?db=farm", monitor.http())
}

#[test]
fn sources_of_a_collector_that_ends_go_on_at_the_other_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let [data_a, data_b] = ["a", "b"].map(|name| folder.path().join(name));
    let b = begin(&beside(&data_b, &[]));
    let a = begin(&beside(&data_a, &[b.http()]));
    let collectors = [uri(&a), uri(&b)];
    let sources: Vec<Source> = (0..SOURCES)
        .map(|number| Source::start(number, &collectors))
        .collect();
    let names: BTreeSet<String> = sources.iter().map(|one| one.name.clone()).collect();
    for last in 1..=3 {
        sources.iter().for_each(Source::step);
        await_frames(a.http(), last);
    }

    // Each has its share, and `a` answers for both.
    let (at_a, at_b) = (own_sources(a.http()), own_sources(b.http()));
    assert!(at_a.is_disjoint(&at_b), "{at_a:?} {at_b:?}");
    let both: BTreeSet<String> = at_a.union(&at_b).cloned().collect();
    assert_eq!(both, names);
    assert!(
        at_a.len().min(at_b.len()) >= SOURCES / 6,
        "{at_a:?} {at_b:?}"
    );
    let answer = get(a.http(), "/api/sources");
    let is_of_b = |row: &&serde_json::Value| !row["collector"].is_null();
    let rows = answer["sources"].as_array().unwrap();
    assert_eq!(answer["sources_total"], SOURCES);
    assert_eq!(rows.iter().filter(is_of_b).count(), at_b.len());
    let answer = get(a.http(), "/api/v1/label/source/values");
    let values = answer["data"].as_array().unwrap().iter();
    let values: BTreeSet<String> = values.map(|one| one.as_str().unwrap().to_owned()).collect();
    assert!(values.is_superset(&names), "{values:?}");

    b.end();
    for last in 4..=6 {
        sources.iter().for_each(Source::step);
        await_frames(a.http(), last);
    }
    let begun = Instant::now();
    while own_sources(a.http()) != names {
        assert!(begun.elapsed() < PATIENCE, "{:?}", own_sources(a.http()));
    }
    let (_, warnings) = frames(a.http());
    let text = warnings[0].as_str().unwrap_or_default();
    assert!(text.contains("its samples are missing"), "{warnings}");
    let (_, page) = ask(a.http(), "GET", "/metrics", "", b"");
    assert!(
        page.contains("monitor_peer_up{peer=\"http://127.0.0.1:"),
        "{page}"
    );
    // The end of a source sends a last sample.
    drop(sources);

    // What `b` had is there again with its store, and together all is there.
    let b = begin(&beside(&data_b, &[a.http()]));
    let (found, warnings) = frames(b.http());
    assert!(warnings.is_null(), "{warnings}");
    assert_eq!(found.keys().cloned().collect::<BTreeSet<_>>(), names);
    for (source, values) in found {
        let distinct: BTreeSet<u64> = values.iter().copied().collect();
        assert!(values.is_sorted(), "{source}: {values:?}");
        assert_eq!(distinct, (1..=6).collect(), "{source}");
    }
    a.end();
    b.end();
}

#[test]
fn a_source_that_went_to_another_collector_is_watched_there_alone() {
    let folder = tempfile::tempdir().unwrap();
    let with_watch = |mut config: MonitorConfig| {
        let watch = &mut config.alarms.limits.sources;
        (watch.settle_ms, watch.silent_ms) = (0, 20_000);
        config
    };
    let b = begin(&with_watch(beside(&folder.path().join("b"), &[])));
    let a = begin(&with_watch(beside(&folder.path().join("a"), &[b.http()])));
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let send = |to: &Monitor, source: &str| {
        let line = format!("load,source={source} value=1 {}\n", now_ns());
        socket.send_to(line.as_bytes(), to.udp()[0]).unwrap();
    };
    let heard = |at: &Monitor| {
        let answer = get(at.http(), "/api/alarms/sources?within_ms=600000");
        let sources = answer["sources"].as_object().unwrap();
        sources.keys().cloned().collect::<BTreeSet<String>>()
    };
    let set = |names: &[&str]| -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    };
    let begun = Instant::now();
    while heard(&a) != set(&["goes", "stays"]) {
        send(&a, "goes");
        send(&a, "stays");
        assert!(begun.elapsed() < PATIENCE, "{:?}", heard(&a));
    }
    // Both are heard there for the time that it takes to tell a move from a delay.
    while heard(&a) != set(&["stays"]) || !heard(&b).contains("goes") {
        send(&b, "goes");
        send(&b, "stays");
        send(&a, "stays");
        assert!(begun.elapsed() < PATIENCE, "{:?}", heard(&a));
    }
    a.end();
    b.end();
}
