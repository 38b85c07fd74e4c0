//! The error of the simulator as text, and as a page of Markdown.

use super::{Calibration, LOSS, Pair, shown, told};
use crate::results::{Results, name, origin};
use std::fmt::Write as _;

/// The calibration as a table of text.
#[must_use]
pub fn table(calibration: &Calibration) -> String {
    let mut text = String::new();
    for pair in &calibration.pairs {
        let _ = writeln!(
            text,
            "{}, n {} live, {} simulated",
            pair.point, pair.n_live, pair.n_simulated
        );
        for one in &pair.figures {
            let (name, unit, factor) = shown(one.figure);
            let [low, high] = one.live_range;
            let _ = writeln!(
                text,
                "  {name:<8} live {:>9.3} ({:.3} to {:.3}) {unit:<6} simulated {:>9.3}  error {:>9}",
                one.live * factor,
                low * factor,
                high * factor,
                one.simulated * factor,
                told(one.figure, one.error)
            );
        }
    }
    let _ = writeln!(text, "over {} points:", calibration.pairs.len());
    for one in &calibration.overall {
        let unit = if one.figure == LOSS { "pp" } else { "%" };
        let _ = writeln!(
            text,
            "  {:<8} median error {:>7.2} {unit:<2} worst {:>8.2} {unit:<2} ({}), {} of {} within {} {unit}",
            shown(one.figure).0,
            one.median,
            one.worst,
            one.worst_point,
            one.within,
            one.points,
            one.aim
        );
    }
    for point in &calibration.rejected {
        let _ = writeln!(text, "no run counts: {point}");
    }
    for point in &calibration.unpaired {
        let _ = writeln!(text, "no counterpart: {point}");
    }
    let _ = writeln!(text, "{}", calibration.verdict);
    text
}

/// The calibration of `results` as a page of Markdown, such as those of `docs/results/`.
#[must_use]
pub fn markdown(results: &Results, calibration: &Calibration) -> String {
    let mut text = format!(
        "# The simulator beside live farms: {}\n\n",
        results.summary.experiment
    );
    text += &origin(results);
    text += "| figure | points | median error | worst | aim | within it | worst point |\n\
             | --- | ---: | ---: | ---: | ---: | ---: | --- |\n";
    for one in &calibration.overall {
        let unit = if one.figure == LOSS { "points" } else { "%" };
        let _ = writeln!(
            text,
            "| {} | {} | {} {unit} | {} {unit} | {} {unit} | {} of {} | {} |",
            shown(one.figure).0,
            one.points,
            digits(one.median),
            digits(one.worst),
            one.aim,
            one.within,
            one.points,
            one.worst_point
        );
    }
    let _ = writeln!(text, "\nIn short: {}.\n", calibration.verdict);
    for point in &calibration.rejected {
        let _ = writeln!(text, "No run counts: {point}.");
    }
    for point in &calibration.unpaired {
        let _ = writeln!(text, "No counterpart: {point}.");
    }
    text +=
        "\n## Points\n\nMedians of the runs, live / simulated, and the error of the simulator.\n\n";
    text += "| point | FLPs | EPNs | Hz | bytes | policy | push | load | n |";
    for one in &calibration.overall {
        let (name, unit, _) = shown(one.figure);
        let _ = write!(text, " {name}, {unit} | |");
    }
    let _ = writeln!(
        text,
        "\n| --- | ---: | ---: | ---: | ---: | --- | --- | ---: | ---: |{}",
        " ---: | ---: |".repeat(calibration.overall.len())
    );
    for pair in &calibration.pairs {
        let _ = writeln!(text, "{}", row(calibration, pair));
    }
    text
}

fn row(calibration: &Calibration, pair: &Pair) -> String {
    let asked = &pair.asked;
    let mut row = format!(
        "| {} | {} | {} | {} | {} | `{}` | {} | {} | {} |",
        name(asked),
        asked.flps,
        asked.epns,
        digits(asked.rate_hz),
        asked.bytes,
        asked.policy,
        asked.push,
        asked.load.map_or("-".to_owned(), digits),
        pair.n_live
    );
    for of in &calibration.overall {
        let cells = pair.figure(of.figure).map(|one| {
            let (.., factor) = shown(one.figure);
            format!(
                " {} / {} | {} |",
                digits(one.live * factor),
                digits(one.simulated * factor),
                told(one.figure, one.error)
            )
        });
        row += &cells.unwrap_or_else(|| " - | - |".to_owned());
    }
    row
}

/// Returns `number` with three significant digits.
fn digits(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return format!("{number}");
    }
    let before = number.abs().log10().floor() as i32;
    let decimals = usize::try_from(2 - before).unwrap_or(0).min(4);
    let text = format!("{number:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}
