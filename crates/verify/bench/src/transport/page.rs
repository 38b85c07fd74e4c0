//! The report as figures in the style of the founding poster, over the size of a block, and as one page with them.

use super::options::Side;
use super::report::{Report, Row};
use super::table;
use sheaf_figures::plot::PlotError;
use sheaf_figures::plot::lines::{self, Axis, Line};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// A figure: the name of its file, and the SVG.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Name of the file, without `.svg`.
    pub name: String,
    /// Content of the file.
    pub svg: String,
}

/// Name of the file, title, unit, and the value of a row.
type What = (
    &'static str,
    &'static str,
    &'static str,
    fn(&Row) -> Option<[f64; 3]>,
);

const WHATS: [What; 5] = [
    ("throughput", "Throughput", "MB/s", |row| {
        let moved = moves_bytes(row).then_some(&row.mb_per_s)?;
        Some([moved.median?, moved.min?, moved.max?])
    }),
    (
        "ratio",
        "Throughput ÷ plain TCP of the same round",
        "ratio",
        |row| {
            let ratio = moves_bytes(row).then_some(&row.ratio)?;
            Some([ratio.median?, ratio.min?, ratio.max?])
        },
    ),
    ("messages", "Messages", "million/s", |row| {
        let millions = row.msgs_per_s / 1e6;
        (millions > 0.0).then_some([millions; 3])
    }),
    ("cpu", "CPU time of both sides", "CPU s/GB", |row| {
        (row.cpu_s_per_gb > 0.0).then_some([row.cpu_s_per_gb; 3])
    }),
    ("memory", "Peak memory of both sides", "MB", |row| {
        let mb = row.rss_bytes_max as f64 / 1e6;
        (mb > 0.0).then_some([mb; 3])
    }),
];

/// Whether its bytes go anywhere: a million hand-overs a second of 100 MB each would leave no line of the others to
/// see.
fn moves_bytes(row: &Row) -> bool {
    row.transport != "sheaf-shm"
}

impl Report {
    /// Draws all figures.
    ///
    /// # Errors
    ///
    /// [`PlotError`] if a value is not finite.
    pub fn figures(&self) -> Result<Vec<Figure>, PlotError> {
        figures(self)
    }

    /// Returns one page with rows and `figures` that needs nothing else.
    #[must_use]
    pub fn html(&self, figures: &[Figure]) -> String {
        html(self, figures)
    }
}

/// Draws throughput, ratio, messages, CPU and memory over the size of a message, for each shape, path, queue and side
/// that binds.
///
/// # Errors
///
/// If a value is not finite.
fn figures(report: &Report) -> Result<Vec<Figure>, PlotError> {
    let groups: BTreeSet<String> = report.rows.iter().map(group).collect();
    let mut figures = Vec::new();
    for of in &groups {
        let rows = || {
            report
                .rows
                .iter()
                .filter(|row| group(row) == *of && row.skipped.is_none())
        };
        let mut names: Vec<&str> = Vec::new();
        for row in rows() {
            if !names.contains(&row.transport) {
                names.push(row.transport);
            }
        }
        for (file, title, unit, value) in WHATS {
            let lines: Vec<Line> = names
                .iter()
                .map(|name| Line {
                    label: (*name).to_owned(),
                    is_ours: name.starts_with("sheaf"),
                    points: rows()
                        .filter(|row| row.transport == *name)
                        .filter_map(|row| Some((row.bytes as f64, value(row)?)))
                        .collect(),
                })
                .collect();
            if lines.iter().all(|line| line.points.is_empty()) {
                continue;
            }
            let axis = |what: &str| Axis {
                unit: what.to_owned(),
            };
            let svg = lines::over_sizes(
                &format!("{title}, {of}"),
                &axis("bytes of a message"),
                &axis(unit),
                &lines,
            )?;
            let name = format!("{file}-{}", of.replace([' ', ','], "-").replace("--", "-"));
            figures.push(Figure { name, svg });
        }
    }
    Ok(figures)
}

/// Rows that belong into one figure.
fn group(row: &Row) -> String {
    let binds = match row.binds {
        Side::Sender => "sender binds",
        Side::Receiver => "receiver binds",
    };
    format!("{} {}, {binds}", row.path, row.shape)
}

/// One page that needs nothing else.
fn html(report: &Report, figures: &[Figure]) -> String {
    let head = &report.head;
    let machine = &head.machine;
    let mut page = String::from(HEAD);
    let _ = writeln!(
        page,
        "<h1>The transport beside other libraries</h1>\n<p>{} × {}, Linux {}; windows of {} s, medians over \
         undisturbed runs. Plain TCP ran first in each round; a ratio is that of two runs of one round.</p>\n\
         <p><code>{}</code></p>",
        machine.cores,
        text(&machine.cpu),
        text(&machine.kernel),
        head.seconds,
        text(&head.command.join(" "))
    );
    for figure in figures {
        let _ = writeln!(
            page,
            "<figure id=\"{}\">{}</figure>",
            text(&figure.name),
            figure.svg
        );
    }
    page.push_str(
        "<h2>Rows</h2>\n<table><tr><th>path<th>shape<th>bytes<th>queue<th>transport<th>library<th>MB/s<th>msgs/s\
         <th>CPU s/GB<th>RSS MB<th>Jain<th>p50 µs<th>p99 µs<th>of plain<th>n<th>congestion<th>trusted</tr>\n",
    );
    for row in &report.rows {
        page.push_str(&html_row(row));
    }
    page.push_str("</table>\n");
    for one in &report.skipped {
        let _ = writeln!(page, "<p>Skipped: {}</p>", text(one));
    }
    page.push_str("</body></html>\n");
    page
}

fn html_row(row: &Row) -> String {
    let start = format!(
        "<tr><td>{}<td>{}<td>{}<td>{}<td>{}<td>{}",
        row.path,
        row.shape,
        row.bytes,
        row.queue,
        row.transport,
        text(&row.library)
    );
    if let Some(why) = &row.skipped {
        return format!(
            "{start}<td colspan=11 class=words>skipped: {}</tr>\n",
            text(why)
        );
    }
    let latency = |of: fn(&peer_harness::Latency) -> f64| {
        row.latency_us
            .as_ref()
            .map_or("-".to_owned(), |latency| format!("{:.0}", of(latency)))
    };
    let trusted = if row.trusted {
        "yes".to_owned()
    } else {
        text(&row.doubts.join("; "))
    };
    format!(
        "{start}<td>{}<td>{:.0}<td>{:.3}<td>{:.0}<td>{:.4}<td>{}<td>{}<td>{}<td>{}<td>{}<td class=words>{trusted}</tr>\n",
        table::spread(&row.mb_per_s, 0),
        row.msgs_per_s,
        row.cpu_s_per_gb,
        row.rss_bytes_max as f64 / 1e6,
        row.jain,
        latency(|one| one.p50),
        latency(|one| one.p99),
        table::spread(&row.ratio, 3),
        row.ratio.n,
        text(&row.congestion)
    )
}

/// `words` as text of HTML.
fn text(words: &str) -> String {
    words
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('"', "&quot;")
}

const HEAD: &str = "<!doctype html>
<html lang=en><head><meta charset=utf-8><title>sheaf bench transport</title>
<style>
body { font: 15px/1.45 system-ui, sans-serif; color: #222; margin: 2em auto; max-width: 1600px; padding: 0 1.5em }
table { border-collapse: collapse; font-size: 13px } th { text-align: left } td { text-align: right }
td, th { padding: 3px 8px; border-bottom: 1px solid #ddd; white-space: nowrap }
td.words { text-align: left; white-space: normal }
figure { display: inline-block; margin: 0 1em 1em 0; border: 1px solid #e4e4e4 }
figure svg { display: block; max-width: 100% }
</style></head><body>
";

#[cfg(test)]
mod tests {
    use super::super::report::tests::{report, row, runs};
    use super::*;

    #[test]
    fn a_page_has_its_figures_inside_and_no_markup_of_others() {
        let rows = vec![row(&runs(7), "cubic", None), row(&[], "cubic", Some("<b>"))];
        let report = report(rows);
        let figures = figures(&report).unwrap();
        let names: Vec<&str> = figures.iter().map(|figure| figure.name.as_str()).collect();
        assert_eq!(
            names,
            WHATS.map(|(file, ..)| format!("{file}-loopback-240-1-receiver-binds"))
        );
        let page = html(&report, &figures);
        assert!(page.contains("<svg") && page.contains("&lt;b>") && !page.contains("<b>"));
        assert!(!page.contains("http://") || page.contains("http://www.w3.org/2000/svg"));
    }
}
