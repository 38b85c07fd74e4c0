//! A folder of results, the same in one file, or a summary by itself, read back.

use crate::experiment::result::RunResult;
use crate::experiment::store::{self, ReadError};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use sheaf_sim::summary::{Kind, Point, Summary};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
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

/// Ending of the name of a file of data: results in one file, JSON under gzip.
pub const DATA: &str = "json.gz";
/// Version of it that this build writes. A reader refuses others.
const DATA_VERSION: u32 = 1;
/// Most bytes of its JSON.
const DATA_MAX: u64 = 1 << 30;

/// Results in one file.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Data {
    version: u32,
    question: String,
    reference: String,
    summary: Summary,
    runs: Vec<Vec<RunResult>>,
}

/// Part of an experiment file that a report needs.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Asked {
    question: String,
    reference: String,
}

impl Results {
    /// Reads `path`: a folder with `summary.json` in it, of `sheaf lab run` or `sheaf sim run`, that file, or a file of
    /// data (`NAME.json.gz`), as [`data`](Self::data) makes it.
    ///
    /// # Errors
    ///
    /// [`ReadError::Refused`] if there is no summary, or one that cannot be read.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        if path.to_string_lossy().ends_with(DATA) {
            return Self::read_data(path).map_err(|why| ReadError::Refused {
                folder: path.to_owned(),
                why,
            });
        }
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

    fn read_data(path: &Path) -> Result<Self, String> {
        let file = File::open(path).map_err(|error| error.to_string())?;
        let mut text = String::new();
        let read = GzDecoder::new(file)
            .take(DATA_MAX)
            .read_to_string(&mut text);
        read.map_err(|error| format!("not under gzip, or damaged: {error}"))?;
        let data: Data = serde_json::from_str(&text)
            .map_err(|error| format!("not results of `sheaf lab paper`: {error}"))?;
        let (found, points) = (data.version, data.summary.points.len());
        if found != DATA_VERSION {
            return Err(format!("found version {found}, expected {DATA_VERSION}"));
        }
        if !data.runs.is_empty() && data.runs.len() != points {
            let found = data.runs.len();
            return Err(format!("found runs of {found} points, expected {points}"));
        }
        Ok(Self {
            summary: data.summary,
            runs: data.runs,
            question: data.question,
            reference: data.reference,
        })
    }

    /// Returns the results as one file, without the quantiles that only figures of single runs have. Equal results give
    /// equal bytes.
    ///
    /// # Errors
    ///
    /// A value that has no JSON.
    pub fn data(&self) -> io::Result<Vec<u8>> {
        let without_quantiles = |run: &RunResult| {
            let mut run = run.clone();
            run.latency_quantiles_us.clear();
            if let Some(waits) = &mut run.waits {
                waits.wait.quantiles_us.clear();
                waits.turnaround.quantiles_us.clear();
            }
            run
        };
        let runs = self.runs.iter();
        let data = Data {
            version: DATA_VERSION,
            question: self.question.clone(),
            reference: self.reference.clone(),
            summary: self.summary.clone(),
            runs: runs
                .map(|runs| runs.iter().map(without_quantiles).collect())
                .collect(),
        };
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        packed.write_all(&serde_json::to_vec(&data)?)?;
        packed.finish()
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
    if let Some(numbers) = summary.provenance.get("numbers") {
        let _ = writeln!(text, "`[machine]` of simulated points: {numbers}.\n");
    }
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
            published_sd: None,
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

    #[test]
    fn a_file_of_data_is_read_back_and_what_is_none_is_refused() {
        let mut summary = Summary::new("loads");
        summary.points = vec![point("sheaf", 1.0, None)];
        let run = RunResult {
            seed: 7,
            latency_quantiles_us: vec![1.0, 2.0],
            ..RunResult::default()
        };
        let mut results = Results {
            summary,
            runs: vec![vec![run]],
            question: "Why?".to_owned(),
            reference: String::new(),
        };
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("loads.json.gz");
        let data = results.data().expect("values with JSON");
        assert_eq!(data, results.data().expect("values with JSON"));
        std::fs::write(&path, &data).expect("a file");
        results.runs[0][0].latency_quantiles_us.clear();
        assert_eq!(Results::read(&path).expect("what was written"), results);

        let refused = |bytes: &[u8]| {
            std::fs::write(&path, bytes).expect("a file");
            Results::read(&path).expect_err("no data").to_string()
        };
        let half = &data[..data.len() / 2];
        assert!(refused(half).contains("not under gzip, or damaged"));
        let mut other = GzEncoder::new(Vec::new(), Compression::fast());
        other.write_all(b"{}").expect("in memory");
        let other = other.finish().expect("in memory");
        assert!(refused(&other).contains("not results of `sheaf lab paper`"));
        results.runs.push(Vec::new());
        let more = results.data().expect("values with JSON");
        assert!(refused(&more).contains("found runs of 2 points, expected 1"));
    }
}
