//! Load test of the serving stage: many clients, one address, several servers.
//!
//! [`measure_service`] loads a service that runs, by its URLs. [`measure`] builds a site of namespaces with servers and
//! a director and measures, in turn in each round, clients that go to the servers directly, peers, and the planes of
//! Sheaf. Clients, director and servers share the machine, so what a plane costs shows in its rate and in CPU seconds
//! of the whole machine for a GB. [`measure_faults`] lets servers and the director die under load. [`Point`] is one run
//! of that kind, for experiments that repeat runs and judge them by themselves.

mod case;
mod drains;
mod faults;
mod injection;
mod plane;
mod point;
mod report;
mod service;
mod stage;

use crate::Missing;
use crate::cpus::Cpus;
use crate::report::Head;
use anyhow::Context as _;
use case::Case;
pub use case::Sample;
pub use faults::{ChangeRow, FaultReport, FaultRow, measure_faults};
pub use injection::Fault;
use plane::Plane;
use point::Run;
pub use point::{Point, PointError};
pub use report::{Latency, LatencyMs, Report, Row, Server};
pub use service::{ServiceOptions, measure_service};
use sheaf_load::raise_descriptor_limit;
use sheaf_testbed::net::needs;
pub use stage::UPLOAD_ENGINE;
use stage::{Engine, Objects};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Bytes of the objects of new connections.
const SMALL_BYTES: u64 = 1_000;

/// Options of the benchmark in namespaces.
#[derive(Clone, Debug)]
pub struct Options {
    /// Planes by name; empty for all.
    pub planes: Vec<String>,
    /// Kinds of servers by name.
    pub engines: Vec<String>,
    /// Numbers of clients.
    pub clients: Vec<u32>,
    /// Clients that measure new connections, with objects of 1 kB; 0: no such rows.
    pub connection_clients: u32,
    /// Bytes of an object.
    pub object_bytes: u64,
    /// Servers.
    pub servers: usize,
    /// Client hosts.
    pub client_hosts: usize,
    /// Whether clients use IPv6.
    pub is_ipv6: bool,
    /// Whether clients put objects in place of fetching them.
    pub is_upload: bool,
    /// Rate of the cable of each server in Mbit/s; `None`: as fast as the machine.
    pub server_mbit: Option<f64>,
    /// Rates of the cables of client hosts in Mbit/s, each measured; `None`: as fast as the machine.
    pub client_mbit: Vec<Option<f64>>,
    /// Whether clients are on their hosts evenly, and whether by lot, each measured.
    pub placements: Vec<Placement>,
    /// Mean pause of a client after a transfer.
    pub think: Duration,
    /// Most bytes a second of a client.
    pub rate_bytes_per_s: Option<u64>,
    /// Whether connections serve several transfers.
    pub keeps_alive: bool,
    /// Servers taken out and in again in each window of a plane of Sheaf, in turn.
    pub drains: u32,
    /// Whether faults are injected, in place of the measurement of rates.
    pub injects_faults: bool,
    /// Rounds: each measures every plane once with every number of clients.
    pub rounds: u32,
    /// Length of a window.
    pub window: Duration,
    /// Time before it, in which clients begin too.
    pub warm_up: Duration,
    /// Seed of ranges and pauses.
    pub seed: u64,
    /// Program that runs clients, and Sheaf's planes and servers: this one.
    pub program: PathBuf,
}

/// Spread of the clients over their hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// As many on each host as on every other.
    Even,
    /// A host for each client by lot, as a batch system places jobs.
    Random,
}

impl Placement {
    /// All, by name.
    pub const ALL: [(&'static str, Self); 2] = [("even", Self::Even), ("random", Self::Random)];
}

impl Options {
    fn has_plane(&self, name: &str) -> bool {
        self.planes.is_empty() || self.planes.iter().any(|plane| plane == name)
    }
}

/// Names of all planes.
#[must_use]
pub fn plane_names() -> Vec<&'static str> {
    Plane::ALL.iter().map(|plane| plane.name).collect()
}

/// Names of all kinds of servers.
#[must_use]
pub fn engine_names() -> Vec<&'static str> {
    Engine::ALL.iter().map(|engine| engine.name()).collect()
}

/// Measures all planes; `progress` gets a line for each run.
///
/// # Errors
///
/// [`Missing`] if the machine lacks namespaces or a server, or why a run did not come to its end in order. Planes that
/// are not there are skipped by name.
pub fn measure(options: &Options, progress: &mut impl FnMut(String)) -> anyhow::Result<Report> {
    needs().map_err(|missing| Missing(missing.to_string()))?;
    // Servers and directors have it from here.
    raise_descriptor_limit().context("the limit of descriptors cannot be raised")?;
    let engines = engines(options)?;
    let mut skipped = Vec::new();
    let mut planes = Vec::new();
    for plane in &Plane::ALL {
        if !options.has_plane(plane.name) {
            continue;
        }
        match (plane.missing)(options) {
            None => planes.push(plane),
            Some(why) => skipped.push(format!("{}: {why}", plane.name)),
        }
    }
    let objects = Objects::make(&[options.object_bytes, SMALL_BYTES])?;
    let mut turns = turns(options, &engines, &planes);
    for round in 1..=options.rounds {
        for turn in &mut turns {
            let sample = turn.run(options, &objects);
            let sample = sample.with_context(|| format!("round {round}: {turn}"))?;
            progress(format!("round {round}: {turn}: {sample}"));
            turn.case.samples.push(sample);
        }
    }
    let cases: Vec<Case> = turns.into_iter().map(|turn| turn.case).collect();
    Ok(Report {
        head: Head::new(
            &Cpus::allowed(false)?,
            options.window.as_secs_f64(),
            options.warm_up.as_secs_f64(),
        ),
        urls: Vec::new(),
        servers: options.servers,
        client_hosts: options.client_hosts,
        is_ipv6: options.is_ipv6,
        server_mbit: options.server_mbit,
        rows: report::rows(&cases),
        skipped,
    })
}

fn engines(options: &Options) -> anyhow::Result<Vec<Engine>> {
    let named = options.engines.iter().map(|name| {
        let found = Engine::ALL.iter().find(|engine| engine.name() == name);
        let engine = *found.with_context(|| format!("found servers {name:?}"))?;
        match engine.missing(options) {
            None => Ok(engine),
            Some(why) => Err(Missing(format!("servers {name}: {why}")).into()),
        }
    });
    named.collect()
}

/// Plane, servers and load that are measured once in each round.
struct Turn {
    plane: &'static Plane,
    engine: Engine,
    case: Case,
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (plane, engine, case) = (self.plane.name, self.engine.name(), &self.case);
        let (clients, bytes) = (case.clients, case.object_bytes);
        write!(
            f,
            "{plane} before {engine}, {clients} clients, {bytes} bytes"
        )?;
        if let Some(rate) = case.client_mbit {
            write!(f, ", hosts of {rate} Mbit/s")?;
        }
        match case.placement {
            Placement::Even => Ok(()),
            Placement::Random => write!(f, ", placed by lot"),
        }
    }
}

/// Returns what is measured in each round, in this order: the planes of a case one after the other.
fn turns(options: &Options, engines: &[Engine], planes: &[&'static Plane]) -> Vec<Turn> {
    let connections = Some(options.connection_clients).filter(|clients| *clients > 0);
    let loads = options
        .clients
        .iter()
        .map(|clients| (*clients, options.object_bytes))
        .chain(connections.map(|clients| (clients, SMALL_BYTES)));
    let mut turns = Vec::new();
    for (clients, object_bytes) in loads {
        let hosts = options.client_mbit.iter().flat_map(|client_mbit| {
            // Without cables it is all the same where clients are.
            let all = options.placements.iter();
            let all = all.take(if client_mbit.is_some() { usize::MAX } else { 1 });
            all.map(|placement| (*client_mbit, *placement))
        });
        for (client_mbit, placement) in hosts {
            for &engine in engines {
                turns.extend(planes.iter().map(|&plane| Turn {
                    plane,
                    engine,
                    case: Case {
                        plane: plane.name.to_owned(),
                        engine: Some(engine.name().to_owned()),
                        clients,
                        object_bytes,
                        client_mbit,
                        placement,
                        samples: Vec::new(),
                    },
                }));
            }
        }
    }
    turns
}

impl Turn {
    fn run(&self, options: &Options, objects: &Objects) -> anyhow::Result<Sample> {
        let case = &self.case;
        Run {
            plane: self.plane,
            engine: self.engine,
            clients: case.clients,
            object_bytes: case.object_bytes,
            client_mbit: case.client_mbit,
            placement: case.placement,
            fault: None,
        }
        .measure(options, objects)
    }
}
