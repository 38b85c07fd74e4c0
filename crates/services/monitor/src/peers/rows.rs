//! Rows of the page of sources, of all collectors.

use super::{Peer, PeerError, Peers, body, missing, place};
use crate::client::Client;
use hyper::Method;
use hyper::body::Bytes;
use serde_json::Value as Json;
use std::sync::Arc;
use std::time::Duration;

/// Rows of one collector alone.
const PATH: &str = "/api/sources?own=1";
/// Longest answer: as many rows as are shown, with all their codes.
const ANSWER_BYTES_MAX: usize = 32 << 20;
/// Time for an answer, which waits for the shards of the collector.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

impl Peers {
    /// Returns the rows of all peers, each with the URL of its collector, and a sentence for each peer that is missing.
    pub(crate) async fn sources(&self) -> (Vec<Json>, Vec<String>) {
        let ask = |peer: &Arc<Peer>| tokio::spawn(rows(peer.clone()));
        let asked: Vec<_> = self.peers.iter().map(ask).collect();
        let (mut all, mut without) = (Vec::new(), Vec::new());
        for (peer, task) in self.peers.iter().zip(asked) {
            let outcome = task.await.unwrap_or(Err(PeerError::Rests));
            peer.note(outcome.as_ref().err());
            match outcome {
                Ok(rows) => all.extend(rows),
                Err(error) => without.push(missing(peer, &error)),
            }
        }
        (all, without)
    }
}

async fn rows(peer: Arc<Peer>) -> Result<Vec<Json>, PeerError> {
    let mut client = Client::new(place(&peer.config, PATH)?);
    let asked = client.ask(
        Method::GET,
        &[],
        Bytes::new(),
        ANSWER_BYTES_MAX,
        ANSWER_WITHIN,
    );
    let answer = body(asked.await?)?;
    let mut answer: Json = serde_json::from_slice(&answer)?;
    let Some(Json::Array(mut rows)) = answer.get_mut("sources").map(Json::take) else {
        return Ok(Vec::new());
    };
    for row in rows.iter_mut().filter_map(Json::as_object_mut) {
        row.insert("collector".to_owned(), Json::from(peer.name.as_str()));
    }
    Ok(rows)
}
