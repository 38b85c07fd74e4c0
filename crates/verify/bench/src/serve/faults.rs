//! Faults under load: a server that dies or is cut off, a director that dies, and the time that a table takes.
//!
//! While clients load the service, probers open new connections at a steady pace. What they see tells how long new
//! connections go astray, and when the servers that are left share the load again.

mod change;
mod probes;

use super::injection::{Again, Fault, Injection, pace};
use super::plane::Plane;
use super::stage::{Engine, Objects, Stage, watch};
use super::{Options, Placement, SMALL_BYTES};
use crate::Missing;
use crate::cpus::Cpus;
use crate::report::{Head, to_json};
use anyhow::{Context as _, ensure};
pub use change::ChangeRow;
use probes::{Probers, Seen, seen};
use serde::Serialize;
use sheaf_figures::stat::quantile;
use sheaf_load::{Load, raise_descriptor_limit};
use sheaf_testbed::net::needs;
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

/// Time from the opening of the window to the fault.
const BEFORE: Duration = Duration::from_secs(2);
/// Time for which a director is gone.
const AWAY: Duration = Duration::from_secs(2);

/// Row of the report: one fault with one plane.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FaultRow {
    /// Fault.
    pub fault: String,
    /// Plane.
    pub plane: String,
    /// Clients that load the service meanwhile.
    pub clients: u32,
    /// Rounds.
    pub rounds: usize,
    /// New connections since the faults, in all rounds.
    pub probes: u64,
    /// Connections of these without an answer.
    pub failed_probes: u64,
    /// Seconds from the fault to the begin of the last of them, median of the rounds.
    pub recovered_s: f64,
    /// Least and most of the rounds.
    pub recovered_s_range: [f64; 2],
    /// Seconds until servers that are left share new connections, median of the rounds; `None`: not in one of them.
    pub spread_s: Option<f64>,
    /// Transfers of the load that finished, in all rounds.
    pub finished: u64,
    /// Transfers that failed on a connection that they had.
    pub broken: u64,
    /// Transfers that failed, those too.
    pub failed: u64,
}

/// Results of faults.
#[derive(Clone, Debug, Serialize)]
pub struct FaultReport {
    #[serde(flatten)]
    head: Head,
    /// Servers.
    pub servers: usize,
    /// Rows of faults.
    pub rows: Vec<FaultRow>,
    /// Rows of changes of a table.
    pub changes: Vec<ChangeRow>,
    /// Planes that are not there, each with the reason.
    pub skipped: Vec<String>,
}

/// One run.
struct Sample {
    seen: Seen,
    finished: u64,
    broken: u64,
    failed: u64,
}

/// Injects every fault with every plane; `progress` gets a line for each run.
///
/// # Errors
///
/// [`Missing`] if the machine lacks namespaces or a server, or why a run did not come to its end in order. Planes that
/// are not there are skipped by name.
pub fn measure_faults(
    options: &Options,
    progress: &mut impl FnMut(String),
) -> anyhow::Result<FaultReport> {
    needs().map_err(|missing| Missing(missing.to_string()))?;
    raise_descriptor_limit().context("the limit of descriptors cannot be raised")?;
    let least = BEFORE + AWAY + Duration::from_secs(2);
    ensure!(
        options.window >= least,
        "found a window of {:?}, expected {least:?} at least",
        options.window
    );
    let engine = Engine::Nginx;
    if let Some(why) = engine.missing(options) {
        return Err(Missing(why).into());
    }
    let mut skipped = Vec::new();
    let mut planes = Vec::new();
    for plane in Plane::ALL.iter().filter(|plane| plane.has_director()) {
        match (plane.missing)(options) {
            _ if !options.has_plane(plane.name) => {}
            None => planes.push(plane),
            Some(why) => skipped.push(format!("{}: {why}", plane.name)),
        }
    }
    let clients = options.clients.first().copied().unwrap_or(60);
    let objects = Objects::make(&[options.object_bytes, SMALL_BYTES])?;
    let mut rows = Vec::new();
    for fault in Fault::ALL {
        for plane in &planes {
            let mut samples = Vec::new();
            for round in 1..=options.rounds {
                let sample = inject(options, engine, plane, fault, clients, &objects);
                let (fault, plane) = (fault.name(), plane.name);
                let sample = sample.with_context(|| format!("round {round}: {fault}, {plane}"))?;
                progress(format!("round {round}: {fault}, {plane}: {sample}"));
                samples.push(sample);
            }
            rows.push(row(fault, plane.name, clients, &samples));
        }
    }
    let mut changes = Vec::new();
    for plane in planes.iter().filter(|plane| plane.takes_orders) {
        let change = change::measure(options, engine, plane, &objects)?;
        progress(change.to_string());
        changes.push(change);
    }
    Ok(FaultReport {
        head: Head::new(
            &Cpus::allowed(false)?,
            options.window.as_secs_f64(),
            options.warm_up.as_secs_f64(),
        ),
        servers: options.servers,
        rows,
        changes,
        skipped,
    })
}

fn row(fault: Fault, plane: &str, clients: u32, samples: &[Sample]) -> FaultRow {
    let recovered: Vec<f64> = samples.iter().map(|one| one.seen.recovered_s).collect();
    let spread: Option<Vec<f64>> = samples.iter().map(|one| one.seen.spread_s).collect();
    let sum = |count: fn(&Sample) -> u64| samples.iter().map(count).sum();
    FaultRow {
        fault: fault.name().to_owned(),
        plane: plane.to_owned(),
        clients,
        rounds: samples.len(),
        probes: sum(|one| one.seen.probes),
        failed_probes: sum(|one| one.seen.failed),
        recovered_s: quantile(&recovered, 0.5).unwrap_or(0.0),
        recovered_s_range: [
            quantile(&recovered, 0.0).unwrap_or(0.0),
            quantile(&recovered, 1.0).unwrap_or(0.0),
        ],
        spread_s: spread.and_then(|spread| quantile(&spread, 0.5)),
        finished: sum(|one| one.finished),
        broken: sum(|one| one.broken),
        failed: sum(|one| one.failed),
    }
}

/// Runs one round on a site of its own.
fn inject(
    options: &Options,
    engine: Engine,
    plane: &Plane,
    fault: Fault,
    clients: u32,
    objects: &Objects,
) -> anyhow::Result<Sample> {
    let mut stage = Stage::build(options, engine, None, objects)?;
    let targets = plane.start(&mut stage, options, SMALL_BYTES)?;
    let probed = targets[0].clone();
    let loaded = Stage::targets_of(&targets, options.object_bytes);
    let again = match plane.command(&stage, options) {
        Some(command) => Some(Again {
            after: AWAY,
            command: command?,
            log: stage.file("director-again.log"),
        }),
        None => None,
    };
    let injection = Injection::new(&stage, fault, BEFORE, again)?;
    let victim = stage.site.server(0).name.clone();
    let load = Load {
        targets: loaded,
        clients,
        object_bytes: Some(options.object_bytes),
        ramp: options.warm_up / 2,
        warm_up: options.warm_up - options.warm_up / 2,
        window: options.window,
        seed: options.seed,
        ..Load::default()
    };
    let crew = stage.crew(options, &load, Placement::Even)?;
    let probers = Probers::start(&stage.site, &probed)?;
    let mut injected = None;
    let mut injection = Some(injection);
    let sample = watch(crew, &mut || {
        injected = injection
            .take()
            .map(|injection| std::thread::spawn(move || injection.run()));
    })?;
    let injected = injected.context("the window did not open")?;
    let (at, _again) = injected.join().expect("injecting does not panic")?;
    let servers = stage.site.servers().iter();
    let expected: BTreeSet<String> = servers
        .filter(|place| !fault.takes_a_server() || place.name != victim)
        .map(|place| place.name.clone())
        .collect();
    let probes = probers.finish(at);
    Ok(Sample {
        seen: seen(&probes, &expected),
        finished: sample.outcome.finished,
        broken: sample.outcome.broken(),
        failed: sample.outcome.failures(),
    })
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Seen {
            probes,
            failed,
            recovered_s,
            spread_s,
        } = self.seen;
        let spread = spread_s.map_or("not spread".to_owned(), |s| format!("spread in {s:.1} s"));
        write!(
            f,
            "{failed} of {probes} new connections failed, the last {recovered_s:.2} s after the fault, {spread}; {} \
             transfers of {} broken",
            self.broken, self.finished
        )
    }
}

impl FaultReport {
    /// Returns the report as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        to_json(self)
    }
}

impl fmt::Display for FaultReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.head)?;
        writeln!(
            f,
            "{:<16} {:<10} {:>7} {:>8} {:>7} {:>12} {:>13} {:>9} {:>9} {:>7} {:>7}",
            "FAULT",
            "PLANE",
            "CLIENTS",
            "probes",
            "failed",
            "recovered s",
            "least–most",
            "spread s",
            "transfers",
            "broken",
            "failed"
        )?;
        for row in &self.rows {
            let [least, most] = row.recovered_s_range;
            writeln!(
                f,
                "{:<16} {:<10} {:>7} {:>8} {:>7} {:>12.2} {:>13} {:>9} {:>9} {:>7} {:>7}",
                row.fault,
                row.plane,
                row.clients,
                row.probes,
                row.failed_probes,
                row.recovered_s,
                format!("{least:.2}–{most:.2}"),
                row.spread_s.map_or("–".to_owned(), |s| format!("{s:.1}")),
                row.finished,
                row.broken,
                row.failed
            )?;
        }
        for change in &self.changes {
            writeln!(f, "{change}")?;
        }
        for skipped in &self.skipped {
            writeln!(f, "skipped: {skipped}")?;
        }
        Ok(())
    }
}
