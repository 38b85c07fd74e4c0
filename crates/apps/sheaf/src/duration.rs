//! Spans of time as people type them: `10s`, `1.5s`, `500ms`, `2m`, `1h`.

use std::time::Duration;

/// Reads a number with its unit.
///
/// # Errors
///
/// What was found and what is expected, for clap to print.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let expected =
        || format!("found `{text}`, expected a number and ms, s, m or h, such as 10s or 500ms");
    let unit_at = text
        .find(|c: char| c.is_ascii_alphabetic())
        .ok_or_else(expected)?;
    let (number, unit) = text.split_at(unit_at);
    let unit_s = match unit {
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(expected()),
    };
    let number: f64 = number.parse().map_err(|_| expected())?;
    Duration::try_from_secs_f64(number * unit_s).map_err(|_| expected())
}

#[cfg(test)]
mod tests {
    use super::parse;
    use std::time::Duration;

    #[test]
    fn a_number_with_its_unit_is_a_duration() {
        let good = [
            ("500ms", 500),
            ("10s", 10_000),
            ("1.5s", 1500),
            ("2m", 120_000),
            ("1h", 3_600_000),
        ];
        for (text, ms) in good {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused_with_what_was_expected() {
        for text in [
            "", "10", "s", "-1s", "ten s", "1d", "1e99h", "nans", "infs", "1 s",
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains("such as 10s or 500ms"), "{text}: {error}");
        }
    }
}
