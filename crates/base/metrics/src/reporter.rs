//! Reporting: metrics and events of a process sent to back ends, by threads of its own.
//!
//! One thread samples all metrics at times that are multiples of the interval, so that sums over hosts line up, and
//! takes events out of their ring at least every 100 ms. Each back end has a thread and a bounded queue, so that one
//! that is slow or dead loses its own samples alone, and counts them.

mod budget;
mod lane;
mod own;
mod queue;
mod sampler;
#[cfg(test)]
mod tests;

pub use own::reporter_metrics;

use crate::backend::{Backend, Opened, Page};
use crate::batch::Tags;
use crate::registry::Registry;
use crate::reporting::Verbosity;
use budget::Budget;
use lane::{Lane, Shared};
use own::Own;
use sampler::{BeforeSample, Control, Known, Sampler};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thiserror::Error;

/// Time for back ends to take what is left when a reporter ends.
const END_WITHIN: Duration = Duration::from_secs(2);

/// How a process reports, before it begins to.
pub struct ReporterBuilder {
    registry: Arc<Registry>,
    backends: Vec<Backend>,
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
    pub fn start(self) -> Result<Reporter, ReporterError> {
        let Self {
            registry, backends, ..
        } = self;
        let names: Vec<String> = backends.iter().map(Backend::name).collect();
        if let Some(at) = (1..names.len()).find(|at| names[..*at].contains(&names[*at])) {
            return Err(ReporterError::Twice(names[at].clone()));
        }
        if !registry.claim() {
            return Err(ReporterError::Second);
        }
        let control = Arc::new(Control::new(self.tags));
        let mut reporter = Reporter {
            registry: registry.clone(),
            control: control.clone(),
            lanes: Vec::new(),
            threads: Vec::new(),
            pages: Vec::new(),
            sampler: None,
        };
        registry.ring().open();
        for backend in &backends {
            let verbosity = backend.verbosity().unwrap_or(self.verbosity);
            let failed = |source| ReporterError::Open {
                backend: backend.name(),
                source,
            };
            let (encoder, carrier) = match backend.open().map_err(failed)? {
                Opened::Lane(encoder, carrier) => (encoder, carrier),
                Opened::Page(address) => {
                    let page = Page::serve(&address, registry.clone(), verbosity);
                    reporter.pages.push(page.map_err(failed)?);
                    continue;
                }
                Opened::Nothing => continue,
            };
            let [sent, dropped] = own::account(&registry, &backend.name());
            let verbosity = (verbosity, backend.verbosity().is_some());
            let shared = Arc::new(Shared::new(backend.name(), verbosity, sent, dropped));
            let lane = Lane::new(shared.clone(), encoder, carrier, self.process.clone());
            reporter.lanes.push(shared);
            reporter.threads.push(spawn("metrics-send", || lane.run())?);
        }
        let sampler = Sampler {
            own: Own::new(&registry, self.interval),
            registry,
            control,
            lanes: reporter.lanes.clone(),
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
        self.lanes
            .iter()
            .for_each(|lane| lane.queue.close(deadline));
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
