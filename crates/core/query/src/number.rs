//! Numbers as Prometheus writes and reads them.
//!
//! Prometheus formats by Go's `strconv.FormatFloat` with the shortest digits that read back to the same number:
//! without exponent in scalars and label values, with one in samples below 1e-6 and from 1e21 on.

use std::fmt::Write;

/// Digits from which on two texts can be equally short and equally close to a number.
const DIGITS_OF_TIES: usize = 16;

/// Appends `value` without an exponent.
pub(crate) fn push_plain(text: &mut String, value: f64) {
    if value.is_infinite() {
        text.push_str(if value > 0.0 { "+Inf" } else { "-Inf" });
        return;
    }
    let start = text.len();
    // `Display` never takes an exponent.
    let _ = write!(text, "{value}");
    let digits = &text[start..];
    if let Some(point) = digits.rfind('.')
        && digits.len() > DIGITS_OF_TIES
    {
        // Of two such texts Rust takes the larger number, Go the even one, which is that of exact rounding.
        let even = format!("{value:.*}", digits.len() - point - 1);
        replace(text, start, &even, value);
    }
}

/// Appends `value` as a sample of the HTTP API.
pub(crate) fn push_sample(text: &mut String, value: f64) {
    let size = value.abs();
    if !value.is_finite() || size == 0.0 || (1e-6..1e21).contains(&size) {
        push_plain(text, value);
        return;
    }
    let start = text.len();
    let _ = write!(text, "{value:e}");
    let digits = text[start..].find('e').unwrap_or_default();
    if digits > DIGITS_OF_TIES {
        let decimals = text[start..start + digits].split('.').nth(1);
        let even = format!("{value:.*e}", decimals.map_or(0, str::len));
        replace(text, start, &even, value);
    }
    let exponent = start + text[start..].find('e').map_or(0, |at| at + 1);
    let (sign, digits) = match text[exponent..].strip_prefix('-') {
        Some(digits) => ('-', digits.to_owned()),
        None => ('+', text[exponent..].to_owned()),
    };
    text.truncate(exponent);
    let _ = write!(text, "{sign}{digits:0>2}");
}

/// Replaces what stands from `start` on by `other`, if that reads back to `value` as well.
fn replace(text: &mut String, start: usize, other: &str, value: f64) {
    if other.parse() == Ok(value) {
        text.truncate(start);
        text.push_str(other);
    }
}

/// Returns `value` as the value of a label, as `count_values` makes it.
pub(crate) fn plain(value: f64) -> String {
    let mut text = String::new();
    push_plain(&mut text, value);
    text
}

/// Returns the number that the label `le` of a bucket holds, by the rules of Go's `strconv.ParseFloat`.
pub(crate) fn parse_bound(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_word = ["inf", "infinity", "nan"]
        .iter()
        .any(|word| unsigned.eq_ignore_ascii_case(word));
    let is_decimal = unsigned.starts_with(|one: char| one.is_ascii_digit() || one == '.');
    // Go takes no sign before NaN and an error for what overflows; Rust gives an infinity.
    let is_signed_nan = unsigned.eq_ignore_ascii_case("nan") && unsigned.len() < text.len();
    let value: f64 = (is_word || is_decimal)
        .then(|| text.parse().ok())
        .flatten()?;
    (!is_signed_nan && (is_word || value.is_finite())).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(value: f64) -> String {
        let mut text = String::new();
        push_sample(&mut text, value);
        text
    }

    #[test]
    fn numbers_look_as_go_formats_them() {
        let cases = [
            (0.0, "0", "0"),
            (-0.0, "-0", "-0"),
            (1.0, "1", "1"),
            (0.1 + 0.2, "0.30000000000000004", "0.30000000000000004"),
            (1e-6, "0.000001", "0.000001"),
            (1.5e-7, "0.00000015", "1.5e-07"),
            (-2.5e-123, &format!("-0.{}25", "0".repeat(122)), "-2.5e-123"),
            (1e20, "100000000000000000000", "100000000000000000000"),
            (1e21, "1000000000000000000000", "1e+21"),
            (f64::NAN, "NaN", "NaN"),
            (f64::INFINITY, "+Inf", "+Inf"),
            (f64::NEG_INFINITY, "-Inf", "-Inf"),
        ];
        for (value, expected_plain, expected_sample) in cases {
            assert_eq!(
                (plain(value).as_str(), sample(value).as_str()),
                (expected_plain, expected_sample)
            );
        }
    }

    #[test]
    fn of_two_equally_close_texts_the_even_one_is_taken() {
        let quarter = 0.25;
        assert_eq!(sample(593_191_791_202_568.0 + quarter), "593191791202568.2");
        assert_eq!(
            sample(-1_368_318_061_426_060.0 - quarter),
            "-1368318061426060.2"
        );
        assert_eq!(
            plain(1_368_318_061_426_061.0 - quarter),
            "1368318061426060.8"
        );
    }

    #[test]
    fn bounds_are_read_as_go_reads_them() {
        let read = [
            ("0.5", 0.5),
            ("+Inf", f64::INFINITY),
            ("-inf", f64::NEG_INFINITY),
        ];
        for (text, value) in read {
            assert_eq!(parse_bound(text), Some(value), "{text}");
        }
        assert!(parse_bound("NaN").is_some_and(f64::is_nan));
        for text in ["", "x", "1x", " 1", "-NaN", "1e999"] {
            assert_eq!(parse_bound(text), None, "{text}");
        }
    }
}
