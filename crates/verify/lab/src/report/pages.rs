//! Results as a table of text, and as one page of HTML with its figures inside.

use super::{servers, verdict, waits, writers};
use crate::calibrate;
use crate::results::{Results, kind, name, name_among, offered_mbit_s};
use sheaf_figures::plot::{self, Bar, PlotError};
use sheaf_figures::stat;
use sheaf_sim::summary::{Kind, Point, Summary};
use sheaf_testbed::IoError;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Runs from which on the distribution of a point is drawn as a histogram.
const HISTOGRAM_FROM: usize = 8;

/// The points of a summary, a line each.
#[must_use]
pub fn table(summary: &Summary) -> String {
    let of_others = servers::table(summary) + &writers::table(summary);
    if !summary.points.is_empty() && !summary.points.iter().any(|point| writers::is_farm(&point)) {
        return of_others;
    }
    let names = summary.points.iter().filter(writers::is_farm);
    let names = names.map(|point| name_among(&summary.points, point).chars().count());
    let width = names.max().unwrap_or(0).max(14);
    let mut text = format!(
        "{:<width$} {:<5} {:>4} {:>5} {:>7} {:>8} {:>3} {:>4} {:>9} {:>8} {:>9} {:>6} {:>9} {:>9}  {}\n",
        "point",
        "by",
        "FLPs",
        "EPNs",
        "Hz",
        "bytes",
        "n",
        "rej.",
        "lost",
        "loss %",
        "published",
        "OOO",
        "Mbit/s",
        "p99 ms",
        "mode"
    );
    for point in summary.points.iter().filter(writers::is_farm) {
        let published = point
            .published_loss_percent
            .map_or("-".to_owned(), |loss| format!("{loss:.2}"));
        let _ = writeln!(
            text,
            "{:<width$} {:<5} {:>4} {:>5} {:>7} {:>8} {:>3} {:>4} {:>9.2} {:>8.3} {:>9} {:>6.1} {:>9.2} {:>9.2}  {}",
            name_among(&summary.points, point),
            kind(point.source),
            point.flps,
            point.epns,
            point.rate_hz,
            point.bytes,
            point.n,
            point.n_rejected,
            point.lost_mean,
            point.loss_percent,
            published,
            point.out_of_order,
            point.goodput_mbit_s,
            point.latency_us.p99 / 1000.0,
            point.mode
        );
    }
    text + &of_others
}

/// A figure: the name of its file, and the SVG.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Without an end.
    pub name: String,
    /// The figure.
    pub svg: String,
}

/// Reasons why a report is not written.
#[derive(Debug, Error)]
pub enum ReportError {
    /// A figure cannot be drawn.
    #[error(transparent)]
    Plot(#[from] PlotError),
    /// A file cannot be written.
    #[error(transparent)]
    Io(#[from] IoError),
}

/// Writes `report.html`, and a file a figure into `plots`, into `folder`; the path of the page.
///
/// # Errors
///
/// What drawing and writing give.
pub fn write(results: &Results, folder: &Path) -> Result<PathBuf, ReportError> {
    let figures = figures(results)?;
    let plots = folder.join("plots");
    std::fs::create_dir_all(&plots).map_err(IoError::of(format!("make {}", plots.display())))?;
    for figure in &figures {
        crate::output::write(&plots.join(format!("{}.svg", figure.name)), &figure.svg)?;
    }
    if let Some(csv) = writers::csv(&results.summary) {
        crate::output::write(&folder.join("writers.csv"), &csv)?;
    }
    if let Some(csv) = servers::csv(&results.summary) {
        crate::output::write(&folder.join("servers.csv"), &csv)?;
    }
    let page = folder.join("report.html");
    crate::output::write(&page, html(results, &figures))?;
    Ok(page)
}

/// The figures of `results`: loss, goodput and latency for each set of rules, and the spread where there are many runs;
/// of writers, their rates; of servers, rates and times over the number of clients.
///
/// # Errors
///
/// [`PlotError`] for values that are not finite.
pub fn figures(results: &Results) -> Result<Vec<Figure>, PlotError> {
    let points = &results.summary.points;
    let groups: BTreeSet<(&str, &str)> = points
        .iter()
        .filter(writers::is_farm)
        .map(|point| (kind(point.source), point.mode.as_str()))
        .collect();
    let mut figures = Vec::new();
    for source in [Kind::Live, Kind::Sim] {
        let bars = writers::bars(results, source);
        if !bars.is_empty() {
            let source = kind(source);
            figures.push(Figure {
                name: format!("writers-{source}"),
                svg: plot::bars(&format!("Rate of writers ({source})"), "MB/s", &bars)?,
            });
        }
    }
    let of_servers = servers::figures(&results.summary)?.into_iter();
    figures.extend(of_servers.map(|(name, svg)| Figure { name, svg }));
    let of_waits = waits::figures(results)?.into_iter();
    figures.extend(of_waits.map(|(name, svg)| Figure { name, svg }));
    for (number, (source, mode)) in groups.iter().enumerate() {
        let of_group = || {
            points
                .iter()
                .enumerate()
                .filter(|(_, point)| (kind(point.source), point.mode.as_str()) == (*source, *mode))
        };
        let bars = |value: &dyn Fn(usize, &Point) -> Bar| -> Vec<Bar> {
            of_group()
                .map(|(index, point)| value(index, point))
                .collect()
        };
        let file = |what: &str| format!("{what}-{}-{}", source, number + 1);
        let loss = |index: usize, point: &Point| Bar {
            label: name_among(points, point),
            value: point.loss_percent,
            interval: Some(point.loss_percent_ci95),
            values: results
                .valid_runs(index)
                .map(crate::experiment::result::RunResult::loss_percent)
                .collect(),
            published: point.published_loss_percent,
        };
        figures.push(Figure {
            name: file("loss"),
            svg: plot::bars(
                &format!("TFs lost, {mode} ({source})"),
                "% of TFs",
                &bars(&loss),
            )?,
        });
        let goodput = |index: usize, point: &Point| Bar {
            label: name_among(points, point),
            value: point.goodput_mbit_s,
            interval: None,
            values: results
                .valid_runs(index)
                .map(|run| run.goodput_mbit_s)
                .collect(),
            published: Some(offered_mbit_s(point)),
        };
        figures.push(Figure {
            name: file("goodput"),
            svg: plot::bars(
                &format!("Goodput, and what was offered, {mode} ({source})"),
                "Mbit/s",
                &bars(&goodput),
            )?,
        });
        let latency = |index: usize, point: &Point| Bar {
            label: name_among(points, point),
            value: point.latency_us.p99 / 1000.0,
            interval: Some([point.latency_us.p50 / 1000.0, point.latency_us.max / 1000.0]),
            values: results
                .valid_runs(index)
                .map(|run| run.latency_us.p99 / 1000.0)
                .collect(),
            published: None,
        };
        figures.push(Figure {
            name: file("latency"),
            svg: plot::bars(
                &format!("Latency: p99, from p50 to the slowest, {mode} ({source})"),
                "ms",
                &bars(&latency),
            )?,
        });
    }
    for (index, point) in points.iter().enumerate() {
        if !writers::is_farm(&point) {
            continue;
        }
        let losses: Vec<f64> = results
            .valid_runs(index)
            .map(crate::experiment::result::RunResult::loss_percent)
            .collect();
        let is_spread = losses.iter().any(|loss| *loss != losses[0]);
        if losses.len() >= HISTOGRAM_FROM && is_spread {
            let title = format!(
                "Point {}, {}: loss of {} runs",
                name_among(points, point),
                point.mode,
                losses.len()
            );
            figures.push(Figure {
                name: format!("spread-{:03}", index + 1),
                svg: plot::histogram(&title, "% of TFs", &losses, &[])?,
            });
        }
    }
    Ok(figures)
}

/// One page that needs nothing else.
#[must_use]
pub fn html(results: &Results, figures: &[Figure]) -> String {
    let summary = &results.summary;
    let mut page = String::from(HEAD);
    let _ = writeln!(
        page,
        "<title>{}</title></head><body>",
        text(&summary.experiment)
    );
    let _ = writeln!(page, "<h1>{}</h1>", text(&summary.experiment));
    if !results.question.is_empty() {
        let _ = writeln!(page, "<p class=question>{}</p>", text(&results.question));
    }
    page.push_str(&in_short(results));
    page.push_str(&servers::html(results, text));
    page.push_str(&writers::html(summary, text));
    page.push_str(&waits::html(results, text));
    if summary.points.iter().any(|point| writers::is_farm(&point)) {
        page.push_str(&points(results));
    }
    page.push_str("<h2>Figures</h2>\n<p>Dots are runs, whiskers 95 % intervals of the mean (latency: from the median to the slowest TF), red lines what was published (goodput: what was offered).</p>\n");
    for figure in figures {
        let _ = writeln!(
            page,
            "<figure id=\"{}\">{}</figure>",
            text(&figure.name),
            figure.svg
        );
    }
    page.push_str(&causes(summary));
    page.push_str(&calibration(results));
    page.push_str(&runs(results));
    page.push_str(&origin(results));
    page.push_str("</body></html>\n");
    page
}

fn in_short(results: &Results) -> String {
    let summary = &results.summary;
    let verdicts: Vec<_> = summary
        .points
        .iter()
        .filter(writers::is_farm)
        .map(|point| (point, verdict::of(point)))
        .collect();
    let count = |is_sheaf: bool, is_good: bool| {
        let fits = |(point, verdict): &&(&Point, verdict::Verdict)| {
            (point.mode == "sheaf") == is_sheaf && (verdict.is_good || !is_good)
        };
        verdicts.iter().filter(fits).count()
    };
    let mut text = String::from("<h2>In short</h2>\n<ul>\n");
    let (sheaf, legacy) = (count(true, false), count(false, false));
    if sheaf > 0 {
        let _ = writeln!(
            text,
            "<li>Sheaf lost nothing at {} of {sheaf} points.</li>",
            count(true, true)
        );
    }
    let published = verdicts
        .iter()
        .filter(|(point, _)| point.mode != "sheaf" && point.published_loss_percent.is_some());
    let good = published
        .clone()
        .filter(|(_, verdict)| verdict.is_good)
        .count();
    if legacy > 0 && published.clone().count() > 0 {
        let _ = writeln!(
            text,
            "<li>The prior rules reproduce {good} of {} published losses: the intervals of 95 % overlap.</li>",
            published.count()
        );
    }
    for sentence in servers::sentences(results) {
        let _ = writeln!(text, "<li>{}.</li>", self::text(&sentence));
    }
    if summary.provenance.contains_key("quick") {
        text.push_str("<li>Runs were cut short (--quick): what is late at the end or overflows later is not seen.</li>\n");
    }
    let rejected: u32 = summary.points.iter().map(|point| point.n_rejected).sum();
    let all: u32 = summary.points.iter().map(|point| point.n).sum::<u32>() + rejected;
    let _ = writeln!(
        text,
        "<li>{all} runs, {rejected} of them rejected by their own check.</li>\n</ul>"
    );
    text
}

fn points(results: &Results) -> String {
    let mut page = String::from(
        "<h2>Points</h2>\n<table><tr><th>point<th>by<th>rules<th>FLPs<th>EPNs<th>Hz<th>bytes<th>policy<th>n\
         <th>lost, mean<th>sd<th>loss %<th>95 % interval<th>published %<th>out of order<th>goodput<th>offered\
         <th>p50 ms<th>p99 ms<th>verdict</tr>\n",
    );
    for (index, point) in results.summary.points.iter().enumerate() {
        if !writers::is_farm(&point) {
            continue;
        }
        let verdict = verdict::of(point);
        let lost: Vec<f64> = results
            .valid_runs(index)
            .map(|run| run.lost as f64)
            .collect();
        let sd = if lost.len() > 1 {
            format!("{:.2}", stat::standard_deviation(&lost))
        } else {
            "-".to_owned()
        };
        let published = point
            .published_loss_percent
            .map_or("-".to_owned(), |loss| format!("{loss:.2}"));
        let [low, high] = point.loss_percent_ci95;
        let class = if verdict.is_good { "good" } else { "open" };
        let _ = writeln!(
            page,
            "<tr class={class}><td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{:.2}<td>{sd}<td>{:.3}\
             <td>{low:.3} – {high:.3}<td>{published}<td>{:.1}<td>{:.2}<td>{:.2}<td>{:.2}<td>{:.2}\
             <td class=words>{}</tr>",
            text(name(point)),
            kind(point.source),
            text(&point.mode.replace('+', " + ")),
            point.flps,
            point.epns,
            point.rate_hz,
            point.bytes,
            text(&point.policy),
            point.n,
            point.lost_mean,
            point.loss_percent,
            point.out_of_order,
            point.goodput_mbit_s,
            offered_mbit_s(point),
            point.latency_us.p50 / 1000.0,
            point.latency_us.p99 / 1000.0,
            text(&verdict.words)
        );
    }
    page.push_str("</table>\n");
    page
}

/// Loss by cause: a bar for each point that lost something.
fn causes(summary: &Summary) -> String {
    let lossy: Vec<&Point> = summary
        .points
        .iter()
        .filter(|point| point.lost_mean > 0.0)
        .collect();
    if lossy.is_empty() {
        return String::new();
    }
    let names: BTreeSet<&str> = lossy
        .iter()
        .flat_map(|point| point.lost_by.keys().map(String::as_str))
        .collect();
    let mut page = String::from("<h2>Loss by cause</h2>\n<table><tr><th>point<th>rules");
    for cause in &names {
        let _ = write!(page, "<th>{}", text(cause));
    }
    page.push_str("<th class=words>share</tr>\n");
    for point in lossy {
        let _ = write!(
            page,
            "<tr><td>{}<td>{}",
            text(name(point)),
            text(&point.mode.replace('+', " + "))
        );
        let mut share = String::new();
        for (index, cause) in names.iter().enumerate() {
            let lost = point.lost_by.get(*cause).copied().unwrap_or(0.0);
            let _ = write!(page, "<td>{lost:.2}");
            if lost > 0.0 {
                let width = 100.0 * lost / point.lost_mean;
                let _ = write!(
                    share,
                    "<i class=c{} style=\"width:{width:.1}%\" title=\"{}\"></i>",
                    index % 6,
                    text(cause)
                );
            }
        }
        let _ = writeln!(page, "<td class=words><div class=share>{share}</div></tr>");
    }
    page.push_str("</table>\n");
    page
}

/// How far the simulator is off, if points were both measured and simulated.
fn calibration(results: &Results) -> String {
    let Ok(calibration) = calibrate::of(results, Path::new("")) else {
        return String::new();
    };
    let mut page = format!(
        "<h2>The simulator beside the live farm</h2>\n<p>{}.</p>\n<table><tr><th>point<th>n<th>n simulated",
        text(&calibration.verdict)
    );
    let figures = calibration.overall.iter().map(|one| one.figure);
    for (name, unit, _) in figures.map(calibrate::shown) {
        let _ = write!(page, "<th>{name}, {unit}<th>simulated<th>error");
    }
    page.push_str("</tr>\n");
    for pair in &calibration.pairs {
        let _ = write!(
            page,
            "<tr><td>{}<td>{}<td>{}",
            text(&pair.point),
            pair.n_live,
            pair.n_simulated
        );
        for of in &calibration.overall {
            let Some(one) = pair.figure(of.figure) else {
                page.push_str("<td>-<td>-<td>-");
                continue;
            };
            let (.., factor) = calibrate::shown(one.figure);
            let _ = write!(
                page,
                "<td>{:.2}<td>{:.2}<td>{}",
                one.live * factor,
                one.simulated * factor,
                calibrate::told(one.figure, one.error)
            );
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table>\n");
    page
}

fn runs(results: &Results) -> String {
    if results.runs.is_empty() {
        return String::new();
    }
    let mut page = String::from(
        "<h2>Runs</h2>\n<details><summary>every run, in mean TFs and Mbit/s</summary>\n<table><tr><th>trial<th>run\
         <th>generation s<th>announced<th>lost<th>out of order<th>mixed target<th>goodput<th>p99 ms<th>seed\
         <th>remark</tr>\n",
    );
    for run in results.runs.iter().flatten() {
        let remark = run
            .rejected
            .iter()
            .map(|why| format!("rejected: {why}"))
            .chain(run.skipped.iter().map(|why| format!("not run: {why}")))
            .chain(run.problems.iter().cloned());
        let remark: Vec<String> = remark.collect();
        let _ = writeln!(
            page,
            "<tr><td>{}<td>{}.{}<td>{:.3}<td>{}<td>{}<td>{}<td>{}<td>{:.2}<td>{:.2}<td>{}<td class=words>{}</tr>",
            text(&run.trial),
            run.iteration,
            run.attempt,
            run.generation_s,
            run.announced,
            run.lost,
            run.out_of_order,
            run.mixed_target,
            run.goodput_mbit_s,
            run.latency_us.p99 / 1000.0,
            run.seed,
            text(&remark.join("; "))
        );
    }
    page.push_str("</table></details>\n");
    page
}

fn origin(results: &Results) -> String {
    let mut page = String::from("<h2>Where this comes from</h2>\n<table class=origin>\n");
    if !results.reference.is_empty() {
        let _ = writeln!(
            page,
            "<tr><th>published values<td class=words>{}</tr>",
            text(&results.reference)
        );
    }
    for (key, value) in &results.summary.provenance {
        let _ = writeln!(
            page,
            "<tr><th>{}<td class=words>{}</tr>",
            text(key),
            text(value)
        );
    }
    page.push_str("</table>\n");
    page
}

/// `text` as it may stand in a page.
fn text(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

const HEAD: &str = "<!doctype html>
<html lang=en><head><meta charset=utf-8><meta name=viewport content=\"width=device-width, initial-scale=1\">
<style>
body { font: 15px/1.45 system-ui, sans-serif; color: #222; margin: 2em auto; max-width: 1500px; padding: 0 1.5em }
h1 { margin-bottom: 0 } h2 { margin-top: 1.6em } .question { font-size: 1.15em; color: #444 }
table { border-collapse: collapse; font-size: 13px } th { text-align: left; font-weight: 600; vertical-align: bottom }
td, th { padding: 3px 8px; border-bottom: 1px solid #ddd } td { text-align: right; white-space: nowrap }
td:first-child, td:nth-child(2), td:nth-child(3), td.words { text-align: left }
td.words { white-space: normal; min-width: 18em }
td:nth-child(3) { white-space: normal; min-width: 14em } tr.good td:first-child { border-left: 5px solid #4a9a5a }
tr.open td:first-child { border-left: 5px solid #c44e24 } .origin td { text-align: left }
figure { display: inline-block; margin: 0 1em 1em 0; border: 1px solid #e4e4e4 }
figure svg { display: block; max-width: 100% }
.share { display: flex; height: 14px; width: 16em; background: #f2f2f2 } .share i { display: block; height: 14px }
.c0 { background: #1f629e } .c1 { background: #c44e24 } .c2 { background: #4a9a5a } .c3 { background: #8a63b0 }
.c4 { background: #b8912a } .c5 { background: #777 }
</style>
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::point;

    fn results() -> Results {
        let mut summary = Summary::new("net<work>");
        summary.points = vec![
            point("sheaf", 0.0, Some(0.7)),
            point("counting-builder+cutoff-20ms", 43.0, Some(0.7)),
        ];
        summary
            .provenance
            .insert("commit".to_owned(), "abc".to_owned());
        Results {
            summary,
            runs: Vec::new(),
            question: "What & why?".to_owned(),
            reference: "table 13".to_owned(),
        }
    }

    #[test]
    fn a_page_needs_nothing_else_and_tells_ours_beside_what_was_published() {
        let results = results();
        let page = html(&results, &figures(&results).unwrap());
        for part in [
            "<title>net&lt;work&gt;</title>",
            "What &amp; why?",
            "Sheaf lost nothing at 1 of 1 points",
            "reproduce 1 of 1 published losses",
            "nothing lost, nothing out of order, where 0.70 % were published",
            "reproduces the published 42",
            "late-at-run-end",
            "<th>commit<td class=words>abc",
            "table 13",
            "<svg",
        ] {
            assert!(page.contains(part), "{part}");
        }
        let outside = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!outside.contains("http"), "nothing is fetched");
    }

    #[test]
    fn a_folder_has_the_page_and_a_file_a_figure_also_of_a_summary_alone() {
        let folder = tempfile::tempdir().unwrap();
        let written = results();
        std::fs::write(
            folder.path().join("summary.json"),
            written.summary.to_json(),
        )
        .unwrap();
        let read = Results::read(folder.path()).unwrap();
        assert_eq!(read.summary, written.summary);
        let page = write(&read, folder.path()).unwrap();
        assert!(page.is_file());
        assert_eq!(
            std::fs::read_dir(folder.path().join("plots"))
                .unwrap()
                .count(),
            6
        );
        let error = Results::read(&folder.path().join("plots"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("expected a folder of results"), "{error}");
    }

    #[test]
    fn the_table_has_a_line_a_point() {
        let text = table(&results().summary);
        assert_eq!(text.lines().count(), 3);
        assert!(text.lines().nth(2).unwrap().contains("43.00"), "{text}");
    }
}
