//! Slow path: which labels does a series part name?

use crate::wire::names::{label_name, metric_name};
use crate::wire::{Code, Fault};
use crate::{Labels, NAME};
use std::borrow::Cow;

/// Measurement and tags of a series part, without their escapes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series<'a> {
    /// Name of the measurement.
    pub measurement: Cow<'a, str>,
    /// Tags in the order of the line.
    pub tags: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

impl<'a> Series<'a> {
    /// Takes a series part apart, [`Line::series`](super::Line::series).
    ///
    /// # Errors
    ///
    /// [`Code::BadSeries`] or [`Code::NotUtf8`], at the offset in `series`.
    pub fn parse(series: &'a [u8]) -> Result<Self, Fault> {
        let text = std::str::from_utf8(series).map_err(|error| Fault {
            code: Code::NotUtf8,
            offset: error.valid_up_to(),
        })?;
        let bad = |offset| Fault {
            code: Code::BadSeries,
            offset,
        };
        if let Some(offset) = text.find(['\t', '\r', '\0']) {
            return Err(bad(offset));
        }
        let mut pieces = split(text, ',');
        let (at, measurement) = pieces.next().expect("a split has a first piece");
        let measurement = checked(measurement, &[',', ' ', '\\']).ok_or(bad(at))?;
        let tags = pieces.map(|(at, tag)| {
            let mut halves = split(tag, '=');
            let (_, key) = halves.next().expect("a split has a first piece");
            // Further `=` belong to the value.
            let (value_at, _) = halves.next().ok_or(bad(at))?;
            let key = checked(key, &TAG).ok_or(bad(at))?;
            let value = checked(&tag[value_at..], &TAG).ok_or(bad(at + value_at))?;
            Ok((key, value))
        });
        Ok(Self {
            measurement,
            tags: tags.collect::<Result<_, _>>()?,
        })
    }

    /// Returns the labels of the field `field`, as it stands in the line: the name is the measurement for a field
    /// `value`, else `measurement_field`, made legal; tags are labels.
    ///
    /// # Errors
    ///
    /// [`Code::BadLabels`] if two tags are equal once their names are legal, or one is too long for [`Labels`];
    /// [`Code::NotUtf8`] for the field.
    pub fn labels(&self, field: &[u8]) -> Result<Labels, Code> {
        let name = self.name(field)?;
        let name = metric_name(&name);
        let tags = self.tags.iter();
        let tags = tags.map(|(key, value)| (label_name(key), value.as_ref()));
        Labels::new(tags.chain([(Cow::Borrowed(NAME), name.as_ref())])).map_err(|_| Code::BadLabels)
    }

    /// Returns the name of the metric before it is made legal. Two different ones that become equal collide.
    ///
    /// # Errors
    ///
    /// [`Code::NotUtf8`] for the field.
    pub fn name(&self, field: &[u8]) -> Result<Cow<'_, str>, Code> {
        let field = std::str::from_utf8(field).map_err(|_| Code::NotUtf8)?;
        if field == "value" {
            return Ok(Cow::Borrowed(&self.measurement));
        }
        Ok(Cow::Owned(format!(
            "{}_{}",
            self.measurement,
            unescaped(field, &TAG)
        )))
    }

    /// Value of the tag `key`.
    #[must_use]
    pub fn tag(&self, key: &str) -> Option<&str> {
        let tag = self.tags.iter().find(|tag| tag.0 == key);
        tag.map(|tag| tag.1.as_ref())
    }
}

/// Splits `text` at every `sign` that is not escaped; yields the offset of each piece, too.
fn split(text: &str, sign: char) -> impl Iterator<Item = (usize, &str)> {
    let mut is_escaped = false;
    let mut at = 0;
    text.split(move |char| {
        let is_sign = char == sign && !is_escaped;
        is_escaped = char == '\\' && !is_escaped;
        is_sign
    })
    .map(move |piece| {
        let start = at;
        at += piece.len() + sign.len_utf8();
        (start, piece)
    })
}

/// Characters that `\` escapes in tags and names of fields; in a measurement `=` is none of them.
const TAG: [char; 4] = [',', '=', ' ', '\\'];

/// Returns a name or value without its escapes; none if it is empty or ends with a `\`.
fn checked<'a>(text: &'a str, escapes: &[char]) -> Option<Cow<'a, str>> {
    (!text.is_empty() && !text.ends_with('\\')).then(|| unescaped(text, escapes))
}

/// `text` without the `\` before each of `escapes`; any other `\` stands for itself.
fn unescaped<'a>(text: &'a str, escapes: &[char]) -> Cow<'a, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        if char != '\\' {
            plain.push(char);
            continue;
        }
        match chars.next() {
            Some(escaped) if escapes.contains(&escaped) => plain.push(escaped),
            other => {
                plain.push('\\');
                plain.extend(other);
            }
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(series: &str, field: &str, expected: &str) {
        let labels = Series::parse(series.as_bytes())
            .map_err(|fault| fault.code)
            .and_then(|series| series.labels(field.as_bytes()));
        let found = labels.map_or_else(|code| code.to_string(), |labels| labels.to_string());
        assert_eq!(found, expected, "{series} {field}");
    }

    #[test]
    fn a_field_value_has_the_name_of_its_measurement() {
        check("cpu,host=a", "value", r#"cpu{host="a"}"#);
        check("cpu,host=a", "idle", r#"cpu_idle{host="a"}"#);
        check("cpu", "idle", "cpu_idle");
    }

    #[test]
    fn names_become_legal_and_values_stay() {
        check(
            "disk.io,mount-point=/a\\ b,x=\\,\\=",
            "read-bytes",
            r#"disk_io_read_bytes{mount_point="/a b", x=",="}"#,
        );
        check("m,a=b=c", "value", r#"m{a="b=c"}"#);
        check("m,path=C:\\dir", "value", r#"m{path="C:\\dir"}"#);
    }

    #[test]
    fn what_is_no_series_is_named() {
        for series in [
            "", ",a=1", "m,", "m,a", "m,a=", "m,=1", "m,a=1,", "m\\", "m\tn", "m,a=\0",
        ] {
            check(series, "value", "bad-series");
        }
        check("m,a.b=1,a-b=2", "value", "bad-labels");
        check("m,__name__=1", "value", "bad-labels");
        let fault = Series::parse(b"m,a=\xff").unwrap_err();
        assert_eq!((fault.code, fault.offset), (Code::NotUtf8, 4));
    }
}
