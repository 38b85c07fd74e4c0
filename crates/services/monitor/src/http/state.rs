//! State of the collector: sources, figures, health.

use super::answer::{Refused, json};
use super::ask::apart;
use super::params::Params;
use crate::shared::Shared;
use crate::sources::SHOWN_MAX;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use std::sync::atomic::Ordering;

type Asked = State<Arc<Shared>>;

/// `/api/sources`; with `own=1` without those of collectors side by side.
pub(super) async fn sources(
    State(shared): Asked,
    RawQuery(query): RawQuery,
) -> Result<Response, Refused> {
    let is_own = Params::new(query.as_deref(), b"").get("own") == Some("1");
    let board = shared.board.clone();
    let own = apart(move || Ok(board.sources()));
    let others = async {
        match is_own {
            true => (Vec::new(), Vec::new()),
            false => shared.peers.sources().await,
        }
    };
    let (rows, (others, missing)) = tokio::join!(own, others);
    let rows = rows?;
    let total = rows.len() + others.len();
    let rows = rows.into_iter().map(|row| serde_json::json!(row));
    // Each part has those with most trouble first.
    let shown: Vec<_> = rows.take(SHOWN_MAX).chain(others).take(SHOWN_MAX).collect();
    let mut body = serde_json::json!({ "sources_total": total, "sources": shown });
    if !missing.is_empty() {
        body["missing"] = serde_json::json!(missing);
    }
    Ok(json(StatusCode::OK, body.to_string()))
}

/// `/api/stats`
pub(super) async fn stats(State(shared): Asked) -> Response {
    let stats = shared.kept.store.stats();
    let body = serde_json::json!({
        "store": {
            "series": stats.series,
            "samples": stats.appended.accepted,
            "refused": stats.appended.refused(),
            "head_samples": stats.head_samples,
            "head_bytes": stats.head_bytes,
            "log_bytes": stats.log_bytes,
            "table_bytes": stats.table_bytes,
            "is_full": shared.kept.is_full.load(Ordering::Relaxed),
            "is_on_disk": shared.kept.disk.is_some(),
        },
        "queue_samples": shared.queue.samples(),
        "queue_samples_max": shared.config.queue_samples_max,
    });
    json(StatusCode::OK, body.to_string())
}

/// `/metrics`
pub(super) async fn metrics(State(shared): Asked) -> Response {
    let mut text = String::new();
    shared.counts.registry.encode(&mut text);
    ([(header::CONTENT_TYPE, sheaf_metrics::CONTENT_TYPE)], text).into_response()
}

/// `/healthz`: this thread answers, so it turns.
pub(super) async fn health() -> &'static str {
    "ok\n"
}

/// `/readyz`
pub(super) async fn ready(State(shared): Asked) -> Response {
    if shared.kept.is_full.load(Ordering::Relaxed) {
        let text = "the disk is full: no samples are taken\n";
        return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    }
    "ready\n".into_response()
}

/// `/ping`, by which clients of InfluxDB 1 look for their server.
pub(super) async fn ping() -> Response {
    (StatusCode::NO_CONTENT, [("x-influxdb-version", "1.8.0")]).into_response()
}

/// `/health`, by which clients of InfluxDB 2 look for their server.
pub(super) async fn influx_health() -> Response {
    json(
        StatusCode::OK,
        r#"{"name":"sheaf","message":"ready for queries and writes","status":"pass"}"#.to_owned(),
    )
}
