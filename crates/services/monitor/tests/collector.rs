//! A collector from its sockets to its answers: every protocol in, the query API out, restarts in between.

#[path = "collector/access.rs"]
mod access;
#[path = "collector/alarms.rs"]
mod alarms;
#[path = "collector/client.rs"]
mod client;
#[path = "collector/engines.rs"]
mod engines;
#[path = "collector/kafka.rs"]
mod kafka;
#[path = "collector/peers.rs"]
mod peers;
#[path = "collector/senders.rs"]
mod senders;
#[path = "collector/side_by_side.rs"]
mod side_by_side;
#[path = "collector/spark.rs"]
mod spark;

use sheaf_metrics::Registry;
use sheaf_monitor::{Monitor, MonitorConfig, start};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const PATIENCE: Duration = Duration::from_secs(30);

fn config(data: &Path) -> MonitorConfig {
    MonitorConfig {
        http: "127.0.0.1:0".to_owned(),
        udp: vec!["127.0.0.1:0".to_owned()],
        tcp: vec!["127.0.0.1:0".to_owned()],
        data: data.to_owned(),
        ..MonitorConfig::default()
    }
}

fn begin(config: &MonitorConfig) -> Monitor {
    start(config, Arc::new(Registry::default())).unwrap()
}

fn now_ns() -> u128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_nanos()
}

/// Sends one request; returns status and body.
fn ask(at: SocketAddr, method: &str, path: &str, headers: &str, body: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

fn get(at: SocketAddr, path: &str) -> serde_json::Value {
    let (status, body) = ask(at, "GET", path, "", b"");
    assert_eq!(status, 200, "{path}: {body}");
    let body = body
        .split("\r\n")
        .find(|part| part.starts_with('{'))
        .unwrap_or(&body);
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
}

/// Asks until `expr` has as many series as `expected` and returns their values, by `label`.
#[track_caller]
fn await_values(at: SocketAddr, expr: &str, label: &str, expected: &[(&str, &str)]) {
    let path = format!("/api/v1/query?query={expr}");
    let begun = Instant::now();
    loop {
        let answer = get(at, &path);
        let rows = answer["data"]["result"].as_array().unwrap();
        let mut found: Vec<(String, String)> = rows
            .iter()
            .map(|row| {
                let name = row["metric"][label].as_str().unwrap_or_default().to_owned();
                (name, row["value"][1].as_str().unwrap().to_owned())
            })
            .collect();
        found.sort();
        let found: Vec<(&str, &str)> = found
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        if found == expected {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{expr}: {answer}");
    }
}

#[test]
fn lines_over_every_way_are_found_by_a_query_and_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(&folder.path().join("data"));
    config.unix = vec![folder.path().join("lines.sock")];
    let monitor = begin(&config);
    let line = |way: &str| format!("load,way={way} value=1.5 {}\n", now_ns());

    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.send_to(line("udp").as_bytes(), monitor.udp()[0])
        .unwrap();
    let unix = UnixDatagram::unbound().unwrap();
    unix.send_to(line("unix").as_bytes(), &config.unix[0])
        .unwrap();
    let mut tcp = TcpStream::connect(monitor.tcp()[0]).unwrap();
    tcp.write_all(line("tcp").trim_end().as_bytes()).unwrap(); // no line end: the end of the stream ends it
    drop(tcp);
    let http = monitor.http();
    let (status, body) = ask(http, "POST", "/write?db=x", "", line("http").as_bytes());
    assert_eq!(status, 204, "{body}");
    let in_ms = format!("load,way=v2 value=1.5 {}", now_ns() / 1_000_000);
    let (status, _) = ask(
        http,
        "POST",
        "/api/v2/write?precision=ms",
        "",
        in_ms.as_bytes(),
    );
    assert_eq!(status, 204);
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(line("gzip").as_bytes()).unwrap();
    let gz = gz.finish().unwrap();
    let (status, body) = ask(http, "POST", "/write", "Content-Encoding: gzip\r\n", &gz);
    assert_eq!(status, 204, "{body}");

    let expected = ["gzip", "http", "tcp", "udp", "unix", "v2"].map(|way| (way, "1.5"));
    await_values(http, "load", "way", &expected);
    monitor.end();

    let monitor = begin(&config);
    await_values(monitor.http(), "load", "way", &expected);
    monitor.end();
}

#[test]
fn bad_lines_are_named_and_their_neighbours_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    let monitor = begin(&config(folder.path()));
    let http = monitor.http();
    let (status, body) = ask(
        http,
        "POST",
        "/write",
        "",
        b"good,host=a value=1\nbad\ngood,host=b value=2\n",
    );
    assert_eq!(status, 400);
    assert!(body.contains("2 samples taken, 1 bad"), "{body}");
    await_values(http, "good", "host", &[("a", "1"), ("b", "2")]);
    let sources = get(http, "/api/sources");
    let bad: u64 = sources["sources"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|row| row["bad"].as_object().unwrap().values())
        .map(|count| count.as_u64().unwrap())
        .sum();
    assert_eq!(bad, 1, "{sources:#}");
    let (_, metrics) = ask(http, "GET", "/metrics", "", b"");
    assert!(
        metrics.contains("monitor_samples_taken_total 2"),
        "{metrics}"
    );
    for (method, path, status, word) in [
        ("GET", "/api/v1/query", 400, "query"),
        ("GET", "/api/v1/query?query=sum(", 400, "bad_data"),
        (
            "GET",
            "/api/v1/query_range?query=up&start=1&end=2&step=0",
            400,
            "step",
        ),
        ("POST", "/write?precision=fortnight", 400, "fortnight"),
        ("GET", "/api/nothing", 404, "monitor-api"),
        ("GET", "/api/live", 400, "expressions"),
    ] {
        let (found, body) = ask(http, method, path, "", b"");
        assert_eq!(found, status, "{path}: {body}");
        assert!(body.contains(word), "{path}: {body}");
    }
    monitor.end();
}

#[test]
fn live_values_come_as_events() {
    let folder = tempfile::tempdir().unwrap();
    let monitor = begin(&config(folder.path()));
    let http = monitor.http();
    let (status, _) = ask(
        http,
        "POST",
        "/write",
        "",
        b"tf_rate,epn=1 value=7\ntf_rate,epn=2 value=8\n",
    );
    assert_eq!(status, 204);
    await_values(http, "tf_rate", "epn", &[("1", "7"), ("2", "8")]);
    let mut stream = TcpStream::connect(http).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
        .write_all(b"GET /api/live?q=tf_rate&q=sum(tf_rate)&hz=10 HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let mut lines = BufReader::new(&stream).lines();
    let mut next = |event: &str| -> serde_json::Value {
        loop {
            let line = lines.next().unwrap().unwrap();
            if line == format!("event: {event}") {
                let data = lines.next().unwrap().unwrap();
                return serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
            }
        }
    };
    let series = next("series");
    assert_eq!(series["labels"][1]["epn"], "2", "{series}");
    assert_eq!(next("series")["q"], 1);
    assert_eq!(next("frame")["v"], serde_json::json!([[7.0, 8.0], [15.0]]));
    assert_eq!(next("frame")["n"], 2);
    monitor.end();
}

#[test]
fn open_addresses_are_refused_and_taken_ones_named() {
    let folder = tempfile::tempdir().unwrap();
    let open = MonitorConfig {
        http: "0.0.0.0:0".to_owned(),
        ..config(folder.path())
    };
    let error = start(&open, Arc::new(Registry::default())).err().unwrap();
    assert!(
        error.to_string().contains("monitor.security.insecure"),
        "{error}"
    );
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = MonitorConfig {
        http: taken.local_addr().unwrap().to_string(),
        ..config(folder.path())
    };
    let error = start(&busy, Arc::new(Registry::default())).err().unwrap();
    assert!(
        error.to_string().starts_with("cannot listen at 127.0.0.1"),
        "{error}"
    );
}
