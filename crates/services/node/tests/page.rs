//! Running ICNs, FLPs and EPNs as others see them: pages with health, readiness, and metrics that
//! `promtool check metrics` takes; samples that they send to a back end.

use sheaf_node::config::FarmConfig;
use sheaf_node::role::{Build, RoleOptions, run_epn, run_flp, run_icn};
use sheaf_node::shutdown::Shutdown;
use sheaf_protocol::{EpnId, FlpId, Role};
use sheaf_samples::client::{DROPPED, PROCESS, SENT};
use sheaf_samples::wire::DATAGRAM_BYTES;
use sheaf_samples::wire::line_protocol::{Decoder, Series};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

/// One node in a thread.
struct Node {
    role: Role,
    page: String,
    shutdown: Shutdown,
    thread: JoinHandle<()>,
}

fn start(role: Role, config: &FarmConfig) -> Node {
    let (page, shutdown) = (free_address(), Shutdown::new());
    let (config, stop, at) = (config.clone(), shutdown.clone(), page.clone());
    let thread = std::thread::spawn(move || {
        let options = RoleOptions {
            metrics: Some(at),
            build: Build {
                version: "1.2.3",
                commit: "0123456789ab",
            },
            ..RoleOptions::default()
        };
        let ended = match role {
            Role::Icn => run_icn(&config, 0, options, &stop).map(drop),
            Role::Flp => run_flp(&config, FlpId(0), options, &stop),
            _ => run_epn(&config, EpnId(0), options, &stop),
        };
        ended.unwrap();
    });
    Node {
        role,
        page,
        shutdown,
        thread,
    }
}

impl Node {
    /// Returns the status and the body of a route, when the page is served.
    fn get(&self, route: &str) -> (u16, String) {
        let start = Instant::now();
        let mut stream = loop {
            match TcpStream::connect(&self.page) {
                Ok(stream) => break stream,
                Err(error) => assert!(start.elapsed() < PATIENCE, "{}: {error}", self.role),
            }
            std::thread::yield_now();
        };
        write!(stream, "GET {route} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, body.to_owned())
    }

    fn await_answer(&self, route: &str, expected: (u16, &str)) {
        let start = Instant::now();
        loop {
            let (status, body) = self.get(route);
            if (status, body.as_str()) == expected {
                return;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "{} {route}: {status} {body}",
                self.role
            );
            std::thread::yield_now();
        }
    }
}

fn farm(folder: &Path) -> FarmConfig {
    let text = format!(
        "[run]\nflps = 1\nepns = 1\n[icn]\naddress = \"{}\"\n\
         [flp]\nhold_bytes = 67108864\nrate_hz = 100.0\nstf_bytes_max = 1048576\n\
         [flp.source]\nkind = \"generator\"\nbytes_mean = 10000\n\
         [epn]\nlisten = \"127.0.0.1:0\"\n[epn.build]\ncapacity_bytes = 16777216\n\
         [icn.scheduler]\nstf_bytes_max = 1048576\ntf_bytes_max = 4194304\n",
        free_address()
    );
    FarmConfig::parse_for(&text, &folder.join("farm.toml"), &[]).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn pages_of_a_farm_tell_health_and_readiness_and_metrics_in_base_units() {
    let folder = tempfile::tempdir().unwrap();
    let config = farm(folder.path());
    let epn = start(Role::Epn, &config);
    epn.await_answer("/readyz", (503, "connecting\n"));
    epn.await_answer("/healthz", (200, "ok\n"));
    let icn = start(Role::Icn, &config);
    icn.await_answer("/readyz", (200, "waiting\n"));
    let flp = start(Role::Flp, &config);
    for node in [&epn, &flp] {
        node.await_answer("/readyz", (200, "joined\n"));
    }
    icn.await_answer("/readyz", (200, "running\n"));
    for node in [&icn, &flp, &epn] {
        let (status, text) = node.get("/metrics");
        assert_eq!(status, 200);
        let problems = problems(&text);
        assert!(problems.is_empty(), "{}: {problems:#?}", node.role);
        for name in [
            "sheaf_build_info{commit=\"0123456789ab\",version=\"1.2.3\"} 1",
            "process_cpu_seconds_total ",
            "process_resident_memory_bytes ",
            "process_virtual_memory_bytes ",
            "process_open_fds ",
            "process_max_fds ",
            "process_start_time_seconds ",
            "node_loop_turns_total ",
            "node_page_accept_errors_total{kind=\"files\"} 0",
        ] {
            let has_line = text.lines().any(|line| line.starts_with(name));
            assert!(has_line, "{}: {name}", node.role);
        }
        ask_promtool(node.role, &text);
    }
    for node in [flp, epn, icn] {
        node.shutdown.request();
        node.thread.join().unwrap();
    }
}

/// Samples of one process that arrived.
#[derive(Debug, Default)]
struct Arrived {
    samples: u64,
    /// Highest counts of sent and dropped samples that it has told.
    sent: f64,
    dropped: f64,
    /// Highest value by the name of the metric.
    highest: BTreeMap<String, f64>,
    runs: BTreeSet<String>,
    datagrams: u64,
}

/// Takes the lines of a datagram apart, by process.
fn decode(datagram: &[u8], arrived: &mut BTreeMap<String, Arrived>) {
    assert!(datagram.len() <= DATAGRAM_BYTES, "{} bytes", datagram.len());
    let mut decoder = Decoder::default();
    let mut lines = decoder.lines(datagram);
    let mut process = String::new();
    while let Some(line) = lines.next_line() {
        let line = line.unwrap();
        let series = Series::parse(line.series).unwrap();
        let tag = |name| series.tag(name).unwrap_or_default().to_owned();
        assert_eq!(tag("farm"), "north");
        assert!(!tag("host").is_empty());
        // A gauge of the ICN names the node that it is about.
        let about = ["balance_node_", "balance_run_delay_seconds"];
        if about
            .iter()
            .any(|name| series.measurement.starts_with(name))
        {
            let node = tag("node");
            assert!(["flp:0", "epn:0"].contains(&&*node), "{node}");
        } else {
            assert_eq!(tag("node"), tag("source"));
        }
        process = tag("source").replace(':', "-");
        assert_eq!(tag("role"), process.split('-').next().unwrap());
        let of = arrived.entry(process.clone()).or_default();
        if series.measurement == SENT {
            assert_eq!(tag(PROCESS), process);
        }
        of.runs.insert(tag("run"));
        for field in line.fields() {
            of.samples += 1;
            let value = field.value.number().unwrap();
            match series.measurement.as_ref() {
                SENT => of.sent = of.sent.max(value),
                DROPPED => of.dropped = of.dropped.max(value),
                _ => {}
            }
            let name = series.name(field.name).unwrap().into_owned();
            let highest = of.highest.entry(name).or_insert(value);
            *highest = highest.max(value);
        }
    }
    arrived.entry(process).or_default().datagrams += 1;
}

/// Returns the datagrams that the kernel has dropped in front of the socket with this port (`/proc/net/udp`).
fn datagrams_lost(port: u16) -> u64 {
    let table = std::fs::read_to_string("/proc/net/udp").unwrap();
    let end = format!(":{port:04X}");
    let row = table.lines().find_map(|line| {
        let mut columns = line.split_whitespace();
        columns.nth(1)?.ends_with(&end).then(|| columns.last())?
    });
    row.and_then(|drops| drops.parse().ok())
        .expect("a row of the socket")
}

#[test]
fn samples_of_a_farm_arrive_packed_and_their_count_is_what_was_sent() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = farm(folder.path());
    let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = collector.local_addr().unwrap();
    config.metrics.backends = vec![format!("influxdb-udp://{address}")];
    config.metrics.interval_ms = 200;
    config.metrics.cpu_share_max = 1.0;
    config.metrics.farm = "north".to_owned();
    let nodes = [Role::Icn, Role::Flp, Role::Epn].map(|role| start(role, &config));
    let mut arrived = BTreeMap::new();
    let mut buffer = vec![0; 1 << 16];
    collector.set_read_timeout(Some(PATIENCE)).unwrap();
    let has_built = |arrived: &BTreeMap<String, Arrived>| {
        let of_epn = arrived.get("epn-0");
        of_epn.is_some_and(|epn| {
            let built = epn.highest.get("build_tf_complete_total");
            epn.runs.len() > 1 && built.is_some_and(|built| *built > 20.0)
        })
    };
    let start = Instant::now();
    while !has_built(&arrived) {
        assert!(start.elapsed() < PATIENCE, "{arrived:#?}");
        let length = collector.recv(&mut buffer).expect("nodes report");
        decode(&buffer[..length], &mut arrived);
    }
    // What comes while the nodes end is received, too: one that is not read in time would be lost.
    let ending = std::thread::spawn(move || {
        for node in nodes.into_iter().rev() {
            node.shutdown.request();
            node.thread.join().unwrap();
        }
    });
    collector
        .set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    loop {
        let is_over = ending.is_finished();
        match collector.recv(&mut buffer) {
            Ok(length) => decode(&buffer[..length], &mut arrived),
            Err(_) if is_over => break,
            Err(_) => {}
        }
    }
    ending.join().unwrap();
    let lost = datagrams_lost(address.port());
    assert_eq!(
        arrived.keys().collect::<Vec<_>>(),
        ["epn-0", "flp-0", "icn-0"]
    );
    for (process, of) in &arrived {
        // A machine that stops this test for long makes the kernel drop datagrams, and says so.
        assert!(of.sent >= of.samples as f64, "{process}: {of:#?}");
        assert!(
            of.sent == of.samples as f64 || lost > 0,
            "{process}: {of:#?}"
        );
        assert_eq!(of.dropped, 0.0, "{process}");
        assert!(of.samples > 5 * of.datagrams, "{process} packs: {of:#?}");
        for name in ["process_cpu_seconds_total", "node_loop_turns_total"] {
            assert!(of.highest[name] > 0.0, "{process}: {name}");
        }
    }
    for name in ["balance_node_state", "balance_node_up"] {
        assert_eq!(arrived["icn-0"].highest[name], 1.0, "{name}");
    }
    let made = arrived["flp-0"].highest["acquire_stf_made_total"];
    assert!(made >= arrived["epn-0"].highest["build_tf_complete_total"]);
    assert_eq!(
        arrived["icn-0"].highest["balance_tf_complete_total"],
        arrived["epn-0"].highest["build_tf_complete_total"]
    );
    let runs: BTreeSet<_> = arrived.values().flat_map(|of| &of.runs).collect();
    let runs: Vec<_> = runs.into_iter().filter(|run| !run.is_empty()).collect();
    assert_eq!(runs.len(), 1, "all nodes tell the same run: {runs:?}");
}

/// Asks `promtool` where it is installed.
fn ask_promtool(role: Role, text: &str) {
    let command = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = command else {
        println!("skipped: promtool is not installed ({role})");
        return;
    };
    let mut input = child.stdin.take().unwrap();
    input.write_all(text.as_bytes()).unwrap();
    drop(input);
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{role}: {said}");
}

/// Returns what `promtool check metrics` objects to, by its rules (Prometheus, `util/promlint`).
fn problems(text: &str) -> Vec<String> {
    const TYPES: [&str; 3] = ["counter", "gauge", "histogram"];
    const ABBREVIATED: [&str; 14] = [
        "s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d",
    ];
    const OTHER_UNITS: [&str; 9] = [
        "minutes",
        "hours",
        "days",
        "weeks",
        "bits",
        "milliseconds",
        "microseconds",
        "nanoseconds",
        "kilobytes",
    ];
    let (mut helps, mut types) = (BTreeMap::new(), BTreeMap::new());
    let mut problems = Vec::new();
    let mut samples = 0;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap_or((rest, ""));
            helps.insert(name, help);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or((rest, ""));
            types.insert(name, kind);
        } else {
            samples += 1;
            let (sample, value) = line.rsplit_once(' ').unwrap_or((line, ""));
            let name = sample.split('{').next().unwrap_or_default();
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| {
                name.strip_suffix(end)
                    .filter(|base| types.contains_key(base))
            });
            if !types.contains_key(base.unwrap_or(name)) || value.parse::<f64>().is_err() {
                problems.push(format!(
                    "{line}: a sample without a type, or without a number"
                ));
            }
            let labels = sample.split_once('{').map_or("", |(_, labels)| labels);
            if base.is_none() && (labels.contains("le=\"") || labels.contains("quantile=\"")) {
                problems.push(format!("{name}: a label of histograms"));
            }
        }
    }
    for (name, kind) in &types {
        let mut object = |what: String| problems.push(format!("{name}: {what}"));
        if helps.get(name).is_none_or(|help| help.is_empty()) {
            object("no help".to_owned());
        }
        if !TYPES.contains(kind) {
            object(format!("kind {kind}"));
        }
        if (*kind == "counter") != name.ends_with("_total") {
            object("only counters end in _total".to_owned());
        }
        if ["_bucket", "_sum", "_count"]
            .iter()
            .any(|end| name.ends_with(end))
        {
            object("ends as a histogram".to_owned());
        }
        if name
            .chars()
            .any(|char| char == ':' || char.is_ascii_uppercase())
        {
            object("not snake_case".to_owned());
        }
        for word in name.split('_').skip(1) {
            if ABBREVIATED.contains(&word) || OTHER_UNITS.contains(&word) || TYPES.contains(&word) {
                object(format!("the word {word}"));
            }
        }
    }
    if samples == 0 {
        problems.push("no samples".to_owned());
    }
    problems
}

#[test]
fn the_rules_object_to_what_promtool_objects_to() {
    let bad = [
        (
            "# TYPE a_total gauge\n# HELP a_total A.\na_total 1",
            "only counters",
        ),
        ("# TYPE a_ns gauge\n# HELP a_ns A.\na_ns 1", "the word ns"),
        (
            "# TYPE a_ms_max gauge\n# HELP a_ms_max A.\na_ms_max 1",
            "the word ms",
        ),
        ("# TYPE a gauge\na 1", "no help"),
        (
            "# TYPE a_gauge gauge\n# HELP a_gauge A.\na_gauge 1",
            "the word gauge",
        ),
        (
            "# TYPE a_count gauge\n# HELP a_count A.\na_count 1",
            "ends as a histogram",
        ),
        ("# TYPE aB gauge\n# HELP aB A.\naB 1", "snake_case"),
        ("a 1", "without a type"),
        ("", "no samples"),
    ];
    for (text, expected) in bad {
        let found = problems(text);
        assert!(
            found.iter().any(|problem| problem.contains(expected)),
            "{text}: {found:?}"
        );
    }
    let good = "# TYPE a_seconds histogram\n# HELP a_seconds A.\n\
                a_seconds_bucket{le=\"+Inf\"} 1\na_seconds_sum 0.5\na_seconds_count 1";
    assert_eq!(problems(good), Vec::<String>::new());
}
