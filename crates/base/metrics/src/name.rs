//! Rules of the names of metrics and labels.
//!
//! Stricter than Prometheus: lower case only, so that two spellings of one name cannot arise, and the
//! ending says the kind, as STYLE.md wants it.

use std::fmt;

/// Kind of a metric, which decides how the name ends and how the value is written out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Number of events since the process started.
    Counter,
    /// Value at this moment.
    Gauge,
    /// Distribution of values.
    Histogram,
    /// Single values, each of which is sent.
    Event,
}

impl Kind {
    /// Returns the word of the `# TYPE` line and of the reference page.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Event => "event",
        }
    }
}

/// Why a metric cannot have this name or these labels.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NameError {
    Metric(String),
    Counter(String),
    Unit { name: String, unit: String },
    Suffix { name: String, suffix: &'static str },
    Label { name: String, label: String },
    Twice { name: String, label: String },
    Help(String),
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Metric(name) => {
                write!(f, "metric is called {name:?}, expected [a-z][a-z0-9_]*")
            }
            Self::Counter(name) => {
                write!(f, "counter is called {name:?}, expected an end in _total")
            }
            Self::Unit { name, unit } => {
                write!(
                    f,
                    "metric is called {name:?} with the unit {unit:?}, expected a base unit: seconds or bytes"
                )
            }
            Self::Suffix { name, suffix } => {
                write!(
                    f,
                    "metric is called {name:?}, expected no end in {suffix}, which is reserved"
                )
            }
            Self::Label { name, label } => {
                write!(
                    f,
                    "label of {name} is called {label:?}, expected [a-z][a-z0-9_]* and not le"
                )
            }
            Self::Twice { name, label } => write!(f, "label {label} of {name} is given twice"),
            Self::Help(name) => write!(f, "metric {name} has no help, expected a sentence"),
        }
    }
}

/// Checks a name, its help and its labels, which are sorted by name.
pub(crate) fn check(
    kind: Kind,
    name: &str,
    help: &str,
    labels: &[(String, String)],
) -> Result<(), NameError> {
    if !is_word(name) {
        return Err(NameError::Metric(name.to_owned()));
    }
    // A histogram `x` is written as `x_bucket`, `x_sum` and `x_count`: another metric must not be
    // called so. `_total` belongs to counters.
    if kind == Kind::Counter && !name.ends_with("_total") {
        return Err(NameError::Counter(name.to_owned()));
    }
    let reserved = ["_bucket", "_sum", "_count", "_total"];
    let taken = reserved.into_iter().find(|suffix| name.ends_with(suffix));
    if let Some(suffix) = taken
        && kind != Kind::Counter
    {
        return Err(NameError::Suffix {
            name: name.to_owned(),
            suffix,
        });
    }
    if let Some(unit) = name.split('_').find(|word| !is_base(word)) {
        return Err(NameError::Unit {
            name: name.to_owned(),
            unit: unit.to_owned(),
        });
    }
    if help.trim().is_empty() {
        return Err(NameError::Help(name.to_owned()));
    }
    if let Some((label, _)) = labels
        .iter()
        .find(|(label, _)| !is_word(label) || label == "le")
    {
        return Err(NameError::Label {
            name: name.to_owned(),
            label: label.clone(),
        });
    }
    if let Some(pair) = labels.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(NameError::Twice {
            name: name.to_owned(),
            label: pair[0].0.clone(),
        });
    }
    Ok(())
}

/// Words of names that are units and no base units, as `promtool check metrics` has them.
const UNITS: [&str; 19] = [
    "s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d", "minutes",
    "hours", "days", "weeks", "bits",
];
/// Prefixes that no base unit has.
const PREFIXES: [&str; 18] = [
    "pico", "nano", "micro", "milli", "centi", "deci", "deca", "hecto", "kilo", "kibi", "mega",
    "mibi", "giga", "gibi", "tera", "tebi", "peta", "pebi",
];

/// Returns whether `word` is no unit, or a base unit.
fn is_base(word: &str) -> bool {
    let is_scaled = |prefix: &&str| matches!(word.strip_prefix(*prefix), Some("seconds" | "bytes"));
    !UNITS.contains(&word) && !PREFIXES.iter().any(is_scaled)
}

/// Returns whether a metric is a time: recorded in ns, as integers, and written in seconds.
pub(crate) fn is_time(name: &str) -> bool {
    name.split('_').any(|word| word == "seconds")
}

pub(crate) fn is_word(word: &str) -> bool {
    let mut bytes = word.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_lowercase())
        && bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a metric against "" (allowed) or the message of its refusal.
    #[track_caller]
    fn expect(kind: Kind, name: &str, labels: &[&str], expected: &str) {
        let labels: Vec<_> = labels
            .iter()
            .map(|label| ((*label).to_owned(), String::new()))
            .collect();
        let message = check(kind, name, "Help.", &labels)
            .err()
            .map(|error| error.to_string());
        assert_eq!(message.unwrap_or_default(), expected);
    }

    #[test]
    fn the_end_of_a_name_says_its_kind() {
        expect(
            Kind::Counter,
            "build_tf_complete_total",
            &["epn", "reason"],
            "",
        );
        expect(Kind::Gauge, "acquire_hold_bytes", &[], "");
        expect(Kind::Histogram, "build_tf_latency_seconds", &[], "");
        expect(
            Kind::Counter,
            "build_tf_complete",
            &[],
            r#"counter is called "build_tf_complete", expected an end in _total"#,
        );
        expect(
            Kind::Gauge,
            "node_epn_count",
            &[],
            r#"metric is called "node_epn_count", expected no end in _count, which is reserved"#,
        );
        expect(
            Kind::Histogram,
            "x_total",
            &[],
            r#"metric is called "x_total", expected no end in _total, which is reserved"#,
        );
    }

    #[test]
    fn units_are_base_units() {
        let units = [
            "latency_ns",
            "latency_ms_max",
            "wait_s",
            "heap_mb",
            "x_milliseconds",
            "size_kibibytes",
        ];
        for (name, unit) in units
            .iter()
            .zip(["ns", "ms", "s", "mb", "milliseconds", "kibibytes"])
        {
            let message = format!(
                "metric is called {name:?} with the unit {unit:?}, expected a base unit: seconds or bytes"
            );
            expect(Kind::Gauge, name, &[], &message);
        }
        for good in [
            "pace_late_seconds_max",
            "hold_bytes",
            "decided",
            "megaphones",
        ] {
            expect(Kind::Gauge, good, &[], "");
        }
    }

    #[test]
    fn names_are_lower_case_words() {
        for bad in ["", "9lives", "Build", "a-b", "a b", "_a", "a:b", "é"] {
            let message = format!("metric is called {bad:?}, expected [a-z][a-z0-9_]*");
            expect(Kind::Gauge, bad, &[], &message);
            let message =
                format!("label of a is called {bad:?}, expected [a-z][a-z0-9_]* and not le");
            expect(Kind::Gauge, "a", &[bad], &message);
        }
        expect(
            Kind::Histogram,
            "a",
            &["le"],
            r#"label of a is called "le", expected [a-z][a-z0-9_]* and not le"#,
        );
        expect(Kind::Gauge, "a", &["b", "b"], "label b of a is given twice");
    }

    #[test]
    fn every_metric_says_what_it_is() {
        let error = check(Kind::Gauge, "a", " ", &[]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "metric a has no help, expected a sentence"
        );
    }
}
