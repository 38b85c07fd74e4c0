//! Collectors side by side: each has sources of its own, and answers for those of all.
//!
//! A question is put to the own store and to every peer at the same time. A peer that does not answer makes a warning
//! and not an error: what the others have is worth more at night than nothing. A peer answers out of its own store
//! alone, so a list of all collectors, itself included, may be the same everywhere.

mod joint;
mod rows;
mod watch;

pub(crate) use joint::Joint;
pub(crate) use watch::{Heard, watch};

use crate::client::{Answer, Client, ClientError, Place};
use crate::config::PeerConfig;
use crate::error::MonitorError;
use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use sheaf_metrics::{Counter, Gauge, Metric, Registry};
use sheaf_query::exchange::{Found, Question, decode_found};
use sheaf_sample_store::Store;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tracing::{info, warn};

/// Route of questions between collectors.
pub(crate) const ROUTE: &str = "/api/v1/peer";
/// Content type of questions and answers.
pub(crate) const CONTENT_TYPE: &str = "application/x-protobuf";
/// Longest answer of a peer.
const ANSWER_BYTES_MAX: usize = 1 << 30;
/// Time for an answer; a query over a year takes seconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// Time after a failure in which a peer is not asked: no question waits twice for one that is away.
const REST: Duration = Duration::from_secs(2);
/// Connections to one peer that are kept.
const CLIENTS_MAX: usize = 8;

const UP: Metric = Metric::gauge(
    "monitor_peer_up",
    "1 while a collector side by side answers, 0 while it does not, by its URL.",
)
.labels(&["peer"])
.advice(
    "**alarm** if 0: answers lack what only that collector has; its sources go on to the others",
);
const FAILED: Metric = Metric::counter(
    "monitor_peer_failures_total",
    "Questions that a collector side by side has not answered, by its URL.",
)
.labels(&["peer"])
.advice("growing: it is away, overloaded or refuses the token; the log has the reason");

/// Lists the metrics of collectors side by side.
pub(crate) fn metrics() -> [Metric; 2] {
    [UP, FAILED]
}

/// All other collectors.
#[derive(Clone)]
pub(crate) struct Peers {
    peers: Vec<Arc<Peer>>,
    runtime: Handle,
}

/// One of them.
struct Peer {
    /// URL of the configuration.
    name: String,
    config: PeerConfig,
    questions: Place,
    clients: Mutex<Vec<Client>>,
    rest_until: Mutex<Option<Instant>>,
    is_away: AtomicBool,
    up: Arc<Gauge>,
    failed: Arc<Counter>,
}

/// Reason why a peer gives no answer.
#[derive(Debug, thiserror::Error)]
enum PeerError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("status {0}: {1}")]
    Status(StatusCode, String),
    #[error(transparent)]
    Answer(#[from] sheaf_query::exchange::ExchangeError),
    #[error("no JSON of a collector: {0}")]
    Json(#[from] serde_json::Error),
    #[error("no answer a moment ago")]
    Rests,
}

/// Questions that are under way.
pub(crate) struct Asked(Vec<(Arc<Peer>, Answering)>);

/// Question to one peer.
type Answering = JoinHandle<Result<Found, PeerError>>;

/// Answers of the peers.
#[derive(Default)]
pub(crate) struct Answers {
    pub(crate) found: Vec<Found>,
    /// A sentence for each peer that has not answered.
    pub(crate) missing: Vec<String>,
    /// A limit that the question passes at a peer.
    pub(crate) refused: Option<String>,
}

impl Peers {
    /// Reads certificates and tokens. Nothing is connected yet.
    pub(crate) fn open(
        configs: &[PeerConfig],
        registry: &Registry,
        runtime: Handle,
    ) -> Result<Self, MonitorError> {
        let peer = |config: &PeerConfig| -> Result<Arc<Peer>, MonitorError> {
            let questions = place(config, ROUTE).map_err(|error| MonitorError::Ask {
                url: config.url.clone(),
                reason: error.to_string(),
            })?;
            let labels = [("peer", config.url.as_str())];
            Ok(Arc::new(Peer {
                name: config.url.clone(),
                config: config.clone(),
                questions,
                clients: Mutex::default(),
                rest_until: Mutex::default(),
                is_away: AtomicBool::new(false),
                up: registry.gauge(UP.name, UP.help, &labels),
                failed: registry.counter(FAILED.name, FAILED.help, &labels),
            }))
        };
        let peers = configs.iter().map(peer);
        Ok(Self {
            peers: peers.collect::<Result<_, _>>()?,
            runtime,
        })
    }

    /// Returns a source of the samples of `store` and of all peers.
    pub(crate) fn beside(&self, store: Arc<dyn Store>) -> Joint {
        Joint::new(store, self.clone())
    }

    /// Puts a question to all peers.
    fn begin(&self, question: &Question<'_>) -> Asked {
        if self.peers.is_empty() {
            return Asked(Vec::new());
        }
        let message = Bytes::from(question.encode());
        let asked = self.peers.iter().map(|peer| {
            let (own, message) = (peer.clone(), message.clone());
            let task = self
                .runtime
                .spawn(async move { own.question(message).await });
            (peer.clone(), task)
        });
        Asked(asked.collect())
    }

    /// Waits for the answers. Not for a thread of the runtime itself.
    fn end(&self, asked: Asked) -> Answers {
        let mut answers = Answers::default();
        for (peer, task) in asked.0 {
            let outcome = self.runtime.block_on(task);
            // A task that panicked has said so itself; the runtime ends with the collector.
            let outcome = outcome.unwrap_or(Err(PeerError::Rests));
            peer.note(outcome.as_ref().err());
            match outcome {
                Ok(found) => answers.found.push(found),
                Err(PeerError::Status(StatusCode::UNPROCESSABLE_ENTITY, text)) => {
                    answers.refused = Some(format!("collector {}: {text}", peer.name));
                }
                Err(error) => answers.missing.push(missing(&peer, &error)),
            }
        }
        answers
    }
}

/// Returns the sentence about a peer that is missing in an answer.
fn missing(peer: &Peer, error: &PeerError) -> String {
    let name = &peer.name;
    format!("collector {name} does not answer, its samples are missing: {error}")
}

fn place(config: &PeerConfig, path: &str) -> Result<Place, ClientError> {
    let ca: &Path = &config.ca;
    Place::new(&config.at(path), ca, &config.token_file, "Bearer")
}

impl Peer {
    async fn question(&self, message: Bytes) -> Result<Found, PeerError> {
        let until = *lock(&self.rest_until);
        if until.is_some_and(|until| Instant::now() < until) {
            return Err(PeerError::Rests);
        }
        let kept = lock(&self.clients).pop();
        let mut client = kept.unwrap_or_else(|| Client::new(self.questions.clone()));
        let headers = [("content-type", CONTENT_TYPE)];
        let mut asked = client
            .ask(
                Method::POST,
                &headers,
                message.clone(),
                ANSWER_BYTES_MAX,
                ANSWER_WITHIN,
            )
            .await;
        if matches!(asked, Err(ClientError::Answer(_))) {
            // The kept connection was of a process that has ended since.
            asked = client
                .ask(
                    Method::POST,
                    &headers,
                    message,
                    ANSWER_BYTES_MAX,
                    ANSWER_WITHIN,
                )
                .await;
        }
        let answer = asked?;
        let mut clients = lock(&self.clients);
        if clients.len() < CLIENTS_MAX {
            clients.push(client);
        }
        drop(clients);
        Ok(decode_found(&body(answer)?)?)
    }

    /// Takes note of an answer, or of none.
    fn note(&self, error: Option<&PeerError>) {
        let Some(error) = error else {
            self.up.set_u64(1);
            if self.is_away.swap(false, Ordering::Relaxed) {
                info!(peer = self.name, "A collector side by side answers again");
            }
            return;
        };
        self.up.set_u64(0);
        self.failed.increment();
        if !matches!(error, PeerError::Rests) {
            *lock(&self.rest_until) = Some(Instant::now() + REST);
        }
        if !self.is_away.swap(true, Ordering::Relaxed) {
            warn!(peer = self.name, %error, "A collector side by side does not answer");
        }
    }
}

/// Returns the body of an answer that is one.
fn body(answer: Answer) -> Result<Bytes, PeerError> {
    if answer.status.is_success() {
        return Ok(answer.body);
    }
    let text = String::from_utf8_lossy(&answer.body);
    let line = text.lines().next().unwrap_or_default().to_owned();
    Err(PeerError::Status(answer.status, line))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
