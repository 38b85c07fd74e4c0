//! The page of a server about itself, at an address of its own: metrics for programs that scrape, and for agents.

use crate::answer::{Answer, Content};
use crate::head::Head;
use crate::site::Site;
use serde_json::json;

/// Answers a request to the page.
pub(crate) fn respond(site: &Site, head: &Head) -> Answer {
    let path = head.target().split('?').next().unwrap_or_default();
    let (kind, text) = match (head.method(), path) {
        ("GET" | "HEAD", "/metrics" | "/.sheaf/metrics") => {
            let mut text = String::new();
            site.registry.encode(&mut text);
            (sheaf_metrics::CONTENT_TYPE, text)
        }
        ("GET" | "HEAD", "/metrics.json" | "/.sheaf/metrics.json") => {
            ("application/json", json_of(site))
        }
        ("GET" | "HEAD", _) => {
            return Answer::refusal(404, "expected `/metrics` or `/metrics.json`");
        }
        _ => return Answer::refusal(405, "expected GET").with("Allow", "GET, HEAD"),
    };
    Answer::new(200)
        .with("Content-Type", kind)
        .with("Cache-Control", "no-store")
        .content(Content::Bytes(text.into_bytes()))
}

/// Values that a director weighs a server by.
fn json_of(site: &Site) -> String {
    let counts = &site.counts;
    let object = json!({
        "name": site.name,
        "sent_bytes": counts.sent.value(),
        "received_bytes": counts.received.value(),
        "transfers_active": counts.active.value(),
        "connections": counts.connections.value(),
        "broken": counts.broken.value(),
    });
    format!("{object}\n")
}
