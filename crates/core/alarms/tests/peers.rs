//! Real peers: Prometheus' `promtool` reads the same rule files and runs the same unit tests, and an Alertmanager takes
//! what is rendered for it. Skipped by name where a program is not installed.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test that starts programs and talks to them"
)]

use serde_json::{Value as Json, json};
use sheaf_alarms::{
    AlarmsConfig, Channel, Notification, NotifiedAlert, Routing, RuleFile, ScenarioFile, Status,
    alertmanager, rfc3339, run_scenario, webhook,
};
use sheaf_samples::Labels;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Returns whether `program` is there; says that a test is skipped if not.
fn is_installed(program: &str, package: &str) -> bool {
    let found = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if found.is_err() {
        println!("skipped: {program} is not installed (Debian: apt-get install {package})");
    }
    found.is_ok()
}

fn run(program: &str, arguments: &[&str], file: &Path) -> Output {
    Command::new(program)
        .args(arguments)
        .arg(file)
        .output()
        .expect("the program is installed")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

const RULES: &str = r#"
groups:
- name: example
  interval: 30s
  limit: 100
  rules:
  - record: job:errors:rate1m
    expr: sum by (job) (rate(errors_total[1m]))
    labels: {team: daq}
  - alert: ManyErrors
    expr: job:errors:rate1m > 1.5
    for: 1m
    keep_firing_for: 2m
    labels: {severity: page, rate: "{{ $value | printf \"%.2f\" }}"}
    annotations:
      summary: "{{ $labels.job }} has {{ $value | humanize }} errors a second"
- name: texts
  rules:
  - alert: Texts
    expr: x > 0
    annotations:
      humanize: "{{ $value | humanize }}"
      humanize1024: "{{ $value | humanize1024 }}"
      percentage: "{{ $value | humanizePercentage }}"
      duration: "{{ $value | humanizeDuration }}"
      timestamp: "{{ $value | humanizeTimestamp }}"
      plain: "{{ $value }} {{ .Value }} {{ humanize $value }}"
      printf: "{{ printf \"%s|%.3f|%6.1f|%-8.2e|%g|%v|%5s|%q\" $labels.host $value $value $value $value $value $labels.host $labels.host }}"
      texts: "{{ $labels.host | toUpper }} {{ $labels.host | title }} {{ $labels.host | stripPort }} {{ $labels.host | stripDomain }} {{ $labels.host | reReplaceAll \"([a-z]+)\" \"<$1>\" }}"
      trimmed: "a  {{- $value -}}  b {{/* note */}}{{ `{{` }}"
      absent: "[{{ $labels.none }}]"
"#;

#[test]
fn promtool_reads_the_rule_files_that_we_read() {
    if !is_installed("promtool", "prometheus") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("rules.yml");
    let groups = |rules: &str| format!("groups: [{{name: g, rules: [{rules}]}}]");
    let cases = [
        (RULES.to_owned(), true),
        ("groups: []\n".to_owned(), true),
        (groups("{alert: A, expr: up == 0, for: 1h30m}"), true),
        (
            groups("{alert: A, expr: up == 0, annotations: {a: '{{ $value | printf \"%d%%\" }}'}}"),
            true,
        ),
        (groups("{record: 'a:b', expr: '1 + 1'}"), true),
        (groups("{alert: A, expr: 'up =='}"), false),
        (groups("{alert: A, expr: nosuch(up)}"), false),
        (groups("{alert: A, expr: up, for: soon}"), false),
        (groups("{alert: A, expr: up, fro: 1m}"), false),
        (groups("{alert: A, record: b, expr: up}"), false),
        (groups("{record: 'a b', expr: up}"), false),
        (groups("{alert: A, expr: up, labels: {'a-b': c}}"), false),
        (
            groups("{alert: A, expr: up, annotations: {a: '{{ $value | shout }}'}}"),
            false,
        ),
        (
            groups("{alert: A, expr: up, annotations: {a: '{{ $value'}}"),
            false,
        ),
        (
            "groups: [{name: g, rules: []}, {name: g, rules: []}]".to_owned(),
            false,
        ),
        ("groups: [{rules: []}]".to_owned(), false),
    ];
    for (rules, is_good) in cases {
        std::fs::write(&file, &rules).expect("a file");
        let theirs = run("promtool", &["check", "rules"], &file);
        let ours = RuleFile::parse("rules.yml", &rules);
        assert_eq!(
            theirs.status.success(),
            is_good,
            "{rules}\n{}",
            text(&theirs)
        );
        assert_eq!(ours.is_ok(), is_good, "{rules}\n{ours:?}");
    }
}

/// A test file for `promtool`; `{value}` and `{texts}` are filled in.
const UNIT_TEST: &str = r#"
rule_files: [rules.yml]
evaluation_interval: 30s
tests:
- interval: 30s
  input_series:
  - {series: 'errors_total{job="a"}', values: '0+60x10 600x20'}
  - {series: 'errors_total{job="b"}', values: '0+1x30'}
  alert_rule_test:
  - {eval_time: 1m, alertname: ManyErrors, exp_alerts: []}
  - eval_time: 2m
    alertname: ManyErrors
    exp_alerts:
    - exp_labels: {job: a, team: daq, severity: page, rate: "2.00"}
      exp_annotations: {summary: "a has 2 errors a second"}
  - {eval_time: 15m, alertname: ManyErrors, exp_alerts: []}
"#;

fn our_failures(rules: &str, tests: &str) -> Vec<String> {
    let rules = RuleFile::parse("rules.yml", rules).unwrap_or_else(|error| panic!("{error}"));
    let tests = ScenarioFile::parse("test.yml", tests).unwrap_or_else(|error| panic!("{error}"));
    let run = |scenario| {
        run_scenario(
            scenario,
            std::slice::from_ref(&rules),
            tests.interval_ms,
            &AlarmsConfig::default(),
        )
    };
    tests
        .scenarios
        .iter()
        .flat_map(|one| run(one).failures)
        .map(|one| one.to_string())
        .collect()
}

#[test]
fn promtool_runs_the_unit_tests_that_we_run() {
    if !is_installed("promtool", "prometheus") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("rules.yml"), RULES).expect("a file");
    let file = folder.path().join("test.yml");
    let cases = [
        (UNIT_TEST.to_owned(), true),
        (UNIT_TEST.replace("eval_time: 1m,", "eval_time: 90s,"), true),
        (UNIT_TEST.replace("eval_time: 1m,", "eval_time: 2m,"), false),
        (
            UNIT_TEST.replace("2 errors a second", "3 errors a second"),
            false,
        ),
        (
            UNIT_TEST.replace("eval_time: 15m,", "eval_time: 7m,"),
            false,
        ),
    ];
    for (tests, is_good) in cases {
        std::fs::write(&file, &tests).expect("a file");
        let theirs = run("promtool", &["test", "rules"], &file);
        let ours = our_failures(RULES, &tests);
        assert_eq!(
            theirs.status.success(),
            is_good,
            "{tests}\n{}",
            text(&theirs)
        );
        assert_eq!(ours.is_empty(), is_good, "{tests}\n{ours:?}");
    }
}

#[test]
fn templates_give_the_texts_of_promtool() {
    if !is_installed("promtool", "prometheus") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("rules.yml"), RULES).expect("a file");
    let file = folder.path().join("test.yml");
    for value in [
        "1",
        "0.00012",
        "0.5",
        "59.9",
        "61",
        "3725.25",
        "90061",
        "999.96",
        "1234567.891",
        "1.5e9",
        // Beyond that humanizeTimestamp of Prometheus is an error instead of a text.
        "9.1e9",
        "1795574871.25",
    ] {
        for host in ["node1.example.org:9100", "10.0.0.1:80"] {
            let rules = RuleFile::parse("rules.yml", RULES).expect("the rules above");
            let labels = Labels::new([("host", host)]).expect("labels");
            let rule = rules.groups[1].rules.iter().find_map(|rule| match rule {
                sheaf_alarms::Rule::Alert(rule) => Some(rule),
                sheaf_alarms::Rule::Record(_) => None,
            });
            let number: f64 = value.parse().expect("a number");
            let annotations: serde_json::Map<String, Json> = rule
                .expect("an alert")
                .annotations
                .iter()
                .map(|(name, template)| (name.clone(), template.render(&labels, number).into()))
                .collect();
            // JSON is YAML.
            let tests = json!({
                "rule_files": ["rules.yml"],
                "evaluation_interval": "1m",
                "tests": [{
                    "interval": "1m",
                    "input_series": [{"series": format!("x{{host={host:?}}}"), "values": format!("{value}x1")}],
                    "alert_rule_test": [{
                        "eval_time": "0s",
                        "alertname": "Texts",
                        "exp_alerts": [{"exp_labels": {"host": host}, "exp_annotations": annotations}],
                    }],
                }],
            });
            std::fs::write(&file, tests.to_string()).expect("a file");
            let theirs = run("promtool", &["test", "rules"], &file);
            assert!(theirs.status.success(), "{value} {host}\n{}", text(&theirs));
            assert_eq!(
                our_failures(RULES, &tests.to_string()),
                Vec::<String>::new()
            );
        }
    }
}

#[test]
fn amtool_reads_the_routing_files_that_we_read() {
    if !is_installed("amtool", "prometheus-alertmanager") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("routes.yml");
    let good = r#"
route:
  receiver: ops
  group_by: [alertname, 'rack']
  group_wait: 10s
  repeat_interval: 3h
  routes:
  - {matchers: ['severity="page"', 'epn=~"1|2"'], receiver: hook, continue: true}
  - {matchers: [team=disk], group_by: ['...']}
receivers:
- name: ops
- {name: hook, webhook_configs: [{url: "http://127.0.0.1:1/"}]}
inhibit_rules:
- {source_matchers: [alertname=NoLeader], target_matchers: ['severity!="page"'], equal: [farm]}
"#;
    let cases = [
        (good.to_owned(), true),
        (good.replace("receiver: hook,", "receiver: none,"), false),
        (good.replace("group_wait: 10s", "group_wait: long"), false),
        (good.replace("[team=disk]", "[team]"), false),
        (
            good.replace("- name: ops", "- {name: hook}\n- name: ops"),
            false,
        ),
    ];
    for (routes, is_good) in cases {
        std::fs::write(&file, &routes).expect("a file");
        let theirs = run("amtool", &["check-config"], &file);
        let ours = Routing::parse("routes.yml", &routes);
        assert_eq!(
            theirs.status.success(),
            is_good,
            "{routes}\n{}",
            text(&theirs)
        );
        assert_eq!(ours.is_ok(), is_good, "{routes}\n{ours:?}");
    }
}

/// An Alertmanager of this test, stopped at the end.
struct Alertmanager {
    child: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Drop for Alertmanager {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Alertmanager {
    /// Starts one that posts to `hook`, and awaits its API.
    fn start(hook: u16) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let config = folder.path().join("alertmanager.yml");
        let text = format!(
            "route: {{receiver: hook, group_by: [alertname], group_wait: 100ms}}\nreceivers: [{{name: hook, webhook_configs: [{{url: 'http://127.0.0.1:{hook}/'}}]}}]\n"
        );
        std::fs::write(&config, text).expect("a file");
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = free.local_addr().expect("an address").port();
        drop(free);
        let child = Command::new("prometheus-alertmanager")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.path={}", folder.path().display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .arg("--cluster.listen-address=")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program is installed");
        let mut one = Self {
            child,
            port,
            _folder: folder,
        };
        // Its log says when it listens; the rest is read away, so that the pipe never fills.
        let stderr = one.child.stderr.take().expect("piped");
        let mut lines = BufReader::new(stderr).lines();
        let is_ready = lines
            .by_ref()
            .map_while(Result::ok)
            .any(|line| line.contains("Listening") || line.contains("address="));
        assert!(is_ready, "the Alertmanager ended");
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        let deadline = Instant::now() + Duration::from_secs(60);
        while one
            .request("GET", "/-/ready", "")
            .is_none_or(|(status, _)| status != 200)
        {
            assert!(
                Instant::now() < deadline,
                "the Alertmanager is not ready after 60 s"
            );
            std::thread::yield_now();
        }
        one
    }

    /// Status and body of a request; `None` if nothing listens yet.
    fn request(&self, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).ok()?;
        let head = format!(
            "{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).ok()?;
        stream.write_all(body.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let status = answer.split(' ').nth(1)?.parse().ok()?;
        Some((status, answer.split_once("\r\n\r\n")?.1.to_owned()))
    }
}

/// Body of the next POST at `listener`, which is answered by 200.
fn next_post(listener: &TcpListener) -> Json {
    let (stream, _) = listener.accept().expect("a connection");
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a line of the head");
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a number");
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("the body");
    reader
        .get_mut()
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        .expect("answered");
    serde_json::from_slice(&body).expect("JSON")
}

fn keys(json: &Json) -> BTreeSet<&str> {
    json.as_object()
        .map(|one| one.keys().map(String::as_str).collect())
        .unwrap_or_default()
}

#[test]
fn an_alertmanager_takes_our_alerts_and_its_webhook_has_our_form() {
    if !is_installed("prometheus-alertmanager", "prometheus-alertmanager") {
        return;
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let server = Alertmanager::start(listener.local_addr().expect("an address").port());
    let now_ms = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .expect("after 1970")
        .as_millis() as i64;
    let alert = |epn: &str, status, ends_ms| NotifiedAlert {
        status,
        labels: Arc::new(
            Labels::new([("alertname", "EpnGone"), ("epn", epn), ("severity", "page")])
                .expect("labels"),
        ),
        annotations: vec![(
            "summary".to_owned(),
            format!("EPN {epn} is \"gone\"\n<now> é"),
        )],
        starts_ms: now_ms - 60_000,
        ends_ms,
        value: 1.0,
    };
    let notification = |alerts: Vec<NotifiedAlert>| Notification {
        id: 1,
        receiver: "hook".to_owned(),
        channel: Channel::Log,
        group_key: "0:{alertname=\"EpnGone\"}".to_owned(),
        group_labels: Arc::new(Labels::new([("alertname", "EpnGone")]).expect("labels")),
        status: Status::Firing,
        alerts,
        truncated: 0,
        at_ms: now_ms,
        expires_ms: now_ms + 600_000,
    };
    let both = notification(vec![
        alert("1", Status::Firing, None),
        alert("2", Status::Firing, None),
    ]);
    let page = "http://monitor.example.org/alarms";
    let posted = server
        .request("POST", "/api/v2/alerts", &alertmanager(&both, page))
        .expect("an answer");
    assert_eq!(posted.0, 200, "{}", posted.1);
    let (_, body) = server
        .request("GET", "/api/v2/alerts", "")
        .expect("an answer");
    let mut found: Vec<Json> = serde_json::from_str(&body).expect("JSON");
    found.sort_by_key(|one| one["labels"]["epn"].to_string());
    assert_eq!(found.len(), 2, "{body}");
    for (one, sent) in found.iter().zip(&both.alerts) {
        assert_eq!(one["labels"]["epn"].as_str(), sent.labels.get("epn"));
        assert_eq!(one["annotations"]["summary"], sent.annotations[0].1);
        assert_eq!(one["generatorURL"], page);
        assert_eq!(
            one["fingerprint"],
            format!("{:016x}", sheaf_alarms::fingerprint(&sent.labels))
        );
        assert_eq!(one["startsAt"], rfc3339(sent.starts_ms));
        assert_eq!(one["endsAt"], rfc3339(both.expires_ms));
        assert_eq!(
            one["status"]["state"]
                .as_str()
                .map(|state| ["active", "unprocessed"].contains(&state)),
            Some(true)
        );
    }
    // The body that it posts for these alerts, beside ours for the same.
    let theirs = next_post(&listener);
    let ours: Json = serde_json::from_str(&webhook(&both, page)).expect("JSON");
    assert_eq!(keys(&ours), keys(&theirs));
    assert_eq!(keys(&ours["alerts"][0]), keys(&theirs["alerts"][0]));
    for key in [
        "version",
        "status",
        "receiver",
        "groupLabels",
        "commonLabels",
        "commonAnnotations",
        "truncatedAlerts",
    ] {
        assert_eq!(ours[key], theirs[key], "{key}");
    }
    for key in [
        "labels",
        "annotations",
        "status",
        "fingerprint",
        "generatorURL",
    ] {
        assert_eq!(ours["alerts"][0][key], theirs["alerts"][0][key], "{key}");
    }
    // One ends: the Alertmanager shows only alerts that are on.
    let one = notification(vec![
        alert("1", Status::Firing, None),
        alert("2", Status::Resolved, Some(now_ms)),
    ]);
    let posted = server
        .request("POST", "/api/v2/alerts", &alertmanager(&one, page))
        .expect("an answer");
    assert_eq!(posted.0, 200, "{}", posted.1);
    let (_, body) = server
        .request("GET", "/api/v2/alerts", "")
        .expect("an answer");
    let found: Vec<Json> = serde_json::from_str(&body).expect("JSON");
    let epns: Vec<_> = found
        .iter()
        .map(|one| one["labels"]["epn"].as_str())
        .collect();
    assert_eq!(epns, [Some("1")], "{body}");
}
