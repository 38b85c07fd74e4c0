//! Lines written.

use super::{Precision, Value};
use crate::{Labels, NAME, Sample};
use std::io::Write as _;

/// Reason why a line cannot be written. What was written of it is taken back.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EncodeError {
    /// A name, tag or field name that the format cannot carry; leave it out or replace its characters.
    #[error(
        "{0:?} cannot be written, expected a text without control characters and no `\\` at its end"
    )]
    Name(String),
    /// NaN or infinite, which the format has no words for; such a sample is left out.
    #[error("{0} cannot be written, expected a finite number")]
    NotFinite(f64),
    /// No field at all.
    #[error("the line has no field, expected one at least")]
    NoField,
    /// A time beyond the range of the precision.
    #[error("time {0} ms is beyond the range of the precision")]
    Time(i64),
}

/// Appends one line with its line end to `out`.
///
/// Tags with an empty value are left out. Numbers have the shortest form that reads back as the same value. A
/// [`Value::Text`] is written with escapes added to it.
///
/// # Errors
///
/// If the format cannot carry a name or value; `out` is as before.
pub fn write<'a>(
    out: &mut Vec<u8>,
    measurement: &str,
    tags: impl IntoIterator<Item = (&'a str, &'a str)>,
    fields: impl IntoIterator<Item = (&'a str, Value<'a>)>,
    at: Option<(i64, Precision)>,
) -> Result<(), EncodeError> {
    let start = out.len();
    let result = line(out, measurement, tags, fields, at);
    if result.is_err() {
        out.truncate(start);
    }
    result
}

/// Appends `sample` of the series `labels` to `out`, as one line with the field `value`.
///
/// # Errors
///
/// As of [`write()`](write()); labels without a name have no measurement, [`EncodeError::Name`].
pub fn write_sample(
    out: &mut Vec<u8>,
    labels: &Labels,
    sample: Sample,
    precision: Precision,
) -> Result<(), EncodeError> {
    write(
        out,
        labels.name().unwrap_or_default(),
        labels.iter().filter(|pair| pair.0 != NAME),
        [("value", Value::Float(sample.value))],
        Some((sample.at_ms, precision)),
    )
}

fn line<'a>(
    out: &mut Vec<u8>,
    measurement: &str,
    tags: impl IntoIterator<Item = (&'a str, &'a str)>,
    fields: impl IntoIterator<Item = (&'a str, Value<'a>)>,
    at: Option<(i64, Precision)>,
) -> Result<(), EncodeError> {
    if measurement.starts_with('#') {
        // A line that begins so is a comment.
        return Err(EncodeError::Name(measurement.to_owned()));
    }
    name(out, measurement, b", ")?;
    for (key, value) in tags.into_iter().filter(|tag| !tag.1.is_empty()) {
        out.push(b',');
        name(out, key, b",= ")?;
        out.push(b'=');
        name(out, value, b",= ")?;
    }
    let mut sign = b' ';
    for (key, value) in fields {
        out.push(sign);
        sign = b',';
        name(out, key, b",= ")?;
        out.push(b'=');
        self::value(out, value)?;
    }
    if sign == b' ' {
        return Err(EncodeError::NoField);
    }
    if let Some((at_ms, precision)) = at {
        let time = precision.of_ms(at_ms).ok_or(EncodeError::Time(at_ms))?;
        write!(out, " {time}").expect("a Vec takes all");
    }
    out.push(b'\n');
    Ok(())
}

/// Writes a name with `\` before each of `escaped`, and before a `\` that would escape what follows it.
fn name(out: &mut Vec<u8>, text: &str, escaped: &[u8]) -> Result<(), EncodeError> {
    let is_bad = |byte: u8| matches!(byte, b'\n' | b'\r' | b'\t' | 0);
    if text.is_empty() || text.ends_with('\\') || text.bytes().any(is_bad) {
        return Err(EncodeError::Name(text.to_owned()));
    }
    let bytes = text.as_bytes();
    for (at, &byte) in bytes.iter().enumerate() {
        let is_followed = || matches!(bytes.get(at + 1), Some(b',' | b'=' | b' ' | b'\\'));
        if escaped.contains(&byte) || (byte == b'\\' && is_followed()) {
            out.push(b'\\');
        }
        out.push(byte);
    }
    Ok(())
}

fn value(out: &mut Vec<u8>, value: Value<'_>) -> Result<(), EncodeError> {
    let written = match value {
        Value::Float(value) if !value.is_finite() => return Err(EncodeError::NotFinite(value)),
        // The form of `Debug` is the shortest, with an exponent where that is shorter.
        Value::Float(value) => {
            let start = out.len();
            let written = write!(out, "{value:?}");
            if out[start..].ends_with(b".0") {
                out.truncate(out.len() - 2);
            }
            written
        }
        Value::Int(value) => write!(out, "{value}i"),
        Value::Uint(value) => write!(out, "{value}u"),
        Value::Bool(value) => write!(out, "{value}"),
        Value::Text(text) => {
            out.push(b'"');
            for &byte in text {
                if matches!(byte, b'"' | b'\\') {
                    out.push(b'\\');
                }
                out.push(byte);
            }
            out.push(b'"');
            Ok(())
        }
    };
    written.expect("a Vec takes all");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{Decoder, Series};
    use super::*;
    use proptest::prelude::*;

    fn sample_line(name: &str, value: f64) -> Result<String, EncodeError> {
        let labels = Labels::new([(NAME, name), ("host", "a b")]).unwrap();
        let mut out = Vec::new();
        let sample = Sample { at_ms: 5, value };
        write_sample(&mut out, &labels, sample, Precision::Ms)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn numbers_are_as_short_as_they_can_be() {
        for (value, expected) in [
            (1234567.8, "1234567.8"),
            (2.0, "2"),
            (1e300, "1e300"),
            (-1e-7, "-1e-7"),
        ] {
            let expected = format!("rate,host=a\\ b value={expected} 5\n");
            assert_eq!(sample_line("rate", value), Ok(expected));
        }
    }

    #[test]
    fn what_the_format_cannot_carry_is_refused_and_nothing_is_written() {
        assert_eq!(
            sample_line("rate", f64::INFINITY),
            Err(EncodeError::NotFinite(f64::INFINITY))
        );
        for name in ["", "#a", "a\\", "a\nb"] {
            let expected = EncodeError::Name(name.to_owned());
            assert_eq!(sample_line(name, 1.0), Err(expected));
        }
        let mut out = b"before".to_vec();
        let none: [(&str, Value<'_>); 0] = [];
        assert_eq!(
            write(&mut out, "m", [], none, None),
            Err(EncodeError::NoField)
        );
        assert_eq!(out, b"before");
    }

    proptest! {
        #[test]
        fn samples_come_back(
            name in "[a-z_:]{1,9}",
            tags in proptest::collection::btree_map("[a-z]{1,5}", "[ -~µ]{1,12}", 0..5),
            value in any::<f64>().prop_filter("finite", |value| value.is_finite()),
            at_ms in -1_000_000_000_000_i64..9_000_000_000_000,
        ) {
            let pairs = tags.iter().map(|(key, value)| (key.as_str(), value.as_str()));
            let labels = Labels::new(pairs.chain([(NAME, name.as_str())])).unwrap();
            let sample = Sample { at_ms, value };
            let mut out = Vec::new();
            let result = write_sample(&mut out, &labels, sample, Precision::Ns);
            if tags.values().any(|value| value.ends_with('\\')) {
                prop_assert!(result.is_err());
                return Ok(());
            }
            prop_assert_eq!(result, Ok(()));
            let mut decoder = Decoder::default();
            let mut lines = decoder.lines(&out);
            let line = lines.next_line().unwrap().unwrap();
            let series = Series::parse(line.series).unwrap();
            let field = line.fields().next().unwrap();
            prop_assert_eq!(series.labels(field.name), Ok(labels));
            prop_assert_eq!(line.at_ms, Some(at_ms));
            prop_assert_eq!(field.value.number().unwrap().to_bits(), value.to_bits());
            prop_assert!(lines.next_line().is_none());
        }
    }
}
