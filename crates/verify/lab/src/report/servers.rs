//! Points of servers behind one address: as text, as parts of the pages, as CSV and as figures.
//!
//! Rates stand at the scale of the original. Each point is compared with what was published for its number of clients,
//! with IPVS, and with clients that go to the servers directly, under the same load.

mod decline;

use super::sheet::Sheet;
use crate::experiment::published;
use crate::experiment::result::{RunResult, ServersRun};
use crate::results::Results;
use decline::{Interval, Series};
use sheaf_figures::plot::PlotError;
use sheaf_figures::plot::lines::{Axis, Line, Scale, over};
use sheaf_sim::serving::Serving;
use sheaf_sim::summary::{Point, Served, Summary};
use std::fmt::Write as _;

/// Plane of the clients that go to the servers directly.
const DIRECT: &str = "direct";
/// Plane of the paper.
const IPVS: &str = "ipvs";
/// Plane that is the default of Sheaf.
const OURS: &str = "nft";
/// Name of published figures.
const PUBLISHED: &str = "published";
/// Largest share of the processors that others take on a quiet machine.
const QUIET: f64 = 0.05;

/// A point of servers, with its runs if they are there.
struct At<'a> {
    point: &'a Point,
    served: &'a Served,
    runs: Vec<&'a RunResult>,
}

impl At<'_> {
    /// Whether it asks for downloads of servers that are well.
    fn is_plain(&self) -> bool {
        self.served.asked.besides().is_empty()
    }

    /// Rates of the runs; of a summary alone, their mean.
    fn rates(&self) -> Vec<f64> {
        let servers = self.runs.iter().filter_map(|run| run.servers.as_ref());
        let rates: Vec<f64> = servers.map(|run: &ServersRun| run.gbit_per_s).collect();
        match rates.is_empty() && self.point.n > 0 {
            true => vec![self.served.gbit_per_s],
            false => rates,
        }
    }

    fn failed_percents(&self) -> Vec<f64> {
        let percents: Vec<f64> = self.runs.iter().map(|run| run.loss_percent()).collect();
        match percents.is_empty() && self.point.n > 0 {
            true => vec![self.point.loss_percent],
            false => percents,
        }
    }
}

/// Points of servers.
fn all(results: &Results) -> impl Iterator<Item = At<'_>> {
    let points = results.summary.points.iter().enumerate();
    points.filter_map(|(index, point)| {
        Some(At {
            point,
            served: point.served.as_ref()?,
            runs: results.valid_runs(index).collect(),
        })
    })
}

fn of(summary: &Summary) -> impl Iterator<Item = (&Point, &Served)> {
    let points = summary.points.iter();
    points.filter_map(|point| point.served.as_ref().map(|served| (point, served)))
}

/// Returns the point that asks the same of another plane, or without what is special, if it was measured.
fn beside<'a>(summary: &'a Summary, asked: &Serving) -> Option<&'a Served> {
    let found = of(summary).find(|(point, served)| served.asked == *asked && point.n > 0);
    found.map(|(_, served)| served)
}

fn ratio(of: f64, to: Option<f64>) -> String {
    let ratio = to.filter(|to| *to > 0.0).map(|to| of / to);
    ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.2}"))
}

fn interval(values: [f64; 2], digits: usize) -> String {
    let [least, most] = values;
    format!("{least:.digits$} to {most:.digits$}")
}

/// A line a point; nothing if there is none.
pub(super) fn table(summary: &Summary) -> String {
    if of(summary).next().is_none() {
        return String::new();
    }
    let width = of(summary).map(|(point, _)| point.label.chars().count());
    let width = width.max().unwrap_or(0).max(5);
    let mut text = format!(
        "{:<width$} {:<13} {:>3} {:>4} {:>7} {:>16} {:>9} {:>8} {:>8} {:>9} {:>7} {:>7} {:>6}\n",
        "point",
        "plane",
        "n",
        "rej.",
        "Gbit/s",
        "95 %",
        "published",
        "failed",
        "broken",
        "finished",
        "p50 s",
        "p99 s",
        "Jain"
    );
    for (point, served) in of(summary) {
        let (label, plane) = (&point.label, &served.asked.plane);
        if let Some(why) = &served.skipped {
            let _ = writeln!(text, "{label:<width$} {plane:<13} not run: {why}");
            continue;
        }
        let published = served.published_gbit_per_s;
        let _ = writeln!(
            text,
            "{label:<width$} {plane:<13} {:>3} {:>4} {:>7.2} {:>16} {:>9} {:>8.1} {:>8.1} {:>9.0} {:>7.2} {:>7.2} {:>6.3}",
            point.n,
            point.n_rejected,
            served.gbit_per_s,
            interval(served.gbit_per_s_ci95, 2),
            published.map_or("–".to_owned(), |[average, _]| format!("{average:.2}")),
            served.failed,
            served.broken,
            served.finished,
            point.latency_us.p50 / 1e6,
            point.latency_us.p99 / 1e6,
            served.jain,
        );
    }
    text
}

const NOTE: &str = "Rates in Gbit/s at the scale of the paper; transfers are counted a run, as measured. *Broken*: \
failed on a connection that they had; *failed*: those too. The paper tells throughput alone: nothing of failures, \
times of transfers or the spread over its servers. Ratios are of means, under the same load.";

const ROW_HEAD: [&str; 18] = [
    "clients",
    "client hosts",
    "plane",
    "Gbit/s",
    "95 %",
    "published",
    "÷ published",
    "÷ ipvs",
    "÷ direct",
    "largest second",
    "published",
    "failed",
    "broken",
    "finished",
    "transfer p50, s",
    "p99, s",
    "Jain",
    "fullest server ÷ mean",
];

fn row(summary: &Summary, point: &Point, served: &Served) -> Vec<String> {
    let asked = &served.asked;
    let dash = || "–".to_owned();
    let mut cells = vec![
        asked.clients.to_string(),
        asked.hosts(),
        asked.plane.clone(),
    ];
    let published = served.published_gbit_per_s;
    let rate = |at: usize| published.map_or(dash(), |rates| format!("{:.2}", rates[at]));
    if point.n == 0 {
        let why = match &served.skipped {
            Some(why) => format!("not run: {why}"),
            None => format!("no run counts: {} rejected", point.n_rejected),
        };
        cells.extend([why, dash(), rate(0)]);
        cells.resize(ROW_HEAD.len(), dash());
        return cells;
    }
    let than = |plane: &str| {
        let asked = Serving {
            plane: plane.to_owned(),
            ..asked.clone()
        };
        beside(summary, &asked).map(|other| other.gbit_per_s)
    };
    cells.extend([
        format!("{:.2}", served.gbit_per_s),
        interval(served.gbit_per_s_ci95, 2),
        rate(0),
        ratio(served.gbit_per_s, published.map(|[average, _]| average)),
        ratio(served.gbit_per_s, than(IPVS)),
        ratio(served.gbit_per_s, than(DIRECT)),
        format!("{:.2}", served.gbit_per_s_max),
        rate(1),
        format!("{:.1}", served.failed),
        format!("{:.1}", served.broken),
        format!("{:.0}", served.finished),
        format!("{:.2}", point.latency_us.p50 / 1e6),
        format!("{:.2}", point.latency_us.p99 / 1e6),
        format!("{:.3}", served.jain),
        format!("{:.3}", served.fullest),
    ]);
    cells
}

fn rows(summary: &Summary) -> Sheet {
    let plain = of(summary).filter(|(_, served)| served.asked.besides().is_empty());
    let mut sheet = Sheet::new("Planes", NOTE, &ROW_HEAD);
    sheet.rows = plain
        .map(|(point, served)| row(summary, point, served))
        .collect();
    sheet
}

const SPECIAL_HEAD: [&str; 13] = [
    "what",
    "clients",
    "client hosts",
    "plane",
    "servers",
    "Gbit/s",
    "÷ without it",
    "failed",
    "broken",
    "finished",
    "transfer p99, s",
    "Jain",
    "n",
];

/// Points with faults, drains and uploads.
fn special(summary: &Summary) -> Sheet {
    let note = "A fault comes after a third of the window. These rows show what the columns above do when a plane or a \
                server is broken, and uploads, which the paper left open.";
    let mut sheet = Sheet::new("Faults and uploads", note, &SPECIAL_HEAD);
    for (point, served) in of(summary) {
        let asked = &served.asked;
        let what = asked.besides();
        if what.is_empty() {
            continue;
        }
        let plain = Serving {
            fault: None,
            drains: 0,
            ..asked.clone()
        };
        let plain = (plain != *asked).then(|| beside(summary, &plain)).flatten();
        let mut cells = vec![
            what,
            asked.clients.to_string(),
            asked.hosts(),
            asked.plane.clone(),
            asked.engine.clone(),
        ];
        match &served.skipped {
            Some(why) => cells.push(format!("not run: {why}")),
            None => cells.extend([
                format!("{:.2}", served.gbit_per_s),
                ratio(served.gbit_per_s, plain.map(|plain| plain.gbit_per_s)),
                format!("{:.1}", served.failed),
                format!("{:.1}", served.broken),
                format!("{:.0}", served.finished),
                format!("{:.2}", point.latency_us.p99 / 1e6),
                format!("{:.3}", served.jain),
                point.n.to_string(),
            ]),
        }
        cells.resize(SPECIAL_HEAD.len(), "–".to_owned());
        sheet.rows.push(cells);
    }
    sheet
}

const FIT_HEAD: [&str; 10] = [
    "plane",
    "client hosts",
    "most at, clients",
    "95 %",
    "fall from there, %",
    "95 %",
    "change above 3,000, %",
    "95 %",
    "failed, points of % for 1,000 clients",
    "Gbit/s of N clients",
];

fn fits(series: &[Series<'_>]) -> Sheet {
    let note = "A parabola through the mean rates over the number of clients, as in figure 3 of the paper; intervals \
                by resampling of the runs. *Change above 3,000*: rate at the most clients ÷ that at 3,000.";
    let mut sheet = Sheet::new("Fits over the number of clients", note, &FIT_HEAD);
    let coefficients = |[a, b, c]: [f64; 3]| format!("{a:.3} {b:+.3e} N {c:+.3e} N²");
    let told = |found: Option<Interval>, digits: usize| match found {
        Some((value, ends)) => [format!("{value:.digits$}"), interval(ends, digits)],
        None => ["–".to_owned(), "–".to_owned()],
    };
    for one in series {
        let Some(fit) = one.fit() else {
            continue;
        };
        let [change, change_ends] = told(one.change(), 1);
        let [failures, failures_ends] = told(one.failures(), 3);
        sheet.rows.push(vec![
            one.asked.plane.clone(),
            one.asked.hosts(),
            format!("{:.0}", fit.peak.at),
            interval(fit.at_ci95, 0),
            format!("{:.1}", fit.peak.fall_percent),
            interval(fit.fall_percent_ci95, 1),
            change,
            change_ends,
            format!("{failures} ({failures_ends})"),
            coefficients(fit.peak.coefficients),
        ]);
    }
    if sheet.rows.is_empty() {
        return sheet;
    }
    if let (Some(peak), Some(change)) = (decline::of_published(), decline::published_change()) {
        let dash = || "–".to_owned();
        sheet.rows.push(vec![
            PUBLISHED.to_owned(),
            "1 Gbit/s, number not told".to_owned(),
            format!("{:.0}", peak.at),
            dash(),
            format!("{:.1}", peak.fall_percent),
            dash(),
            format!("{change:.1}"),
            dash(),
            dash(),
            coefficients(peak.coefficients),
        ]);
    }
    sheet
}

/// Answers in sentences: whether the decline is the clients', what broken parts show, what was not run.
pub(super) fn sentences(results: &Results) -> Vec<String> {
    let series = decline::series(results);
    let answers = decline::answers(&series);
    let mut sentences: Vec<String> = answers.iter().map(ToString::to_string).collect();
    let measured = |at: &At<'_>| at.point.n > 0;
    let faults: Vec<At<'_>> = all(results)
        .filter(|at| at.served.asked.fault.is_some() && measured(at))
        .collect();
    if !faults.is_empty() {
        let told = faults.iter().map(|at| {
            let (plane, what) = (&at.served.asked.plane, at.served.asked.besides());
            let percent = at.point.loss_percent;
            format!("{plane}, {what}: {percent:.2} % of the transfers failed")
        });
        let told: Vec<String> = told.collect();
        let head = match faults.iter().any(|at| at.served.failed > 0.0) {
            true => "Rows can fail",
            false => "No fault shows, so rows without failures prove nothing",
        };
        sentences.push(format!("{head}: {}", told.join("; ")));
    }
    let skipped = all(results).filter_map(|at| {
        let why = at.served.skipped.as_ref()?;
        Some(format!("{} was not run: {why}", at.served.asked.plane))
    });
    let mut skipped: Vec<String> = skipped.collect();
    skipped.dedup();
    sentences.extend(skipped);
    let others = of(&results.summary).map(|(_, served)| served.others_share_max);
    let others = others.fold(0.0, f64::max);
    if others > QUIET {
        sentences.push(format!(
            "The machine was not quiet: other programs took up to {:.0} % of the processors",
            others * 100.0
        ));
    }
    sentences
}

fn sheets(results: &Results) -> [Sheet; 3] {
    [
        rows(&results.summary),
        fits(&decline::series(results)),
        special(&results.summary),
    ]
}

/// The sentences and tables in Markdown; nothing if there are no points of servers.
pub(super) fn markdown(results: &Results) -> String {
    if of(&results.summary).next().is_none() {
        return String::new();
    }
    let mut text = String::new();
    for sentence in sentences(results) {
        let _ = writeln!(text, "- {sentence}.");
    }
    text.push('\n');
    text.extend(sheets(results).iter().map(Sheet::markdown));
    text
}

/// The part of a page of HTML; nothing if there are no points of servers. `escape` makes text fit for it.
pub(super) fn html(results: &Results, escape: fn(&str) -> String) -> String {
    let sheets = sheets(results);
    sheets.iter().map(|sheet| sheet.html(escape)).collect()
}

/// Columns of the CSV form.
const CSV_HEADER: &str = "plane,servers,engine,method,clients,client_hosts,server_mbit,client_mbit,placement,\
    object_bytes,scale,drains,fault,n,n_rejected,skipped,gbit_per_s,gbit_per_s_low,gbit_per_s_high,gbit_per_s_max,\
    published_gbit_per_s,published_gbit_per_s_max,connections_per_s,held_max,started,finished,failed,broken,\
    transfer_ms_p50,transfer_ms_p99,jain,fullest,cpu_s_per_gb,others_share_max";

/// The points of servers as CSV; nothing if there are none.
pub(super) fn csv(summary: &Summary) -> Option<String> {
    of(summary).next()?;
    let mut text = format!("{CSV_HEADER}\n");
    for (point, served) in of(summary) {
        let asked = &served.asked;
        let published = |at: usize| {
            let rates = served.published_gbit_per_s;
            rates.map_or(String::new(), |rates| rates[at].to_string())
        };
        let [low, high] = served.gbit_per_s_ci95;
        let fault = asked.fault.map_or("", |fault| fault.name());
        let cells = [
            asked.plane.clone(),
            asked.servers.to_string(),
            asked.engine.clone(),
            format!("{:?}", asked.method).to_lowercase(),
            asked.clients.to_string(),
            asked.client_hosts.to_string(),
            asked.server_mbit.to_string(),
            asked.client_mbit.to_string(),
            format!("{:?}", asked.placement).to_lowercase(),
            asked.object_bytes.to_string(),
            asked.scale.to_string(),
            asked.drains.to_string(),
            fault.to_owned(),
            point.n.to_string(),
            point.n_rejected.to_string(),
            served.skipped.clone().unwrap_or_default().replace(',', ";"),
            format!("{:.3}", served.gbit_per_s),
            format!("{low:.3}"),
            format!("{high:.3}"),
            format!("{:.3}", served.gbit_per_s_max),
            published(0),
            published(1),
            format!("{:.1}", served.connections_per_s),
            served.held_max.to_string(),
            point.announced.to_string(),
            served.finished.to_string(),
            served.failed.to_string(),
            served.broken.to_string(),
            format!("{:.1}", point.latency_us.p50 / 1e3),
            format!("{:.1}", point.latency_us.p99 / 1e3),
            format!("{:.4}", served.jain),
            format!("{:.4}", served.fullest),
            format!("{:.3}", served.cpu_s_per_gb),
            format!("{:.3}", served.others_share_max),
        ];
        let _ = writeln!(text, "{}", cells.join(","));
    }
    Some(text)
}

/// A value of a point, with its least and its most.
type Value = fn(&Point, &Served) -> [f64; 3];

/// Figures over the number of clients: name of the file, title, unit, value.
const DRAWN: [(&str, &str, &str, Value); 2] = [
    ("rate", "Rate", "Gbit/s", |_, served| {
        let [least, most] = served.gbit_per_s_ci95;
        [served.gbit_per_s, least, most]
    }),
    (
        "transfer",
        "Time of a transfer: median, to p99",
        "s",
        |point, _| {
            let [p50, p99] = [point.latency_us.p50 / 1e6, point.latency_us.p99 / 1e6];
            [p50, p50, p99]
        },
    ),
];

/// Figures over the number of clients, for each kind of client hosts: names and drawings.
///
/// # Errors
///
/// [`PlotError`] for values that are not finite.
pub(super) fn figures(summary: &Summary) -> Result<Vec<(String, String)>, PlotError> {
    let plain = || {
        let points = of(summary).filter(|(point, _)| point.n > 0);
        points.filter(|(_, served)| served.asked.besides().is_empty())
    };
    let mut hosts: Vec<String> = Vec::new();
    for (_, served) in plain() {
        let words = served.asked.hosts();
        if !hosts.contains(&words) {
            hosts.push(words);
        }
    }
    let mut figures = Vec::new();
    for (number, hosts) in (1..).zip(&hosts) {
        for (name, title, unit, value) in DRAWN {
            let mut lines: Vec<Line> = Vec::new();
            if name == "rate" {
                lines.push(published_line());
            }
            for (point, served) in plain().filter(|(_, served)| served.asked.hosts() == *hosts) {
                let (label, x) = (&served.asked.plane, f64::from(served.asked.clients));
                let at = (x, value(point, served));
                match lines.iter_mut().find(|line| line.label == *label) {
                    Some(line) => line.points.push(at),
                    None => lines.push(Line {
                        label: label.clone(),
                        is_ours: label == OURS,
                        points: vec![at],
                    }),
                }
            }
            if lines
                .iter()
                .all(|line| line.label == PUBLISHED || line.points.len() < 2)
            {
                continue;
            }
            let axis = |unit: &str| Axis {
                unit: unit.to_owned(),
            };
            let title = format!("{title}, client hosts: {hosts}");
            let (x, y) = (axis("clients"), axis(unit));
            let svg = over(&title, &x, &y, [Scale::Linear; 2], &lines)?;
            figures.push((format!("servers-{name}-{number}"), svg));
        }
    }
    Ok(figures)
}

fn published_line() -> Line {
    let points = published::points().map(|(clients, rate)| (clients, [rate; 3]));
    Line {
        label: PUBLISHED.to_owned(),
        is_ours: false,
        points: points.into(),
    }
}

#[cfg(test)]
mod tests;
