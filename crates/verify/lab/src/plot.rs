//! Figures for own questions: one value of a folder of results over another, a line for each value of further ones.
//!
//! Values go by their names in `summary.json`, such as `load` or `latency_us.p99`, and in the files of runs, such as
//! `waits.wait.us.p99`; values that labels name, such as `farm.report_ms 100`, by those names, and the rest of the
//! label is `farm`. A value that runs have is shown as their mean with its interval of 95 %.

use crate::results::Results;
use serde::Serialize;
use serde_json::Value;
use sheaf_figures::plot::PlotError;
use sheaf_figures::plot::lines::{Axis, Line, Scale, over};
use sheaf_figures::stat;
use sheaf_sim::summary::Point;
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// Question to a folder of results.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// Value along the axis below.
    pub x: String,
    /// Value along the axis beside.
    pub y: String,
    /// Values that make a line each.
    pub by: Vec<String>,
    /// Points that are drawn: those that have all of these values.
    pub only: Vec<(String, String)>,
    /// Whether the axis below is logarithmic.
    pub is_log_x: bool,
    /// Whether the axis beside is logarithmic.
    pub is_log_y: bool,
}

/// Reasons why there is no figure.
#[derive(Debug, Error)]
pub enum PlotQuestionError {
    /// No point has such a value.
    #[error("{axis}: found {found:?}, expected one of: {}", names.join(", "))]
    Name {
        /// Option that names it.
        axis: &'static str,
        /// Name that was asked for.
        found: String,
        /// Names that the points have.
        names: Vec<String>,
    },
    /// No point is left.
    #[error("no point has all of these values: {found}; expected some that a point has")]
    NoPoint {
        /// Values that were asked for.
        found: String,
    },
    /// The values cannot be drawn.
    #[error(transparent)]
    Plot(#[from] PlotError),
}

/// One line of a figure, as data.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// Values that the points of the line have in common.
    pub label: String,
    /// Points from left to right.
    pub points: Vec<At>,
}

/// One point of a line.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct At {
    /// Value along the axis below.
    pub x: f64,
    /// Mean of the runs.
    pub y: f64,
    /// Interval of the mean; twice the mean of a single run, or where runs do not have the value.
    pub ci95: [f64; 2],
}

/// Value with its dotted name.
pub(crate) type Named = BTreeMap<String, Value>;

/// Returns the lines that answer `question`.
///
/// # Errors
///
/// [`PlotQuestionError::Name`] and [`PlotQuestionError::NoPoint`].
pub fn series(results: &Results, question: &Question) -> Result<Vec<Series>, PlotQuestionError> {
    let mut series: Vec<Series> = Vec::new();
    let mut names = BTreeSet::new();
    for (index, point) in results.summary.points.iter().enumerate() {
        let of_point = named(point);
        names.extend(of_point.keys().cloned());
        let runs = results.valid_runs(index).map(flat);
        let of_runs: Vec<Named> = runs.collect();
        names.extend(of_runs.iter().flat_map(|run| run.keys().cloned()));
        let is_in = |(name, value): &(String, String)| {
            of_point
                .get(name)
                .is_some_and(|found| text(found) == *value)
        };
        if !question.only.iter().all(is_in) {
            continue;
        }
        let y = |named: &Named| named.get(&question.y).and_then(Value::as_f64);
        let mut values: Vec<f64> = of_runs.iter().filter_map(y).collect();
        if values.is_empty() {
            values.extend(y(&of_point));
        }
        let x = of_point.get(&question.x).and_then(Value::as_f64);
        let (Some(x), Some(mean)) = (x, stat::mean(&values)) else {
            continue;
        };
        let words = question.by.iter().map(|name| {
            let value = of_point.get(name);
            value.map_or_else(|| format!("no {name}"), text)
        });
        let label = words.collect::<Vec<String>>().join(", ");
        let at = At {
            x,
            y: mean,
            ci95: stat::ci95(&values),
        };
        match series.iter_mut().find(|line| line.label == label) {
            Some(line) => line.points.push(at),
            None => series.push(Series {
                label,
                points: vec![at],
            }),
        }
    }
    check_names(question, &names)?;
    if series.is_empty() {
        let only = question.only.iter();
        let mut found: Vec<String> = only
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        found.extend([question.x.clone(), question.y.clone()]);
        let found = found.join(", ");
        return Err(PlotQuestionError::NoPoint { found });
    }
    for line in &mut series {
        line.points.sort_by(|a, b| a.x.total_cmp(&b.x));
    }
    Ok(series)
}

fn check_names(question: &Question, names: &BTreeSet<String>) -> Result<(), PlotQuestionError> {
    let of_only = question.only.iter().map(|(name, _)| ("--where", name));
    let of_by = question.by.iter().map(|name| ("--by", name));
    let axes = [("--x", &question.x), ("--y", &question.y)];
    let mut asked = axes.into_iter().chain(of_by).chain(of_only);
    match asked.find(|(_, name)| !names.contains(*name)) {
        Some((axis, name)) => Err(PlotQuestionError::Name {
            axis,
            found: name.clone(),
            names: names.iter().cloned().collect(),
        }),
        None => Ok(()),
    }
}

/// Draws the lines as an SVG. What is 0 has no place on a logarithmic axis, and is left out.
///
/// # Errors
///
/// [`PlotError`] for values that are not finite.
pub fn draw(
    experiment: &str,
    question: &Question,
    series: &[Series],
) -> Result<String, PlotQuestionError> {
    let scale = |is_log| match is_log {
        true => Scale::Logarithmic,
        false => Scale::Linear,
    };
    let (x_unit, x_factor) = shown(&question.x);
    let (y_unit, y_factor) = shown(&question.y);
    let line = |series: &Series| Line {
        label: series.label.clone(),
        is_ours: false,
        points: series
            .points
            .iter()
            .filter(|at| (at.x > 0.0 || !question.is_log_x) && (at.y > 0.0 || !question.is_log_y))
            .map(|at| {
                let [low, high] = at.ci95;
                // A logarithmic axis ends above 0.
                let low = match question.is_log_y {
                    true => low.max(at.y / 10.0),
                    false => low,
                };
                (at.x * x_factor, [at.y, low, high].map(|y| y * y_factor))
            })
            .collect(),
    };
    let axis = |unit: &str| Axis {
        unit: unit.to_owned(),
    };
    let lines: Vec<Line> = series.iter().map(line).collect();
    let title = match question.only.as_slice() {
        [] => experiment.to_owned(),
        only => {
            let values: Vec<&str> = only.iter().map(|(_, value)| value.as_str()).collect();
            format!("{experiment}: {}", values.join(", "))
        }
    };
    let scales = [scale(question.is_log_x), scale(question.is_log_y)];
    Ok(over(
        &title,
        &axis(&x_unit),
        &axis(&y_unit),
        scales,
        &lines,
    )?)
}

/// Returns how a value is drawn: its name and the factor of its unit. Times in µs are drawn in ms.
fn shown(name: &str) -> (String, f64) {
    let is_us = |part: &&str| *part == "us" || part.ends_with("_us");
    match name.split('.').any(|part| is_us(&part)) {
        true => {
            let parts = name.split('.').filter(|part| *part != "us");
            let parts: Vec<&str> = parts.map(|part| part.trim_end_matches("_us")).collect();
            (format!("{}, ms", parts.join(".")), 1e-3)
        }
        false => (name.to_owned(), 1.0),
    }
}

/// The lines as text: a row a point.
#[must_use]
pub fn table(question: &Question, series: &[Series]) -> String {
    use std::fmt::Write as _;
    let width = series.iter().map(|line| line.label.chars().count());
    let width = width.max().unwrap_or(0).max(6);
    let Question { x, y, by, .. } = question;
    let mut text = format!("{:<width$} {x:>14} {y:>18} {:>28}\n", by.join(", "), "95 %");
    for line in series {
        for at in &line.points {
            let [low, high] = at.ci95;
            let interval = format!("{low:.3} to {high:.3}");
            let _ = writeln!(
                text,
                "{:<width$} {:>14} {:>18.3} {interval:>28}",
                line.label, at.x, at.y
            );
        }
    }
    text
}

/// Returns all values of `point`, those that its label names among them, and the rest of the label as `farm`.
pub(crate) fn named(point: &Point) -> Named {
    let mut named = flat(point);
    let (keys, others) = parts(&point.label);
    for (name, value) in keys {
        named.entry(name.to_owned()).or_insert_with(|| value.into());
    }
    let farm = named.entry("farm".to_owned());
    farm.or_insert_with(|| others.join(", ").into());
    named
}

/// Returns the keys that a label names, such as `farm.report_ms 100`, with their values, and its other parts.
pub(crate) fn parts(label: &str) -> (Vec<(&str, f64)>, Vec<&str>) {
    let (mut keys, mut others) = (Vec::new(), Vec::new());
    for part in label.split(", ") {
        match key_of(part) {
            Some(key) => keys.push(key),
            None => others.push(part),
        }
    }
    (keys, others)
}

fn key_of(part: &str) -> Option<(&str, f64)> {
    let (name, text) = part.split_once(' ')?;
    let is_of_key = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._".contains(c);
    let is_key = name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(is_of_key);
    Some((name, text.parse().ok()?)).filter(|_| is_key)
}

/// Returns the numbers, texts and truths of `value`, under dotted names.
fn flat(value: &impl Serialize) -> Named {
    let mut named = Named::new();
    let value = serde_json::to_value(value).unwrap_or_default();
    gather("", &value, &mut named);
    named
}

fn gather(name: &str, value: &Value, named: &mut Named) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                let name = match name {
                    "" => field.clone(),
                    name => format!("{name}.{field}"),
                };
                gather(&name, value, named);
            }
        }
        Value::Array(_) | Value::Null => {}
        value => {
            named.insert(name.to_owned(), value.clone());
        }
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::result::RunResult;
    use crate::results::tests::point;
    use sheaf_sim::summary::Summary;

    /// Results of two policies at two loads, three runs each.
    fn results() -> Results {
        let mut summary = Summary::new("loads");
        let mut runs = Vec::new();
        for (policy, factor) in [("random", 4.0), ("modulo", 1.0)] {
            for load in [0.9, 0.5] {
                summary.points.push(Point {
                    policy: policy.to_owned(),
                    load: Some(load),
                    ..point("sheaf", 0.0, None)
                });
                let run = |seed| RunResult {
                    seed,
                    span_s: load * factor * seed as f64,
                    ..RunResult::default()
                };
                runs.push((1..=3).map(run).collect());
            }
        }
        Results {
            summary,
            runs,
            question: String::new(),
            reference: String::new(),
        }
    }

    fn question(x: &str, y: &str, by: &[&str]) -> Question {
        Question {
            x: x.to_owned(),
            y: y.to_owned(),
            by: by.iter().map(|name| (*name).to_owned()).collect(),
            ..Question::default()
        }
    }

    #[test]
    fn a_line_has_the_means_of_runs_from_left_to_right() {
        let question = question("load", "span_s", &["policy"]);
        let series = series(&results(), &question).expect("names that are there");
        let labels: Vec<&str> = series.iter().map(|line| line.label.as_str()).collect();
        assert_eq!(labels, ["random", "modulo"]);
        let at: Vec<(f64, f64)> = series[0].points.iter().map(|at| (at.x, at.y)).collect();
        assert_eq!(at, [(0.5, 4.0), (0.9, 7.2)]);
        assert!(series[0].points[0].ci95[0] < 4.0);
        let svg = draw("loads", &question, &series).expect("finite");
        assert!(svg.contains("random") && svg.contains("span_s"));
        assert_eq!(table(&question, &series).lines().count(), 5);
    }

    #[test]
    fn times_are_drawn_in_ms() {
        let name = |name| shown(name).0;
        assert_eq!(name("waits.wait.us.p99"), "waits.wait.p99, ms");
        assert_eq!(name("latency_us.p50"), "latency.p50, ms");
        assert_eq!(shown("status"), ("status".to_owned(), 1.0));
    }

    #[test]
    fn a_value_of_points_alone_has_no_interval() {
        let mut question = question("load", "goodput_mbit_s", &[]);
        question.only = vec![("policy".to_owned(), "modulo".to_owned())];
        let mut results = results();
        results.runs.clear();
        let series = series(&results, &question).expect("names that are there");
        assert_eq!(series.len(), 1);
        assert_eq!(series[0].points[0].ci95, [93.25, 93.25]);
    }

    #[test]
    fn what_is_not_there_is_named_with_what_is() {
        let told = |question: &Question| match series(&results(), question) {
            Ok(found) => panic!("{found:?}"),
            Err(error) => error.to_string(),
        };
        let error = told(&question("lode", "span_s", &[]));
        assert!(
            error.starts_with("--x: found \"lode\", expected one of: announced"),
            "{error}"
        );
        let error = told(&question("load", "span_s", &["color"]));
        assert!(error.starts_with("--by: found \"color\""), "{error}");
        let mut nothing = question("load", "span_s", &[]);
        nothing.only = vec![("policy".to_owned(), "fixed".to_owned())];
        assert!(told(&nothing).contains("policy=fixed"));
        assert!(told(&question("policy", "span_s", &[])).contains("no point"));
    }
}
