//! Both answers to a query, and what differs between them.

use crate::data::T0_S;
use crate::server::Oracle;
use serde_json::Value as Json;
use sheaf_query::{Memory, Options, Query, Range, failure, success};

/// Times at which each query runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    At(i64),
    Over(Range),
}

pub(crate) fn times() -> Vec<When> {
    let at = |ms: i64| T0_S * 1000 + ms;
    vec![
        When::At(at(3_600_000)),
        When::At(at(2_345_678)),
        When::At(at(7_260_000)),
        When::Over(Range {
            from_ms: at(600_000),
            to_ms: at(5_700_000),
            step_ms: 60_000,
        }),
        When::Over(Range {
            from_ms: at(3_400_250),
            to_ms: at(4_700_999),
            step_ms: 37_500,
        }),
    ]
}

fn seconds(ms: i64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

pub(crate) fn theirs(oracle: &Oracle, query: &str, when: When) -> String {
    match when {
        When::At(ms) => oracle.query("/api/v1/query", &[("query", query), ("time", &seconds(ms))]),
        When::Over(range) => oracle.query(
            "/api/v1/query_range",
            &[
                ("query", query),
                ("start", &seconds(range.from_ms)),
                ("end", &seconds(range.to_ms)),
                ("step", &seconds(range.step_ms)),
            ],
        ),
    }
}

pub(crate) fn ours(memory: &Memory, query: &str, when: When) -> String {
    let options = Options::default();
    let answer = Query::parse(query, &options).and_then(|query| match when {
        When::At(ms) => query.instant(memory, ms, &options),
        When::Over(range) => query.range(memory, range, &options),
    });
    match answer {
        Ok(answer) => success(&answer),
        Err(error) => failure(&error),
    }
}

/// Functions and operators that take their value from a library of mathematics, another one on each side.
const APPROXIMATE: [&str; 18] = [
    "^", "atan2", "exp(", "ln(", "log2(", "log10(", "sin(", "cos(", "tan(", "asin(", "acos(",
    "atan(", "sinh(", "cosh(", "tanh(", "asinh(", "acosh(", "atanh(",
];

/// How far values of `query` may be apart, as a part of their size: not at all where both sides compute by themselves.
///
/// In random expressions aggregations stand over operators, whose results Prometheus takes from a map in an order that
/// differs from run to run: sums of them differ in their last digits, and variances lose digits by cancellation.
fn tolerance(query: &str, is_random: bool) -> f64 {
    let is_approximate = APPROXIMATE.iter().any(|word| query.contains(word));
    if is_random && ["stddev", "stdvar"].iter().any(|word| query.contains(word)) {
        1e-9
    } else if is_approximate || is_random {
        1e-12
    } else {
        0.0
    }
}

fn is_close(left: f64, right: f64, tolerance: f64) -> bool {
    let is_near = (left - right).abs() <= tolerance * left.abs().max(right.abs());
    left == right
        || left.is_nan() && right.is_nan()
        || left.is_finite() && right.is_finite() && is_near
}

fn same_value(left: &Json, right: &Json, tolerance: f64) -> bool {
    let number = |json: &Json| json.as_str().and_then(|text| text.parse::<f64>().ok());
    match (number(left), number(right)) {
        // The sign of a zero and the text of equal numbers have to agree.
        (Some(one), Some(other)) if one == other => left == right,
        (Some(one), Some(other)) => is_close(one, other, tolerance),
        _ => left == right,
    }
}

fn same_pairs(left: &Json, right: &Json, tolerance: f64) -> bool {
    let (Some(left), Some(right)) = (left.as_array(), right.as_array()) else {
        return left == right;
    };
    left.len() == right.len() && left[0] == right[0] && same_value(&left[1], &right[1], tolerance)
}

/// Returns what differs between two bodies.
pub(crate) fn difference(query: &str, is_random: bool, ours: &str, theirs: &str) -> Option<String> {
    let parse = |text: &str| serde_json::from_str::<Json>(text).expect("a body of JSON");
    let (our, their) = (parse(ours), parse(theirs));
    if our["status"] != their["status"] {
        return Some("one side fails".to_owned());
    }
    if our["status"] == "error" {
        let kinds = (&our["errorType"], &their["errorType"]);
        return (kinds.0 != kinds.1).then(|| format!("kinds of error {kinds:?}"));
    }
    let tolerance = tolerance(query, is_random);
    let (our, their) = (&our["data"], &their["data"]);
    if our["resultType"] != their["resultType"] {
        return Some("types".to_owned());
    }
    let (our, their) = (&our["result"], &their["result"]);
    match their.as_array() {
        Some(list) if list.first().is_none_or(Json::is_object) => {
            let by_labels = |result: &Json| -> Vec<(String, Json)> {
                let mut all: Vec<(String, Json)> = result
                    .as_array()
                    .expect("a list as well")
                    .iter()
                    .map(|one| (one["metric"].to_string(), one.clone()))
                    .collect();
                let is_ordered = ["sort", "topk", "bottomk"]
                    .iter()
                    .any(|word| query.starts_with(word));
                if !is_ordered {
                    all.sort_by(|left, right| left.0.cmp(&right.0));
                }
                all
            };
            let (our, their) = (by_labels(our), by_labels(their));
            let names = |list: &[(String, Json)]| -> Vec<String> {
                list.iter().map(|one| one.0.clone()).collect()
            };
            if names(&our) != names(&their) {
                return Some(format!("series {:?} and {:?}", names(&our), names(&their)));
            }
            for ((labels, our), (_, their)) in our.iter().zip(&their) {
                let pairs = |one: &Json| -> Vec<Json> {
                    match one.get("values") {
                        Some(values) => values.as_array().expect("a list").clone(),
                        None => vec![one["value"].clone()],
                    }
                };
                let (our, their) = (pairs(our), pairs(their));
                if our.len() != their.len() {
                    return Some(format!(
                        "{} and {} values of {labels}",
                        our.len(),
                        their.len()
                    ));
                }
                let mut both = our.iter().zip(&their);
                if let Some((our, their)) =
                    both.find(|(our, their)| !same_pairs(our, their, tolerance))
                {
                    return Some(format!("{our} and {their} of {labels}"));
                }
            }
            None
        }
        _ if same_pairs(our, their, tolerance) => None,
        _ => Some(format!("{our} and {their}")),
    }
}
