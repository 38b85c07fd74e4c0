//! Durations and times as Prometheus and its files write them.

use std::fmt::Write;

const UNITS: [(&str, i64); 7] = [
    ("y", 365 * 86_400_000),
    ("w", 7 * 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Returns the ms of a duration such as `1h30m`, `250ms` or `0`; `None` if `text` is none.
pub(crate) fn parse(text: &str) -> Option<i64> {
    if text == "0" {
        return Some(0);
    }
    let (mut rest, mut total, mut next_unit) = (text, 0_i64, 0);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: i64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        // Units come from the largest to the smallest, each once.
        let at = UNITS.iter().position(|unit| unit.0 == &rest[..letters])?;
        if at < next_unit {
            return None;
        }
        next_unit = at + 1;
        rest = &rest[letters..];
        total = total.checked_add(number.checked_mul(UNITS[at].1)?)?;
    }
    (!text.is_empty()).then_some(total)
}

/// Returns `ms` as a duration, such as `1m30s`.
pub(crate) fn format(ms: i64) -> String {
    let mut rest = ms.max(0);
    if rest == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (unit, length) in UNITS.into_iter().skip(2) {
        if rest >= length {
            let _ = write!(text, "{}{unit}", rest / length);
            rest %= length;
        }
    }
    text
}

/// Returns the time `at_ms` (ms since 1970-01-01 UTC) in RFC 3339, with ms: `2026-11-25T02:47:51.000Z`.
#[must_use]
pub fn rfc3339(at_ms: i64) -> String {
    let days = at_ms.div_euclid(86_400_000);
    let ms = at_ms.rem_euclid(86_400_000);
    // Years begin in March, so that the day that a leap year adds is the last of its year. 146,097 days are 400 years.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
    format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z",
        ms % 1_000
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_prometheus() {
        let good = [
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("250ms", 250),
            ("1d", 86_400_000),
            ("0", 0),
            ("0s", 0),
        ];
        for (text, ms) in good {
            assert_eq!(parse(text), Some(ms), "{text}");
        }
        for text in [
            "",
            "5",
            "m",
            "1m1h",
            "1m1m",
            "-1m",
            "1.5h",
            "99999999999999y",
            "5 m",
            "1µs",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(format(5_400_250), "1h30m250ms");
        assert_eq!(format(0), "0s");
    }

    #[test]
    fn times_are_those_of_a_calendar() {
        // `date -u -d @SECONDS +%FT%T`
        let known = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_001, "2000-02-29T00:00:00.001Z"),
            (1_795_574_871_000, "2026-11-25T02:47:51.000Z"),
            (4_107_542_399_999, "2100-02-28T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
        ];
        for (at_ms, text) in known {
            assert_eq!(rfc3339(at_ms), text);
        }
    }
}
