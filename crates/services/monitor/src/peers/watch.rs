//! Sources that went to another collector: their silence here is no alarm here.

use super::{Peer, PeerError, body, place};
use crate::client::Client;
use crate::shared::Shared;
use crate::wall;
use hyper::Method;
use hyper::body::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// Route of the sources that a collector hears.
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

/// Asks every peer for its sources until the collector stops.
pub(crate) fn watch(shared: &Arc<Shared>) {
    let silent_ms = shared.config.alarms.limits.sources.silent_ms;
    let silent = Duration::from_millis(u64::try_from(silent_ms).unwrap_or(0));
    let every = (silent / PER_SILENCE).clamp(Duration::from_millis(50), EVERY);
    for peer in &shared.peers.peers {
        tokio::spawn(watch_one(shared.clone(), peer.clone(), every));
    }
}

async fn watch_one(shared: Arc<Shared>, peer: Arc<Peer>, every: Duration) {
    let path = format!("{ROUTE}?within_ms={}", 2 * every.as_millis());
    // The files were read at the start, and a token may have been changed since.
    let mut client = None;
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = shared.stop.wait() => return,
            _ = ticks.tick() => {}
        }
        let heard = ask(&mut client, &peer, &path, every).await;
        if let Ok(heard) = &heard {
            take(&shared, heard);
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

/// Lets the alarms know which sources are heard elsewhere, in times of the own clock.
fn take(shared: &Shared, heard: &Heard) {
    let now_ms = wall::now_ms();
    let mut alarms = shared.desk.alarms();
    for (source, seen_ms) in &heard.sources {
        let age_ms = heard.now_ms.saturating_sub(*seen_ms).max(0);
        alarms.handle_source_elsewhere(now_ms, source, now_ms.saturating_sub(age_ms));
    }
}
