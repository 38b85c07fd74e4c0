//! Rules and alerts in the form of the Prometheus HTTP API, for Grafana and `promtool`'s users.

use super::answer::{Refused, data};
use super::params::Params;
use crate::shared::Shared;
use crate::wall;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use serde_json::{Value, json};
use sheaf_alarms::{Alarms, AlertView, GroupView, RecordView, RuleView, Template, rfc3339};
use std::collections::BTreeMap;
use std::sync::Arc;

type Asked = State<Arc<Shared>>;

/// Go's zero time: never.
const NEVER: &str = "0001-01-01T00:00:00Z";

/// `/api/v1/rules`
pub(super) async fn rules(
    State(shared): Asked,
    RawQuery(query): RawQuery,
) -> Result<Response, Refused> {
    let params = Params::new(query.as_deref(), b"");
    let (alerts, records) = match params.get("type") {
        None => (true, true),
        Some("alert") => (true, false),
        Some("record") => (false, true),
        Some(other) => {
            let text = format!("invalid query parameter type={other:?}");
            return Err(Refused::bad(text));
        }
    };
    let now_ms = wall::now_ms();
    let alarms = shared.desk.alarms();
    let groups: Vec<Value> = alarms
        .groups()
        .iter()
        .filter_map(|group| {
            let mut rules: Vec<Value> = Vec::new();
            if records {
                rules.extend(group.records.iter().map(record));
            }
            if alerts {
                let all = group.alerts.iter();
                rules.extend(all.map(|rule| alert_rule(&alarms, now_ms, rule)));
            }
            (!rules.is_empty()).then(|| group_json(group, &rules))
        })
        .collect();
    drop(alarms);
    Ok(data(json!({ "groups": groups })))
}

fn group_json(group: &GroupView<'_>, rules: &[Value]) -> Value {
    let alerts = group.alerts.iter().filter_map(|one| one.evaluated_ms);
    let records = group.records.iter().filter_map(|one| one.evaluated_ms);
    json!({
        "name": group.name,
        "file": group.file,
        "interval": group.interval_ms as f64 / 1000.0,
        "limit": 0,
        "rules": rules,
        "evaluationTime": 0,
        "lastEvaluation": time(alerts.chain(records).max()),
    })
}

fn record(one: &RecordView<'_>) -> Value {
    let mut rule = json!({
        "name": one.rule.name,
        "query": one.rule.expr,
        "health": health(one.error, one.evaluated_ms.is_some()),
        "evaluationTime": 0,
        "lastEvaluation": time(one.evaluated_ms),
        "type": "recording",
    });
    if !one.rule.labels.is_empty() {
        rule["labels"] = json!(one.rule.labels.iter().cloned().collect::<BTreeMap<_, _>>());
    }
    if let Some(error) = one.error {
        rule["lastError"] = error.into();
    }
    rule
}

fn alert_rule(alarms: &Alarms, now_ms: i64, one: &RuleView<'_>) -> Value {
    let alerts: Vec<Value> = alarms
        .alerts_of(now_ms, one)
        .filter_map(|alert| alert_json(&alert))
        .collect();
    let state = match one.state.name() {
        state @ ("firing" | "pending") => state,
        _ => "inactive",
    };
    let mut rule = json!({
        "state": state,
        "name": one.name,
        "query": one.expr,
        "duration": one.rule.for_ms as f64 / 1000.0,
        "keepFiringFor": one.rule.keep_firing_ms as f64 / 1000.0,
        "labels": texts(&one.rule.labels),
        "annotations": texts(&one.rule.annotations),
        "alerts": alerts,
        "health": health(one.error, one.is_online || one.evaluated_ms.is_some()),
        "evaluationTime": 0,
        "lastEvaluation": time(one.evaluated_ms),
        "type": "alerting",
    });
    if let Some(error) = one.error {
        rule["lastError"] = error.into();
    }
    rule
}

fn texts(list: &[(String, Template)]) -> BTreeMap<&str, &str> {
    let pairs = list.iter();
    pairs
        .map(|(name, template)| (name.as_str(), template.as_str()))
        .collect()
}

fn health(error: Option<&str>, is_evaluated: bool) -> &'static str {
    match (error, is_evaluated) {
        (Some(_), _) => "err",
        (None, true) => "ok",
        (None, false) => "unknown",
    }
}

fn time(at_ms: Option<i64>) -> String {
    at_ms.map_or(NEVER.to_owned(), rfc3339)
}

/// `/api/v1/alerts`
pub(super) async fn alerts(State(shared): Asked) -> Response {
    let alarms = shared.desk.alarms();
    let all = alarms.alerts(wall::now_ms());
    let alerts: Vec<Value> = all.filter_map(|one| alert_json(&one)).collect();
    drop(alarms);
    data(json!({ "alerts": alerts }))
}

/// An alert that is pending or fires; Prometheus shows no others.
fn alert_json(one: &AlertView) -> Option<Value> {
    let state = match one.state.name() {
        state @ ("firing" | "pending") => state,
        _ => return None,
    };
    Some(json!({
        "labels": one.labels.iter().collect::<BTreeMap<_, _>>(),
        "annotations": one.annotations.iter().cloned().collect::<BTreeMap<_, _>>(),
        "state": state,
        "activeAt": rfc3339(one.active_ms.unwrap_or(one.since_ms)),
        "value": number(one.value),
    }))
}

/// Number as Go prints it by `%e` with the fewest digits.
fn number(value: f64) -> String {
    if !value.is_finite() {
        let text = if value.is_nan() { "NaN" } else { "+Inf" };
        return if value == f64::NEG_INFINITY {
            "-Inf"
        } else {
            text
        }
        .to_owned();
    }
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    match exponent.strip_prefix('-') {
        Some(exponent) => format!("{digits}e-{exponent:0>2}"),
        None => format!("{digits}e+{exponent:0>2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_form_of_prometheus() {
        let found = [1.0, 61.5, 0.00012, f64::NEG_INFINITY].map(number);
        assert_eq!(found, ["1e+00", "6.15e+01", "1.2e-04", "-Inf"]);
    }
}
