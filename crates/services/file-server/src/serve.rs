//! A thread that serves: it takes connections, and at the end waits for them.

use crate::answer::Answer;
use crate::connection;
use crate::metrics::Refused;
use crate::site::Site;
use crate::worker::Worker;
use socket2::SockRef;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::LocalSet;
use tracing::{debug, warn};

/// How often connections are looked at.
const TICK: Duration = Duration::from_secs(1);
/// Pause after an accept that failed: what is short is not there again at once.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// Connections that may hold as much as the kernel gives them: few are fastest so.
const UNBOUNDED_MAX: usize = 64;
/// Bytes that all further ones may hold unsent, and bounds of each.
const UNSENT_BYTES: usize = 256 << 20;
const UNSENT_BYTES_MIN: usize = 64 << 10;
const UNSENT_BYTES_MAX: usize = 256 << 10;
/// Connections to the page at once; a further one waits.
const PAGE_CONNECTIONS_MAX: usize = 16;

/// Serves until the site stops and running requests have ended, or their deadline has passed.
pub(crate) fn run(
    site: Arc<Site>,
    listener: std::net::TcpListener,
    page: Option<std::net::TcpListener>,
) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(site.blocking_threads)
        .build()?;
    let local = LocalSet::new();
    local.block_on(&runtime, async {
        let listener = TcpListener::from_std(listener)?;
        let worker = Rc::new(Worker::new(site));
        if let Some(page) = page {
            let page = TcpListener::from_std(page)?;
            tokio::task::spawn_local(serve_page(worker.clone(), page));
        }
        serve(&worker, &listener).await;
        drain(&worker, listener).await;
        Ok(())
    })
}

async fn serve(worker: &Rc<Worker>, listener: &TcpListener) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((socket, peer)) => begin(worker, socket, peer),
                Err(error) => {
                    warn!(%error, "Cannot accept a connection");
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
            },
            _ = ticks.tick() => worker.tick(),
            () = worker.site.stop.wait() => return,
        }
    }
}

/// Serves the page with metrics, also while running requests end.
async fn serve_page(worker: Rc<Worker>, listener: TcpListener) {
    let places = Arc::new(Semaphore::new(PAGE_CONNECTIONS_MAX));
    loop {
        let place = places.clone().acquire_owned().await;
        match (place, listener.accept().await) {
            (Ok(place), Ok((socket, peer))) => {
                let worker = worker.clone();
                tokio::task::spawn_local(async move {
                    connection::serve_page(worker, socket, peer).await;
                    drop(place);
                });
            }
            (Ok(_), Err(error)) => {
                warn!(%error, "Cannot accept a connection to the page");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
            (Err(_), _) => return,
        }
    }
}

fn begin(worker: &Rc<Worker>, socket: TcpStream, peer: SocketAddr) {
    let site = worker.site.clone();
    let open = site.open.fetch_add(1, Ordering::Relaxed);
    bound_unsent(&socket, open + 1);
    if open >= site.limits.connections_max && !worker.makes_room() {
        site.open.fetch_sub(1, Ordering::Relaxed);
        site.counts.refused(Refused::Connections);
        debug!(%peer, "Refused a connection: there are too many");
        if site.tls.is_none() {
            refuse(worker, &socket);
        }
        return;
    }
    let worker = worker.clone();
    tokio::task::spawn_local(async move {
        connection::serve(worker.clone(), socket, peer).await;
        site.open.fetch_sub(1, Ordering::Relaxed);
        worker.ended.notify_one();
    });
}

/// Bounds what the kernel holds for a client that does not take it, where there are many: all of them together could
/// use up the memory that it has for TCP, and then it drops packets of every connection of the machine.
fn bound_unsent(socket: &TcpStream, open: usize) {
    if open > UNBOUNDED_MAX {
        let bytes = (UNSENT_BYTES / open).clamp(UNSENT_BYTES_MIN, UNSENT_BYTES_MAX);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        // Without it the client is served all the same.
        let _ = SockRef::from(socket).set_tcp_notsent_lowat(bytes);
    }
}

/// Answers a connection that is one too many, without reading its request.
fn refuse(worker: &Worker, socket: &TcpStream) {
    let answer = Answer::refusal(503, "there are too many connections")
        .with("Retry-After", 1)
        .closing();
    worker.send_at_once(&answer, socket);
}

/// Takes no further requests, and waits for those that run.
async fn drain(worker: &Rc<Worker>, listener: TcpListener) {
    // Clients that are connected already, and wait in the queue of the kernel, are served once.
    while let Ok(Ok((socket, peer))) = tokio::time::timeout(Duration::ZERO, listener.accept()).await
    {
        begin(worker, socket, peer);
    }
    drop(listener);
    worker.stop();
    let deadline = tokio::time::sleep(worker.site.limits.drain_within);
    let mut deadline = std::pin::pin!(deadline);
    let mut ticks = tokio::time::interval(TICK);
    worker.end_idle();
    while worker.count() > 0 {
        tokio::select! {
            () = worker.ended.notified() => {}
            _ = ticks.tick() => {
                // One that was accepted last may have had no turn to note that it is idle.
                worker.end_idle();
                worker.tick();
            }
            () = deadline.as_mut() => break,
        }
    }
    let left = worker.count();
    if left > 0 {
        warn!(connections = left, "Ended with requests that run");
    }
}
