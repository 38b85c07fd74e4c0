//! HTTP of a director: orders, explanations, the state.

use crate::event::{Ask, Event, Named, OrderRequest, Status};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use sheaf_metrics::Registry;
use sheaf_serve::{Explained, Flow, Trial};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use tokio::sync::oneshot;

/// Body of an answer that refuses.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Refusal {
    /// Why.
    pub error: String,
}

/// Returns every route with its handler.
pub(crate) fn router(events: SyncSender<Event>, registry: Arc<Registry>) -> Router {
    Router::new()
        .route(
            "/metrics",
            get(metrics).with_state((events.clone(), registry)),
        )
        .route("/status", get(status))
        .route("/services/{service}/orders", post(order))
        .route("/services/{service}/explain", get(explain))
        .route("/healthz", get(|| async { "ok\n" }))
        .with_state(events)
}

type Events = State<SyncSender<Event>>;

fn refuse(status: StatusCode, error: &dyn std::fmt::Display) -> Response {
    let error = error.to_string();
    (status, Json(Refusal { error })).into_response()
}

/// Asks the thread of the director and waits for its answer.
async fn ask<T>(
    events: &SyncSender<Event>,
    ask: impl FnOnce(oneshot::Sender<T>) -> Ask,
) -> Result<T, Response> {
    let busy = || {
        refuse(
            StatusCode::SERVICE_UNAVAILABLE,
            &"the director is busy or ends",
        )
    };
    let (sender, answer) = oneshot::channel();
    events
        .try_send(Event::Ask(ask(sender)))
        .map_err(|_| busy())?;
    answer.await.map_err(|_| busy())
}

fn named<T: IntoResponse>(found: Named<T>) -> Response {
    match found {
        Named::Found(found) => found.into_response(),
        Named::Unknown(names) => refuse(
            StatusCode::NOT_FOUND,
            &format!(
                "found no service of this name, expected one of {}",
                names.join(", ")
            ),
        ),
    }
}

async fn status(State(events): Events) -> Response {
    let answer: Result<Box<Status>, Response> = ask(&events, Ask::Status).await;
    answer.map_or_else(|refusal| refusal, |status| Json(status).into_response())
}

async fn metrics(State((events, registry)): State<(SyncSender<Event>, Arc<Registry>)>) -> Response {
    let taken: Result<(), Response> = ask(&events, Ask::Metrics).await;
    if let Err(refusal) = taken {
        return refusal;
    }
    let mut text = String::new();
    registry.encode(&mut text);
    ([(CONTENT_TYPE, sheaf_metrics::CONTENT_TYPE)], text).into_response()
}

async fn order(
    State(events): Events,
    Path(service): Path<String>,
    Json(request): Json<OrderRequest>,
) -> Response {
    let answer = ask(&events, |answer| Ask::Order(service, request, answer)).await;
    let found = match answer {
        Ok(found) => found,
        Err(refusal) => return refusal,
    };
    named(match found {
        Named::Unknown(names) => Named::Unknown(names),
        Named::Found(Ok(trial)) => Named::Found(Json::<Trial>(trial).into_response()),
        Named::Found(Err(error)) => Named::Found(refuse(StatusCode::CONFLICT, &error)),
    })
}

async fn explain(
    State(events): Events,
    Path(service): Path<String>,
    Query(client): Query<Flow>,
) -> Response {
    let answer = ask(&events, |answer| Ask::Explain(service, client, answer)).await;
    let found: Named<Result<Explained, String>> = match answer {
        Ok(found) => found,
        Err(refusal) => return refusal,
    };
    named(match found {
        Named::Unknown(names) => Named::Unknown(names),
        Named::Found(Ok(explained)) => Named::Found(Json(explained).into_response()),
        Named::Found(Err(reason)) => Named::Found(refuse(StatusCode::CONFLICT, &reason)),
    })
}
