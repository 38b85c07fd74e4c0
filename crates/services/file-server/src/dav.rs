//! WebDAV beside GET and PUT, by the crate `dav-server` over the folder that is served.

mod files;

use crate::answer::{Answer, Content, Flow};
use crate::head::Head;
use crate::path::TreePath;
use crate::tree::Tree;
use bytes::Bytes;
use dav_server::{DavConfig, DavHandler};
use files::Files;
use http::Request;
use http_body_util::Full;
use std::sync::Arc;

/// Most bytes of a body with XML.
pub(crate) const BODY_BYTES_MAX: usize = 64 << 10;
/// Headers of a request that the crate sees. Conditions are checked before, by the code that checks those of GET.
const PASSED: [&str; 5] = ["depth", "destination", "overwrite", "if", "content-type"];
/// Headers of its answers that the client sees.
const RETURNED: [&str; 3] = ["content-type", "content-location", "location"];

/// WebDAV of a folder.
#[derive(Clone)]
pub(crate) struct Dav {
    handler: DavHandler,
}

impl Dav {
    pub(crate) fn new(tree: Arc<Tree>, is_synced: bool) -> Self {
        let files = Files { tree, is_synced };
        // Locks are left out: they would hold for one of many servers only.
        let config = DavConfig::new().filesystem(Box::new(files));
        Self {
            handler: config.build_handler(),
        }
    }

    /// Answers a request with the body that came with it.
    pub(crate) async fn answer(
        &self,
        head: &Head,
        path: &TreePath,
        destination: Option<&TreePath>,
        body: Vec<u8>,
    ) -> Answer {
        let mut request = Request::builder()
            .method(head.method())
            .uri(path.to_target());
        for name in PASSED {
            let value = match (name, destination) {
                // As it was checked, without the host.
                ("destination", Some(path)) => Some(path.to_target().into_bytes()),
                _ => head.all(name).next().map(<[u8]>::to_vec),
            };
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        let Ok(request) = request.body(Full::new(Bytes::from(body))) else {
            return Answer::refusal(400, "found a header that is no text");
        };
        let response = self.handler.handle(request).await;
        let (parts, body) = response.into_parts();
        let mut answer = Answer::new(parts.status.as_u16());
        for name in RETURNED {
            let value = parts.headers.get(name);
            if let Some(value) = value.and_then(|value| value.to_str().ok()) {
                answer = answer.with(name, value);
            }
        }
        match answer.status {
            // The crate explains multi-statuses only.
            status @ 400.. => Answer::refusal(status, explanation(head.method(), status)),
            201 | 204 => answer,
            _ => answer.content(Content::Flow(Flow::new(body))),
        }
    }
}

fn explanation(method: &str, status: u16) -> String {
    let why = match (method, status) {
        ("MKCOL", 405) => "there is something with this name",
        ("MKCOL", 415) => "expected no body",
        (_, 409) => "there is no folder for it",
        (_, 412) => "there is something at the destination",
        _ => "the request could not be carried out",
    };
    format!("{method}: {why}")
}
