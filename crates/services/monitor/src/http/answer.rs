//! Answers and refusals, in the form of the Prometheus HTTP API.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use sheaf_query::Error;

/// A request that is refused: status, kind, and what was found and expected.
#[derive(Debug)]
pub(super) struct Refused {
    status: StatusCode,
    body: String,
}

impl Refused {
    /// A parameter that cannot be read.
    pub(super) fn bad(text: impl Into<String>) -> Self {
        Self::of(StatusCode::BAD_REQUEST, "bad_data", text)
    }

    /// A query that has no answer.
    pub(super) fn query(error: &Error) -> Self {
        // As Prometheus: what the asker can mend is 400, what has no result is 422, and the rest is 500.
        let status = match error.kind() {
            "bad_data" => StatusCode::BAD_REQUEST,
            "internal" => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::UNPROCESSABLE_ENTITY,
        };
        Self {
            status,
            body: sheaf_query::failure(error),
        }
    }

    /// A refusal in the form of another API.
    pub(super) fn raw(status: StatusCode, body: String) -> Self {
        Self { status, body }
    }

    pub(super) fn of(status: StatusCode, kind: &str, text: impl Into<String>) -> Self {
        let text: String = text.into();
        let body = serde_json::json!({ "status": "error", "errorType": kind, "error": text });
        Self {
            status,
            body: body.to_string(),
        }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        json(self.status, self.body)
    }
}

/// Answer with a body of JSON.
pub(super) fn json(status: StatusCode, body: String) -> Response {
    let mut answer = Response::new(Body::from(body));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// Answer of the Prometheus API with `data`.
pub(super) fn data(data: impl Serialize) -> Response {
    data_with(data, &[])
}

/// Answer of the Prometheus API with `data` and what it lacks.
pub(super) fn data_with(data: impl Serialize, warnings: &[String]) -> Response {
    let mut body = serde_json::json!({ "status": "success", "data": data });
    if !warnings.is_empty() {
        body["warnings"] = serde_json::json!(warnings);
    }
    json(StatusCode::OK, body.to_string())
}
