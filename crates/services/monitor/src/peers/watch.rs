//! Sources that went to another collector: their silence here is no alarm here.

use super::{Peer, PeerError, Peers, body, place};
use crate::client::Client;
use crate::stop::Stop;
use hyper::Method;
use hyper::body::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// Route of the sources that a collector receives from.
pub(crate) const ROUTE: &str = "/api/alarms/sources";
/// Longest answer: a million sources.
const ANSWER_BYTES_MAX: usize = 128 << 20;
/// Longest time between two questions.
const EVERY: Duration = Duration::from_secs(5);
/// The time between two questions goes into that for a silent source this often.
const PER_SILENCE: u32 = 4;

/// Sources that a collector has heard lately, with the times of its clock.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct Heard {
    /// Time of the answer, in ms.
    pub(crate) now_ms: i64,
    /// Time at which each was heard last.
    pub(crate) sources: BTreeMap<String, i64>,
}

/// Asks every peer for its sources until the collector stops, often enough for a silence of `silent_ms`; `take` gets
/// the answers.
pub(crate) fn watch(
    peers: &Peers,
    silent_ms: i64,
    stop: &Stop,
    take: impl Fn(&Heard) + Clone + Send + 'static,
) {
    let silent = Duration::from_millis(u64::try_from(silent_ms).unwrap_or(0));
    let every = (silent / PER_SILENCE).clamp(Duration::from_millis(50), EVERY);
    for peer in &peers.peers {
        tokio::spawn(watch_one(peer.clone(), every, stop.clone(), take.clone()));
    }
}

async fn watch_one(peer: Arc<Peer>, every: Duration, stop: Stop, take: impl Fn(&Heard)) {
    let path = format!("{ROUTE}?within_ms={}", 2 * every.as_millis());
    // The files were read at the start, and a token may have been changed since.
    let mut client = None;
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.wait() => return,
            _ = ticks.tick() => {}
        }
        let heard = ask(&mut client, &peer, &path, every).await;
        if let Ok(heard) = &heard {
            take(heard);
        }
        peer.note(heard.as_ref().err());
    }
}

async fn ask(
    client: &mut Option<Client>,
    peer: &Peer,
    path: &str,
    within: Duration,
) -> Result<Heard, PeerError> {
    let known = match client {
        Some(known) => known,
        None => client.insert(Client::new(place(&peer.config, path)?)),
    };
    let within = within.max(Duration::from_secs(1));
    let asked = known.ask(Method::GET, &[], Bytes::new(), ANSWER_BYTES_MAX, within);
    let answer = body(asked.await?)?;
    Ok(serde_json::from_slice(&answer)?)
}
