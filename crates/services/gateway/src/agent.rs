//! Agent on a server: lists connections, measures load and checks the server at the virtual addresses, for directors.

use crate::check::check;
use crate::connections::connections;
use crate::error::GatewayError;
use crate::facts::Facts;
use crate::load::Meter;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use sheaf_serve::{Flow, HealthKind, LoadReport};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
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

/// Order to check the server of this machine at the virtual addresses.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckHere {
    pub(crate) kind: HealthKind,
    /// Name of the server.
    pub(crate) server: String,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) port: u16,
    /// Longest time for each address.
    pub(crate) timeout_ms: u64,
}

/// Result of [`CheckHere`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Checked {
    /// Fault that was found first; none if the server is well.
    pub(crate) fault: Option<String>,
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
            .route("/check", post(check_here))
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

/// Longest time of a check at one address that a director may ask for.
const CHECK_MAX: Duration = Duration::from_secs(600);

/// Checks the server of this machine. Addresses of other machines and programs are refused: a program that reaches the
/// agent gets no further with it.
async fn check_here(Json(order): Json<CheckHere>) -> Response {
    let refuse = |text: String| (StatusCode::BAD_REQUEST, text + "\n").into_response();
    if matches!(order.kind, HealthKind::Script { .. }) {
        return refuse("found a check by a program, expected one by a protocol".to_owned());
    }
    let checked = tokio::task::spawn_blocking(move || order.carry_out()).await;
    match checked {
        Ok(checked) => Json(checked).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

impl CheckHere {
    fn carry_out(&self) -> Checked {
        let timeout = Duration::from_millis(self.timeout_ms).min(CHECK_MAX);
        let at = |address: &IpAddr| {
            // An address that is not of this machine cannot be bound.
            UdpSocket::bind((*address, 0))
                .map_err(|_| format!("this machine has no address {address}"))?;
            let address = SocketAddr::new(*address, self.port);
            check(&self.kind, &self.server, address, timeout)
                .map_err(|fault| format!("at {address}: {fault}"))
        };
        Checked {
            fault: self.addresses.iter().find_map(|address| at(address).err()),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check_at(addresses: &[&str], port: u16) -> Option<String> {
        let addresses = addresses
            .iter()
            .map(|text| text.parse().expect("an address"));
        let order = CheckHere {
            kind: HealthKind::Tcp,
            server: "s1".to_owned(),
            addresses: addresses.collect(),
            port,
            timeout_ms: 5000,
        };
        order.carry_out().fault
    }

    #[test]
    fn a_server_is_well_if_it_answers_at_all_addresses_of_this_machine() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        assert_eq!(check_at(&["127.0.0.1"], port), None);
        let fault = check_at(&["127.0.0.1", "127.0.0.9"], port).expect("it listens at one");
        assert!(
            fault.starts_with(&format!("at 127.0.0.9:{port}: ")),
            "{fault}"
        );
        let fault = check_at(&["192.0.2.1"], port).expect("an address of a document");
        assert_eq!(fault, "this machine has no address 192.0.2.1");
    }
}
