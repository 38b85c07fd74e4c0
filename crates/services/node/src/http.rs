//! Page of a process over HTTP: metrics, health, readiness.
//!
//! The page is open to strangers, so that its use of the machine is bounded: 16 connections of one request
//! each, a head of 16 KiB within 5 s, 10 s in all. A further connection takes the place of the oldest that has
//! not sent its request yet. The descriptors of these are part of what the process claims at its start.

mod routes;
#[cfg(test)]
mod tests;

pub(crate) use routes::export_turns;

use crate::health::Health;
use crate::program::Build;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, rt};
use hyper_util::rt::{TokioIo, TokioTimer};
use sheaf_auth::{Moment, Tls};
use sheaf_metrics::{Counter, Metric, Registry};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::{info, warn};

/// Connections at a time.
const CONNECTIONS_MAX: usize = 16;
/// Descriptors of the page: its connections, one that is being accepted, the listener, and the event queue.
pub(crate) const FILES: usize = CONNECTIONS_MAX + 8;
/// Time for the head of a request.
const HEAD_WITHIN: Duration = Duration::from_secs(5);
/// Time for a connection in all: its request and the answer.
const DONE_WITHIN: Duration = Duration::from_secs(10);
/// Largest head of a request.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Pause after an accept that failed: what is short is not there again at once.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// How often the same is said in the log.
const TELL_EVERY: Duration = Duration::from_secs(1);

const ACCEPT_ERRORS: Metric = Metric::counter(
    "node_page_accept_errors_total",
    "Connections to the page of this process that could not be accepted, by kind of error.",
)
.labels(&["kind"])
.advice(
    "`files`: the process or the machine is out of file descriptors. `memory`: of kernel memory. `aborted`: the client \
     went before it was accepted",
);
const REPLACED: Metric = Metric::counter(
    "node_page_replaced_total",
    "Connections to the page of this process that were closed for a newer one.",
)
.advice("more than 16 clients at a time: a port scan, an attack, or scrapers that do not close");
const REFUSED: Metric = Metric::counter(
    "node_page_refused_total",
    "Requests to the page of this process that were refused, by reason.",
)
.labels(&["reason"])
.advice(
    "`slow_head`: no whole head within 5 s. `large_head`: more than 16 KiB. `no_http`: something else speaks to this \
     port. `tls`: a client without TLS, or without a certificate of the farm. \
     `slow_reader`: the answer was not taken within 10 s",
);

/// Kinds of accept errors.
const KINDS: [&str; 4] = ["files", "memory", "aborted", "other"];
/// Reasons to refuse a request.
const REASONS: [&str; 5] = ["slow_head", "large_head", "no_http", "tls", "slow_reader"];

/// Lists the metrics of the page.
pub(crate) fn metrics() -> impl Iterator<Item = Metric> {
    [ACCEPT_ERRORS, REPLACED, REFUSED]
        .into_iter()
        .chain(routes::metrics())
}

/// Why the metrics cannot be served.
#[derive(Debug, Error)]
#[error("cannot serve metrics at {address}: {source}")]
pub struct MetricsError {
    address: String,
    source: io::Error,
}

/// Everything that the page shows.
pub(crate) struct Page {
    /// Metrics.
    pub(crate) registry: Arc<Registry>,
    /// Health of the process.
    pub(crate) health: Arc<Health>,
    /// Program.
    pub(crate) build: Build,
    /// Pages of other roles: name and address.
    pub(crate) others: Vec<(&'static str, String)>,
    /// TLS for clients with a certificate of the farm; none for a page in the clear.
    pub(crate) tls: Option<Tls>,
}

/// Serves `page` at `address` from a thread of its own, for as long as the process lives.
///
/// # Errors
///
/// [`MetricsError`] if the address cannot be had or no thread can be made.
pub(crate) fn serve(address: &str, page: Page) -> Result<SocketAddr, MetricsError> {
    let failed = |source| MetricsError {
        address: address.to_owned(),
        source,
    };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let actual = listener.local_addr().map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    let listener = {
        let _inside = runtime.enter();
        tokio::net::TcpListener::from_std(listener).map_err(failed)?
    };
    let mut host = Host::new(page);
    let thread = std::thread::Builder::new().name("metrics".to_owned());
    let run = move || runtime.block_on(host.run(listener));
    thread.spawn(run).map_err(failed)?;
    info!(address = %actual, "Serving metrics at /metrics, health at /healthz and /readyz");
    Ok(actual)
}

/// Source of connections.
trait Accept {
    /// Waits for a connection.
    fn accept(&mut self) -> impl Future<Output = io::Result<TcpStream>>;
}

impl Accept for tokio::net::TcpListener {
    async fn accept(&mut self) -> io::Result<TcpStream> {
        Ok(tokio::net::TcpListener::accept(self).await?.0)
    }
}

/// Connection that is being served.
struct Guest {
    task: JoinHandle<()>,
    /// Whether its request is there.
    has_asked: Arc<AtomicBool>,
}

/// Server of the page.
struct Host {
    page: Arc<Page>,
    refused: Arc<[Arc<Counter>; REASONS.len()]>,
    accept_errors: [Arc<Counter>; KINDS.len()],
    replaced: Arc<Counter>,
    /// The oldest first.
    guests: VecDeque<Guest>,
    failures: Seldom,
    crowd: Seldom,
}

impl Host {
    fn new(page: Page) -> Self {
        let registry = &page.registry;
        let labelled = |metric: Metric, value| {
            registry.counter(metric.name, metric.help, &[(metric.labels[0], value)])
        };
        Self {
            refused: Arc::new(REASONS.map(|reason| labelled(REFUSED, reason))),
            accept_errors: KINDS.map(|kind| labelled(ACCEPT_ERRORS, kind)),
            replaced: registry.counter(REPLACED.name, REPLACED.help, &[]),
            guests: VecDeque::new(),
            failures: Seldom::default(),
            crowd: Seldom::default(),
            page: Arc::new(page),
        }
    }

    async fn run(&mut self, mut listener: impl Accept) {
        loop {
            match listener.accept().await {
                Ok(stream) => {
                    self.make_room().await;
                    self.serve(stream);
                    // A request that is there already is answered before the next connection is taken.
                    tokio::task::yield_now().await;
                }
                Err(error) => {
                    self.note_failure(&error);
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
            }
        }
    }

    /// Closes a connection if there is no room for another: the oldest that has not asked, or the oldest of all.
    async fn make_room(&mut self) {
        self.guests.retain(|guest| !guest.task.is_finished());
        if self.guests.len() < CONNECTIONS_MAX {
            return;
        }
        let waits = |guest: &Guest| !guest.has_asked.load(Ordering::Relaxed);
        let at = self.guests.iter().position(waits).unwrap_or(0);
        let Some(guest) = self.guests.remove(at) else {
            return;
        };
        guest.task.abort();
        // Its descriptor is closed when the task has ended.
        let _ = guest.task.await;
        self.replaced.increment();
        if let Some(untold) = self.crowd.is_due() {
            warn!(
                connections_max = CONNECTIONS_MAX,
                untold,
                "The metrics page has no connection left: the oldest is closed for a new one"
            );
        }
    }

    fn serve(&mut self, stream: TcpStream) {
        let has_asked = Arc::new(AtomicBool::new(false));
        let connection = converse(
            stream,
            self.page.clone(),
            has_asked.clone(),
            self.refused.clone(),
        );
        self.guests.push_back(Guest {
            task: tokio::spawn(connection),
            has_asked,
        });
    }

    fn note_failure(&mut self, error: &io::Error) {
        let kind = kind_of(error);
        let at = KINDS.iter().position(|known| *known == kind);
        self.accept_errors[at.expect("kind_of gives one of KINDS")].increment();
        if let Some(untold) = self.failures.is_due() {
            warn!(kind, %error, untold, "Cannot accept a connection to the metrics page");
        }
    }
}

/// Serves one request on `stream`, and counts what is refused.
async fn converse(
    stream: TcpStream,
    page: Arc<Page>,
    has_asked: Arc<AtomicBool>,
    refused: Arc<[Arc<Counter>; REASONS.len()]>,
) {
    let outcome = match &page.tls {
        None => answer(TokioIo::new(stream), &page, &has_asked).await,
        Some(tls) => match unseal(stream, tls).await {
            Ok(stream) => answer(TokioIo::new(stream), &page, &has_asked).await,
            Err(reason) => Err(reason),
        },
    };
    if let Err(reason) = outcome {
        let at = REASONS.iter().position(|known| *known == reason);
        refused[at.expect("one of REASONS")].increment();
    }
}

/// Does the TLS handshake. Returns the stream, or why its client is refused.
async fn unseal(stream: TcpStream, tls: &Tls) -> Result<TlsStream<TcpStream>, &'static str> {
    let accepted = TlsAcceptor::from(tls.server()).accept(stream);
    let stream = match tokio::time::timeout(HEAD_WITHIN, accepted).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(_)) => return Err("tls"),
        Err(_) => return Err("slow_head"),
    };
    let chain = stream.get_ref().1.peer_certificates();
    match tls.peer(chain, Moment::now()) {
        Ok(_) => Ok(stream),
        Err(_) => Err("tls"),
    }
}

/// Answers one request. Returns why it is refused, if it is.
async fn answer(
    stream: impl rt::Read + rt::Write + Unpin,
    page: &Page,
    has_asked: &AtomicBool,
) -> Result<(), &'static str> {
    let service = service_fn(|request: Request<Incoming>| {
        has_asked.store(true, Ordering::Relaxed);
        let answer = routes::answer(page, request.method(), request.uri().path());
        std::future::ready(Ok::<_, Infallible>(answer))
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(HEAD_BYTES_MAX)
        .keep_alive(false)
        .serve_connection(stream, service);
    match tokio::time::timeout(DONE_WITHIN, connection).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) if error.is_timeout() => Err("slow_head"),
        Ok(Err(error)) if error.is_parse_too_large() => Err("large_head"),
        Ok(Err(error)) if error.is_parse() => Err("no_http"),
        // The client went: nothing is refused.
        Ok(Err(_)) => Ok(()),
        Err(_) => Err("slow_reader"),
    }
}

/// Returns the kind of an accept error, one of [`KINDS`].
fn kind_of(error: &io::Error) -> &'static str {
    use rustix::io::Errno;
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE | Errno::NFILE) => "files",
        Some(Errno::NOBUFS | Errno::NOMEM) => "memory",
        Some(Errno::CONNABORTED | Errno::CONNRESET) => "aborted",
        _ => "other",
    }
}

/// Limit of a repeating log line.
#[derive(Debug, Default)]
struct Seldom {
    told: Option<Instant>,
    untold: u64,
}

impl Seldom {
    /// Returns how many lines this one stands for beside itself, if it is time for one.
    fn is_due(&mut self) -> Option<u64> {
        let now = Instant::now();
        if self.told.is_some_and(|told| now - told < TELL_EVERY) {
            self.untold += 1;
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}
