//! Configuration: the `[agent]` table of a farm file.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// The `[agent]` table of a farm file: what is read, how often, and where it is sent.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentConfig {
    /// Back ends, as URIs.
    pub to: Vec<String>,
    /// Collectors side by side, as URIs: the agent sends to one of them, chosen by the policy `maglev`, and to another
    /// one while that does not take anything. The same list at all agents.
    pub collectors: Vec<String>,
    /// Time between two readings, in ms.
    pub interval_ms: u64,
    /// Names of the sensors; empty for all.
    pub sensors: Vec<String>,
    /// Share of a core that the agent takes at most; beyond it the interval is stretched.
    pub cpu_share_max: f64,
    /// Value of the label `host`; empty for the name of the machine.
    pub host: String,
    /// Further labels of all samples.
    pub labels: BTreeMap<String, String>,
    /// Folder with `proc` and `sys`: another one where the agent runs in a container.
    pub root: PathBuf,
    /// Control groups at most, those of the upper levels first.
    pub cgroups_max: u32,
    /// Watched processes.
    pub watch: Vec<WatchConfig>,
}

/// A `[[agent.watch]]` table: a process that is followed from one life to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct WatchConfig {
    /// Value of the label `process`.
    pub name: String,
    /// File with its pid.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pid_file: String,
    /// Name of its program, as in `ps -o comm`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub program: String,
    /// Part of its command line.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub command: String,
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            to: vec!["influxdb-udp://127.0.0.1:8089".to_owned()],
            collectors: Vec::new(),
            interval_ms: 1000,
            sensors: Vec::new(),
            cpu_share_max: 0.01,
            host: String::new(),
            labels: BTreeMap::new(),
            root: PathBuf::from("/"),
            cgroups_max: 64,
            watch: Vec::new(),
        }
    }
}

impl AgentConfig {
    /// Returns the time between two readings.
    #[must_use]
    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms)
    }

    /// Returns whether the sensor `name` is asked for.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.sensors.is_empty() || self.sensors.iter().any(|one| one == name)
    }
}
