//! A thread that serves: its listener, its connections, and the watch over them.

use crate::answer::Answer;
use crate::connection;
use crate::metrics::Refused;
use crate::site::Site;
use crate::watch::{Phase, Watched};
use httpdate::HttpDate;
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::task::LocalSet;
use tracing::{debug, warn};

/// How often connections are looked at.
const TICK: Duration = Duration::from_secs(1);
/// Pause after an accept that failed: what is short is not there again at once.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Connections to the page at once; a further one waits.
const PAGE_CONNECTIONS_MAX: usize = 16;

/// State of a thread that its connections share.
pub(crate) struct Worker {
    pub(crate) site: Arc<Site>,
    watched: RefCell<Vec<Weak<Watched>>>,
    is_stopping: Cell<bool>,
    /// Notified at the end of each connection.
    ended: Notify,
    /// Second since 1970, and the date of headers in it.
    date: RefCell<(u64, String)>,
}

impl Worker {
    /// Registers a connection with the watch.
    pub(crate) fn watch(&self) -> Rc<Watched> {
        let watched = Rc::new(Watched::new(Instant::now()));
        self.watched.borrow_mut().push(Rc::downgrade(&watched));
        watched
    }

    /// Returns whether no further request is to be taken.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.get()
    }

    /// Gives the present date, as headers carry it, to `use_it`.
    pub(crate) fn date(&self, use_it: impl FnOnce(&str)) {
        let now = SystemTime::now();
        let since = now.duration_since(SystemTime::UNIX_EPOCH);
        let second = since.map_or(0, |since| since.as_secs());
        let mut date = self.date.borrow_mut();
        if date.0 != second || date.1.is_empty() {
            *date = (second, HttpDate::from(now).to_string());
        }
        use_it(&date.1);
    }

    /// Sends an answer as far as the socket has room for it, for a client that is not waited for.
    pub(crate) fn send_at_once(&self, answer: &Answer, socket: &TcpStream) {
        let name = self.site.name.as_deref();
        // If there is no room for a few lines, the client does not read them either.
        self.date(|date| drop(socket.try_write(&answer.to_bytes(date, name))));
    }

    fn tick(&self) {
        let now = Instant::now();
        self.watched.borrow_mut().retain(|watched| {
            let watched = watched.upgrade();
            if let Some(watched) = &watched {
                watched.tick(now, &self.site.limits);
            }
            watched.is_some()
        });
    }

    /// Ends the connections that wait for a request.
    fn end_idle(&self) {
        let watched = self.watched.borrow();
        for watched in watched.iter().filter_map(Weak::upgrade) {
            if watched.phase() == Phase::Idle {
                watched.end();
            }
        }
    }

    fn count(&self) -> usize {
        let watched = self.watched.borrow();
        watched.iter().filter(|one| one.strong_count() > 0).count()
    }
}

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
        let worker = Rc::new(Worker {
            site,
            watched: RefCell::default(),
            is_stopping: Cell::new(false),
            ended: Notify::new(),
            date: RefCell::default(),
        });
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
    if open >= site.limits.connections_max {
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
    worker.is_stopping.set(true);
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
