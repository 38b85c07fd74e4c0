//! Reporting of a node to the back ends of its farm file: labels that tell whose samples these are, and what is
//! brought up to date before each sample.

use crate::config::FarmConfig;
use crate::health::Health;
use crate::{http, usage};
use rustix::system::uname;
use sheaf_metrics::{Backend, Registry, Reporter, ReporterError};
use sheaf_placement::Spread;
use sheaf_protocol::{NodeId, RunId};
use std::sync::Arc;
use tracing::info;

/// Label with the run.
const RUN: &str = "run";

/// Reporter of a node. Sends a last sample when it is dropped.
pub(crate) struct Reporting {
    registry: Arc<Registry>,
    reporter: Option<Reporter>,
    run: RunId,
}

impl Reporting {
    /// Begins to report the metrics of `node` to `backends` in place of those of the farm file, if there are any.
    ///
    /// # Errors
    ///
    /// If a file that a back end needs is not as expected, or an address or a thread cannot be had.
    pub(crate) fn start(
        config: &FarmConfig,
        node: NodeId,
        backends: &[Backend],
        registry: &Arc<Registry>,
        health: &Arc<Health>,
    ) -> Result<Self, ReporterError> {
        let config = &config.metrics;
        registry.set_policy(config.policy());
        let (backends, collectors) = match backends {
            [] => (config.backends(), config.collectors()),
            named => (named.to_vec(), Vec::new()),
        };
        let mut reporting = Self {
            registry: registry.clone(),
            reporter: None,
            run: RunId(0),
        };
        if backends.is_empty() && collectors.is_empty() {
            return Ok(reporting);
        }
        let system = uname();
        let role = node.role.to_string();
        let health = health.clone();
        let mut builder = Reporter::builder(registry.clone())
            .interval(config.interval())
            .verbosity(config.verbosity())
            .cpu_share_max(config.cpu_share_max)
            .process(&format!("{role}-{}", node.index))
            .tag("host", &system.nodename().to_string_lossy())
            .tag("farm", &config.farm)
            .tag("role", &role)
            .tag("node", &node.to_string())
            // A label of a metric may be called `node`, too; what the collector knows as a source may not change.
            .tag("source", &node.to_string())
            .before_sample(move |registry| {
                http::export_turns(registry, &health);
                usage::export(registry);
            });
        for backend in backends {
            info!(%backend, interval_ms = config.interval_ms, "Reports metrics");
            builder = builder.backend(backend);
        }
        let names: Vec<String> = collectors.iter().map(Backend::name).collect();
        if !names.is_empty() {
            info!(collectors = ?names, "Reports metrics to one of several collectors");
            let source = format!("{}/{node}", config.farm);
            let mut spread = Spread::new(&source, names.iter().map(String::as_str));
            builder = builder.collectors(collectors, move |is_up| spread.choose(is_up));
        }
        reporting.reporter = Some(builder.start()?);
        Ok(reporting)
    }

    /// Follows the run that the node stands in, in the labels of what is sampled from now on.
    pub(crate) fn stand_in(&mut self, run: RunId) {
        if let Some(reporter) = &self.reporter
            && self.run != run
        {
            self.run = run;
            let text = (run.0 != 0).then(|| run.to_string());
            reporter.set_tag(RUN, &text.unwrap_or_default());
        }
    }

    /// Follows `config` in the keys that may change while the node runs.
    pub(crate) fn reconfigure(&self, config: &FarmConfig) {
        self.registry.set_policy(config.metrics.policy());
        if let Some(reporter) = &self.reporter {
            reporter.set_verbosity(None, config.metrics.verbosity());
        }
    }
}
