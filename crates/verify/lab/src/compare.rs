//! Two sets of results, point by point: how far apart they are, and whether that may be chance.

use crate::experiment::hz;
use crate::experiment::result::RunResult;
use crate::results::{Results, name};
use serde::Serialize;
use sheaf_figures::stat;
use sheaf_sim::summary::Point;
use statrs::distribution::{ContinuousCDF as _, StudentsT};
use std::fmt::Write as _;

/// Chance above which a difference is none.
const SIGNIFICANT: f64 = 0.05;

/// One figure of one point, in both.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The point, as it is called in the first.
    pub point: String,
    /// `loss_percent`, `goodput_mbit_s` or `latency_us_p99`.
    pub figure: String,
    /// Mean and number of runs in the first.
    pub a: (f64, usize),
    /// The same in the second.
    pub b: (f64, usize),
    /// The second less the first.
    pub difference: f64,
    /// The difference in standard deviations of both, corrected for few runs (Hedges' g). `None` without spread.
    pub effect: Option<f64>,
    /// The chance of such a difference if there is none: Welch's t-test, two-sided. `None` with fewer than two runs.
    pub p: Option<f64>,
}

/// Points that two sets of results share, and points of one set alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Comparison {
    /// Version of this schema: 1.
    pub version: u32,
    /// Three for each point that both have.
    pub differences: Vec<Difference>,
    /// Points without a counterpart.
    pub only_in_one: Vec<String>,
}

/// Compares `a` with `b`. Points are the same if all that was asked is; if only the rules or the way differ (a
/// simulated set with a live one, sheaf with legacy), these are left out of the question where that names one point.
#[must_use]
pub fn of(a: &Results, b: &Results) -> Comparison {
    let mut comparison = Comparison {
        version: 1,
        ..Comparison::default()
    };
    let mut taken = vec![false; b.summary.points.len()];
    for (at, point) in a.summary.points.iter().enumerate() {
        let find = |is_same: &dyn Fn(&Point) -> bool| {
            let open = b
                .summary
                .points
                .iter()
                .enumerate()
                .filter(|(index, other)| !taken[*index] && is_same(other));
            let mut found = open.map(|(index, _)| index);
            found.next().filter(|_| found.next().is_none())
        };
        let whole = find(&|other| {
            key(other) == key(point) && (&other.mode, other.source) == (&point.mode, point.source)
        });
        let Some(other) = whole.or_else(|| find(&|other| key(other) == key(point))) else {
            comparison.only_in_one.push(describe(point));
            continue;
        };
        taken[other] = true;
        comparison.differences.extend(compare(
            point,
            &b.summary.points[other],
            (a, at),
            (b, other),
        ));
    }
    let left = b
        .summary
        .points
        .iter()
        .zip(&taken)
        .filter(|(_, taken)| !**taken);
    comparison
        .only_in_one
        .extend(left.map(|(point, _)| describe(point)));
    comparison
}

/// Parameters of the point without rules and mode.
pub(crate) fn key(point: &Point) -> impl PartialEq {
    let rate = point.rate_hz.to_bits();
    let asked = (
        point.flps,
        point.epns,
        rate,
        point.bytes,
        point.duration_s.to_bits(),
    );
    (
        point.label.clone(),
        point.policy.clone(),
        point.reaction.clone(),
        point.push.clone(),
        asked,
    )
}

pub(crate) fn describe(point: &Point) -> String {
    format!(
        "{} ({} FLP, {} EPN, {} Hz, {} B, {})",
        name(point),
        point.flps,
        point.epns,
        hz(point.rate_hz),
        point.bytes,
        point.mode
    )
}

/// A point of a set of results.
type At<'a> = (&'a Results, usize);
/// A figure: its name, its value for a run, and its mean for a point.
pub(crate) type FigureOf = (&'static str, fn(&RunResult) -> f64, fn(&Point) -> f64);

pub(crate) const LOSS: FigureOf = ("loss_percent", RunResult::loss_percent, |point| {
    point.loss_percent
});
pub(crate) const GOODPUT: FigureOf = (
    "goodput_mbit_s",
    |run| run.goodput_mbit_s,
    |point| point.goodput_mbit_s,
);
pub(crate) const P99: FigureOf = (
    "latency_us_p99",
    |run| run.latency_us.p99,
    |point| point.latency_us.p99,
);

fn compare(a: &Point, b: &Point, a_at: At<'_>, b_at: At<'_>) -> Vec<Difference> {
    let row = |(figure, of_run, of_point): FigureOf| {
        let values =
            |(results, at): At<'_>| -> Vec<f64> { results.valid_runs(at).map(of_run).collect() };
        let (x, y) = (values(a_at), values(b_at));
        let mean =
            |values: &[f64], point: &Point| stat::mean(values).unwrap_or_else(|| of_point(point));
        let (a_mean, b_mean) = (mean(&x, a), mean(&y, b));
        Difference {
            point: describe(a),
            figure: figure.to_owned(),
            a: (a_mean, x.len()),
            b: (b_mean, y.len()),
            difference: b_mean - a_mean,
            effect: hedges_g(&x, &y),
            p: welch(&x, &y),
        }
    };
    [LOSS, GOODPUT, P99].into_iter().map(row).collect()
}

/// The difference of means in pooled standard deviations, with the correction for small samples (Hedges 1981).
fn hedges_g(x: &[f64], y: &[f64]) -> Option<f64> {
    let (n, m) = (x.len() as f64, y.len() as f64);
    let freedom = n + m - 2.0;
    if freedom <= 0.0 || x.is_empty() || y.is_empty() {
        return None;
    }
    let squares = |values: &[f64], n: f64| stat::standard_deviation(values).powi(2) * (n - 1.0);
    let pooled = ((squares(x, n) + squares(y, m)) / freedom).sqrt();
    if pooled == 0.0 {
        return None;
    }
    let correction = 1.0 - 3.0 / (4.0 * freedom - 1.0);
    Some((stat::mean(y)? - stat::mean(x)?) / pooled * correction)
}

/// Welch's t-test, two-sided: 1 if neither varies and both are equal, 0 if they are not.
fn welch(x: &[f64], y: &[f64]) -> Option<f64> {
    if x.len() < 2 || y.len() < 2 {
        return None;
    }
    let error = |values: &[f64]| stat::standard_deviation(values).powi(2) / values.len() as f64;
    let (e_x, e_y) = (error(x), error(y));
    let difference = stat::mean(y)? - stat::mean(x)?;
    if e_x + e_y == 0.0 {
        return Some(if difference == 0.0 { 1.0 } else { 0.0 });
    }
    let t = difference / (e_x + e_y).sqrt();
    let part = |e: f64, values: &[f64]| e * e / (values.len() - 1) as f64;
    let freedom = (e_x + e_y).powi(2) / (part(e_x, x) + part(e_y, y));
    let students = StudentsT::new(0.0, 1.0, freedom).ok()?;
    Some(2.0 * students.cdf(-t.abs()))
}

impl Difference {
    /// In words: whether there is a difference.
    #[must_use]
    pub fn verdict(&self) -> &'static str {
        match self.p {
            None if self.difference == 0.0 => "equal",
            None => "too few runs to tell",
            Some(p) if p >= SIGNIFICANT => "no difference that chance does not explain",
            Some(_) if self.difference > 0.0 => "the second is higher",
            Some(_) => "the second is lower",
        }
    }
}

/// The comparison as a table of text.
#[must_use]
pub fn table(comparison: &Comparison) -> String {
    let mut text = String::new();
    let mut last = "";
    for row in &comparison.differences {
        if row.point != last {
            let _ = writeln!(text, "{}", row.point);
            last = &row.point;
        }
        let number =
            |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.3}"));
        let _ = writeln!(
            text,
            "  {:<15} {:>11.3} (n {:>2}) {:>11.3} (n {:>2})  difference {:>+11.3}  g {:>8}  p {:>6}  {}",
            row.figure,
            row.a.0,
            row.a.1,
            row.b.0,
            row.b.1,
            row.difference,
            number(row.effect),
            number(row.p),
            row.verdict()
        );
    }
    for point in &comparison.only_in_one {
        let _ = writeln!(text, "only in one of them: {point}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn welch_gives_the_value_that_integration_gives() {
        // t = 2.8353 at 27.714 degrees of freedom; two tails of Student's t, integrated numerically.
        let x = [
            27.5, 21.0, 19.0, 23.6, 17.0, 17.9, 16.9, 20.1, 21.9, 22.6, 23.1, 19.6, 19.0, 21.7,
            21.4,
        ];
        let y = [
            27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2, 21.9, 22.1, 22.9, 30.0,
            23.9,
        ];
        let p = welch(&x, &y).unwrap();
        assert!((p - 0.008_453).abs() < 2e-5, "{p}");
        assert_eq!(welch(&[1.0], &[2.0, 3.0]), None);
        assert_eq!(welch(&[2.0, 2.0], &[2.0, 2.0]), Some(1.0));
        assert_eq!(welch(&[2.0, 2.0], &[3.0, 3.0]), Some(0.0));
    }

    #[test]
    fn the_effect_is_in_standard_deviations() {
        let g = hedges_g(&[1.0, 2.0, 3.0], &[2.0, 3.0, 4.0]).unwrap();
        assert!((g - 0.8).abs() < 1e-9, "{g}"); // 1 / 1 × (1 − 3 / 15)
        assert_eq!(hedges_g(&[1.0, 1.0], &[1.0, 1.0]), None);
    }
}
