//! The folder of an experiment's results: a file a run, written whole or not at all, and what is made of them.
//!
//! ```text
//! DIR/experiment.toml     the file that was run
//! DIR/experiment.json     what it was run as: name, checksum, length of runs, commit, machine, kernel
//! DIR/runs/ID-I-A.json    run I of trial ID, attempt A
//! DIR/raw.csv             the same runs, a row each
//! DIR/summary.json        points, docs/explanation/simulator.md
//! ```
//!
//! A run that has its file is not made again. A folder of another experiment is refused, and so is one that holds
//! anything else.

use super::card::Card;
use super::result::RunResult;
use super::summary;
use super::{Experiment, Trial};
use sheaf_testbed::IoError;
use sheaf_testbed::hosts::HOSTS;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Reasons why a folder of results is not opened. Nothing in it was changed.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The folder holds something else.
    #[error("{}: {why}", folder.display())]
    Refused {
        /// The folder.
        folder: PathBuf,
        /// Reason of the refusal.
        why: String,
    },
    /// The folder, or a file in it, cannot be written.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The experiment has no TOML form.
    #[error("cannot write the experiment down: {0}")]
    Text(String),
}

/// Reasons why results cannot be read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// A file cannot be read.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The folder holds something else than results.
    #[error("{}: {why}", folder.display())]
    Refused {
        /// The folder, or the file.
        folder: PathBuf,
        /// Reason of the refusal.
        why: String,
    },
}

/// Reasons why no summary is made of the runs.
#[derive(Debug, Error)]
pub enum ConcludeError {
    /// Runs cannot be read back.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A file cannot be written.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The file for Parquet cannot be written.
    #[cfg(feature = "parquet")]
    #[error(transparent)]
    Parquet(#[from] super::parquet::WriteError),
}

/// A folder of results.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    /// Experiment that the record belongs to.
    pub card: Card,
}

impl Store {
    /// Opens the folder of `experiment`, or makes it. `text` is what the file had in it, `hosts` where it is run, if on
    /// other machines.
    ///
    /// # Errors
    ///
    /// [`StoreError::Refused`] if there is something else in it; nothing is changed then.
    pub fn open(
        folder: &Path,
        experiment: &Experiment,
        text: &str,
        is_quick: bool,
        hosts: BTreeMap<String, String>,
    ) -> Result<Self, StoreError> {
        let card = Card {
            version: 1,
            experiment: experiment.name.clone(),
            checksum: checksum(experiment)?,
            is_quick,
            provenance: provenance().into_iter().chain(hosts).collect(),
        };
        let path = folder.join(CARD);
        let refuse = |why: String| StoreError::Refused {
            folder: folder.to_owned(),
            why,
        };
        if let Ok(found) = fs::read_to_string(&path) {
            let found: Card = serde_json::from_str(&found)
                .map_err(|error| refuse(format!("its {CARD} cannot be read: {error}")))?;
            if found.experiment != card.experiment {
                let why = format!(
                    "it belongs to experiment {:?}, expected {:?}",
                    found.experiment, card.experiment
                );
                return Err(refuse(why));
            }
            if found.checksum != card.checksum {
                let was = if found.is_quick { " with --quick" } else { "" };
                let why = format!(
                    "experiment {:?} was another one when it was run{was}",
                    card.experiment
                );
                return Err(refuse(why));
            }
            let venue = |card: &Card| card.provenance.get(HOSTS).cloned();
            let (was, is) = (venue(&found), venue(&card));
            if was != is {
                let here = || "this machine".to_owned();
                let (was, is) = (was.unwrap_or_else(here), is.unwrap_or_else(here));
                return Err(refuse(format!("it was run on {was}, expected {is}")));
            }
            return Ok(Self {
                folder: folder.to_owned(),
                card: found,
            });
        }
        let is_empty = fs::read_dir(folder).map_or(true, |mut entries| entries.next().is_none());
        if !is_empty {
            return Err(refuse(
                "it holds something else than results, expected an empty folder".to_owned(),
            ));
        }
        let runs = folder.join(RUNS);
        fs::create_dir_all(&runs).map_err(IoError::of(format!("make {}", runs.display())))?;
        let store = Self {
            folder: folder.to_owned(),
            card,
        };
        store.write("experiment.toml", text)?;
        let json =
            serde_json::to_string_pretty(&store.card).expect("text and numbers have a JSON form");
        store.write(CARD, &json)?;
        Ok(store)
    }

    /// Where it is.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Runs that were made, in order of trial, iteration and attempt.
    ///
    /// # Errors
    ///
    /// What reading gives, and [`ReadError::Refused`] for a file that is no run.
    pub fn runs(&self) -> Result<Vec<RunResult>, ReadError> {
        read_runs(&self.folder)
    }

    /// Keeps a run. It is there whole, also after an interruption, or not at all.
    ///
    /// # Errors
    ///
    /// What writing gives.
    pub fn keep(&self, run: &RunResult) -> Result<(), IoError> {
        let name = format!(
            "{RUNS}/{}-{:03}-{}.json",
            run.trial, run.iteration, run.attempt
        );
        let json = serde_json::to_string(run).expect("text and numbers have a JSON form");
        self.write(&name, &json)
    }

    /// Writes `raw.csv` and `summary.json` of the runs that there are.
    ///
    /// # Errors
    ///
    /// What reading and writing give.
    pub fn conclude(&self, trials: &[Trial]) -> Result<sheaf_sim::summary::Summary, ConcludeError> {
        let runs = self.runs()?;
        let mut csv = String::new();
        for (key, value) in &self.card.provenance {
            let _ = writeln!(csv, "# {key}: {value}");
        }
        let _ = writeln!(csv, "{}", RunResult::CSV_HEADER);
        for run in &runs {
            let _ = writeln!(csv, "{}", run.csv());
        }
        self.write("raw.csv", &csv)?;
        #[cfg(feature = "parquet")]
        super::parquet::write(&self.folder.join("raw.parquet"), &runs)?;
        let summary = summary::of(&self.card, trials, &runs);
        self.write("summary.json", &summary.to_json())?;
        Ok(summary)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), IoError> {
        let path = self.folder.join(name);
        let temporary = path.with_extension("part");
        let what = || format!("write {}", path.display());
        let mut file = fs::File::create(&temporary).map_err(IoError::of(what()))?;
        file.write_all(text.as_bytes())
            .and_then(|()| file.sync_all())
            .map_err(IoError::of(what()))?;
        fs::rename(&temporary, &path).map_err(IoError::of(what()))
    }
}

const CARD: &str = "experiment.json";
const RUNS: &str = "runs";

/// The runs of a folder of results.
///
/// # Errors
///
/// What reading gives, and [`ReadError::Refused`] for a file that is no run.
pub fn read_runs(folder: &Path) -> Result<Vec<RunResult>, ReadError> {
    let mut runs = Vec::new();
    let entries = fs::read_dir(folder.join(RUNS))
        .into_iter()
        .flatten()
        .flatten();
    let paths = entries.map(|entry| entry.path());
    for path in paths.filter(|path| path.extension().is_some_and(|end| end == "json")) {
        let text =
            fs::read_to_string(&path).map_err(IoError::of(format!("read {}", path.display())))?;
        let run: RunResult = serde_json::from_str(&text).map_err(|error| ReadError::Refused {
            folder: folder.to_owned(),
            why: format!("{} is no run: {error}", path.display()),
        })?;
        runs.push(run);
    }
    runs.sort_by(|a, b| {
        (&a.trial, a.iteration, a.attempt).cmp(&(&b.trial, b.iteration, b.attempt))
    });
    Ok(runs)
}

/// Returns what distinguishes two experiments: everything but the number of runs, which may grow.
fn checksum(experiment: &Experiment) -> Result<u32, StoreError> {
    let same = Experiment {
        iterations: 1,
        ..experiment.clone()
    };
    let text = toml::to_string(&same).map_err(|error| StoreError::Text(error.to_string()))?;
    Ok(sheaf_protocol::crc32c(text.as_bytes()))
}

/// Where results come from.
fn provenance() -> BTreeMap<String, String> {
    let read = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned());
    let system = rustix::system::uname();
    let mut command: Vec<String> = std::env::args().collect();
    if let Some(program) = command.first_mut() {
        // Where the program lies on this machine is of no use to who repeats it on another.
        let name = Path::new(program.as_str()).file_name();
        *program = name.map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    }
    let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown", |(_, model)| model);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    [
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("command", command.join(" ")),
        ("host", system.nodename().to_string_lossy().into_owned()),
        (
            "kernel",
            format!(
                "{} {}",
                system.sysname().to_string_lossy(),
                system.release().to_string_lossy()
            ),
        ),
        (
            "machine",
            format!(
                "{cpus} CPUs, {model}, {}",
                system.machine().to_string_lossy()
            ),
        ),
        ("congestion", "cubic".to_owned()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
        name = 'x'
        question = 'is it kept?'
        [base]
        source = 'sim'
        ";

    fn experiment(text: &str) -> Experiment {
        Experiment::parse(text, "x").unwrap()
    }

    fn open(folder: &Path, text: &str) -> Result<Store, StoreError> {
        Store::open(folder, &experiment(text), text, false, BTreeMap::new())
    }

    #[test]
    fn runs_are_there_when_the_folder_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results");
        let run = RunResult {
            trial: experiment(TEXT).trials().unwrap()[0].id.clone(),
            iteration: 1,
            attempt: 1,
            announced: 100,
            lost: 1,
            ..RunResult::default()
        };
        open(&path, TEXT).unwrap().keep(&run).unwrap();
        // More runs of the same are not another experiment.
        let store = open(&path, &format!("iterations = 9\n{TEXT}")).unwrap();
        assert_eq!(store.runs().unwrap(), [run]);
        let summary = store.conclude(&experiment(TEXT).trials().unwrap()).unwrap();
        assert_eq!(summary.points[0].loss_percent, 1.0);
        let csv = fs::read_to_string(path.join("raw.csv")).unwrap();
        assert!(csv.contains("# kernel: Linux") && csv.lines().last().unwrap().starts_with("001-"));
    }

    #[test]
    fn runs_of_other_machines_do_not_get_among_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results");
        let open_on = |hosts: &str| {
            let hosts = BTreeMap::from([(HOSTS.to_owned(), hosts.to_owned())]);
            Store::open(&path, &experiment(TEXT), TEXT, false, hosts)
        };
        open_on("stand: a 10.0.0.1").unwrap();
        open_on("stand: a 10.0.0.1").unwrap();
        let other = open_on("stand: b 10.0.0.2").unwrap_err().to_string();
        let told = "it was run on stand: a 10.0.0.1, expected stand: b 10.0.0.2";
        assert!(other.contains(told), "{other}");
        let here = open(&path, TEXT).unwrap_err().to_string();
        assert!(here.contains("expected this machine"), "{here}");
    }

    #[test]
    fn a_folder_of_something_else_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results");
        open(&path, TEXT).unwrap();
        for (text, told) in [
            (
                TEXT.replace("'x'", "'y'"),
                "it belongs to experiment \"x\", expected \"y\"",
            ),
            (
                TEXT.replace("'sim'", "'sim'\nrate_hz = 9.0"),
                "was another one when it was run",
            ),
        ] {
            let error = open(&path, &text).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
        let other = folder.path().join("other");
        fs::create_dir_all(&other).unwrap();
        fs::write(other.join("thesis.txt"), "years of work").unwrap();
        let error = open(&other, TEXT).unwrap_err().to_string();
        assert!(
            error.contains("holds something else than results"),
            "{error}"
        );
        assert_eq!(fs::read_dir(&other).unwrap().count(), 1);
    }
}
