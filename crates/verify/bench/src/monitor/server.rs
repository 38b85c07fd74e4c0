//! The servers: how each is started, counted and asked.

use super::load::Target;
use super::options::Options;
use super::row::QueryTimes;
use anyhow::{Context as _, ensure};
use rustix::process::Signal;
use serde_json::Value;
use sheaf_farm::Process;
use sheaf_farm::proc::Usage;
use sheaf_figures::stat;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Longest time for a server to begin or end.
const PATIENCE: Duration = Duration::from_secs(60);
/// Period of questions whether a server still merges.
const MERGE_STEP: Duration = Duration::from_millis(200);
/// Rules of Sheaf: one alert, of the series whose latencies are measured.
const RULE: &str = "groups:\n- name: bench\n  rules:\n  - alert: Probe\n    expr: probe > 1000000\n    online: true\n";
/// Farm file of Sheaf, with these rules.
const FARM_FILE: &str = "farm.toml";
/// Time without more points after which none come any more: longer than a server takes to count them.
const SETTLED: Duration = Duration::from_millis(1500);
/// Times that each query is asked.
const QUERIES: usize = 10;

/// Kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sheaf,
    VictoriaMetrics,
    InfluxDb,
    Prometheus,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [
        Self::Sheaf,
        Self::VictoriaMetrics,
        Self::InfluxDb,
        Self::Prometheus,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sheaf => "sheaf",
            Self::VictoriaMetrics => "victoriametrics",
            Self::InfluxDb => "influxdb",
            Self::Prometheus => "prometheus",
        }
    }

    /// Returns whether it takes line protocol.
    pub(crate) fn has_lines(self) -> bool {
        self != Self::Prometheus
    }

    /// Name of what it takes over HTTP.
    pub(crate) fn http_protocol(self) -> &'static str {
        if self.has_lines() {
            "http-lines"
        } else {
            "remote-write"
        }
    }

    /// Returns the program that the machine lacks.
    pub(crate) fn missing(self) -> Option<&'static str> {
        let program = match self {
            Self::Sheaf => return None,
            Self::VictoriaMetrics => "victoria-metrics",
            Self::InfluxDb => "influxd",
            Self::Prometheus => "prometheus",
        };
        let path = std::env::var_os("PATH").unwrap_or_default();
        let is_there = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
        (!is_there).then_some(program)
    }
}

/// Work of a server beyond taking points; all empty for none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Setup {
    /// Added to the farm file of Sheaf.
    pub(crate) farm: String,
    /// Rules of relabelling of VictoriaMetrics, as YAML.
    pub(crate) relabel: String,
    /// Threads of Sheaf that receive datagrams, in place of those of the options.
    pub(crate) receivers: Option<u32>,
}

/// A series of an answer, with its samples: times in s, and values.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Series {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) samples: Vec<(f64, f64)>,
}

/// A server that runs. Killed when dropped.
pub(crate) struct Server {
    kind: Kind,
    process: Process,
    http: SocketAddr,
    udp: Option<SocketAddr>,
    agent: ureq::Agent,
}

impl Server {
    /// Starts a server with its data in `folder`, and waits until it answers.
    pub(crate) fn start(kind: Kind, folder: &Path, options: &Options) -> anyhow::Result<Self> {
        Self::start_with(kind, folder, options, &Setup::default())
    }

    /// As [`start`](Self::start), set up as `setup` says.
    pub(crate) fn start_with(
        kind: Kind,
        folder: &Path,
        options: &Options,
        setup: &Setup,
    ) -> anyhow::Result<Self> {
        let data = folder.join("data");
        std::fs::create_dir(&data)?;
        let [http, udp] = free_ports()?;
        std::fs::write(folder.join("rules.yml"), RULE)?;
        std::fs::write(
            folder.join(FARM_FILE),
            format!("[monitor.alarms]\nrules = [\"rules.yml\"]\n{}", setup.farm),
        )?;
        let mut command = match kind {
            Kind::Sheaf => {
                let receivers = setup.receivers.unwrap_or(options.receivers);
                sheaf(&options.program, receivers, &data, http, udp)
            }
            Kind::VictoriaMetrics => victoria_metrics(folder, &data, http, udp, &setup.relabel)?,
            Kind::InfluxDb => influxdb(folder, &data, http, udp)?,
            Kind::Prometheus => prometheus(folder, &data, http)?,
        };
        command.current_dir(folder);
        let mut process = Process::spawn(command, &folder.join("log"))?;
        process.listen(|_| {})?;
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(PATIENCE))
            .build();
        let mut server = Self {
            kind,
            process,
            http,
            udp: kind.has_lines().then_some(udp),
            agent: agent.into(),
        };
        server.await_start(folder)?;
        if kind == Kind::InfluxDb {
            let made = server
                .agent
                .post(server.url("/query?q=CREATE%20DATABASE%20bench"));
            made.send_empty().context("cannot make the database")?;
        }
        Ok(server)
    }

    fn await_start(&mut self, folder: &Path) -> anyhow::Result<()> {
        let path = match self.kind {
            Kind::Sheaf => "/readyz",
            Kind::VictoriaMetrics => "/health",
            Kind::InfluxDb => "/ping",
            Kind::Prometheus => "/-/ready",
        };
        let log = || std::fs::read_to_string(folder.join("log")).unwrap_or_default();
        await_true(PATIENCE, || {
            if let Some(status) = self.process.reap() {
                anyhow::bail!("it ended with {status}: {}", log());
            }
            let is_open = TcpStream::connect(self.http).is_ok();
            Ok(is_open
                && self
                    .agent
                    .get(self.url(path))
                    .call()
                    .is_ok_and(|answer| answer.status().is_success()))
        })
        .with_context(|| format!("{} does not start", self.kind.name()))
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.http)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.http
    }

    pub(crate) fn udp(&self) -> anyhow::Result<Target> {
        self.udp.map(Target::Udp).context("it takes no datagrams")
    }

    pub(crate) fn http(&self) -> anyhow::Result<Target> {
        Ok(match self.kind {
            Kind::Prometheus => Target::Remote(self.http, "/api/v1/write".to_owned()),
            _ => Target::Lines(self.http, "/write?db=bench".to_owned()),
        })
    }

    pub(crate) fn usage(&self) -> anyhow::Result<Usage> {
        self.process.usage().context("the server has ended")
    }

    /// Lets the server merge what it has written, where it has an order for that.
    pub(crate) fn merge(&self) -> anyhow::Result<()> {
        if self.kind != Kind::VictoriaMetrics {
            return Ok(());
        }
        self.get("/internal/force_flush")?;
        self.get("/internal/force_merge")?;
        let end = Instant::now() + PATIENCE;
        loop {
            pause(MERGE_STEP);
            let text = self.get("/metrics")?;
            let is_merging = text
                .lines()
                .any(|line| line.starts_with("vm_active_force_merges") && !line.ends_with(" 0"));
            if !is_merging {
                return Ok(());
            }
            ensure!(Instant::now() < end, "the server merges without end");
        }
    }

    /// Ends the server in order.
    pub(crate) fn end(mut self) -> anyhow::Result<()> {
        self.process.signal(Signal::TERM);
        self.process
            .await_end(PATIENCE)
            .context("the server does not end")?;
        Ok(())
    }

    fn get(&self, path: &str) -> anyhow::Result<String> {
        let mut answer = self.agent.get(self.url(path)).call()?;
        let text = answer
            .body_mut()
            .with_config()
            .limit(1 << 30)
            .read_to_string()?;
        ensure!(
            answer.status().is_success(),
            "{path} answers {}: {text}",
            answer.status()
        );
        Ok(text)
    }

    /// Points stored so far, as the server counts them.
    fn points(&self) -> anyhow::Result<u64> {
        let sum = |wanted: &dyn Fn(&str) -> bool| -> anyhow::Result<u64> {
            let text = self.get("/metrics")?;
            let lines = text.lines().filter(|line| wanted(line));
            let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
            Ok(values.sum::<f64>() as u64)
        };
        match self.kind {
            // What the intake took and the store did not refuse; points that processing adds are not counted.
            Kind::Sheaf => {
                let taken = sum(&|line| line.starts_with("monitor_samples_taken_total"))?;
                let refused = sum(&|line| line.starts_with("monitor_store_refused_total"))?;
                Ok(taken.saturating_sub(refused))
            }
            Kind::VictoriaMetrics => {
                sum(&|line| line.starts_with("vm_rows_inserted_total{type=\"influx\""))
            }
            Kind::Prometheus => {
                sum(&|line| line.starts_with("prometheus_tsdb_head_samples_appended_total"))
            }
            Kind::InfluxDb => {
                let text =
                    self.get("/query?db=bench&q=SELECT%20count(value)%20FROM%20%2F%5Em%2F")?;
                let answer: Value = serde_json::from_str(&text)?;
                let series = answer["results"][0]["series"].as_array();
                let counts = series
                    .into_iter()
                    .flatten()
                    .map(|one| one["values"][0][1].as_u64().unwrap_or(0));
                Ok(counts.sum())
            }
        }
    }

    /// Waits until no more points are added, and returns their number.
    pub(crate) fn settled_points(&mut self) -> anyhow::Result<u64> {
        // Metrics of a server are brought up to date once a second or so.
        let step = if self.kind == Kind::InfluxDb {
            300
        } else {
            1200
        };
        let mut last = self.points()?;
        let end = Instant::now() + PATIENCE;
        loop {
            pause(Duration::from_millis(step));
            let now = self.points()?;
            if now == last || Instant::now() > end {
                return Ok(now);
            }
            last = now;
        }
    }

    /// Returns whether its points are counted by a query that costs it time.
    pub(crate) fn counts_by_query(&self) -> bool {
        self.kind == Kind::InfluxDb
    }

    /// Waits until `points` are stored, or no more are added, and returns their number.
    pub(crate) fn points_within(&self, points: u64) -> anyhow::Result<u64> {
        let (begun, mut changed, mut last) = (Instant::now(), Instant::now(), self.points()?);
        // Metrics of a server are brought up to date once a second or so.
        while last < points && changed.elapsed() < SETTLED && begun.elapsed() < PATIENCE {
            let step = if self.counts_by_query() { 300 } else { 50 };
            pause(Duration::from_millis(step));
            let now = self.points()?;
            if now != last {
                (changed, last) = (Instant::now(), now);
            }
        }
        Ok(last)
    }

    /// Waits until a query finds `count` series.
    pub(crate) fn await_series(&mut self, count: u64, patience: Duration) -> anyhow::Result<()> {
        await_true(patience, || {
            let found = match self.kind {
                Kind::InfluxDb => self.points()?,
                _ => self.value("count({__name__=~\"m[0-9]+\"})")?.unwrap_or(0.0) as u64,
            };
            Ok(found >= count)
        })
    }

    /// Returns the value of an instant query, of InfluxDB the last value of the metric.
    pub(crate) fn value(&self, expr: &str) -> anyhow::Result<Option<f64>> {
        if self.kind == Kind::InfluxDb {
            let text = self.get(&format!(
                "/query?db=bench&q=SELECT%20last(value)%20FROM%20{expr}"
            ))?;
            let answer: Value = serde_json::from_str(&text)?;
            return Ok(answer["results"][0]["series"][0]["values"][0][1].as_f64());
        }
        // The cache of a server would answer with what was.
        let text = self.get(&format!("/api/v1/query?nocache=1&query={}", escaped(expr)))?;
        let answer: Value = serde_json::from_str(&text)?;
        let value = answer["data"]["result"][0]["value"][1].as_str();
        Ok(value.and_then(|value| value.parse().ok()))
    }

    /// Returns the value of an instant query at a time, in s since 1970.
    pub(crate) fn value_at(&self, expr: &str, at_s: f64) -> anyhow::Result<Option<f64>> {
        let text = self.get(&format!(
            "/api/v1/query?time={at_s:.3}&query={}",
            escaped(expr)
        ))?;
        let answer: Value = serde_json::from_str(&text)?;
        let value = answer["data"]["result"][0]["value"][1].as_str();
        Ok(value.and_then(|value| value.parse().ok()))
    }

    /// Returns the samples of a range selector up to a time, in s since 1970.
    pub(crate) fn samples(&self, selector: &str, at_s: f64) -> anyhow::Result<Vec<Series>> {
        let text = self.get(&format!(
            "/api/v1/query?time={at_s:.3}&query={}",
            escaped(selector)
        ))?;
        let answer: Value = serde_json::from_str(&text)?;
        let result = answer["data"]["result"].as_array();
        let result = result.with_context(|| format!("{selector} answers {text}"))?;
        Ok(result.iter().map(series).collect())
    }

    /// Returns whether the alert of [`RULE`] fires.
    pub(crate) fn is_firing(&self) -> anyhow::Result<bool> {
        let answer: Value = serde_json::from_str(&self.get("/api/alarms")?)?;
        let alarms = answer["alarms"].as_array();
        let mut alarms = alarms.into_iter().flatten();
        Ok(alarms.any(|one| one["alert"] == "Probe" && one["state"] == "firing"))
    }

    /// Averages over a minute for the last hour, of one series and of all hosts of a name.
    pub(crate) fn query_times(&mut self) -> anyhow::Result<Option<QueryTimes>> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        // Whole minutes, as Grafana asks and as InfluxDB groups by itself.
        let now = now - now % 60;
        let [one, many] = if self.kind == Kind::InfluxDb {
            [" AND host='h3'", ""].map(|and| {
                let text = format!(
                    "SELECT mean(value) FROM m0 WHERE time > now() - 1h{and} GROUP BY time(1m)"
                );
                format!("/query?db=bench&q={}", escaped(&text))
            })
        } else {
            [
                "avg_over_time(m0{host=\"h3\"}[1m])",
                "avg(avg_over_time(m0[1m]))",
            ]
            .map(|expr| {
                let (begin, expr) = (now - 3600, escaped(expr));
                format!(
                    "/api/v1/query_range?nocache=1&query={expr}&start={begin}&end={now}&step=60"
                )
            })
        };
        let median = |path: &str| -> anyhow::Result<f64> {
            let mut times = Vec::new();
            for _ in 0..QUERIES {
                let begun = Instant::now();
                let text = self.get(path)?;
                times.push(begun.elapsed().as_secs_f64() * 1000.0);
                ensure!(text.len() > 300, "{path} answers with nothing: {text}");
            }
            Ok(stat::quantile(&times, 0.5).unwrap_or(f64::NAN))
        };
        Ok(Some(QueryTimes {
            one: median(&one)?,
            many: median(&many)?,
        }))
    }
}

fn sheaf(
    program: &Path,
    receivers: u32,
    data: &Path,
    http: SocketAddr,
    udp: SocketAddr,
) -> Command {
    let mut command = Command::new(program);
    command.args([
        "monitor",
        "--http",
        &http.to_string(),
        "--udp",
        &udp.to_string(),
    ]);
    command.arg("--data").arg(data);
    command.args(["--receivers", &receivers.to_string()]);
    command.args(["--config", FARM_FILE]);
    command
}

fn victoria_metrics(
    folder: &Path,
    data: &Path,
    http: SocketAddr,
    udp: SocketAddr,
    relabel: &str,
) -> anyhow::Result<Command> {
    let mut command = Command::new("victoria-metrics");
    command.arg(format!("-storageDataPath={}", data.display()));
    command.arg(format!("-httpListenAddr={http}"));
    command.arg(format!("-influxListenAddr={udp}"));
    command.args([
        "-influxSkipSingleField",
        "-search.latencyOffset=0s",
        "-search.disableCache",
    ]);
    if !relabel.is_empty() {
        let path = folder.join("relabel.yml");
        std::fs::write(&path, relabel)?;
        command.arg(format!("-relabelConfig={}", path.display()));
    }
    Ok(command)
}

fn influxdb(
    folder: &Path,
    data: &Path,
    http: SocketAddr,
    udp: SocketAddr,
) -> anyhow::Result<Command> {
    let [rpc, _] = free_ports()?;
    let data = data.display();
    let text = format!(
        "reporting-disabled = true\nbind-address = \"{rpc}\"\n[meta]\ndir = \"{data}/meta\"\n\
         [data]\ndir = \"{data}/data\"\nwal-dir = \"{data}/wal\"\nmax-series-per-database = 0\n\
         query-log-enabled = false\n\
         [monitor]\nstore-enabled = false\n[http]\nbind-address = \"{http}\"\nlog-enabled = false\n\
         [[udp]]\nenabled = true\nbind-address = \"{udp}\"\ndatabase = \"bench\"\nbatch-timeout = \"100ms\"\n\
         read-buffer = 4194304\n"
    );
    let path = folder.join("influxdb.conf");
    std::fs::write(&path, text)?;
    let mut command = Command::new("influxd");
    command.arg("-config").arg(path);
    Ok(command)
}

fn prometheus(folder: &Path, data: &Path, http: SocketAddr) -> anyhow::Result<Command> {
    let path = folder.join("prometheus.yml");
    std::fs::write(&path, "global:\n  scrape_interval: 1h\n")?;
    let mut command = Command::new("prometheus");
    command.arg(format!("--config.file={}", path.display()));
    command.arg(format!("--storage.tsdb.path={}", data.display()));
    command.arg(format!("--web.listen-address={http}"));
    command.arg("--web.enable-remote-write-receiver");
    Ok(command)
}

/// Reads a series of the answer to a range selector.
fn series(answer: &Value) -> Series {
    let labels = answer["metric"].as_object();
    let labels = labels.into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let samples = answer["values"].as_array().into_iter().flatten();
    Series {
        labels: labels
            .map(|(name, value)| (name.clone(), text(value)))
            .collect(),
        samples: samples
            .filter_map(|sample| Some((sample[0].as_f64()?, sample[1].as_str()?.parse().ok()?)))
            .collect(),
    }
}

/// Returns addresses whose ports are free, for TCP and for UDP.
fn free_ports() -> anyhow::Result<[SocketAddr; 2]> {
    let first = TcpListener::bind("127.0.0.1:0")?;
    let second = TcpListener::bind("127.0.0.1:0")?;
    Ok([first.local_addr()?, second.local_addr()?])
}

/// Returns `text` with everything escaped that is no letter and no digit.
fn escaped(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

/// Asks until `is_true` says so.
fn await_true(
    patience: Duration,
    mut is_true: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let end = Instant::now() + patience;
    while !is_true()? {
        ensure!(Instant::now() < end, "not within {} s", patience.as_secs());
        pause(Duration::from_millis(5));
    }
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "servers of others give no notice when they have settled: they are asked again after a while"
)]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}
