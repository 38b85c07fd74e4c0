//! The `[icn]` table.

use serde::{Deserialize, Serialize};
use sheaf_membership::LivenessConfig;
use sheaf_scheduler::{Delivery, SchedulerConfig};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The `[icn]` table of a farm file.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct IcnConfig {
    /// Where the ICN listens and where all nodes find it, if there is one, HOST:PORT or `unix:PATH`.
    pub address: String,
    /// Where the ICNs listen, by index, if there are several; then `address` is not used.
    pub addresses: Vec<String>,
    /// Where it serves metrics; without it, nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<String>,
    /// How often a TF may be delivered whose EPN dies before it acknowledges.
    pub delivery: Delivery,
    /// Where verdicts are kept.
    pub ledger: LedgerConfig,
    /// How TFs are placed.
    pub scheduler: SchedulerConfig,
    /// How long silence may last.
    pub liveness: LivenessConfig,
}

impl Default for IcnConfig {
    fn default() -> Self {
        Self {
            address: "127.0.0.1:7000".to_owned(),
            addresses: Vec::new(),
            metrics: None,
            delivery: Delivery::default(),
            ledger: LedgerConfig::default(),
            scheduler: SchedulerConfig::default(),
            liveness: LivenessConfig::default(),
        }
    }
}

impl IcnConfig {
    /// Where all ICNs listen, by index: one or several.
    #[must_use]
    pub fn all_addresses(&self) -> Vec<String> {
        if self.addresses.is_empty() {
            vec![self.address.clone()]
        } else {
            self.addresses.clone()
        }
    }
}

/// Where the verdict log is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LedgerBackend {
    /// In the memory of the one ICN: its end is the end of the run.
    Memory,
    /// In files of the one ICN: started again, it goes on with the run.
    #[default]
    File,
    /// In files of several ICNs; most of them have to be there.
    Majority,
    /// In `ZooKeeper`, for one ICN or several.
    Zookeeper,
}

impl LedgerBackend {
    /// The name in a farm file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::File => "file",
            Self::Majority => "majority",
            Self::Zookeeper => "zookeeper",
        }
    }

    /// Whether it keeps files of its own.
    #[must_use]
    pub fn has_files(self) -> bool {
        matches!(self, Self::File | Self::Majority)
    }
}

/// Default of `icn.ledger.directory`, as a farm file called `farm.toml` has it.
const DIRECTORY: &str = "farm.state/icn-{icn}";

/// The `[icn.ledger]` table: where verdicts are kept.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct LedgerConfig {
    /// Where the verdict log is.
    pub backend: LedgerBackend,
    /// The folder of its files, made if it is not there. `{icn}` stands for the index of the ICN. Its default lies in
    /// the state folder of the service, or beside the farm file, whose name it takes.
    pub directory: PathBuf,
    /// After so many records the log gets a checkpoint, or after 10 s if it has fewer: what a takeover has to read.
    pub checkpoint_records: u64,
}

impl Default for LedgerConfig {
    fn default() -> Self {
        Self {
            backend: LedgerBackend::default(),
            directory: DIRECTORY.into(),
            checkpoint_records: 5000,
        }
    }
}

impl LedgerConfig {
    /// Gives the default folder its place: in `state`, the folder that a service manager has made for the ICN
    /// (systemd's `$STATE_DIRECTORY`), or beside `farm_file`, with the name of that file.
    pub(super) fn place(&mut self, farm_file: &Path, state: Option<&OsStr>) {
        if self.directory != Path::new(DIRECTORY) {
            return;
        }
        let name = farm_file.with_extension("state").join("icn-{icn}");
        self.directory = match state.and_then(|state| state.to_str()?.split(':').next()) {
            Some(state) if !state.is_empty() => Path::new(state).join("icn-{icn}"),
            _ => name,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_folder_lies_in_the_state_folder_or_beside_the_farm_file() {
        let placed = |directory: Option<&str>, state: Option<&str>| {
            let mut ledger = LedgerConfig::default();
            if let Some(directory) = directory {
                ledger.directory = directory.into();
            }
            ledger.place(Path::new("/etc/sheaf/cosmics.toml"), state.map(OsStr::new));
            ledger.directory.display().to_string()
        };
        assert_eq!(placed(None, None), "/etc/sheaf/cosmics.state/icn-{icn}");
        assert_eq!(placed(None, Some("")), "/etc/sheaf/cosmics.state/icn-{icn}");
        let state = Some("/var/lib/sheaf-icn:/var/lib/other");
        assert_eq!(placed(None, state), "/var/lib/sheaf-icn/icn-{icn}");
        assert_eq!(placed(Some("/data/log"), state), "/data/log");
    }
}
