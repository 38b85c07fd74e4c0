//! Answers of the page, route by route.

use super::Page;
use crate::health::Health;
use crate::usage;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Response, StatusCode};
use sheaf_metrics::{Metric, Registry, Row};
use std::fmt::Write as _;

/// Turns of the event loop, as it stands in [`Health`](crate::health::Health).
pub(super) const TURNS: &[Row<u64>] = &[Row::counter(
    "node_loop_turns_total",
    "Turns of the event loop.",
    "stands still: the process hangs; `/healthz` says so after 5 s",
    |turns| *turns,
)];

const PLAIN: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";

/// Routes, with what stands beside them on the page at `/`.
const ROUTES: [(&str, &str); 4] = [
    ("/", "this page"),
    ("/metrics", "metrics, as Prometheus text"),
    (
        "/healthz",
        "200 while the event loop turns, else 503 with the reason",
    ),
    (
        "/readyz",
        "200 when joined, leading or standing by behind a leader, else 503 with the phase",
    ),
];

/// Lists the metrics of the loop.
pub(super) fn metrics() -> impl Iterator<Item = Metric> {
    TURNS.iter().map(|row| row.metric)
}

/// Returns the answer to a request.
pub(super) fn answer(page: &Page, method: &Method, path: &str) -> Response<Full<Bytes>> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        let text = format!("found {method}, expected GET or HEAD\n");
        let mut answer = with(StatusCode::METHOD_NOT_ALLOWED, PLAIN, text);
        answer
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return answer;
    }
    match path {
        "/" => with(StatusCode::OK, HTML, html(page)),
        "/metrics" => with(
            StatusCode::OK,
            sheaf_metrics::CONTENT_TYPE,
            metrics_text(page),
        ),
        "/healthz" => match page.health.trouble() {
            None => with(StatusCode::OK, PLAIN, "ok\n".to_owned()),
            Some(trouble) => with(StatusCode::SERVICE_UNAVAILABLE, PLAIN, trouble + "\n"),
        },
        "/readyz" => {
            let standing = page.health.standing();
            let status = if standing.is_ready {
                StatusCode::OK
            } else {
                StatusCode::SERVICE_UNAVAILABLE
            };
            with(status, PLAIN, format!("{}\n", standing.phase))
        }
        _ => {
            let routes = ROUTES.map(|(route, _)| route).join(", ");
            let text = format!("found another path, expected {routes}\n");
            with(StatusCode::NOT_FOUND, PLAIN, text)
        }
    }
}

fn with(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// Brings the turns of the event loop up to date.
pub(crate) fn export_turns(registry: &Registry, health: &Health) {
    registry.export(TURNS, &health.turns());
}

/// Returns all metrics; those of the process are of this moment.
fn metrics_text(page: &Page) -> String {
    export_turns(&page.registry, &page.health);
    usage::export(&page.registry);
    let mut text = String::new();
    page.registry.encode(&mut text);
    text
}

fn html(page: &Page) -> String {
    let node = escaped(page.health.name());
    let standing = page.health.standing();
    let health = page.health.trouble();
    let uptime = format!("{:.0} s", page.health.uptime().as_secs_f64());
    let run = match standing.run.0 {
        0 => "none".to_owned(),
        _ => standing.run.to_string(),
    };
    let facts = [
        ("node", page.health.name().to_owned()),
        ("phase", standing.phase.to_owned()),
        ("run", run),
        ("term", standing.term.0.to_string()),
        ("health", health.unwrap_or_else(|| "ok".to_owned())),
        ("running for", uptime),
        (
            "program",
            format!("sheaf {} ({})", page.build.version, page.build.commit),
        ),
    ];
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>sheaf {node}</title>\n\
         <style>body{{font-family:sans-serif;margin:2em}}th{{text-align:left;padding-right:2em}}</style></head>\n\
         <body><h1>sheaf {node}</h1>\n<table>\n"
    );
    let written = "a string takes every text";
    for (name, value) in facts {
        writeln!(text, "<tr><th>{name}</th><td>{}</td></tr>", escaped(&value)).expect(written);
    }
    text += "</table>\n<ul>\n";
    for (route, what) in ROUTES.into_iter().skip(1) {
        writeln!(text, "<li><a href=\"{route}\">{route}</a>: {what}</li>").expect(written);
    }
    for (role, address) in &page.others {
        let address = escaped(address);
        let scheme = if page.tls.is_some() { "https" } else { "http" };
        writeln!(
            text,
            "<li>{role}: <a href=\"{scheme}://{address}/\">{address}</a></li>"
        )
        .expect(written);
    }
    text + "</ul>\n</body></html>\n"
}

/// Returns `raw` as text of HTML, in an attribute too.
fn escaped(raw: &str) -> String {
    let mut text = String::with_capacity(raw.len());
    for char in raw.chars() {
        match char {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '"' => text.push_str("&quot;"),
            _ => text.push(char),
        }
    }
    text
}
