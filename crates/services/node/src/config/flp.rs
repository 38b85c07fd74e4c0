//! The `[flp]` table and what it can be fed from.

use super::transport::TransportConfig;
use super::zmq::ZmqSource;
use serde::{Deserialize, Serialize};
use sheaf_scheduler::{Mode, SchedulerConfig};
use sheaf_stf_builder::flp::{self, Pace, Push, WhenFull};
use sheaf_stf_builder::xtc2::Xtc2Config;
use sheaf_stf_builder::{CutConfig, GeneratorConfig, ReplayConfig};
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;

/// The `[flp]` table of a farm file.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct FlpConfig {
    /// Bytes of STFs kept until their TF is decided.
    pub hold_bytes: u64,
    /// STFs kept until their TF is decided.
    pub hold_stfs_max: u32,
    /// What happens to a TF that is due while the hold is full.
    pub when_full: WhenFull,
    /// Whether STFs are pushed as soon as they are assigned, or large ones offered and fetched by the EPN.
    pub push: Push,
    /// With `push = "granted"`, STFs up to this size are pushed all the same, in bytes.
    pub eager_bytes: u64,
    /// TFs a second in data-driven mode; 0: as fast as the hold takes them. The ICN's clock rules in paced mode.
    pub rate_hz: f64,
    /// Largest STF that this FLP announces, in bytes. A larger one is skipped as `oversize`.
    pub stf_bytes_max: u64,
    /// Where it serves metrics; without it, nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<String>,
    /// Where STFs come from.
    pub source: SourceConfig,
}

impl Default for FlpConfig {
    fn default() -> Self {
        let brain = flp::FlpConfig::default();
        Self {
            hold_bytes: brain.hold_bytes,
            hold_stfs_max: brain.hold_stfs_max,
            when_full: brain.when_full,
            push: brain.push,
            eager_bytes: brain.eager_bytes,
            rate_hz: 100.0,
            stf_bytes_max: SchedulerConfig::default().stf_bytes_max,
            metrics: None,
            source: SourceConfig::default(),
        }
    }
}

impl FlpConfig {
    /// Memory for payloads: the hold, one STF that is being made, and what EPNs on the same machine may keep when the
    /// hold has let go of it. The payloads of a generator are slices of a pool of its own and take none.
    #[must_use]
    pub fn arena_bytes(&self, transport: &TransportConfig) -> u64 {
        let parts = match self.source {
            SourceConfig::Generator(_) => [self.stf_bytes_max, 0, 0],
            _ => [
                self.stf_bytes_max,
                self.hold_bytes,
                self.lent_bytes_max(transport),
            ],
        };
        parts.into_iter().fold(0, u64::saturating_add)
    }

    /// Bytes of it that are lent at once: a quarter of the hold, but 64 MiB if the hold has them.
    #[must_use]
    pub fn lent_bytes_max(&self, transport: &TransportConfig) -> u64 {
        match transport.shared_memory {
            true => (self.hold_bytes / 4).max(self.hold_bytes.min(64 << 20)),
            false => 0,
        }
    }

    /// What the brain of an FLP is told in a farm of `mode`.
    #[must_use]
    pub fn brain(&self, mode: Mode) -> flp::FlpConfig {
        let pace = if self.source.is_fed() {
            Pace::External
        } else if mode == Mode::Paced {
            Pace::Icn
        } else if self.rate_hz > 0.0 {
            Pace::RateHz(self.rate_hz)
        } else {
            Pace::Max
        };
        flp::FlpConfig {
            pace,
            when_full: self.when_full,
            hold_bytes: self.hold_bytes,
            hold_stfs_max: self.hold_stfs_max,
            push: self.push,
            eager_bytes: self.eager_bytes,
            ..flp::FlpConfig::default()
        }
    }
}

/// The `[flp.source]` table: where the STFs of an FLP come from, by its `kind`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum SourceConfig {
    /// Recorded pages as an endless stream.
    Replay(ReplaySource),
    /// Recorded pages once, cut by orbit.
    File(FileSource),
    /// Bytes without structure.
    Generator(GeneratorConfig),
    /// Recorded KM3NeT records or packets once, one time slice a TF.
    Km3net(Km3netSource),
    /// Recorded LCLS-II datagrams once, cut by event time.
    Xtc2(Xtc2Source),
    /// TF files as DataDistribution writes them, once.
    StfFile(StfFileSource),
    /// Whoever writes STFs to the standard input of the FLP.
    Stdin(StdinSource),
    /// Whoever connects to a Unix socket.
    Unix(UnixSource),
    /// Whoever connects to a TCP address.
    Tcp(TcpSource),
    /// Programs that speak ZeroMQ.
    Zmq(ZmqSource),
}

impl Default for SourceConfig {
    fn default() -> Self {
        Self::Replay(ReplaySource::default())
    }
}

impl SourceConfig {
    /// The name in a farm file.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Replay(_) => "replay",
            Self::File(_) => "file",
            Self::Generator(_) => "generator",
            Self::Km3net(_) => "km3net",
            Self::Xtc2(_) => "xtc2",
            Self::StfFile(_) => "stf-file",
            Self::Stdin(_) => "stdin",
            Self::Unix(_) => "unix",
            Self::Tcp(_) => "tcp",
            Self::Zmq(_) => "zmq",
        }
    }

    /// Whether a producer outside says when there is an STF.
    #[must_use]
    pub fn is_fed(&self) -> bool {
        matches!(
            self,
            Self::Stdin(_) | Self::Unix(_) | Self::Tcp(_) | Self::Zmq(_)
        )
    }

    /// The files that it is read from, of all FLPs together.
    #[must_use]
    pub fn files(&self) -> Option<&[PathBuf]> {
        match self {
            Self::Replay(source) => Some(&source.files),
            Self::File(source) => Some(&source.files),
            Self::Km3net(source) => Some(&source.files),
            Self::Xtc2(source) => Some(&source.files),
            Self::StfFile(source) => Some(&source.files),
            _ => None,
        }
    }
}

/// `kind = "replay"`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReplaySource {
    /// Files of RDH pages. Every FLP reads all of them; their links are dealt out over the FLPs.
    pub files: Vec<PathBuf>,
    /// LHC orbits of one TF, 88.9 µs each.
    pub orbits_per_tf: NonZeroU32,
    /// The orbit that TF 0 begins with.
    pub first_orbit: u32,
}

impl Default for ReplaySource {
    fn default() -> Self {
        let stamps = ReplayConfig::default();
        Self {
            files: vec!["testdata/alice-its-rdh7/12_links_2hbf.raw".into()],
            orbits_per_tf: stamps.orbits_per_tf,
            first_orbit: stamps.first_orbit,
        }
    }
}

/// `kind = "file"`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct FileSource {
    /// Files of RDH pages, dealt out over the FLPs in turn; FLPs that get the same file share its links.
    pub files: Vec<PathBuf>,
    /// LHC orbits of one TF, 88.9 µs each.
    pub orbits_per_tf: NonZeroU32,
    /// The orbit that TF 0 begins with; without it, the earliest of all files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_orbit: Option<u32>,
}

impl Default for FileSource {
    fn default() -> Self {
        let cut = CutConfig::default();
        Self {
            files: Vec::new(),
            orbits_per_tf: cut.orbits_per_tf,
            first_orbit: cut.first_orbit,
        }
    }
}

/// `kind = "km3net"`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Km3netSource {
    /// Files of records or of packets, dealt out over the FLPs in turn: at least one an FLP.
    pub files: Vec<PathBuf>,
    /// The time slice that is TF 0; without it, the lowest of all files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_slice: Option<u64>,
}

/// `kind = "xtc2"`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Xtc2Source {
    /// Files of DAQ segments, dealt out over the FLPs in turn: at least one an FLP.
    pub files: Vec<PathBuf>,
    /// Length of a TF in ns of event time.
    pub window_ns: NonZeroU64,
    /// When TF 0 begins, in ns of event time; without it, at the first event of all files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_ns: Option<u64>,
}

impl Default for Xtc2Source {
    fn default() -> Self {
        let windows = Xtc2Config::default();
        Self {
            files: Vec::new(),
            window_ns: windows.window_ns,
            first_ns: windows.first_ns,
        }
    }
}

/// `kind = "stf-file"`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct StfFileSource {
    /// TF files, in any order.
    pub files: Vec<PathBuf>,
    /// What of them an FLP has.
    pub share: StfShare,
    /// With `share = "files"`: the TF counter that is TF 0; without it, the lowest of all files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_counter: Option<u32>,
}

/// What of TF files an FLP has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StfShare {
    /// Every FLP reads all files, which hold whole TFs; their equipment is dealt out over the FLPs.
    #[default]
    Equipment,
    /// Files hold STFs and are dealt out over the FLPs: at least one an FLP.
    Files,
}

/// `kind = "stdin"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct StdinSource {}

/// `kind = "unix"`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct UnixSource {
    /// Where the FLP listens. `{flp}` stands for its index.
    pub path: PathBuf,
}

/// `kind = "tcp"`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct TcpSource {
    /// Where the FLP listens, as HOST:PORT. `{flp}` stands for its index.
    pub listen: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: SourceConfig, rate_hz: f64, mode: Mode, expected: Pace) {
        let config = FlpConfig {
            source,
            rate_hz,
            ..FlpConfig::default()
        };
        assert_eq!(config.brain(mode).pace, expected);
    }

    #[test]
    fn a_producer_paces_before_the_icn_and_the_icn_before_the_rate() {
        let replay = SourceConfig::default;
        let stdin = || SourceConfig::Stdin(StdinSource {});
        check(replay(), 5.0, Mode::DataDriven, Pace::RateHz(5.0));
        check(replay(), 0.0, Mode::DataDriven, Pace::Max);
        check(replay(), 5.0, Mode::Paced, Pace::Icn);
        check(stdin(), 5.0, Mode::Paced, Pace::External);
        check(stdin(), 5.0, Mode::DataDriven, Pace::External);
    }

    #[test]
    fn only_payloads_that_are_written_take_memory_for_the_hold() {
        let mut config = FlpConfig::default();
        let (hold, largest) = (config.hold_bytes, config.stf_bytes_max);
        let transport = |shared_memory| TransportConfig {
            shared_memory,
            ..TransportConfig::default()
        };
        assert_eq!(config.arena_bytes(&transport(false)), hold + largest);
        let lent = hold / 4;
        assert_eq!(config.arena_bytes(&transport(true)), hold + largest + lent);
        config.hold_bytes = 5;
        assert_eq!(config.arena_bytes(&transport(true)), 5 + largest + 5);
        config.source = SourceConfig::Generator(GeneratorConfig::default());
        assert_eq!(config.arena_bytes(&transport(true)), largest);
    }

    #[test]
    fn the_defaults_are_those_of_the_brain() {
        let brain = FlpConfig::default().brain(Mode::DataDriven);
        assert_eq!(brain, flp::FlpConfig::default());
    }
}
