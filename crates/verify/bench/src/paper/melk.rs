//! MELK's comparison: an agent beside a busy farm, and a dip in throughput that a query relates to a temperature.

mod warm_farm;

use super::Options;
use super::heat::{Cause, Queries, intervals_lost, temperature_c};
use super::rates::now_s;
use super::report::{Check, Figures, Row};
use crate::monitor::load::Target;
use crate::monitor::server::{Kind, Series, Server, Setup};
use anyhow::{Context as _, ensure};
use sheaf_farm::{Process, RunDir};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use warm_farm::WarmFarm;

/// Label `farm` of the nodes, and labels `host` of the agent that is measured and of the one of the warm node.
const FARM: &str = "melk";
const AGENT: &str = "melk-agent";
const NODE: &str = "melk-node";
/// Time between two readings of the agent that is measured, in s.
const INTERVAL_S: f64 = 1.0;
/// One turn of holding up: shorter than the silence after which a node is suspect.
const CYCLE: Duration = Duration::from_millis(50);
/// Least difference between the correlation of dips that follow the temperature and that of others. On a machine that
/// is busy with others both move, and their difference stays.
const MARGIN: f64 = 0.25;

/// Measures the agent and the correlations.
pub(crate) fn melk(
    options: &Options,
    tell: &mut dyn FnMut(&str),
    checks: &mut Vec<Check>,
) -> anyhow::Result<Vec<Row>> {
    let folder = options.bench.folder()?;
    let setup = Setup::default();
    let server = Server::start_with(Kind::Sheaf, folder.path(), &options.bench, &setup)?;
    let Target::Udp(address) = server.udp()? else {
        anyhow::bail!("the collector takes no datagrams");
    };
    let to = format!("influxdb-udp://{address}");
    let chip = Chip::new(folder.path())?;
    let root = folder.path().join("root");
    let step = format!("{}ms", options.step_ms());
    let hot = ["--sensors", "temperature", "--interval", &step, "--root"];
    let hot: Vec<&str> = hot.into_iter().chain(root.to_str()).collect();
    let every = format!("{INTERVAL_S}s");
    let agent = start_agent(options, folder.path(), &to, AGENT, &["--interval", &every])?;
    let warm_agent = start_agent(options, folder.path(), &to, NODE, &hot)?;
    let dir = RunDir::make(None)?;
    let mut farm = WarmFarm::start(&dir, options, &to, FARM)?;

    // From here on all is steady.
    let period = Duration::from_secs_f64(options.period_s);
    let mut agents = Figures::default();
    let mut ends: Vec<(Cause, f64)> = Vec::new();
    let begin_s = now_s();
    for cause in Cause::ALL {
        for turn in 1..=options.periods {
            let used = agent.usage().context("the agent has ended")?.cpu_s;
            let begun = Instant::now();
            while begun.elapsed() < period {
                let turns = begun.elapsed().as_secs_f64() / options.period_s;
                chip.set(temperature_c(turns))?;
                farm.hold_up(CYCLE, cause.held(turns))?;
            }
            let share = (agent.usage().context("the agent has ended")?.cpu_s - used)
                / begun.elapsed().as_secs_f64();
            agents.add("cpu_percent", 100.0 * share);
            ends.push((cause, now_s()));
            tell(&format!(
                "{}, period {turn} of {}",
                cause.case(),
                options.periods
            ));
        }
    }
    let end_s = now_s();
    // The last samples of the period are on their way.
    farm.hold_up(Duration::from_secs(1), 0.0)?;
    farm.end()?;
    ensure!(agent.usage().is_some(), "the agent has ended by itself");
    ensure!(
        warm_agent.usage().is_some(),
        "the agent of the warm node has ended by itself"
    );

    let mut rows = vec![readings(
        options,
        &server,
        [begin_s, end_s],
        agents,
        checks,
    )?];
    let queries = Queries {
        farm: FARM,
        host: NODE,
        period_ms: period.as_millis().try_into().unwrap_or(u64::MAX),
        step_ms: options.step_ms(),
    };
    rows.extend(correlations(&server, &queries, &ends, checks)?);
    Ok(rows)
}

fn start_agent(
    options: &Options,
    folder: &Path,
    to: &str,
    host: &str,
    more: &[&str],
) -> anyhow::Result<Process> {
    let mut command = Command::new(&options.bench.program);
    command.args(["agent", "--to", to, "--host", host]);
    command.args(more);
    Ok(Process::spawn(
        command,
        &folder.join(format!("{host}.log")),
    )?)
}

/// Temperature of a chip, as the kernel would show it.
struct Chip(File);

impl Chip {
    fn new(folder: &Path) -> anyhow::Result<Self> {
        let chip = folder.join("root/sys/class/hwmon/hwmon0");
        std::fs::create_dir_all(&chip).context("cannot make the files of a chip")?;
        std::fs::write(chip.join("name"), "soc\n")?;
        let input = File::create(chip.join("temp1_input"))?;
        let made = Self(input);
        made.set(temperature_c(0.0))?;
        Ok(made)
    }

    /// Sets it in place, at equal length: a reader sees the one before or this one.
    fn set(&self, celsius: f64) -> anyhow::Result<()> {
        let text = format!("{:06.0}\n", celsius * 1000.0);
        self.0.write_all_at(text.as_bytes(), 0)?;
        Ok(())
    }
}

/// Counts the readings of the agent that the store has, and those that are missing.
fn readings(
    options: &Options,
    server: &Server,
    [begin_s, end_s]: [f64; 2],
    mut figures: Figures,
    checks: &mut Vec<Check>,
) -> anyhow::Result<Row> {
    let selector = format!(
        "{{host=\"{AGENT}\",__name__=~\"machine_.*|agent_.*|monitor_client_interval_seconds\"}}[{}ms]",
        ((end_s - begin_s) * 1000.0) as u64
    );
    let series = server.samples(&selector, end_s)?;
    let (mut lost, mut found, mut missing, mut counted, mut words) = (0, 0, 0, 0, Vec::new());
    let sensors = sensors(&series);
    for sensor in &sensors {
        let names = names_of(options, sensor)?;
        if names.is_empty() {
            continue;
        }
        counted += 1;
        let of_sensor = series.iter().filter(|one| names.contains(name(one)));
        let of_sensor: Vec<&Series> = of_sensor.collect();
        let stamps = |one: &Series| -> BTreeSet<i64> {
            let times = one.samples.iter();
            times
                .map(|(at_s, _)| (at_s * 1000.0).round() as i64)
                .collect()
        };
        let all: BTreeSet<i64> = of_sensor.iter().flat_map(|one| stamps(one)).collect();
        let lost_here = intervals_lost(&all, begin_s, end_s, INTERVAL_S);
        lost += lost_here;
        for one in of_sensor {
            let own = stamps(one);
            if let (Some(first), Some(last)) = (own.first(), own.last()) {
                let ends = [*first, *last].map(|at| at as f64 / 1000.0);
                missing += intervals_lost(&own, ends[0], ends[1], INTERVAL_S);
            }
            found += own.len() as u64;
        }
        words.push(format!("{sensor} {lost_here}"));
    }
    let due = ((end_s - begin_s) / INTERVAL_S).floor() * f64::from(counted);
    let intervals = series
        .iter()
        .filter(|one| name(one) == "monitor_client_interval_seconds")
        .flat_map(|one| one.samples.iter().map(|(_, value)| *value));
    let longest_s = intervals.fold(0.0, f64::max);
    figures.add("intervals_due", due);
    figures.add("intervals_lost", lost as f64);
    figures.add("interval_s_max", longest_s);
    figures.add(
        "samples_lost_percent",
        100.0 * missing as f64 / (found + missing).max(1) as f64,
    );
    let mut problems = Vec::new();
    if counted < 3 || found == 0 {
        problems.push(format!("found {found} samples of {counted} sensors"));
    }
    checks.push(Check {
        what: "agent: the store has readings of its sensors".to_owned(),
        problems,
    });
    let note = format!(
        "{counted} sensors every {INTERVAL_S} s; intervals without a reading in the store by sensor: {}; longest \
            interval in force {longest_s} s",
        words.join(", ")
    );
    Ok(figures.row("melk", "agent beside a busy farm", "sheaf", &note))
}

fn name(series: &Series) -> &str {
    series.labels.get("__name__").map_or("", String::as_str)
}

/// Returns the sensors that the machine has.
fn sensors(series: &[Series]) -> BTreeSet<String> {
    let up = series.iter().filter(|one| name(one) == "agent_sensor_up");
    let up = up.filter(|one| one.samples.last().is_some_and(|(_, value)| *value == 1.0));
    up.filter_map(|one| one.labels.get("sensor").cloned())
        .collect()
}

/// Returns the names of the metrics of a sensor, as the agent prints them.
fn names_of(options: &Options, sensor: &str) -> anyhow::Result<BTreeSet<String>> {
    let mut command = Command::new(&options.bench.program);
    command.args(["agent", "--once", "--json", "--sensors", sensor]);
    let output = command.output().context("cannot start the agent")?;
    let values: Vec<BTreeMap<String, serde_json::Value>> = serde_json::from_slice(&output.stdout)
        .with_context(|| {
        format!(
            "sensor {sensor}: {}",
            String::from_utf8_lossy(&output.stderr)
        )
    })?;
    let names = values.iter().filter_map(|value| value["name"].as_str());
    let of_sensor = names.filter(|name| name.starts_with("machine_"));
    Ok(of_sensor.map(str::to_owned).collect())
}

/// Asks for the correlation and the dip of each period.
fn correlations(
    server: &Server,
    queries: &Queries,
    ends: &[(Cause, f64)],
    checks: &mut Vec<Check>,
) -> anyhow::Result<Vec<Row>> {
    let ask = |expr: &str, at_s: f64| -> anyhow::Result<f64> {
        let value = server.value_at(expr, at_s)?;
        value.with_context(|| format!("no answer to {expr}"))
    };
    let (mut rows, mut medians) = (Vec::new(), Vec::new());
    for cause in Cause::ALL {
        let mut figures = Figures::default();
        for (_, end_s) in ends.iter().filter(|(of, _)| *of == cause) {
            figures.add("correlation", ask(&queries.correlation(), *end_s)?);
            let [least, most] = queries.range();
            let dip = 1.0 - ask(&least, *end_s)? / ask(&most, *end_s)?;
            figures.add("dip_percent", 100.0 * dip);
        }
        let row = figures.row("melk", cause.case(), "sheaf", "");
        medians.push(row.median("correlation").unwrap_or(f64::NAN));
        rows.push(row);
    }
    let (related, other) = (medians[0], medians[1]);
    let mut problems = Vec::new();
    // NaN, as of a farm that stood still, is no difference.
    let is_apart = other - related >= MARGIN;
    if !is_apart {
        problems.push(format!("found {related:.2} beside {other:.2}"));
    }
    checks.push(Check {
        what: format!(
            "correlation: dips that follow the temperature are below as deep dips of another cause by {MARGIN}"
        ),
        problems,
    });
    Ok(rows)
}

impl Options {
    /// Returns the time between two samples of the farm and of the temperature, in ms.
    fn step_ms(&self) -> u64 {
        if self.is_quick { 100 } else { 250 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chip_shows_thousandths_of_a_degree_in_place() {
        let folder = tempfile::tempdir().unwrap();
        let chip = Chip::new(folder.path()).unwrap();
        chip.set(79.9994).unwrap();
        chip.set(41.5).unwrap();
        let input = folder
            .path()
            .join("root/sys/class/hwmon/hwmon0/temp1_input");
        assert_eq!(std::fs::read_to_string(input).unwrap(), "041500\n");
    }

    #[test]
    fn sensors_that_are_not_there_are_not_counted() {
        let up = |sensor: &str, value| Series {
            labels: [("__name__", "agent_sensor_up"), ("sensor", sensor)]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            samples: vec![(1.0, value)],
        };
        let found = sensors(&[up("cpu", 1.0), up("temperature", 0.0)]);
        assert!(found.iter().eq(["cpu"]), "{found:?}");
    }
}
