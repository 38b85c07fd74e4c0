//! Values over time in the notation of Prometheus: `1+2x3` is `1 3 5 7`, `_x2` are two gaps, `stale` ends a series.

use crate::expression;
use promql_parser::parser::Expr;
use sheaf_samples::{Labels, Matches, NAME, STALE, Sample};
use std::collections::BTreeMap;

/// Most values of one series.
const VALUES_MAX: usize = 1_000_000;

/// Returns the samples of `text`, one every `interval_ms` from 0 on, or what is wrong.
pub(super) fn values(text: &str, interval_ms: i64) -> Result<Vec<Sample>, String> {
    let (mut samples, mut at) = (Vec::new(), 0_usize);
    for word in text.split_whitespace() {
        let (first, step, count) = item(word).ok_or_else(|| format!("values {word:?}"))?;
        if at.saturating_add(count) > VALUES_MAX {
            return Err(format!("more than {VALUES_MAX} values"));
        }
        for index in 0..count {
            let at_ms = i64::try_from(at)
                .unwrap_or(i64::MAX)
                .saturating_mul(interval_ms);
            if let Some(first) = first {
                let value = if index == 0 || step == 0.0 {
                    first
                } else {
                    first + step * index as f64
                };
                samples.push(Sample { at_ms, value });
            }
            at += 1;
        }
    }
    Ok(samples)
}

/// First value (none for a gap), step, and number of values.
fn item(word: &str) -> Option<(Option<f64>, f64, usize)> {
    if word == "stale" {
        return Some((Some(STALE), 0.0, 1));
    }
    let (value, times) = match word.rsplit_once('x') {
        Some((value, times)) => (value, Some(times.parse::<usize>().ok()?)),
        None => (word, None),
    };
    if value == "_" {
        return Some((None, 0.0, times.unwrap_or(1)));
    }
    let count = times.map_or(Some(1), |times| times.checked_add(1))?;
    // The sign of the step is the last one that belongs to no exponent.
    let bytes = value.as_bytes();
    let is_step = |at: &usize| {
        matches!(bytes[*at], b'+' | b'-') && !matches!(bytes[*at - 1], b'e' | b'E' | b'+' | b'-')
    };
    let at = (1..bytes.len()).rfind(is_step);
    let (first, step) = at.map_or((value, "0"), |at| value.split_at(at));
    let is_repeated = times.is_some() || at.is_none();
    is_repeated.then_some((Some(first.parse().ok()?), step.parse().ok()?, count))
}

/// Returns the labels of a series such as `load{epn="3"}`, or what is wrong.
pub(super) fn series(text: &str) -> Result<Labels, String> {
    let expr = expression::parse(text)?;
    let Expr::VectorSelector(selector) = expression::inner(&expr) else {
        return Err(format!("{text:?}"));
    };
    let mut pairs = BTreeMap::new();
    for matcher in expression::matchers(selector)? {
        if matcher.matches() != Matches::Equal {
            return Err(format!("{text:?}, which is no single series"));
        }
        pairs.insert(matcher.name().to_owned(), matcher.value().to_owned());
    }
    if !pairs.contains_key(NAME) {
        return Err(format!("{text:?} without a name"));
    }
    Labels::new(pairs).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_samples::is_stale;

    fn check(text: &str, expected: &str) {
        let found = values(text, 10).unwrap();
        let show = |sample: &Sample| {
            let value = if is_stale(sample.value) {
                "stale".to_owned()
            } else {
                sample.value.to_string()
            };
            format!("{}:{value}", sample.at_ms)
        };
        assert_eq!(
            found.iter().map(show).collect::<Vec<_>>().join(" "),
            expected,
            "{text}"
        );
    }

    #[test]
    fn values_are_those_of_prometheus() {
        check("1+2x3", "0:1 10:3 20:5 30:7");
        check("5-1x2 _x2 7", "0:5 10:4 20:3 50:7");
        check("3x1 _ stale", "0:3 10:3 30:stale");
        check("-1e-3-0.5x1 +Inf NaN", "0:-0.001 10:-0.501 20:inf 30:NaN");
        for text in ["x", "1+x3", "1+2", "a", "1x-1"] {
            assert!(values(text, 1).is_err(), "{text}");
        }
    }

    #[test]
    fn a_series_has_a_name_and_values_of_labels() {
        assert_eq!(
            series(r#"load{epn="3"}"#).unwrap().to_string(),
            r#"load{epn="3"}"#
        );
        assert!(series(r#"load{epn=~"3"}"#).is_err());
        assert!(series(r#"{epn="3"}"#).is_err());
        assert!(series("load > 3").is_err());
    }
}
