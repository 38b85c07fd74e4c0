//! Real senders: collectd, Prometheus both ways, OpenTelemetry's SDK for Python, StatsD.

use super::peers::{Peer, await_listening, free, pause};
use super::{PATIENCE, ask, await_values, begin, config, get};
use sheaf_monitor::config::{CollectdConfig, ScrapeConfig};
use sheaf_monitor::{Monitor, MonitorConfig};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Asks until `expr` has a value that `is_good` accepts.
#[track_caller]
pub(crate) fn await_value(at: SocketAddr, expr: &str, is_good: impl Fn(f64) -> bool) {
    let begun = Instant::now();
    let encoded: String = form_urlencoded::byte_serialize(expr.as_bytes()).collect();
    let path = format!("/api/v1/query?query={encoded}");
    loop {
        let answer = get(at, &path);
        let rows = answer["data"]["result"].as_array().unwrap();
        let values = rows
            .iter()
            .map(|row| row["value"][1].as_str().unwrap().parse().unwrap());
        if values.into_iter().any(&is_good) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{expr}: {answer}");
        pause();
    }
}

#[test]
fn statsd_is_summed_up() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    config.statsd = vec!["127.0.0.1:0".to_owned()];
    config.intake.events_flush_ms = 100;
    let monitor = begin(&config);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..3 {
        socket
            .send_to(b"page.views:2|c|#host:flp7\n", monitor.statsd()[0])
            .unwrap();
    }
    await_values(monitor.http(), "page_views", "host", &[("flp7", "6")]);
    monitor.end();
}

/// Starts collectd with a `Server` block that has `security`.
fn collectd(monitor: &Monitor, security: &str, folder: &Path) -> Option<Peer> {
    let port = monitor.collectd()[0].port();
    let at = folder.display();
    let text = format!(
        "Hostname \"flp7\"\nFQDNLookup false\nBaseDir \"{at}\"\nPIDFile \"{at}/pid\"\n\
         TypesDB \"/usr/share/collectd/types.db\"\nInterval 0.2\nLoadPlugin memory\nLoadPlugin load\n\
         LoadPlugin network\n<Plugin network>\n<Server \"127.0.0.1\" \"{port}\">\n{security}\n</Server>\n</Plugin>\n"
    );
    let path = folder.join("collectd.conf");
    std::fs::write(&path, text).unwrap();
    Peer::start(
        "/usr/sbin/collectd",
        &["-f", "-C", path.to_str().unwrap()],
        folder,
    )
}

const SIGNED: &str = "SecurityLevel Sign\nUsername \"flp\"\nPassword \"secret\"";

fn config_of_collectd(folder: &Path, auth: &str) -> MonitorConfig {
    let auth_file = folder.join("auth");
    std::fs::write(&auth_file, auth).unwrap();
    MonitorConfig {
        collectd: CollectdConfig {
            udp: vec!["127.0.0.1:0".to_owned()],
            auth_file,
            require_signature: true,
            ..CollectdConfig::default()
        },
        ..config(&folder.join("data"))
    }
}

#[test]
fn collectd_is_taken_if_signed_and_refused_if_not() {
    let folder = tempfile::tempdir().unwrap();
    let monitor = begin(&config_of_collectd(folder.path(), "flp: secret\n"));
    let Some(unsigned) = collectd(&monitor, "", folder.path()) else {
        return;
    };
    await_bad(&monitor, "unsigned");
    drop(unsigned);
    let signed = collectd(&monitor, SIGNED, folder.path()).unwrap();
    await_value(
        monitor.http(),
        "collectd_load_shortterm{host=\"flp7\"}",
        |load| load >= 0.0,
    );
    drop(signed);
    monitor.end();

    let other = tempfile::tempdir().unwrap();
    let monitor = begin(&config_of_collectd(other.path(), "flp: another\n"));
    let _wrong = collectd(&monitor, SIGNED, other.path()).unwrap();
    await_bad(&monitor, "bad-signature");
    let answer = get(
        monitor.http(),
        "/api/v1/query?query=collectd_load_shortterm",
    );
    assert_eq!(answer["data"]["result"], serde_json::json!([]));
    monitor.end();
}

/// Waits until something was bad for the reason `code`.
#[track_caller]
fn await_bad(monitor: &Monitor, code: &str) {
    let begun = Instant::now();
    let wanted = format!("monitor_samples_bad_total{{code=\"{code}\"}}");
    while !ask(monitor.http(), "GET", "/metrics", "", b"")
        .1
        .contains(&wanted)
    {
        assert!(begun.elapsed() < PATIENCE, "{code}");
        pause();
    }
}

fn job(job: &str, target: String) -> ScrapeConfig {
    ScrapeConfig {
        job: job.to_owned(),
        targets: vec![target],
        interval_ms: 200,
        timeout_ms: 200,
        labels: [("rack".to_owned(), "r1".to_owned())].into(),
        ..ScrapeConfig::default()
    }
}

#[test]
fn pages_of_sheaf_and_of_prometheus_are_scraped_and_end_when_they_do() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let scraped = begin(&config(&at("scraped")));
    let page = free();
    std::fs::write(at("prometheus.yml"), "global:\n  scrape_interval: 1s\n").unwrap();
    let listen = format!("--web.listen-address={page}");
    let peer = Peer::start(
        "prometheus",
        &[
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=tsdb",
            &listen,
        ],
        folder.path(),
    );
    let mut config = config(&at("data"));
    config.scrape = vec![
        job("sheaf", scraped.http().to_string()),
        job("prometheus", page.to_string()),
        job("nothing", free().to_string()),
    ];
    let monitor = begin(&config);
    let http = monitor.http();
    await_value(http, "up{job=\"sheaf\",rack=\"r1\"}", |up| up == 1.0);
    await_value(http, "up{job=\"nothing\"}", |up| up == 0.0);
    await_value(http, "scrape_duration_seconds{job=\"sheaf\"}", |took| {
        took > 0.0
    });
    await_value(http, "monitor_series{job=\"sheaf\"}", |_| true);
    if peer.is_some() {
        await_value(http, "up{job=\"prometheus\"}", |up| up == 1.0);
        await_value(http, "prometheus_build_info{job=\"prometheus\"}", |one| {
            one == 1.0
        });
    }
    // A target that is gone ends its series at once, not after the five minutes of a query.
    scraped.end();
    await_value(http, "up{job=\"sheaf\"}", |up| up == 0.0);
    await_value(http, "absent(monitor_series{job=\"sheaf\"})", |one| {
        one == 1.0
    });
    monitor.end();
}

#[test]
fn prometheus_writes_into_the_collector() {
    let folder = tempfile::tempdir().unwrap();
    let monitor = begin(&config(&folder.path().join("data")));
    let (http, page) = (monitor.http(), free());
    let text = format!(
        "global:\n  scrape_interval: 1s\nscrape_configs:\n- job_name: itself\n  static_configs:\n\
         \x20 - targets: ['{page}']\n\
         remote_write:\n- url: http://{http}/api/v1/write\n  queue_config:\n    batch_send_deadline: 200ms\n"
    );
    std::fs::write(folder.path().join("prometheus.yml"), text).unwrap();
    let listen = format!("--web.listen-address={page}");
    let args = [
        "--config.file=prometheus.yml",
        "--storage.tsdb.path=tsdb",
        &listen,
    ];
    let Some(_peer) = Peer::start("prometheus", &args, folder.path()) else {
        return;
    };
    await_listening(page);
    await_value(http, "up{job=\"itself\"}", |up| up == 1.0);
    monitor.end();
}

/// Sends a counter, a gauge and a histogram by OpenTelemetry's SDK.
const OTLP: &str = r#"
import sys
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
exporter = OTLPMetricExporter(endpoint=sys.argv[1], compression=Compression.Gzip)
reader = PeriodicExportingMetricReader(exporter)
resource = Resource.create({"service.name": "readout", "host.name": "flp7"})
provider = MeterProvider(resource=resource, metric_readers=[reader])
meter = provider.get_meter("test")
meter.create_counter("frames").add(7, {"link": "3"})
meter.create_up_down_counter("depth").add(2)
meter.create_histogram("latency", unit="s").record(0.2)
provider.shutdown()
"#;

#[test]
fn the_sdk_of_opentelemetry_writes_over_otlp() {
    let folder = tempfile::tempdir().unwrap();
    let venv = folder.path().join("venv");
    let run = |program: &Path, args: &[&str]| {
        let output = Command::new(program).args(args).output();
        output.is_ok_and(|output| output.status.success())
    };
    let python = venv.join("bin/python");
    let packages = [
        "-m",
        "pip",
        "install",
        "-q",
        "opentelemetry-exporter-otlp-proto-http",
    ];
    let is_here = run(
        Path::new("python3"),
        &["-m", "venv", venv.to_str().unwrap()],
    ) && run(&python, &packages);
    if !is_here {
        println!("skipped: opentelemetry-exporter-otlp-proto-http cannot be installed by pip");
        return;
    }
    let monitor = begin(&config(&folder.path().join("data")));
    let http = monitor.http();
    let url = format!("http://{http}/v1/metrics");
    let output = Command::new(&python)
        .args(["-c", OTLP, &url])
        .output()
        .unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    await_value(
        http,
        "frames_total{job=\"readout\",host=\"flp7\",link=\"3\"}",
        |sum| sum == 7.0,
    );
    await_value(http, "depth", |depth| depth == 2.0);
    await_value(http, "latency_seconds_count", |count| count == 1.0);
    let kind = "Content-Type: application/json\r\n";
    assert_eq!(ask(http, "POST", "/v1/metrics", kind, b"{}").0, 415);
    let kind = "Content-Type: application/x-protobuf\r\n";
    assert_eq!(
        ask(http, "POST", "/v1/metrics", kind, b"\xff\xff\xff").0,
        400
    );
    monitor.end();
}
