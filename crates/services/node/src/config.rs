//! A farm as one TOML file: one table a role, every key with its default, every error with its line.
//!
//! The types are the defaults: each is written once, in `Default`. Unit, description and range of a key are one
//! row of [`keys::TABLES`], from which `config/example.toml` is written. [`FarmConfig::load`] reads a file and
//! finds everything that is wrong with it at once, so that no user has to correct one line a run. What only a
//! machine of the farm can know (are the files there?) is asked by role, with [`FarmConfig::check_files`]: the
//! ICN's machine need not have the data of the FLPs. All of it comes before the first socket opens. The keys are
//! described in `docs/reference/config.md`.

mod check;
mod epn;
mod files;
mod flp;
mod icn;
pub mod keys;
mod log;
mod membership;
mod metrics;
mod node;
mod read;
mod renamed;
mod security;
mod transport;
mod writer;

pub use crate::check::{
    ConfigError, ConfigErrors, NODE_ADDRESS, for_index, is_address, is_node_address,
};
pub use crate::digest::PayloadDigest;
pub use crate::kinds::Kind;
pub use crate::sink::{
    Ack, DiscardSink, FileSink, ShmSink, SinkConfig, SinkWordsError, StfFileSink,
    StreamsDurability, StreamsOverload, StreamsSink, UnixSink, VerifySink, WritersSink, ZmqLayout,
    ZmqOutlet, ZmqSink,
};
pub use crate::source::{
    FileSource, Km3netSource, ReplaySource, SourceConfig, StdinSource, StfFileSource, StfFormat,
    StfPayload, StfShare, TcpSource, TfFileSource, UnixSource, Xtc2Source, ZmqFraming, ZmqIntake,
    ZmqSource,
};
pub use crate::zmq::ZmqMethod;
pub use epn::EpnConfig;
pub use flp::FlpConfig;
pub use icn::{IcnConfig, LedgerBackend, LedgerConfig};
pub use log::{LogConfig, Rotation};
pub use membership::{MembershipBackend, MembershipConfig, MembershipFileError};
pub use metrics::MetricsConfig;
pub use node::{NodeConfig, Threads};
pub use security::{BulkConfig, PageConfig, SecurityConfig};
pub use transport::{KernelTlsConfig, TransportConfig};
pub use writer::WriterNodesConfig;

use serde::{Deserialize, Serialize};
use sheaf_protocol::{Role, TfId};
use sheaf_scheduler::{RunPlan, SchedulerConfig};
use std::path::Path;
use std::time::Duration;

/// A farm file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct FarmConfig {
    /// Conditions of the begin and the end of a run.
    pub run: RunConfig,
    /// The ICN.
    pub icn: IcnConfig,
    /// All FLPs.
    pub flp: FlpConfig,
    /// All EPNs.
    pub epn: EpnConfig,
    /// All writer nodes.
    pub writer: WriterNodesConfig,
    /// Processes of the nodes.
    pub node: NodeConfig,
    /// The connections between them.
    pub transport: TransportConfig,
    /// Identity of nodes, and encryption.
    pub security: SecurityConfig,
    /// Where they are written down.
    pub membership: MembershipConfig,
    /// Logs of all nodes.
    pub log: LogConfig,
    /// Where the metrics of all nodes are sent.
    pub metrics: MetricsConfig,
    /// The collector of monitoring, which has its own types for it; nodes only pass over the table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub monitor: Option<toml::Table>,
    /// The agent of monitoring, whose crate reads the table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<toml::Table>,
}

/// The `[run]` table of a farm file.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunConfig {
    /// Number of the run, the low half of its id; 0: drawn at random.
    pub number: u32,
    /// FLPs that must have joined before the run begins.
    pub flps: u32,
    /// EPNs that must have joined before the run begins.
    pub epns: u32,
    /// TFs to make, then the run ends. 0: no end.
    pub timeframes: u64,
    /// How long the sources run from the first announce on, in seconds. 0: no end.
    pub duration_s: f64,
    /// The first TF of the run; without it, the highest first TF that the sources can give.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_tf: Option<u64>,
    /// How long the begin waits for sources that have not given the id of their first STF, from when one has, in ms.
    pub first_tf_wait_ms: u64,
}

impl Default for RunConfig {
    fn default() -> Self {
        Self {
            number: 0,
            flps: 3,
            epns: 5,
            timeframes: 0,
            duration_s: 0.0,
            first_tf: None,
            first_tf_wait_ms: RunPlan::default().first_tf_wait_ms,
        }
    }
}

impl RunConfig {
    /// Returns the configuration of the scheduler.
    #[must_use]
    pub fn plan(&self) -> RunPlan {
        RunPlan {
            flps: self.flps,
            epns: self.epns,
            timeframes: (self.timeframes > 0).then_some(self.timeframes),
            first_tf: self.first_tf.map(TfId),
            first_tf_wait_ms: self.first_tf_wait_ms,
        }
    }

    /// How long the sources run; `None` for no end.
    #[must_use]
    pub fn duration(&self) -> Option<Duration> {
        Duration::try_from_secs_f64(self.duration_s)
            .ok()
            .filter(|duration| !duration.is_zero())
    }
}

impl FarmConfig {
    /// Returns the configuration of the ICN's scheduler: the `[icn.scheduler]` table, and values of other tables.
    #[must_use]
    pub fn scheduler(&self) -> SchedulerConfig {
        SchedulerConfig {
            epns_are_durable: self.epn.ack == Ack::Stored,
            delivery: self.icn.delivery,
            ..self.icn.scheduler.clone()
        }
    }

    /// Reads the farm file at `path` and checks all that does not depend on the machine.
    ///
    /// # Errors
    ///
    /// Everything that is wrong, each with its line: what is not TOML, unknown keys, values of another kind,
    /// and what [`check`](Self::check) finds.
    pub fn load(path: &Path) -> Result<Self, ConfigErrors> {
        Self::load_for(path, &[])
    }

    /// As [`load`](Self::load), and looks for the files that nodes of `roles` need on this machine, and for the policy
    /// if an ICN is among them.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load), what [`check_files`](Self::check_files) finds, and a policy that this program does not
    /// have.
    pub fn load_for(path: &Path, roles: &[Role]) -> Result<Self, ConfigErrors> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            let found = if error.kind() == std::io::ErrorKind::InvalidData {
                "bytes that are not UTF-8".to_owned()
            } else {
                error.to_string()
            };
            in_file(
                path,
                vec![ConfigError::new("", found, "a readable farm file")],
            )
        })?;
        Self::parse_for(&text, path, roles)
    }

    /// As [`load_for`](Self::load_for), of a `text` that `path` names in messages.
    ///
    /// # Errors
    ///
    /// As [`load_for`](Self::load_for).
    pub fn parse_for(text: &str, path: &Path, roles: &[Role]) -> Result<Self, ConfigErrors> {
        let (mut config, lines, mut errors) =
            read::read(text).map_err(|syntax| in_file(path, syntax))?;
        let state = std::env::var_os("STATE_DIRECTORY");
        config.icn.ledger.place(path, state.as_deref());
        // Checked also beside unreadable keys, which have their defaults here: all is said at once.
        let mut checked = config.check();
        checked.extend(roles.iter().flat_map(|role| config.check_files(*role)));
        if roles.contains(&Role::Icn) {
            checked.extend(config.check_policy());
        }
        checked.retain(|error| !errors.iter().any(|before| before.is_about(error)));
        for error in &mut checked {
            error.line = lines.of(error);
        }
        errors.extend(checked);
        if errors.is_empty() {
            return Ok(config);
        }
        Err(in_file(path, errors))
    }

    /// All keys with their values, as a farm file.
    ///
    /// # Errors
    ///
    /// A path that is not UTF-8 cannot stand in TOML.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }
}

/// `errors` of the file at `path`, by line.
fn in_file(path: &Path, mut errors: Vec<ConfigError>) -> ConfigErrors {
    for error in &mut errors {
        error.file = Some(path.to_owned());
    }
    errors.sort_by_key(|error| error.line);
    ConfigErrors(errors)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = include_str!("../../../../config/example.toml");

    #[test]
    fn the_example_is_the_default() {
        // The name gives the ledger its folder.
        let path = Path::new("farm.toml");
        let example = FarmConfig::parse_for(EXAMPLE, path, &[]).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(example, FarmConfig::default());
    }

    #[test]
    fn the_default_survives_being_written() {
        let text = FarmConfig::default().to_toml().unwrap();
        let read = FarmConfig::parse_for(&text, Path::new("farm.toml"), &[]);
        assert_eq!(read.unwrap(), FarmConfig::default());
    }

    #[test]
    fn the_example_comments_every_key() {
        let defaults: toml::Table =
            toml::from_str(&FarmConfig::default().to_toml().unwrap()).unwrap();
        let mut paths = Vec::new();
        collect("", &defaults, &mut paths);
        let optional = [
            "run.first_tf",
            "icn.metrics",
            "flp.metrics",
            "epn.metrics",
            "epn.advertise",
            "writer.metrics",
            "security.directory",
            "security.certificate",
            "security.key",
            "security.ca",
            "membership.user",
            "membership.password_file",
            "membership.ca",
            "membership.certificate",
            "membership.key",
        ];
        paths.extend(optional.map(str::to_owned));
        let rows: Vec<&str> = keys::TABLES
            .iter()
            .flat_map(|table| table.keys)
            .map(|key| key.path)
            .collect();
        let without_row: Vec<_> = paths
            .iter()
            .filter(|path| !rows.contains(&path.as_str()))
            .collect();
        assert_eq!(without_row, Vec::<&String>::new());
        assert_eq!(rows.len(), paths.len() + 1, "{rows:?}"); // listen_also is left out when it is empty
        let lines: Vec<&str> = EXAMPLE.lines().collect();
        let mut table = "";
        let mut commented = Vec::new();
        for pair in lines.windows(2) {
            let line = pair[1].trim_start_matches("# ");
            if let Some(name) = pair[1].strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
                table = name;
            } else if let Some((key, _)) = line.split_once(" = ")
                && pair[0].starts_with('#')
            {
                commented.push(format!("{table}.{key}"));
            }
        }
        paths.retain(|path| !commented.contains(path));
        assert!(paths.is_empty(), "without a comment above: {paths:?}");
    }

    fn collect(prefix: &str, table: &toml::Table, paths: &mut Vec<String>) {
        for (key, value) in table {
            match value {
                toml::Value::Table(inner) => collect(&format!("{prefix}{key}."), inner, paths),
                _ => paths.push(format!("{prefix}{key}")),
            }
        }
    }

    #[test]
    fn a_run_without_an_end_has_none() {
        let run = RunConfig::default();
        assert_eq!((run.plan().timeframes, run.duration()), (None, None));
        let run = RunConfig {
            timeframes: 7,
            duration_s: 0.5,
            ..run
        };
        assert_eq!(run.plan().timeframes, Some(7));
        assert_eq!(run.duration(), Some(Duration::from_millis(500)));
    }
}
