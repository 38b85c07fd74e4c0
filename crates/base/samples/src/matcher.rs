//! Selection of series by their labels.

use crate::Labels;
use regex::Regex;
use std::fmt;

/// How a matcher compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matches {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `=~`, anchored at both ends.
    Regex,
    /// `!~`, anchored at both ends.
    NotRegex,
}

/// A condition on one label of a series. A label that is absent counts as empty.
#[derive(Clone, Debug)]
pub struct Matcher {
    name: String,
    value: String,
    matches: Matches,
    regex: Option<Regex>,
}

/// Reason why a matcher is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("regular expression {pattern:?} of label {name:?}: {reason}")]
pub struct MatcherError {
    /// Label of the matcher.
    pub name: String,
    /// Pattern that was found.
    pub pattern: String,
    /// Objection of the regular expression parser, in one line.
    pub reason: String,
}

impl Matcher {
    /// Returns the matcher of the label `name`; `value` is a regular expression for the two kinds that take one.
    ///
    /// # Errors
    ///
    /// If the regular expression cannot be compiled or would take more than 1 MiB of memory.
    pub fn new(
        name: impl Into<String>,
        matches: Matches,
        value: impl Into<String>,
    ) -> Result<Self, MatcherError> {
        let (name, value) = (name.into(), value.into());
        let regex = match matches {
            Matches::Equal | Matches::NotEqual => None,
            Matches::Regex | Matches::NotRegex => Some(anchored(&value).map_err(|error| {
                let text = error.to_string();
                let reason = text.lines().last().unwrap_or_default();
                MatcherError {
                    name: name.clone(),
                    pattern: value.clone(),
                    reason: reason.trim_start_matches("error: ").to_owned(),
                }
            })?),
        };
        Ok(Self {
            name,
            value,
            matches,
            regex,
        })
    }

    /// Name of the label.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Value or pattern.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }

    /// How it compares.
    #[must_use]
    pub fn matches(&self) -> Matches {
        self.matches
    }

    /// Returns whether a label with `value` is selected; an absent label has the value `""`.
    #[must_use]
    pub fn accepts(&self, value: &str) -> bool {
        let is_regex_match = || {
            self.regex
                .as_ref()
                .is_some_and(|regex| regex.is_match(value))
        };
        match self.matches {
            Matches::Equal => self.value == value,
            Matches::NotEqual => self.value != value,
            Matches::Regex => is_regex_match(),
            Matches::NotRegex => !is_regex_match(),
        }
    }

    /// Returns whether a series with `labels` is selected.
    #[must_use]
    pub fn is_match(&self, labels: &Labels) -> bool {
        self.accepts(labels.get(&self.name).unwrap_or_default())
    }
}

fn anchored(pattern: &str) -> Result<Regex, regex::Error> {
    // As Prometheus: `.` matches line ends too.
    regex::RegexBuilder::new(&format!("^(?s:{pattern})$"))
        .size_limit(1 << 20)
        .build()
}

impl PartialEq for Matcher {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, self.matches, &self.value) == (&other.name, other.matches, &other.value)
    }
}

impl Eq for Matcher {}

/// PromQL's notation.
impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.matches {
            Matches::Equal => "=",
            Matches::NotEqual => "!=",
            Matches::Regex => "=~",
            Matches::NotRegex => "!~",
        };
        write!(f, "{}{sign}{:?}", self.name, self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(matches: Matches, value: &str, labels: &[(&str, &str)]) -> bool {
        let labels = Labels::new(labels.iter().copied()).unwrap();
        Matcher::new("epn", matches, value)
            .unwrap()
            .is_match(&labels)
    }

    #[test]
    fn regular_expressions_are_anchored() {
        assert!(accepts(Matches::Regex, "1|2", &[("epn", "2")]));
        assert!(!accepts(Matches::Regex, "1", &[("epn", "12")]));
        assert!(accepts(Matches::NotRegex, "1", &[("epn", "12")]));
        assert!(accepts(Matches::Regex, "a.b", &[("epn", "a\nb")]));
    }

    #[test]
    fn an_absent_label_is_empty() {
        assert!(accepts(Matches::Equal, "", &[]));
        assert!(accepts(Matches::Regex, ".*", &[]));
        assert!(!accepts(Matches::Regex, ".+", &[]));
        assert!(accepts(Matches::NotEqual, "1", &[]));
        assert!(!accepts(Matches::NotEqual, "", &[]));
    }

    #[test]
    fn a_wrong_pattern_is_named() {
        let error = Matcher::new("epn", Matches::Regex, "a(").unwrap_err();
        assert_eq!((error.name.as_str(), error.pattern.as_str()), ("epn", "a("));
        assert!(error.to_string().contains("unclosed group"), "{error}");
    }

    #[test]
    fn a_bomb_is_refused() {
        assert!(Matcher::new("epn", Matches::Regex, "((a{100}){100}){100}").is_err());
    }
}
