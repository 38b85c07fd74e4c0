//! The demo on a terminal: a line a node, the ledger, what has happened.

use super::watch::{Row, Watch};
use anyhow::Context as _;
use ratatui::DefaultTerminal;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Paragraph, Row as TableRow, Table};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the thread that reads keys looks whether it should end.
const KEY_POLL: Duration = Duration::from_millis(50);
/// Lines for what has happened.
const HAPPENINGS: u16 = 8;

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
    let table_lines = u16::try_from(rows.len())
        .unwrap_or(u16::MAX)
        .saturating_add(1);
    let [top, head, _, table, _, ledger, _, happenings] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Max(table_lines),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(HAPPENINGS),
    ])
    .areas(frame.area());
    frame.render_widget(Line::from(title).bold(), top);
    frame.render_widget(Line::from(head_line(watch)), head);
    frame.render_widget(node_table(&rows), table);
    frame.render_widget(ledger_line(watch), ledger);
    let shown = usize::from(happenings.height);
    let first = watch.happened().saturating_sub(shown);
    let lines = watch
        .happenings_from(first)
        .map(|happening| Line::from(format!("{:7.1} s  {}", happening.at_s, happening.text)));
    frame.render_widget(Paragraph::new(Text::from_iter(lines)), happenings);
}

fn head_line(watch: &Watch) -> String {
    let status = watch.status();
    if !watch.has_status() {
        return "starting".to_owned();
    }
    let total = status.latency_us.get("total").copied().unwrap_or_default();
    format!(
        "{:.1} s  {}  {}  {:.1} TF/s  {:.1} MB/s  latency p50 {} p99 {}  waiting for room {}",
        status.duration_s,
        status.phase,
        status.policy,
        watch.tfs_per_s(),
        watch.mb_per_s(),
        ms(total.p50),
        ms(total.p99),
        status.queued,
    )
}

fn ms(us: f64) -> String {
    format!("{:.1} ms", us / 1000.0)
}

fn ledger_line(watch: &Watch) -> Line<'static> {
    let color = if watch.status().books.balanced {
        Color::Green
    } else {
        Color::Red
    };
    Line::styled(watch.ledger(), Style::new().fg(color).bold())
}

fn node_table(rows: &[Row]) -> Table<'static> {
    let head = ["node", "state", "(S)TF/s", "MB/s", "p50", "p99", "buffered"];
    let lines = rows.iter().map(|row| {
        let quantile = |pick: fn(&sheaf_node::status::Quantiles) -> f64| {
            row.latency_us
                .as_ref()
                .map_or_else(String::new, |found| ms(pick(found)))
        };
        let state = Cell::new(row.state.clone()).style(state_style(&row.state));
        TableRow::new([
            Cell::new(row.node.to_string()),
            state,
            right(format!("{:.1}", row.items_per_s)),
            right(format!("{:.1}", row.mb_per_s)),
            right(quantile(|found| found.p50)),
            right(quantile(|found| found.p99)),
            right(format!("{:.1} MB", row.buffered_bytes as f64 / 1e6)),
        ])
    });
    let widths = [8, 9, 9, 9, 10, 10, 11].map(Constraint::Length);
    let titles = head.iter().enumerate().map(|(index, name)| match index {
        0 | 1 => Cell::new(*name),
        _ => right((*name).to_owned()),
    });
    Table::new(lines, widths).header(TableRow::new(titles).dim())
}

fn right(text: String) -> Cell<'static> {
    Cell::new(Line::from(text).right_aligned())
}

fn state_style(state: &str) -> Style {
    match state {
        "up" => Style::new().green(),
        "silent" | "paused" | "leaving" | "ended" => Style::new().yellow(),
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
            "node     state       (S)TF/s      MB/s        p50        p99    buffered"
        );
        assert_eq!(
            lines[4],
            "flp:0    up            100.0     100.0                            2.0 MB"
        );
        assert_eq!(
            lines[5],
            "epn:0    up            100.0     100.0     1.5 ms    12.3 ms      2.0 MB"
        );
        assert_eq!(
            lines[7],
            "announced 302 = complete 300 + incomplete 0 + dropped 0 + in flight 2 ✔"
        );
        assert_eq!(lines[9], "    2.0 s  the run begins");
    }

    #[test]
    fn a_farm_is_drawn_on_any_terminal() {
        for (width, height) in [(1, 1), (20, 5), (300, 4)] {
            drawn(width, height, &watch());
            drawn(width, height, &Watch::default());
        }
    }
}
