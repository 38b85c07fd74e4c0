//! The client of this project as sender: each back end reaches the collector whole, and other receivers of the
//! same formats.

use super::{PATIENCE, ask, begin, config, get};
use sheaf_metrics::{Backend, Registry, Reporter};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Value that the counter of [`report`] ends with.
const FRAMES: u64 = 7;

/// Reports a counter, a gauge of real numbers and a histogram to `uri` for a few intervals, as the source `way`.
fn report(way: &str, uri: &str) {
    let registry = Arc::new(Registry::default());
    let reporter = Reporter::builder(registry.clone())
        .backend(uri.parse::<Backend>().unwrap())
        .interval(Duration::from_millis(20))
        .cpu_share_max(1.0)
        .tag("source", way)
        .process("test-1")
        .start()
        .unwrap();
    let frames = registry.counter("frames_total", "Frames.", &[]);
    let load = registry.real_gauge("load_ratio", "Load.", &[("core", "0")]);
    let wait = registry.histogram(
        "wait_seconds",
        "Waits.",
        &[],
        sheaf_metrics::Scale::DURATION_NS,
    );
    load.set(0.25);
    for _ in 0..FRAMES {
        frames.increment();
        wait.record(1_000_000);
        reporter.flush();
    }
    // Sends a last sample.
    drop(reporter);
}

/// Asks until `found` returns a value.
#[track_caller]
fn awaited<T>(what: &str, mut found: impl FnMut() -> Result<T, String>) -> T {
    let begun = Instant::now();
    loop {
        match found() {
            Ok(value) => return value,
            Err(last) => assert!(begun.elapsed() < PATIENCE, "{what}: {last}"),
        }
        std::thread::yield_now();
    }
}

/// Values of a PromQL answer by the label `source`.
fn by_source(at: SocketAddr, expr: &str) -> BTreeMap<String, f64> {
    let answer = get(at, &format!("/api/v1/query?query={expr}"));
    let rows = answer["data"]["result"].as_array().unwrap().clone();
    let value = |row: &serde_json::Value| {
        let source = row["metric"]["source"].as_str().unwrap_or_default();
        let value = row["value"][1].as_str().unwrap().parse().unwrap();
        (source.to_owned(), value)
    };
    rows.iter().map(value).collect()
}

#[test]
fn every_back_end_of_the_client_reaches_the_collector_whole() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("lines.sock");
    let mut config = config(&folder.path().join("data"));
    config.unix = vec![socket.clone()];
    let monitor = begin(&config);
    let (http, udp, tcp) = (monitor.http(), monitor.udp()[0], monitor.tcp()[0]);
    let ways = [
        ("influxdb-udp", format!("influxdb-udp://{udp}")),
        (
            "influxdb-unix",
            format!("influxdb-unix://{}", socket.display()),
        ),
        ("influxdb-tcp", format!("influxdb-tcp://{tcp}")),
        ("influxdb-http", format!("influxdb-http://{http}?db=farm")),
        (
            "influxdb-http2",
            format!("influxdb-http2://{http}?org=lab&bucket=farm"),
        ),
        (
            "remote-write",
            format!("remote-write://{http}/api/v1/write"),
        ),
    ];
    std::thread::scope(|scope| {
        for (way, uri) in &ways {
            scope.spawn(move || report(way, uri));
        }
    });
    let expected: BTreeMap<String, f64> = ways
        .iter()
        .map(|(way, _)| ((*way).to_owned(), FRAMES as f64))
        .collect();
    awaited("frames_total", || {
        let found = by_source(http, "frames_total");
        (found == expected)
            .then_some(())
            .ok_or_else(|| format!("{found:?}"))
    });
    for (expr, value) in [("load_ratio", 0.25), ("wait_seconds_count", FRAMES as f64)] {
        let found = by_source(http, expr);
        assert_eq!(found.len(), ways.len(), "{expr}: {found:?}");
        assert!(found.values().all(|one| *one == value), "{expr}: {found:?}");
    }
    // The count that each client has sent of its own samples is that of the samples taken, and of those stored in all.
    let rows = awaited("accounting", || {
        let sent = by_source(http, "monitor_client_samples_sent_total");
        let answer = get(http, "/api/sources");
        let rows = answer["sources"].as_array().unwrap().clone();
        let is_even = |row: &serde_json::Value| {
            let taken = row["taken"].as_u64().unwrap() as f64;
            row["lost"] == 0 && sent.get(row["source"].as_str().unwrap()) == Some(&taken)
        };
        let is_whole = rows.len() == ways.len() && rows.iter().all(is_even);
        is_whole
            .then_some(rows)
            .ok_or_else(|| format!("{sent:?} {answer}"))
    });
    let taken: u64 = rows.iter().map(|row| row["taken"].as_u64().unwrap()).sum();
    awaited("store", || {
        let stored = get(http, "/api/stats")["store"]["samples"].as_u64();
        (stored == Some(taken))
            .then_some(())
            .ok_or_else(|| format!("{stored:?} of {taken}"))
    });
    monitor.end();
}

#[test]
fn the_page_of_the_collector_is_as_promtool_expects_it() {
    let folder = tempfile::tempdir().unwrap();
    let monitor = begin(&config(folder.path()));
    report("one", &format!("influxdb-udp://{}", monitor.udp()[0]));
    // Shards and store write their figures within a second of their start.
    let text = awaited("page", || {
        let (_, text) = ask(monitor.http(), "GET", "/metrics", "", b"");
        let mut metrics = sheaf_monitor::metrics().filter(|metric| metric.labels.is_empty());
        match metrics.find(|metric| !text.contains(&format!("# HELP {} ", metric.name))) {
            None => Ok(text),
            Some(metric) => Err(format!("no {}: {text}", metric.name)),
        }
    });
    let path = folder.path().join("page");
    std::fs::write(&path, &text).unwrap();
    let page = std::fs::File::open(&path).unwrap();
    let command = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(page)
        .output();
    match command {
        Ok(ended) => {
            let said = String::from_utf8_lossy(&ended.stderr);
            assert!(ended.status.success() && said.is_empty(), "{said}");
        }
        Err(_) => println!("skipped: promtool is not installed"),
    }
    monitor.end();
}

/// Server of another project, ended with the test.
struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts `program`, and waits until it answers at `path` of `http`. None if it is not installed.
fn peer(program: &str, words: &[String], http: SocketAddr, path: &str) -> Option<Peer> {
    let child = Command::new(program)
        .args(words)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(child) = child else {
        println!("skipped: {program} is not installed");
        return None;
    };
    let mut peer = Peer(child);
    awaited(program, || {
        let ended = peer.0.try_wait().unwrap();
        assert!(ended.is_none(), "{program} ended: {ended:?}");
        TcpStream::connect(http).map_err(|error| error.to_string())?;
        let (status, body) = ask(http, "GET", path, "", b"");
        (status < 300).then_some(()).ok_or(body)
    });
    Some(peer)
}

/// Address of loopback that was free a moment ago, over TCP and UDP.
fn free() -> SocketAddr {
    loop {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = tcp.local_addr().unwrap();
        if UdpSocket::bind(address).is_ok() {
            return address;
        }
    }
}

/// Awaits an answer to `path` that has `text` in it.
#[track_caller]
fn await_text(at: SocketAddr, path: &str, text: &str) {
    awaited(path, || {
        let (_, body) = ask(at, "GET", path, "", b"");
        body.contains(text).then_some(()).ok_or(body)
    });
}

#[test]
fn influxdb_takes_lines_over_http_and_udp() {
    let folder = tempfile::tempdir().unwrap();
    let (http, udp, backup) = (free(), free(), free());
    let place = |name: &str| folder.path().join(name).display().to_string();
    let text = format!(
        "reporting-disabled = true\nbind-address = \"{backup}\"\n\
         [meta]\ndir = \"{}\"\n[data]\ndir = \"{}\"\nwal-dir = \"{}\"\n\
         [http]\nbind-address = \"{http}\"\n\
         [[udp]]\nenabled = true\nbind-address = \"{udp}\"\ndatabase = \"farm\"\nbatch-timeout = \"10ms\"\n",
        place("meta"),
        place("data"),
        place("wal")
    );
    let file = place("influxd.conf");
    std::fs::write(&file, text).unwrap();
    let Some(_peer) = peer("influxd", &["-config".to_owned(), file], http, "/ping") else {
        return;
    };
    let (status, body) = ask(http, "POST", "/query?q=CREATE%20DATABASE%20farm", "", b"");
    assert_eq!(status, 200, "{body}");
    for (way, uri) in [
        ("http", format!("influxdb-http://{http}?db=farm")),
        ("udp", format!("influxdb-udp://{udp}")),
    ] {
        report(way, &uri);
        let query = format!(
            "/query?db=farm&q=SELECT%20last(value)%20FROM%20frames_total%20WHERE%20source='{way}'"
        );
        await_text(http, &query, &format!(",{FRAMES}]"));
    }
}

#[test]
fn victoria_metrics_takes_lines_and_remote_write() {
    let folder = tempfile::tempdir().unwrap();
    let (http, lines) = (free(), free());
    let words = [
        format!("-httpListenAddr={http}"),
        format!("-influxListenAddr={lines}"),
        format!("-storageDataPath={}", folder.path().display()),
        "-search.latencyOffset=0s".to_owned(),
        "-influxSkipSingleField".to_owned(),
    ];
    let Some(_peer) = peer("victoria-metrics", &words, http, "/health") else {
        return;
    };
    let ways = [
        ("udp", format!("influxdb-udp://{lines}")),
        ("tcp", format!("influxdb-tcp://{lines}")),
        ("http", format!("influxdb-http://{http}?db=farm")),
        ("remote", format!("remote-write://{http}/api/v1/write")),
    ];
    for (way, uri) in &ways {
        report(way, uri);
    }
    // It takes about 10 s to show new series.
    for (way, _) in &ways {
        let query = format!("/api/v1/query?query=frames_total%7Bsource=%22{way}%22%7D");
        await_text(http, &query, &format!(",\"{FRAMES}\"]"));
    }
}

#[test]
fn prometheus_takes_remote_write_and_scrapes_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let (http, page) = (free(), free());
    let file = folder.path().join("prometheus.yml");
    let text = format!(
        "scrape_configs:\n- job_name: page\n  scrape_interval: 100ms\n  scrape_timeout: 100ms\n  \
         static_configs:\n  - targets: ['{page}']\n"
    );
    std::fs::write(&file, text).unwrap();
    let words = [
        format!("--config.file={}", file.display()),
        format!("--storage.tsdb.path={}", data(folder.path())),
        format!("--web.listen-address={http}"),
        "--web.enable-remote-write-receiver".to_owned(),
    ];
    let Some(_peer) = peer("prometheus", &words, http, "/-/ready") else {
        return;
    };
    report("remote", &format!("remote-write://{http}/api/v1/write"));
    let query = "/api/v1/query?query=frames_total%7Bsource=%22remote%22%7D";
    await_text(http, query, &format!(",\"{FRAMES}\"]"));

    let registry = Arc::new(Registry::default());
    registry.counter("frames_total", "Frames.", &[]).add(FRAMES);
    let uri = format!("prometheus://{page}");
    let reporter = Reporter::builder(registry)
        .backend(uri.parse().unwrap())
        .start();
    let query = "/api/v1/query?query=frames_total%7Bjob=%22page%22%7D";
    await_text(http, query, &format!(",\"{FRAMES}\"]"));
    drop(reporter.unwrap());
}

fn data(folder: &Path) -> String {
    folder.join("data").display().to_string()
}
