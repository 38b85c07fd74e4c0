//! Questions that collectors side by side ask each other. Answers are of the own store alone, so no question goes
//! round.

use super::answer::{Refused, json};
use super::ask::apart;
use super::params::Params;
use crate::alarms::Desk;
use crate::peers::{CONTENT_TYPE, Heard};
use crate::shared::Shared;
use crate::wall;
use axum::body::Bytes;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use std::sync::Arc;

/// Time that a question about sources looks back if it does not say, in ms.
const WITHIN_MS: i64 = 10_000;

type Asked = State<Arc<Shared>>;

/// Lets the alarms know which sources another collector has received from, in times of the own clock.
pub(super) fn take(desk: &Desk, heard: &Heard) {
    let now_ms = wall::now_ms();
    let mut alarms = desk.alarms();
    for (source, seen_ms) in &heard.sources {
        let age_ms = heard.now_ms.saturating_sub(*seen_ms).max(0);
        alarms.handle_source_elsewhere(now_ms, source, now_ms.saturating_sub(age_ms));
    }
}

/// Answers a question for samples or names.
pub(super) async fn question(State(shared): Asked, message: Bytes) -> Result<Response, Refused> {
    let bytes = apart(move || {
        let answer = sheaf_query::exchange::answer(&*shared.kept.store, &message);
        let answer = answer.map_err(|error| Refused::bad(error.to_string()))?;
        answer.map_err(|error| Refused::query(&error.into()))
    });
    let bytes = bytes.await?;
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], bytes).into_response())
}

/// Sources that the alarms have heard lately.
pub(super) async fn sources(
    State(shared): Asked,
    RawQuery(query): RawQuery,
) -> Result<Response, Refused> {
    let params = Params::new(query.as_deref(), b"");
    let text = params.get("within_ms");
    let within_ms = text.map_or(Some(WITHIN_MS), |text| text.parse().ok());
    let Some(within_ms) = within_ms.filter(|within_ms| *within_ms >= 0) else {
        return Err(Refused::bad(format!(
            "parameter \"within_ms\": found {:?}, expected a number of ms",
            text.unwrap_or_default()
        )));
    };
    let now_ms = wall::now_ms();
    let alarms = shared.desk.alarms();
    let heard = alarms.sources_heard(now_ms.saturating_sub(within_ms));
    let sources = heard.map(|(name, seen_ms)| (name.to_owned(), seen_ms));
    let heard = Heard {
        now_ms,
        sources: sources.collect(),
    };
    drop(alarms);
    let body = serde_json::to_string(&heard).expect("names and numbers");
    Ok(json(StatusCode::OK, body))
}
