//! The collector of a demo: a process `sheaf monitor` beside the nodes, which send their metrics to it.

use anyhow::{Context as _, bail};
use rustix::process::Signal;
use serde::Deserialize;
use sheaf_farm::{Process, RunDir};
use sheaf_node::config::MetricsConfig;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

/// Addresses of the pages: the one of every collector, and any that is free when another process has it.
const PAGES: [&str; 2] = ["127.0.0.1:9470", "127.0.0.1:0"];
/// How long the collector may take to listen.
const START_MAX: Duration = Duration::from_secs(20);
/// How long it may take to commit what it has.
const END_MAX: Duration = Duration::from_secs(10);
/// Time between two samples of a node, in ms: the pages show a node that died within a second.
const INTERVAL_MS: u64 = 250;
/// Name of the farm in the labels of the samples.
const FARM: &str = "demo";

/// Collector that runs; killed when dropped.
pub(super) struct Collector {
    process: Process,
    at: Listening,
}

/// Line that a collector prints when it listens.
#[derive(Deserialize)]
struct Listening {
    /// Address of the pages, as a URL.
    listening: String,
    udp: Vec<SocketAddr>,
}

impl Collector {
    /// Starts a collector with its samples and its log in `dir`.
    ///
    /// # Errors
    ///
    /// The reason why it does not listen.
    pub(super) fn start(dir: &RunDir) -> anyhow::Result<Self> {
        let mut found = Err(anyhow::anyhow!("no address of the pages"));
        for http in PAGES {
            found = Self::start_at(dir, http);
            if found.is_ok() {
                break;
            }
        }
        found
    }

    fn start_at(dir: &RunDir, http: &str) -> anyhow::Result<Self> {
        let program =
            sheaf_node::program::path().context("cannot find the path of this program")?;
        let mut command = Command::new(program);
        command
            .args(["monitor", "--http", http, "--udp", "127.0.0.1:0", "--data"])
            .arg(dir.file("monitor"))
            .args(["--parent", &std::process::id().to_string()]);
        // A Ctrl-C at the terminal is for the demo alone: the collector takes the last samples of the nodes.
        command.process_group(0);
        let log = dir.file("monitor.log");
        let mut process = Process::spawn(command, &log)?;
        let lines = process.lines()?;
        let Ok(line) = lines.await_line(START_MAX, |line| line.contains("listening")) else {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            bail!("{}", text.lines().last().unwrap_or("it says nothing"));
        };
        let at = serde_json::from_str(&line).context("cannot read what it says")?;
        Ok(Self { process, at })
    }

    /// Address of the pages.
    pub(super) fn pages(&self) -> &str {
        &self.at.listening
    }

    /// Lets nodes send their metrics here as well.
    pub(super) fn add_to(&self, config: &mut MetricsConfig) {
        let uris = self.at.udp.iter();
        config
            .backends
            .extend(uris.map(|address| format!("influxdb-udp://{address}")));
        config.interval_ms = INTERVAL_MS;
        FARM.clone_into(&mut config.farm);
    }

    /// Ends the collector in order: all samples that it has are committed.
    pub(super) fn end(mut self) {
        if self.process.signal(Signal::TERM) && self.process.await_end(END_MAX).is_none() {
            tracing::warn!("The collector did not end in time and is killed");
        }
    }
}
