//! The demo on a terminal: a line a node, the ledger, what has happened.

use super::watch::{Happening, Row, Watch};
use anyhow::Context as _;
use ratatui::DefaultTerminal;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Paragraph, Row as TableRow, Table, Wrap};
use sheaf_protocol::Role;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the thread that reads keys looks whether it should end.
const KEY_POLL: Duration = Duration::from_millis(50);
/// Lines for what has happened, if there is room.
const HAPPENINGS: u16 = 8;
/// Columns of the table of nodes and their widths, the most important first.
const COLUMNS: [(&str, u16); 8] = [
    ("node", 8),
    ("state", 9),
    ("(S)TF/s", 8),
    ("MB/s", 8),
    ("buffered", 10),
    ("p50", 10),
    ("p99", 10),
    ("  share", 26),
];
/// The column of bars; those between the state and it are numbers.
const BAR: usize = 7;

/// A terminal in its alternate screen. It is as it was before when this is dropped, and after a panic.
pub(crate) struct View {
    terminal: DefaultTerminal,
    title: String,
    is_over: Arc<AtomicBool>,
    keys: Option<JoinHandle<()>>,
}

impl View {
    /// Takes the terminal. `on_quit` is called at q or Ctrl-C, which no longer makes a signal.
    ///
    /// # Errors
    ///
    /// What the terminal gives.
    pub(crate) fn new(title: &str, on_quit: impl Fn() + Send + 'static) -> anyhow::Result<Self> {
        // Its panic hook restores the terminal before the message is printed.
        let terminal = ratatui::try_init().context("cannot use the terminal")?;
        let is_over = Arc::new(AtomicBool::new(false));
        let seen = is_over.clone();
        let keys = std::thread::Builder::new()
            .name("keys".to_owned())
            .spawn(move || {
                while !seen.load(Ordering::Relaxed) {
                    if event::poll(KEY_POLL).unwrap_or(false)
                        && event::read().is_ok_and(|found| is_quit(&found))
                    {
                        on_quit();
                    }
                }
            })
            .inspect_err(|_| ratatui::restore())?;
        Ok(Self {
            terminal,
            title: title.to_owned(),
            is_over,
            keys: Some(keys),
        })
    }

    /// Draws the farm as it is.
    ///
    /// # Errors
    ///
    /// What the terminal gives.
    pub(crate) fn show(&mut self, watch: &Watch) -> io::Result<()> {
        self.terminal
            .draw(|frame| draw(frame, &self.title, watch))?;
        Ok(())
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(keys) = self.keys.take() {
            // A thread that has panicked has said so.
            let _ = keys.join();
        }
        ratatui::restore();
    }
}

fn is_quit(event: &Event) -> bool {
    let Event::Key(key) = event else { return false };
    let is_control_c =
        key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press && (key.code == KeyCode::Char('q') || is_control_c)
}

fn draw(frame: &mut Frame<'_>, title: &str, watch: &Watch) {
    let rows = watch.rows();
    let (width, height) = (frame.area().width, frame.area().height);
    let accounting_text = accounting_text(watch);
    let accounting = Paragraph::new(accounting_text.clone()).wrap(Wrap { trim: true });
    let accounting_lines = lines_of(
        accounting_text
            .iter()
            .map(|line| wrapped_lines(&line.to_string(), width))
            .sum(),
    );
    let table_lines = lines_of(rows.len() + 1);
    // Where there is little room, the air goes first, then the happenings, then the last nodes.
    let airy = table_lines + accounting_lines + 2 + HAPPENINGS;
    let air = u16::from(height >= airy.saturating_add(3));
    let table_lines = table_lines.min(height.saturating_sub(accounting_lines + 2 + 3 * air));
    let [top, head, _, table, _, accounting_area, _, happenings] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(air),
        Constraint::Length(table_lines),
        Constraint::Length(air),
        Constraint::Length(accounting_lines),
        Constraint::Length(air),
        Constraint::Fill(1),
    ])
    .areas(frame.area());
    frame.render_widget(Line::from(title).bold(), top);
    frame.render_widget(head_line(watch), head);
    frame.render_widget(node_table(&rows, width, table_lines), table);
    frame.render_widget(accounting, accounting_area);
    let shown = usize::from(happenings.height);
    let first = watch.happened().saturating_sub(shown);
    let lines = watch.happenings_from(first).map(happening_line);
    frame.render_widget(Paragraph::new(Text::from_iter(lines)), happenings);
}

/// How many lines of `width` characters the words of `text` take.
fn wrapped_lines(text: &str, width: u16) -> usize {
    let (mut lines, mut used) = (1, 0);
    for word in text.split(' ').map(|word| word.chars().count()) {
        if used > 0 && used + 1 + word > usize::from(width) {
            (lines, used) = (lines + 1, 0);
        }
        used += word + usize::from(used > 0);
    }
    lines
}

fn lines_of(count: usize) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX / 4)
}

fn head_line(watch: &Watch) -> Line<'static> {
    let status = watch.status();
    if !watch.has_status() {
        return Line::from("starting");
    }
    let total = status.latency_us.get("total").copied().unwrap_or_default();
    let mut text = format!(
        "{:.1} s  {}  {}  {:.1} TF/s  {:.1} MB/s  latency p50 {} p99 {}  waiting for room {}{}",
        status.duration_s,
        status.phase,
        status.policy,
        watch.tfs_per_s(),
        watch.mb_per_s(),
        ms(total.p50),
        ms(total.p99),
        status.queued,
        watch.security(),
    );
    if let Some(offices) = watch.offices() {
        text = format!("{offices}  {text}");
    }
    Line::styled(text, Color::Cyan)
}

fn ms(us: f64) -> String {
    format!("{:.1} ms", us / 1000.0)
}

/// The law of the books, and what the farm did to keep it.
fn accounting_text(watch: &Watch) -> Text<'static> {
    let accounting = watch.status().accounting;
    let color = if accounting.balanced {
        Color::Green
    } else {
        Color::Red
    };
    let mut efforts = format!(
        "reassigned {}  abandoned {}  duplicates refused {}",
        accounting.reassigned,
        accounting.abandoned,
        watch.duplicates_refused()
    );
    for (reason, count) in &accounting.dropped {
        efforts += &format!("  {reason} {count}");
    }
    Text::from(vec![
        Line::styled(watch.ledger(), Style::new().fg(color).bold()),
        Line::from(efforts),
    ])
}

fn happening_line(happening: &Happening) -> Line<'static> {
    let at = Span::from(format!("{:7.1} s  ", happening.at_s)).dim();
    Line::from(vec![at, Span::from(happening.text.clone())])
}

/// A line a node; in a narrow terminal the last columns are left out, in a low one nodes that are well.
fn node_table(rows: &[Row], width: u16, lines: u16) -> Table<'static> {
    let shown = columns(width);
    let titles = COLUMNS.iter().enumerate().map(|(index, (name, _))| {
        if (2..BAR).contains(&index) {
            right((*name).to_owned())
        } else {
            Cell::new(*name)
        }
    });
    let (seen, hidden) = most_telling(rows, usize::from(lines).saturating_sub(1));
    let more =
        (hidden > 0).then(|| TableRow::new(["…".to_owned(), format!("{hidden} more")]).dim());
    let lines = seen.into_iter().map(|row| {
        let quantile = |pick: fn(&sheaf_node::status::Quantiles) -> f64| {
            row.latency_us
                .as_ref()
                .map_or_else(String::new, |found| ms(pick(found)))
        };
        let cells = [
            Cell::new(row.node.to_string()),
            Cell::new(row.state.clone()).style(state_style(&row.state)),
            right(format!("{:.1}", row.items_per_s)),
            right(format!("{:.1}", row.mb_per_s)),
            right(format!("{:.1} MB", row.buffered_bytes as f64 / 1e6)),
            right(quantile(|found| found.p50)),
            right(quantile(|found| found.p99)),
            Cell::new(bar(row.mb_per_s, busiest(rows, row.node.role))).style(Color::Cyan),
        ];
        TableRow::new(cells.into_iter().take(shown))
    });
    let widths = COLUMNS.iter().take(shown);
    Table::new(
        lines.chain(more),
        widths.map(|(_, width)| Constraint::Length(*width)),
    )
    .header(TableRow::new(titles.take(shown)).dim())
}

/// Returns the rows that fit `lines`, in their order, and the number left out: of those that are up the last ones,
/// and if that does not do, of the others.
fn most_telling(rows: &[Row], lines: usize) -> (Vec<&Row>, usize) {
    if rows.len() <= lines {
        return (rows.iter().collect(), 0);
    }
    // One line tells how many more there are.
    let shown = lines.saturating_sub(1);
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|index| matches!(rows[*index].state.as_str(), "up" | "leads" | "standby"));
    order.truncate(shown);
    order.sort_unstable();
    let seen = order.into_iter().map(|index| &rows[index]).collect();
    (seen, rows.len() - shown)
}

/// How many of [`COLUMNS`] fit, with a space between two.
fn columns(width: u16) -> usize {
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

/// A bar of at most the width of its column, to half a character.
fn bar(value: f64, full: f64) -> String {
    if full <= 0.0 {
        return String::new();
    }
    let (indent, widest) = ("  ", COLUMNS[BAR].1 - 2);
    let halves = (value / full * f64::from(widest) * 2.0).round() as usize;
    indent.to_owned() + &"━".repeat(halves / 2) + ["", "╸"][halves % 2]
}

fn right(text: String) -> Cell<'static> {
    Cell::new(Line::from(text).right_aligned())
}

fn state_style(state: &str) -> Style {
    match state {
        "up" | "leads" | "standby" => Style::new().green(),
        "silent" | "paused" | "leaving" | "disabled" | "ended" => Style::new().yellow(),
        _ => Style::new().red(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::watch::tests::watch;
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn drawn(width: u16, height: u16, watch: &Watch) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal
            .draw(|frame| draw(frame, "what this is; q ends it", watch))
            .unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| {
            (0..width)
                .map(|x| buffer[(x, y)].symbol())
                .collect::<String>()
        };
        (0..height).map(|y| line(y).trim_end().to_owned()).collect()
    }

    #[test]
    fn a_farm_is_drawn_with_nodes_ledger_and_happenings() {
        let lines = drawn(100, 24, &watch());
        assert_eq!(lines[0], "what this is; q ends it");
        assert!(
            lines[1].starts_with("3.0 s  running  round-robin  100.0 TF/s  100.0 MB/s"),
            "{lines:#?}"
        );
        assert_eq!(
            lines[3],
            "node     state      (S)TF/s     MB/s   buffered        p50        p99   share"
        );
        assert_eq!(lines[4], "icn:0    up           100.0      0.0     0.0 MB");
        let bar = "━".repeat(24);
        assert_eq!(
            lines[5],
            format!(
                "flp:0    up           100.0    100.0     2.0 MB                         {bar}"
            )
        );
        assert_eq!(
            lines[6],
            format!(
                "epn:0    up           100.0    100.0     2.0 MB     1.5 ms    12.3 ms   {bar}"
            )
        );
        assert_eq!(
            lines[8],
            "announced 302 = complete 300 + incomplete 0 + dropped 0 + in flight 2 ✔"
        );
        assert_eq!(lines[9], "reassigned 0  abandoned 0  duplicates refused 0");
        assert_eq!(lines[11], "    2.0 s  the run begins");
    }

    #[test]
    fn a_small_terminal_shows_what_matters_whole() {
        let lines = drawn(40, 10, &watch());
        let expected = [
            "node     state      (S)TF/s     MB/s",
            "icn:0    up           100.0      0.0",
            "flp:0    up           100.0    100.0",
            "epn:0    up           100.0    100.0",
            "announced 302 = complete 300 +",
            "incomplete 0 + dropped 0 + in flight 2 ✔",
            "reassigned 0  abandoned 0  duplicates",
            "refused 0",
        ];
        assert_eq!(lines[2..], expected);
    }

    #[test]
    fn a_low_terminal_shows_the_nodes_that_are_not_well() {
        let mut watch = watch();
        watch.mark(sheaf_protocol::EpnId(0).into(), Some("killed"));
        let rows = watch.rows();
        let names = |lines| {
            let (seen, hidden) = most_telling(&rows, lines);
            let names: Vec<String> = seen.iter().map(|row| row.node.to_string()).collect();
            (names.join(" "), hidden)
        };
        assert_eq!(names(3), ("icn:0 flp:0 epn:0".to_owned(), 0));
        assert_eq!(names(2), ("epn:0".to_owned(), 2));
        assert_eq!(names(0), (String::new(), 3));
        let lines = drawn(120, 7, &watch);
        assert_eq!(lines[4], "…        2 more");
    }

    #[test]
    fn a_bar_is_as_long_as_its_share_of_the_longest() {
        assert_eq!(bar(0.0, 0.0), "");
        assert_eq!(bar(1.0, 4.0), "  ━━━━━━");
        assert_eq!(bar(1.0, 48.0), "  ╸");
    }

    #[test]
    fn a_farm_is_drawn_on_any_terminal() {
        for (width, height) in [(1, 1), (20, 5), (300, 4)] {
            drawn(width, height, &watch());
            drawn(width, height, &Watch::default());
        }
    }
}
