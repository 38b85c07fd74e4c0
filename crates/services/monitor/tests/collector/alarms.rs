//! Alarms of a collector from a datagram to a receiver, over restarts, reloads and orders.

use super::{PATIENCE, ask, begin, config, get};
use serde_json::{Value, json};
use sheaf_alarms::{Order, OrderKind};
use sheaf_metrics::Registry;
use sheaf_monitor::{FarmOrders, MailTls, Monitor, MonitorConfig, start_with};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Instant;

const RULES: &str = r#"
groups:
- name: nodes
  interval: 1s
  rules:
  - alert: Hot
    expr: temperature > 60
    online: true
    labels: {severity: page}
    annotations: {summary: "EPN {{ $labels.epn }} has {{ $value }} degrees"}
    action: {order: drain, target: "epn {{ $labels.epn }}", dry_run: false}
  - record: hottest
    expr: max(temperature)
  - alert: Late
    expr: hottest > 60
"#;

/// A configuration with rules and routes; the rules of a farm are left out.
fn alarming(folder: &Path, routes: &str) -> MonitorConfig {
    let mut config = config(&folder.join("data"));
    let files = [("rules.yml", RULES), ("routes.yml", routes)];
    for (name, text) in files {
        std::fs::write(folder.join(name), text).unwrap();
    }
    config.alarms.sheaf_rules = false;
    config.alarms.rules = vec![folder.join("rules.yml")];
    config.alarms.routes = folder.join("routes.yml");
    config
}

/// Routes to one webhook, which is notified at once and not again for hours.
fn hook_routes(url: &str) -> String {
    format!(
        "route: {{receiver: hook, group_by: ['...'], group_wait: 0s, group_interval: 1s, repeat_interval: 4h}}\n\
         receivers: [{{name: hook, webhook_configs: [{{url: '{url}', secret_file: SECRET}}]}}]\n"
    )
}

fn send(monitor: &Monitor, line: &str) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(line.as_bytes(), monitor.udp()[0]).unwrap();
}

/// A server that takes posts: head and body of each.
struct Hook {
    at: SocketAddr,
    posts: Receiver<(String, String)>,
}

impl Hook {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let (sender, posts) = sync_channel(100);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                take_post(stream, &sender);
            }
        });
        Self { at, posts }
    }

    fn next(&self) -> (String, Value) {
        let (head, body) = self.posts.recv_timeout(PATIENCE).unwrap();
        (head, serde_json::from_str(&body).unwrap())
    }
}

fn take_post(stream: TcpStream, sender: &SyncSender<(String, String)>) {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let begin = head.len();
        if reader.read_line(&mut head).unwrap_or(0) == 0 {
            return;
        }
        let line = head[begin..].trim().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    reader.get_mut().write_all(answer).unwrap();
    let _ = sender.send((head, String::from_utf8(body).unwrap()));
}

/// Asks until `is_there` finds what it looks for in the answer.
#[track_caller]
fn wait_for<T>(at: SocketAddr, path: &str, is_there: impl Fn(&Value) -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        let answer = get(at, path);
        if let Some(found) = is_there(&answer) {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "{path}: {answer:#}");
    }
}

/// State of the first alert of `name` in `/api/alarms`.
fn state_of(answer: &Value, name: &str) -> Option<String> {
    let alarms = answer["alarms"].as_array()?;
    let found = alarms.iter().find(|one| one["alert"] == name)?;
    Some(found["state"].as_str()?.to_owned())
}

/// A farm that takes every order.
struct Farm(SyncSender<OrderKind>);

impl FarmOrders for Farm {
    fn give(&mut self, order: &Order) -> Result<String, String> {
        assert!(!order.is_dry_run);
        self.0.send(order.kind).map_err(|error| error.to_string())?;
        Ok("epn:3 drains".to_owned())
    }
}

#[test]
fn a_datagram_raises_an_alarm_that_pages_once_and_orders_once_over_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("key");
    std::fs::write(&secret, "secret\n").unwrap();
    let hook = Hook::start();
    let routes = hook_routes(&format!("http://{}/", hook.at));
    let routes = routes.replace("SECRET", secret.to_str().unwrap());
    let config = alarming(folder.path(), &routes);
    let (orders, ordered) = sync_channel(10);
    let start = || {
        let farm: Box<dyn FarmOrders> = Box::new(Farm(orders.clone()));
        start_with(&config, Arc::new(Registry::default()), Some(farm)).unwrap()
    };
    let monitor = start();
    let http = monitor.http();
    send(&monitor, "temperature,epn=3 value=61");
    let (head, body) = hook.next();
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, b"secret");
    let head = head.to_ascii_lowercase();
    let signed = head
        .lines()
        .find_map(|line| line.strip_prefix("x-sheaf-signature-256: sha256="));
    let found = signed.expect("a signature");
    let found: Vec<u8> = (0..32)
        .map(|at| u8::from_str_radix(&found[2 * at..2 * at + 2], 16).unwrap())
        .collect();
    ring::hmac::verify(&key, body.to_string().as_bytes(), &found).unwrap();
    let alert = &body["alerts"][0];
    assert_eq!(alert["labels"]["epn"], "3");
    assert_eq!(alert["annotations"]["summary"], "EPN 3 has 61 degrees");
    assert_eq!(
        ordered.recv_timeout(PATIENCE).unwrap(),
        OrderKind::Drain { epn: 3 }
    );
    // The late rule reads what the recording rule before it made.
    wait_for(http, "/api/alarms", |answer| {
        (state_of(answer, "Late")? == "firing").then_some(())
    });
    assert_eq!(hook.next().1["alerts"][0]["labels"]["alertname"], "Late");
    let outcomes = wait_for(http, "/api/alarms/history", |answer| {
        let entries = answer["entries"].as_array()?.iter();
        let orders = entries.filter(|one| one["kind"] == "order");
        let outcomes: Vec<_> = orders.map(|one| one["outcome"].clone()).collect();
        outcomes.contains(&json!("done")).then_some(outcomes)
    });
    assert_eq!(outcomes, [json!("done"), json!("given")]);
    let rules = get(http, "/api/v1/rules?type=alert");
    let rule = &rules["data"]["groups"][0]["rules"][0];
    assert_eq!(rule["name"], "Hot");
    assert_eq!(rule["alerts"][0]["value"], "6.1e+01");
    let records = get(http, "/api/v1/rules?type=record");
    assert_eq!(records["data"]["groups"][0]["rules"][0]["name"], "hottest");
    let alerts = get(http, "/api/v1/alerts");
    assert_eq!(alerts["data"]["alerts"].as_array().unwrap().len(), 2);
    monitor.end();

    let monitor = start();
    let http = monitor.http();
    let answer = get(http, "/api/alarms");
    assert_eq!(
        state_of(&answer, "Hot").as_deref(),
        Some("firing"),
        "{answer:#}"
    );
    // Other rules in place of these: the alert of a rule that is there goes on.
    let rules = RULES.replace("alert: Late", "alert: Later");
    std::fs::write(&config.alarms.rules[0], rules).unwrap();
    monitor.alarms().reload(&config.alarms).unwrap();
    send(&monitor, "temperature,epn=3 value=20");
    wait_for(http, "/api/alarms", |answer| {
        (state_of(answer, "Hot")? == "resolved").then_some(())
    });
    // All that is posted after the restart is ends, and each alert was begun once.
    let mut ended: Vec<(Value, Value)> = Vec::new();
    while ended.len() < 2 {
        let (_, body) = hook.next();
        let alert = &body["alerts"][0];
        ended.push((
            alert["labels"]["alertname"].clone(),
            alert["status"].clone(),
        ));
    }
    ended.sort_by_key(|one| one.0.to_string());
    let expected = ["Hot", "Late"].map(|name| (json!(name), json!("resolved")));
    assert_eq!(ended, expected);
    assert!(ordered.try_recv().is_err(), "an order was given again");
    let broken = RULES.replace("temperature > 60", "temperature >");
    std::fs::write(&config.alarms.rules[0], broken).unwrap();
    let problems = monitor.alarms().reload(&config.alarms).unwrap_err();
    assert_eq!(problems[0].key, "monitor.alarms.rules");
    let (_, metrics) = ask(http, "GET", "/metrics", "", b"");
    assert!(
        metrics.contains("monitor_orders_total{outcome=\"done\"}"),
        "{metrics}"
    );
    monitor.end();
}

#[test]
fn silences_are_made_listed_and_ended() {
    let folder = tempfile::tempdir().unwrap();
    let monitor = begin(&config(folder.path()));
    let http = monitor.http();
    let kind = "Content-Type: application/json\r\n";
    let make =
        |headers: &str, body: &str| ask(http, "POST", "/api/silences", headers, body.as_bytes());
    let body =
        r#"{"matchers": ["alertname=\"Hot\""], "for_ms": 60000, "author": "a", "comment": "c"}"#;
    assert_eq!(make("", body).0, 415);
    assert_eq!(
        make(kind, r#"{"matchers": ["a=~\".*\""], "for_ms": 60000}"#).0,
        400
    );
    let (status, answer) = make(kind, body);
    assert_eq!(status, 201, "{answer}");
    let id = serde_json::from_str::<Value>(&answer).unwrap()["id"].clone();
    let silences = get(http, "/api/silences");
    assert_eq!(
        silences["silences"][0]["matchers"],
        json!(["alertname=\"Hot\""])
    );
    assert_eq!(silences["silences"][0]["state"], "active");
    let path = format!("/api/silences/{id}");
    assert_eq!(ask(http, "DELETE", &path, "", b"").0, 204);
    assert_eq!(ask(http, "DELETE", &path, "", b"").0, 404);
    assert_eq!(
        get(http, "/api/silences")["silences"][0]["state"],
        "expired"
    );
    monitor.end();
}

#[test]
fn a_source_that_goes_silent_has_an_alarm() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    config.alarms.limits.sources.settle_ms = 1;
    config.alarms.limits.sources.silent_ms = 3_000;
    let monitor = begin(&config);
    let begun = Instant::now();
    // Heard for more than one report, then no more.
    while begun.elapsed().as_millis() < 2_500 {
        send(&monitor, "load,host=pi7 value=1");
        std::thread::park_timeout(std::time::Duration::from_millis(100));
    }
    let source = wait_for(monitor.http(), "/api/alarms", |answer| {
        let alarms = answer["alarms"].as_array()?;
        let one = alarms.iter().find(|one| one["alert"] == "SourceSilent")?;
        (one["state"] == "firing").then(|| one["labels"]["source"].clone())
    });
    assert_eq!(source, "pi7");
    monitor.end();
}

/// Reads lines of SMTP and answers them, as much as a client needs; gives what was sent as data.
fn take_mail(listener: &TcpListener) -> String {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut writer = stream.try_clone().unwrap();
    writer.write_all(b"220 test\r\n").unwrap();
    let (mut data, mut is_data) = (String::new(), false);
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        if is_data {
            if line == "." {
                writer.write_all(b"250 taken\r\n").unwrap();
                return data;
            }
            data += &line;
            data.push('\n');
            continue;
        }
        let answer = match line.split(' ').next().unwrap_or_default() {
            "DATA" => "354 go on\r\n",
            "QUIT" => "221 bye\r\n",
            _ => "250 ok\r\n",
        };
        is_data = line == "DATA";
        writer.write_all(answer.as_bytes()).unwrap();
    }
    data
}

#[test]
fn an_alarm_is_mailed() {
    let folder = tempfile::tempdir().unwrap();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let routes = "route: {receiver: shift, group_by: [alertname], group_wait: 0s}\n\
                  receivers: [{name: shift, email_configs: [{to: 'shift@example.org, b@example.org'}]}]\n";
    let mut config = alarming(folder.path(), routes);
    config.alarms.mail.server = server.local_addr().unwrap().to_string();
    config.alarms.mail.from = "sheaf@example.org".to_owned();
    config.alarms.mail.tls = MailTls::None;
    let monitor = begin(&config);
    send(&monitor, "temperature,epn=3 value=61");
    let mail = take_mail(&server);
    for part in [
        "From: sheaf@example.org",
        "To: shift@example.org, b@example.org",
        "Subject: [FIRING:1] Hot",
        "EPN 3 has 61 degrees",
    ] {
        assert!(mail.contains(part), "{part}: {mail}");
    }
    monitor.end();
}

/// An Alertmanager of this test, killed at the end.
struct Alertmanager(Child);

impl Drop for Alertmanager {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_alertmanager_of_debian_takes_an_alarm() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("alertmanager.yml");
    std::fs::write(
        &file,
        "route: {receiver: none}\nreceivers: [{name: none}]\n",
    )
    .unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = free.local_addr().unwrap();
    drop(free);
    let started = Command::new("prometheus-alertmanager")
        .arg(format!("--config.file={}", file.display()))
        .arg(format!("--storage.path={}", folder.path().display()))
        .arg(format!("--web.listen-address={at}"))
        .arg("--cluster.listen-address=")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(child) = started else {
        println!("skipped: prometheus-alertmanager is not installed");
        return;
    };
    let _alertmanager = Alertmanager(child);
    let routes = format!(
        "route: {{receiver: am, group_by: [alertname], group_wait: 0s}}\n\
         receivers: [{{name: am, alertmanager_configs: [{{url: 'http://{at}'}}]}}]\n"
    );
    // Whether it listens already or not: a failed attempt is repeated.
    let monitor = begin(&alarming(folder.path(), &routes));
    send(&monitor, "temperature,epn=3 value=61");
    let begun = Instant::now();
    while TcpStream::connect(at).is_err() {
        assert!(
            begun.elapsed() < PATIENCE,
            "the Alertmanager does not listen"
        );
    }
    let begun = Instant::now();
    loop {
        let (status, body) = ask(at, "GET", "/api/v2/alerts", "", b"");
        if status == 200 && body.contains("\"epn\":\"3\"") && body.contains("Hot") {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{status}: {body}");
    }
    monitor.end();
}
