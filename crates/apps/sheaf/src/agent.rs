//! `sheaf agent`: sensors of this machine and its processes, sent to back ends of metrics.

use crate::json_file::{self, JsonFlag};
use crate::logging::Usual;
use crate::{duration, fail};
use anyhow::Context as _;
use sheaf_agent::{Agent, AgentConfig, AgentError, SENSORS, Value};
use sheaf_metrics::Registry;
use sheaf_node::config::FarmConfig;
use sheaf_node::shutdown::Shutdown;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tracing::info;

/// Send how this machine is: read its sensors and watched processes at an interval.
///
/// It holds itself below a share of a core (1 %) by a longer interval. SIGTERM or SIGINT: the agent sends a last
/// reading and ends.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf agent                                       to the collector of this machine
  sheaf agent --to influxdb-udp://127.0.0.1:8089 prometheus://127.0.0.1:9101
  sheaf agent --config farm.toml                    as the table [agent] of a farm file says
  sheaf agent --once --sensors cpu memory           print one reading")]
pub(crate) struct Args {
    /// Read the table `[agent]` of this farm file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Send to these back ends.
    #[arg(long, value_name = "URI", num_args = 1..)]
    to: Vec<String>,
    /// Read the sensors so often.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    interval: Option<Duration>,
    /// Read these sensors alone.
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',',
        value_parser = clap::builder::PossibleValuesParser::new(SENSORS.iter().map(|kind| kind.name)))]
    sensors: Vec<String>,
    /// Set the label host; the name of the machine if it is left out.
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Look for proc and sys in this folder.
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Print one reading and end; send nothing.
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    flag: JsonFlag,
}

impl Args {
    /// Returns how much is logged without a flag.
    pub(crate) fn usual(&self) -> Usual {
        if self.once { Usual::Warn } else { Usual::Info }
    }
}

/// Runs the agent until a signal ends it.
///
/// # Errors
///
/// The reason why it could not begin.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let config = configuration(args)?;
    if args.once {
        return once(&config, args.flag.json);
    }
    if args.flag.json {
        return Err(fail::bad_use(
            "--json needs --once: without it, values go to back ends",
        ));
    }
    let shutdown = Shutdown::on_signals().context("cannot handle signals")?;
    let main = std::thread::current();
    shutdown.set_waker(move || main.unpark());
    let started = sheaf_agent::start(&config, Arc::new(Registry::default()));
    let agent = started.map_err(|error| match error {
        AgentError::Config(_) | AgentError::NoBackend => fail::bad_use(error),
        AgentError::Reporter(_) => error.into(),
    })?;
    info!(sensors = agent.sensors().join(","), "The agent runs");
    while !shutdown.is_requested() {
        std::thread::park();
    }
    drop(agent);
    info!("The agent has ended");
    Ok(ExitCode::SUCCESS)
}

fn once(config: &AgentConfig, is_json: bool) -> anyhow::Result<ExitCode> {
    let problems = config.problems();
    if !problems.is_empty() {
        return Err(fail::bad_use(AgentError::Config(problems)));
    }
    let mut agent = Agent::open(config, Arc::new(Registry::default()));
    agent.read();
    let values = agent.values();
    json_file::print_either(is_json, &values, &text(&values))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns a line for each value.
fn text(values: &[Value]) -> String {
    let mut text = String::new();
    for Value {
        name,
        labels,
        value,
        ..
    } in values
    {
        let labels: Vec<String> = labels
            .iter()
            .map(|(name, value)| format!("{name}={value:?}"))
            .collect();
        let labels = labels.join(",");
        let braces = if labels.is_empty() {
            labels
        } else {
            format!("{{{labels}}}")
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name}{braces} {value}");
    }
    text
}

fn configuration(args: &Args) -> anyhow::Result<AgentConfig> {
    let mut config = match &args.config {
        None => AgentConfig::default(),
        Some(path) => of_farm(&FarmConfig::load(path).map_err(fail::bad_use)?)
            .map_err(|error| fail::bad_use(format!("{}: [agent]: {error}", path.display())))?,
    };
    for (given, key) in [
        (&args.to, &mut config.to),
        (&args.sensors, &mut config.sensors),
    ] {
        if !given.is_empty() {
            key.clone_from(given);
        }
    }
    if let Some(interval) = args.interval {
        config.interval_ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
    }
    if let Some(host) = &args.host {
        config.host.clone_from(host);
    }
    if let Some(root) = &args.root {
        config.root.clone_from(root);
    }
    Ok(config)
}

/// Returns the `[agent]` table of a farm file with the name of the farm as a label; the defaults if there is none.
///
/// # Errors
///
/// The key that is wrong, with what was found and expected.
pub(crate) fn of_farm(farm: &FarmConfig) -> Result<AgentConfig, String> {
    let mut config = match &farm.agent {
        None => AgentConfig::default(),
        Some(table) => table
            .clone()
            .try_into()
            .map_err(|error: toml::de::Error| error.message().to_owned())?,
    };
    if !farm.metrics.farm.is_empty() {
        let label = config.labels.entry("farm".to_owned());
        label.or_insert_with(|| farm.metrics.farm.clone());
    }
    Ok(config)
}
