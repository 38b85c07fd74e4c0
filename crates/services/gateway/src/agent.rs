//! Agent on a server: lists connections and measures load, for the directors.

use crate::connections::connections;
use crate::error::GatewayError;
use crate::facts::Facts;
use crate::load::Meter;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use sheaf_serve::{Flow, LoadReport};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::watch;

/// Options of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentConfig {
    /// Address of HTTP. A program that reaches it sees the addresses of clients.
    pub listen: SocketAddr,
}

/// Answer of an agent.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(crate) struct Answer {
    /// Connections to the virtual addresses that were asked for.
    pub(crate) flows: Vec<Flow>,
    /// Load since the last question.
    pub(crate) load: LoadReport,
}

/// Agent that runs; it ends when dropped.
#[derive(Debug)]
pub struct Agent {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    /// Starts the agent.
    ///
    /// # Errors
    ///
    /// Address that cannot be listened on, or a kernel that lists no connections.
    pub fn start(config: &AgentConfig) -> Result<Self, GatewayError> {
        connections(&[], config.listen.port()).map_err(GatewayError::Connections)?;
        let meter = Arc::new(Mutex::new(Meter::default()));
        let router = Router::new()
            .route("/connections", get(answer))
            .route("/facts", get(facts))
            .with_state(meter);
        let (stop, stopped) = watch::channel(false);
        let (address, thread) = serve("serve-agent", config.listen, router, stopped)?;
        Ok(Self {
            address,
            stop,
            thread: Some(thread),
        })
    }

    /// Address of HTTP, with the port that was free if 0 was asked for.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // A panic was printed there.
        }
    }
}

/// Serves a router in a thread of its own until `stopped`.
pub(crate) fn serve(
    name: &str,
    listen: SocketAddr,
    router: Router,
    mut stopped: watch::Receiver<bool>,
) -> Result<(SocketAddr, JoinHandle<()>), GatewayError> {
    let refused = |error| GatewayError::Listen {
        address: listen,
        error,
    };
    let listener = TcpListener::bind(listen).map_err(refused)?;
    listener.set_nonblocking(true).map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(GatewayError::Thread)?;
    let work = async move {
        let served = match tokio::net::TcpListener::from_std(listener) {
            Ok(listener) => {
                let until = async move {
                    let _ = stopped.wait_for(|is_stopped| *is_stopped).await;
                };
                axum::serve(listener, router)
                    .with_graceful_shutdown(until)
                    .await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = served {
            tracing::error!(%error, "HTTP has ended");
        }
    };
    let thread = std::thread::Builder::new().name(name.to_owned());
    let thread = thread
        .spawn(move || runtime.block_on(work))
        .map_err(GatewayError::Thread)?;
    Ok((address, thread))
}

/// Facts of the machine that direct return depends on, for `doctor` on a director.
async fn facts() -> Response {
    match Facts::read() {
        Ok(facts) => Json(facts).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

/// Question: `?port=80&address=10.80.0.100&address=…`.
async fn answer(State(meter): State<Arc<Mutex<Meter>>>, RawQuery(query): RawQuery) -> Response {
    let (addresses, port) = match question(query.as_deref().unwrap_or_default()) {
        Ok(question) => question,
        Err(text) => return (StatusCode::BAD_REQUEST, text + "\n").into_response(),
    };
    match connections(&addresses, port) {
        Ok(flows) => {
            let flows: Vec<Flow> = flows.into_iter().collect();
            let mut meter = meter.lock().unwrap_or_else(PoisonError::into_inner);
            let load = meter.look(flows.len() as u64);
            Json(Answer { flows, load }).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

fn question(query: &str) -> Result<(Vec<IpAddr>, u16), String> {
    let (mut addresses, mut port) = (Vec::new(), None);
    for pair in query.split('&') {
        let wrong = || format!("found {pair:?}, expected port=NUMBER or address=ADDRESS");
        match pair.split_once('=').ok_or_else(wrong)? {
            ("port", text) => port = Some(text.parse().map_err(|_| wrong())?),
            ("address", text) => addresses.push(text.parse().map_err(|_| wrong())?),
            _ => return Err(wrong()),
        }
    }
    let port = port.ok_or_else(|| format!("found {query:?}, expected a port"))?;
    Ok((addresses, port))
}
