//! Connections of HTTP: bounded in number, head and time, over TLS where the configuration says so.

use crate::shared::Shared;
use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tracing::{debug, warn};

/// Time for the head of a request, and for a connection without one.
const HEAD_WITHIN: Duration = Duration::from_secs(60);
/// Largest head of a request.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// How long requests may go on when the collector stops.
const LAST_WAIT: Duration = Duration::from_secs(2);
/// Pause after an accept that failed: what is short is not there again at once.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Serves connections until the collector stops, then waits for requests that go on.
pub(super) async fn serve(
    shared: Arc<Shared>,
    listener: TcpListener,
    router: Router,
    places: Arc<Semaphore>,
) {
    loop {
        let accepted = async {
            let place = places.clone().acquire_owned().await;
            (place, listener.accept().await)
        };
        let accepted = tokio::select! {
            () = shared.stop.wait() => break,
            accepted = accepted => accepted,
        };
        match accepted {
            (Ok(place), Ok((stream, address))) => {
                let (shared, router) = (shared.clone(), router.clone());
                tokio::spawn(async move {
                    converse(&shared, stream, address, router).await;
                    drop(place);
                });
            }
            (Ok(_), Err(error)) => {
                warn!(%error, "Cannot accept a connection of HTTP");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
            (Err(_), _) => break,
        }
    }
    let all = shared.config.connections_max;
    // What has not ended by then, such as a live stream of a reader that is gone, ends with the runtime.
    let _ = tokio::time::timeout(LAST_WAIT, places.acquire_many(all)).await;
}

async fn converse(shared: &Shared, stream: TcpStream, address: SocketAddr, router: Router) {
    // Answers are small and awaited.
    let _ = stream.set_nodelay(true);
    let Some((stream, rights)) = shared.guard.admit(stream).await else {
        return;
    };
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(address));
        if let Some(rights) = rights {
            request.extensions_mut().insert(rights);
        }
        router.call(request.map(Body::new))
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = shared.stop.wait() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        debug!(%address, %error, "A connection of HTTP broke");
    }
}
