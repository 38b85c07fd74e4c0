//! The agent of Sheaf's monitoring: sensors of a machine and of watched processes, sent to any back end.
//!
//! This crate answers: *how is this machine?* [`SENSORS`] is the table of what it reads; a sensor opens its files of
//! `/proc` and `/sys` once and reads them again from their begin. What a text says, `sheaf-sensors` knows; how values
//! leave the process, and that all of it stays within a share of a core, is the business of the client library
//! (`sheaf-metrics`), in front of whose samples the sensors are read.

mod agent;
mod check;
mod config;
mod file;
mod own;
mod run;
mod sensor;
mod sheet;

pub use agent::Agent;
pub use check::Problem;
pub use config::{AgentConfig, WatchConfig};
pub use own::metrics as own_metrics;
pub use run::{AgentError, Running, start};
pub use sensor::{Kind, SENSORS};
pub use sheet::Value;

use sheaf_metrics::Metric;

/// Lists the metrics of all sensors and of the agent itself, for the reference page.
pub fn metrics() -> impl Iterator<Item = Metric> {
    let sensors = SENSORS.iter().flat_map(|kind| kind.metrics);
    sensors.copied().chain(own_metrics())
}
