//! The job of `examples/spark/` on a real topic: samples go through a collector and Kafka, and come back as aggregates.

use super::kafka::{Broker, to_kafka};
use super::peers::pause;
use super::senders::await_value;
use super::{ask, begin, config, get};
use sheaf_monitor::MonitorConfig;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The jars that `scripts/setup.sh` fetches, with their sums.
const JARS: &str = include_str!("../../../../../examples/spark/jars.sha256");
const VERSION: &str = "4.0.0";
const TOPIC: &str = "samples";
/// Time for the first result.
const START: Duration = Duration::from_secs(120);
const SECONDS: i32 = 5;
const HOSTS: i32 = 3;

/// Process that is killed when dropped; the Java that it started ends with it.
struct Job(Child);

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns Python with PySpark, and the jars that it lacks; `None`, and a line that says so, if they are not here.
fn home() -> Option<(PathBuf, String)> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = set("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(Path::new(&set("HOME")?).join(".cache")));
    let cache = cache
        .unwrap_or_default()
        .join(format!("sheaf/spark-{VERSION}"));
    let folder = set("SHEAF_SPARK_HOME").map_or(cache, PathBuf::from);
    let lines = JARS.lines().filter(|line| !line.starts_with('#'));
    let jars = lines.filter_map(|line| Some(folder.join(line.rsplit('/').next()?)));
    let jars: Vec<PathBuf> = jars.collect();
    let python = folder.join("venv/bin/python");
    let is_whole = folder.join("requirements.txt").is_file();
    if !is_whole || !python.is_file() || jars.iter().any(|jar| !jar.is_file()) {
        let at = folder.display();
        println!("skipped: no PySpark {VERSION} in {at}; run scripts/setup.sh spark");
        return None;
    }
    let jars: Vec<_> = jars.iter().map(|jar| jar.to_string_lossy()).collect();
    Some((python, jars.join(",")))
}

fn start(python: &Path, jars: &str, args: &[&str], folder: &Path) -> Job {
    let job = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/spark/aggregate.py");
    let submit = format!(
        "--master local[2] --driver-memory 768m --conf spark.sql.shuffle.partitions=2 --conf spark.ui.enabled=false \
         --driver-java-options -XX:+UseSerialGC --jars {jars} pyspark-shell"
    );
    let log = std::fs::File::create(folder.join("spark.log")).unwrap();
    let child = Command::new(python)
        .arg(job)
        .args(args)
        .current_dir(folder)
        .env("PYSPARK_SUBMIT_ARGS", submit)
        .env("PYSPARK_PYTHON", python)
        .env("SPARK_LOCAL_IP", "127.0.0.1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn();
    Job(child.unwrap())
}

/// Waits for the first result: Spark takes half a minute to start where other tests run beside it.
fn await_first(http: SocketAddr, job: &mut Job, log: &Path) {
    let begun = Instant::now();
    let path = "/api/v1/query?query=last_over_time(temperature_window_avg[5m])";
    while get(http, path)["data"]["result"]
        .as_array()
        .unwrap()
        .is_empty()
    {
        let log = || std::fs::read_to_string(log).unwrap_or_default();
        let end = job.0.try_wait().unwrap();
        assert!(end.is_none(), "the job has ended: {}", log());
        assert!(begun.elapsed() < START, "no result: {}", log());
        pause();
    }
}

#[test]
fn spark_aggregates_the_topic_and_writes_it_back() {
    let Some((python, jars)) = home() else { return };
    let Some(broker) = Broker::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let Some(_peer) = broker.start(folder.path()) else {
        return;
    };
    broker.create(TOPIC, &[]);
    let monitor = begin(&MonitorConfig {
        forward: vec![to_kafka(broker.plain, TOPIC)],
        ..config(&folder.path().join("data"))
    });
    let http = monitor.http();
    let (brokers, collector) = (broker.plain.to_string(), format!("http://{http}"));
    let args = [
        "--brokers",
        &brokers,
        "--topic",
        TOPIC,
        "--collector",
        &collector,
        "--by",
        "detector",
        "--from",
        "earliest",
    ];
    let mut job = start(&python, &jars, &args, folder.path());
    let write = |lines: &str| {
        let (status, body) = ask(http, "POST", "/write?precision=ms", "", lines.as_bytes());
        assert_eq!(status, 204, "{body}");
    };
    // Ten samples a second of each host: 0.0 to 0.9 above a number of the host, in windows of a second.
    let begin_ms = super::engines::now_ms() / 1000 * 1000 - 30_000;
    let mut lines = String::new();
    for (detector, base) in [("TPC", 100), ("ITS", 200)] {
        for host in 0..HOSTS {
            for tenth in 0..10 * SECONDS {
                let value = format!("{}.{}", base + host, tenth % 10);
                let at = begin_ms + i64::from(tenth) * 100;
                lines +=
                    &format!("temperature,detector={detector},host=h{host} value={value} {at}\n");
            }
        }
    }
    write(&lines);
    // What a broker has twice counts once.
    let key = "temperature{detector=\"TPC\", host=\"h0\"}".to_owned();
    let value = format!(
        "{{\"name\":\"temperature\",\"labels\":{{\"detector\":\"TPC\",\"host\":\"h0\"}},\"time_ms\":{begin_ms},\
         \"value\":100.0}}"
    );
    let copies = vec![(Some(key), value); 5];
    let compression = rskafka::client::partition::Compression::Snappy;
    super::kafka::produce(broker.plain, TOPIC, &copies, compression);
    // A later sample moves the watermark past the windows.
    let later = begin_ms + 1000 * i64::from(SECONDS) + 20_000;
    write(&format!(
        "temperature,detector=TPC,host=h0 value=1 {later}\n"
    ));
    await_first(http, &mut job, &folder.path().join("spark.log"));
    for (detector, base) in [("TPC", 100.0), ("ITS", 200.0)] {
        let of = |function: &str, field: &str| {
            format!(
                "{function}(temperature_window_{field}{{detector=\"{detector}\",origin=\"spark\"}}[5m])"
            )
        };
        let is = |expected: f64| move |found: f64| (found - expected).abs() < 1e-6;
        await_value(http, &of("count_over_time", "avg"), is(f64::from(SECONDS)));
        await_value(http, &of("avg_over_time", "avg"), is(base + 1.45));
        await_value(http, &of("min_over_time", "min"), is(base));
        await_value(http, &of("max_over_time", "max"), is(base + 2.9));
        let count = 10 * HOSTS * SECONDS;
        await_value(http, &of("sum_over_time", "count"), is(f64::from(count)));
        await_value(
            http,
            &of("sum_over_time", "sum"),
            is((base + 1.45) * f64::from(count)),
        );
    }
    monitor.end();
}
