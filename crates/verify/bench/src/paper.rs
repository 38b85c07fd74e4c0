//! The monitoring paper's experiments again: `sheaf lab monitor`.
//!
//! The Modular Stack paper measured Flume, Spark and InfluxDB, and the founding report MELK. `rates` has the scenarios,
//! the sources and the streams, `latency` and `melk` the rest; `scenario` and `heat` say what each is and how its
//! result is checked, `published` what they are held against, and `page` writes the results page. Servers, generator
//! and probes are those of the benchmark of the collector ([`crate::monitor`]), which keeps this here.

mod heat;
mod latency;
mod melk;
mod page;
mod published;
mod rates;
mod report;
mod scenario;
mod search;

pub use published::Published;
pub use report::{Check, Report, Row};
pub use scenario::Scenario;

use crate::cpus::Cpus;
use crate::monitor::server::{Kind, pause};
use crate::monitor::{self, take_rows};
use crate::report::Head;
use anyhow::Context as _;
use peer_harness::machine_busy_s;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Choice of parts and sizes.
#[derive(Clone, Debug)]
pub struct Options {
    /// Servers, series, probes, and how long a load is. Its steps do not count.
    pub bench: monitor::Options,
    /// Parts by name; empty for all.
    pub parts: Vec<String>,
    /// Runs of each case.
    pub runs: u32,
    /// Periods of the temperature, for each cause of dips.
    pub periods: u32,
    /// Length of one, in s.
    pub period_s: f64,
    /// Whether one load stands for the search of the highest rate, and all is short.
    pub is_quick: bool,
    /// Tables of a farm file in place of those of a scenario.
    pub processing: BTreeMap<Scenario, String>,
    /// Day of the measurement.
    pub day: String,
    /// Commit of the program.
    pub commit: String,
}

/// One part of the experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Scenarios,
    Sources,
    Storage,
    Latency,
    Melk,
}

impl Part {
    const ALL: [Self; 5] = [
        Self::Scenarios,
        Self::Sources,
        Self::Storage,
        Self::Latency,
        Self::Melk,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Scenarios => "scenarios",
            Self::Sources => "sources",
            Self::Storage => "storage",
            Self::Latency => "latency",
            Self::Melk => "melk",
        }
    }

    fn is_for(self, kind: Kind) -> bool {
        match self {
            Self::Storage => true,
            Self::Scenarios | Self::Sources | Self::Latency => kind.has_lines(),
            Self::Melk => kind == Kind::Sheaf,
        }
    }

    fn run(
        self,
        options: &Options,
        kind: Kind,
        tell: &mut dyn FnMut(&str),
        checks: &mut Vec<Check>,
    ) -> anyhow::Result<Vec<Row>> {
        match self {
            Self::Scenarios => rates::scenarios(options, kind, tell, checks),
            Self::Sources => rates::sources(options, kind, tell, checks),
            Self::Storage => rates::storage(options, kind, tell),
            Self::Latency => latency::latency(options, kind, tell),
            Self::Melk => melk::melk(options, tell, checks),
        }
    }
}

/// Returns the names of all parts.
pub fn parts() -> Vec<&'static str> {
    Part::ALL.map(Part::name).to_vec()
}

/// Measures everything that `options` asks for. `tell` is called with a line about each step.
///
/// # Errors
///
/// If Sheaf, the generator or a farm cannot run. A peer that is not installed is skipped by name, and one that fails is
/// named.
pub fn measure(options: &Options, tell: &mut dyn FnMut(&str)) -> anyhow::Result<Report> {
    let cpus = Cpus::allowed(false)?;
    let mut report = Report {
        head: Head::new(&cpus, options.bench.seconds, 0.0),
        day: options.day.clone(),
        commit: options.commit.clone(),
        is_quick: options.is_quick,
        others_percent: others_percent(options)?,
        rows: Vec::new(),
        published: published::published(),
        checks: Vec::new(),
        skipped: Vec::new(),
    };
    let wanted = |kind: &Kind| options.bench.has(kind.name());
    let (missing, kinds): (Vec<Kind>, Vec<Kind>) = Kind::ALL
        .into_iter()
        .filter(wanted)
        .partition(|kind| kind.missing().is_some());
    for kind in missing {
        let program = kind.missing().unwrap_or_default();
        let text = format!("skipped: {} ({program} is not installed)", kind.name());
        tell(&text);
        report.skipped.push(text);
    }
    for part in Part::ALL {
        let is_wanted =
            options.parts.is_empty() || options.parts.iter().any(|name| name == part.name());
        for &kind in kinds.iter().filter(|kind| is_wanted && part.is_for(**kind)) {
            let what = format!("{}: {}", part.name(), kind.name());
            tell(&what);
            let rows = part.run(options, kind, tell, &mut report.checks);
            let Report {
                rows: all, skipped, ..
            } = &mut report;
            take_rows(kind, rows.context(what), all, skipped, tell)?;
        }
    }
    Ok(report)
}

/// Returns the share of all CPUs that others take, in percent.
fn others_percent(options: &Options) -> anyhow::Result<f64> {
    let time = Duration::from_millis(if options.is_quick { 200 } else { 5000 });
    let (begun, busy_s) = (Instant::now(), machine_busy_s()?);
    pause(time);
    let cores = std::thread::available_parallelism()?.get() as f64;
    let busy_s = machine_busy_s()? - busy_s;
    Ok(100.0 * busy_s / (begun.elapsed().as_secs_f64() * cores))
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn empty_report() -> Report {
        let cpus = Cpus::allowed(false).unwrap();
        Report {
            head: Head::new(&cpus, 3.0, 0.0),
            day: "2026-11-25".to_owned(),
            commit: "unknown".to_owned(),
            is_quick: false,
            others_percent: 0.0,
            rows: Vec::new(),
            published: published::published(),
            checks: Vec::new(),
            skipped: Vec::new(),
        }
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let mut report = empty_report();
        report.checks.push(Check {
            what: "all".to_owned(),
            problems: vec!["none".to_owned()],
        });
        assert!(!report.is_sound());
        assert_eq!(Report::parse(&report.to_json()).unwrap(), report);
    }

    #[test]
    fn peers_are_asked_for_the_parts_that_they_can_do() {
        let parts = |kind| Part::ALL.map(|part| part.is_for(kind));
        assert_eq!(parts(Kind::Sheaf), [true; 5]);
        assert_eq!(parts(Kind::InfluxDb), [true, true, true, true, false]);
        assert_eq!(parts(Kind::Prometheus), [false, false, true, false, false]);
    }
}
