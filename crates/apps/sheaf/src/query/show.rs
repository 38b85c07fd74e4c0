//! Answers as a table, as comma-separated values, and as a plot on a terminal.

use super::Series;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Columns and rows of a plot.
const COLUMNS: usize = 72;
const ROWS: usize = 12;
/// Series of one plot; further ones are named as left out.
const PLOTTED_MAX: usize = 8;
/// Mark of each series.
const MARKS: [char; PLOTTED_MAX] = ['●', '○', '▲', '△', '■', '□', '◆', '◇'];

/// Name and labels in PromQL's notation.
fn name(series: &Series) -> String {
    let metric = series.metric.get("__name__").map_or("", String::as_str);
    let labels: Vec<String> = series
        .metric
        .iter()
        .filter(|(label, _)| *label != "__name__")
        .map(|(label, value)| format!("{label}={value:?}"))
        .collect();
    match (metric, labels.is_empty()) {
        ("", true) => "{}".to_owned(),
        (metric, true) => metric.to_owned(),
        (metric, false) => format!("{metric}{{{}}}", labels.join(", ")),
    }
}

/// One line a series: its last value, and with more than one their number, smallest and largest.
pub(super) fn table(series: &[Series]) -> String {
    if series.is_empty() {
        return "no series\n".to_owned();
    }
    let names: Vec<String> = series.iter().map(name).collect();
    let width = names
        .iter()
        .map(|name| name.chars().count())
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    for (series, name) in series.iter().zip(&names) {
        let values = series.values.all();
        let last = values.last().map_or("-", |(_, value)| value);
        let _ = write!(text, "{name:<width$}  {last}");
        if values.len() > 1 {
            let (least, most) = bounds(numbers(series));
            let _ = write!(text, "  ({} values, {least} to {most})", values.len());
        }
        text.push('\n');
    }
    text
}

/// Time in ms, value, then a column for each label of any series.
pub(super) fn csv(series: &[Series]) -> String {
    let labels: BTreeSet<&str> = series
        .iter()
        .flat_map(|series| series.metric.keys().map(String::as_str))
        .collect();
    let quoted = |text: &str| match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    };
    let mut text = "time_ms,value".to_owned();
    for label in &labels {
        let _ = write!(text, ",{}", quoted(label));
    }
    text.push('\n');
    for series in series {
        let row: String = labels
            .iter()
            .map(|label| series.metric.get(*label).map_or("", String::as_str))
            .map(|value| format!(",{}", quoted(value)))
            .collect();
        for (seconds, value) in series.values.all() {
            let _ = writeln!(text, "{},{value}{row}", (seconds * 1000.0).round() as i64);
        }
    }
    text
}

/// Pairs of time in s and value, without what is no number.
fn numbers(series: &Series) -> impl Iterator<Item = (f64, f64)> + Clone {
    let pairs = series.values.all().iter();
    let read = pairs.filter_map(|(at, value)| Some((*at, value.parse::<f64>().ok()?)));
    read.filter(|(_, value)| value.is_finite())
}

fn bounds(pairs: impl Iterator<Item = (f64, f64)>) -> (f64, f64) {
    pairs.fold(
        (f64::INFINITY, f64::NEG_INFINITY),
        |(least, most), (_, value)| (least.min(value), most.max(value)),
    )
}

/// Plot of characters with its scale at the left, and what each mark stands for beneath.
pub(super) fn plot(series: &[Series]) -> String {
    let shown = &series[..series.len().min(PLOTTED_MAX)];
    let all = || shown.iter().flat_map(numbers);
    let (mut least, mut most) = bounds(all());
    if least > most {
        return table(series);
    }
    if least == most {
        (least, most) = (least - 1.0, most + 1.0);
    }
    let (first, last) = all().fold(
        (f64::INFINITY, f64::NEG_INFINITY),
        |(first, last), (at, _)| (first.min(at), last.max(at)),
    );
    let mut grid = vec![vec![' '; COLUMNS]; ROWS];
    let place = |value: f64, from: f64, to: f64, cells: usize| {
        let share = if to > from {
            (value - from) / (to - from)
        } else {
            0.0
        };
        ((share * (cells - 1) as f64).round() as usize).min(cells - 1)
    };
    for (series, mark) in shown.iter().zip(MARKS) {
        for (at, value) in numbers(series) {
            let row = ROWS - 1 - place(value, least, most, ROWS);
            grid[row][place(at, first, last, COLUMNS)] = mark;
        }
    }
    let mut text = String::new();
    for (number, row) in grid.iter().enumerate() {
        let scale = match number {
            0 => format!("{most:.6}"),
            _ if number == ROWS - 1 => format!("{least:.6}"),
            _ => String::new(),
        };
        let cells: String = row.iter().collect();
        let _ = writeln!(text, "{scale:>16} │{}", cells.trim_end());
    }
    let _ = writeln!(text, "{:>16} └{}", "", "─".repeat(COLUMNS));
    let span = format!("{:.0} s", last - first);
    let _ = writeln!(
        text,
        "{:>16}  {:<width$}now",
        "",
        format!("-{span}"),
        width = COLUMNS - 3
    );
    for (series, mark) in shown.iter().zip(MARKS) {
        let _ = writeln!(text, "{:>16}  {mark} {}", "", name(series));
    }
    if series.len() > shown.len() {
        let _ = writeln!(
            text,
            "{:>16}  and {} more series, not drawn",
            "",
            series.len() - shown.len()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::Values;
    use super::*;

    fn series(labels: &[(&str, &str)], values: &[(f64, &str)]) -> Series {
        Series {
            metric: labels
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            values: Values::Many(
                values
                    .iter()
                    .map(|(at, value)| (*at, (*value).to_owned()))
                    .collect(),
            ),
        }
    }

    #[test]
    fn a_table_has_one_line_a_series() {
        let rows = [
            series(&[("__name__", "load"), ("host", "a")], &[(1.0, "0.5")]),
            series(&[("host", "bc")], &[(1.0, "2"), (2.0, "NaN"), (3.0, "1")]),
        ];
        let expected = "load{host=\"a\"}  0.5\n{host=\"bc\"}     1  (3 values, 1 to 2)\n";
        assert_eq!(table(&rows), expected);
        assert_eq!(table(&[]), "no series\n");
    }

    #[test]
    fn csv_has_a_column_for_each_label() {
        let rows = [
            series(&[("a", "x,y")], &[(1.5, "1")]),
            series(&[("b", "z")], &[(2.0, "+Inf")]),
        ];
        assert_eq!(
            csv(&rows),
            "time_ms,value,a,b\n1500,1,\"x,y\",\n2000,+Inf,,z\n"
        );
    }

    #[test]
    fn a_plot_has_its_bounds_and_its_series() {
        let rows = [series(&[("__name__", "load")], &[(0.0, "0"), (60.0, "10")])];
        let text = plot(&rows);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), ROWS + 3);
        assert!(
            lines[0].starts_with("       10.000000 │") && lines[0].ends_with('●'),
            "{text}"
        );
        assert!(lines[ROWS - 1].ends_with("0.000000 │●"), "{text}");
        assert!(text.contains("● load") && text.contains("-60 s"), "{text}");
        assert_eq!(plot(&[]), "no series\n");
    }
}
