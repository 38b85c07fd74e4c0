//! A folder of results, or a summary by itself, read back.

use crate::experiment::result::RunResult;
use crate::experiment::store::{self, ReadError};
use serde::Deserialize;
use sheaf_sim::summary::{Kind, Point, Summary};
use std::fmt::Write as _;
use std::path::Path;

/// Most characters of the line of a command.
const COMMAND_MAX: usize = 118;

/// A summary, and the runs that it was made of if they are there.
#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    /// The points.
    pub summary: Summary,
    /// Runs of each point, in the order of the points; nothing where only a summary is there.
    pub runs: Vec<Vec<RunResult>>,
    /// Parameters of the run.
    pub question: String,
    /// Where published values come from.
    pub reference: String,
}

/// Part of an experiment file that a report needs.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Asked {
    question: String,
    reference: String,
}

impl Results {
    /// Reads `path`: a folder with `summary.json` in it, of `sheaf lab run` or `sheaf sim run`, or that file.
    ///
    /// # Errors
    ///
    /// [`ReadError::Refused`] if there is no summary, or one that cannot be read.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let folder = if path.is_dir() {
            path
        } else {
            path.parent().unwrap_or(path)
        };
        let file = if path.is_dir() {
            path.join("summary.json")
        } else {
            path.to_owned()
        };
        let refuse = |why: String| ReadError::Refused {
            folder: path.to_owned(),
            why,
        };
        let text = std::fs::read_to_string(&file).map_err(|error| {
            refuse(format!(
                "cannot read {}: {error}; expected a folder of results",
                file.display()
            ))
        })?;
        let summary = Summary::read(&text).map_err(|error| refuse(error.to_string()))?;
        let asked = std::fs::read_to_string(folder.join("experiment.toml")).unwrap_or_default();
        let Asked {
            question,
            reference,
        } = toml::from_str(&asked).unwrap_or_default();
        let runs = by_point(store::read_runs(folder)?, summary.points.len());
        Ok(Self {
            summary,
            runs,
            question,
            reference,
        })
    }

    /// Runs of the point at `index`, those that count.
    pub fn valid_runs(&self, index: usize) -> impl Iterator<Item = &RunResult> {
        let runs = self.runs.get(index).into_iter().flatten();
        runs.filter(|run| run.is_valid())
    }
}

/// Points stand in the order of their trials, and so do runs; a summary that does not fit them has none.
fn by_point(runs: Vec<RunResult>, points: usize) -> Vec<Vec<RunResult>> {
    let mut groups: Vec<Vec<RunResult>> = Vec::new();
    for run in runs {
        match groups.last_mut() {
            Some(group) if group[0].trial == run.trial => group.push(run),
            _ => groups.push(vec![run]),
        }
    }
    if groups.len() == points {
        groups
    } else {
        Vec::new()
    }
}

/// Returns the name of a point: its label, or its policy.
#[must_use]
pub fn name(point: &Point) -> &str {
    if point.label.is_empty() {
        &point.policy
    } else {
        &point.label
    }
}

/// Returns the name of a point among `points`: with its policy, where others of the same name differ in that.
#[must_use]
pub fn name_among(points: &[Point], point: &Point) -> String {
    let differs = points.iter().any(|other| {
        (name(other), other.source) == (name(point), point.source) && other.policy != point.policy
    });
    match differs {
        true => format!("{}, {}", name(point), point.policy),
        false => name(point).to_owned(),
    }
}

/// `live` or `sim`.
#[must_use]
pub fn kind(source: Kind) -> &'static str {
    match source {
        Kind::Live => "live",
        Kind::Sim => "sim",
    }
}

/// Bits that the sources of a point made in a second, in Mbit/s.
#[must_use]
pub fn offered_mbit_s(point: &Point) -> f64 {
    f64::from(point.flps) * point.bytes as f64 * 8.0 * point.rate_hz / 1e6
}

/// Returns the question of results and where they come from, in Markdown: command, machine, version.
pub(crate) fn origin(results: &Results) -> String {
    let summary = &results.summary;
    let mut text = String::new();
    if !results.question.is_empty() {
        let _ = writeln!(text, "{}\n", results.question);
    }
    let known = |key: &str| {
        summary
            .provenance
            .get(key)
            .map_or("unknown", String::as_str)
    };
    // The program may lie anywhere: its name is what matters.
    let command = known("command").replace('`', "'");
    let words = command.split_once(' ').map_or("", |(_, words)| words);
    let command: String = format!("sheaf {words}").chars().take(COMMAND_MAX).collect();
    let _ = writeln!(text, "```console\n$ {command}\n```\n");
    let reference = match results.reference.as_str() {
        "" => "none",
        reference => reference,
    };
    let _ = writeln!(
        text,
        "Machine: {}, {}; version {}, commit {}. Published values: {reference}.\n",
        known("machine"),
        known("kernel"),
        known("version"),
        known("commit"),
    );
    if summary.provenance.contains_key("quick") {
        text += "Runs were cut short (`--quick`): what is measured over seconds is not to be relied on.\n\n";
    }
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use sheaf_sim::summary::Latency;
    use std::collections::BTreeMap;

    pub(crate) fn point(mode: &str, lost: f64, published: Option<f64>) -> Point {
        Point {
            label: "5".to_owned(),
            flps: 1,
            epns: 1,
            rate_hz: 200.0,
            bytes: 58_750,
            policy: "fixed".to_owned(),
            reaction: "whitelist".to_owned(),
            mode: mode.to_owned(),
            push: "eager".to_owned(),
            source: Kind::Live,
            duration_s: 30.0,
            n: 3,
            n_rejected: 0,
            announced: 6000.0,
            lost_mean: lost,
            loss_percent: lost / 60.0,
            loss_percent_ci95: [lost / 60.0; 2],
            out_of_order: 0.0,
            goodput_mbit_s: 93.25,
            latency_us: Latency::default(),
            load: None,
            wait_us: None,
            turnaround_us: None,
            unprocessed: 0.0,
            died_unprocessed: 0.0,
            published_loss_percent: published,
            published_runs: published.map(|_| 9),
            published_note: String::new(),
            lost_by: BTreeMap::from([("late-at-run-end".to_owned(), lost)]),
            flp_peak_bytes: 0,
            epn_peak_bytes: 0,
            fairness: 1.0,
            reassigned: 0.0,
            writers: None,
            served: None,
        }
    }
}
