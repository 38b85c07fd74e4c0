//! StatsD, with the additions of DogStatsD.
//!
//! ```text
//! name:value[:value…]|type[|@rate][|#tag:value,tag][|Ttime]
//! ```
//!
//! Types: `c` counter, `g` gauge (`+` or `-` in front changes it), `ms` timer, `h` histogram, `d` distribution, `s`
//! set. An [`Event`] is one value as it was sent; summing events up over an interval is the receiver's. Events and
//! service checks of DogStatsD (`_e{…}`, `_sc|…`) are [`Code::Unsupported`]; fields that are not known, such as a
//! container's id, are passed over.

use super::names::{label_name, metric_name};
use super::{Code, Fault};
use crate::{Labels, NAME};
use std::borrow::Cow;
use std::io::Write as _;

/// Effect of an event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change<'a> {
    /// `c`: adds to a counter. The sample rate is accounted for: `1|c|@0.1` adds 10.
    Count(f64),
    /// `g`: sets a gauge.
    Set(f64),
    /// `g` with a sign: changes a gauge.
    Add(f64),
    /// `ms`, `h` or `d`: one observation that stands for `weight` ones. Times are in ms, as they are sent.
    Observe {
        /// The value.
        value: f64,
        /// Observations that it stands for, by the sample rate.
        weight: f64,
    },
    /// `s`: a member of a set.
    Member(&'a str),
}

/// One value of one line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event<'a> {
    /// Name as it was sent.
    pub name: &'a str,
    /// Effect of the event.
    pub change: Change<'a>,
    /// Tags as they stand: `tag:value,tag`.
    pub tags: &'a str,
    /// Time in ms since 1970, if the line has one.
    pub at_ms: Option<i64>,
}

impl Event<'_> {
    /// Returns the labels of the event: the name made legal, and the tags. A tag without a value has the value `true`.
    ///
    /// # Errors
    ///
    /// [`Code::BadLabels`] if two tags are equal once their names are legal, or one is too long.
    pub fn labels(&self) -> Result<Labels, Code> {
        let tags = self.tags.split(',').filter(|tag| !tag.is_empty());
        let tags = tags.map(|tag| {
            let (name, value) = tag.split_once(':').unwrap_or((tag, "true"));
            (label_name(name), value)
        });
        let name = metric_name(self.name);
        Labels::new(tags.chain([(Cow::Borrowed(NAME), name.as_ref())])).map_err(|_| Code::BadLabels)
    }
}

/// Returns the events of `bytes`, one or more lines.
#[must_use]
pub fn decode(bytes: &[u8]) -> Events<'_> {
    Events {
        bytes,
        at: 0,
        line: None,
    }
}

/// Iterator over the events of a datagram.
#[derive(Clone, Debug)]
pub struct Events<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Line whose values are given out.
    line: Option<Line<'a>>,
}

/// One line whose values are not yet read.
#[derive(Clone, Copy, Debug)]
struct Line<'a> {
    name: &'a str,
    values: &'a str,
    kind: Kind,
    rate: f64,
    tags: &'a str,
    at_ms: Option<i64>,
    offset: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Counter,
    Gauge,
    Observation,
    Set,
}

impl<'a> Iterator for Events<'a> {
    type Item = Result<Event<'a>, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(line) = &mut self.line {
                // A member of a set may hold colons.
                let value = match line.values.split_once(':') {
                    Some((value, rest)) if line.kind != Kind::Set => {
                        line.values = rest;
                        value
                    }
                    _ => std::mem::take(&mut line.values),
                };
                let line = *line;
                if line.values.is_empty() {
                    self.line = None;
                }
                return Some(line.event(value));
            }
            let offset = self.at;
            let rest = self.bytes.get(offset..).filter(|rest| !rest.is_empty())?;
            let line = rest.split(|&byte| byte == b'\n').next().unwrap_or_default();
            self.at += line.len() + 1;
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                continue;
            }
            match Line::of(line, offset) {
                Ok(line) => self.line = Some(line),
                Err(code) => return Some(Err(Fault { code, offset })),
            }
        }
    }
}

impl<'a> Line<'a> {
    fn of(line: &'a [u8], offset: usize) -> Result<Self, Code> {
        let line = std::str::from_utf8(line).map_err(|_| Code::NotUtf8)?;
        if line.starts_with("_e{") || line.starts_with("_sc|") {
            return Err(Code::Unsupported);
        }
        let mut parts = line.split('|');
        let head = parts.next().unwrap_or_default();
        let (name, values) = head.split_once(':').ok_or(Code::NoFields)?;
        if name.is_empty() || name.contains(char::is_control) {
            return Err(Code::BadSeries);
        }
        if values.is_empty() {
            return Err(Code::BadNumber);
        }
        let kind = match parts.next() {
            Some("c" | "m") => Kind::Counter,
            Some("g") => Kind::Gauge,
            Some("ms" | "h" | "d") => Kind::Observation,
            Some("s") => Kind::Set,
            _ => return Err(Code::BadField),
        };
        let mut line = Self {
            name,
            values,
            kind,
            rate: 1.0,
            tags: "",
            at_ms: None,
            offset,
        };
        for part in parts {
            if let Some(rate) = part.strip_prefix('@') {
                line.rate = number(rate)?;
                if !(line.rate > 0.0 && line.rate <= 1.0) {
                    return Err(Code::BadNumber);
                }
            } else if let Some(tags) = part.strip_prefix('#') {
                line.tags = tags;
            } else if let Some(time) = part.strip_prefix('T') {
                let seconds: i64 = time.parse().map_err(|_| Code::BadTime)?;
                line.at_ms = Some(seconds.checked_mul(1000).ok_or(Code::BadTime)?);
            }
        }
        Ok(line)
    }

    fn event(&self, value: &'a str) -> Result<Event<'a>, Fault> {
        let change = match self.kind {
            Kind::Set => Ok(Change::Member(value)),
            Kind::Counter => number(value).map(|value| Change::Count(value / self.rate)),
            Kind::Gauge if value.starts_with(['+', '-']) => number(value).map(Change::Add),
            Kind::Gauge => number(value).map(Change::Set),
            Kind::Observation => number(value).map(|value| Change::Observe {
                value,
                weight: 1.0 / self.rate,
            }),
        };
        match change {
            Ok(change) => Ok(Event {
                name: self.name,
                change,
                tags: self.tags,
                at_ms: self.at_ms,
            }),
            Err(code) => Err(Fault {
                code,
                offset: self.offset,
            }),
        }
    }
}

/// A finite number in decimals.
fn number(text: &str) -> Result<f64, Code> {
    let has_digits = text.bytes().any(|byte| byte.is_ascii_digit());
    let value: f64 = text.parse().map_err(|_| Code::BadNumber)?;
    if has_digits && value.is_finite() {
        Ok(value)
    } else {
        Err(Code::BadNumber)
    }
}

/// Reason why an event cannot be written. What was written of it is taken back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} cannot be written, expected a text without any of `:|@#,` and line ends, or a finite number"
)]
pub struct EncodeError(String);

/// Appends one line with its line end to `out`. Observations are written as histograms; a gauge below zero takes two
/// lines, since a sign means a change.
///
/// # Errors
///
/// If a name, tag or member has characters that the format gives a meaning to, or a number is not finite.
pub fn write<'a>(
    out: &mut Vec<u8>,
    name: &str,
    change: Change<'_>,
    tags: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<(), EncodeError> {
    let start = out.len();
    let result = line(out, name, change, tags);
    if result.is_err() {
        out.truncate(start);
    }
    result
}

fn line<'a>(
    out: &mut Vec<u8>,
    name: &str,
    change: Change<'_>,
    tags: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<(), EncodeError> {
    let plain = |text: &str, also: &[char]| {
        let is_bad = |char: char| char.is_control() || "|@#".contains(char) || also.contains(&char);
        if text.is_empty() || text.contains(is_bad) {
            return Err(EncodeError(text.to_owned()));
        }
        Ok(())
    };
    let finite = |value: f64| match value.is_finite() {
        true => Ok(value),
        false => Err(EncodeError(value.to_string())),
    };
    let mut tail = String::new();
    let mut sign = "|#";
    for (tag, value) in tags.into_iter().filter(|tag| !tag.1.is_empty()) {
        plain(tag, &[':', ','])?;
        plain(value, &[','])?;
        tail.extend([sign, tag, ":", value]);
        sign = ",";
    }
    plain(name, &[':'])?;
    let written = match change {
        Change::Count(value) => writeln!(out, "{name}:{}|c{tail}", finite(value)?),
        Change::Set(value) if finite(value)?.is_sign_negative() => {
            writeln!(out, "{name}:0|g{tail}\n{name}:{value}|g{tail}")
        }
        Change::Set(value) => writeln!(out, "{name}:{value}|g{tail}"),
        Change::Add(value) => writeln!(out, "{name}:{:+}|g{tail}", finite(value)?),
        Change::Observe { value, weight } => {
            finite(weight)?;
            if weight == 1.0 {
                writeln!(out, "{name}:{}|h{tail}", finite(value)?)
            } else {
                writeln!(out, "{name}:{}|h|@{}{tail}", finite(value)?, 1.0 / weight)
            }
        }
        Change::Member(value) => {
            plain(value, &[])?;
            writeln!(out, "{name}:{value}|s{tail}")
        }
    };
    written.expect("a Vec takes all");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(input: &[u8]) -> Vec<String> {
        let events = decode(input).map(|event| match event {
            Ok(event) => {
                let labels = event.labels();
                let labels =
                    labels.map_or_else(|code| code.to_string(), |labels| labels.to_string());
                let at_ms = event.at_ms.map(|at_ms| format!(" @{at_ms}"));
                format!("{labels} {:?}{}", event.change, at_ms.unwrap_or_default())
            }
            Err(fault) => format!("{}@{}", fault.code, fault.offset),
        });
        events.collect()
    }

    #[track_caller]
    fn check(input: &str, expected: &[&str]) {
        assert_eq!(all(input.as_bytes()), expected, "{input}");
    }

    #[test]
    fn every_type_has_its_change() {
        check(
            "page.views:1|c\nfuel:0.5|g\r\n",
            &["page_views Count(1.0)", "fuel Set(0.5)"],
        );
        check("a:1|c|@0.1", &["a Count(10.0)"]);
        check("a:+2|g\na:-3|g", &["a Add(2.0)", "a Add(-3.0)"]);
        check(
            "t:12.5|ms|@0.5",
            &["t Observe { value: 12.5, weight: 2.0 }"],
        );
        check("u:a:b|s", &[r#"u Member("a:b")"#]);
        check(
            "t:1:2|d|#env:prod,debug|c:abc|T1700000000",
            &[
                r#"t{debug="true", env="prod"} Observe { value: 1.0, weight: 1.0 } @1700000000000"#,
                r#"t{debug="true", env="prod"} Observe { value: 2.0, weight: 1.0 } @1700000000000"#,
            ],
        );
    }

    #[test]
    fn bad_lines_are_named_and_their_neighbours_kept() {
        for (bad, code) in [
            ("a", "no-fields"),
            (":1|c", "bad-series"),
            ("a:|c", "bad-number"),
            ("a:x|c", "bad-number"),
            ("a:inf|c", "bad-number"),
            ("a:nan|g", "bad-number"),
            ("a:1", "bad-field"),
            ("a:1|q", "bad-field"),
            ("a:1|c|@0", "bad-number"),
            ("a:1|c|@2", "bad-number"),
            ("a:1|c|Tx", "bad-time"),
            ("_e{1,2}:a|bb", "unsupported"),
            ("_sc|a|0", "unsupported"),
        ] {
            let fault = format!("{code}@0");
            check(&format!("{bad}\nok:1|c"), &[&fault, "ok Count(1.0)"]);
        }
        check(
            "a:1:x:2|h",
            &[
                "a Observe { value: 1.0, weight: 1.0 }",
                "bad-number@0",
                "a Observe { value: 2.0, weight: 1.0 }",
            ],
        );
        check("a:1|c|#x:1,x:2", &["bad-labels Count(1.0)"]);
        assert_eq!(all(b"\xff:1|c\nok:1|c")[0], "not-utf8@0");
    }

    #[test]
    fn what_the_format_cannot_carry_is_refused() {
        let mut out = Vec::new();
        for (name, change, tag) in [
            ("a|b", Change::Count(1.0), "x"),
            ("", Change::Count(1.0), "x"),
            ("a", Change::Set(f64::NAN), "x"),
            ("a", Change::Member("b\n"), "x"),
            ("a", Change::Count(1.0), "x,y"),
        ] {
            assert!(write(&mut out, name, change, [(tag, "1")]).is_err());
            assert!(out.is_empty());
        }
    }

    fn change() -> impl Strategy<Value = Change<'static>> {
        let value = -1e9..1e9_f64;
        prop_oneof![
            value.clone().prop_map(Change::Count),
            (0.0..1e9).prop_map(Change::Set),
            value.clone().prop_map(Change::Add),
            value.prop_map(|value| Change::Observe { value, weight: 1.0 }),
            Just(Change::Member("some:one")),
        ]
    }

    /// Any byte, and often one that means something.
    fn byte() -> impl Strategy<Value = u8> {
        prop_oneof![any::<u8>(), proptest::sample::select(b":|@#,1c\n".to_vec())]
    }

    proptest! {
        #[test]
        fn events_come_back(
            change in change(),
            tags in proptest::collection::btree_map("[a-z]{1,4}", "[a-z:.]{1,5}", 0..4),
        ) {
            let pairs = || tags.iter().map(|(key, value)| (key.as_str(), value.as_str()));
            let mut out = Vec::new();
            write(&mut out, "name", change, pairs()).unwrap();
            let events: Result<Vec<_>, _> = decode(&out).collect();
            let events = events.unwrap();
            prop_assert_eq!(events.len(), 1);
            prop_assert_eq!(events[0].change, change);
            let labels = Labels::new(pairs().chain([(NAME, "name")])).unwrap();
            prop_assert_eq!(events[0].labels(), Ok(labels));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(byte(), 0..60)) {
            for event in decode(&bytes) {
                match event {
                    Ok(event) => drop(event.labels()),
                    Err(fault) => prop_assert!(fault.offset <= bytes.len()),
                }
            }
        }
    }
}
