//! Events of a director, questions to it, and its state.

use serde::{Deserialize, Serialize};
use sheaf_planes::Counted;
use sheaf_serve::{Explained, Flow, LoadReport, Order, OrderError, ServerId, ServiceStatus, Trial};
use std::collections::BTreeMap;
use tokio::sync::oneshot;

/// Order of an operator, as the body of a request.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OrderRequest {
    /// The order.
    pub order: Order,
    /// Whether to say only what would move.
    #[serde(default)]
    pub is_trial: bool,
}

/// Service that was asked for, and whether it is there.
#[derive(Debug)]
pub(crate) enum Named<T> {
    /// Answer of the service.
    Found(T),
    /// No service has this name; names there are.
    Unknown(Vec<String>),
}

/// Question of HTTP.
#[derive(Debug)]
pub(crate) enum Ask {
    Status(oneshot::Sender<Box<Status>>),
    /// Whether the metrics are those of now.
    Metrics(oneshot::Sender<()>),
    Order(
        String,
        OrderRequest,
        oneshot::Sender<Named<Result<Trial, OrderError>>>,
    ),
    Explain(
        String,
        Flow,
        oneshot::Sender<Named<Result<Explained, String>>>,
    ),
}

/// Event for the thread of the director.
#[derive(Debug)]
pub(crate) enum Event {
    Check(usize, ServerId, Result<(), String>),
    Load(usize, ServerId, LoadReport),
    Flows(usize, ServerId, u64, Vec<Flow>),
    NoFlows(usize, ServerId, u64),
    /// The agent of a server did not answer when it was to check it.
    Unanswered(usize, ServerId),
    Ask(Ask),
    Stop,
}

/// State of a director.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Status {
    /// Name of the director.
    pub director: String,
    /// Name of its plane.
    pub plane: String,
    /// Time since it began, in seconds.
    pub uptime_s: f64,
    /// Services.
    pub services: Vec<ServiceStatus>,
    /// Packets and bytes that the plane counted to each server, by service and server.
    pub counted: BTreeMap<String, BTreeMap<String, Counted>>,
}
