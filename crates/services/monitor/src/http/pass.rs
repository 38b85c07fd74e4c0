//! Queries that another engine answers, so that Grafana keeps one address (`monitor.query_from`).

use super::answer::Refused;
use crate::client::{Client, Place};
use crate::shared::Shared;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Questions that are passed on; rules and alerts are those of the collector.
const QUESTIONS: [&str; 7] = [
    "query",
    "query_range",
    "query_exemplars",
    "series",
    "labels",
    "metadata",
    "format_query",
];
/// Longest form of a question.
const FORM_BYTES_MAX: usize = 1 << 20;
/// Time until an answer begins.
const ANSWER_WITHIN: Duration = Duration::from_secs(120);

/// Passes a question on; everything else goes to its route.
pub(super) async fn pass(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Response {
    let base = &shared.config.query_from;
    if base.is_empty() || !is_question(request.uri().path()) {
        return next.run(request).await;
    }
    match ask(base, request).await {
        Ok(response) => response,
        Err(reason) => {
            let text = format!("no answer from monitor.query_from: {reason}");
            Refused::of(StatusCode::BAD_GATEWAY, "unavailable", text).into_response()
        }
    }
}

fn is_question(path: &str) -> bool {
    let Some(name) = path.strip_prefix("/api/v1/") else {
        return false;
    };
    QUESTIONS.contains(&name) || (name.starts_with("label/") && name.ends_with("/values"))
}

async fn ask(base: &str, request: Request) -> Result<Response, String> {
    let none = Path::new("");
    let place = Place::new(base, none, none, "Bearer").map_err(|error| error.to_string())?;
    let asked = request
        .uri()
        .path_and_query()
        .map_or("/", |path| path.as_str());
    let path = format!("{}{asked}", place.path().trim_end_matches('/'));
    let is_form = request.headers().contains_key(header::CONTENT_TYPE);
    let headers: &[(&'static str, &'static str)] = if is_form {
        &[("content-type", "application/x-www-form-urlencoded")]
    } else {
        &[]
    };
    let method = request.method().clone();
    let form = to_bytes(request.into_body(), FORM_BYTES_MAX).await;
    let form: Bytes = form.map_err(|error| error.to_string())?;
    let mut client = Client::new(place);
    let answer = tokio::time::timeout(ANSWER_WITHIN, client.send(method, &path, headers, form));
    let (answer, _) = match answer.await {
        Ok(answer) => answer.map_err(|error| error.to_string())?,
        Err(_) => return Err(format!("nothing within {} s", ANSWER_WITHIN.as_secs())),
    };
    let (head, body) = answer.into_parts();
    let mut response = Response::new(Body::new(body));
    *response.status_mut() = head.status;
    if let Some(kind) = head.headers.get(header::CONTENT_TYPE) {
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, kind.clone());
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_of_the_prometheus_api_are_passed_on() {
        for path in [
            "/api/v1/query",
            "/api/v1/label/host/values",
            "/api/v1/series",
        ] {
            assert!(is_question(path), "{path}");
        }
        for path in ["/api/v1/rules", "/api/v1/write", "/api/live", "/query"] {
            assert!(!is_question(path), "{path}");
        }
    }
}
