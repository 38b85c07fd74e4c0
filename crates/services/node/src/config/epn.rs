//! The `[epn]` table and what it can hand its TFs to.

use super::zmq::ZmqSink;
use serde::{Deserialize, Serialize};
use sheaf_tf_builder::BuildConfig;
use std::path::PathBuf;

/// The `[epn]` table of a farm file.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct EpnConfig {
    /// Where the EPN listens for STFs, HOST:PORT or `unix:PATH`. Port 0: any free one. Here and in the next two `{epn}`
    /// stands for the index of the EPN.
    pub listen: String,
    /// What the FLPs are told to connect to; without it, where the EPN listens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advertise: Option<String>,
    /// Further addresses where it listens for STFs, of other network cards. FLPs are shared out over all, and take the
    /// next one where they reach nobody.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listen_also: Vec<String>,
    /// Share of the work relative to other EPNs.
    pub weight: f64,
    /// TFs that may wait for the consumer. When one more is committed it waits in the EPN, its memory counted.
    pub queue_tfs: u32,
    /// When a TF counts as built: what an EPN reports, it can still hand on after that much has failed.
    pub ack: Ack,
    /// Where it serves metrics; without it, nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<String>,
    /// How TFs are put together.
    pub build: BuildConfig,
    /// Who gets them.
    pub sink: SinkConfig,
}

impl Default for EpnConfig {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:0".to_owned(),
            advertise: None,
            listen_also: Vec::new(),
            weight: 1.0,
            queue_tfs: 64,
            ack: Ack::Built,
            metrics: None,
            build: BuildConfig::default(),
            sink: SinkConfig::default(),
        }
    }
}

/// When an EPN reports a TF as built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ack {
    /// When its parts are in memory. If the EPN dies between the verdict and the hand-over, the TF is abandoned.
    #[default]
    Built,
    /// When it is on the disk under a name that nobody reads; the commit publishes it, if need be in the next life
    /// of the EPN. Needs the file sink.
    Stored,
}

impl EpnConfig {
    /// The weight in thousandths, as the ICN is told.
    #[must_use]
    pub fn weight_milli(&self) -> u32 {
        (self.weight * 1000.0).round().clamp(1.0, 1e9) as u32 // a cast of what was just clamped
    }
}

/// The `[epn.sink]` table: who gets the TFs of an EPN, by its `kind`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum SinkConfig {
    /// Nobody.
    Discard(DiscardSink),
    /// Nobody, after every byte was looked at.
    Verify(VerifySink),
    /// A file for each TF.
    File(FileSink),
    /// Files of many TFs, as DataDistribution writes them.
    StfFile(StfFileSink),
    /// A consumer process at a Unix socket.
    Unix(UnixSink),
    /// Consumer processes that look at TFs in the memory of the EPN.
    Shm(ShmSink),
    /// Programs that speak ZeroMQ.
    Zmq(ZmqSink),
}

impl Default for SinkConfig {
    fn default() -> Self {
        Self::Discard(DiscardSink {})
    }
}

impl SinkConfig {
    /// The name in a farm file.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Discard(_) => "discard",
            Self::Verify(_) => "verify",
            Self::File(_) => "file",
            Self::StfFile(_) => "stf-file",
            Self::Unix(_) => "unix",
            Self::Shm(_) => "shm",
            Self::Zmq(_) => "zmq",
        }
    }

    /// Descriptors that its consumers may need at once: of one a socket, and the rings.
    pub(crate) fn files(&self) -> usize {
        match self {
            Self::Shm(shm) => 2 * usize::from(shm.consumers_max),
            _ => 0,
        }
    }
}

/// `kind = "discard"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct DiscardSink {}

/// `kind = "verify"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct VerifySink {}

/// `kind = "file"`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct FileSink {
    /// Where the runs' folders are made. It must be there. `{epn}` stands for the index of the EPN.
    pub directory: PathBuf,
    /// Whether a TF is on the disk, not only with the kernel, before it counts as delivered.
    pub fsync: bool,
}

/// `kind = "stf-file"`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct StfFileSink {
    /// Where the runs' folders are made. It must be there. `{epn}` stands for the index of the EPN.
    pub directory: PathBuf,
    /// Whether a TF is on the disk, not only with the kernel, before it counts as delivered.
    pub fsync: bool,
    /// A file that has this many bytes gets no further TF; 0: one TF a file.
    pub roll_bytes: u64,
}

impl Default for StfFileSink {
    fn default() -> Self {
        Self {
            directory: PathBuf::new(),
            fsync: false,
            roll_bytes: 4 << 30,
        }
    }
}

/// `kind = "unix"`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct UnixSink {
    /// Where the EPN listens for its consumer. `{epn}` stands for the index of the EPN.
    pub path: PathBuf,
}

/// `kind = "shm"`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShmSink {
    /// Where the EPN listens for its consumers. `{epn}` stands for the index of the EPN.
    pub path: PathBuf,
    /// Consumers that may be connected at once.
    pub consumers_max: u16,
    /// Bytes of payload that one of them may have at once, but one TF in any case.
    pub consumer_bytes_max: u64,
    /// What a consumer leaves lying for so long goes to another one.
    pub reclaim_ms: u64,
}

impl Default for ShmSink {
    fn default() -> Self {
        Self {
            path: PathBuf::new(),
            consumers_max: 16,
            consumer_bytes_max: 512 << 20,
            reclaim_ms: 1000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_is_told_in_thousandths() {
        for (weight, milli) in [(1.0, 1000), (0.25, 250), (1e-9, 1), (2.0005, 2001)] {
            let config = EpnConfig {
                weight,
                ..EpnConfig::default()
            };
            assert_eq!(config.weight_milli(), milli);
        }
    }
}
