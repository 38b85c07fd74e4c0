//! HTTP of the collector: writes, the query API of Prometheus, live values, pages.

mod access;
mod alarms;
mod answer;
mod ask;
mod live;
mod pages;
mod params;
mod pass;
mod peer;
mod rules;
mod serve;
mod state;
mod store;
mod write;

use crate::peers;
use crate::scrape::{self, Target};
use crate::shared::Shared;
use crate::{streams, wall};
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use axum::routing::{delete, get, post};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tracing::error;

/// Period of the work of the shard of this thread.
const TICK: Duration = Duration::from_millis(20);

/// Every route with its handler: one place.
fn router(shared: Arc<Shared>) -> Router {
    let bytes_max = shared.config.request_bytes_max as usize;
    let live = Arc::new(Semaphore::new(shared.config.live_max as usize));
    Router::new()
        .route("/write", post(write::lines))
        .route("/api/v2/write", post(write::lines))
        .route("/api/v1/write", post(write::remote_write))
        .route("/v1/metrics", post(write::otlp))
        .route("/api/v1/query", get(ask::query).post(ask::query))
        .route(
            "/api/v1/query_range",
            get(ask::query_range).post(ask::query_range),
        )
        .route("/api/v1/series", get(ask::series).post(ask::series))
        .route("/api/v1/labels", get(ask::labels).post(ask::labels))
        .route("/api/v1/label/{name}/values", get(ask::label_values))
        .route("/api/v1/metadata", get(ask::metadata))
        .route(
            "/api/v1/query_exemplars",
            get(ask::exemplars).post(ask::exemplars),
        )
        .route("/api/v1/status/buildinfo", get(ask::build_info))
        .route(peers::ROUTE, post(peer::question))
        .route("/api/v1/rules", get(rules::rules))
        .route("/api/v1/alerts", get(rules::alerts))
        .route("/api/alarms", get(alarms::alarms))
        .route("/api/alarms/history", get(alarms::history))
        .route("/api/alarms/sources", get(peer::sources))
        .route(
            "/api/silences",
            get(alarms::silences).post(alarms::create_silence),
        )
        .route("/api/silences/{id}", delete(alarms::expire_silence))
        .route("/api/live", get(live::live))
        .route("/api/sources", get(state::sources))
        .route("/api/stats", get(state::stats))
        .route("/api/store/check", post(store::check))
        .route("/api/store/snapshot", post(store::snapshot))
        .route("/metrics", get(state::metrics))
        .route("/healthz", get(state::health))
        .route("/readyz", get(state::ready))
        .route("/ping", get(state::ping).head(state::ping))
        .route("/health", get(state::influx_health))
        .fallback(pages::page)
        .layer(DefaultBodyLimit::max(bytes_max))
        .layer(axum::Extension(live))
        .layer(middleware::from_fn_with_state(shared.clone(), pass::pass))
        .layer(middleware::from_fn_with_state(
            shared.clone(),
            access::check,
        ))
        .with_state(shared)
}

/// Serves HTTP and streams of lines until the collector stops.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    listener: TcpListener,
    streams: Vec<(SocketAddr, TcpListener)>,
    targets: Vec<Target>,
) {
    let places = Arc::new(Semaphore::new(shared.config.connections_max as usize));
    for (address, listener) in streams {
        match tokio::net::TcpListener::from_std(listener) {
            Ok(listener) => drop(tokio::spawn(streams::serve(
                shared.clone(),
                listener,
                places.clone(),
            ))),
            Err(error) => error!(%address, %error, "Cannot serve streams of lines"),
        }
    }
    let ticking = tokio::spawn(tick(shared.clone()));
    scrape::start(&shared, targets);
    let silent_ms = shared.config.alarms.limits.sources.silent_ms;
    let desk = shared.desk.clone();
    peers::watch(&shared.peers, silent_ms, &shared.stop, move |heard| {
        peer::take(&desk, heard);
    });
    match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => {
            serve::serve(shared.clone(), listener, router(shared.clone()), places).await;
        }
        Err(error) => error!(%error, "Cannot serve HTTP"),
    }
    ticking.abort();
    let mut shard = shared.shard();
    shard.tick(wall::now_ms());
}

async fn tick(shared: Arc<Shared>) {
    let mut every = tokio::time::interval(TICK);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        shared.shard().tick(wall::now_ms());
    }
}
