//! How far the simulator is from live farms: points of one experiment that were both measured and simulated.
//!
//! Each figure of a live point is the median of its runs, with the lowest and the highest beside it; a simulated one
//! likewise. Errors are those of the simulator: of losses in percentage points, of everything else in percent of the
//! live figure. All points count alike.

use crate::compare::{self, FigureOf, GOODPUT, P99, describe, key};
use crate::results::Results;
use serde::Serialize;
use sheaf_figures::stat;
use sheaf_sim::summary::Kind;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Error that the simulator is meant to stay below, in percent.
pub const LIMIT_PERCENT: f64 = 10.0;

/// One figure of one point, measured and simulated.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Deviation {
    /// `loss_percent`, `goodput_mbit_s`, `latency_us_p50`, `latency_us_p90` or `latency_us_p99`.
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
    /// Live runs.
    pub n_live: u32,
    /// Simulated runs.
    pub n_simulated: u32,
    /// Figures.
    pub figures: Vec<Deviation>,
}

/// One figure over all points.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Overall {
    /// The figure.
    pub figure: &'static str,
    /// Median of the errors, without their signs.
    pub median: f64,
    /// The largest of them,
    pub worst: f64,
    /// and the point that has it.
    pub worst_point: String,
    /// Points within [`LIMIT_PERCENT`].
    pub within: usize,
}

/// The error of the simulator.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calibration {
    /// Version of this schema: 1.
    pub version: u32,
    /// Bound of the errors, in percent or percentage points.
    pub limit_percent: f64,
    /// Points that were both measured and simulated.
    pub pairs: Vec<Pair>,
    /// Every figure over all of them.
    pub overall: Vec<Overall>,
    /// Points without a counterpart.
    pub unpaired: Vec<String>,
    /// In plain words.
    pub verdict: String,
}

const FIGURES: [FigureOf; 5] = [
    compare::LOSS,
    GOODPUT,
    (
        "latency_us_p50",
        |run| run.latency_us.p50,
        |point| point.latency_us.p50,
    ),
    (
        "latency_us_p90",
        |run| run.latency_us.p90,
        |point| point.latency_us.p90,
    ),
    P99,
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
    unpaired.extend(left.into_iter().map(|at| describe(&points[at])));
    let overall: Vec<Overall> = (0..FIGURES.len()).map(|at| over_all(&pairs, at)).collect();
    Ok(Calibration {
        version: 1,
        limit_percent: LIMIT_PERCENT,
        verdict: verdict(&overall, pairs.len()),
        overall,
        pairs,
        unpaired,
    })
}

fn pair(results: &Results, live: usize, simulated: usize) -> Pair {
    let points = &results.summary.points;
    let deviation = |(figure, of_run, of_point): FigureOf| {
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
        n_simulated: points[simulated].n,
        figures: FIGURES.into_iter().map(deviation).collect(),
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

/// The figure at `at` of all pairs. An error that is no number counts as the largest.
fn over_all(pairs: &[Pair], at: usize) -> Overall {
    let size = |pair: &Pair| pair.figures[at].error.map_or(f64::INFINITY, f64::abs);
    let sizes: Vec<f64> = pairs.iter().map(size).collect();
    let worst = pairs.iter().max_by(|a, b| size(a).total_cmp(&size(b)));
    Overall {
        figure: FIGURES[at].0,
        median: stat::quantile(&sizes, 0.5).unwrap_or(0.0),
        worst: worst.map_or(0.0, size),
        worst_point: worst.map_or(String::new(), |pair| pair.point.clone()),
        within: sizes.iter().filter(|size| **size < LIMIT_PERCENT).count(),
    }
}

fn verdict(overall: &[Overall], points: usize) -> String {
    let names = |is_wanted: &dyn Fn(&&Overall) -> bool| {
        let named = overall.iter().filter(is_wanted);
        let names: Vec<&str> = named.map(|one| one.figure).collect();
        names.join(", ")
    };
    let every = names(&|one| one.within == points);
    let most = names(&|one| one.within < points && one.median < LIMIT_PERCENT);
    let not = names(&|one| one.within < points && one.median >= LIMIT_PERCENT);
    let parts = [
        ("below 10 % at every point", every),
        ("below 10 % in the median and not at every point", most),
        ("not below 10 %", not),
    ];
    let told = parts.into_iter().filter(|(_, names)| !names.is_empty());
    let told: Vec<String> = told
        .map(|(words, names)| format!("{words}: {names}"))
        .collect();
    told.join("; ")
}

/// How a figure is shown: its short name, its unit, and how many of its units are one of that.
pub(crate) fn shown(figure: &str) -> (&'static str, &'static str, f64) {
    match figure {
        LOSS => ("loss", "%", 1.0),
        "goodput_mbit_s" => ("goodput", "Mbit/s", 1.0),
        "latency_us_p50" => ("p50", "ms", 1e-3),
        "latency_us_p90" => ("p90", "ms", 1e-3),
        _ => ("p99", "ms", 1e-3),
    }
}

/// An error with its unit.
pub(crate) fn told(figure: &str, error: Option<f64>) -> String {
    match (error, figure) {
        (None, _) => "-".to_owned(),
        (Some(error), LOSS) => format!("{error:+.2} pp"),
        (Some(error), _) => format!("{error:+.1} %"),
    }
}

/// The calibration as a table of text.
#[must_use]
pub fn table(calibration: &Calibration) -> String {
    let mut text = String::new();
    for pair in &calibration.pairs {
        let _ = writeln!(
            text,
            "{}, n {} live, {} simulated",
            pair.point, pair.n_live, pair.n_simulated
        );
        for one in &pair.figures {
            let (name, unit, factor) = shown(one.figure);
            let [low, high] = one.live_range;
            let _ = writeln!(
                text,
                "  {name:<8} live {:>9.3} ({:.3} to {:.3}) {unit:<6} simulated {:>9.3}  error {:>9}",
                one.live * factor,
                low * factor,
                high * factor,
                one.simulated * factor,
                told(one.figure, one.error)
            );
        }
    }
    let _ = writeln!(text, "over {} points:", calibration.pairs.len());
    for one in &calibration.overall {
        let unit = if one.figure == LOSS { "pp" } else { "%" };
        let _ = writeln!(
            text,
            "  {:<8} median error {:>7.2} {unit:<2} worst {:>8.2} {unit:<2} ({}), {} of {} below 10",
            shown(one.figure).0,
            one.median,
            one.worst,
            one.worst_point,
            one.within,
            calibration.pairs.len()
        );
    }
    for point in &calibration.unpaired {
        let _ = writeln!(text, "no counterpart: {point}");
    }
    let _ = writeln!(text, "{}", calibration.verdict);
    text
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
            "below 10 % at every point: loss_percent, goodput_mbit_s, latency_us_p90, latency_us_p99; \
             below 10 % in the median and not at every point: latency_us_p50"
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
