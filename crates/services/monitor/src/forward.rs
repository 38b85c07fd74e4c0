//! Forwarders: engines past this machine get what the collector takes, over any outage that their spool has room for.
//!
//! Each has two threads. `spool-NAME` makes requests of samples, and keeps them on disk ([`Spool`]); `forward-NAME`
//! sends them in their order, with growing pauses while the engine does not answer. A request that was not acknowledged
//! is sent again, so an engine gets every sample at least once.

mod body;
mod engine;
mod given;
mod kafka;
mod records;
mod spool;

use crate::config::{ForwardConfig, MonitorConfig};
use crate::error::MonitorError;
use crate::queue::Samples;
use crate::stop::Stop;
use engine::Engine;
use given::Given;
use sheaf_metrics::{Counter, Gauge, Metric, Registry};
use sheaf_processing::{Destinations, OutputHandle};
use sheaf_sample_store::SeriesId;
use sheaf_samples::{Labels, Sample};
use spool::Spool;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tracing::{error, info, warn};

/// Batches between the store's thread and a spool; with more the store waits, and nothing is received.
const BATCHES_MAX: usize = 64;
/// How long samples wait for others of their request.
const GATHER: Duration = Duration::from_millis(100);
/// First pause after an attempt that failed.
const RETRY: Duration = Duration::from_millis(100);
/// Time of an attempt once the collector stops.
const LAST_WAIT: Duration = Duration::from_secs(2);
/// Longest wait of a sender, after which it looks whether it should stop.
const TURN: Duration = Duration::from_millis(100);

const SENT: Metric = Metric::counter(
    "monitor_forward_samples_total",
    "Samples that an engine has acknowledged, by forwarder.",
)
.labels(&["forward"])
.advice("healthy: as fast as `monitor_store_samples_total`, or as its route says");
const DROPPED: Metric = Metric::counter(
    "monitor_forward_dropped_total",
    "Samples that an engine does not get, by forwarder and reason.",
)
.labels(&["forward", "reason"])
.advice(
    "`full`: the outage was longer than `spool_mib`. `refused`: the engine does not want them, the log has its reason. \
     `unfit`: its format cannot carry them, such as NaN in lines. `disk`: the spool cannot be written or read",
);
const FAILED: Metric = Metric::counter(
    "monitor_forward_failures_total",
    "Attempts to send that failed and are repeated, by forwarder.",
)
.labels(&["forward"])
.advice("growing: the engine is away or overloaded; the log has the reason");
const WAITING: Metric = Metric::gauge(
    "monitor_forward_waiting_samples",
    "Samples in the spool of a forwarder.",
)
.labels(&["forward"])
.advice("**alarm** if it grows: the engine is away or too slow");
const WAITING_BYTES: Metric = Metric::gauge(
    "monitor_forward_waiting_bytes",
    "Bytes of the spool of a forwarder on disk.",
)
.labels(&["forward"])
.advice("near `spool_mib`: samples are dropped soon");

/// Lists the metrics of forwarders.
pub(crate) fn metrics() -> [Metric; 5] {
    [SENT, DROPPED, FAILED, WAITING, WAITING_BYTES]
}

/// Labels and routes of series, by their number in the store.
#[derive(Debug, Default)]
pub(crate) struct Names(RwLock<Vec<Option<Named>>>);

type Named = (Arc<Labels>, Destinations);

impl Names {
    fn note(&self, id: SeriesId, labels: &Arc<Labels>, to: Destinations) {
        let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let at = id.0 as usize;
        if at >= names.len() {
            names.resize(at + 1, None);
        }
        names[at] = Some((labels.clone(), to));
    }
}

/// Series of one shard with their routes, so that [`Names`] is written to when one changes, not with every sample.
pub(crate) struct Routes {
    names: Arc<Names>,
    /// By handle.
    series: Vec<Option<Route>>,
}

struct Route {
    id: SeriesId,
    labels: Arc<Labels>,
    to: Option<Destinations>,
}

impl Routes {
    pub(crate) fn new(names: Arc<Names>) -> Self {
        let series = Vec::new();
        Self { names, series }
    }

    /// Adds a series.
    pub(crate) fn add(&mut self, handle: OutputHandle, id: SeriesId, labels: &Arc<Labels>) {
        let at = handle.0 as usize;
        if at >= self.series.len() {
            self.series.resize_with(at + 1, || None);
        }
        let labels = labels.clone();
        let to = None;
        self.series[at] = Some(Route { id, labels, to });
    }

    /// Notes where a sample of a series goes.
    pub(crate) fn note(&mut self, handle: OutputHandle, to: Destinations) {
        let route = self.series.get_mut(handle.0 as usize);
        if let Some(route) = route.and_then(Option::as_mut)
            && route.to != Some(to)
        {
            route.to = Some(to);
            self.names.note(route.id, &route.labels, to);
        }
    }

    /// Ends a series.
    pub(crate) fn end(&mut self, handle: OutputHandle) {
        if let Some(route) = self.series.get_mut(handle.0 as usize) {
            *route = None;
        }
    }
}

/// All forwarders of a collector, as the thread of the store sees them.
#[derive(Default)]
pub(crate) struct Forwards {
    pub(crate) names: Option<Arc<Names>>,
    lanes: Vec<SyncSender<Arc<Samples>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Forwards {
    /// Opens all spools and starts the threads.
    pub(crate) fn start(
        config: &MonitorConfig,
        registry: &Registry,
        stop: &Stop,
    ) -> Result<Self, MonitorError> {
        let mut opened = Vec::new();
        let names = Arc::new(Names::default());
        for forward in &config.forward {
            let failed = |error: &dyn std::fmt::Display| MonitorError::Ask {
                url: forward.place(),
                reason: error.to_string(),
            };
            let engine = Engine::new(forward).map_err(|error| failed(&error))?;
            let folder = forward.folder(&config.data);
            let spool = Spool::open(&folder, u64::from(forward.spool_mib) << 20);
            let spool = spool.map_err(|error| failed(&error))?;
            let places = &config.processing.destinations;
            let lane = Arc::new(Lane {
                config: forward.clone(),
                destination: places.iter().position(|name| *name == forward.name),
                spool,
                counts: Counts::new(registry, &forward.name),
            });
            opened.push((lane, engine));
        }
        let mut all = Self::default();
        for (lane, engine) in opened {
            let (sender, receiver) = sync_channel(BATCHES_MAX);
            let name = &lane.config.name;
            let spawn = |role: &str, work: Box<dyn FnOnce() + Send>| {
                let thread = std::thread::Builder::new().name(format!("{role}-{name}"));
                thread.spawn(work).map_err(MonitorError::Thread)
            };
            let (spooled, of_series) = (lane.clone(), names.clone());
            let work = move || spooled.keep(&receiver, &of_series);
            all.threads.push(spawn("spool", Box::new(work))?);
            let (sent, stop) = (lane.clone(), stop.clone());
            let work = move || sent.send(engine, &stop);
            all.threads.push(spawn("forward", Box::new(work))?);
            all.lanes.push(sender);
        }
        all.names = (!all.lanes.is_empty()).then_some(names);
        Ok(all)
    }

    /// Gives all forwarders a batch; waits for one whose disk is behind.
    pub(crate) fn give(&self, batch: &Samples) {
        if self.lanes.is_empty() {
            return;
        }
        let batch = Arc::new(batch.clone());
        for lane in &self.lanes {
            // A thread that has ended has panicked, which `end` reports.
            let _ = lane.send(batch.clone());
        }
    }

    /// Ends the lanes, and waits until what was given is spooled, and sent as far as the engines take it at once.
    pub(crate) fn end(self) {
        drop(self.lanes);
        for thread in self.threads {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

struct Counts {
    sent: Arc<Counter>,
    failed: Arc<Counter>,
    full: Arc<Counter>,
    refused: Arc<Counter>,
    unfit: Arc<Counter>,
    disk: Arc<Counter>,
    waiting: Arc<Gauge>,
    waiting_bytes: Arc<Gauge>,
}

impl Counts {
    fn new(registry: &Registry, name: &str) -> Self {
        let of = |metric: Metric| registry.counter(metric.name, metric.help, &[("forward", name)]);
        let gauge = |metric: Metric| registry.gauge(metric.name, metric.help, &[("forward", name)]);
        let dropped = |reason| {
            let labels = [("forward", name), ("reason", reason)];
            registry.counter(DROPPED.name, DROPPED.help, &labels)
        };
        Self {
            sent: of(SENT),
            failed: of(FAILED),
            full: dropped("full"),
            refused: dropped("refused"),
            unfit: dropped("unfit"),
            disk: dropped("disk"),
            waiting: gauge(WAITING),
            waiting_bytes: gauge(WAITING_BYTES),
        }
    }
}

/// One forwarder.
struct Lane {
    config: ForwardConfig,
    /// Place among the destinations of the processing, if it is one.
    destination: Option<usize>,
    spool: Spool,
    counts: Counts,
}

impl Lane {
    /// Spools what is given until the lane ends.
    fn keep(&self, batches: &Receiver<Arc<Samples>>, names: &Names) {
        let mut gathered: Samples = Vec::new();
        let mut due: Option<Instant> = None;
        loop {
            let patience = due.map_or(GATHER, |due| due.saturating_duration_since(Instant::now()));
            let batch = batches.recv_timeout(patience);
            match &batch {
                Ok(batch) => gathered.extend_from_slice(batch),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if !gathered.is_empty() && due.is_none() {
                due = Some(Instant::now() + GATHER);
            }
            let is_due = due.is_some_and(|due| due <= Instant::now());
            if is_due || gathered.len() >= self.config.request_samples_max as usize {
                self.spool(&gathered, names);
                gathered.clear();
                due = None;
            }
            self.note();
        }
        self.spool(&gathered, names);
        self.spool.close();
        self.note();
    }

    fn spool(&self, samples: &Samples, names: &Names) {
        for samples in samples.chunks(self.config.request_samples_max as usize) {
            let names = names.0.read().unwrap_or_else(PoisonError::into_inner);
            let named = samples.iter().filter_map(|(id, sample)| {
                let (labels, to) = names.get(id.0 as usize)?.as_ref()?;
                let goes = self.destination.is_none_or(|place| to.contains(place));
                goes.then_some((&**labels, *sample))
            });
            let named: Vec<(&Labels, Sample)> = named.collect();
            if named.is_empty() {
                continue;
            }
            let (body, unfit) = body::encode(self.config.kind, &named);
            let count = named.len() as u64 - unfit;
            drop(named);
            drop(names);
            self.counts.unfit.add(unfit);
            if count == 0 {
                continue;
            }
            if let Err(error) = self.spool.push(&body, count) {
                self.counts.disk.add(count);
                error!(forward = self.config.name, samples = count, %error, "Samples are not spooled");
            }
        }
    }

    fn note(&self) {
        let filling = self.spool.filling();
        self.counts.full.raise_to(filling.dropped);
        self.counts.waiting.set_u64(filling.samples);
        self.counts.waiting_bytes.set_u64(filling.bytes);
    }

    /// Sends what is spooled until the collector stops.
    fn send(&self, mut engine: Engine, stop: &Stop) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => return error!(forward = self.config.name, %error, "Nothing is forwarded"),
        };
        let mut pause = RETRY;
        let mut was_away = false;
        loop {
            let oldest = match self.spool.oldest(TURN) {
                Ok(oldest) => oldest,
                Err(error) => {
                    self.pass_over(&error);
                    continue;
                }
            };
            let Some(waiting) = oldest else {
                if self.spool.is_closed() {
                    return;
                }
                continue;
            };
            let attempt = async {
                tokio::select! {
                    sent = engine.attempt(&waiting) => sent,
                    () = last_moment(stop) => Err("the collector ends".to_owned()),
                }
            };
            match runtime.block_on(attempt) {
                Ok(Given { refused, reason }) => {
                    self.counts.sent.add(waiting.samples - refused);
                    if refused > 0 {
                        self.counts.refused.add(refused);
                        let samples = refused;
                        warn!(
                            forward = self.config.name,
                            samples, reason, "The engine refuses samples"
                        );
                    }
                    if std::mem::take(&mut was_away) {
                        info!(forward = self.config.name, "The engine takes samples again");
                    }
                }
                Err(reason) => {
                    self.counts.failed.increment();
                    if !std::mem::replace(&mut was_away, true) {
                        warn!(
                            forward = self.config.name,
                            reason, "The engine does not take samples: they wait on disk"
                        );
                    }
                    if stop.is_set() {
                        return;
                    }
                    // Interrupted by a stop, so that an outage does not hold up the end.
                    let waited = async {
                        let _ = tokio::time::timeout(pause, stop.wait()).await;
                    };
                    runtime.block_on(waited);
                    pause = (pause * 2).min(Duration::from_millis(self.config.retry_ms_max));
                    continue;
                }
            }
            pause = RETRY;
            if let Err(error) = self.spool.advance(&waiting) {
                error!(forward = self.config.name, %error, "The position of a spool is not written");
            }
            self.note();
        }
    }

    /// Goes on behind a segment that cannot be read.
    fn pass_over(&self, error: &io::Error) {
        let lost = self.spool.drop_oldest();
        self.counts.disk.add(lost);
        error!(forward = self.config.name, samples = lost, %error, "A part of the spool cannot be read");
    }
}

/// Returns when an attempt of a collector that stops has had its time.
async fn last_moment(stop: &Stop) {
    stop.wait().await;
    tokio::time::sleep(LAST_WAIT).await;
}
