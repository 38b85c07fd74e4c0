//! A summary as a table of text, and as a page of HTML.

use sheaf_sim::summary::{Kind, Point, Summary};
use std::fmt::Write as _;

/// The points of a summary, a line each.
#[must_use]
pub fn table(summary: &Summary) -> String {
    let mut text = format!(
        "{:<14} {:<5} {:>4} {:>5} {:>7} {:>8} {:>3} {:>4} {:>9} {:>8} {:>9} {:>6} {:>9} {:>9}  {}\n",
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
    for point in &summary.points {
        let published = point
            .published_loss_percent
            .map_or("-".to_owned(), |loss| format!("{loss:.2}"));
        let _ = writeln!(
            text,
            "{:<14} {:<5} {:>4} {:>5} {:>7} {:>8} {:>3} {:>4} {:>9.2} {:>8.3} {:>9} {:>6.1} {:>9.2} {:>9.2}  {}",
            name(point),
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
    text
}

/// What a point is called: its label, or its policy.
fn name(point: &Point) -> &str {
    if point.label.is_empty() {
        &point.policy
    } else {
        &point.label
    }
}

fn kind(source: Kind) -> &'static str {
    match source {
        Kind::Live => "live",
        Kind::Sim => "sim",
    }
}
