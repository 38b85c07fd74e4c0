//! `/proc/pressure/*`: time in which work stood still for want of a resource.

use crate::error::ParseError;
use crate::line::lines;

/// A line of a file of pressure.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// Share of the last 10 s, 0 to 1.
    pub ratio_10s: f64,
    /// Time since the machine started, in ns.
    pub total_ns: u64,
}

/// Reads a file of pressure: `some` (a task waited) and `full` (all of them did), which not every kernel has for CPU.
///
/// # Errors
///
/// [`ParseError`] if it has neither.
pub fn pressure(text: &str) -> Result<Vec<(&str, Pressure)>, ParseError> {
    let read = |line: &str| -> Option<Pressure> {
        let mut found = Pressure::default();
        let mut has_total = false;
        for word in line.split_ascii_whitespace().skip(1) {
            match word.split_once('=')? {
                ("avg10", percent) => found.ratio_10s = percent.parse::<f64>().ok()? / 100.0,
                ("total", us) => {
                    found.total_ns = us.parse::<u64>().ok()?.saturating_mul(1000);
                    has_total = true;
                }
                _ => {}
            }
        }
        has_total.then_some(found)
    };
    let found: Vec<_> = lines(text)
        .filter_map(|line| {
            let kind = line
                .split(' ')
                .next()
                .filter(|kind| ["some", "full"].contains(kind))?;
            Some((kind, read(line)?))
        })
        .collect();
    if found.is_empty() {
        return Err(ParseError::new(
            "/proc/pressure",
            text,
            "\"some avg10=0.00 … total=0\"",
        ));
    }
    Ok(found)
}
