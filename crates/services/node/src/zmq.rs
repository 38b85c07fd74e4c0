//! Sockets of ZeroMQ at the ends of a farm: opened as a farm file says, logged and counted. Nodes never talk by them to
//! each other. For operators: `docs/how-to/zmq.md`.

pub mod o2_balancer;

use crate::check::Check;
use serde::{Deserialize, Serialize};
use sheaf_metrics::{Metric, Registry};
use sheaf_zmtp::{
    BindError, Endpoint, EndpointError, Event, PeerError, PeerId, Socket, SocketConfig, SocketType,
};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thiserror::Error;
use tracing::{debug, info, warn};

/// How often the metrics are brought up to date.
const EXPORT_EVERY: Duration = Duration::from_millis(250);
/// How often the same is said in the log.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Side that binds an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZmqMethod {
    /// The node.
    #[default]
    Bind,
    /// The peer; the node connects, and again whenever the connection is gone.
    Connect,
}

/// Checks an endpoint of ZeroMQ. To connect to one, it has to be known.
pub(crate) fn check_endpoint(check: &mut Check, key: &str, text: &str, method: ZmqMethod) {
    let found = text.parse::<Endpoint>();
    let is_known = match &found {
        Ok(Endpoint::Tcp { host, port }) => host != "*" && *port != 0,
        Ok(Endpoint::Ipc(_)) => true,
        Err(_) => false,
    };
    check.that(
        found.is_ok() && (is_known || method == ZmqMethod::Bind),
        key,
        format!("\"{text}\""),
        "tcp://HOST:PORT or ipc://PATH, such as tcp://127.0.0.1:5555",
    );
}

/// Returns the address of an endpoint of ZeroMQ, unless it is a Unix socket.
pub(crate) fn host_port(endpoint: &str) -> Option<String> {
    endpoint.parse::<Endpoint>().ok()?.host_port()
}

const PEERS: Metric = Metric::gauge(
    "node_zmq_peers",
    "ZeroMQ peers whose handshake is completed.",
)
.labels(&["socket"])
.advice("0: the producer or consumer is away");
const CONNECTED: Metric = Metric::counter(
    "node_zmq_connected_total",
    "Handshakes completed with ZeroMQ peers.",
)
.labels(&["socket"])
.advice("healthy: constant after the start");
const ENDED: Metric = Metric::counter(
    "node_zmq_ended_total",
    "ZeroMQ connections that ended or could not be made, by reason.",
)
.labels(&["socket", "reason"])
.advice("each reason: [zmq.md](../how-to/zmq.md)");
const REFUSED: Metric = Metric::counter(
    "node_zmq_refused_total",
    "ZeroMQ messages refused, by reason.",
)
.labels(&["socket", "reason"])
.advice("a producer has another framing than `flp.source.framing`");
const MESSAGES_IN: Metric =
    Metric::counter("node_zmq_messages_in_total", "ZeroMQ messages received.").labels(&["socket"]);
const BYTES_IN: Metric = Metric::counter(
    "node_zmq_bytes_in_total",
    "Bytes of ZeroMQ messages received.",
)
.labels(&["socket"]);
const MESSAGES_OUT: Metric = Metric::counter(
    "node_zmq_messages_out_total",
    "ZeroMQ messages sent, as the kernel has taken them.",
)
.labels(&["socket"])
.advice("stands still with `node_zmq_peers` above 0: consumers stop");
const RETURNED: Metric = Metric::counter(
    "node_zmq_returned_total",
    "ZeroMQ messages that a peer had not wholly taken when it went.",
)
.labels(&["socket"])
.advice("a sink sends the TF again. Consumers die");
/// TFs of a publishing sink, without a subscriber.
pub(crate) const UNHEARD: Metric = Metric::counter(
    "node_zmq_unheard_total",
    "TFs published by ZeroMQ without a subscriber.",
)
.labels(&["socket"])
.advice("no subscriber; take `push` where each TF counts");

/// All of them.
pub(crate) const METRICS: [Metric; 9] = [
    PEERS,
    CONNECTED,
    ENDED,
    REFUSED,
    MESSAGES_IN,
    BYTES_IN,
    MESSAGES_OUT,
    RETURNED,
    UNHEARD,
];

/// Why there is no socket.
#[derive(Debug, Error)]
pub enum ZmqError {
    /// The endpoint is none.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The address cannot be listened at, or its name is not known.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Socket that cannot subscribe.
    #[error("cannot subscribe: {0}")]
    Subscribe(#[from] PeerError),
    /// The operating system gives none.
    #[error("cannot make a socket of ZeroMQ: {0}")]
    Io(#[from] io::Error),
}

/// A socket with its log and its metrics.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) socket: Socket,
    /// Where it listens, with the actual port, or where it connects to.
    pub(crate) endpoint: Endpoint,
    /// Purpose: the label of its metrics.
    role: &'static str,
    registry: Arc<Registry>,
    exported: Option<Instant>,
    refused: BTreeMap<&'static str, u64>,
    /// Whether the log has said that no peer answers.
    is_alone: bool,
    told: Option<Instant>,
    untold: u64,
}

impl Link {
    /// Opens a socket at `endpoint`. `role` is what it is for, such as `source`.
    ///
    /// # Errors
    ///
    /// [`ZmqError`] if it cannot be had.
    pub(crate) fn open(
        role: &'static str,
        socket_type: SocketType,
        config: SocketConfig,
        (endpoint, method): (&str, ZmqMethod),
        registry: Arc<Registry>,
    ) -> Result<Self, ZmqError> {
        let mut endpoint: Endpoint = endpoint.parse()?;
        let mut socket = Socket::new(socket_type, config)?;
        match method {
            ZmqMethod::Bind => endpoint = socket.bind(&endpoint)?,
            ZmqMethod::Connect => socket.connect(&endpoint)?,
        }
        info!(role, %socket_type, %endpoint, ?method, "A socket of ZeroMQ is open");
        Ok(Self {
            socket,
            endpoint,
            role,
            registry,
            exported: None,
            refused: BTreeMap::new(),
            is_alone: false,
            told: None,
            untold: 0,
        })
    }

    /// Logs what has happened, and brings the metrics up to date now and then. Gives the peers that have gone.
    pub(crate) fn look(&mut self) -> Vec<PeerId> {
        let mut gone = Vec::new();
        while let Some(event) = self.socket.try_event() {
            if let Event::Gone { peer, .. } = event {
                gone.push(peer);
            }
            self.log(event);
        }
        if self
            .exported
            .is_none_or(|exported| exported.elapsed() >= EXPORT_EVERY)
        {
            self.export();
        }
        gone
    }

    fn log(&mut self, event: Event) {
        let role = self.role;
        match event {
            Event::Ready { address, hello, .. } => {
                self.is_alone = false;
                let socket_type = hello.socket_type;
                info!(role, address, socket_type, "A peer of ZeroMQ is there");
            }
            Event::Gone {
                address, reason, ..
            } if reason.is_ordinary() => {
                info!(role, address, %reason, "A peer of ZeroMQ has gone");
            }
            Event::Gone {
                address,
                reason: reason @ PeerError::Unreachable(_),
                ..
            } if std::mem::replace(&mut self.is_alone, true) => {
                debug!(role, address, %reason, "Still no peer of ZeroMQ");
            }
            Event::Gone {
                address, reason, ..
            } => {
                if let Some(others) = self.may_log() {
                    warn!(role, address, %reason, others, "A peer of ZeroMQ is not there or cut off");
                }
            }
            Event::NotAccepted(error) => {
                if let Some(others) = self.may_log() {
                    warn!(role, %error, others, "A peer of ZeroMQ cannot be accepted");
                }
            }
        }
    }

    /// A message was not taken.
    pub(crate) fn refuse(&mut self, code: &'static str, why: &dyn std::fmt::Display) {
        *self.refused.entry(code).or_default() += 1;
        if let Some(others) = self.may_log() {
            warn!(role = self.role, %why, others, "A message is refused");
        }
    }

    /// Once a second: how many were passed over since.
    fn may_log(&mut self) -> Option<u64> {
        if self.told.is_some_and(|told| told.elapsed() < TELL_EVERY) {
            self.untold += 1;
            return None;
        }
        self.told = Some(Instant::now());
        Some(std::mem::take(&mut self.untold))
    }

    /// Brings the metrics up to date.
    pub(crate) fn export(&mut self) {
        self.exported = Some(Instant::now());
        let (stats, role) = (self.socket.stats(), self.role);
        let labels = [("socket", role)];
        for (metric, value) in [
            (CONNECTED, stats.peers),
            (MESSAGES_IN, stats.received_messages),
            (BYTES_IN, stats.received_bytes),
            (MESSAGES_OUT, stats.sent_messages),
            (RETURNED, stats.returned_messages),
            (PEERS, self.socket.peers() as u64),
        ] {
            self.registry.set(&metric, &labels, value);
        }
        for (metric, counts) in [(ENDED, &stats.ended), (REFUSED, &self.refused)] {
            for (reason, count) in counts {
                let labels = [("socket", role), ("reason", *reason)];
                self.registry.set(&metric, &labels, *count);
            }
        }
    }

    /// How long may be waited before the socket or the metrics want something.
    pub(crate) fn idle_time(&self) -> Duration {
        let due = self.socket.deadline();
        due.map_or(EXPORT_EVERY, |due| {
            due.saturating_duration_since(Instant::now())
                .min(EXPORT_EVERY)
        })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.export();
    }
}
