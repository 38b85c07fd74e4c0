//! Fit of one key of a model to published losses: which of its values explain them, and which do not.
//!
//! An experiment sweeps the key over a grid. A value explains a published mean of n runs if that mean lies within the
//! central 95 % of the means of n runs that the model gives there, found by resampling its runs. All values that do are
//! the interval (a test turned round: Neyman 1937). It needs no normal distribution, and shows whether the model can
//! explain the mean at all.

use crate::plot::{Named, named, parts};
use crate::report::verdict::compared;
use crate::results::{Results, offered_mbit_s};
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;
use serde_json::Value;
use sheaf_figures::plot::PlotError;
use sheaf_figures::plot::lines::{Axis, Line, Scale, over};
use sheaf_figures::stat;
use sheaf_sim::summary::Point;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use thiserror::Error;

/// Means that are drawn of each value of the grid.
const DRAWS: usize = 2000;
/// Runs of a value from which means are drawn.
const RUNS_MIN: usize = 10;

/// Reasons why nothing is fitted.
#[derive(Debug, Error)]
pub enum FitError {
    /// No point has such a key.
    #[error("--x: found {found:?}, expected a key that points differ in: {}", names.join(", "))]
    Name {
        /// Key that was asked for.
        found: String,
        /// Numbers that the points have.
        names: Vec<String>,
    },
    /// No point has a published loss, two values of the key, and enough runs at each.
    #[error(
        "found no point with published_loss_percent, two values of {key} and {RUNS_MIN} runs at each, expected one"
    )]
    Nothing {
        /// Key that was asked for.
        key: String,
    },
}

/// Values of one key that explain published losses.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fit {
    /// Version of this object.
    pub version: u32,
    /// Name of the experiment.
    pub experiment: String,
    /// Key.
    pub key: String,
    /// Fit of each point.
    pub points: Vec<PointFit>,
}

/// Fit of one point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PointFit {
    /// Label without keys and their values.
    pub point: String,
    /// Other keys of its label with their values, such as `legacy.start_stalls.ms 600`.
    pub given: String,
    /// FLPs.
    pub flps: u32,
    /// EPNs.
    pub epns: u32,
    /// TFs a second.
    pub rate_hz: f64,
    /// Offered by all sources, in Mbit/s.
    pub offered_mbit_s: f64,
    /// Published mean, in TFs.
    pub published: f64,
    /// Runs that it is the mean of.
    pub published_runs: u32,
    /// Published standard deviation of them, in TFs.
    pub published_sd: Option<f64>,
    /// Value whose mean is the published one; `None` if no value of the grid reaches it.
    pub value: Option<f64>,
    /// Smallest and largest value that explain the published mean; `None` if none does.
    pub interval: Option<[f64; 2]>,
    /// Standard deviation of runs at that value, in TFs.
    pub sd: Option<f64>,
    /// Central 95 % of the standard deviations of `published_runs` runs at that value.
    pub sd_interval: Option<[f64; 2]>,
    /// Grid from the smallest value to the largest.
    pub grid: Vec<Node>,
}

/// One value of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Node {
    /// Value of the key.
    pub value: f64,
    /// Runs.
    pub n: usize,
    /// Mean loss, in TFs.
    pub mean: f64,
    /// Central 95 % of the means of as many runs as were published.
    pub means: [f64; 2],
    /// Standard deviation of the loss of a run.
    pub sd: f64,
    /// Central 95 % of the standard deviations of as many runs as were published.
    pub sds: [f64; 2],
}

/// Point with the values of its grid.
struct Group<'a> {
    name: String,
    given: String,
    point: &'a Point,
    /// Published mean, in TFs.
    published: f64,
    values: Vec<(f64, Vec<f64>)>,
}

/// Fits `key` to the published losses of `results`.
///
/// # Errors
///
/// [`FitError`].
pub fn of(results: &Results, key: &str) -> Result<Fit, FitError> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut names = BTreeSet::new();
    for (index, point) in results.summary.points.iter().enumerate() {
        let of_point = named(point);
        names.extend(numbers(&of_point));
        let value = of_point.get(key).and_then(Value::as_f64);
        let (Some(value), Some(of_both)) = (value, compared(point)) else {
            continue;
        };
        let [name, given] = name_and_given(&point.label, key);
        let lost: Vec<f64> = results.valid_runs(index).map(|it| it.lost as f64).collect();
        match groups
            .iter_mut()
            .find(|it| [&it.name, &it.given] == [&name, &given])
        {
            Some(group) => group.values.push((value, lost)),
            None => groups.push(Group {
                name,
                given,
                point,
                published: of_both.published,
                values: vec![(value, lost)],
            }),
        }
    }
    if !names.contains(key) {
        return Err(FitError::Name {
            found: key.to_owned(),
            names: names.into_iter().collect(),
        });
    }
    let is_grid = |group: &Group<'_>| {
        group.values.len() > 1 && group.values.iter().all(|(_, lost)| lost.len() >= RUNS_MIN)
    };
    let points: Vec<PointFit> = groups.iter().filter(|it| is_grid(it)).map(fit).collect();
    match points.is_empty() {
        true => Err(FitError::Nothing {
            key: key.to_owned(),
        }),
        false => Ok(Fit {
            version: 1,
            experiment: results.summary.experiment.clone(),
            key: key.to_owned(),
            points,
        }),
    }
}

/// Returns the label without keys, and the keys but `key` with their values.
fn name_and_given(label: &str, key: &str) -> [String; 2] {
    let (keys, others) = parts(label);
    let given = keys.iter().filter(|(name, _)| *name != key);
    let given: Vec<String> = given
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    [others.join(", "), given.join(", ")]
}

fn numbers(named: &Named) -> impl Iterator<Item = String> + '_ {
    let is_number = |(_, value): &(&String, &Value)| value.is_number();
    named.iter().filter(is_number).map(|(name, _)| name.clone())
}

fn fit(group: &Group<'_>) -> PointFit {
    let point = group.point;
    let published = group.published;
    let runs = point.published_runs.unwrap_or(1).max(1);
    let grid = |(value, lost): &(f64, Vec<f64>)| node(*value, lost, runs as usize);
    let mut grid: Vec<Node> = group.values.iter().map(grid).collect();
    grid.sort_by(|a, b| a.value.total_cmp(&b.value));
    let value = crossing(&grid, |node| node.mean, published);
    let at = |of: &dyn Fn(&Node) -> f64| value.map(|value| between(&grid, of, value));
    PointFit {
        point: group.name.clone(),
        given: group.given.clone(),
        flps: point.flps,
        epns: point.epns,
        rate_hz: point.rate_hz,
        offered_mbit_s: offered_mbit_s(point),
        published,
        published_runs: runs,
        published_sd: point.published_sd,
        value,
        interval: interval(&grid, published),
        sd: at(&|node| node.sd),
        sd_interval: at(&|node| node.sds[0])
            .zip(at(&|node| node.sds[1]))
            .map(<[f64; 2]>::from),
        grid,
    }
}

/// Draws means of `runs` of the losses at `value`, with the same random numbers for each value.
fn node(value: f64, lost: &[f64], runs: usize) -> Node {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut sample = vec![0.0; runs];
    let (mut means, mut sds) = (Vec::new(), Vec::new());
    for _ in 0..DRAWS {
        sample.fill_with(|| lost[rng.random_range(0..lost.len())]);
        means.extend(stat::mean(&sample));
        sds.push(stat::standard_deviation(&sample));
    }
    let central = |drawn: &[f64]| [0.025, 0.975].map(|q| stat::quantile(drawn, q).unwrap_or(0.0));
    Node {
        value,
        n: lost.len(),
        mean: stat::mean(lost).unwrap_or(0.0),
        means: central(&means),
        sd: stat::standard_deviation(lost),
        sds: central(&sds),
    }
}

/// Returns the first value at which the straight lines between nodes reach `level`.
fn crossing(grid: &[Node], of: impl Fn(&Node) -> f64, level: f64) -> Option<f64> {
    grid.windows(2).find_map(|pair| {
        let (a, b) = (of(&pair[0]), of(&pair[1]));
        let is_between = (a.min(b)..=a.max(b)).contains(&level);
        let part = if a == b { 0.0 } else { (level - a) / (b - a) };
        is_between.then(|| pair[0].value + part * (pair[1].value - pair[0].value))
    })
}

/// Returns the quantity at `value`, in a straight line between the nodes.
fn between(grid: &[Node], of: impl Fn(&Node) -> f64, value: f64) -> f64 {
    let pair = grid.windows(2).find(|pair| value <= pair[1].value);
    pair.map_or(0.0, |pair| {
        let part = (value - pair[0].value) / (pair[1].value - pair[0].value);
        of(&pair[0]) + part * (of(&pair[1]) - of(&pair[0]))
    })
}

/// Returns the smallest and the largest value whose central means hold `published`.
fn interval(grid: &[Node], published: f64) -> Option<[f64; 2]> {
    let holds = |node: &Node| (node.means[0]..=node.means[1]).contains(&published);
    let mut ends: Vec<f64> = grid
        .iter()
        .filter(|node| holds(node))
        .map(|node| node.value)
        .collect();
    // Where a node holds the mean and its neighbour does not, the end lies between them.
    for pair in grid.windows(2) {
        for at in [0, 1] {
            ends.extend(crossing(pair, |node| node.means[at], published));
        }
    }
    let low = ends.iter().copied().reduce(f64::min)?;
    let high = ends.iter().copied().reduce(f64::max)?;
    Some([low, high])
}

impl PointFit {
    /// Returns what the fit says, in words.
    #[must_use]
    pub fn words(&self) -> String {
        let [first, last] = [self.grid.first(), self.grid.last()].map(Option::<&Node>::copied);
        let (Some(first), Some(last)) = (first, last) else {
            return "no values".to_owned();
        };
        if self.interval.is_none() {
            let (node, than) = match self.published > last.mean {
                true => (last, "more"),
                false => (first, "less"),
            };
            return format!("{than} than {:.1} TFs at {}", node.mean, node.value);
        }
        match (self.published_sd, self.sd_interval) {
            (Some(found), Some([low, _])) if found < low => "runs differed less".to_owned(),
            (Some(found), Some([_, high])) if found > high => "runs differed more".to_owned(),
            (Some(_), Some(_)) => "and so is their spread".to_owned(),
            _ => String::new(),
        }
    }
}

impl Fit {
    /// Returns the values that explain every point of `given` that is explained at all; `None` if none does.
    #[must_use]
    pub fn common(&self, given: &str) -> Option<[f64; 2]> {
        let of_given = self.points.iter().filter(|point| point.given == given);
        let intervals = of_given.filter_map(|point| point.interval);
        let common = intervals.reduce(|[a, b], [low, high]| [a.max(low), b.min(high)])?;
        (common[0] <= common[1]).then_some(common)
    }
}

/// The fit as a table of text.
#[must_use]
pub fn table(fit: &Fit) -> String {
    let width = fit
        .points
        .iter()
        .map(|point| full_name(point).chars().count());
    let width = width.max().unwrap_or(0).max(5);
    let mut text = format!(
        "{:<width$} {:>9} {:>10} {:>5} {:>24} {:>8}\n",
        "point", "Mbit/s", "published", "n", fit.key, "sd"
    );
    for point in &fit.points {
        let _ = writeln!(
            text,
            "{:<width$} {:>9.1} {:>10.2} {:>5} {:>24} {:>8}  {}",
            full_name(point),
            point.offered_mbit_s,
            point.published,
            point.published_runs,
            values(point),
            digits(point.sd),
            point.words()
        );
    }
    let _ = writeln!(text, "{}", in_short(fit));
    text
}

fn full_name(point: &PointFit) -> String {
    match point.given.as_str() {
        "" => point.point.clone(),
        given => format!("{}, {given}", point.point),
    }
}

fn in_short(fit: &Fit) -> String {
    let mut all: Vec<&str> = fit
        .points
        .iter()
        .map(|point| point.given.as_str())
        .collect();
    all.sort_unstable();
    all.dedup();
    let told = all.into_iter().map(|given| {
        let of_given = || fit.points.iter().filter(|point| point.given == given);
        let explained = of_given().filter(|point| point.interval.is_some()).count();
        let with = if given.is_empty() { "" } else { "with " };
        let comma = if given.is_empty() { "" } else { ": " };
        let one = match fit.common(given) {
            Some([low, high]) => format!("{low:.2} to {high:.2} explains all of these"),
            None => "no value explains all of these".to_owned(),
        };
        let all = of_given().count();
        format!("{with}{given}{comma}{explained} of {all} published losses are explained, {one}")
    });
    told.collect::<Vec<String>>().join("; ")
}

/// Returns the value with its interval.
fn values(point: &PointFit) -> String {
    match (point.value, point.interval) {
        (Some(value), Some([low, high])) => format!("{value:.2} ({low:.2} to {high:.2})"),
        (None, Some([low, high])) => format!("{low:.2} to {high:.2}"),
        _ => "none".to_owned(),
    }
}

fn digits(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), |value| format!("{value:.1}"))
}

/// The fit of `results` as a page of Markdown, such as those of `docs/results/`.
#[must_use]
pub fn markdown(results: &Results, fit: &Fit) -> String {
    let mut text = format!(
        "# `{}` by published losses: {}\n\n",
        fit.key, fit.experiment
    );
    text += &crate::results::origin(results);
    let _ = writeln!(
        text,
        "Losses in TFs of a run. A value explains a published mean of n runs if that mean lies within the central \
         95 % of the means of n runs of the model; in brackets the values that do.\n\n\
         In short: {}.\n",
        in_short(fit)
    );
    let _ = writeln!(
        text,
        "| point | FLPs x EPNs | Hz | offered, Mbit/s | published, TFs lost | runs | `{}` | sd published | sd of the model, of n runs | |",
        fit.key
    );
    text += "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n";
    for point in &fit.points {
        let spread = match (point.sd, point.sd_interval) {
            (Some(sd), Some([low, high])) => format!("{sd:.1} ({low:.1} to {high:.1})"),
            _ => "–".to_owned(),
        };
        let _ = writeln!(
            text,
            "| {} | {} x {} | {} | {:.1} | {:.2} | {} | {} | {} | {spread} | {} |",
            full_name(point),
            point.flps,
            point.epns,
            point.rate_hz,
            point.offered_mbit_s,
            point.published,
            point.published_runs,
            values(point),
            digits(point.published_sd),
            point.words()
        );
    }
    text += "\n## Losses over the grid\n\nMean of the model, in brackets the central 95 % of means of as many runs as were published.\n\n";
    let nodes: Vec<f64> = {
        let all = fit.points.iter().flat_map(|point| &point.grid);
        let mut nodes: Vec<f64> = all.map(|node| node.value).collect();
        nodes.sort_by(f64::total_cmp);
        nodes.dedup();
        nodes
    };
    let heads: String = nodes.iter().map(|node| format!(" {node} |")).collect();
    let _ = writeln!(text, "| point | published |{heads}");
    let _ = writeln!(text, "| --- | ---: |{}", " ---: |".repeat(nodes.len()));
    for point in &fit.points {
        let cells = nodes.iter().map(|value| {
            let node = point.grid.iter().find(|node| node.value == *value);
            node.map_or(" – |".to_owned(), |node| {
                let [low, high] = node.means;
                format!(" {:.1} ({low:.1} to {high:.1}) |", node.mean)
            })
        });
        let cells: String = cells.collect();
        let _ = writeln!(
            text,
            "| {} | {:.2} |{cells}",
            full_name(point),
            point.published
        );
    }
    text
}

/// Draws the values over the offered load, a line for each number of FLPs, EPNs and TFs a second.
///
/// # Errors
///
/// [`PlotError`] for values that are not finite.
pub fn draw(fit: &Fit) -> Result<String, PlotError> {
    let mut lines: Vec<Line> = Vec::new();
    for point in &fit.points {
        let (Some(value), Some([low, high])) = (point.value, point.interval) else {
            continue;
        };
        // The place for labels is narrow: of the other keys the last part of the name has to do.
        let short = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
        let given: Vec<String> = point.given.split(", ").map(short).collect();
        let label = format!(
            "{}x{} {} Hz {}",
            point.flps,
            point.epns,
            point.rate_hz,
            given.join(" ")
        );
        let at = (point.offered_mbit_s, [value, low, high]);
        match lines.iter_mut().find(|line| line.label == label) {
            Some(line) => line.points.push(at),
            None => lines.push(Line {
                label,
                is_ours: false,
                points: vec![at],
            }),
        }
    }
    let axis = |unit: &str| Axis {
        unit: unit.to_owned(),
    };
    over(
        &format!(
            "{}: values that explain the published losses",
            fit.experiment
        ),
        &axis("offered, Mbit/s"),
        &axis(&fit.key),
        [Scale::Linear, Scale::Linear],
        &lines,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::result::RunResult;
    use crate::results::tests::point;
    use sheaf_sim::summary::Summary;

    const KEY: &str = "legacy.start_stalls.probability";

    /// Results of a model that loses 10 TFs a stall, of ten streams that stall with the probability of the key.
    fn results(published_percent: f64, published_sd: Option<f64>) -> Results {
        let mut summary = Summary::new("stalls");
        let mut runs = Vec::new();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
        for step in 0..=10 {
            let chance = f64::from(step) / 10.0;
            summary.points.push(Point {
                label: format!("11, {KEY} {chance}"),
                announced: 6000.0,
                published_runs: Some(9),
                published_sd,
                ..point("legacy", 0.0, Some(published_percent))
            });
            let mut lost = || (0..10).filter(|_| rng.random_bool(chance)).count() as u64 * 10;
            let run = |lost| RunResult {
                lost,
                ..RunResult::default()
            };
            runs.push((0..200).map(|_| run(lost())).collect());
        }
        Results {
            summary,
            runs,
            question: String::new(),
            reference: String::new(),
        }
    }

    #[test]
    fn the_value_of_which_a_mean_was_made_is_found_with_its_interval() {
        // 40 of 6,000.
        let fit = of(&results(40.0 / 60.0, Some(15.0)), KEY).expect("a grid");
        let point = &fit.points[0];
        assert_eq!((fit.points.len(), point.point.as_str()), (1, "11"));
        let value = point.value.expect("within the grid");
        assert!((value - 0.4).abs() < 0.03, "{value}");
        // The standard error of the mean of 9 runs is 15.5 ÷ 3 TFs, 0.052 of the key.
        let [low, high] = point.interval.expect("explained");
        assert!(
            (0.25..0.35).contains(&low) && (0.45..0.55).contains(&high),
            "{low} {high}"
        );
        let sd = point.sd.expect("of the runs");
        assert!((sd - 15.5).abs() < 2.0, "{sd}");
        assert_eq!(point.words(), "and so is their spread");
        assert_eq!(fit.common(""), point.interval);
    }

    #[test]
    fn an_interval_covers_the_value_that_made_the_mean_as_often_as_it_says() {
        let base = results(1.0, None);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let (mut covered, trials) = (0, 200);
        let group = |percent| {
            let mut results = base.clone();
            for point in &mut results.summary.points {
                point.published_loss_percent = Some(percent);
            }
            of(&results, KEY).expect("a grid").points.remove(0)
        };
        let grid = group(1.0).grid;
        for _ in 0..trials {
            let lost = (0..9).map(|_| (0..10).filter(|_| rng.random_bool(0.4)).count() * 10);
            let mean = lost.sum::<usize>() as f64 / 9.0;
            let [low, high] = interval(&grid, mean).expect("explained");
            covered += usize::from((low..=high).contains(&0.4));
        }
        // 95 %, give or take what 200 trials and 200 runs a node know.
        assert!((180..=200).contains(&covered), "{covered} of {trials}");
    }

    #[test]
    fn a_mean_beyond_the_model_and_a_spread_beyond_it_are_told() {
        let fit = of(&results(2.0, None), KEY).expect("a grid");
        assert_eq!((fit.points[0].value, fit.points[0].interval), (None, None));
        assert_eq!(fit.points[0].words(), "more than 100.0 TFs at 1");
        assert_eq!(fit.common(""), None);
        assert!(table(&fit).contains("0 of 1 published losses are explained"));
        for (sd, words) in [(2.0, "runs differed less"), (40.0, "runs differed more")] {
            let fit = of(&results(40.0 / 60.0, Some(sd)), KEY).expect("a grid");
            assert_eq!(fit.points[0].words(), words);
        }
    }

    #[test]
    fn other_keys_of_a_label_are_given() {
        let label = format!("2 x 1 at 94.0 Mbit/s, legacy.start_stalls.ms 600, {KEY} 0.5");
        let [name, given] = name_and_given(&label, KEY);
        assert_eq!(name, "2 x 1 at 94.0 Mbit/s");
        assert_eq!(given, "legacy.start_stalls.ms 600");
    }

    #[test]
    fn page_and_figure_have_every_point() {
        let results = results(40.0 / 60.0, Some(15.0));
        let fit = of(&results, KEY).expect("a grid");
        let page = markdown(&results, &fit);
        assert!(page.contains("| 11 | 1 x 1 |"), "{page}");
        assert!(
            page.contains("In short: 1 of 1 published losses are explained"),
            "{page}"
        );
        assert!(draw(&fit).expect("finite").contains("offered, Mbit/s"));
    }

    #[test]
    fn what_cannot_be_fitted_is_named() {
        let told = |results: &Results, key: &str| match of(results, key) {
            Ok(found) => panic!("{found:?}"),
            Err(error) => error.to_string(),
        };
        let mut results = results(1.0, None);
        let error = told(&results, "legacy.start_stalls.p");
        assert!(
            error.starts_with("--x: found \"legacy.start_stalls.p\""),
            "{error}"
        );
        results.runs.iter_mut().for_each(|runs| runs.truncate(9));
        assert!(told(&results, KEY).contains("10 runs at each"));
        results
            .summary
            .points
            .iter_mut()
            .for_each(|point| point.published_loss_percent = None);
        assert!(told(&results, KEY).contains("published_loss_percent"));
    }
}
