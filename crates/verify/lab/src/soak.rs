//! `sheaf lab soak`: eight processes, a fault of chance every few seconds, and the question whether anything grows.

use crate::accounting;
use crate::cell::{Fault, Who};
use crate::farm::{Farm, FarmError, now_ns};
use crate::inject::{self, InjectError};
use crate::judge;
use crate::shape::{Ground, Shape};
use crate::trace::Trace;
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;
use sheaf_farm::proc;
use sheaf_figures::stat;
use sheaf_node::config::Threads;
use sheaf_protocol::NodeId;
use sheaf_testbed::IoError;
use sheaf_testbed::clock::{self, Interrupted, let_pass};
use sheaf_testbed::machine::{self, Folder};
use sheaf_testbed::rules::Way;
use sheaf_testbed::tool::Need;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};
use thiserror::Error;

/// Time between two faults.
const EVERY: Duration = Duration::from_secs(10);
/// When the first one comes.
const FIRST: Duration = Duration::from_secs(4);
/// Time between two looks at memory and files.
const LOOK: Duration = Duration::from_millis(250);
/// Warm-up of a process, which is left out of the slopes.
const WARM_UP_S: f64 = 8.0;
/// Fewest seconds that a slope is taken of.
const SPAN_S_MIN: f64 = 15.0;
/// How long a node may take to be back after its fault is healed.
const BACK_MAX: Duration = Duration::from_secs(15);
/// Memory that a process may gain while it is watched, in bytes: pages touched for the first time.
const GAIN_BYTES_MAX: f64 = 4.0 * 1024.0 * 1024.0;
/// Open files that a process may gain, for connections that are just being made.
const GAIN_FILES_MAX: f64 = 3.0;
/// How far resident memory may be above the budget that a node prints when it starts.
const OVER_BUDGET_MAX: f64 = 1.1;
/// Reasons for which TFs may be lost: FLPs are done things to as well.
const LOSSES: [&str; 3] = ["source-died", "source-late", "source-cut"];

/// Reasons why a soak does not come to its end. What a farm does wrong is a result, not an error.
#[derive(Debug, Error)]
pub enum SoakError {
    /// A signal asked this process to end. What was changed on the machine is undone.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// A folder, an event log or a signal handler.
    #[error(transparent)]
    Io(#[from] IoError),
    /// A farm does not start.
    #[error(transparent)]
    Farm(#[from] FarmError),
    /// A fault is not injected, or not undone.
    #[error(transparent)]
    Inject(#[from] InjectError),
}

/// Options of the run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long.
    pub duration: Duration,
    /// Seed of the run.
    pub seed: u64,
    /// Threads that move STFs in each node.
    pub threads: Threads,
    /// Whether event logs and logs stay.
    pub keep: bool,
}

/// Result of the soak.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// Seed of the run.
    pub seed: u64,
    /// How long the farm ran, in s.
    pub duration_s: f64,
    /// Injected faults, as `12.3 s: Kill of epn:3 for 400 ms`.
    pub faults: Vec<String>,
    /// TFs called for.
    pub timeframes: u64,
    /// TFs dropped or incomplete.
    pub lost: u64,
    /// These, by reason.
    pub lost_by_reason: BTreeMap<String, u64>,
    /// TFs delivered more than once.
    pub delivered_twice: u64,
    /// TFs without a verdict, and contradictions in the accounting.
    pub unaccounted: u64,
    /// Every process that lived long enough.
    pub processes: Vec<Growth>,
    /// Whether nothing grows, and nothing is unaccounted.
    pub ok: bool,
    /// Why not.
    pub problems: Vec<String>,
}

/// How a process grew, from 8 s after its start on.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Growth {
    /// Such as `epn:2`.
    pub node: String,
    /// Id.
    pub pid: u32,
    /// How long it was looked at, in s.
    pub span_s: f64,
    /// Resident memory at the end, in bytes.
    pub rss_bytes: u64,
    /// Most resident memory at any look, from its start on, in bytes.
    pub rss_bytes_max: u64,
    /// Memory budget by the node's own log, in bytes: `budget_bytes` of the line `Memory budget`.
    pub budget_bytes: u64,
    /// Slope of resident memory (least squares), in bytes per s.
    pub rss_slope_bytes_per_s: f64,
    /// Open files at the end.
    pub files: u64,
    /// Slope of open files, in files per s.
    pub files_slope_per_s: f64,
}

/// Faults that a farm on the loopback device can have.
const FAULTS: [(Fault, Who); 4] = [
    (Fault::Kill, Who::Epn),
    (Fault::Vanish(200), Who::Epn),
    (Fault::Pause, Who::Epn),
    (Fault::Pause, Who::Flp),
];

/// Faults that need network namespaces as well.
const NETWORK_FAULTS: [(Fault, Who); 6] = [
    (Fault::Cut(Way::Both), Who::Epn),
    (Fault::Cut(Way::In), Who::Epn),
    (Fault::Cut(Way::Out), Who::Epn),
    (Fault::Loss(20), Who::AllNodes),
    (Fault::Reset, Who::Epn),
    (Fault::LinkDown, Who::Epn),
];

/// Samples of one process: seconds since its start, resident memory, open files.
#[derive(Default)]
struct Series {
    node: Option<NodeId>,
    begin_ns: u64,
    points: Vec<(f64, u64, u64)>,
    /// Returns the memory budget by the node's own log; `None` before it is logged.
    budget_bytes: Option<u64>,
}

impl Series {
    fn rss_bytes_max(&self) -> u64 {
        self.points.iter().map(|point| point.1).max().unwrap_or(0)
    }

    /// Returns the problem with the peak of memory, however short the life of the process.
    fn complaint(&self) -> Option<String> {
        let (node, most) = (self.node?, self.rss_bytes_max());
        let mib = |bytes: u64| bytes as f64 / 1_048_576.0;
        match self.budget_bytes {
            // It died before it had said anything.
            None if self.points.is_empty() => None,
            None => Some(format!("{node} has not printed its memory budget")),
            Some(budget) => (most as f64 > budget as f64 * OVER_BUDGET_MAX).then(|| {
                let (most, budget) = (mib(most), mib(budget));
                format!("{node} had {most:.1} MiB resident, its budget is {budget:.1} MiB")
            }),
        }
    }
}

/// Returns the memory budget that the log of a node states.
fn budget_bytes(log: &str) -> Option<u64> {
    let line = log.lines().find(|line| line.contains("Memory budget"))?;
    let mut words = line.split_whitespace();
    words.find_map(|word| word.strip_prefix("budget_bytes=")?.parse().ok())
}

/// Runs a farm, injects faults, and samples its processes all the while; `tell` receives each fault.
///
/// # Errors
///
/// What stands in the way of an experiment. What the farm does wrong is in the report.
pub fn run(options: &Options, mut tell: impl FnMut(&str)) -> Result<Report, SoakError> {
    clock::end_on_signals()?;
    for name in machine::clean() {
        tracing::info!(name, "Removed what an earlier experiment left");
    }
    let without = Need::Namespaces.missing();
    if let Some(why) = &without {
        tell(&format!("faults of the network are left out: {why}"));
    }
    let ground = match without {
        None => Ground::Namespaces,
        Some(_) => Ground::Loopback,
    };
    let shape = Shape {
        flps: 3,
        epns: 4,
        threads: options.threads,
        ..Shape::SMALL.on(ground)
    };
    let mut choices = FAULTS.to_vec();
    if ground == Ground::Namespaces {
        choices.extend(NETWORK_FAULTS);
    }
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(options.seed);
    let mut farm = Farm::start(shape, Folder::make(options.keep)?)?;
    let begin = Instant::now();
    let (mut series, mut faults) = (BTreeMap::new(), Vec::new());
    let mut next = FIRST;
    while begin.elapsed() < options.duration {
        let left = options.duration.saturating_sub(begin.elapsed());
        sample(&farm, &mut series);
        if begin.elapsed() >= next && left > Duration::from_secs(3) {
            next += EVERY;
            let (fault, who) = choices[rng.random_range(0..choices.len())];
            let nodes = victims(fault, who, &shape, &mut rng);
            let hold_ms = rng.random_range(50..1000);
            let names: Vec<String> = nodes.iter().map(ToString::to_string).collect();
            let (at_s, names) = (begin.elapsed().as_secs_f64(), names.join(", "));
            let text = format!("{at_s:.1} s: {fault:?} of {names} for {hold_ms} ms");
            tell(&text);
            faults.push(text);
            let remedy = inject::inject(&mut farm, fault, &nodes, &mut rng)?;
            let_pass(Duration::from_millis(hold_ms))?;
            remedy(&mut farm)?;
            if !farm.await_all_up(BACK_MAX)? {
                farm.problems
                    .push(format!("{names} not back after the fault at {at_s:.1} s"));
            }
        }
        farm.reap();
        let_pass(LOOK)?;
    }
    let duration_s = begin.elapsed().as_secs_f64();
    let_pass(judge::SETTLE)?;
    farm.end()?;
    let mut report = Report {
        seed: options.seed,
        duration_s,
        faults,
        ..judge_farm(&farm)?
    };
    report.processes = series
        .iter()
        .filter_map(|(pid, series)| growth(*pid, series))
        .collect();
    let grown = report.processes.iter().filter_map(complaint);
    report.problems.extend(grown);
    let over = series.values().filter_map(Series::complaint);
    report.problems.extend(over);
    report.ok = report.problems.is_empty();
    if !report.ok || options.keep {
        farm.folder().keep();
        let path = farm.folder().path().display().to_string();
        report.problems.push(format!("logs are in {path}"));
    }
    Ok(report)
}

/// Kills hit the last EPN only, so that the others live long enough to grow.
fn victims(fault: Fault, who: Who, shape: &Shape, rng: &mut Xoshiro256PlusPlus) -> Vec<NodeId> {
    match fault {
        Fault::Kill | Fault::Vanish(_) => vec![sheaf_protocol::EpnId(shape.epns - 1).into()],
        _ => who.choose(shape, None, rng),
    }
}

fn sample(farm: &Farm, series: &mut BTreeMap<u32, Series>) {
    let now = now_ns();
    for life in farm.lives.iter().filter(|life| life.is_living()) {
        let pid = life.pid();
        let entry = series.entry(pid).or_insert_with(|| Series {
            node: Some(life.node),
            begin_ns: now,
            ..Series::default()
        });
        if entry.budget_bytes.is_none() {
            let log = std::fs::read_to_string(&life.log);
            entry.budget_bytes = budget_bytes(&log.unwrap_or_default());
        }
        if let (Some(rss), Some(files)) = (proc::rss_bytes(pid), proc::open_files(pid)) {
            let at_s = (now - entry.begin_ns) as f64 / 1e9;
            entry.points.push((at_s, rss, files));
        }
    }
}

fn growth(pid: u32, series: &Series) -> Option<Growth> {
    let warm: Vec<&(f64, u64, u64)> = series
        .points
        .iter()
        .filter(|(at_s, ..)| *at_s >= WARM_UP_S)
        .collect();
    let (first, last) = (warm.first()?, warm.last()?);
    let span_s = last.0 - first.0;
    if span_s < SPAN_S_MIN {
        return None;
    }
    let of = |value: fn(&(f64, u64, u64)) -> u64| {
        let points: Vec<(f64, f64)> = warm
            .iter()
            .map(|point| (point.0, value(point) as f64))
            .collect();
        stat::slope(&points)
    };
    Some(Growth {
        node: series.node?.to_string(),
        pid,
        span_s,
        rss_bytes: last.1,
        rss_bytes_max: series.rss_bytes_max(),
        budget_bytes: series.budget_bytes.unwrap_or(0),
        rss_slope_bytes_per_s: of(|point| point.1),
        files: last.2,
        files_slope_per_s: of(|point| point.2),
    })
}

/// Returns the problem with the growth of a process.
fn complaint(growth: &Growth) -> Option<String> {
    let (rss, files) = (
        growth.rss_slope_bytes_per_s * growth.span_s,
        growth.files_slope_per_s * growth.span_s,
    );
    if rss > GAIN_BYTES_MAX {
        return Some(format!(
            "{} gained {:.1} MiB in {:.0} s",
            growth.node,
            rss / 1_048_576.0,
            growth.span_s
        ));
    }
    (files > GAIN_FILES_MAX).then(|| {
        format!(
            "{} gained {files:.1} open files in {:.0} s",
            growth.node, growth.span_s
        )
    })
}

fn judge_farm(farm: &Farm) -> Result<Report, IoError> {
    let trace = Trace::read(&farm.logs(), |_| 0)?;
    let accounting = accounting::recompute(&farm.logs(), farm.last_accounting().as_ref())?;
    let lost_by_reason = trace.lost();
    let mut problems = farm.problems.clone();
    problems.extend(farm.lives.iter().filter_map(judge::error_line));
    problems.extend(accounting.contradictions.iter().cloned());
    if accounting.in_flight > 0 {
        problems.push(format!("{} TFs have no verdict", accounting.in_flight));
    }
    for (reason, count) in &lost_by_reason {
        if !LOSSES.contains(&reason.as_str()) {
            problems.push(format!("{count} TFs lost: {reason}"));
        }
    }
    Ok(Report {
        timeframes: trace.tfs.len() as u64,
        lost: lost_by_reason.values().sum(),
        lost_by_reason,
        delivered_twice: accounting.delivered_twice,
        unaccounted: accounting.in_flight + accounting.contradictions_total,
        problems,
        ..Report::default()
    })
}

/// The report as text.
#[must_use]
pub fn text(report: &Report) -> String {
    let mut text = format!(
        "{:.0} s, {} faults, {} TFs: {} lost, {} delivered twice, {} unaccounted\n",
        report.duration_s,
        report.faults.len(),
        report.timeframes,
        report.lost,
        report.delivered_twice,
        report.unaccounted
    );
    let _ = writeln!(
        text,
        "{:<7} {:>7} {:>8} {:>12} {:>12} {:>12} {:>13} {:>6} {:>11}",
        "node", "pid", "seconds", "memory", "at most", "budget", "slope", "files", "slope"
    );
    for growth in &report.processes {
        let _ = writeln!(
            text,
            "{:<7} {:>7} {:>8.0} {:>8.1} MiB {:>8.1} MiB {:>8.1} MiB {:>7.2} KiB/s {:>6} {:>9.3}/s",
            growth.node,
            growth.pid,
            growth.span_s,
            growth.rss_bytes as f64 / 1_048_576.0,
            growth.rss_bytes_max as f64 / 1_048_576.0,
            growth.budget_bytes as f64 / 1_048_576.0,
            growth.rss_slope_bytes_per_s / 1024.0,
            growth.files,
            growth.files_slope_per_s
        );
    }
    for problem in &report.problems {
        let _ = writeln!(text, "{problem}");
    }
    let _ = writeln!(text, "{}", if report.ok { "ok" } else { "NOT OK" });
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_protocol::EpnId;

    /// A process looked at four times a second for 40 s; memory and files at each second.
    fn grown(memory: impl Fn(f64) -> u64, files: impl Fn(f64) -> u64) -> Growth {
        let series = Series {
            node: Some(EpnId(1).into()),
            begin_ns: 0,
            points: (0..160)
                .map(|number| f64::from(number) / 4.0)
                .map(|at_s| (at_s, memory(at_s), files(at_s)))
                .collect(),
            budget_bytes: Some(100 << 20),
        };
        growth(7, &series).unwrap()
    }

    #[test]
    fn a_process_that_settles_is_fine_and_one_that_grows_is_told() {
        let settles = |at_s: f64| if at_s < 5.0 { 1 << 20 } else { 90 << 20 };
        assert_eq!(complaint(&grown(settles, |_| 30)), None);
        let leaks = |at_s: f64| (90 << 20) + (at_s * 300_000.0) as u64;
        let expected = "epn:1 gained 9.1 MiB in 32 s";
        assert_eq!(complaint(&grown(leaks, |_| 30)).as_deref(), Some(expected));
        let opens = |at_s: f64| 30 + (at_s / 4.0) as u64;
        let told = complaint(&grown(settles, opens)).unwrap();
        assert!(told.starts_with("epn:1 gained 7.8 open files"), "{told}");
    }

    #[test]
    fn of_a_short_life_nothing_is_said() {
        let series = Series {
            node: Some(EpnId(1).into()),
            begin_ns: 0,
            points: (0..80)
                .map(|number| (f64::from(number) / 4.0, 1, 1))
                .collect(),
            budget_bytes: None,
        };
        assert_eq!(growth(7, &series), None);
    }

    #[test]
    fn a_node_is_held_to_the_budget_that_it_has_printed() {
        let log = "INFO role: FLP begins\nINFO role: Memory budget budget_bytes=104857600 arena_bytes=1\n";
        assert_eq!(budget_bytes(log), Some(100 << 20));
        assert_eq!(budget_bytes("INFO role: FLP begins\n"), None);
        let told = |peak_mib: u64, budget_bytes| {
            let series = Series {
                node: Some(EpnId(1).into()),
                // A peak between small values: what counts is the most.
                points: vec![(0.0, 1, 1), (0.2, peak_mib << 20, 1), (0.5, 1, 1)],
                budget_bytes,
                ..Series::default()
            };
            series.complaint()
        };
        assert_eq!(told(110, Some(100 << 20)), None, "a tenth more is in order");
        let expected = "epn:1 had 111.0 MiB resident, its budget is 100.0 MiB";
        assert_eq!(told(111, Some(100 << 20)).as_deref(), Some(expected));
        let expected = "epn:1 has not printed its memory budget";
        assert_eq!(told(1, None).as_deref(), Some(expected));
    }
}
