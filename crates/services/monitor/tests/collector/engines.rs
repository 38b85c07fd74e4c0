//! Engines past the collector: VictoriaMetrics, Prometheus, InfluxDB and Kafka, killed for 30 s and started again.
//!
//! `SHEAF_OUTAGE_S=2` in the environment makes the outage shorter, for work on these tests.

use super::peers::{Peer, await_listening, free, pause};
use super::senders::await_value;
use super::{PATIENCE, ask, await_values, begin, config, get};
use sheaf_monitor::config::{ForwardConfig, ForwardKind};
use sheaf_monitor::{Monitor, MonitorConfig};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Samples of a test, a quarter of them in each of its parts.
pub(super) const SAMPLES: i64 = 2_000;

/// Returns for how long an engine is away.
fn outage() -> Duration {
    let text = std::env::var("SHEAF_OUTAGE_S").unwrap_or_else(|_| "30".to_owned());
    Duration::from_secs(text.parse().expect("SHEAF_OUTAGE_S is a number of seconds"))
}

pub(super) fn forward(kind: ForwardKind, url: String) -> ForwardConfig {
    ForwardConfig {
        name: "engine".to_owned(),
        kind,
        url,
        retry_ms_max: 500,
        ..ForwardConfig::default()
    }
}

pub(super) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

/// Writes the samples `from..to` of 10 series, one a ms from `begin_ms` on.
fn write(monitor: &Monitor, begin_ms: i64, from: i64, to: i64) {
    let lines: String = (from..to)
        .map(|n| format!("forwarded,host=h{} value={n} {}\n", n % 10, begin_ms + n))
        .collect();
    let http = monitor.http();
    let (status, body) = ask(http, "POST", "/write?precision=ms", "", lines.as_bytes());
    assert_eq!(status, 204, "{body}");
}

/// Kills an engine, writes meanwhile, restarts the collector, and counts what the engine has in the end.
pub(super) fn check(
    engine: impl Fn(&Path) -> Option<Peer>,
    address: SocketAddr,
    forward: ForwardConfig,
    count: impl Fn() -> i64,
) {
    let folder = tempfile::tempdir().unwrap();
    let Some(running) = engine(folder.path()) else {
        return;
    };
    await_listening(address);
    let config = MonitorConfig {
        forward: vec![forward],
        ..config(&folder.path().join("data"))
    };
    let monitor = begin(&config);
    let begin_ms = now_ms() - SAMPLES;
    let quarter = SAMPLES / 4;
    write(&monitor, begin_ms, 0, quarter);
    await_count(&count, quarter);
    drop(running);
    let away = Instant::now();
    write(&monitor, begin_ms, quarter, 2 * quarter);
    await_value(monitor.http(), "forwarded", |_| true);
    // What waits is still there after a restart of the collector.
    monitor.end();
    let monitor = begin(&config);
    write(&monitor, begin_ms, 2 * quarter, 3 * quarter);
    while away.elapsed() < outage() {
        pause();
    }
    let metrics = ask(monitor.http(), "GET", "/metrics", "", b"").1;
    let line = metrics
        .lines()
        .find(|line| line.starts_with("monitor_forward_failures_total"));
    let failures = line.and_then(|line| line.split(' ').nth(1)).unwrap();
    assert_ne!(failures, "0", "{metrics}");
    let _running = engine(folder.path());
    await_listening(address);
    write(&monitor, begin_ms, 3 * quarter, SAMPLES);
    await_count(&count, SAMPLES);
    let metrics = ask(monitor.http(), "GET", "/metrics", "", b"").1;
    for reason in ["full", "refused", "unfit", "disk"] {
        let zero =
            format!("monitor_forward_dropped_total{{forward=\"engine\",reason=\"{reason}\"}} 0");
        assert!(metrics.contains(&zero), "{metrics}");
    }
    monitor.end();
}

#[track_caller]
pub(super) fn await_count(count: impl Fn() -> i64, expected: i64) {
    let begun = Instant::now();
    loop {
        let found = count();
        if found == expected {
            return;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "found {found}, expected {expected}"
        );
        pause();
    }
}

/// Counts different times of samples by the API of Prometheus.
fn count_by_promql(address: SocketAddr) -> i64 {
    let query = "count_over_time(forwarded[10m])";
    let answer = get(address, &format!("/api/v1/query?query={query}"));
    let rows = answer["data"]["result"].as_array().unwrap();
    let counts = rows.iter().map(|row| row["value"][1].as_str().unwrap());
    counts.map(|count| count.parse::<i64>().unwrap()).sum()
}

fn victoria(address: SocketAddr, folder: &Path) -> Option<Peer> {
    let listen = format!("-httpListenAddr={address}");
    let args = [
        "-storageDataPath=vm",
        "-dedup.minScrapeInterval=1ms",
        &listen,
    ];
    Peer::start("victoria-metrics", &args, folder)
}

/// Joins the chunks of a body (RFC 9112, section 7.1); one without them stays as it is.
fn whole(text: &str) -> String {
    let (mut rest, mut all) = (text, String::new());
    while let Some((size, behind)) = rest.split_once("\r\n") {
        match usize::from_str_radix(size, 16) {
            Ok(0) => break,
            Ok(size) => {
                all += &behind[..size];
                rest = &behind[size + 2..];
            }
            Err(_) => return text.to_owned(),
        }
    }
    if all.is_empty() { text.to_owned() } else { all }
}

/// VictoriaMetrics shows new samples late, and loses those of its last 5 s when it is killed, by its design: a snapshot
/// makes it show and keep them.
fn flush(address: SocketAddr) {
    let _ = ask(address, "GET", "/snapshot/create", "", b"");
}

#[test]
fn victoriametrics_gets_everything_over_an_outage() {
    let address = free();
    check(
        |folder| victoria(address, folder),
        address,
        forward(
            ForwardKind::RemoteWrite,
            format!("http://{address}/api/v1/write"),
        ),
        || {
            flush(address);
            let path = "/api/v1/export?match[]=forwarded";
            let (_, text) = ask(address, "GET", path, "", b"");
            let text = whole(&text);
            let lines = text
                .lines()
                .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
            let times =
                lines.flat_map(|line| line["timestamps"].as_array().cloned().unwrap_or_default());
            let times: std::collections::BTreeSet<i64> =
                times.filter_map(|at| at.as_i64()).collect();
            i64::try_from(times.len()).unwrap()
        },
    );
}

#[test]
fn prometheus_gets_everything_over_an_outage() {
    let address = free();
    let engine = |folder: &Path| {
        std::fs::write(folder.join("prometheus.yml"), "global: {}\n").unwrap();
        let listen = format!("--web.listen-address={address}");
        let args = [
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=tsdb",
            "--web.enable-remote-write-receiver",
            &listen,
        ];
        let peer = Peer::start("prometheus", &args, folder)?;
        await_listening(address);
        // It listens while it still reads its log, and answers 503.
        let begun = Instant::now();
        while ask(address, "GET", "/-/ready", "", b"").0 != 200 {
            assert!(begun.elapsed() < PATIENCE, "Prometheus is not ready");
            pause();
        }
        Some(peer)
    };
    let url = format!("http://{address}/api/v1/write");
    let forward = forward(ForwardKind::RemoteWrite, url);
    check(engine, address, forward, || count_by_promql(address));
}

#[test]
fn influxdb_gets_everything_over_an_outage() {
    let (address, other) = (free(), free());
    let engine = |folder: &Path| {
        let text = format!(
            "reporting-disabled = true\nbind-address = \"{other}\"\n[meta]\ndir = \"meta\"\n[data]\ndir = \"points\"\n\
             wal-dir = \"wal\"\n[http]\nbind-address = \"{address}\"\n"
        );
        std::fs::write(folder.join("influxdb.conf"), text).unwrap();
        let peer = Peer::start("influxd", &["-config", "influxdb.conf"], folder)?;
        await_listening(address);
        let (status, body) = ask(
            address,
            "POST",
            "/query?q=CREATE%20DATABASE%20farm",
            "",
            b"",
        );
        assert_eq!(status, 200, "{body}");
        Some(peer)
    };
    let url = format!("http://{address}/write?db=farm");
    check(engine, address, forward(ForwardKind::Influxdb, url), || {
        let query = "/query?db=farm&q=SELECT%20count(value)%20FROM%20forwarded";
        let answer = get(address, query);
        answer["results"][0]["series"][0]["values"][0][1]
            .as_i64()
            .unwrap_or(0)
    });
}

#[test]
fn a_second_collector_gets_otlp_and_answers_queries() {
    let folder = tempfile::tempdir().unwrap();
    let second = begin(&config(&folder.path().join("second")));
    let url = format!("http://{}/v1/metrics", second.http());
    let first = MonitorConfig {
        forward: vec![forward(ForwardKind::Otlp, url)],
        query_from: format!("http://{}", second.http()),
        ..config(&folder.path().join("first"))
    };
    let first = begin(&first);
    let (status, _) = ask(
        first.http(),
        "POST",
        "/write",
        "",
        b"tf_total,host=a value=7\n",
    );
    assert_eq!(status, 204);
    await_values(second.http(), "tf_total", "host", &[("a", "7")]);
    // Only the second has this one, and the first answers.
    let (status, _) = ask(
        second.http(),
        "POST",
        "/write",
        "",
        b"elsewhere,host=b value=3\n",
    );
    assert_eq!(status, 204);
    await_values(first.http(), "elsewhere", "host", &[("b", "3")]);
    second.end();
    let (status, body) = ask(
        first.http(),
        "GET",
        "/api/v1/query?query=elsewhere",
        "",
        b"",
    );
    assert_eq!(status, 502, "{body}");
    first.end();
}
