//! Selection of series, written as a vector selector of PromQL.

use sheaf_query::Options;
use sheaf_samples::{Labels, Matcher};

/// Conditions of a vector selector, such as `tf_rate_hz{role="epn"}`. The default selects every series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector(Vec<Matcher>);

impl Selector {
    /// Reads a vector selector without offset or time.
    ///
    /// # Errors
    ///
    /// One line in words: what was found instead.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let matchers = sheaf_query::matchers(text, &Options::default());
        matchers.map(Self).map_err(|error| {
            let error = error.to_string();
            let line = error.lines().next().unwrap_or_default();
            format!("{text:?}: {line}")
        })
    }

    /// Returns whether a series with `labels` is selected.
    pub(crate) fn is_match(&self, labels: &Labels) -> bool {
        self.0.iter().all(|matcher| matcher.is_match(labels))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_samples::NAME;

    #[test]
    fn selects_as_promql_does() {
        let labels = Labels::new([(NAME, "tf_rate_hz"), ("role", "epn"), ("epn", "12")]).unwrap();
        for (text, expected) in [
            ("tf_rate_hz", true),
            ("tf_rate", false),
            (r#"{role="epn"}"#, true),
            (r#"tf_rate_hz{role!="epn"}"#, false),
            (r#"{__name__=~"tf_.*", epn=~"1[0-9]"}"#, true),
            (r#"{__name__=~"tf_.*", epn!~"1"}"#, true),
            (r#"{role="epn", host=""}"#, true),
        ] {
            let selector = Selector::parse(text).unwrap();
            assert_eq!(selector.is_match(&labels), expected, "{text}");
        }
        assert!(Selector::default().is_match(&Labels::default()));
    }

    #[test]
    fn other_expressions_are_refused_in_words() {
        for text in [
            "rate(x[1m])",
            "x offset 5m",
            r#"{a="1" or b="2"}"#,
            "x{",
            "",
            "x > 1",
        ] {
            let error = Selector::parse(text).unwrap_err();
            assert!(error.starts_with(&format!("{text:?}: ")), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
