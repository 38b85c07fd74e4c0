//! Benchmark of the collector: what `sheaf monitor` takes, keeps, shows and answers, beside other servers.
//!
//! Each server runs by itself in a new folder, with a generator in a process of its own on the same machine. Stored
//! points are counted from the server's side after it has settled; CPU time is that of the server alone. `--json` has
//! a row for each measurement, with `null` where a row does not measure something.

pub(crate) mod load;
mod options;
pub(crate) mod probe;
pub(crate) mod row;
pub(crate) mod server;

pub use load::{LoadOptions, Shape, Target, generate};
pub use options::Options;
pub use row::{Report, Row};

use crate::cpus::Cpus;
use crate::report::Head;
use anyhow::Context as _;
use row::Times;
use server::{Kind, Server};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Points of a request over HTTP.
pub(crate) const REQUEST_POINTS: u32 = 5000;
/// Time that each server gets after the load of a history for its work in the background.
const UPKEEP: Duration = Duration::from_secs(5);
/// Series and time of the history whose bytes and queries are measured.
const HISTORY: (u32, u32) = (1000, 3600);

/// Measures everything that `options` asks for. `tell` is called with a line about each step.
///
/// # Errors
///
/// If the generator or Sheaf itself cannot run. A peer that is not installed is skipped by name.
pub fn measure(options: &Options, tell: &mut dyn FnMut(&str)) -> anyhow::Result<Report> {
    let cpus = Cpus::allowed(false)?;
    let mut report = Report {
        head: Head::new(&cpus, options.seconds, 0.0),
        rows: Vec::new(),
        skipped: Vec::new(),
    };
    for kind in Kind::ALL {
        if !options.has(kind.name()) {
            continue;
        }
        if let Some(program) = kind.missing() {
            let text = format!("skipped: {} ({program} is not installed)", kind.name());
            tell(&text);
            report.skipped.push(text);
            continue;
        }
        for step in Step::ALL {
            if !options.has_step(step.name()) || !step.is_for(kind) {
                continue;
            }
            tell(&format!("{}: {}", kind.name(), step.name()));
            let rows = step.run(kind, options);
            let rows = rows.with_context(|| format!("{}: {}", kind.name(), step.name()));
            let Report {
                rows: all, skipped, ..
            } = &mut report;
            take_rows(kind, rows, all, skipped, tell)?;
        }
    }
    Ok(report)
}

/// Adds the rows of a measurement of `kind`. A peer that fails costs its own rows, and Sheaf the run.
pub(crate) fn take_rows<T>(
    kind: Kind,
    rows: anyhow::Result<Vec<T>>,
    all: &mut Vec<T>,
    skipped: &mut Vec<String>,
    tell: &mut dyn FnMut(&str),
) -> anyhow::Result<()> {
    match rows {
        Ok(rows) => all.extend(rows),
        Err(error) if kind == Kind::Sheaf => return Err(error),
        Err(error) => {
            let text = format!("failed: {error:#}");
            tell(&text);
            skipped.push(text);
        }
    }
    Ok(())
}

/// One part of what is measured of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Udp,
    Http,
    NewSeries,
    History,
    Latency,
}

impl Step {
    const ALL: [Self; 5] = [
        Self::Udp,
        Self::Http,
        Self::NewSeries,
        Self::History,
        Self::Latency,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Http => "http",
            Self::NewSeries => "new-series",
            Self::History => "history",
            Self::Latency => "latency",
        }
    }

    fn is_for(self, kind: Kind) -> bool {
        match self {
            Self::Udp | Self::Latency => kind.has_lines(),
            Self::Http | Self::NewSeries | Self::History => true,
        }
    }

    fn run(self, kind: Kind, options: &Options) -> anyhow::Result<Vec<Row>> {
        match self {
            Self::Udp => {
                let cases = options.udp.iter();
                cases
                    .map(|&(points, rate)| udp(kind, options, points, rate))
                    .collect()
            }
            Self::Http => Ok(vec![http(kind, options)?]),
            Self::NewSeries => Ok(vec![new_series(kind, options)?]),
            Self::History => Ok(vec![
                history(kind, options, Shape::Mix)?,
                history(kind, options, Shape::Walk)?,
            ]),
            Self::Latency => Ok(vec![latency(kind, options)?]),
        }
    }
}

/// Names of all steps.
pub fn steps() -> Vec<&'static str> {
    Step::ALL.map(Step::name).to_vec()
}

/// Names of all servers.
pub fn servers() -> Vec<&'static str> {
    Kind::ALL.map(Kind::name).to_vec()
}

/// Returns the command of the generator.
pub(crate) fn generator(options: &Options, load: &LoadOptions) -> Command {
    let mut command = Command::new(&options.program);
    command
        .args(["bench", "monitor-load"])
        .args(load.arguments());
    command
}

/// Runs the generator and returns what it sent.
pub(crate) fn load(options: &Options, load: &LoadOptions) -> anyhow::Result<load::Sent> {
    let output = generator(options, load)
        .output()
        .context("cannot start the generator")?;
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.trim())
        .with_context(|| format!("the generator: {}", String::from_utf8_lossy(&output.stderr)))
}

/// Measures one load against a server that runs: what was stored, and what it cost.
fn under_load(
    server: &mut Server,
    options: &Options,
    what: &LoadOptions,
    row: &mut Row,
) -> anyhow::Result<()> {
    // Series are made before the window, where the row is not about that.
    let before = server.settled_points()?;
    let begun = server.usage()?;
    let sent = load(options, what)?;
    let stored = server.settled_points()?.saturating_sub(before);
    let ended = server.usage()?;
    row.points_per_s = Some(stored as f64 / sent.seconds);
    row.stored_percent = Some(100.0 * stored as f64 / sent.points.max(1) as f64);
    row.cpu_s_per_million = Some((ended.cpu_s - begun.cpu_s) * 1e6 / stored.max(1) as f64);
    row.rss_bytes_max = Some(ended.rss_bytes_max);
    Ok(())
}

fn udp(kind: Kind, options: &Options, points: u32, rate: u64) -> anyhow::Result<Row> {
    let folder = options.folder()?;
    let mut server = Server::start(kind, folder.path(), options)?;
    let what = LoadOptions {
        to: server.udp()?,
        series: options.series,
        points,
        points_per_s: rate,
        seconds: options.seconds,
        ..LoadOptions::default()
    };
    warm(&server, options)?;
    let mut row = Row::new(kind.name(), "udp-lines", options.series);
    row.points_per_datagram = Some(points);
    row.offered_per_s = Some(rate);
    under_load(&mut server, options, &what, &mut row)?;
    Ok(row)
}

/// Writes every series once, over HTTP, so that none is lost.
pub(crate) fn warm(server: &Server, options: &Options) -> anyhow::Result<()> {
    let once = LoadOptions {
        to: server.http()?,
        series: options.series,
        points: REQUEST_POINTS,
        points_max: u64::from(options.series),
        seconds: 120.0,
        ..LoadOptions::default()
    };
    load(options, &once)?;
    Ok(())
}

fn http(kind: Kind, options: &Options) -> anyhow::Result<Row> {
    let folder = options.folder()?;
    let mut server = Server::start(kind, folder.path(), options)?;
    warm(&server, options)?;
    let what = LoadOptions {
        to: server.http()?,
        series: options.series,
        points: REQUEST_POINTS,
        seconds: options.seconds,
        connections: options.connections,
        ..LoadOptions::default()
    };
    let mut row = Row::new(kind.name(), kind.http_protocol(), options.series);
    under_load(&mut server, options, &what, &mut row)?;
    Ok(row)
}

/// Writes series that are new, and measures the time until all of them are accepted and answer a query.
fn new_series(kind: Kind, options: &Options) -> anyhow::Result<Row> {
    let folder = options.folder()?;
    let mut server = Server::start(kind, folder.path(), options)?;
    let begun = Instant::now();
    warm(&server, options)?;
    server.await_series(u64::from(options.series), Duration::from_secs(60))?;
    let visible_ms = begun.elapsed().as_secs_f64() * 1000.0;
    let mut row = Row::new(kind.name(), "new-series", options.series);
    row.visible_ms = Times::of(&[visible_ms]);
    row.rss_bytes_max = Some(server.usage()?.rss_bytes_max);
    Ok(row)
}

/// An hour of samples, one a second: bytes a point on disk at rest, and queries over it.
fn history(kind: Kind, options: &Options, shape: Shape) -> anyhow::Result<Row> {
    let folder = options.folder()?;
    let (series, seconds) = HISTORY;
    let points = u64::from(series) * u64::from(seconds);
    let mut server = Server::start(kind, folder.path(), options)?;
    let what = LoadOptions {
        to: server.http()?,
        series,
        names: 1,
        points: REQUEST_POINTS,
        points_max: points,
        history_s: seconds,
        shape,
        seconds: 600.0,
        ..LoadOptions::default()
    };
    let mut row = Row::new(kind.name(), shape.protocol(), series);
    under_load(&mut server, options, &what, &mut row)?;
    if shape == Shape::Mix {
        // An hour in a second or two: what a server does in the background, it has done when it is asked.
        server::pause(UPKEEP);
        row.query_ms = server.query_times()?;
    }
    server.merge()?;
    server.end()?;
    if kind == Kind::Sheaf {
        compact(options, &folder.path().join("data"))?;
    }
    let bytes = bytes_of_points(&folder.path().join("data"))?;
    row.bytes_per_point = Some(bytes as f64 / points as f64);
    Ok(row)
}

/// Merges the tables of a collector that has ended, as it does little by little while it runs.
fn compact(options: &Options, data: &Path) -> anyhow::Result<()> {
    let mut command = Command::new(&options.program);
    let output = command
        .args(["samples", "compact", "--data"])
        .arg(data)
        .output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "sheaf samples compact: {text}");
    Ok(())
}

fn latency(kind: Kind, options: &Options) -> anyhow::Result<Row> {
    let folder = options.folder()?;
    let mut server = Server::start(kind, folder.path(), options)?;
    let mut row = Row::new(kind.name(), "udp-lines", 1);
    row.points_per_datagram = Some(1);
    row.visible_ms = probe::visible(&mut server, options.probes)?;
    if kind == Kind::Sheaf {
        row.alarm_ms = probe::alarm(&mut server, options.probes)?;
        row.display_ms = probe::display(&mut server, options.probes)?;
    }
    Ok(row)
}

/// Bytes of points and of what finds them, in the data folder of a server: without caches, and without the state of
/// alarms, which are not about points.
fn bytes_of_points(data: &Path) -> anyhow::Result<u64> {
    // Blocks of a file are counted when the kernel has written it.
    rustix::fs::sync();
    let mut bytes = 0;
    for entry in std::fs::read_dir(data)? {
        let entry = entry?;
        if !["alarms", "cache"]
            .iter()
            .any(|name| entry.file_name() == *name)
        {
            bytes += bytes_below(&entry.path());
        }
    }
    Ok(bytes)
}

/// Bytes of all files below `folder`, as the disk holds them.
pub(crate) fn bytes_below(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path()),
            // A hole takes no room: blocks count, not lengths.
            Ok(metadata) => metadata.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}
