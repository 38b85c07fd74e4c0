//! Reporting: metrics and events of a process sent to back ends, by threads of its own.
//!
//! One thread samples all metrics at times that are multiples of the interval, so that sums over hosts line up, and
//! takes events out of their ring at least every 100 ms. Each back end has a thread and a bounded queue, so that one
//! that is slow or dead loses its own samples alone, and counts them.

mod budget;
mod group;
mod lane;
mod own;
mod queue;
mod sampler;
mod shared;
#[cfg(test)]
mod tests;

pub use own::reporter_metrics;

use crate::backend::{Backend, Opened, Page};
use crate::batch::Tags;
use crate::registry::Registry;
use crate::reporting::Verbosity;
use budget::Budget;
use group::{Choose, Group};
use lane::Lane;
use own::Own;
use sampler::{BeforeSample, Control, Known, Sampler};
use shared::Shared;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thiserror::Error;

/// Time for back ends to take what is left when a reporter ends.
const END_WITHIN: Duration = Duration::from_secs(2);
/// Time after which a collector that took nothing is tried again, unless said otherwise.
const COLLECTOR_PAUSE: Duration = Duration::from_secs(10);

/// How a process reports, before it begins to.
pub struct ReporterBuilder {
    registry: Arc<Registry>,
    backends: Vec<Backend>,
    collectors: Option<(Vec<Backend>, Choose)>,
    collector_pause: Duration,
    interval: Duration,
    flush_within: Duration,
    verbosity: Verbosity,
    tags: Tags,
    process: String,
    cpu_share_max: f64,
    before: Vec<BeforeSample>,
}

/// Reporting of a process. Dropping it sends a last sample and ends its threads.
///
/// ```
/// use sheaf_metrics::{Registry, Reporter};
/// use std::net::UdpSocket;
/// use std::sync::Arc;
///
/// let collector = UdpSocket::bind("127.0.0.1:0")?;
/// let uri = format!("influxdb-udp://{}", collector.local_addr()?);
/// let registry = Arc::new(Registry::default());
/// let reporter = Reporter::builder(registry.clone())
///     .backend(uri.parse()?)
///     .tag("host", "h1")
///     .start()?;
/// registry.counter("frames_total", "Frames.", &[]).add(3);
/// drop(reporter);
///
/// let mut buffer = [0; 1432];
/// let length = collector.recv(&mut buffer)?;
/// let text = std::str::from_utf8(&buffer[..length])?;
/// assert!(text.contains("frames_total,host=h1 value=3i "), "{text}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Reporter {
    registry: Arc<Registry>,
    control: Arc<Control>,
    lanes: Vec<Arc<Shared>>,
    group: Option<Arc<Group>>,
    threads: Vec<JoinHandle<()>>,
    /// Closed when they are dropped.
    pages: Vec<Page>,
    sampler: Option<JoinHandle<()>>,
}

/// Why reporting cannot begin.
#[derive(Debug, Error)]
pub enum ReporterError {
    /// A registry has one reporter at a time: end the other one first.
    #[error("found a reporter of this registry already, expected one at a time")]
    Second,
    /// A back end that stands there twice.
    #[error("found the back end {0} twice, expected each once")]
    Twice(String),
    /// A back end among collectors that nothing is sent to.
    #[error("found {0} among collectors, expected back ends that samples are sent to")]
    NoCollector(String),
    /// A file that a back end needs cannot be read, or an address cannot be had.
    #[error("cannot open the back end {backend}: {source}")]
    Open {
        /// URI of the back end, without options.
        backend: String,
        /// Cause.
        source: io::Error,
    },
    /// The machine gives no thread.
    #[error("cannot start a thread for metrics: {0}")]
    Thread(#[source] io::Error),
}

impl ReporterBuilder {
    /// Adds a back end.
    #[must_use]
    pub fn backend(mut self, backend: Backend) -> Self {
        self.backends.push(backend);
        self
    }

    /// Adds collectors of which one gets each sample: the one that `choose` names, from 0 on, of those that take
    /// samples now (`true`). A collector that an attempt fails at is left alone for
    /// [`collector_pause`](Self::collector_pause), and what it did not take goes to the next.
    ///
    /// Over HTTP and TCP an attempt says whether the collector is there. Over UDP only a machine does that nothing
    /// listens at; one that is gone is not noticed.
    #[must_use]
    pub fn collectors(
        mut self,
        collectors: impl IntoIterator<Item = Backend>,
        choose: impl FnMut(&[bool]) -> usize + Send + 'static,
    ) -> Self {
        let collectors: Vec<Backend> = collectors.into_iter().collect();
        self.collectors =
            (!collectors.is_empty()).then(|| (collectors, Box::new(choose) as Choose));
        self
    }

    /// Sets the time after which a collector that took nothing is tried again; 10 s unless said otherwise.
    #[must_use]
    pub fn collector_pause(mut self, time: Duration) -> Self {
        self.collector_pause = time;
        self
    }

    /// Sets the time between two samples; 1 s unless said otherwise. At least 10 ms.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval.max(Duration::from_millis(10));
        self
    }

    /// Sets how long an event waits to be sent at most; 100 ms unless said otherwise.
    #[must_use]
    pub fn flush_within(mut self, time: Duration) -> Self {
        self.flush_within = time.max(Duration::from_millis(1));
        self
    }

    /// Sets the verbosity of back ends whose URI does not state one; `info` unless said otherwise.
    #[must_use]
    pub fn verbosity(mut self, verbosity: Verbosity) -> Self {
        self.verbosity = verbosity;
        self
    }

    /// Adds a label to everything that this process sends; an empty value adds none.
    #[must_use]
    pub fn tag(mut self, name: &str, value: &str) -> Self {
        self.tags.retain(|(known, _)| known != name);
        if !value.is_empty() {
            self.tags.push((name.to_owned(), value.to_owned()));
            self.tags.sort_unstable();
        }
        self
    }

    /// Sets what tells this process from others of its host, the same after a restart: role and index, such as `epn-3`.
    /// A collector counts losses by it.
    #[must_use]
    pub fn process(mut self, name: &str) -> Self {
        name.clone_into(&mut self.process);
        self
    }

    /// Sets the share of a core that reporting takes at most, 0 to 1; 0.01 unless said otherwise. Beyond it the
    /// interval is stretched, up to 64 times, which `monitor_client_interval_seconds` says.
    #[must_use]
    pub fn cpu_share_max(mut self, share: f64) -> Self {
        self.cpu_share_max = share;
        self
    }

    /// Calls `before` in front of every sample, to bring metrics up to date that nothing else does.
    #[must_use]
    pub fn before_sample(mut self, before: impl FnMut(&Registry) + Send + 'static) -> Self {
        self.before.push(Box::new(before));
        self
    }

    /// Begins to report.
    ///
    /// # Errors
    ///
    /// [`ReporterError`]. A back end that is away is no error: it is tried again, and what it misses is counted.
    pub fn start(mut self) -> Result<Reporter, ReporterError> {
        let (collectors, choose) = self.collectors.take().unzip();
        let collectors = collectors.unwrap_or_default();
        let Self {
            registry, backends, ..
        } = &self;
        if let Some(page) = collectors.iter().find(|backend| !backend.is_sent_to()) {
            return Err(ReporterError::NoCollector(page.name()));
        }
        let names: Vec<String> = backends
            .iter()
            .chain(&collectors)
            .map(Backend::name)
            .collect();
        if let Some(at) = (1..names.len()).find(|at| names[..*at].contains(&names[*at])) {
            return Err(ReporterError::Twice(names[at].clone()));
        }
        if !registry.claim() {
            return Err(ReporterError::Second);
        }
        let control = Arc::new(Control::new(self.tags.clone()));
        let mut reporter = Reporter {
            registry: registry.clone(),
            control: control.clone(),
            lanes: Vec::new(),
            group: None,
            threads: Vec::new(),
            pages: Vec::new(),
            sampler: None,
        };
        registry.ring().open();
        let mut lanes = Vec::new();
        for backend in backends {
            if let Some((shared, lane)) = self.open(backend, &mut reporter.pages)? {
                lanes.push(shared.clone());
                reporter.lanes.push(shared);
                reporter.threads.push(spawn("metrics-send", || lane.run())?);
            }
        }
        let mut of_group = Vec::new();
        for backend in &collectors {
            of_group.extend(self.open(backend, &mut reporter.pages)?);
        }
        reporter.group = choose.map(|choose| {
            let shared = of_group.iter().map(|(shared, _)| shared.clone()).collect();
            let changes = own::changes(registry);
            Arc::new(Group::new(shared, choose, self.collector_pause, changes))
        });
        for (at, (shared, mut lane)) in of_group.into_iter().enumerate() {
            if let Some(group) = &reporter.group {
                lane.join(group.clone(), at);
            }
            reporter.lanes.push(shared);
            reporter.threads.push(spawn("metrics-send", || lane.run())?);
        }
        let sampler = Sampler {
            own: Own::new(registry, self.interval),
            registry: registry.clone(),
            control,
            lanes,
            group: reporter.group.clone(),
            all: reporter.lanes.clone(),
            before: self.before,
            interval: self.interval,
            flush_within: self.flush_within,
            budget: Budget::new(self.cpu_share_max),
            series: Known::default(),
            sampled_ms: i64::MIN,
        };
        reporter.sampler = Some(spawn("metrics-sample", || sampler.run())?);
        Ok(reporter)
    }

    /// Opens a back end: its lane, or its page. None for one that nothing is done for.
    fn open(
        &self,
        backend: &Backend,
        pages: &mut Vec<Page>,
    ) -> Result<Option<(Arc<Shared>, Lane)>, ReporterError> {
        let verbosity = backend.verbosity().unwrap_or(self.verbosity);
        let failed = |source| ReporterError::Open {
            backend: backend.name(),
            source,
        };
        let (encoder, carrier) = match backend.open().map_err(failed)? {
            Opened::Lane(encoder, carrier) => (encoder, carrier),
            Opened::Page(address) => {
                let page = Page::serve(&address, self.registry.clone(), verbosity);
                pages.push(page.map_err(failed)?);
                return Ok(None);
            }
            Opened::Nothing => return Ok(None),
        };
        let [sent, dropped] = own::account(&self.registry, &backend.name());
        let verbosity = (verbosity, backend.verbosity().is_some());
        let shared = Arc::new(Shared::new(backend.name(), verbosity, sent, dropped));
        let lane = Lane::new(shared.clone(), encoder, carrier, self.process.clone());
        Ok(Some((shared, lane)))
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, ReporterError> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(run).map_err(ReporterError::Thread)
}

impl Reporter {
    /// Returns how the metrics of `registry` are reported: every second, to no back end, until said otherwise.
    #[must_use]
    pub fn builder(registry: Arc<Registry>) -> ReporterBuilder {
        ReporterBuilder {
            registry,
            backends: Vec::new(),
            collectors: None,
            collector_pause: COLLECTOR_PAUSE,
            interval: Duration::from_secs(1),
            flush_within: Duration::from_millis(100),
            verbosity: Verbosity::default(),
            tags: Tags::new(),
            process: String::new(),
            cpu_share_max: 0.01,
            before: Vec::new(),
        }
    }

    /// Sets a label of everything that is sampled from now on, such as the run; an empty value takes it away.
    pub fn set_tag(&self, name: &str, value: &str) {
        self.control.set_tag(name, value);
    }

    /// Sets the verbosity of the back end `name`, a URI without options, or of all whose URI does not state one.
    pub fn set_verbosity(&self, name: Option<&str>, verbosity: Verbosity) {
        let lanes = self.lanes.iter();
        lanes
            .filter(|lane| name.map_or(!lane.is_stated, |name| name == lane.name))
            .for_each(|lane| lane.set_verbosity(verbosity));
    }

    /// Samples now, and not only at the next interval. Does not wait for it.
    pub fn flush(&self) {
        self.control.flush();
    }
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.lanes.iter().map(|lane| &lane.name).collect();
        f.debug_struct("Reporter")
            .field("backends", &names)
            .finish()
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.control.end();
        if let Some(sampler) = self.sampler.take() {
            // Its panic would have been printed by the thread.
            let _ = sampler.join();
        }
        let deadline = Instant::now() + END_WITHIN;
        // Of several collectors the one of now ends first: what it does not take goes to the others.
        let spare = self
            .group
            .as_ref()
            .map_or(Vec::new(), |group| group.spare());
        let is_spare = |lane: &Arc<Shared>| spare.iter().any(|one| Arc::ptr_eq(one, lane));
        let first: Vec<_> = self.lanes.iter().filter(|lane| !is_spare(lane)).collect();
        first.iter().for_each(|lane| lane.queue.close(deadline));
        if !spare.is_empty() {
            first.iter().for_each(|lane| {
                lane.queue.await_end(deadline);
            });
            spare.iter().for_each(|lane| lane.queue.close(deadline));
        }
        for (lane, thread) in self.lanes.iter().zip(self.threads.drain(..)) {
            // One that hangs in the kernel is left behind: the process ends without it.
            if lane.queue.await_end(deadline) {
                let _ = thread.join();
            }
        }
        self.pages.clear();
        self.registry.release();
    }
}
