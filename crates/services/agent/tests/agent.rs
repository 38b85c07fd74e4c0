//! An agent as a whole, beside a collector: values and events arrive, and the budget is kept.

use sheaf_agent::{AgentConfig, AgentError, WatchConfig, start};
use sheaf_metrics::Registry;
use sheaf_monitor::{Monitor, MonitorConfig};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

fn collector() -> Monitor {
    let config = MonitorConfig {
        http: "127.0.0.1:0".to_owned(),
        udp: vec!["127.0.0.1:0".to_owned()],
        data: PathBuf::new(),
        ..MonitorConfig::default()
    };
    sheaf_monitor::start(&config, Arc::default()).unwrap()
}

/// Asks until the answer to `expr` has a value that `is_right` takes.
#[track_caller]
fn await_value(monitor: &Monitor, expr: &str, is_right: impl Fn(f64) -> bool) -> f64 {
    let expr = expr
        .replace('"', "%22")
        .replace('{', "%7B")
        .replace('}', "%7D");
    let begun = Instant::now();
    loop {
        let mut stream = TcpStream::connect(monitor.http()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(
            stream,
            "GET /api/v1/query?query={expr} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let body = &text[text.find('{').unwrap_or(0)..=text.rfind('}').unwrap()];
        let answer: serde_json::Value = serde_json::from_str(body).unwrap();
        let value = answer["data"]["result"][0]["value"][1].as_str();
        let value = value.and_then(|value| value.parse().ok());
        if let Some(value) = value.filter(|value| is_right(*value)) {
            return value;
        }
        assert!(begun.elapsed() < PATIENCE, "{expr}: {text}");
    }
}

/// A program that waits until it is killed, at the latest when the test ends.
struct Sleeper(Child);

impl Sleeper {
    fn start(pid_file: &Path) -> Self {
        let child = Command::new("sleep")
            .arg("86397")
            .spawn()
            .expect("sleep starts");
        std::fs::write(pid_file, child.id().to_string()).unwrap();
        Self(child)
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn values_of_the_machine_and_events_of_a_process_reach_a_collector() {
    let monitor = collector();
    let folder = tempfile::tempdir().unwrap();
    let pid_file = folder.path().join("pid");
    let first = Sleeper::start(&pid_file);
    let config = AgentConfig {
        to: vec![format!("influxdb-udp://{}", monitor.udp()[0])],
        interval_ms: 50,
        cpu_share_max: 1.0,
        host: "pi7".to_owned(),
        labels: [("rack".to_owned(), "3".to_owned())].into(),
        watch: vec![WatchConfig {
            name: "sleeper".to_owned(),
            pid_file: pid_file.display().to_string(),
            ..WatchConfig::default()
        }],
        ..AgentConfig::default()
    };
    let agent = start(&config, Arc::default()).unwrap();
    assert!(agent.sensors().contains(&"process"));
    let of = |name: &str| format!("{name}{{host=\"pi7\",rack=\"3\",role=\"agent\"}}");
    await_value(&monitor, &of("machine_cpu_cores_online"), |cores| {
        cores >= 1.0
    });
    await_value(
        &monitor,
        "machine_memory_bytes{use=\"total\",host=\"pi7\"}",
        |bytes| bytes > 1e6,
    );
    await_value(&monitor, "sum(machine_cpu_seconds_total)", |seconds| {
        seconds > 0.0
    });
    await_value(
        &monitor,
        "machine_process_running{process=\"sleeper\"}",
        |up| up == 1.0,
    );

    let first_pid = first.pid();
    drop(first);
    let of_event = |field: &str| format!("machine_process_change_{field}{{process=\"sleeper\"}}");
    await_value(&monitor, &of_event("running"), |running| running == 0.0);
    await_value(&monitor, &of_event("pid_before"), |pid| {
        pid == f64::from(first_pid)
    });
    let second = Sleeper::start(&pid_file);
    await_value(&monitor, &of_event("pid"), |pid| {
        pid == f64::from(second.pid())
    });
    await_value(&monitor, "machine_process_restarts_total", |restarts| {
        restarts == 1.0
    });
    drop(agent);
    monitor.end();
}

#[test]
fn an_agent_beyond_its_share_of_a_core_reads_less_often_and_reports_it() {
    let monitor = collector();
    let config = AgentConfig {
        to: vec![format!("influxdb-udp://{}", monitor.udp()[0])],
        interval_ms: 10,
        // Less than any reading takes.
        cpu_share_max: 1e-9,
        ..AgentConfig::default()
    };
    let registry = Arc::new(Registry::default());
    let agent = start(&config, registry.clone()).unwrap();
    let interval = "monitor_client_interval_seconds{role=\"agent\"}";
    await_value(&monitor, interval, |seconds| seconds >= 0.08);
    await_value(&monitor, "agent_cpu_seconds_total", |seconds| seconds > 0.0);
    drop(agent);
    monitor.end();
}

#[test]
fn what_makes_no_sense_is_named_before_anything_runs() {
    let with = |to: &[&str]| AgentConfig {
        to: to.iter().map(|uri| (*uri).to_owned()).collect(),
        ..AgentConfig::default()
    };
    let error = start(&with(&["nowhere://h:1"]), Arc::default()).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("agent.to[0]: found \"nowhere://h:1\""),
        "{error}"
    );
    let error = start(&with(&[]), Arc::default()).unwrap_err();
    assert!(matches!(error, AgentError::NoBackend), "{error}");
    // A page at an address that is taken.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("prometheus://{}", taken.local_addr().unwrap());
    let error = start(&with(&[&uri]), Arc::default()).unwrap_err();
    assert!(
        error.to_string().contains("cannot open the back end"),
        "{error}"
    );
}
