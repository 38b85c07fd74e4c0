//! The last minutes as sparklines: rate, goodput and latency.

use super::nodes::fit;
use crate::demo::watch::{Moment, Watch};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Stylize as _};
use ratatui::text::Line;
use ratatui::widgets::Sparkline;

/// Lines of the sparklines with their titles.
pub(super) const LINES: u16 = 6;
/// Further lines of them where there is room.
pub(super) const LINES_MORE: u16 = 8;
/// Narrower screens have none.
pub(super) const WIDTH_MIN: u16 = 120;

/// Value of a sparkline at one moment.
type Pick = fn(&Moment) -> f64;

/// Draws the sparklines beside each other.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, watch: &Watch) {
    let columns: [Rect; 3] = Layout::horizontal([Constraint::Fill(1); 3])
        .spacing(2)
        .areas(area);
    let lines: [(&str, &str, Color, Pick); 3] = [
        ("TF/s", "", Color::Green, |moment| moment.tfs_per_s),
        ("MB/s", "", Color::Cyan, |moment| moment.mb_per_s),
        ("latency p99", " ms", Color::Yellow, |moment| moment.p99_ms),
    ];
    let when = if watch.lost().is_some() {
        "last"
    } else {
        "now"
    };
    for ((name, unit, color, pick), area) in lines.into_iter().zip(columns) {
        let values: Vec<f64> = watch.past().map(pick).collect();
        let widest = usize::from(area.width);
        let values = &values[values.len().saturating_sub(widest)..];
        let (now, most) = (
            values.last().copied().unwrap_or_default(),
            values.iter().copied().fold(0.0, f64::max),
        );
        let title = format!(
            "{name}  {when} {}{unit}  most {}{unit}",
            fit(now, 8),
            fit(most, 8)
        );
        let [head, body] =
            Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
        frame.render_widget(Line::from(title).bold(), head);
        // Heights are whole numbers; the largest value is the whole height.
        let scaled = values.iter().map(|value| match most > 0.0 {
            true => (value / most * 1000.0).round() as u64,
            false => 0,
        });
        let line = Sparkline::default().data(scaled).max(1000).style(color);
        frame.render_widget(line, body);
    }
}
