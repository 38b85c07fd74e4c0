//! Numbers of `[machine]` by which the simulator comes closest to live points of one machine.
//!
//! Live runs of an experiment are compared with simulated ones again and again, each time with other numbers: one
//! number after the other is made larger and smaller by a factor, which shrinks when no change is an improvement. What
//! is made small is the mean distance of the medians of latency and wait, `|ln(simulated / live)|`: twice too long
//! counts as much as half as long. Figures whose aim the simulator misses for other reasons (p90 and p99 of the
//! latency) do not count. The search has no random part: equal runs give equal numbers.

use crate::calibrate::{self, Calibration, Overall};
use crate::experiment::{Experiment, ExperimentError, SimulateError, Trial, simulate};
use crate::results::Results;
use serde::Deserialize;
use serde::Serialize;
use sheaf_sim::experiment::Machine;
use sheaf_sim::summary::Kind;
use sheaf_testbed::input::{self, InputError};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Figures that count.
const COUNTED: [&str; 4] = [
    "latency_us_p50",
    "wait_us_p50",
    "wait_us_p90",
    "wait_us_mean",
];

/// Changes of a number that are tried, as logarithms: first by two thirds, at last by a fortieth.
const STEPS: [f64; 5] = [0.5, 0.25, 0.1, 0.05, 0.025];

/// Bounds of every number, in its unit.
const BOUNDS: [f64; 2] = [1.0, 1e5];

/// Distance that an error without a number counts as: one of the two figures is 0.
const FAR: f64 = 10.0;

/// Number of `[machine]` that is searched for.
struct Number {
    key: &'static str,
    get: fn(&Machine) -> f64,
    set: fn(&mut Machine, f64),
}

/// Returns the row of a number in µs.
macro_rules! micros {
    ($key:ident) => {
        Number {
            key: stringify!($key),
            get: |machine| machine.$key as f64,
            set: |machine, value| machine.$key = value as u64,
        }
    };
}

/// Returns the row of a number in Mbit/s.
macro_rules! rate {
    ($key:ident) => {
        Number {
            key: stringify!($key),
            get: |machine| machine.$key,
            set: |machine, value| machine.$key = value,
        }
    };
}

const NUMBERS: [Number; 9] = [
    micros!(hop_us),
    micros!(stf_us),
    micros!(warm_hop_us),
    micros!(warm_stf_us),
    micros!(grant_us),
    micros!(take_us),
    micros!(consumer_us),
    rate!(frames_mbit_s),
    rate!(bulk_mbit_s),
];

/// Number that was searched for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Found {
    /// Key in `[machine]`; its name ends in its unit.
    pub key: &'static str,
    /// Value in the experiment.
    pub before: f64,
    /// The value that was found.
    pub found: f64,
    /// Whether any point depends on it: else it was left as it was.
    pub is_told: bool,
}

/// Numbers of a machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MachineFit {
    /// Version of this schema: 1.
    pub version: u32,
    /// Every number.
    pub numbers: Vec<Found>,
    /// Live points that they were chosen by.
    pub points: usize,
    /// Sets of numbers that were tried.
    pub tries: usize,
    /// Errors with the numbers of the experiment.
    pub before: Vec<Overall>,
    /// Errors with the numbers that were found.
    pub after: Vec<Overall>,
    /// The table `[machine]` with these.
    #[serde(skip)]
    pub machine: Machine,
}

/// Progress of a search.
#[derive(Clone, Copy, Debug)]
pub struct Tried {
    /// Sets of numbers that were tried.
    pub tries: usize,
    /// The smallest distance so far.
    pub distance: f64,
    /// The factor of changes now.
    pub factor: f64,
}

/// Reasons why no numbers are found.
#[derive(Debug, Error)]
pub enum MachineFitError {
    /// The folder has no experiment, or one that makes no sense.
    #[error(transparent)]
    Experiment(Box<ExperimentError>),
    /// Results are not all of the experiment.
    #[error(
        "{}: found results of {found} points, expected the {expected} of its experiment.toml, each with its runs",
        folder.display()
    )]
    Partial {
        /// The folder.
        folder: PathBuf,
        /// Points with results.
        found: usize,
        /// Points of the experiment.
        expected: usize,
    },
    /// No live point has a simulated one on a topology beside it.
    #[error(
        "{}: found no live point with a simulated one on the same topology, expected variants of both sources",
        folder.display()
    )]
    Unpaired {
        /// The folder.
        folder: PathBuf,
    },
    /// A point is not simulated, or a signal asked this process to end.
    #[error(transparent)]
    Simulate(#[from] SimulateError),
}

/// Live results of a folder, and its experiment, whose simulated points are made again and again.
struct Search<'a> {
    experiment: Experiment,
    results: Results,
    /// Indices of simulated points that have a live one.
    simulated: Vec<usize>,
    folder: &'a Path,
    /// Distances of numbers that were tried.
    tried: BTreeMap<Vec<u64>, f64>,
}

/// Searches for the numbers of the machine of `results`, which were read from `folder`; calls `tell` after each try.
///
/// # Errors
///
/// All of [`MachineFitError`].
pub fn fit(
    results: &Results,
    folder: &Path,
    mut tell: impl FnMut(Tried),
) -> Result<MachineFit, MachineFitError> {
    let mut search = Search::new(results, folder)?;
    let start = search.experiment.machine;
    let before = search.simulate(&start)?;
    let mut best = (start, distance(&before));
    let mut is_told = [false; NUMBERS.len()];
    for step in STEPS {
        let mut is_better = true;
        while is_better {
            is_better = false;
            for (number, is_told) in NUMBERS.iter().zip(&mut is_told) {
                for factor in [step.exp(), (-step).exp()] {
                    let machine = changed(&best.0, number, factor);
                    let found = search.distance(&machine)?;
                    *is_told |= (found - best.1).abs() > 0.0;
                    if found < best.1 {
                        best = (machine, found);
                        is_better = true;
                    }
                    tell(Tried {
                        tries: search.tried.len(),
                        distance: best.1,
                        factor: step.exp(),
                    });
                }
            }
        }
    }
    let after = search.simulate(&best.0)?;
    let numbers = NUMBERS.iter().zip(is_told);
    Ok(MachineFit {
        version: 1,
        numbers: numbers
            .map(|(number, is_told)| Found {
                key: number.key,
                before: (number.get)(&start),
                found: (number.get)(&best.0),
                is_told,
            })
            .collect(),
        points: after.pairs.len(),
        tries: search.tried.len(),
        before: before.overall,
        after: after.overall,
        machine: best.0,
    })
}

/// Returns `machine` with `number` larger by `factor`, in whole units.
fn changed(machine: &Machine, number: &Number, factor: f64) -> Machine {
    let (mut changed, value) = (*machine, (number.get)(machine));
    let larger = (value * factor).round();
    // A small number moves by one at least.
    let moved = match larger == value.round() {
        true => value.round() + (factor - 1.0).signum(),
        false => larger,
    };
    (number.set)(&mut changed, moved.clamp(BOUNDS[0], BOUNDS[1]));
    changed
}

/// Returns how far the simulated figures are from the live ones: the mean over the figures that count of the mean over
/// their points.
fn distance(calibration: &Calibration) -> f64 {
    let of_figure = |name: &&str| {
        let figures = calibration
            .pairs
            .iter()
            .filter_map(|pair| pair.figure(name));
        let ratios: Vec<f64> = figures
            .map(|one| match one.live > 0.0 && one.simulated > 0.0 {
                true => (one.simulated / one.live).ln().abs().min(FAR),
                false if one.live == one.simulated => 0.0,
                false => FAR,
            })
            .collect();
        (!ratios.is_empty()).then(|| ratios.iter().sum::<f64>() / ratios.len() as f64)
    };
    let means: Vec<f64> = COUNTED.iter().filter_map(of_figure).collect();
    means.iter().sum::<f64>() / means.len().max(1) as f64
}

impl<'a> Search<'a> {
    fn new(results: &Results, folder: &'a Path) -> Result<Self, MachineFitError> {
        let wrong = |error: ExperimentError| MachineFitError::Experiment(Box::new(error));
        let mut experiment = Experiment::read(&folder.join("experiment.toml")).map_err(wrong)?;
        let points = &results.summary.points;
        // Runs may have been shorter than the file says, with `--quick` or `--duration`.
        let live = points.iter().find(|point| point.source == Kind::Live);
        if let Some(live) = live.filter(|live| live.duration_s > 0.0) {
            experiment = experiment.last(live.duration_s);
        }
        let trials = experiment.trials().map_err(wrong)?;
        if trials.len() != points.len() || results.runs.len() != points.len() {
            return Err(MachineFitError::Partial {
                folder: folder.to_owned(),
                found: points.len().min(results.runs.len()),
                expected: trials.len(),
            });
        }
        let is_simulated = |at: &usize| {
            let trial = &trials[*at];
            trial.source == Kind::Sim && trial.venue.is_some() && points[*at].n > 0
        };
        let mut search = Self {
            simulated: (0..trials.len()).filter(is_simulated).collect(),
            experiment,
            results: results.clone(),
            folder,
            tried: BTreeMap::new(),
        };
        // Quantiles are of no use here, and copied with each try.
        for run in search.results.runs.iter_mut().flatten() {
            run.latency_quantiles_us.clear();
        }
        let is_paired = calibrate::of(&search.results, folder).is_ok();
        if search.simulated.is_empty() || !is_paired {
            return Err(MachineFitError::Unpaired {
                folder: folder.to_owned(),
            });
        }
        Ok(search)
    }

    /// Simulates with the numbers of `machine`, and holds the points against the live ones.
    fn simulate(&mut self, machine: &Machine) -> Result<Calibration, MachineFitError> {
        let experiment = Experiment {
            machine: *machine,
            ..self.experiment.clone()
        };
        let wrong = |error: ExperimentError| MachineFitError::Experiment(Box::new(error));
        let trials = experiment.trials().map_err(wrong)?;
        let asked: Vec<&Trial> = self.simulated.iter().map(|at| &trials[*at]).collect();
        let runs = simulate(&experiment, &asked)?;
        for (at, runs) in self.simulated.iter().zip(runs) {
            self.results.runs[*at] = runs;
        }
        let unpaired = |_| MachineFitError::Unpaired {
            folder: self.folder.to_owned(),
        };
        calibrate::of(&self.results, self.folder).map_err(unpaired)
    }

    /// Returns the distance with the numbers of `machine`, which are tried once.
    fn distance(&mut self, machine: &Machine) -> Result<f64, MachineFitError> {
        let key: Vec<u64> = NUMBERS
            .iter()
            .map(|number| (number.get)(machine).to_bits())
            .collect();
        if let Some(known) = self.tried.get(&key) {
            return Ok(*known);
        }
        let found = distance(&self.simulate(machine)?);
        self.tried.insert(key, found);
        Ok(found)
    }
}

/// The numbers as the table `[machine]` of an experiment, with comments on their origin.
#[must_use]
pub fn toml(results: &Results, fit: &MachineFit) -> String {
    let known = |key: &str| {
        let provenance = &results.summary.provenance;
        provenance.get(key).map_or("unknown", String::as_str)
    };
    let mut text = format!(
        "# Numbers of the machine for simulated points, by `sheaf lab machine`.\n\
         # {} live points of the experiment {}; {}, {}; commit {}.\n",
        fit.points,
        results.summary.experiment,
        known("machine"),
        known("kernel"),
        known("commit")
    );
    for (before, after) in fit.before.iter().zip(&fit.after) {
        if COUNTED.contains(&after.figure) {
            let _ = writeln!(
                text,
                "# {}: median error {:.1} %, before {:.1} %.",
                after.figure, after.median, before.median
            );
        }
    }
    text += "[machine]\n";
    for number in &fit.numbers {
        let note = if number.is_told {
            ""
        } else {
            " # no point depends on it"
        };
        let value = match number.key.ends_with("mbit_s") {
            true => format!("{:.1}", number.found),
            false => format!("{}", number.found),
        };
        let _ = writeln!(text, "{} = {value}{note}", number.key);
    }
    text
}

/// Reads a file with the table `[machine]`, as [`toml()`] writes it.
///
/// # Errors
///
/// [`InputError`] if there is none, or another table.
pub fn read(path: &Path) -> Result<Machine, InputError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        machine: Machine,
    }
    let file: File = input::parse(&input::read(path)?, &path.display().to_string())?;
    Ok(file.machine)
}

/// The fit as a table of text.
#[must_use]
pub fn table(fit: &MachineFit) -> String {
    let mut text = format!("{:<14} {:>10} {:>10}\n", "[machine]", "before", "found");
    for number in &fit.numbers {
        let note = if number.is_told {
            ""
        } else {
            "  no point depends on it"
        };
        let _ = writeln!(
            text,
            "{:<14} {:>10} {:>10}{note}",
            number.key, number.before, number.found
        );
    }
    let _ = writeln!(
        text,
        "{} live points, {} sets of numbers:",
        fit.points, fit.tries
    );
    for (before, after) in fit.before.iter().zip(&fit.after) {
        let mark = if COUNTED.contains(&after.figure) {
            ""
        } else {
            "  (does not count)"
        };
        let _ = writeln!(
            text,
            "  {:<15} median error {:>6.1} before, {:>6.1} now; within the aim at {} of {} points, before {}{mark}",
            after.figure, before.median, after.median, after.within, after.points, before.within
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::card::Card;
    use crate::experiment::result::RunResult;
    use crate::experiment::summary;

    const TEXT: &str = "
        name = 'one-machine'
        question = '?'
        policy = 'earliest-finish'
        duration_s = 2.0
        epns = 2
        rate_hz = 25.0
        topology = 'lan-1g'
        iterations = 1
        [[point]]
        label = 'a'
        flps = 1
        bytes = 1000
        [[point]]
        label = 'b'
        flps = 8
        bytes = 1000
        [[variant]]
        source = 'live'
        [[variant]]
        source = 'sim'
        ";

    /// A folder of results whose live runs were in truth simulated with the numbers of `truth`.
    fn folder(truth: &Machine) -> (tempfile::TempDir, Results) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("experiment.toml"), TEXT).unwrap();
        let experiment = Experiment::parse(TEXT, "x").unwrap();
        let trials = experiment.trials().unwrap();
        let simulated = |machine: &Machine| -> Vec<RunResult> {
            let experiment = Experiment {
                machine: *machine,
                ..experiment.clone()
            };
            let trials = experiment.trials().unwrap();
            let asked: Vec<&Trial> = trials
                .iter()
                .filter(|one| one.source == Kind::Sim)
                .collect();
            let runs = simulate(&experiment, &asked).unwrap();
            runs.into_iter().flatten().collect()
        };
        let (live, sim) = (simulated(truth), simulated(&experiment.machine));
        let runs: Vec<RunResult> = live
            .into_iter()
            .zip(sim)
            .enumerate()
            .flat_map(|(at, (mut live, sim))| {
                live.trial.clone_from(&trials[2 * at].id);
                [live, sim]
            })
            .collect();
        let card = Card {
            version: 1,
            experiment: "one-machine".to_owned(),
            checksum: 0,
            is_quick: false,
            provenance: BTreeMap::new(),
        };
        let results = Results {
            summary: summary::of(&card, &trials, &runs),
            runs: runs.into_iter().map(|run| vec![run]).collect(),
            question: String::new(),
            reference: String::new(),
        };
        (folder, results)
    }

    #[test]
    fn the_numbers_of_a_simulated_machine_are_found_again() {
        let truth = Machine {
            hop_us: 180,
            stf_us: 20,
            ..Machine::default()
        };
        let (folder, results) = folder(&truth);
        let mut last = None;
        let fit = fit(&results, folder.path(), |tried| last = Some(tried)).unwrap();
        let of = |key: &str| fit.numbers.iter().find(|one| one.key == key).unwrap();
        assert!((165.0..195.0).contains(&of("hop_us").found), "{fit:?}");
        assert!((15.0..25.0).contains(&of("stf_us").found), "{fit:?}");
        // No consumer works, and no link charges frames.
        for key in [
            "warm_hop_us",
            "grant_us",
            "take_us",
            "consumer_us",
            "frames_mbit_s",
        ] {
            assert_eq!(
                (of(key).found, of(key).is_told),
                (of(key).before, false),
                "{key}"
            );
        }
        let p50 = |overall: &[Overall]| {
            let found = overall.iter().find(|one| one.figure == "latency_us_p50");
            found.unwrap().median
        };
        assert!(p50(&fit.before) > 10.0 && p50(&fit.after) < 3.0, "{fit:?}");
        assert!(last.unwrap().distance < 0.03);

        let file = folder.path().join("machine.toml");
        std::fs::write(&file, toml(&results, &fit)).unwrap();
        assert_eq!(read(&file).unwrap(), fit.machine);
        assert!(table(&fit).contains("no point depends on it"));
    }

    #[test]
    fn results_without_points_of_both_sources_are_refused() {
        let (folder, mut results) = folder(&Machine::default());
        let told = |results: &Results| match fit(results, folder.path(), |_| {}) {
            Ok(found) => panic!("{found:?}"),
            Err(error) => error.to_string(),
        };
        let mut alone = results.clone();
        for point in &mut alone.summary.points {
            if point.source == Kind::Live {
                point.n = 0;
            }
        }
        assert!(told(&alone).contains("no live point with a simulated one"));
        results.runs.truncate(1);
        assert!(told(&results).contains("found results of 1 points, expected the 4"));
        let elsewhere = tempfile::tempdir().unwrap();
        let error = fit(&results, elsewhere.path(), |_| {}).unwrap_err();
        assert!(error.to_string().contains("experiment.toml"), "{error}");
    }

    #[test]
    fn a_small_number_moves_by_one_at_least() {
        let machine = Machine {
            hop_us: 3,
            ..Machine::default()
        };
        assert_eq!(changed(&machine, &NUMBERS[0], 1.025).hop_us, 4);
        assert_eq!(changed(&machine, &NUMBERS[0], 0.975).hop_us, 2);
        let least = changed(&machine, &NUMBERS[0], 0.1);
        assert_eq!(changed(&least, &NUMBERS[0], 0.975).hop_us, 1);
    }
}
