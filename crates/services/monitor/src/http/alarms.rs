//! Alarms for the pages: present alerts, history, silences.

use super::answer::{Refused, json};
use super::params::Params;
use crate::shared::Shared;
use crate::wall;
use axum::body::Bytes;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use sheaf_alarms::{
    AlertView, Entry, OrderOutcome, Silence, SilenceError, SilenceRequest, fingerprint,
};
use sheaf_samples::Labels;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Alerts of one answer at most.
const SHOWN_MAX: usize = 1_000;
/// Entries of the history of one answer, unless told, and at most.
const HISTORY: usize = 200;
const HISTORY_MAX: usize = 10_000;

type Asked = State<Arc<Shared>>;

/// `/api/alarms`
pub(super) async fn alarms(State(shared): Asked) -> Response {
    let now_ms = wall::now_ms();
    let alarms = shared.desk.alarms();
    let mut alerts: Vec<AlertView> = alarms.alerts(now_ms).collect();
    let rules: Vec<Value> = alarms
        .rules()
        .map(|rule| {
            json!({
                "group": rule.group,
                "alert": rule.name,
                "expr": rule.expr,
                "online": rule.is_online,
                "state": rule.state.name(),
                "alerts": rule.alerts,
                "error": rule.error,
                "evaluated_ms": rule.evaluated_ms,
            })
        })
        .collect();
    let notify = alarms.notify_stats();
    let waiting = alarms.notifications_waiting();
    drop(alarms);
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for state in STATES {
        counts.insert(state, 0);
    }
    for alert in &alerts {
        *counts.entry(alert.state.name()).or_default() += 1;
    }
    let rank = |one: &AlertView| STATES.iter().position(|state| *state == one.state.name());
    alerts.sort_by_key(|one| (rank(one), std::cmp::Reverse(one.since_ms)));
    alerts.truncate(SHOWN_MAX);
    let alerts: Vec<Value> = alerts.iter().map(alert).collect();
    let body = json!({
        "at_ms": now_ms,
        "counts": counts,
        "alarms": alerts,
        "rules": rules,
        "notifications": {
            "made": notify.made,
            "delivered": notify.delivered,
            "failed": notify.failed,
            "dropped": notify.dropped,
            "waiting": waiting,
        },
    });
    json(StatusCode::OK, body.to_string())
}

/// States that are shown, in their order.
const STATES: [&str; 4] = ["firing", "nodata", "pending", "resolved"];

fn alert(one: &AlertView) -> Value {
    json!({
        "id": format!("{:016x}", fingerprint(&one.labels)),
        "alert": one.alert,
        "state": one.state.name(),
        "severity": one.labels.get("severity").unwrap_or_default(),
        "labels": labels(&one.labels),
        "annotations": one.annotations.iter().cloned().collect::<BTreeMap<_, _>>(),
        // A number that JSON does not have becomes null.
        "value": one.value,
        "since_ms": one.since_ms,
        "active_ms": one.active_ms,
        "silence": one.silence,
        "hidden": one.is_hidden,
    })
}

fn labels(labels: &Labels) -> BTreeMap<&str, &str> {
    labels.iter().collect()
}

/// `/api/alarms/history`
pub(super) async fn history(
    State(shared): Asked,
    RawQuery(query): RawQuery,
) -> Result<Response, Refused> {
    let params = Params::new(query.as_deref(), b"");
    let limit = match params.get("limit").map(str::parse::<usize>) {
        None => HISTORY,
        Some(Ok(limit)) => limit.min(HISTORY_MAX),
        Some(Err(_)) => {
            let text = "invalid parameter \"limit\": expected a number";
            return Err(Refused::bad(text));
        }
    };
    let alarms = shared.desk.alarms();
    let history = alarms.history();
    let entries: Vec<Value> = history.iter().rev().take(limit).map(entry).collect();
    let body = json!({ "left_out": history.left_out, "entries": entries });
    drop(alarms);
    Ok(json(StatusCode::OK, body.to_string()))
}

fn entry(one: &Entry) -> Value {
    match one {
        Entry::Transition(one) => json!({
            "kind": "transition",
            "at_ms": one.at_ms,
            "alert": one.alert,
            "labels": labels(&one.labels),
            "from": one.from.name(),
            "to": one.to.name(),
            "value": one.value,
        }),
        Entry::Order(one) => {
            let (outcome, reason) = match &one.outcome {
                OrderOutcome::Given => ("given", None),
                OrderOutcome::DryRun => ("dry-run", None),
                OrderOutcome::Refused(reason) => ("refused", Some(reason)),
                OrderOutcome::Done => ("done", None),
                OrderOutcome::Failed(reason) => ("failed", Some(reason)),
            };
            json!({
                "kind": "order",
                "at_ms": one.at_ms,
                "id": one.id,
                "alert": one.alert,
                "order": one.order,
                "outcome": outcome,
                "reason": reason,
            })
        }
    }
}

/// `GET /api/silences`
pub(super) async fn silences(State(shared): Asked) -> Response {
    let now_ms = wall::now_ms();
    let alarms = shared.desk.alarms();
    let silences: Vec<Value> = alarms.silences().map(|one| silence(now_ms, one)).collect();
    drop(alarms);
    json(StatusCode::OK, json!({ "silences": silences }).to_string())
}

fn silence(now_ms: i64, one: &Silence) -> Value {
    let request = &one.request;
    let matchers: Vec<String> = request.matchers.iter().map(ToString::to_string).collect();
    let state = if now_ms < request.from_ms {
        "pending"
    } else if now_ms < request.to_ms {
        "active"
    } else {
        "expired"
    };
    json!({
        "id": one.id,
        "matchers": matchers,
        "from_ms": request.from_ms,
        "to_ms": request.to_ms,
        "author": request.author,
        "comment": request.comment,
        "state": state,
    })
}

/// Body of `POST /api/silences`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewSilence {
    matchers: Vec<String>,
    from_ms: Option<i64>,
    to_ms: Option<i64>,
    for_ms: Option<i64>,
    #[serde(default)]
    author: String,
    #[serde(default)]
    comment: String,
}

/// `POST /api/silences`
pub(super) async fn create_silence(
    State(shared): Asked,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Refused> {
    // A form of another site in a browser of this machine cannot send this type without asking first.
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|one| one.to_str().ok()).unwrap_or_default();
    if kind.split(';').next().map(str::trim) != Some("application/json") {
        let text = format!("content type {kind:?}, expected application/json");
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Err(Refused::of(status, "bad_data", text));
    }
    let asked: NewSilence = serde_json::from_slice(&body)
        .map_err(|error| Refused::bad(format!("a silence that cannot be read: {error}")))?;
    let now_ms = wall::now_ms();
    let from_ms = asked.from_ms.unwrap_or(now_ms);
    let to_ms = match (asked.to_ms, asked.for_ms) {
        (Some(to_ms), None) => to_ms,
        (None, Some(for_ms)) => from_ms.saturating_add(for_ms),
        _ => return Err(Refused::bad("a silence has either \"to_ms\" or \"for_ms\"")),
    };
    let refuse = |error: SilenceError| Refused::bad(error.to_string());
    let request = SilenceRequest {
        matchers: SilenceRequest::matchers(&asked.matchers).map_err(refuse)?,
        from_ms,
        to_ms,
        author: asked.author,
        comment: asked.comment,
    };
    let created = shared.desk.alarms().create_silence(now_ms, request);
    let id = created.map_err(refuse)?;
    shared.desk.note_change();
    Ok(json(StatusCode::CREATED, json!({ "id": id }).to_string()))
}

/// `DELETE /api/silences/ID`
pub(super) async fn expire_silence(
    State(shared): Asked,
    Path(id): Path<String>,
) -> Result<Response, Refused> {
    let unknown = |text: String| Refused::of(StatusCode::NOT_FOUND, "not_found", text);
    let number = id
        .parse()
        .map_err(|_| unknown(format!("silence {id:?}, expected its number")))?;
    let expired = shared.desk.alarms().expire_silence(wall::now_ms(), number);
    expired.map_err(|error| unknown(error.to_string()))?;
    shared.desk.note_change();
    Ok(StatusCode::NO_CONTENT.into_response())
}
