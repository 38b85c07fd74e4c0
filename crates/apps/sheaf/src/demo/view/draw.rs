//! The whole screen: title, state, nodes, accounting, the last minutes, what has happened, and the keys.

use super::look::Look;
use super::{nodes, past};
use crate::demo::watch::{Happening, Watch};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Paragraph, Wrap};
use sheaf_node::status::FarmStatus;

/// Lines for what has happened, if there is room.
const HAPPENINGS: u16 = 8;
/// Stages of a TF, as the status names them.
const STAGES: [&str; 4] = [
    "announce_to_assign",
    "assign_to_first_byte",
    "first_to_last_byte",
    "last_byte_to_commit",
];

/// Draws the farm as `watch` knows it and as `look` wants it.
pub(super) fn draw(frame: &mut Frame<'_>, look: &mut Look, watch: &Watch) {
    let rows = look.select(watch.rows());
    let (width, height) = (frame.area().width, frame.area().height);
    let [title, head, accounting, prompt] = [
        wrapped(
            Text::from(Line::from(look.title().to_owned()).bold()),
            width,
        ),
        wrapped(head_text(watch, width), width),
        wrapped(accounting_text(watch, width), width),
        wrapped(Text::from(Line::from(look.prompt()).dim()), width),
    ];
    let fixed = title.1 + head.1 + accounting.1 + prompt.1;
    let table_lines = lines_of(rows.len() + 1);
    // Where there is little room, the air goes first, then the last minutes, the happenings, and the last nodes.
    let wanted = fixed + table_lines + HAPPENINGS;
    let has_past = width >= past::WIDTH_MIN && height >= wanted + past::LINES;
    // With room to spare the sparklines grow.
    let spare = height.saturating_sub(wanted.saturating_add(past::LINES + 4));
    let past_lines = u16::from(has_past) * (past::LINES + spare.min(past::LINES_MORE));
    let air = u16::from(height >= wanted.saturating_add(past_lines + 4));
    let table_lines = table_lines.min(height.saturating_sub(fixed + past_lines + 4 * air));
    let [
        top,
        state,
        _,
        table,
        _,
        sum,
        _,
        lately,
        _,
        happenings,
        bottom,
    ] = Layout::vertical([
        Constraint::Length(title.1),
        Constraint::Length(head.1),
        Constraint::Length(air),
        Constraint::Length(table_lines),
        Constraint::Length(air),
        Constraint::Length(accounting.1),
        Constraint::Length(air),
        Constraint::Length(past_lines),
        Constraint::Length(air * u16::from(has_past)),
        Constraint::Fill(1),
        Constraint::Length(prompt.1),
    ])
    .areas(frame.area());
    frame.render_widget(title.0, top);
    frame.render_widget(head.0, state);
    let (seen, _) = nodes::most_telling(&rows, usize::from(table_lines).saturating_sub(1));
    look.note_shown(seen.into_iter().map(|row| row.node).collect());
    frame.render_widget(nodes::table(&rows, look, width, table_lines), table);
    frame.render_widget(accounting.0, sum);
    if has_past {
        past::draw(frame, lately, watch);
    }
    frame.render_widget(latest(watch, width, happenings.height), happenings);
    frame.render_widget(prompt.0, bottom);
}

/// Returns a text with its words wrapped, and how many lines it takes.
fn wrapped(text: Text<'static>, width: u16) -> (Paragraph<'static>, u16) {
    let lines = text
        .iter()
        .map(|line| wrapped_lines(&line.to_string(), width));
    let lines = lines_of(lines.sum());
    (Paragraph::new(text).wrap(Wrap { trim: true }), lines)
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
    u16::try_from(count).unwrap_or(u16::MAX / 8)
}

/// The state of the farm, or why it is not known.
fn head_text(watch: &Watch, width: u16) -> Text<'static> {
    if let Some(lost) = watch.lost() {
        let line = Line::from(lost.to_owned()).bold();
        // An end in order is no trouble.
        return Text::from(if watch.has_ended() { line } else { line.red() });
    }
    let status = watch.status();
    if !watch.has_status() {
        return Text::from("starting");
    }
    let total = status.latency_us.get("total").copied().unwrap_or_default();
    let mut groups: Vec<String> = watch.offices().into_iter().collect();
    groups.extend([
        format!("{:.1} s", status.duration_s),
        status.phase.clone(),
        status.policy.clone(),
        format!("{} TF/s", nodes::fit(watch.tfs_per_s(), 8)),
        format!("{} MB/s", nodes::fit(watch.mb_per_s(), 8)),
        format!("latency p50 {}", ms(total.p50)),
        format!("p99 {}", ms(total.p99)),
        format!("waiting for room {}", status.queued),
    ]);
    let security = watch.security().trim();
    groups.extend((!security.is_empty()).then(|| security.to_owned()));
    let lines = joined(groups, width).into_iter();
    lines.map(|line| Line::styled(line, Color::Cyan)).collect()
}

/// Joins `groups` to lines of at most `width` characters; a value stays with its name and its unit.
fn joined(groups: Vec<String>, width: u16) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for group in groups {
        match lines.last_mut() {
            Some(line)
                if line.chars().count() + 2 + group.chars().count() <= usize::from(width) =>
            {
                *line += "  ";
                *line += &group;
            }
            _ => lines.push(group),
        }
    }
    lines
}

/// Returns how long each stage of a TF takes, in lines of at most `width` characters.
fn stages(status: &FarmStatus, width: u16) -> Vec<String> {
    let stages = STAGES.iter().filter_map(|stage| {
        let found = status.latency_us.get(*stage)?;
        let (p50, p99) = (ms(found.p50), ms(found.p99));
        Some(format!("{} p50 {p50} p99 {p99}", stage.replace('_', " ")))
    });
    joined(stages.collect(), width)
}

fn ms(us: f64) -> String {
    format!("{} ms", nodes::fit(us / 1000.0, 8))
}

/// The law of the books, what the farm did to keep it, and where there is room the verdict log.
fn accounting_text(watch: &Watch, width: u16) -> Text<'static> {
    let status = watch.status();
    let accounting = &status.accounting;
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
    if accounting.redelivered > 0 {
        efforts += &format!("  redelivered {}", accounting.redelivered);
    }
    for (reason, count) in &accounting.dropped {
        efforts += &format!("  {reason} {count}");
    }
    let mut efforts = Line::from(efforts);
    if accounting.abandoned > 0 {
        // Whether their consumer has these is unknown.
        efforts = efforts.style(Style::new().yellow().bold());
    }
    let mut lines = vec![
        Line::styled(watch.ledger(), Style::new().fg(color).bold()),
        efforts,
    ];
    let ledger = &status.ledger;
    if width >= past::WIDTH_MIN && !ledger.backend.is_empty() {
        let mut text = format!(
            "verdict log {} with {} records, icn:{} leads in term {}",
            ledger.backend, ledger.records, ledger.icn, ledger.term
        );
        if !status.refused.is_empty() {
            let refused = status
                .refused
                .iter()
                .map(|(reason, count)| format!("{reason} {count}"));
            text += &format!(
                ", no EPN could be chosen: {}",
                refused.collect::<Vec<_>>().join(" ")
            );
        }
        lines.push(Line::from(text));
    }
    if width >= past::WIDTH_MIN {
        lines.extend(stages(&status, width).into_iter().map(Line::from));
    }
    if let Some(trouble) = &ledger.trouble {
        lines.push(Line::from(format!("verdict log: {trouble}")).red());
    }
    Text::from(lines)
}

/// The latest happenings that fit `lines` of `width`, the last one last.
fn latest(watch: &Watch, width: u16, lines: u16) -> Paragraph<'static> {
    let all: Vec<Line<'static>> = watch.happenings_from(0).map(happening_line).collect();
    let mut left = usize::from(lines);
    let fits = |line: &&Line<'static>| {
        let needed = wrapped_lines(&line.to_string(), width);
        let fits = needed <= left;
        left = left.saturating_sub(needed);
        fits
    };
    let mut shown: Vec<Line<'static>> = all.iter().rev().take_while(fits).cloned().collect();
    shown.reverse();
    Paragraph::new(Text::from(shown)).wrap(Wrap { trim: false })
}

fn happening_line(happening: &Happening) -> Line<'static> {
    let at = Span::from(format!("{:7.1} s  ", happening.at_s)).dim();
    Line::from(vec![at, Span::from(happening.text.clone())])
}
