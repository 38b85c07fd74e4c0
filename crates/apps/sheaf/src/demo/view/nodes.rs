//! Table of nodes: as many columns and rows as there is room for, none of them cut.

use super::look::{Look, is_well};
use crate::demo::watch::Row;
use ratatui::layout::Constraint;
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row as TableRow, Table};
use sheaf_node::status::Quantiles;
use sheaf_protocol::Role;

/// Columns of the table and their widths, the most important first.
const COLUMNS: [(&str, u16); 15] = [
    ("node", 9),
    ("state", 9),
    ("(S)TF/s", 8),
    ("MB/s", 8),
    ("buffered", 10),
    ("p50", 10),
    ("p99", 10),
    ("  share", 26),
    ("longest", 10),
    ("(S)TFs held", 11),
    ("lag TFs", 9),
    ("  counter", 11),
    ("refused", 9),
    ("in sink", 10),
    ("weight", 6),
];
/// The column of bars.
const BAR: usize = 7;
/// Columns of numbers stand to the right.
const NUMBERS: [usize; 11] = [2, 3, 4, 5, 6, 8, 9, 10, 12, 13, 14];

/// Makes the table of `rows`, which are as the look selects them.
pub(super) fn table(rows: &[Row], look: &Look, width: u16, lines: u16) -> Table<'static> {
    let shown = columns(width);
    let bar_width = bar_width(width);
    let titles = COLUMNS.iter().enumerate().map(|(index, (name, _))| {
        if NUMBERS.contains(&index) {
            right((*name).to_owned())
        } else {
            Cell::new(*name)
        }
    });
    let (seen, hidden) = most_telling(rows, usize::from(lines).saturating_sub(1));
    let more =
        (hidden > 0).then(|| TableRow::new(["…".to_owned(), format!("{hidden} more")]).dim());
    let lines = seen.into_iter().map(|row| {
        let cells = cells(row, rows, bar_width);
        let line = TableRow::new(cells.into_iter().take(shown));
        if look.chosen() == Some(row.node) {
            line.add_modifier(Modifier::REVERSED)
        } else {
            line
        }
    });
    let widths = (0..shown).map(|index| match index {
        BAR => bar_width,
        _ => COLUMNS[index].1,
    });
    Table::new(lines.chain(more), widths.map(Constraint::Length))
        .header(TableRow::new(titles.take(shown)).dim())
}

fn cells(row: &Row, rows: &[Row], bar_width: u16) -> [Cell<'static>; COLUMNS.len()] {
    let quantile = |pick: fn(&Quantiles) -> f64| {
        let found = row.latency_us.as_ref();
        found.map_or_else(String::new, |found| {
            format!("{} ms", fit(pick(found) / 1000.0, 7))
        })
    };
    let count = |count: Option<u64>| count.map_or_else(String::new, |count| fit_count(count, 9));
    [
        Cell::new(row.node.to_string()),
        Cell::new(row.state.clone()).style(state_style(&row.state)),
        right(fit(row.items_per_s, 8)),
        right(fit(row.mb_per_s, 8)),
        right(megabytes(row.buffered_bytes)),
        right(quantile(|found| found.p50)),
        right(quantile(|found| found.p99)),
        Cell::new(bar(row.mb_per_s, busiest(rows, row.node.role), bar_width)).style(Color::Cyan),
        right(quantile(|found| found.max)),
        right(count(row.held_items)),
        right(count(row.lag_tfs)),
        counter(&row.counter),
        right(count(row.refused_stfs)),
        right(row.sink_bytes.map_or_else(String::new, megabytes)),
        right(row.weight.map_or_else(String::new, |weight| fit(weight, 6))),
    ]
}

/// Returns the rows that fit `lines`, in their order, and the number left out: of those that are up the last ones,
/// and if that does not do, of the others.
pub(super) fn most_telling(rows: &[Row], lines: usize) -> (Vec<&Row>, usize) {
    if rows.len() <= lines {
        return (rows.iter().collect(), 0);
    }
    // One line tells how many more there are.
    let shown = lines.saturating_sub(1);
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|index| is_well(&rows[*index].state));
    order.truncate(shown);
    order.sort_unstable();
    let seen = order.into_iter().map(|index| &rows[index]).collect();
    (seen, rows.len() - shown)
}

/// How many of [`COLUMNS`] fit, with a space between two.
pub(super) fn columns(width: u16) -> usize {
    let mut needed = 0;
    let fits = |(_, column): &&(&str, u16)| {
        needed += column + u16::from(needed > 0);
        needed <= width
    };
    COLUMNS.iter().take_while(fits).count()
}

/// The most MB/s of a node of this role: what a full bar stands for.
fn busiest(rows: &[Row], role: Role) -> f64 {
    let same = rows.iter().filter(|row| row.node.role == role);
    same.map(|row| row.mb_per_s).fold(0.0, f64::max)
}

/// Returns the width of the column of bars: with all other columns on the screen it takes what they leave.
fn bar_width(width: u16) -> u16 {
    let usual = COLUMNS[BAR].1;
    if columns(width) < COLUMNS.len() {
        return usual;
    }
    let all: u16 = COLUMNS.iter().map(|(_, column)| column + 1).sum();
    usual + width.saturating_sub(all - 1)
}

/// A bar of at most `width` characters with its indent, to half a character.
pub(super) fn bar(value: f64, full: f64, width: u16) -> String {
    if full <= 0.0 {
        return String::new();
    }
    let (indent, widest) = ("  ", width.saturating_sub(2));
    let halves = (value / full * f64::from(widest) * 2.0).round() as usize;
    indent.to_owned() + &"━".repeat(halves / 2) + ["", "╸"][halves % 2]
}

/// Returns a number in at most `width` characters: with one digit behind the point, else without, else by a power of
/// thousand.
pub(super) fn fit(value: f64, width: usize) -> String {
    let mut value = value;
    for unit in ["", "k", "M", "G", "T", "P", "E"] {
        for text in [format!("{value:.1}{unit}"), format!("{value:.0}{unit}")] {
            if text.len() <= width {
                return text;
            }
        }
        value /= 1000.0;
    }
    "∞".to_owned()
}

fn megabytes(bytes: u64) -> String {
    format!("{} MB", fit(bytes as f64 / 1e6, 7))
}

/// The counter of a source; one that is not in step with the run needs a look.
fn counter(text: &str) -> Cell<'static> {
    let style = match text {
        "behind" | "ahead" => Style::new().yellow(),
        _ => Style::new(),
    };
    Cell::new(format!("  {text}")).style(style)
}

fn fit_count(count: u64, width: usize) -> String {
    let text = count.to_string();
    if text.len() <= width {
        text
    } else {
        fit(count as f64, width)
    }
}

fn right(text: String) -> Cell<'static> {
    Cell::new(Line::from(text).right_aligned())
}

fn state_style(state: &str) -> Style {
    match state {
        _ if is_well(state) => Style::new().green(),
        "silent" | "paused" | "leaving" | "disabled" | "ended" => Style::new().yellow(),
        "left" => Style::new().dim(),
        _ => Style::new().red(),
    }
}
