//! Prometheus text exposition 0.0.4 and OpenMetrics 1.0 text: what a scrape reads.
//!
//! Both are lines `name{label="value"} value time`; [`Format`] says where they differ: times are ms in the older one and
//! seconds in OpenMetrics, which has units, exemplars (passed over) and an end `# EOF` as well. Names and values are
//! taken as they stand. Sheaf's own processes write the older text (`sheaf-metrics`).

use super::names::{is_label_name, is_metric_name};
use super::{Code, Fault, Kind, Metadata};
use crate::{Labels, NAME};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Which of the two texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `text/plain; version=0.0.4`
    Text,
    /// `application/openmetrics-text; version=1.0.0`
    OpenMetrics,
}

impl Format {
    /// Header `Accept` of a scrape that reads both.
    pub const ACCEPT: &'static str =
        "application/openmetrics-text;version=1.0.0;q=0.9,text/plain;version=0.0.4;q=0.5";

    /// Returns the format of a header `Content-Type`; without a known one it is the older text, as in Prometheus.
    #[must_use]
    pub fn of_content_type(content_type: &str) -> Self {
        let media = content_type.split(';').next().unwrap_or_default().trim();
        if media.eq_ignore_ascii_case("application/openmetrics-text") {
            Self::OpenMetrics
        } else {
            Self::Text
        }
    }
}

/// One good line.
#[derive(Clone, Debug, PartialEq)]
pub enum Record<'a> {
    /// Value of a series.
    Sample {
        /// Labels with the name.
        labels: Labels,
        /// Value: any, NaN and infinities included.
        value: f64,
        /// Time in ms since 1970; without one it is that of the scrape.
        at_ms: Option<i64>,
    },
    /// `# TYPE`: name and kind.
    Kind(&'a str, Kind),
    /// `# HELP`: name and text.
    Help(&'a str, Cow<'a, str>),
    /// `# UNIT`: name and unit.
    Unit(&'a str, &'a str),
    /// `# EOF`: the end of OpenMetrics. Without it the text was cut.
    End,
}

/// Adds what a record says of a metric to `all`, by name; a sample says nothing.
pub fn describe(all: &mut BTreeMap<String, Metadata>, record: &Record<'_>) {
    let (Record::Kind(family, _) | Record::Help(family, _) | Record::Unit(family, _)) = record
    else {
        return;
    };
    let metadata = all.entry((*family).to_owned()).or_insert_with(|| Metadata {
        family: (*family).to_owned(),
        ..Metadata::default()
    });
    match record {
        Record::Kind(_, kind) => metadata.kind = *kind,
        Record::Help(_, help) => metadata.help = help.clone().into_owned(),
        Record::Unit(_, unit) => metadata.unit = (*unit).to_owned(),
        Record::Sample { .. } | Record::End => {}
    }
}

/// Returns the records of `bytes`, the answer to a scrape.
#[must_use]
pub fn decode(bytes: &[u8], format: Format) -> Records<'_> {
    Records {
        bytes,
        at: 0,
        format,
    }
}

/// Iterator over the lines of a text. Comments and empty lines are passed over.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    at: usize,
    format: Format,
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let start = self.at;
            let rest = self.bytes.get(start..).filter(|rest| !rest.is_empty())?;
            // Line ends in labels are escaped, so a line ends at the first one.
            let line = rest.split(|&byte| byte == b'\n').next().unwrap_or_default();
            self.at += line.len() + 1;
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let record = match std::str::from_utf8(line) {
                Ok(line) if line.trim().is_empty() => continue,
                Ok(line) => match line.strip_prefix('#') {
                    Some(comment) => match self.comment(comment) {
                        Ok(Some(record)) => Ok(record),
                        Ok(None) => continue,
                        Err(code) => Err((code, 0)),
                    },
                    None => Scan { line, at: 0 }.sample(self.format),
                },
                Err(error) => Err((Code::NotUtf8, error.valid_up_to())),
            };
            return Some(record.map_err(|(code, at)| Fault {
                code,
                offset: start + at,
            }));
        }
    }
}

impl<'a> Records<'a> {
    /// Record of a line behind its `#`; none for a comment.
    fn comment(&self, comment: &'a str) -> Result<Option<Record<'a>>, Code> {
        let is_open = self.format == Format::OpenMetrics;
        let comment = comment.trim_start_matches([' ', '\t']);
        let (word, rest) = comment.split_once([' ', '\t']).unwrap_or((comment, ""));
        let (name, text) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
        match word {
            "EOF" if is_open && rest.is_empty() => return Ok(Some(Record::End)),
            "TYPE" | "HELP" => {}
            "UNIT" if is_open => {}
            _ => return Ok(None),
        }
        if !is_metric_name(name) {
            return Err(Code::BadSeries);
        }
        Ok(Some(match word {
            "TYPE" => {
                let kind = Kind::of_word(text.trim()).ok_or(Code::Unsupported)?;
                Record::Kind(name, kind)
            }
            "HELP" => Record::Help(name, unescaped(text)),
            _ => Record::Unit(name, text.trim()),
        }))
    }
}

type Bad = (Code, usize);

/// Reader of one line.
struct Scan<'a> {
    line: &'a str,
    at: usize,
}

impl<'a> Scan<'a> {
    fn rest(&self) -> &'a str {
        &self.line[self.at..]
    }

    fn skip(&mut self, signs: &[char]) {
        self.at = self.line.len() - self.rest().trim_start_matches(signs).len();
    }

    fn accept(&mut self, sign: char) -> bool {
        let is_next = self.rest().starts_with(sign);
        self.at += usize::from(is_next) * sign.len_utf8();
        is_next
    }

    /// Passes over all up to the first of `signs`, or to the end.
    fn until(&mut self, signs: &[char]) -> &'a str {
        let rest = self.rest();
        let text = &rest[..rest.find(signs).unwrap_or(rest.len())];
        self.at += text.len();
        text
    }

    fn sample(&mut self, format: Format) -> Result<Record<'a>, Bad> {
        const SPACES: [char; 2] = [' ', '\t'];
        self.skip(&SPACES);
        let start = self.at;
        let name = self.until(&['{', ' ', '\t']);
        if !is_metric_name(name) {
            return Err((Code::BadSeries, start));
        }
        self.skip(&SPACES);
        let mut pairs = vec![(NAME, Cow::Borrowed(name))];
        if self.accept('{') {
            loop {
                self.skip(&SPACES);
                if self.accept('}') {
                    break;
                }
                pairs.push(self.pair()?);
                self.skip(&SPACES);
                if !self.accept(',') && !self.rest().starts_with('}') {
                    return Err((Code::BadSeries, self.at));
                }
            }
        }
        let labels = Labels::new(pairs).map_err(|_| (Code::BadLabels, start))?;
        self.skip(&SPACES);
        let value_at = self.at;
        let value = number(self.until(&SPACES)).ok_or((Code::BadNumber, value_at))?;
        self.skip(&SPACES);
        let time_at = self.at;
        let is_open = format == Format::OpenMetrics;
        let text = if is_open && self.rest().starts_with('#') {
            ""
        } else {
            self.until(&SPACES)
        };
        let at_ms = match text {
            "" => None,
            text => Some(time(text, format).ok_or((Code::BadTime, time_at))?),
        };
        self.skip(&SPACES);
        let has_exemplar = is_open && self.rest().starts_with('#');
        if !self.rest().is_empty() && !has_exemplar {
            return Err((Code::BadField, self.at));
        }
        Ok(Record::Sample {
            labels,
            value,
            at_ms,
        })
    }

    fn pair(&mut self) -> Result<(&'a str, Cow<'a, str>), Bad> {
        let start = self.at;
        let name = self.until(&['=', ' ', '\t', ',', '}', '"']);
        if !is_label_name(name) {
            return Err((Code::BadSeries, start));
        }
        self.skip(&[' ', '\t']);
        if !self.accept('=') {
            return Err((Code::BadSeries, self.at));
        }
        self.skip(&[' ', '\t']);
        let quote = self.at;
        if !self.accept('"') {
            return Err((Code::BadSeries, quote));
        }
        let value = self.rest();
        let mut is_escaped = false;
        let end = value.find(|char: char| {
            let is_end = char == '"' && !is_escaped;
            is_escaped = char == '\\' && !is_escaped;
            is_end
        });
        let end = end.ok_or((Code::OpenQuote, quote))?;
        self.at += end + 1;
        Ok((name, unescaped(&value[..end])))
    }
}

/// `text` with `\\`, `\n` and `\"` as what they stand for.
fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match (char, char == '\\') {
            (char, false) => plain.push(char),
            (_, true) => match chars.next() {
                Some('n') => plain.push('\n'),
                Some(escaped @ ('\\' | '"')) => plain.push(escaped),
                other => {
                    plain.push('\\');
                    plain.extend(other);
                }
            },
        }
    }
    Cow::Owned(plain)
}

fn number(text: &str) -> Option<f64> {
    let is_plain = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
    let bare = text.strip_prefix(['+', '-']).unwrap_or(text);
    match bare.to_ascii_lowercase().as_str() {
        "nan" => Some(f64::NAN),
        "inf" | "infinity" => text.parse().ok(),
        _ if text.bytes().all(is_plain) => text.parse().ok(),
        _ => None,
    }
}

fn time(text: &str, format: Format) -> Option<i64> {
    match format {
        Format::Text => text.parse().ok(),
        Format::OpenMetrics => {
            let ms = (number(text)? * 1000.0).round();
            // Beyond 2^53 an f64 has no single ms any more.
            let is_near = ms.abs() <= 9_007_199_254_740_992.0;
            #[expect(clippy::cast_possible_truncation, reason = "a whole number below 2^53")]
            is_near.then_some(ms as i64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(input: &[u8], format: Format) -> Vec<String> {
        let records = decode(input, format).map(|record| match record {
            Ok(Record::Sample {
                labels,
                value,
                at_ms,
            }) => {
                let at_ms = at_ms.map(|at_ms| format!(" @{at_ms}"));
                format!("{labels} {value}{}", at_ms.unwrap_or_default())
            }
            Ok(other) => format!("{other:?}"),
            Err(fault) => format!("{}@{}", fault.code, fault.offset),
        });
        records.collect()
    }

    #[test]
    fn the_older_text_is_read() {
        let text = "# HELP http_total Requests \\\\ by\\ncode.\n# TYPE http_total counter\n# a comment\n\
            http_total{method=\"post\",code=\"200\",} 1027 1395066363000\n\
            up 1\n  msdos{ path = \"C:\\\\DIR\\\"\\n\" } 1.458255915e9\nweird{le=\"+Inf\"} +Inf -3982045\r\nnan NaN\n";
        let expected = [
            r#"Help("http_total", "Requests \\ by\ncode.")"#,
            r#"Kind("http_total", Counter)"#,
            r#"http_total{code="200", method="post"} 1027 @1395066363000"#,
            "up 1",
            r#"msdos{path="C:\\DIR\"\n"} 1458255915"#,
            r#"weird{le="+Inf"} inf @-3982045"#,
            "nan NaN",
        ];
        assert_eq!(all(text.as_bytes(), Format::Text), expected);
    }

    #[test]
    fn open_metrics_has_seconds_units_exemplars_and_an_end() {
        let text = "# TYPE a_seconds counter\n# UNIT a_seconds seconds\n\
            a_seconds_total{x=\"1\"} 17.0 1520879607.789 # {trace=\"KOO\"} 9.8 1520879607.7\n\
            a_seconds_total 1 # {} 2\n# EOF\n";
        let expected = [
            r#"Kind("a_seconds", Counter)"#,
            r#"Unit("a_seconds", "seconds")"#,
            r#"a_seconds_total{x="1"} 17 @1520879607789"#,
            "a_seconds_total 1",
            "End",
        ];
        assert_eq!(all(text.as_bytes(), Format::OpenMetrics), expected);
        let kind =
            Format::of_content_type("application/openmetrics-text; version=1.0.0; charset=utf-8");
        assert_eq!(kind, Format::OpenMetrics);
        assert_eq!(Format::of_content_type("text/plain"), Format::Text);
    }

    #[test]
    fn bad_lines_are_named_and_their_neighbours_kept() {
        for (bad, fault) in [
            ("0a 1", "bad-series@0"),
            ("a{b} 1", "bad-series@3"),
            ("a{b=c} 1", "bad-series@4"),
            ("a{b=\"c} 1", "open-quote@4"),
            ("a{b=\"c\"d=\"e\"} 1", "bad-series@7"),
            ("a{b=\"c\"", "bad-series@7"),
            ("a{b=\"c\",b=\"d\"} 1", "bad-labels@0"),
            ("a", "bad-number@1"),
            ("a x", "bad-number@2"),
            ("a 0x10", "bad-number@2"),
            ("a 1 x", "bad-time@4"),
            ("a 1 2 3", "bad-field@6"),
            ("# TYPE a speed", "unsupported@0"),
            ("# TYPE 0a gauge", "bad-series@0"),
        ] {
            let lines = all(format!("{bad}\nok 1").as_bytes(), Format::Text);
            assert_eq!(lines, [fault, "ok 1"], "{bad}");
        }
    }

    #[test]
    fn descriptions_come_together_by_name() {
        let text = b"# TYPE a gauge\n# HELP a Help.\na 1\n# UNIT a s\n";
        let mut metadata = BTreeMap::new();
        for record in decode(text, Format::OpenMetrics) {
            describe(&mut metadata, &record.unwrap());
        }
        let expected = Metadata {
            family: "a".to_owned(),
            kind: Kind::Gauge,
            help: "Help.".to_owned(),
            unit: "s".to_owned(),
        };
        assert_eq!(metadata.into_values().collect::<Vec<_>>(), [expected]);
    }

    fn byte() -> impl Strategy<Value = u8> {
        prop_oneof![
            any::<u8>(),
            proptest::sample::select(b"a{=\"},1 \\\n#".to_vec())
        ]
    }

    proptest! {
        #[test]
        fn labels_come_back(labels in proptest::collection::btree_map("[a-z_]{1,6}", ".{1,10}", 0..4), value in any::<f64>()) {
            let escape = |text: &str| text.replace('\\', "\\\\").replace('\n', "\\n").replace('"', "\\\"");
            let pairs: Vec<_> = labels.iter().map(|(name, text)| format!("{name}=\"{}\"", escape(text))).collect();
            let text = format!("m{{{}}} {value}\n", pairs.join(","));
            let pairs = labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            let expected = Labels::new(pairs.chain([(NAME, "m")])).unwrap();
            let record = decode(text.as_bytes(), Format::Text).next().unwrap();
            let Ok(Record::Sample { labels, value: found, .. }) = record else {
                return Err(TestCaseError::fail(format!("{record:?} of {text}")));
            };
            prop_assert_eq!(labels, expected);
            prop_assert!(found == value || (found.is_nan() && value.is_nan()));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(byte(), 0..60)) {
            for format in [Format::Text, Format::OpenMetrics] {
                for fault in decode(&bytes, format).filter_map(Result::err) {
                    prop_assert!(fault.offset <= bytes.len());
                }
            }
        }
    }
}
