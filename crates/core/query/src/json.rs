//! Answers as the Prometheus HTTP API sends them.

use crate::error::Error;
use crate::number;
use crate::value::{Answer, Value};
use sheaf_samples::{Labels, Sample};
use std::fmt::Write;

/// Returns the body of an answer: `{"status":"success","data":{"resultType":…,"result":…}}`.
///
/// Numbers have the form that Prometheus 2.42 gives them; a time has three digits of milliseconds if it has any, and in
/// scalars and strings as few as needed. Warnings follow as `"warnings"`.
#[must_use]
pub fn success(answer: &Answer) -> String {
    let mut text = String::with_capacity(256);
    let kind = answer.value.kind();
    let _ = write!(
        text,
        r#"{{"status":"success","data":{{"resultType":"{kind}","result":"#
    );
    match &answer.value {
        Value::Scalar(sample) => {
            let _ = write!(text, r#"[{},""#, seconds(sample.at_ms));
            number::push_plain(&mut text, sample.value);
            text.push_str("\"]");
        }
        Value::String(at_ms, value) => {
            let _ = write!(text, "[{},", seconds(*at_ms));
            push_string(&mut text, value);
            text.push(']');
        }
        Value::Vector(points) => push_list(&mut text, points, |text, point| {
            push_metric(text, &point.labels);
            text.push_str(",\"value\":");
            push_pair(text, point.sample);
            text.push('}');
        }),
        Value::Matrix(lines) => push_list(&mut text, lines, |text, line| {
            push_metric(text, &line.labels);
            text.push_str(",\"values\":");
            push_list(text, &line.samples, |text, sample| push_pair(text, *sample));
            text.push('}');
        }),
    }
    text.push('}');
    if !answer.warnings.is_empty() {
        text.push_str(",\"warnings\":");
        push_list(&mut text, &answer.warnings, |text, one| {
            push_string(text, one);
        });
    }
    text.push('}');
    text
}

/// Returns the body of a refusal: `{"status":"error","errorType":…,"error":…}`.
#[must_use]
pub fn failure(error: &Error) -> String {
    let mut text = format!(
        r#"{{"status":"error","errorType":"{}","error":"#,
        error.kind()
    );
    push_string(&mut text, &error.to_string());
    text.push('}');
    text
}

fn push_list<T>(text: &mut String, items: &[T], push: impl Fn(&mut String, &T)) {
    text.push('[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        push(text, item);
    }
    text.push(']');
}

fn push_metric(text: &mut String, labels: &Labels) {
    text.push_str("{\"metric\":{");
    for (index, (name, value)) in labels.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        push_string(text, name);
        text.push(':');
        push_string(text, value);
    }
    text.push('}');
}

fn push_pair(text: &mut String, sample: Sample) {
    let sign = if sample.at_ms < 0 { "-" } else { "" };
    let at_ms = sample.at_ms.unsigned_abs();
    let _ = write!(text, "[{sign}{}", at_ms / 1000);
    if !at_ms.is_multiple_of(1000) {
        let _ = write!(text, ".{:03}", at_ms % 1000);
    }
    text.push_str(",\"");
    number::push_sample(text, sample.value);
    text.push_str("\"]");
}

fn seconds(at_ms: i64) -> f64 {
    at_ms as f64 / 1000.0
}

fn push_string(text: &mut String, value: &str) {
    // A string always has a JSON form.
    text.push_str(&serde_json::to_string(value).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::{Line, Point};
    use std::sync::Arc;

    fn check(value: Value, expected: &str) {
        let warnings = Vec::new();
        let found = success(&Answer { value, warnings });
        let expected = format!(r#"{{"status":"success","data":{expected}}}"#);
        assert_eq!(found, expected);
        assert!(serde_json::from_str::<serde_json::Value>(&found).is_ok());
    }

    fn sample(at_ms: i64, value: f64) -> Sample {
        Sample { at_ms, value }
    }

    #[test]
    fn every_kind_of_value_has_its_form() {
        let labels = Arc::new(Labels::new([("__name__", "x"), ("job", "a\"<\n")]).unwrap());
        check(
            Value::Scalar(sample(1_500, 1e21)),
            r#"{"resultType":"scalar","result":[1.5,"1000000000000000000000"]}"#,
        );
        check(
            Value::String(2_000, "a\\".into()),
            r#"{"resultType":"string","result":[2,"a\\"]}"#,
        );
        check(
            Value::Vector(vec![Point {
                labels: Arc::clone(&labels),
                sample: sample(1_050, f64::NAN),
            }]),
            r#"{"resultType":"vector","result":[{"metric":{"__name__":"x","job":"a\"<\n"},"value":[1.050,"NaN"]}]}"#,
        );
        check(
            Value::Matrix(vec![Line {
                labels: Arc::new(Labels::default()),
                samples: vec![sample(-1, 1e-9), sample(1_000, f64::NEG_INFINITY)],
            }]),
            r#"{"resultType":"matrix","result":[{"metric":{},"values":[[-0.001,"1e-09"],[1,"-Inf"]]}]}"#,
        );
        check(
            Value::Vector(Vec::new()),
            r#"{"resultType":"vector","result":[]}"#,
        );
    }

    #[test]
    fn warnings_and_errors_are_named() {
        let value = Value::Scalar(sample(0, 1.0));
        let warnings = vec!["one \"word\"".to_owned()];
        assert_eq!(
            success(&Answer { value, warnings }),
            r#"{"status":"success","data":{"resultType":"scalar","result":[0,"1"]},"warnings":["one \"word\""]}"#
        );
        assert_eq!(
            failure(&Error::TooManySamples { limit: 3 }),
            r#"{"status":"error","errorType":"execution","error":"query processing would load too many samples into memory in query execution: more than 3"}"#
        );
        assert_eq!(Error::parse("no").kind(), "bad_data");
    }
}
