//! The metrics of a process over HTTP: `GET /metrics`, Prometheus text.

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use sheaf_metrics::Registry;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use thiserror::Error;
use tracing::{error, info};

/// Why the metrics cannot be served.
#[derive(Debug, Error)]
#[error("cannot serve metrics at {address}: {source}")]
pub struct MetricsError {
    address: String,
    source: std::io::Error,
}

/// Serves `registry` at `address` from a thread of its own, for as long as the process lives.
///
/// # Errors
///
/// [`MetricsError`] if the address cannot be had or no thread can be made.
pub(crate) fn serve(address: &str, registry: Arc<Registry>) -> Result<SocketAddr, MetricsError> {
    let failed = |source| MetricsError {
        address: address.to_owned(),
        source,
    };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let actual = listener.local_addr().map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(failed)?;
    let routes = Router::new().route(
        "/metrics",
        get(move || async move {
            let mut text = String::new();
            registry.encode(&mut text);
            ([(CONTENT_TYPE, sheaf_metrics::CONTENT_TYPE)], text)
        }),
    );
    let serve = async move {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        axum::serve(listener, routes).await
    };
    let thread = std::thread::Builder::new().name("metrics".to_owned());
    let run = move || {
        if let Err(error) = runtime.block_on(serve) {
            error!(%error, "The metrics are no longer served");
        }
    };
    thread.spawn(run).map_err(failed)?;
    info!(address = %actual, "Serving metrics at /metrics");
    Ok(actual)
}
