//! `sheaf monitor` beside a farm: the samples of every node arrive, and none is lost.

use crate::harness::{DemoDir, Running, farm_turn, free_address, sheaf, write};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How long anything may take before it counts as never happening.
const PATIENCE: Duration = Duration::from_secs(60);

/// A collector that runs.
struct Collector {
    process: Running,
    http: SocketAddr,
    udp: SocketAddr,
}

impl Collector {
    fn start() -> Self {
        let any = "127.0.0.1:0";
        let process = Running::start(&["monitor", "--http", any, "--udp", any, "--data", ""]);
        let line: Value = serde_json::from_str(&process.await_line("listening")).unwrap();
        let address = |value: &Value| value.as_str().unwrap().parse().unwrap();
        Self {
            http: address(&line["http"]),
            udp: address(&line["udp"][0]),
            process,
        }
    }

    /// Waits until the query has an answer that `is_wanted`, by the label `node`.
    #[track_caller]
    fn await_nodes(&self, query: &str, is_wanted: impl Fn(&[(String, f64)]) -> bool) {
        let start = Instant::now();
        loop {
            let found = nodes(self.http, query);
            if is_wanted(&found) {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "{query}: {found:?}");
            std::thread::yield_now();
        }
    }
}

fn get(at: SocketAddr, route: &str) -> Value {
    let mut stream = TcpStream::connect(at).unwrap();
    write!(
        stream,
        "GET {route} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{route}: {text}");
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{route}: {error}: {text}"))
}

/// Returns the values of a query, by the label `node`.
fn nodes(at: SocketAddr, query: &str) -> Vec<(String, f64)> {
    let answer = get(at, &format!("/api/v1/query?query={query}"));
    let result = answer["data"]["result"].as_array().unwrap();
    let mut found: Vec<_> = result
        .iter()
        .map(|one| {
            let node = one["metric"]["node"].as_str().unwrap_or_default();
            let value = one["value"][1].as_str().unwrap();
            (node.to_owned(), value.parse().unwrap())
        })
        .collect();
    found.sort_by(|one, two| one.0.cmp(&two.0));
    found
}

fn names(found: &[(String, f64)]) -> Vec<&str> {
    found.iter().map(|(node, _)| node.as_str()).collect()
}

#[test]
fn samples_of_every_node_arrive_and_none_is_lost() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let collector = Collector::start();
    let (address, udp) = (free_address(), collector.udp);
    let text = format!(
        "[run]\nflps = 1\nepns = 2\n[icn]\naddress = \"{address}\"\n\
         [flp]\nhold_bytes = 16777216\nrate_hz = 50.0\nstf_bytes_max = 1048576\n\
         [flp.source]\nkind = \"generator\"\nbytes_mean = 10000\n\
         [epn.build]\ncapacity_bytes = 16777216\n\
         [icn.scheduler]\nstf_bytes_max = 1048576\ntf_bytes_max = 4194304\n\
         [metrics]\nbackends = [\"influxdb-udp://{udp}\"]\ninterval_ms = 200\nfarm = \"north\"\n"
    );
    let config = write(folder.path(), "farm.toml", &text);
    let start = |role: &str, index: &str| {
        Running::start(&["run", role, "--config", &config, "--index", index])
    };
    let icn = start("icn", "0");
    icn.await_line("listening");
    let nodes = [start("flp", "0"), start("epn", "0"), start("epn", "1")];
    let all = ["epn:0", "epn:1", "flp:0", "icn:0"];
    // What a node counts before it stands in a run is another series, which stays visible for a while.
    let in_run = "process_cpu_seconds_total{run!=%22%22}";
    collector.await_nodes(in_run, |found| names(found) == all);
    collector.await_nodes("balance_node_up==1", |found| names(found) == all[..3]);
    collector.await_nodes("build_tf_complete_total%3E5", |found| {
        names(found) == all[..2]
    });
    let ended = sheaf(&["ctl", "stop", "--config", &config]);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    for node in nodes.into_iter().chain([icn]) {
        assert!(node.end().status.success());
    }

    // Both EPNs together have built what the ICN has counted: the last samples of all came at their ends.
    let total = |query: &str| {
        let found = crate::monitored::nodes(collector.http, query);
        found.iter().map(|(_, value)| *value).sum::<f64>()
    };
    let start = Instant::now();
    let counts = || {
        let built = total("sum(build_tf_complete_total)");
        (built, total("sum(balance_tf_complete_total)"))
    };
    while {
        let (built, counted) = counts();
        built != counted
    } {
        assert!(start.elapsed() < PATIENCE, "{:?}", counts());
        std::thread::yield_now();
    }

    let answer = get(collector.http, "/api/sources");
    let sources = answer["sources"].as_array().unwrap();
    assert!(!sources.is_empty(), "{answer:#}");
    for source in sources {
        assert_eq!(source["lost"], 0, "{answer:#}");
        assert_eq!(source["dropped"], 0, "{answer:#}");
        assert!(source["sent"].as_u64().unwrap() > 0, "{answer:#}");
        for losses in [&source["bad"], &source["refused"]] {
            assert_eq!(
                losses.as_object().map(serde_json::Map::len),
                Some(0),
                "{answer:#}"
            );
        }
    }
    collector.process.signal(rustix::process::Signal::TERM);
    let ended = collector.process.end();
    assert!(ended.status.success(), "{}", ended.stderr);
}

#[test]
fn a_demo_has_a_collector_that_shows_a_killed_node_and_ends_with_it() {
    let _turn = farm_turn();
    let dir = DemoDir::new();
    let words = dir.words("--rate 50 --orbits-per-tf 2 --kill epn:2@1s");
    let words: Vec<_> = words
        .iter()
        .filter(|word| *word != "--no-monitor")
        .collect();
    let demo = Running::start(&words);
    let line = demo.await_line("monitoring pages at http://");
    let (_, address) = line.rsplit_once("http://").unwrap();
    let http: SocketAddr = address.trim_end_matches('/').parse().unwrap();
    let start = Instant::now();
    let query = "balance_node_state{state=%22up%22}==0";
    while names(&nodes(http, query)) != ["epn:2"] {
        assert!(start.elapsed() < PATIENCE, "{:?}", nodes(http, query));
        std::thread::yield_now();
    }
    demo.signal(rustix::process::Signal::INT);
    let ended = demo.end();
    assert!(ended.status.success(), "{}", ended.stderr);
    let told = |line: &&String| line.contains("monitoring pages");
    assert_eq!(ended.stdout.iter().filter(told).count(), 0, "told once");
    assert!(TcpStream::connect(http).is_err(), "the collector is gone");
    let log = std::fs::read_to_string(dir.out().join("monitor.log")).unwrap();
    assert!(
        log.contains("all samples that it took are committed"),
        "{log}"
    );
    dir.summary().assert_sound();
}
