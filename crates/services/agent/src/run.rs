//! Start and end of an agent.

use crate::agent::Agent;
use crate::check::Problem;
use crate::config::AgentConfig;
use rustix::system::uname;
use sheaf_metrics::{Backend, Registry, Reporter, ReporterError};
use sheaf_placement::Spread;
use std::sync::Arc;
use thiserror::Error;
use tracing::info;

/// Reason why an agent does not start.
#[derive(Debug, Error)]
pub enum AgentError {
    /// Keys of the configuration that make no sense, all at once.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Config(Vec<Problem>),
    /// No back end: nothing would leave the process.
    #[error("agent.to: found no back end, expected at least one")]
    NoBackend,
    /// A back end, or a thread for it, cannot be had.
    #[error(transparent)]
    Reporter(#[from] ReporterError),
}

/// An agent that runs. Dropping it reads and sends once more, and ends it.
#[derive(Debug)]
pub struct Running {
    sensors: Vec<&'static str>,
    reporter: Reporter,
}

impl Running {
    /// Names of the sensors that this machine has.
    #[must_use]
    pub fn sensors(&self) -> &[&'static str] {
        &self.sensors
    }

    /// Reads and sends now, and not only at the next interval. Does not wait for it.
    pub fn flush(&self) {
        self.reporter.flush();
    }
}

/// Opens the sensors and begins to send what they say.
///
/// The sensors are read in front of every sample of the client library, by its thread: so the processor time of both
/// together is held below `cpu_share_max`, by a longer interval.
///
/// # Errors
///
/// [`AgentError`]. A back end that is away is no error: what it misses is counted.
pub fn start(config: &AgentConfig, registry: Arc<Registry>) -> Result<Running, AgentError> {
    let problems = config.problems();
    if !problems.is_empty() {
        return Err(AgentError::Config(problems));
    }
    if config.to.is_empty() && config.collectors.is_empty() {
        return Err(AgentError::NoBackend);
    }
    let host = match config.host.as_str() {
        "" => uname().nodename().to_string_lossy().into_owned(),
        name => name.to_owned(),
    };
    let mut agent = Agent::open(config, registry.clone());
    let sensors = agent.sensors();
    let mut builder = Reporter::builder(registry)
        .interval(config.interval())
        .cpu_share_max(config.cpu_share_max)
        .process("agent")
        .tag("host", &host)
        .tag("role", "agent");
    for (name, value) in &config.labels {
        builder = builder.tag(name, value);
    }
    for uri in &config.to {
        let backend: Backend = uri.parse().expect("problems() parsed it");
        info!(%backend, interval_ms = config.interval_ms, "Sends what the sensors say");
        builder = builder.backend(backend);
    }
    if !config.collectors.is_empty() {
        info!(collectors = ?config.collectors, "Sends what the sensors say to one of several collectors");
        let backends = config.collectors.iter().map(|uri| uri.parse());
        let backends: Vec<Backend> = backends
            .map(|backend| backend.expect("problems() parsed it"))
            .collect();
        let names: Vec<String> = backends.iter().map(Backend::name).collect();
        let source = format!("agent/{host}");
        let mut spread = Spread::new(&source, names.iter().map(String::as_str));
        builder = builder.collectors(backends, move |is_up| spread.choose(is_up));
    }
    let reporter = builder.before_sample(move |_| agent.read()).start()?;
    Ok(Running { sensors, reporter })
}
