//! Hostile clients of a file server, and what they cost: its memory, the time of honest clients beside them, and what
//! was refused with which status.
//!
//! Each row is a server of its own, `sheaf files serve`, with honest clients alone or beside one kind of attack. The
//! first row has no attack: it is what the others are held against.

mod attack;
mod honest;
mod server;

use crate::cpus::Cpus;
use crate::report::{self, Head};
use anyhow::Context as _;
pub use attack::Attack;
use honest::Honest;
use serde::{Deserialize, Serialize};
use server::Server;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often the server is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Subject of a measurement.
#[derive(Clone, Debug)]
pub struct Options {
    /// Program that is the server: this one, unless a test says otherwise.
    pub program: PathBuf,
    /// Attacks, each in a row of its own behind the one without any.
    pub attacks: Vec<Attack>,
    /// Connections of attacks that hold them idle.
    pub idle: usize,
    /// Connections of attacks that keep the server waiting.
    pub slow: usize,
    /// Honest clients.
    pub honest: usize,
    /// Requests a second of each honest client.
    pub rate_hz: f64,
    /// Length of a row.
    pub window: Duration,
}

/// Times of honest clients, from connect to the last byte.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HonestRow {
    /// Requests that were finished.
    pub finished: u64,
    /// Requests that were not.
    pub failed: u64,
    /// Median of the time in ms.
    pub p50_ms: f64,
    /// 99th percentile in ms.
    pub p99_ms: f64,
    /// Longest time in ms.
    pub max_ms: f64,
}

/// Deeds of an attack, and what it got.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AttackRow {
    /// Connections that were opened.
    pub connections: u64,
    /// Connections that could not be opened.
    pub not_opened: u64,
    /// Connections that the server has closed.
    pub closed: u64,
    /// Answers by their status.
    pub statuses: BTreeMap<String, u64>,
    /// Bytes of answers that were read.
    pub read_bytes: u64,
    /// Requests that were smuggled behind a head: none may be answered.
    pub smuggled: u64,
}

/// Honest clients beside one attack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Name of the attack; `none` for the first row.
    pub attack: String,
    /// Honest clients.
    pub honest: HonestRow,
    /// The attack.
    pub hostile: AttackRow,
    /// Memory of the server before the attack in MB.
    pub memory_before_mb: f64,
    /// Largest memory of the server in MB.
    pub memory_max_mb: f64,
    /// Most connections that the server had at once.
    pub connections_max: u64,
    /// Processor time of the server in s.
    pub cpu_s: f64,
    /// Connections that the server closed for what their clients did, by reason.
    pub refused: BTreeMap<String, u64>,
}

/// Rows of all attacks.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    #[serde(flatten)]
    head: Head,
    /// Processes that wanted a processor in the minute before, on average: above 1 the machine was not quiet.
    pub load_before: f64,
    /// Honest clients without an attack, and beside each.
    pub rows: Vec<Row>,
    /// Promises that were not kept; none is the good outcome.
    pub broken: Vec<String>,
}

/// Measures all rows.
///
/// # Errors
///
/// A server that does not start or ends, or descriptors that are too few.
pub fn measure(options: &Options, progress: &mut impl FnMut(String)) -> anyhow::Result<Report> {
    sheaf_load::raise_descriptor_limit().context("cannot raise the limit of descriptors")?;
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load_before = load.split(' ').next().and_then(|load| load.parse().ok());
    let attacks = std::iter::once(Attack::None).chain(options.attacks.iter().copied());
    let mut rows = Vec::new();
    for attack in attacks {
        let row = measure_row(options, attack)?;
        progress(row.to_string());
        rows.push(row);
    }
    let broken = rows.iter().flat_map(broken_of).collect();
    let seconds = options.window.as_secs_f64();
    Ok(Report {
        head: Head::new(&Cpus::allowed(false)?, seconds, 0.0),
        load_before: load_before.unwrap_or(0.0),
        rows,
        broken,
    })
}

fn measure_row(options: &Options, attack: Attack) -> anyhow::Result<Row> {
    let server = Server::start(&options.program)?;
    let is_over = AtomicBool::new(false);
    let memory_before = server.memory_bytes()?;
    let due = Instant::now() + options.window;
    let mut memory_max = memory_before;
    let mut connections_max = 0;
    let count = match attack {
        Attack::Idle => options.idle,
        _ => options.slow,
    };
    let (honest, hostile) = std::thread::scope(|scope| {
        let honest: Vec<_> = (0..options.honest)
            .map(|_| scope.spawn(|| Honest::run(server.address(), options.rate_hz, &is_over)))
            .collect();
        let hostile = scope.spawn(|| attack.run(server.address(), count, &is_over));
        let mut looked = Ok(());
        while looked.is_ok() && Instant::now() < due {
            std::thread::park_timeout(LOOK);
            looked = server
                .memory_bytes()
                .map(|bytes| memory_max = memory_max.max(bytes));
            if let Ok(metrics) = server.metrics() {
                let now = metrics.get("file_server_connections").copied();
                connections_max = connections_max.max(now.unwrap_or(0));
            }
        }
        is_over.store(true, Ordering::Relaxed);
        let mut all = Honest::default();
        for one in honest {
            all.add(one.join().expect("an honest client does not panic"));
        }
        let hostile = hostile.join().expect("an attack does not panic");
        looked.map(|()| (all, hostile))
    })?;
    let refused = server.metrics()?.into_iter().filter_map(|(name, count)| {
        let reason = name.strip_prefix("file_server_refused_total{reason=\"")?;
        let reason = reason.trim_end_matches("\"}").to_owned();
        (count > 0).then_some((reason, count))
    });
    Ok(Row {
        attack: attack.name().to_owned(),
        honest: honest.row(),
        hostile,
        memory_before_mb: memory_before as f64 / 1e6,
        memory_max_mb: memory_max as f64 / 1e6,
        connections_max,
        cpu_s: server.cpu_s()?,
        refused: refused.collect(),
    })
}

/// Names the promises that a row breaks.
fn broken_of(row: &Row) -> Vec<String> {
    let mut broken = Vec::new();
    let attack = &row.attack;
    if row.honest.failed > 0 {
        let failed = row.honest.failed;
        broken.push(format!(
            "{attack}: {failed} requests of honest clients failed"
        ));
    }
    if row.honest.finished == 0 {
        broken.push(format!(
            "{attack}: no request of an honest client was finished"
        ));
    }
    if row.hostile.smuggled > 0 {
        let smuggled = row.hostile.smuggled;
        broken.push(format!(
            "{attack}: {smuggled} smuggled requests were answered"
        ));
    }
    broken
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<14} honest: {} finished, {} failed, {:.1} / {:.1} ms; {:.0} -> {:.0} MB; {:?}",
            self.attack,
            self.honest.finished,
            self.honest.failed,
            self.honest.p50_ms,
            self.honest.p99_ms,
            self.memory_before_mb,
            self.memory_max_mb,
            self.hostile.statuses,
        )
    }
}

impl Report {
    /// Returns the report as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        report::to_json(self)
    }

    /// Returns the report as a page in Markdown.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let mut text = format!(
            "# Hostile clients of the file server\n\n{}; load of the machine {:.1} before.\nWritten by \
             `sheaf bench hostile`; times of honest clients run from connect to the last byte of 64 kB.\n\n\
             | attack | honest: finished, failed | p50 ms | p99 ms | max ms | memory MB: before, most | connections, most | \
             CPU s | answers to the attack | closed by the server |\n\
             | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
            self.head, self.load_before
        );
        for row in &self.rows {
            let list = |counts: &BTreeMap<String, u64>| {
                let texts: Vec<String> = counts
                    .iter()
                    .map(|(name, count)| format!("{name}: {count}"))
                    .collect();
                texts.join(", ")
            };
            let honest = &row.honest;
            text += &format!(
                "| {} | {}, {} | {:.2} | {:.2} | {:.1} | {:.1}, {:.1} | {} | {:.2} | {} | {} |\n",
                row.attack,
                honest.finished,
                honest.failed,
                honest.p50_ms,
                honest.p99_ms,
                honest.max_ms,
                row.memory_before_mb,
                row.memory_max_mb,
                row.connections_max,
                row.cpu_s,
                list(&row.hostile.statuses),
                list(&row.refused),
            );
        }
        text += "\n";
        for attack in Attack::ALL {
            text += &format!("- `{}`: {}.\n", attack.name(), attack.doc());
        }
        text += &match self.broken.is_empty() {
            true => "\nAll promises were kept: no request of an honest client failed, no smuggled one was answered.\n".to_owned(),
            false => format!("\nNot kept: {}.\n", self.broken.join("; ")),
        };
        text
    }
}
