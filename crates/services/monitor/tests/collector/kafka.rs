//! A broker of Kafka behind the collector: killed and started again, secured, and with records that it refuses.
//!
//! The broker is the one of Apache, a single node of KRaft, and what it has is read by Kafka's own console consumer.

use super::engines::{SAMPLES, await_count, check, forward, now_ms};
use super::peers::{Peer, await_listening, free, pause};
use super::{PATIENCE, ask, begin, config};
use sheaf_auth::{Authority, Validity};
use sheaf_monitor::config::{ForwardConfig, ForwardKind};
use sheaf_monitor::{Monitor, MonitorConfig};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

/// The jars that `scripts/setup.sh` fetches, with their sums.
const JARS: &str = include_str!("kafka.sha256");
const VERSION: &str = "4.1.2";
const USER: &str = "collector";
const PASSWORD: &str = "correct-horse";
const TOPIC: &str = "samples";
/// Small programs that live for seconds.
const JAVA: [&str; 3] = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"];

/// Returns the class path of Kafka; `None`, and a line that says so, if there is none on this machine.
pub(super) fn class_path() -> Option<OsString> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(home) = set("SHEAF_KAFKA_HOME") {
        // Java reads an asterisk as all jars of the folder.
        let folders = [PathBuf::from(&home), Path::new(&home).join("libs")];
        return Some(std::env::join_paths(folders.map(|folder| folder.join("*"))).unwrap());
    }
    let cache = set("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(Path::new(&set("HOME")?).join(".cache")));
    let folder = cache
        .unwrap_or_default()
        .join(format!("sheaf/kafka-{VERSION}"));
    let lines = JARS.lines().filter(|line| !line.starts_with('#'));
    let jars = lines.filter_map(|line| Some(folder.join(line.rsplit('/').next()?)));
    let jars: Vec<PathBuf> = jars.collect();
    // `setup.sh` renames a file only when its sum is right.
    if jars.iter().any(|jar| !jar.is_file()) {
        let at = folder.display();
        println!("skipped: no Kafka {VERSION} in {at}; run scripts/setup.sh kafka");
        return None;
    }
    Some(std::env::join_paths(jars).unwrap())
}

/// Runs a program of Kafka to its end; `None`, and a line that says so, without Java.
fn tool(class_path: &OsStr, class: &str, args: &[&str]) -> Option<String> {
    let mut command = Command::new("java");
    command.args(JAVA).arg("-cp").arg(class_path).arg(class);
    match command.args(args).output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{class} {args:?}: {output:?}");
            Some(text)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            println!("skipped: java is not installed");
            None
        }
        Err(error) => panic!("java: {error}"),
    }
}

/// A node of Kafka: its addresses, and its folder for the time of a test.
#[derive(Clone)]
pub(super) struct Broker {
    pub(super) class_path: OsString,
    /// Listener in the clear.
    pub(super) plain: SocketAddr,
    /// Listener with TLS, for users with a password.
    secured: SocketAddr,
    controller: SocketAddr,
}

impl Broker {
    /// Chooses addresses; `None`, and a line that says so, if Kafka is not on this machine.
    pub(super) fn new() -> Option<Self> {
        Some(Self {
            class_path: class_path()?,
            plain: free(),
            secured: free(),
            controller: free(),
        })
    }

    /// Starts the broker, which is formatted if its folder is new.
    pub(super) fn start(&self, folder: &Path) -> Option<Peer> {
        let path = folder.join("server.properties");
        if !path.exists() {
            std::fs::write(&path, self.properties(folder)).unwrap();
            let user = format!("SCRAM-SHA-512=[name={USER},password={PASSWORD}]");
            let config = path.to_str().unwrap();
            let id = "c2hlYWYtdGVzdC1jbHVzdA";
            let args = ["format", "-t", id, "-c", config, "--add-scram", &user];
            tool(&self.class_path, "kafka.tools.StorageTool", &args)?;
        }
        let class_path = self.class_path.to_str().unwrap();
        let of_kafka = ["-cp", class_path, "kafka.Kafka", "server.properties"];
        let peer = Peer::start("java", &[&JAVA[..], &of_kafka].concat(), folder)?;
        await_listening(self.plain);
        Some(peer)
    }

    fn properties(&self, folder: &Path) -> String {
        let authority = Authority::new("north", Validity::of_days(2)).unwrap();
        authority.save(folder, true).unwrap();
        let names = ["localhost", "127.0.0.1"];
        let pem = authority.issue_host(&names, Validity::of_days(1)).unwrap();
        let keys = folder.join("broker.pem");
        std::fs::write(&keys, pem.key + &pem.certificate).unwrap();
        let (plain, secured, controller) = (self.plain, self.secured, self.controller);
        let (logs, keys) = (folder.join("logs"), keys.display());
        format!(
            "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@{controller}\n\
             listeners=PLAINTEXT://{plain},SECURED://{secured},CONTROLLER://{controller}\n\
             advertised.listeners=PLAINTEXT://{plain},SECURED://{secured}\n\
             controller.listener.names=CONTROLLER\ninter.broker.listener.name=PLAINTEXT\n\
             listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURED:SASL_SSL\n\
             sasl.enabled.mechanisms=SCRAM-SHA-512\n\
             listener.name.secured.scram-sha-512.sasl.jaas.config=\
             org.apache.kafka.common.security.scram.ScramLoginModule required;\n\
             ssl.keystore.type=PEM\nssl.keystore.location={keys}\nlog.dirs={}\n\
             auto.create.topics.enable=false\noffsets.topic.replication.factor=1\noffsets.topic.num.partitions=1\n\
             group.initial.rebalance.delay.ms=0\n",
            logs.display()
        )
    }

    /// Creates a topic with three partitions.
    pub(super) fn create(&self, topic: &str, more: &[&str]) {
        let plain = self.plain.to_string();
        let args = ["--bootstrap-server", &plain, "--create", "--topic", topic];
        let args = [&args[..], &["--partitions", "3"], more].concat();
        tool(
            &self.class_path,
            "org.apache.kafka.tools.TopicCommand",
            &args,
        )
        .unwrap();
    }

    /// Reads a topic from its begin on.
    fn consume(&self, topic: &str) -> Consumer {
        let plain = self.plain.to_string();
        let mut command = Command::new("java");
        command.args(JAVA).arg("-cp").arg(&self.class_path);
        command.arg("org.apache.kafka.tools.consumer.ConsoleConsumer");
        command.args([
            "--bootstrap-server",
            &plain,
            "--topic",
            topic,
            "--from-beginning",
        ]);
        for property in ["print.key=true", "print.partition=true"] {
            command.args(["--property", property]);
        }
        let command = command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let out = child.stdout.take().unwrap();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let noted = seen.clone();
        std::thread::spawn(move || read(out, &noted));
        Consumer { child, seen }
    }
}

/// Records that a consumer has read.
#[derive(Debug, Default)]
struct Seen {
    /// Different times of each series, in the order in which they came first.
    times: BTreeMap<String, Vec<i64>>,
    all: BTreeSet<(String, i64)>,
    partitions: BTreeMap<String, BTreeSet<String>>,
    wrong: Vec<String>,
}

struct Consumer {
    child: Child,
    seen: Arc<Mutex<Seen>>,
}

impl Drop for Consumer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Consumer {
    fn count(&self) -> i64 {
        i64::try_from(self.seen.lock().unwrap().all.len()).unwrap()
    }

    /// Asserts that each series is in one partition and in the order of its times, and that keys belong to values.
    fn assert_ordered(&self) {
        let seen = self.seen.lock().unwrap();
        assert_eq!(seen.wrong, Vec::<String>::new());
        for (series, partitions) in &seen.partitions {
            assert_eq!(partitions.len(), 1, "{series}: {partitions:?}");
        }
        for (series, times) in &seen.times {
            assert!(times.is_sorted(), "{series}: {times:?}");
        }
        let used: BTreeSet<_> = seen.partitions.values().flatten().collect();
        assert!(used.len() > 1, "{:?}", seen.partitions);
    }
}

/// Reads lines `Partition:0 TAB key TAB value`.
fn read(out: ChildStdout, noted: &Mutex<Seen>) {
    for line in BufReader::new(out).lines() {
        let Ok(line) = line else { return };
        let mut parts = line.splitn(3, '\t').map(str::to_owned);
        let (Some(partition), Some(key), Some(value)) = (parts.next(), parts.next(), parts.next())
        else {
            noted.lock().unwrap().wrong.push(line);
            continue;
        };
        let mut seen = noted.lock().unwrap();
        let Ok(value) = serde_json::from_str::<serde_json::Value>(&value) else {
            seen.wrong.push(line);
            continue;
        };
        let (name, host) = (&value["name"], &value["labels"]["host"]);
        let expected = format!("{}{{host={host}}}", name.as_str().unwrap_or_default());
        let time_ms = value["time_ms"].as_i64();
        let (Some(time_ms), true, true) = (time_ms, value["value"].is_f64(), key == expected)
        else {
            seen.wrong.push(line);
            continue;
        };
        seen.partitions
            .entry(key.clone())
            .or_default()
            .insert(partition);
        if seen.all.insert((key.clone(), time_ms)) {
            seen.times.entry(key).or_default().push(time_ms);
        }
    }
}

pub(super) fn to_kafka(brokers: SocketAddr, topic: &str) -> ForwardConfig {
    ForwardConfig {
        brokers: vec![brokers.to_string()],
        topic: topic.to_owned(),
        ..forward(ForwardKind::Kafka, String::new())
    }
}

#[test]
fn kafka_gets_everything_over_an_outage() {
    let Some(broker) = Broker::new() else { return };
    let consumer: OnceLock<Consumer> = OnceLock::new();
    let engine = |folder: &Path| {
        let peer = broker.start(folder)?;
        consumer.get_or_init(|| {
            broker.create(TOPIC, &[]);
            broker.consume(TOPIC)
        });
        Some(peer)
    };
    let count = || consumer.get().unwrap().count();
    check(engine, broker.plain, to_kafka(broker.plain, TOPIC), count);
    if let Some(consumer) = consumer.get() {
        assert_eq!(consumer.count(), SAMPLES);
        consumer.assert_ordered();
    }
}

/// Returns the value of a line of `/metrics`.
fn metric(monitor: &Monitor, line: &str) -> u64 {
    let metrics = ask(monitor.http(), "GET", "/metrics", "", b"").1;
    let found = metrics.lines().find_map(|one| one.strip_prefix(line));
    let value = found.unwrap_or_else(|| panic!("{line} is not in {metrics}"));
    value.trim().parse().unwrap()
}

#[track_caller]
fn await_metric(monitor: &Monitor, line: &str, is_good: impl Fn(u64) -> bool) {
    let begun = Instant::now();
    while !is_good(metric(monitor, line)) {
        assert!(
            begun.elapsed() < PATIENCE,
            "{line}: {}",
            metric(monitor, line)
        );
        pause();
    }
}

fn write(monitor: &Monitor, lines: &str) {
    let (status, body) = ask(monitor.http(), "POST", "/write", "", lines.as_bytes());
    assert_eq!(status, 204, "{body}");
}

/// Numbers without a pattern, always the same.
struct Digits(u64);

impl Digits {
    /// Returns the next number below `bound`: the upper bits of Knuth's generator.
    fn below(&mut self, bound: u64) -> u64 {
        let next = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = next.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) % bound
    }
}

const FAILURES: &str = "monitor_forward_failures_total{forward=\"engine\"}";
const REFUSED: &str = "monitor_forward_dropped_total{forward=\"engine\",reason=\"refused\"}";
const SENT: &str = "monitor_forward_samples_total{forward=\"engine\"}";

#[test]
fn kafka_refuses_what_is_too_large_and_all_else_waits_for_user_and_topic() {
    let Some(broker) = Broker::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let Some(_peer) = broker.start(folder.path()) else {
        return;
    };
    let password = folder.path().join("password");
    let set = |text: &str| {
        std::fs::write(&password, text).unwrap();
        std::fs::set_permissions(&password, PermissionsExt::from_mode(0o600)).unwrap();
    };
    set("wrong");
    let forward = ForwardConfig {
        ca: folder.path().join("ca.pem"),
        user: USER.to_owned(),
        token_file: password.clone(),
        ..to_kafka(broker.secured, TOPIC)
    };
    let monitor = begin(&MonitorConfig {
        forward: vec![forward],
        ..config(&folder.path().join("data"))
    });
    // A wrong password, then a topic that is not there: both wait.
    write(&monitor, "temperature,host=h0 value=1\n");
    await_metric(&monitor, FAILURES, |failures| failures > 0);
    set(PASSWORD);
    let before = metric(&monitor, FAILURES);
    await_metric(&monitor, FAILURES, |failures| failures > before + 1);
    assert_eq!(metric(&monitor, SENT), 0);
    broker.create(TOPIC, &["--config", "max.message.bytes=1000"]);
    await_metric(&monitor, SENT, |sent| sent == 1);
    // One record among others is larger than the topic allows: digits of a generator, which Snappy cannot pack.
    let mut random = Digits(1);
    let digits: String = (0..120)
        .map(|_| format!("{:08x}", random.below(1 << 32)))
        .collect();
    let mut lines: String = (1..20)
        .map(|host| format!("temperature,host=h{host} value={host}\n"))
        .collect();
    lines += &format!("temperature,host={digits} value=20\n");
    lines += "temperature,host=z value=21\n";
    write(&monitor, &lines);
    await_metric(&monitor, SENT, |sent| sent == 21);
    assert_eq!(metric(&monitor, REFUSED), 1);
    let consumer = broker.consume(TOPIC);
    await_count(|| consumer.count(), 21);
    consumer.assert_ordered();
    monitor.end();
}

/// Prints what a broker keeps of a sample by format of its record, as CSV; for
/// `docs/adr/2026-11-25-a-topic-of-kafka-is-the-bus.md`.
#[test]
#[ignore = "a measurement: it asserts nothing of a format"]
fn bytes_of_record_formats() {
    use rskafka::client::partition::Compression;
    let Some(broker) = Broker::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let Some(_peer) = broker.start(folder.path()) else {
        return;
    };
    println!("series,samples_of_series,format,compression,records,bytes_per_sample");
    for (series, each) in [(10_000_usize, 1_usize), (1_000, 10)] {
        let mut random = Digits(16);
        // The mix of the paper's benchmark: a third each of doubles with 5 decimals, integers and switches.
        let values: Vec<Vec<String>> = (0..series)
            .map(|n| {
                let mut value = || match n % 3 {
                    0 => format!("{}.{:05}", random.below(100), random.below(100_000)),
                    1 => format!("{}.0", 1 + random.below(100)),
                    _ => format!("{}.0", random.below(2)),
                };
                (0..each).map(|_| value()).collect()
            })
            .collect();
        let at = |of: usize| 1_764_000_000_000_u64 + of as u64 * 100;
        type Records = Vec<(Option<String>, String)>;
        let mut formats: [(&str, Records); 4] = [
            ("json a sample", Vec::new()),
            ("json a series", Vec::new()),
            ("line a sample", Vec::new()),
            ("lines a request", Vec::new()),
        ];
        for (n, values) in values.iter().enumerate() {
            let (name, host, det) = (format!("metric_{:02}", n % 100), n / 100, n % 7);
            let key = format!("{name}{{detector=\"d{det}\", host=\"flp{host}\"}}");
            let begin = format!(
                "{{\"name\":\"{name}\",\"labels\":{{\"detector\":\"d{det}\",\"host\":\"flp{host}\"}}"
            );
            let mut pairs = Vec::new();
            for (of, value) in values.iter().enumerate() {
                let at = at(of);
                let json = format!("{begin},\"time_ms\":{at},\"value\":{value}}}");
                let line = format!("{name},detector=d{det},host=flp{host} value={value} {at}");
                pairs.push(format!("[{at},{value}]"));
                formats[0].1.push((Some(key.clone()), json));
                formats[2].1.push((Some(key.clone()), line.clone()));
                let lines = &mut formats[3].1;
                if lines.is_empty() {
                    lines.push((None, String::new()));
                }
                lines[0].1 += &(line + "\n");
            }
            let json = format!("{begin},\"samples\":[{}]}}", pairs.join(","));
            formats[1].1.push((Some(key), json));
        }
        for (format, records) in &formats {
            for (name, compression) in [
                ("none", Compression::NoCompression),
                ("snappy", Compression::Snappy),
            ] {
                let topic = format!("{series}-{}-{name}", format.replace(' ', "-"));
                broker.create(&topic, &[]);
                produce(broker.plain, &topic, records, compression);
                let path = format!("logs/{topic}-0/00000000000000000000.log");
                let bytes = std::fs::metadata(folder.path().join(path)).unwrap().len();
                #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
                let share = bytes as f64 / (series * each) as f64;
                println!(
                    "{series},{each},{format},{name},{},{share:.1}",
                    records.len()
                );
            }
        }
    }
}

/// Writes records into partition 0, in batches of about 512 KiB.
pub(super) fn produce(
    broker: SocketAddr,
    topic: &str,
    records: &[(Option<String>, String)],
    compression: rskafka::client::partition::Compression,
) {
    use rskafka::chrono::DateTime;
    use rskafka::client::partition::UnknownTopicHandling;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let client = rskafka::client::ClientBuilder::new(vec![broker.to_string()]);
        let client = client.build().await.unwrap();
        let partition = client.partition_client(topic, 0, UnknownTopicHandling::Retry);
        let partition = partition.await.unwrap();
        let size = |one: &(Option<String>, String)| one.1.len() + 100;
        // A broker deletes by the time of records, half a minute after its start.
        let timestamp = DateTime::from_timestamp_millis(now_ms()).unwrap();
        let mut batch = Vec::new();
        let mut bytes = 0;
        for (index, one) in records.iter().enumerate() {
            bytes += size(one);
            batch.push(rskafka::record::Record {
                key: one.0.clone().map(String::into_bytes),
                value: Some(one.1.clone().into_bytes()),
                headers: BTreeMap::new(),
                timestamp,
            });
            if bytes > 512 << 10 || index + 1 == records.len() {
                let full = std::mem::take(&mut batch);
                partition.produce(full, compression).await.unwrap();
                bytes = 0;
            }
        }
    });
}
