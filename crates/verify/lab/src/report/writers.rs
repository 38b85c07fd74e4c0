//! Points of writers of files: as text, as parts of the pages, and as CSV.
//!
//! Rates stand at the scale of ATLAS, live ones multiplied by it. A row has a live and a simulated point that ask the
//! same.

use crate::results::{Results, kind};
use sheaf_figures::plot::Bar;
use sheaf_sim::summary::{Kind, Point, Summary, Writers};
use std::fmt::Write as _;

/// Origin of a rule, for the reader of a table.
fn origin(assignment: &str) -> &'static str {
    match assignment {
        "round-robin" | "window-and-stream" => "ATLAS",
        "open-rate" | "striped" => "Sheaf",
        _ if assignment.starts_with("joint-") => "ATLAS, stated",
        _ => "",
    }
}

/// Name of a rule, for the reader of a table.
fn rule(assignment: &str) -> String {
    match assignment {
        "joint-1" => "S1 alone".to_owned(),
        "joint-2" => "S1+S2 together".to_owned(),
        "joint-3" => "S1+S2+S3 together".to_owned(),
        "round-robin" => "round robin".to_owned(),
        "window-and-stream" => "window-and-stream (weighted)".to_owned(),
        other => other.to_owned(),
    }
}

/// Points of writers in a summary, and the points that they are.
pub(super) fn of(summary: &Summary) -> impl Iterator<Item = (&Point, &Writers)> {
    let points = summary.points.iter();
    points.filter_map(|point| point.writers.as_ref().map(|writers| (point, writers)))
}

/// A line a point; nothing if there is none.
pub(super) fn table(summary: &Summary) -> String {
    if of(summary).next().is_none() {
        return String::new();
    }
    let mut text = format!(
        "{:<36} {:<5} {:>7} {:<28} {:>3} {:>9} {:>17} {:>11} {:>8} {:>8} {:>9} {:>7}\n",
        "point",
        "by",
        "workers",
        "assignment",
        "n",
        "MB/s",
        "95 %",
        "file bound",
        "loss %",
        "fullest",
        "published",
        "TF loss %"
    );
    for (point, writers) in of(summary) {
        let _ = writeln!(
            text,
            "{:<36} {:<5} {:>7} {:<28} {:>3} {:>9.0} {:>17} {:>11.0} {:>8.1} {:>8.2} {:>9} {:>7.3}",
            point.label,
            kind(point.source),
            writers.workers,
            point.policy,
            point.n,
            writers.mb_per_s,
            interval(writers),
            writers.file_bound_mb_per_s,
            writers.loss_percent,
            writers.fullest,
            published(writers),
            point.loss_percent,
        );
    }
    text
}

fn interval(writers: &Writers) -> String {
    let [low, high] = writers.mb_per_s_ci95;
    format!("{low:.0} to {high:.0}")
}

fn published(writers: &Writers) -> String {
    let published = writers.published_mb_per_s;
    published.map_or("–".to_owned(), |mb_s| mb_s.to_string())
}

/// Figures of one set of points: the rate of each, with its interval and the published one.
pub(super) fn bars(results: &Results, source: Kind) -> Vec<Bar> {
    let points = results.summary.points.iter().enumerate();
    let of_source = points.filter(|(_, point)| point.source == source);
    of_source
        .filter_map(|(index, point)| {
            let writers = point.writers.as_ref()?;
            let runs = results.valid_runs(index);
            let rates = runs.filter_map(|run| run.writers.as_ref().map(|run| run.mb_per_s));
            Some(Bar {
                label: format!("{}, {}", point.label, point.policy),
                value: writers.mb_per_s,
                interval: Some(writers.mb_per_s_ci95),
                values: rates.collect(),
                published: writers.published_mb_per_s.map(f64::from),
            })
        })
        .collect()
}

/// Question to a single writer, and its live and its simulated point.
struct Pair<'a> {
    any: &'a Writers,
    live: Option<&'a Writers>,
    sim: Option<&'a Writers>,
}

/// Single writers, in the order of the file; a live and a simulated point of the same question are one.
fn pairs(summary: &Summary) -> Vec<Pair<'_>> {
    let mut pairs: Vec<Pair<'_>> = Vec::new();
    for (point, writers) in of(summary).filter(|(_, writers)| writers.count == 1) {
        let key = |it: &Writers| (it.input.clone(), it.workers, it.assignment.clone());
        let known = pairs.iter().position(|pair| {
            let place = match point.source {
                Kind::Live => pair.live,
                Kind::Sim => pair.sim,
            };
            place.is_none() && key(pair.any) == key(writers)
        });
        let at = known.unwrap_or_else(|| {
            pairs.push(Pair {
                any: writers,
                live: None,
                sim: None,
            });
            pairs.len() - 1
        });
        match point.source {
            Kind::Live => pairs[at].live = Some(writers),
            Kind::Sim => pairs[at].sim = Some(writers),
        }
    }
    pairs
}

const PAIR_HEAD: [&str; 12] = [
    "streams",
    "workers",
    "assignment",
    "rule of",
    "published",
    "live",
    "95 %",
    "simulated",
    "95 %",
    "bound of whole files",
    "loss % live",
    "loss % simulated",
];

fn pair_cells(pair: &Pair<'_>) -> [String; 12] {
    let of = |writers: Option<&Writers>, text: &dyn Fn(&Writers) -> String| {
        writers.map_or("–".to_owned(), text)
    };
    let rate = |writers: &Writers| format!("{:.0}", writers.mb_per_s);
    let loss = |writers: &Writers| format!("{:.1}", writers.loss_percent);
    // With drifting shares it differs by the blocks: that of the longer series stands for both.
    let bound = pair.sim.or(pair.live).unwrap_or(pair.any);
    [
        pair.any.input.clone(),
        pair.any.workers.to_string(),
        rule(&pair.any.assignment),
        origin(&pair.any.assignment).to_owned(),
        published(pair.any),
        of(pair.live, &rate),
        of(pair.live, &interval),
        of(pair.sim, &rate),
        of(pair.sim, &interval),
        format!("{:.0}", bound.file_bound_mb_per_s),
        of(pair.live, &loss),
        of(pair.sim, &loss),
    ]
}

const FLEET_HEAD: [&str; 12] = [
    "writers",
    "EPNs",
    "streams",
    "policy of the EPNs",
    "assignment",
    "MB/s",
    "95 %",
    "bound of whole files",
    "TFs lost, %",
    "fullest writer ÷ mean",
    "lag p50, ms",
    "lag p99, ms",
];

fn fleet_cells(point: &Point, writers: &Writers) -> [String; 12] {
    [
        writers.count.to_string(),
        point.epns.to_string(),
        writers.input.clone(),
        writers.policy.clone(),
        rule(&writers.assignment),
        format!("{:.0}", writers.mb_per_s),
        interval(writers),
        format!("{:.0}", writers.file_bound_mb_per_s),
        format!("{:.3}", point.loss_percent),
        format!("{:.3}", writers.fullest),
        format!("{:.0}", point.latency_us.p50 / 1e3),
        format!("{:.0}", point.latency_us.p99 / 1e3),
    ]
}

/// Head and rows of a table.
type Table = ([&'static str; 12], Vec<[String; 12]>);

/// The tables of a summary: single writers, then fleets.
fn tables(summary: &Summary) -> Vec<Table> {
    let single: Vec<_> = pairs(summary).iter().map(pair_cells).collect();
    let fleets = of(summary).filter(|(_, writers)| writers.count > 1);
    let fleets: Vec<_> = fleets
        .map(|(point, writers)| fleet_cells(point, writers))
        .collect();
    let all = [(PAIR_HEAD, single), (FLEET_HEAD, fleets)];
    all.into_iter()
        .filter(|(_, rows)| !rows.is_empty())
        .collect()
}

const NOTE: &str = "Rates in MB/s at the scale of ATLAS. The bound of whole files is one worker ÷ share of the \
fullest stream, or all workers together; loss is against it, below 0 beyond it. *Stated*: the streams named share a \
worker, as in the slides.";

/// The tables in Markdown; nothing if there are no points of writers.
pub(super) fn markdown(summary: &Summary) -> String {
    let mut text = String::new();
    let tables = tables(summary);
    if !tables.is_empty() {
        let _ = writeln!(text, "{NOTE}\n");
    }
    for (head, rows) in tables {
        let _ = writeln!(text, "| {} |", head.join(" | "));
        let _ = writeln!(text, "|{}", " --- |".repeat(head.len()));
        for row in rows {
            let _ = writeln!(text, "| {} |", row.join(" | "));
        }
        text.push('\n');
    }
    text
}

/// Whether a point asks a farm.
pub(super) fn is_farm(point: &&Point) -> bool {
    point.writers.is_none() && point.served.is_none()
}

/// The part of a page of HTML; nothing if there are no points of writers. `escape` makes text fit for it.
pub(super) fn html(summary: &Summary, escape: fn(&str) -> String) -> String {
    let tables = tables(summary);
    if tables.is_empty() {
        return String::new();
    }
    let mut page = format!("<h2>Writers</h2>\n<p>{}</p>\n", escape(NOTE));
    for (head, rows) in tables {
        let _ = writeln!(page, "<table><tr><th>{}</tr>", head.join("<th>"));
        for row in rows {
            let cells = row.map(|cell| escape(&cell));
            let _ = writeln!(page, "<tr><td>{}</tr>", cells.join("<td>"));
        }
        page.push_str("</table>\n");
    }
    page
}

/// The points of writers as CSV; nothing if there are none.
pub(super) fn csv(summary: &Summary) -> Option<String> {
    of(summary).next()?;
    let mut text = String::from(
        "input,writers,epns,policy,workers,assignment,source,n,mb_per_s,mb_per_s_low,mb_per_s_high,\
         file_bound_mb_per_s,loss_percent,fullest,published_mb_per_s,tfs,tfs_lost_percent,lag_ms_p50,lag_ms_p99\n",
    );
    for (point, writers) in of(summary) {
        let [low, high] = writers.mb_per_s_ci95;
        let published = writers.published_mb_per_s.map(|mb_s| mb_s.to_string());
        let cells = [
            writers.input.replace(',', ";"),
            writers.count.to_string(),
            point.epns.to_string(),
            writers.policy.clone(),
            writers.workers.to_string(),
            writers.assignment.clone(),
            kind(point.source).to_owned(),
            point.n.to_string(),
            format!("{:.3}", writers.mb_per_s),
            format!("{low:.3}"),
            format!("{high:.3}"),
            format!("{:.3}", writers.file_bound_mb_per_s),
            format!("{:.3}", writers.loss_percent),
            format!("{:.4}", writers.fullest),
            published.unwrap_or_default(),
            point.announced.to_string(),
            format!("{:.4}", point.loss_percent),
            format!("{:.3}", point.latency_us.p50 / 1e3),
            format!("{:.3}", point.latency_us.p99 / 1e3),
        ];
        let _ = writeln!(text, "{}", cells.join(","));
    }
    Some(text)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::results::tests::point;

    fn writers(assignment: &str, source: Kind, mb_per_s: f64) -> Point {
        let published = (assignment == "round-robin").then_some(865);
        Point {
            source,
            policy: assignment.to_owned(),
            writers: Some(Writers {
                input: "sfo-2016".to_owned(),
                mix: "sfo-2016".to_owned(),
                workers: 4,
                assignment: assignment.to_owned(),
                count: 1,
                policy: String::new(),
                mb_per_s,
                mb_per_s_ci95: [mb_per_s - 1.0, mb_per_s + 1.0],
                file_bound_mb_per_s: 878.6,
                loss_percent: 100.0 * (1.0 - mb_per_s / 878.6),
                fullest: 0.7,
                published_mb_per_s: published,
            }),
            ..point("writers", 0.0, None)
        }
    }

    pub(in crate::report) fn results() -> Results {
        let mut fleet = writers("open-rate", Kind::Sim, 15_000.0);
        let of_fleet = fleet.writers.as_mut().expect("it has writers");
        of_fleet.count = 20;
        of_fleet.policy = "power-of-two".to_owned();
        fleet.epns = 1750;
        let mut summary = Summary::new("sfo-2016");
        summary.points = vec![
            writers("round-robin", Kind::Live, 812.0),
            writers("striped", Kind::Live, 2440.0),
            writers("round-robin", Kind::Sim, 813.0),
            fleet,
        ];
        Results {
            summary,
            runs: Vec::new(),
            question: "Which assignment?".to_owned(),
            reference: "slides of 2017".to_owned(),
        }
    }

    #[test]
    fn a_page_has_published_live_and_simulated_rates_in_one_row() {
        let page = markdown(&results().summary);
        let rows = [
            "| sfo-2016 | 4 | round robin | ATLAS | 865 | 812 | 811 to 813 | 813 | 812 to 814 | 879 | 7.6 | 7.5 |",
            "| sfo-2016 | 4 | striped | Sheaf | – | 2440 | 2439 to 2441 | – | – | 879 | -177.7 | – |",
            "| 20 | 1750 | sfo-2016 | power-of-two | open-rate | 15000 | 14999 to 15001 | 879 | 0.000 | 0.700 \
             | 0 | 0 |",
        ];
        for row in rows {
            assert!(page.lines().any(|line| line == row), "{row}\n{page}");
        }
        assert!(page.starts_with(NOTE));
    }

    #[test]
    fn the_same_question_twice_is_two_rows() {
        let mut results = results();
        results.summary.points = vec![
            writers("striped", Kind::Live, 1.0),
            writers("striped", Kind::Live, 2.0),
        ];
        assert_eq!(pairs(&results.summary).len(), 2);
    }

    #[test]
    fn a_csv_row_has_as_many_cells_as_its_header_and_farms_have_none() {
        let csv = csv(&results().summary).expect("there are writers");
        let columns: Vec<usize> = csv.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(columns, [19; 5]);
        let mut farm = Summary::new("x");
        farm.points.push(point("sheaf", 0.0, None));
        assert_eq!(super::csv(&farm), None);
        assert_eq!(
            (table(&farm), markdown(&farm)),
            (String::new(), String::new())
        );
    }
}
