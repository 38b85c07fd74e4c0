//! Time of a change of a table, and what it moves.

use super::super::plane::Plane;
use super::super::stage::{Engine, Objects, Stage};
use super::super::{Options, SMALL_BYTES};
use anyhow::{Context as _, ensure};
use serde::Serialize;
use serde_json::Value;
use std::fmt;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Longest wait until the director is at rest.
const PATIENCE: Duration = Duration::from_secs(20);

/// Row of the report: tables of one plane in which one server is taken out or in.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChangeRow {
    /// Plane.
    pub plane: String,
    /// Servers of the service.
    pub servers: usize,
    /// Slots of the table.
    pub slots: u64,
    /// Tables that the plane carried out: several for each order, since moves go in steps.
    pub applied: u64,
    /// Mean time of one, in ms.
    pub apply_ms: f64,
    /// Share of the slots that an order moved beyond those that it had to, in percent: mean and most of all orders.
    pub moved_beyond_percent: [f64; 2],
}

impl fmt::Display for ChangeRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [mean, most] = self.moved_beyond_percent;
        write!(
            f,
            "{}: a table of {} slots is carried out in {:.1} ms (mean of {}); an order moves {mean:.2} % of the slots \
             beyond its own, {most:.2} % at most",
            self.plane, self.slots, self.apply_ms, self.applied
        )
    }
}

/// Drains each server and adds it again, without load.
pub(super) fn measure(
    options: &Options,
    engine: Engine,
    plane: &Plane,
    objects: &Objects,
) -> anyhow::Result<ChangeRow> {
    let mut stage = Stage::build(options, engine, None, objects)?;
    plane.start(&mut stage, options, SMALL_BYTES)?;
    let http = SocketAddr::new(stage.site.director(0).v4.into(), 7400);
    at_rest(&stage, http)?;
    let before = applied(&stage, http)?;
    let (mut slots, mut beyond) = (0, Vec::new());
    for server in stage.site.servers() {
        for order in ["drain", "add"] {
            let mut command = stage.site.command(stage.site.director(0), &options.program);
            command.args(["serve", order, &format!("files/{}", server.name), "--json"]);
            let output = command.args(["--director", &http.to_string()]).output()?;
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            ensure!(output.status.success(), "{order} {}: {told}", server.name);
            let trials: Value = serde_json::from_slice(&output.stdout)?;
            let trial = |name: &str| trials[0][name].as_u64().context("a trial lacks a number");
            slots = trial("slots")?;
            let extra = trial("moved")?.saturating_sub(trial("needed")?);
            beyond.push(extra as f64 / slots.max(1) as f64 * 100.0);
            at_rest(&stage, http)?;
        }
    }
    let after = applied(&stage, http)?;
    let count = after.0 - before.0;
    Ok(ChangeRow {
        plane: plane.name.to_owned(),
        servers: options.servers,
        slots,
        applied: count as u64,
        apply_ms: (after.1 - before.1) / count.max(1.0) * 1000.0,
        moved_beyond_percent: [
            beyond.iter().sum::<f64>() / beyond.len().max(1) as f64,
            beyond.iter().copied().fold(0.0, f64::max),
        ],
    })
}

/// Waits until nothing is on the move and every server is up.
fn at_rest(stage: &Stage, http: SocketAddr) -> anyhow::Result<()> {
    let end = Instant::now() + PATIENCE;
    loop {
        let status: Value = serde_json::from_str(&get(stage, http, "/status")?)?;
        let service = &status["services"][0];
        let servers = service["servers"].as_array();
        let are_up = servers.is_some_and(|all| all.iter().all(|one| one["is_up"] == true));
        if service["step"] == "steady" && service["moving"] == 0 && are_up {
            return Ok(());
        }
        ensure!(
            Instant::now() < end,
            "not at rest after {PATIENCE:?}: {service}"
        );
        super::pace(Duration::from_millis(20));
    }
}

/// Returns how many tables the plane has carried out, and the seconds for all of them.
fn applied(stage: &Stage, http: SocketAddr) -> anyhow::Result<(f64, f64)> {
    let page = get(stage, http, "/metrics")?;
    let value = |name: &str| {
        let line = page.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
        value.with_context(|| format!("no {name} in the metrics of the director"))
    };
    Ok((
        value("serve_apply_seconds_count")?,
        value("serve_apply_seconds_sum")?,
    ))
}

/// Fetches a page of the director from where it stands.
fn get(stage: &Stage, http: SocketAddr, path: &'static str) -> anyhow::Result<String> {
    let read = move || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(http)?;
        let head = format!("GET {path} HTTP/1.0\r\nHost: {http}\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    };
    let thread = stage.site.inside(stage.site.director(0), read)?;
    let text = thread.join().expect("reading does not panic")??;
    let (_, body) = text.split_once("\r\n\r\n").context("no head of HTTP")?;
    Ok(body.to_owned())
}
