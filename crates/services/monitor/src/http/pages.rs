//! Pages: what `web/` was built into, embedded in the program.

use axum::body::Body;
use axum::http::{HeaderValue, Method, Response, StatusCode, Uri, header};
use rust_embed::RustEmbed;

/// Files of `web/dist`, which `npm run build` writes there.
#[derive(RustEmbed)]
#[folder = "../../../web/dist/"]
#[allow_missing = true]
struct Files;

/// Page of a program that was built without them.
const MISSING: &str = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>sheaf monitor</title></head>\n\
<body><h1>sheaf monitor</h1>\n<p>This program was built without its pages. They need Node.js: run\n\
<code>npm ci &amp;&amp; npm run build</code> in <code>web/</code>, then build the program again.</p>\n\
<p>Everything else works: <a href=\"/metrics\">/metrics</a>, <a href=\"/api/v1/query?query=up\">/api/v1/query</a>,\n\
<a href=\"/api/sources\">/api/sources</a>.</p></body></html>\n";

/// Every path that is no route: a file, or the page that shows itself by its path.
pub(super) async fn page(method: Method, uri: Uri) -> Response<Body> {
    if !matches!(method, Method::GET | Method::HEAD) {
        return text(
            StatusCode::METHOD_NOT_ALLOWED,
            "found another method, expected GET\n",
        );
    }
    let path = uri.path().trim_start_matches('/');
    if let Some(file) = Files::get(path) {
        let kind = file.metadata.mimetype().to_owned();
        // Names of assets change with their content.
        let keep = if path.starts_with("assets/") {
            "public, max-age=31536000, immutable"
        } else {
            "no-cache"
        };
        return with(
            StatusCode::OK,
            &kind,
            keep,
            Body::from(file.data.into_owned()),
        );
    }
    if path.starts_with("api/") || path.starts_with("v1/") {
        return text(
            StatusCode::NOT_FOUND,
            "found another path, expected one of docs/reference/monitor-api.md\n",
        );
    }
    match Files::get("index.html") {
        Some(file) => with(
            StatusCode::OK,
            "text/html; charset=utf-8",
            "no-cache",
            Body::from(file.data.into_owned()),
        ),
        None => with(
            StatusCode::OK,
            "text/html; charset=utf-8",
            "no-store",
            Body::from(MISSING),
        ),
    }
}

fn text(status: StatusCode, body: &'static str) -> Response<Body> {
    with(
        status,
        "text/plain; charset=utf-8",
        "no-store",
        Body::from(body),
    )
}

fn with(status: StatusCode, kind: &str, keep: &'static str, body: Body) -> Response<Body> {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    if let Ok(kind) = HeaderValue::from_str(kind) {
        headers.insert(header::CONTENT_TYPE, kind);
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(keep));
    // No outside address is needed, so none is allowed.
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:",
        ),
    );
    answer
}
