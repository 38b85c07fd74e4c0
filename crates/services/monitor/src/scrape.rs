//! Scrapes: pages with metrics that the collector reads, with the meaning that they have in Prometheus.
//!
//! Each target has a task. A scrape gives `up` (1 or 0), `scrape_duration_seconds` and `scrape_samples_scraped`. A
//! series that the page no longer has ends with a staleness marker, and all of a target's do when it does not answer.

use crate::client::{Answer, Client, ClientError, Place};
use crate::config::ScrapeConfig;
use crate::error::MonitorError;
use crate::gzip;
use crate::shared::Shared;
use crate::wall;
use hyper::body::Bytes;
use hyper::{Method, StatusCode, header};
use sheaf_intake::Peer;
use sheaf_samples::wire::exposition::Format;
use sheaf_samples::{Labels, NAME, STALE, Sample};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::{MissedTickBehavior, interval_at};
use tracing::{info, warn};

/// Headers of a scrape.
const HEADERS: &[(&str, &str)] = &[("accept", Format::ACCEPT), ("accept-encoding", "gzip")];

/// Reason why a scrape gives nothing.
#[derive(Debug, thiserror::Error)]
enum ScrapeError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("status {0}, expected 200")]
    Status(StatusCode),
    #[error(transparent)]
    Gzip(#[from] gzip::GzipError),
}

/// Returns the places of all targets, in their order.
///
/// # Errors
///
/// The first place that cannot be asked, with its reason.
pub(crate) fn places(config: &[ScrapeConfig]) -> Result<Vec<Target>, MonitorError> {
    let mut all = Vec::new();
    for job in config {
        for address in &job.targets {
            let url = job.url(address);
            let place = Place::new(&url, &job.ca, &job.token_file, "Bearer");
            let mut labels = vec![
                ("job".to_owned(), job.job.clone()),
                ("instance".to_owned(), address.clone()),
            ];
            labels.extend(job.labels.clone());
            all.push(Target {
                client: Client::new(place.map_err(|error| MonitorError::Ask {
                    url: url.clone(),
                    reason: error.to_string(),
                })?),
                url,
                labels,
                every: Duration::from_millis(job.interval_ms),
                within: Duration::from_millis(job.timeout_ms),
                known: BTreeSet::new(),
                is_up: None,
                peer: Peer {
                    address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                    stream: 0,
                },
            });
        }
    }
    Ok(all)
}

/// One page that is scraped.
pub(crate) struct Target {
    client: Client,
    url: String,
    labels: Vec<(String, String)>,
    every: Duration,
    within: Duration,
    /// Series of the last scrape.
    known: BTreeSet<Labels>,
    is_up: Option<bool>,
    peer: Peer,
}

/// Starts a task for each target. They end with the runtime.
pub(crate) fn start(shared: &Arc<Shared>, targets: Vec<Target>) {
    let count = u32::try_from(targets.len()).unwrap_or(u32::MAX);
    for (number, target) in (0..).zip(targets) {
        // Spread over the interval, so that no moment has all of them.
        let first = target.every * number / count;
        tokio::spawn(target.run(shared.clone(), first));
    }
}

impl Target {
    async fn run(mut self, shared: Arc<Shared>, first: Duration) {
        let mut every = interval_at(tokio::time::Instant::now() + first, self.every);
        every.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                () = shared.stop.wait() => return,
                _ = every.tick() => {}
            }
            while !shared.queue.has_room() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            self.scrape(&shared).await;
        }
    }

    async fn scrape(&mut self, shared: &Shared) {
        let (at_ms, begun) = (wall::now_ms(), Instant::now());
        let bytes_max = shared.config.request_bytes_max as usize;
        let asked = self
            .client
            .ask(Method::GET, HEADERS, Bytes::new(), bytes_max, self.within);
        let page = asked.await.map_err(ScrapeError::from);
        let page = page.and_then(|answer| page_of(answer, bytes_max));
        let took = begun.elapsed();
        self.tell(page.as_ref().err());
        let is_up = page.is_ok();
        let mut seen = Vec::new();
        let mut shard = shared.shard();
        let mut scraped = 0;
        if let Ok((peer, format, bytes)) = page {
            self.peer = peer;
            let labels = self.labels.iter();
            let labels: Vec<(&str, &str)> = labels
                .map(|(name, value)| (name.as_str(), value.as_str()))
                .collect();
            let outcome = shard.take_scrape(at_ms, peer, format, &labels, &bytes, &mut seen);
            scraped = outcome.taken + outcome.bad + outcome.refused;
        }
        let seen: BTreeSet<Labels> = seen.into_iter().collect();
        let ended = self.known.difference(&seen);
        let ended = ended.map(|labels| {
            (
                labels.clone(),
                Sample {
                    at_ms,
                    value: STALE,
                },
            )
        });
        let own = [
            ("up", f64::from(u8::from(is_up))),
            ("scrape_duration_seconds", took.as_secs_f64()),
            ("scrape_samples_scraped", scraped as f64),
        ];
        let own = own
            .into_iter()
            .filter_map(|(name, value)| Some((self.own(name)?, Sample { at_ms, value })));
        shard.take_samples(at_ms, self.peer, ended.chain(own));
        shard.flush();
        drop(shard);
        self.known = seen;
    }

    /// Labels of a series about the scrape itself; none if a label of the configuration is no label.
    fn own(&self, name: &str) -> Option<Labels> {
        let labels = self
            .labels
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        Labels::new(labels.chain([(NAME, name)])).ok()
    }

    fn tell(&mut self, error: Option<&ScrapeError>) {
        let is_up = error.is_none();
        if self.is_up.replace(is_up) == Some(is_up) {
            return;
        }
        match error {
            None => info!(url = self.url, "A target is scraped"),
            Some(error) => warn!(url = self.url, %error, "A target is not scraped"),
        }
    }
}

/// Returns sender, format and text of a page.
fn page_of(answer: Answer, bytes_max: usize) -> Result<(Peer, Format, Bytes), ScrapeError> {
    if answer.status != StatusCode::OK {
        return Err(ScrapeError::Status(answer.status));
    }
    let text = |name| {
        answer
            .headers
            .get(name)
            .and_then(|value| value.to_str().ok())
    };
    let format = Format::of_content_type(text(header::CONTENT_TYPE).unwrap_or_default());
    let is_gzip = text(header::CONTENT_ENCODING) == Some("gzip");
    let peer = Peer {
        address: answer.peer.ip(),
        stream: u64::from(answer.peer.port()),
    };
    let bytes = if is_gzip {
        gzip::unpack(&answer.body, bytes_max)?
    } else {
        answer.body
    };
    Ok((peer, format, bytes))
}
