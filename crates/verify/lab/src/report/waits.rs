//! Policies compared by the waits of TFs for their consumers: tables of farms, and lines over loads.
//!
//! Runs of a farm with the same seed have the same TFs, so policies are compared run by run: the ratio of two waits is
//! a mean of logarithms over seeds, with its interval by Student's t. Where several policies are held against the best
//! one, the intervals are wider, so that all of them together hold with 95 % (Bonferroni).

pub mod diagram;
mod rank;
#[cfg(test)]
mod tests;

use super::sheet::Sheet;
use crate::experiment::result::{RunResult, WaitsRun};
use crate::results::{Results, kind};
use rank::{CONFIDENCE, Measure, Rank, Ratio};
use sheaf_figures::plot::PlotError;
use sheaf_figures::plot::lines::{Axis, Line, Scale, over};
use sheaf_figures::stat;
use sheaf_placement::policy;
use sheaf_sim::scenario::ORACLE;
use sheaf_sim::summary::Point;

/// One policy at one farm.
struct Row<'a> {
    point: &'a Point,
    runs: Vec<(&'a RunResult, &'a WaitsRun)>,
}

impl Row<'_> {
    /// Values of the runs, in ms.
    fn ms(&self, of: fn(&WaitsRun) -> f64) -> Vec<f64> {
        self.runs
            .iter()
            .map(|(_, waits)| of(waits) / 1000.0)
            .collect()
    }

    fn mean_ms(&self, of: fn(&WaitsRun) -> f64) -> f64 {
        stat::mean(&self.ms(of)).unwrap_or(0.0)
    }

    /// TFs that no consumer finished, in percent: lost ones, those of EPNs that died, and those that still wait.
    fn unfinished_percent(&self) -> f64 {
        let Point {
            lost_mean,
            unprocessed,
            died_unprocessed,
            announced,
            ..
        } = self.point;
        let unfinished = lost_mean + unprocessed + died_unprocessed;
        100.0 * unfinished / announced.max(1.0)
    }
}

/// Points that differ only in their policy.
struct Farm<'a> {
    rows: Vec<Row<'a>>,
}

impl<'a> Farm<'a> {
    fn first(&self) -> &'a Point {
        self.rows[0].point
    }

    fn row(&self, policy: &str) -> Option<&Row<'a>> {
        self.rows.iter().find(|row| row.point.policy == policy)
    }

    /// Name, size and load, in a line.
    fn title(&self) -> String {
        let point = self.first();
        let load = point.load.map(|load| format!(", load {load:.2}"));
        let label = match point.label.as_str() {
            "" => String::new(),
            label => format!("{label}: "),
        };
        format!(
            "{label}{} × {}, {:.2} Hz{}",
            point.flps,
            point.epns,
            point.rate_hz,
            load.unwrap_or_default()
        )
    }
}

fn wait(waits: &WaitsRun) -> f64 {
    waits.wait.us.p99
}

fn turnaround(waits: &WaitsRun) -> f64 {
    waits.turnaround.us.p99
}

/// Farms at which several policies were run and every TF has a record, in the order of the file.
fn farms(results: &Results) -> Vec<Farm<'_>> {
    let mut farms: Vec<(_, Farm<'_>)> = Vec::new();
    for (index, point) in results.summary.points.iter().enumerate() {
        let runs = results.valid_runs(index);
        let runs = runs.filter_map(|run| Some((run, run.waits.as_ref()?)));
        let runs: Vec<_> = runs.collect();
        if runs.is_empty() {
            continue;
        }
        let numbers = (
            point.flps,
            point.epns,
            point.bytes,
            point.rate_hz.to_bits(),
            point.duration_s.to_bits(),
        );
        let names = (
            kind(point.source),
            &point.label,
            &point.mode,
            &point.push,
            &point.reaction,
        );
        let row = Row { point, runs };
        match farms.iter_mut().find(|(key, _)| *key == (numbers, names)) {
            Some((_, farm)) => farm.rows.push(row),
            None => farms.push(((numbers, names), Farm { rows: vec![row] })),
        }
    }
    let farms = farms.into_iter().map(|(_, farm)| farm);
    farms.filter(|farm| farm.rows.len() > 1).collect()
}

/// Returns a time in ms with three digits, or all before the point.
fn ms(value: f64) -> String {
    match value {
        _ if value >= 100.0 => format!("{value:.0}"),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ if value >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn interval(values: &[f64]) -> String {
    if values.len() < 2 {
        return "one run".to_owned();
    }
    let [low, high] = stat::ci95_from_zero(values);
    format!("{} to {}", ms(low), ms(high))
}

fn times(ratio: Option<&Ratio>) -> String {
    let Some(ratio) = ratio else {
        return "–".to_owned();
    };
    let number = |value: f64| match value {
        _ if value >= 100.0 => format!("{value:.0}"),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    };
    match ratio.interval {
        Some([low, high]) => format!(
            "{} ({} to {})",
            number(ratio.mean),
            number(low),
            number(high)
        ),
        None => number(ratio.mean),
    }
}

/// Times that policies are compared by.
const MEASURES: [Measure; 2] = [wait, turnaround];
/// Answer for each farm.
const ANSWER_HEAD: [&str; 9] = [
    "farm",
    "shortest wait",
    "p99, ms",
    "as good",
    "default ÷ it",
    "shortest turnaround",
    "p99, ms",
    "as good",
    "÷ oracle",
];
/// Columns of a farm.
const FARM_HEAD: [&str; 12] = [
    "policy",
    "n",
    "wait p50, ms",
    "p99, ms",
    "95 %",
    "÷ shortest",
    "turnaround p99, ms",
    "÷ shortest",
    "÷ oracle",
    "unfinished %",
    "EPN peak, MB",
    "Jain",
];
const NOTE: &str = "Wait: from the announce of a TF to the begin of its processing; turnaround: to its end. Both \
    are p99 of the TFs of a run after the warm-up; a TF that still waits at the end has waited until then. The \
    shortest is that among the policies that leave fewest TFs unfinished (within 0.1 % of all), the one with \
    foresight (oracle) left out. As good: the interval of the ratio to the shortest holds 1. Ratios are paired by \
    seed; intervals are of 95 %, those of ratios to the shortest corrected for the number of policies.";

/// Answer and tables; nothing if no farm has several policies and records of TFs.
fn sheets(results: &Results) -> Vec<Sheet> {
    let farms = farms(results);
    if farms.is_empty() {
        return Vec::new();
    }
    let mut answer = Sheet::new("Waits for consumers", NOTE, &ANSWER_HEAD);
    answer.rows.extend(farms.iter().filter_map(answer_of));
    let mut sheets = vec![answer];
    sheets.extend(farms.iter().map(table));
    sheets
}

/// Tables as Markdown.
pub(super) fn markdown(results: &Results) -> String {
    sheets(results).iter().map(Sheet::markdown).collect()
}

/// Tables as HTML; `escape` makes text fit for it.
pub(super) fn html(results: &Results, escape: fn(&str) -> String) -> String {
    let sheets = sheets(results);
    sheets.iter().map(|sheet| sheet.html(escape)).collect()
}

fn answer_of(farm: &Farm<'_>) -> Option<Vec<String>> {
    let is_default = |row: &Row<'_>| row.point.policy == policy::DEFAULT;
    let default = farm.rows.iter().position(is_default);
    let mut cells = vec![farm.title()];
    for (nth, measure) in MEASURES.into_iter().enumerate() {
        let rank = Rank::of(farm, measure)?;
        let as_good = rank.as_good(farm);
        let as_good: Vec<&str> = as_good.map(|row| row.point.policy.as_str()).collect();
        let best = &farm.rows[rank.best];
        cells.push(best.point.policy.clone());
        cells.push(ms(best.mean_ms(measure)));
        cells.push(match as_good.as_slice() {
            _ if best.runs.len() < 2 => "one run: not known".to_owned(),
            [] => "–".to_owned(),
            as_good => as_good.join(", "),
        });
        cells.push(if nth == 0 {
            times(default.and_then(|at| rank.to_best[at].as_ref()))
        } else {
            let oracle = farm.row(ORACLE);
            times(
                oracle
                    .and_then(|oracle| Ratio::of(best, oracle, measure, CONFIDENCE))
                    .as_ref(),
            )
        });
    }
    Some(cells)
}

fn table(farm: &Farm<'_>) -> Sheet {
    let ranks = MEASURES.map(|measure| Rank::of(farm, measure));
    let note = format!("Runs of {} s.", farm.first().duration_s);
    let mut sheet = Sheet::new(&farm.title(), &note, &FARM_HEAD);
    let oracle = farm.row(ORACLE);
    for (at, row) in farm.rows.iter().enumerate() {
        let to_best = |rank: &Option<Rank>| match rank {
            Some(rank) if rank.best == at => "shortest".to_owned(),
            Some(rank) => times(rank.to_best[at].as_ref()),
            None => times(None),
        };
        let oracle = oracle.filter(|_| row.point.policy != ORACLE);
        let to_oracle = oracle.and_then(|oracle| Ratio::of(row, oracle, turnaround, CONFIDENCE));
        sheet.rows.push(vec![
            row.point.policy.clone(),
            row.runs.len().to_string(),
            ms(row.mean_ms(|waits| waits.wait.us.p50)),
            ms(row.mean_ms(wait)),
            interval(&row.ms(wait)),
            to_best(&ranks[0]),
            ms(row.mean_ms(turnaround)),
            to_best(&ranks[1]),
            times(to_oracle.as_ref()),
            format!("{:.3}", row.unfinished_percent()),
            format!("{:.1}", row.point.epn_peak_bytes as f64 / 1e6),
            format!("{:.3}", row.point.fairness),
        ]);
    }
    sheet
}

/// Figures of farms that were run at several loads: their name without an end, and the SVG.
pub(super) fn figures(results: &Results) -> Result<Vec<(String, String)>, PlotError> {
    let farms = farms(results);
    let mut figures: Vec<(String, String)> = Vec::new();
    let mut drawn: Vec<(&str, u32, u32)> = Vec::new();
    for farm in &farms {
        let point = farm.first();
        let name = (point.label.as_str(), point.flps, point.epns);
        let alike = farms.iter().filter(|other| {
            let other = other.first();
            (other.label.as_str(), other.flps, other.epns) == name && other.load.is_some()
        });
        let alike: Vec<&Farm<'_>> = alike.collect();
        if alike.len() < 2 || drawn.contains(&name) {
            continue;
        }
        drawn.push(name);
        let lines = farm.rows.iter().map(|row| line(&alike, &row.point.policy));
        let lines: Vec<Line> = lines.filter(|line| !line.points.is_empty()).collect();
        let title = match point.label.as_str() {
            "" => format!("{} × {}: wait for a consumer", point.flps, point.epns),
            label => format!("{label}: wait for a consumer"),
        };
        let axis = |unit: &str| Axis {
            unit: unit.to_owned(),
        };
        let (x, y) = (axis("load"), axis("p99 of the wait, ms"));
        let svg = over(&title, &x, &y, [Scale::Linear, Scale::Logarithmic], &lines)?;
        figures.push((format!("waits-{:02}", figures.len() + 1), svg));
    }
    Ok(figures)
}

/// Waits of a policy over the loads of farms that are alike, those that are above 0.
fn line(farms: &[&Farm<'_>], policy: &str) -> Line {
    let at = |farm: &&Farm<'_>| {
        let row = farm.row(policy)?;
        let values = row.ms(wait);
        let mean = stat::mean(&values).filter(|mean| *mean > 0.0)?;
        // A logarithmic axis ends above 0.
        let [low, high] = stat::ci95(&values).map(|end| end.max(mean / 10.0));
        Some((row.point.load?, [mean, low, high]))
    };
    Line {
        label: policy.to_owned(),
        is_ours: policy == policy::DEFAULT,
        points: farms.iter().filter_map(at).collect(),
    }
}
