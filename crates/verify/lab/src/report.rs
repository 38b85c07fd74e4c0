//! Results for people and for machines.

pub mod markdown;
pub mod pages;
mod servers;
mod sheet;
pub mod verdict;
mod waits;
mod writers;

pub use waits::diagram;

use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Result of one cell.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// Name.
    pub cell: String,
    /// Number in the matrix of faults.
    pub number: String,
    /// Fault that is injected.
    pub what: String,
    /// Faults done.
    pub injected: u64,
    /// TFs called for.
    pub timeframes: u64,
    /// TFs dropped or incomplete.
    pub lost: u64,
    /// These, by reason.
    pub lost_by_reason: BTreeMap<String, u64>,
    /// TFs whose delivery is unknown.
    pub abandoned: u64,
    /// TFs delivered more than once.
    pub delivered_twice: u64,
    /// From the fault to the word of the ICN that the node is not well, in ms; `null` if there is nothing to
    /// notice.
    pub detect_ms_p99: Option<f64>,
    /// The bound of that.
    pub detect_bound_ms: Option<u64>,
    /// How long the TF that waited longest had to wait for its verdict, of those called for before the fault was
    /// undone, in ms: a value for each fault.
    pub recover_ms_p99: Option<f64>,
    /// Of these the median.
    pub recover_ms_median: Option<f64>,
    /// The same for TFs called for after the fault was undone, in ms.
    pub after_ms_p99: Option<f64>,
    /// The bound of that.
    pub after_bound_ms: u64,
    /// The bound of `recover_ms_p99`.
    pub bound_ms: u64,
    /// Least share of the TFs due while a fault lasted that were built meanwhile, in percent.
    pub rate_percent: Option<f64>,
    /// The bound of that.
    pub rate_bound_percent: Option<u64>,
    /// How often nodes were found silent because of one fault, at most.
    pub suspected: u64,
    /// The bound of that.
    pub suspected_bound: Option<u64>,
    /// TFs that were reassigned while faults lasted.
    pub reassigned: u64,
    /// Both bounds were taken so many times.
    pub bound_slack: f64,
    /// Whether it held all that was promised.
    pub ok: bool,
    /// Why it did not run.
    pub skipped: Option<String>,
    /// Why it is not ok.
    pub problems: Vec<String>,
    /// Number of problems that are times above their bound; the others are of what was lost, doubled or contradicted.
    pub late: usize,
    /// Share of all processors that others took meanwhile, 0 to 1.
    pub interference: f64,
    /// Runs of the cell before this one, whose times were above their bounds.
    pub repeated: u32,
    /// Folder of the logs, if they are kept.
    pub logs: Option<String>,
    /// Seed of the run.
    pub seed: u64,
    /// How long it took, in s.
    pub wall_s: f64,
}

impl Row {
    /// Whether it counts as a failure.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        !self.ok && self.skipped.is_none()
    }

    /// Whether nothing but times went wrong.
    #[must_use]
    pub fn is_late(&self) -> bool {
        self.has_failed() && self.problems.len() == self.late
    }

    /// Whether nothing but times went wrong, while others took more than `share` of the processors.
    #[must_use]
    pub fn is_disturbed(&self, share: f64) -> bool {
        self.is_late() && self.interference > share
    }
}

/// The rows as a table, with what went wrong beneath.
#[must_use]
pub fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<16} {:<4} {:>8} {:>6} {:>5} {:>5} {:>10} {:>11} {:>8}  {}\n",
        "cell", "", "injected", "TFs", "lost", "twice", "detect p99", "recover p99", "bound", "ok"
    );
    let ms = |value: Option<f64>| value.map_or("-".to_owned(), |ms| format!("{ms:.1} ms"));
    for row in rows {
        let Row { cell, number, .. } = row;
        if let Some(why) = &row.skipped {
            let _ = writeln!(text, "{cell:<16} {number:<4} skipped: {why}");
            continue;
        }
        let _ = writeln!(
            text,
            "{cell:<16} {number:<4} {:>8} {:>6} {:>5} {:>5} {:>10} {:>11} {:>8}  {}",
            row.injected,
            row.timeframes,
            row.lost,
            row.delivered_twice,
            ms(row.detect_ms_p99),
            ms(row.recover_ms_p99),
            format!("{} ms", row.bound_ms),
            answer(row)
        );
    }
    for row in rows.iter().filter(|row| row.has_failed()) {
        for problem in &row.problems {
            let _ = writeln!(text, "{}: {problem}", row.cell);
        }
        if let Some(path) = &row.logs {
            let _ = writeln!(text, "{}: logs are in {path}", row.cell);
        }
    }
    text
}

fn answer(row: &Row) -> String {
    let ok = if row.ok { "yes" } else { "NO" };
    match row.repeated {
        0 => ok.to_owned(),
        _ => format!("{ok}, run {} (late before)", row.repeated + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_late_cells_under_interference_are_disturbed() {
        let late = Row {
            problems: vec!["noticed after 900 ms".to_owned()],
            late: 1,
            interference: 0.4,
            ..Row::default()
        };
        assert!(late.is_disturbed(0.1));
        let quiet = Row {
            interference: 0.05,
            ..late.clone()
        };
        assert!(
            !quiet.is_disturbed(0.1),
            "a bound is missed on a quiet machine"
        );
        let mut lossy = late.clone();
        lossy.problems.push("2 TFs lost: shed-overload".to_owned());
        assert!(!lossy.is_disturbed(0.1), "a loss is no matter of time");
        let good = Row { ok: true, ..late };
        assert!(!good.is_disturbed(0.1));
    }

    #[test]
    fn the_table_tells_what_failed_and_what_was_skipped() {
        let good = Row {
            cell: "epn-kill".to_owned(),
            number: "F1".to_owned(),
            injected: 10,
            timeframes: 900,
            detect_ms_p99: Some(7.25),
            recover_ms_p99: Some(40.0),
            bound_ms: 150,
            ok: true,
            ..Row::default()
        };
        let bad = Row {
            cell: "loss".to_owned(),
            ok: false,
            detect_ms_p99: None,
            problems: vec!["2 TFs have no verdict".to_owned()],
            ..good.clone()
        };
        let skipped = Row {
            cell: "cut".to_owned(),
            skipped: Some("needs root".to_owned()),
            ..Row::default()
        };
        assert!(!skipped.has_failed() && bad.has_failed());
        let expected = "\
cell                  injected    TFs  lost twice detect p99 recover p99    bound  ok
epn-kill         F1         10    900     0     0     7.2 ms     40.0 ms   150 ms  yes
loss             F1         10    900     0     0          -     40.0 ms   150 ms  NO
cut                   skipped: needs root
loss: 2 TFs have no verdict
";
        assert_eq!(table(&[good, bad, skipped]), expected);
    }
}
