//! Engines that forwarders send to: which one answers how, one request at a time.

use super::body;
use super::given::Given;
use super::kafka::Producer;
use super::spool::Waiting;
use crate::client::{Client, ClientError, Place};
use crate::config::{ForwardConfig, ForwardKind};
use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use std::time::Duration;

/// Time of an attempt.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// Bytes of an answer, which is read for the log.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Engine of a forwarder.
pub(super) enum Engine {
    /// One that is asked over HTTP.
    Http {
        client: Box<Client>,
        kind: ForwardKind,
    },
    /// A cluster of Kafka.
    Kafka(Box<Producer>),
}

impl Engine {
    /// Reads the files that the configuration names; asks nothing yet.
    pub(super) fn new(config: &ForwardConfig) -> Result<Self, ClientError> {
        if config.kind == ForwardKind::Kafka {
            return Ok(Self::Kafka(Box::new(Producer::new(config)?)));
        }
        let word = match config.kind {
            ForwardKind::Influxdb => "Token",
            _ => "Bearer",
        };
        let url = body::url(config.kind, &config.url);
        let place = Place::new(&url, &config.ca, &config.token_file, word)?;
        Ok(Self::Http {
            client: Box::new(Client::new(place)),
            kind: config.kind,
        })
    }

    /// Sends a request. An error says why it is worth another attempt.
    pub(super) async fn attempt(&mut self, waiting: &Waiting) -> Result<Given, String> {
        match self {
            Self::Http { client, kind } => ask(client, *kind, waiting).await,
            Self::Kafka(producer) => {
                let sent = tokio::time::timeout(ANSWER_WITHIN, producer.send(waiting)).await;
                sent.unwrap_or_else(|_| {
                    producer.disconnect();
                    Err(ClientError::Time(ANSWER_WITHIN).to_string())
                })
            }
        }
    }
}

async fn ask(client: &mut Client, kind: ForwardKind, waiting: &Waiting) -> Result<Given, String> {
    let body = Bytes::from(waiting.body.clone());
    let headers = body::headers(kind);
    let asked = client.ask(Method::POST, headers, body, ANSWER_BYTES_MAX, ANSWER_WITHIN);
    let answer = asked.await.map_err(|error| error.to_string())?;
    if answer.status.is_success() {
        return Ok(Given::default());
    }
    let text = String::from_utf8_lossy(&answer.body);
    let line = text.lines().next().unwrap_or_default();
    let reason = format!("status {}: {line}", answer.status);
    // Rights and addresses are mended by an operator; a body that is wrong stays so.
    let is_passing = answer.status.is_server_error()
        || [
            StatusCode::UNAUTHORIZED,
            StatusCode::FORBIDDEN,
            StatusCode::NOT_FOUND,
            StatusCode::REQUEST_TIMEOUT,
            StatusCode::TOO_MANY_REQUESTS,
        ]
        .contains(&answer.status);
    if is_passing {
        return Err(reason);
    }
    let refused = waiting.samples;
    Ok(Given { refused, reason })
}
