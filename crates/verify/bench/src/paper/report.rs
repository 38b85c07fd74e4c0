//! Rows, checks and aims of the report.

use super::published::Published;
use crate::report::{Head, to_json};
use serde::{Deserialize, Serialize};
use sheaf_figures::stat::Spread;
use std::collections::BTreeMap;
use std::fmt;

/// Results of the monitoring paper's experiments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    #[serde(flatten)]
    pub(crate) head: Head,
    /// Day of the measurement, such as `2026-11-25`, by UTC.
    pub day: String,
    /// Commit of the program, as `sheaf --version` prints it.
    pub commit: String,
    /// Whether everything was as short as a test wants it: figures mean nothing then.
    pub is_quick: bool,
    /// Share of all CPUs that others took before the first measurement, in percent.
    pub others_percent: f64,
    /// A row for each case and server.
    pub rows: Vec<Row>,
    /// Published figures that rows stand beside.
    pub published: Vec<Published>,
    /// Whether everything did what it should.
    pub checks: Vec<Check>,
    /// Names of what was not measured, with the reason.
    pub skipped: Vec<String>,
}

/// Figures of one case of a part, of one server, over all runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// `scenarios`, `sources`, `storage`, `latency` or `melk`.
    pub part: String,
    /// Case.
    pub case: String,
    /// `sheaf`, `victoriametrics`, `influxdb` or `prometheus`.
    pub server: String,
    /// Figures by name; units are in the names.
    pub figures: BTreeMap<String, Spread>,
    /// Note for the reader; empty for none.
    pub note: String,
}

/// A statement that has to hold, whatever the speed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Statement.
    pub what: String,
    /// Contradictions that were found; empty if it holds.
    pub problems: Vec<String>,
}

/// Figures of the runs of one case.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures(BTreeMap<&'static str, Vec<f64>>);

impl Figures {
    pub(crate) fn add(&mut self, name: &'static str, value: f64) {
        self.0.entry(name).or_default().push(value);
    }

    pub(crate) fn row(&self, part: &str, case: &str, server: &str, note: &str) -> Row {
        let figures = self.0.iter();
        Row {
            part: part.to_owned(),
            case: case.to_owned(),
            server: server.to_owned(),
            figures: figures
                .map(|(name, values)| ((*name).to_owned(), Spread::of(values.iter().copied())))
                .collect(),
            note: note.to_owned(),
        }
    }
}

impl Row {
    pub(crate) fn median(&self, figure: &str) -> Option<f64> {
        self.figures.get(figure)?.median
    }
}

impl Report {
    /// Returns whether all checks hold.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.checks.iter().all(|check| check.problems.is_empty())
    }

    /// Returns the row of a case of a server.
    pub(crate) fn row(&self, part: &str, case: &str, server: &str) -> Option<&Row> {
        let mut rows = self.rows.iter();
        rows.find(|row| row.part == part && row.case == case && row.server == server)
    }

    /// Returns the report as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        to_json(self)
    }

    /// Reads a report that [`to_json`](Self::to_json) wrote.
    ///
    /// # Errors
    ///
    /// The place and the reason why the text is no such report.
    pub fn parse(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.head)?;
        for row in &self.rows {
            writeln!(f, "{}: {}: {}", row.part, row.case, row.server)?;
            for (name, spread) in &row.figures {
                writeln!(f, "    {name:<20} {}", Shown(*spread))?;
            }
        }
        for check in &self.checks {
            let outcome = if check.problems.is_empty() {
                "holds"
            } else {
                "DOES NOT HOLD"
            };
            writeln!(f, "{}: {outcome}", check.what)?;
            for problem in &check.problems {
                writeln!(f, "    {problem}")?;
            }
        }
        for line in &self.skipped {
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}

/// Spread as it is shown: the median, and the range of several runs.
pub(crate) struct Shown(pub(crate) Spread);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Spread {
            median: Some(median),
            min: Some(min),
            max: Some(max),
            n,
        } = self.0
        else {
            return f.write_str("–");
        };
        write!(f, "{}", number(median))?;
        if n > 1 {
            write!(f, " ({}–{})", number(min), number(max))?;
        }
        Ok(())
    }
}

/// Returns a number with three digits that count, and its thousands apart.
pub(crate) fn number(value: f64) -> String {
    let places = match value.abs() {
        size if size >= 100.0 || value == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.places$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let (sign, digits) = whole.split_at(usize::from(whole.starts_with('-')));
    let mut apart = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            apart.push(' ');
        }
        apart.push(digit);
    }
    format!("{sign}{apart}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_count() {
        for (value, expected) in [
            (0.0, "0"),
            (0.1234, "0.123"),
            (1.238, "1.24"),
            (-0.91, "-0.910"),
            (99.96, "100.0"),
            (1_234_567.8, "1 234 568"),
            (-1234.0, "-1 234"),
        ] {
            assert_eq!(number(value), expected);
        }
    }

    #[test]
    fn a_spread_shows_the_range_of_several_runs() {
        let shown = |values: &[f64]| Shown(Spread::of(values.iter().copied())).to_string();
        assert_eq!(shown(&[]), "–");
        assert_eq!(shown(&[2.0]), "2.00");
        assert_eq!(shown(&[3.0, 2.0, 1.0]), "2.00 (1.00–3.00)");
    }
}
