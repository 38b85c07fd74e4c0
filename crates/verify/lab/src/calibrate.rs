//! How far the simulator is from live farms: points of one experiment that were both measured and simulated.
//!
//! Each figure of a live point is the median of its runs, with the lowest and the highest beside it; a simulated one
//! likewise. Errors are those of the simulator: of losses in percentage points, of everything else in percent of the
//! live figure. All points count alike.

use crate::compare::{self, FigureOf, GOODPUT, P99, describe, key};
use crate::results::Results;
use serde::Serialize;
use sheaf_figures::stat;
use sheaf_sim::summary::{Kind, Point};
use std::path::{Path, PathBuf};
use thiserror::Error;

mod page;
pub use page::{markdown, table};

/// One figure of one point, measured and simulated.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Deviation {
    /// `loss_percent`, `goodput_mbit_s`, `latency_us_p50`, `latency_us_p90`, `latency_us_p99`, `wait_us_p50`,
    /// `wait_us_p90` or `wait_us_mean`.
    pub figure: &'static str,
    /// Median of the live runs.
    pub live: f64,
    /// The lowest and the highest of them.
    pub live_range: [f64; 2],
    /// Median of the simulated runs.
    pub simulated: f64,
    /// The simulated one less the live one: percentage points for losses, else percent of the live one. `None` if the
    /// live one is 0 and the other is not.
    pub error: Option<f64>,
}

/// One point, measured and simulated.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// Name of the point and its parameters.
    pub point: String,
    /// Row of the live point.
    #[serde(skip)]
    pub asked: Point,
    /// Live runs.
    pub n_live: u32,
    /// Live runs that do not count.
    pub n_rejected: u32,
    /// Simulated runs.
    pub n_simulated: u32,
    /// Figures; waits only of a point whose consumers take time.
    pub figures: Vec<Deviation>,
}

impl Pair {
    /// Returns the figure of that name, if the point has it.
    #[must_use]
    pub fn figure(&self, name: &str) -> Option<&Deviation> {
        self.figures.iter().find(|one| one.figure == name)
    }
}

/// One figure over all points.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Overall {
    /// The figure.
    pub figure: &'static str,
    /// Error that the simulator is meant to stay within, in percent or percentage points.
    pub aim: f64,
    /// Points that have the figure.
    pub points: usize,
    /// Median of the errors, without their signs.
    pub median: f64,
    /// The largest of them,
    pub worst: f64,
    /// and the point that has it.
    pub worst_point: String,
    /// Points within the aim.
    pub within: usize,
}

/// The error of the simulator.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calibration {
    /// Version of this schema: 2.
    pub version: u32,
    /// Points that were both measured and simulated.
    pub pairs: Vec<Pair>,
    /// Every figure over all of them.
    pub overall: Vec<Overall>,
    /// Points without a counterpart.
    pub unpaired: Vec<String>,
    /// Live points of which no run counts.
    pub rejected: Vec<String>,
    /// In plain words.
    pub verdict: String,
}

/// Figure that is compared.
struct Figure {
    of: FigureOf,
    /// Short name, unit, and how many of its units are one of that.
    shown: (&'static str, &'static str, f64),
    /// Error that the simulator is meant to stay within.
    aim: f64,
    /// Whether a point has it.
    is_of: fn(&Point) -> bool,
}

fn always(_: &Point) -> bool {
    true
}

fn has_waits(point: &Point) -> bool {
    point.wait_us.is_some() && point.load.is_some()
}

const MS: f64 = 1e-3;
const FIGURES: [Figure; 8] = [
    Figure {
        of: compare::LOSS,
        shown: ("loss", "%", 1.0),
        aim: 1.0,
        is_of: always,
    },
    Figure {
        of: GOODPUT,
        shown: ("goodput", "Mbit/s", 1.0),
        aim: 2.0,
        is_of: always,
    },
    Figure {
        of: (
            "latency_us_p50",
            |run| run.latency_us.p50,
            |point| point.latency_us.p50,
        ),
        shown: ("p50", "ms", MS),
        aim: 10.0,
        is_of: always,
    },
    Figure {
        of: (
            "latency_us_p90",
            |run| run.latency_us.p90,
            |point| point.latency_us.p90,
        ),
        shown: ("p90", "ms", MS),
        aim: 10.0,
        is_of: always,
    },
    Figure {
        of: P99,
        shown: ("p99", "ms", MS),
        aim: 10.0,
        is_of: always,
    },
    Figure {
        of: (
            "wait_us_p50",
            |run| run.waits.as_ref().map_or(0.0, |waits| waits.wait.us.p50),
            |point| point.wait_us.as_ref().map_or(0.0, |wait| wait.p50),
        ),
        shown: ("wait p50", "ms", MS),
        aim: 15.0,
        is_of: has_waits,
    },
    Figure {
        of: (
            "wait_us_p90",
            |run| run.waits.as_ref().map_or(0.0, |waits| waits.wait.us.p90),
            |point| point.wait_us.as_ref().map_or(0.0, |wait| wait.p90),
        ),
        shown: ("wait p90", "ms", MS),
        aim: 15.0,
        is_of: has_waits,
    },
    Figure {
        of: (
            "wait_us_mean",
            |run| run.waits.as_ref().map_or(0.0, |waits| waits.wait.mean_us),
            // A summary has no mean.
            |_| f64::NAN,
        ),
        shown: ("wait mean", "ms", MS),
        aim: 15.0,
        is_of: has_waits,
    },
];
const LOSS: &str = compare::LOSS.0;

/// Results of which no point was both measured and simulated.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{}: found {live} live and {simulated} simulated points, expected two of a kind that ask the same",
    folder.display()
)]
pub struct CalibrateError {
    /// The folder.
    pub folder: PathBuf,
    /// Live points in it.
    pub live: usize,
    /// Simulated ones.
    pub simulated: usize,
}

/// The error of the simulator in `results`, which were read from `folder`.
///
/// # Errors
///
/// [`CalibrateError`] if no point was both measured and simulated.
pub fn of(results: &Results, folder: &Path) -> Result<Calibration, CalibrateError> {
    let points = &results.summary.points;
    let of_kind = |kind: Kind| (0..points.len()).filter(move |at| points[*at].source == kind);
    let mut left: Vec<usize> = of_kind(Kind::Sim).filter(|at| points[*at].n > 0).collect();
    let mut unpaired = Vec::new();
    let mut pairs = Vec::new();
    for live in of_kind(Kind::Live).filter(|at| points[*at].n > 0) {
        let asks_the_same = |at: &usize| {
            let (one, other) = (&points[live], &points[*at]);
            key(one) == key(other) && one.mode == other.mode
        };
        match left.iter().position(asks_the_same) {
            Some(found) => pairs.push(pair(results, live, left.remove(found))),
            None => unpaired.push(describe(&points[live])),
        }
    }
    if pairs.is_empty() {
        return Err(CalibrateError {
            folder: folder.to_owned(),
            live: of_kind(Kind::Live).count(),
            simulated: of_kind(Kind::Sim).count(),
        });
    }
    let rejected = of_kind(Kind::Live).filter(|at| points[*at].n == 0);
    let rejected: Vec<String> = rejected.map(|at| describe(&points[at])).collect();
    // The counterpart of a point without a run that counts is not missing.
    let left = left.into_iter().map(|at| describe(&points[at]));
    unpaired.extend(left.filter(|point| !rejected.contains(point)));
    let overall: Vec<Overall> = FIGURES
        .iter()
        .filter_map(|figure| over_all(&pairs, figure))
        .collect();
    Ok(Calibration {
        version: 2,
        verdict: verdict(&overall),
        overall,
        pairs,
        unpaired,
        rejected,
    })
}

fn pair(results: &Results, live: usize, simulated: usize) -> Pair {
    let points = &results.summary.points;
    let deviation = |of: &Figure| {
        let (figure, of_run, of_point) = of.of;
        let values = |at: usize| -> Vec<f64> {
            let runs: Vec<f64> = results.valid_runs(at).map(of_run).collect();
            if runs.is_empty() {
                vec![of_point(&points[at])]
            } else {
                runs
            }
        };
        let (measured, computed) = (values(live), values(simulated));
        let edge = |q| stat::quantile(&measured, q).unwrap_or(0.0);
        let middle = |values: &[f64]| stat::quantile(values, 0.5).unwrap_or(0.0);
        let (live, simulated) = (middle(&measured), middle(&computed));
        Deviation {
            figure,
            live,
            live_range: [edge(0.0), edge(1.0)],
            simulated,
            error: error(figure, live, simulated),
        }
    };
    Pair {
        point: describe(&points[live]),
        n_live: points[live].n,
        n_rejected: points[live].n_rejected,
        n_simulated: points[simulated].n,
        figures: FIGURES
            .iter()
            .filter(|figure| (figure.is_of)(&points[live]))
            .map(deviation)
            .filter(|one| one.live.is_finite() && one.simulated.is_finite())
            .collect(),
        asked: points[live].clone(),
    }
}

fn error(figure: &str, live: f64, simulated: f64) -> Option<f64> {
    let difference = simulated - live;
    if figure == LOSS {
        return Some(difference);
    }
    match (live > 0.0, difference == 0.0) {
        (true, _) => Some(100.0 * difference / live),
        (false, true) => Some(0.0),
        (false, false) => None,
    }
}

/// The figure of all pairs that have it; `None` if none has. An error that is no number counts as the largest.
fn over_all(pairs: &[Pair], figure: &Figure) -> Option<Overall> {
    let name = figure.of.0;
    let size = |one: &Deviation| one.error.map_or(f64::INFINITY, f64::abs);
    let sized = pairs
        .iter()
        .filter_map(|pair| Some((pair, size(pair.figure(name)?))));
    let sized: Vec<(&Pair, f64)> = sized.collect();
    let (worst_pair, worst) = sized.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let sizes: Vec<f64> = sized.iter().map(|(_, size)| *size).collect();
    Some(Overall {
        figure: name,
        aim: figure.aim,
        points: sizes.len(),
        median: stat::quantile(&sizes, 0.5).unwrap_or(0.0),
        worst,
        worst_point: worst_pair.point.clone(),
        within: sizes.iter().filter(|size| **size <= figure.aim).count(),
    })
}

fn verdict(overall: &[Overall]) -> String {
    let names = |is_wanted: &dyn Fn(&&Overall) -> bool| {
        let named = overall.iter().filter(is_wanted);
        let names: Vec<String> = named
            .map(|one| {
                let unit = if one.figure == LOSS { "points" } else { "%" };
                format!("{} ({} {unit})", one.figure, one.aim)
            })
            .collect();
        names.join(", ")
    };
    let every = names(&|one| one.within == one.points);
    let most = names(&|one| one.within < one.points && one.median <= one.aim);
    let not = names(&|one| one.within < one.points && one.median > one.aim);
    let parts = [
        ("within the aim at every point", every),
        ("within it in the median and not at every point", most),
        ("not within it", not),
    ];
    let told = parts.into_iter().filter(|(_, names)| !names.is_empty());
    let told: Vec<String> = told
        .map(|(words, names)| format!("{words}: {names}"))
        .collect();
    told.join("; ")
}

/// How a figure is shown: its short name, its unit, and how many of its units are one of that.
pub(crate) fn shown(figure: &str) -> (&'static str, &'static str, f64) {
    let known = FIGURES.iter().find(|known| known.of.0 == figure);
    known.map_or(("", "", 1.0), |known| known.shown)
}

/// An error with its unit.
pub(crate) fn told(figure: &str, error: Option<f64>) -> String {
    match (error, figure) {
        (None, _) => "-".to_owned(),
        (Some(error), LOSS) => format!("{error:+.2} pp"),
        (Some(error), _) => format!("{error:+.1} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::point;
    use sheaf_sim::summary::{Point, Summary};

    /// A live and a simulated point: loss, goodput, median of the latency.
    fn both(label: &str, live: [f64; 3], simulated: [f64; 3]) -> [Point; 2] {
        [(Kind::Live, live), (Kind::Sim, simulated)].map(|(source, [loss, goodput, p50])| {
            let mut point = point("sheaf", 0.0, None);
            point.label = label.to_owned();
            point.source = source;
            point.loss_percent = loss;
            point.goodput_mbit_s = goodput;
            point.latency_us.p50 = p50;
            point
        })
    }

    fn results(points: Vec<Point>) -> Results {
        let mut summary = Summary::new("calibration");
        summary.points = points;
        Results {
            summary,
            runs: Vec::new(),
            question: String::new(),
            reference: String::new(),
        }
    }

    #[test]
    fn errors_are_those_of_the_simulator_over_all_points() {
        let mut points = Vec::new();
        points.extend(both("a", [1.0, 100.0, 1000.0], [1.5, 99.0, 800.0]));
        points.extend(both("b", [0.0, 50.0, 2000.0], [0.0, 50.5, 2100.0]));
        points.extend(both("c", [0.0, 50.0, 1000.0], [0.0, 50.0, 1000.0]));
        points.extend(both("alone", [0.0; 3], [0.0; 3]).into_iter().take(1));
        let found = of(&results(points), Path::new("x")).unwrap();
        let errors = |at: usize| -> Vec<Option<f64>> {
            found
                .pairs
                .iter()
                .map(|pair| pair.figures[at].error)
                .collect()
        };
        assert_eq!(errors(0), [Some(0.5), Some(0.0), Some(0.0)]);
        assert_eq!(errors(1), [Some(-1.0), Some(1.0), Some(0.0)]);
        assert_eq!(errors(2), [Some(-20.0), Some(5.0), Some(0.0)]);
        let p50 = &found.overall[2];
        assert_eq!((p50.median, p50.worst, p50.within), (5.0, 20.0, 2));
        assert!(p50.worst_point.starts_with("a ("), "{}", p50.worst_point);
        assert_eq!(found.unpaired.len(), 1);
        assert_eq!(
            found.verdict,
            "within the aim at every point: loss_percent (1 points), goodput_mbit_s (2 %), latency_us_p90 (10 %), \
             latency_us_p99 (10 %); within it in the median and not at every point: latency_us_p50 (10 %)"
        );
        let text = table(&found);
        assert!(text.contains("no counterpart: alone ("), "{text}");
    }

    #[test]
    fn a_figure_that_is_nothing_live_has_no_error_in_percent_and_counts_as_far_off() {
        let found = of(
            &results(both("a", [0.0; 3], [0.0, 1.0, 0.0]).to_vec()),
            Path::new("x"),
        );
        let found = found.unwrap();
        assert_eq!(found.pairs[0].figures[1].error, None);
        assert_eq!(found.overall[1].within, 0);
        assert_eq!(found.overall[2].within, 1);
    }

    #[test]
    fn waits_are_compared_where_consumers_take_time_and_rejected_points_are_told() {
        use sheaf_sim::summary::Latency;
        let waiting = |mut points: [Point; 2]| {
            for (point, p90) in points.iter_mut().zip([2000.0, 2200.0]) {
                point.load = Some(0.5);
                point.wait_us = Some(Latency {
                    p90,
                    ..Latency::default()
                });
            }
            points
        };
        let mut points = both("a", [0.0; 3], [0.0; 3]).to_vec();
        points.extend(waiting(both("b", [0.0; 3], [0.0; 3])));
        let mut rejected = both("c", [0.0; 3], [0.0; 3]);
        (rejected[0].n, rejected[0].n_rejected) = (0, 3);
        points.extend(rejected);
        let found = of(&results(points), Path::new("x")).unwrap();
        let [a, b] = found.pairs.as_slice() else {
            panic!("{found:?}")
        };
        assert!(a.figure("wait_us_p90").is_none());
        let wait = b.figure("wait_us_p90").unwrap();
        assert_eq!(wait.error, Some(10.0));
        let overall = found.overall.last().unwrap(); // no run, so no mean
        assert_eq!(
            (overall.figure, overall.points, overall.within),
            ("wait_us_p90", 1, 1)
        );
        assert_eq!((found.rejected.len(), found.unpaired.len()), (1, 0));
        let page = markdown(&results(Vec::new()), &found);
        assert!(
            page.contains("| wait p90 | 1 | 10 % | 10 % | 15 % | 1 of 1 |"),
            "{page}"
        );
        assert!(page.contains("No run counts: c ("), "{page}");
    }

    #[test]
    fn results_without_a_pair_are_refused_with_what_they_hold() {
        let [live, mut simulated] = both("a", [0.0; 3], [0.0; 3]);
        simulated.bytes += 1;
        let error = of(&results(vec![live, simulated]), Path::new("x")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "x: found 1 live and 1 simulated points, expected two of a kind that ask the same"
        );
    }
}
