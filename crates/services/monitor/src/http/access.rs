//! Rights of requests: which each route needs, and where a client puts its token.

use super::answer::Refused;
use crate::security::Rights;
use crate::shared::Shared;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::sync::Arc;

/// Routes that take samples.
const WRITES: [&str; 4] = ["/write", "/api/v2/write", "/api/v1/write", "/v1/metrics"];
/// Routes that tell nothing but that the collector is there.
const OPEN: [&str; 4] = ["/healthz", "/readyz", "/ping", "/health"];

/// Passes on a request whose client may make it.
pub(super) async fn check(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Response {
    let Some(needed) = needed(request.method(), request.uri().path()) else {
        return next.run(request).await;
    };
    let proven = request.extensions().get::<Rights>().copied();
    let rights = proven.or_else(|| {
        let token = token(request.headers(), request.uri().query());
        shared.guard.rights_of(token.as_deref())
    });
    match rights {
        Some(rights) if rights.include(needed) => next.run(request).await,
        Some(_) => {
            shared.guard.note_rights();
            let text = "this token may do something else; rights are write, read and all";
            Refused::of(StatusCode::FORBIDDEN, "forbidden", text).into_response()
        }
        None => {
            let text = "found no token that is known, expected Authorization: Bearer TOKEN, or the password of Basic";
            let mut answer =
                Refused::of(StatusCode::UNAUTHORIZED, "unauthorized", text).into_response();
            // A browser asks for name and password then.
            let basic = HeaderValue::from_static("Basic realm=\"sheaf\"");
            answer.headers_mut().insert(header::WWW_AUTHENTICATE, basic);
            answer
        }
    }
}

/// Returns the rights that a request needs; none for routes that are open.
fn needed(method: &Method, path: &str) -> Option<Rights> {
    if OPEN.contains(&path) {
        return None;
    }
    if WRITES.contains(&path) {
        return Some(Rights::Write);
    }
    let is_question = path.starts_with("/api/v1/") && *method == Method::POST;
    if *method == Method::GET || *method == Method::HEAD || is_question {
        return Some(Rights::Read);
    }
    Some(Rights::All)
}

/// Finds the token of a request: `Bearer` and, of InfluxDB, `Token`, the password of `Basic`, and the parameter `p`.
fn token(headers: &HeaderMap, query: Option<&str>) -> Option<String> {
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        let query = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        let mut passwords = query.filter(|(name, _)| name == "p");
        return passwords.next().map(|(_, value)| value.into_owned());
    };
    let (word, rest) = value.to_str().ok()?.split_once(' ')?;
    match word.to_ascii_lowercase().as_str() {
        "bearer" | "token" => {
            // Clients of InfluxDB 1.8 write user and password here.
            let token = rest.trim();
            Some(
                token
                    .split_once(':')
                    .map_or(token, |(_, token)| token)
                    .to_owned(),
            )
        }
        "basic" => {
            let text = String::from_utf8(STANDARD.decode(rest.trim()).ok()?).ok()?;
            Some(text.split_once(':')?.1.to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_wherever_clients_put_it() {
        let of = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, HeaderValue::from_static(value));
            token(&headers, None)
        };
        let found = Some("secret".to_owned());
        assert_eq!(of("Bearer secret"), found);
        assert_eq!(of("Token secret"), found);
        assert_eq!(of("Token user:secret"), found);
        assert_eq!(of("Basic dXNlcjpzZWNyZXQ="), found);
        assert_eq!(token(&HeaderMap::new(), Some("u=a&p=secret")), found);
        for wrong in ["Basic !", "Digest x", "Bearer"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn every_route_needs_the_right_of_its_kind() {
        let of = |method: Method, path| needed(&method, path);
        assert_eq!(of(Method::POST, "/write"), Some(Rights::Write));
        assert_eq!(of(Method::POST, "/api/v1/write"), Some(Rights::Write));
        assert_eq!(of(Method::POST, "/api/v1/query"), Some(Rights::Read));
        assert_eq!(of(Method::GET, "/"), Some(Rights::Read));
        assert_eq!(of(Method::POST, "/api/silences"), Some(Rights::All));
        assert_eq!(of(Method::DELETE, "/api/silences/1"), Some(Rights::All));
        assert_eq!(of(Method::GET, "/healthz"), None);
    }
}
