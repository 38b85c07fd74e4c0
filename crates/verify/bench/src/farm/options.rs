//! Options of the benchmark of a farm.

use serde::Serialize;
use sheaf_node::config::{PayloadDigest, Threads};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Farms to measure, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Shapes, in the order in which they are measured.
    pub shapes: Vec<Shape>,
    /// Protections of the connections, in the order in which they are measured.
    pub security: Vec<Security>,
    /// Payload bytes of an STF, and of a message of the plain pair.
    pub stf_bytes: Vec<u64>,
    /// Undisturbed pairs of runs to take for each shape and size.
    pub pairs: u32,
    /// Length of the measured window of a run.
    pub seconds: f64,
    /// Time that a run goes before its window begins.
    pub warm_up_seconds: f64,
    /// Whether every process stays on a CPU, if there are two.
    pub pin: bool,
    /// Congestion control of all sockets, by its kernel name.
    pub congestion: String,
    /// The plain pair; else `plain_tcp` beside this program.
    pub peer: Option<PathBuf>,
    /// Bytes that an FLP holds until their TF is decided; else the farm file's default.
    pub hold_bytes: Option<u64>,
    /// Bytes of TFs that an EPN has at once; else the farm file's default.
    pub capacity_bytes: Option<u64>,
    /// Threads that move STFs in each node.
    pub threads: Threads,
    /// Whether EPNs read STFs in the memory of FLPs, as in any farm on one machine.
    pub shared_memory: bool,
    /// Payloads whose digest EPNs compute.
    pub digest: PayloadDigest,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            shapes: vec![Shape { flps: 1, epns: 1 }],
            security: vec![Security::Plain],
            stf_bytes: vec![1_000_000],
            pairs: 7,
            seconds: 1.5,
            warm_up_seconds: 0.3,
            pin: true,
            congestion: "cubic".to_owned(),
            peer: None,
            hold_bytes: None,
            capacity_bytes: None,
            threads: Threads::default(),
            shared_memory: false,
            digest: PayloadDigest::default(),
        }
    }
}

/// Protection of the connections of a farm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Security {
    /// Everything in the clear, as nodes talk on loopback without certificates.
    #[default]
    Plain,
    /// TLS 1.3 with certificates on both sides for everything, the default off loopback.
    Tls,
    /// TLS for everything but STFs, which are protected by their CRC-32C alone.
    CrcOnly,
}

impl Security {
    /// Every protection, and its name.
    const NAMES: [(Self, &str); 3] = [
        (Self::Plain, "plain"),
        (Self::Tls, "tls"),
        (Self::CrcOnly, "crc-only"),
    ];
}

impl fmt::Display for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.iter().find(|(security, _)| security == self);
        f.pad(name.map_or("", |(_, name)| name))
    }
}

impl FromStr for Security {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::NAMES.iter().find(|(_, name)| *name == text);
        found
            .map(|(security, _)| *security)
            .ok_or_else(|| format!("found `{text}`, expected plain, tls or crc-only"))
    }
}

/// How many nodes of each role a farm has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// FLPs.
    pub flps: u16,
    /// EPNs.
    pub epns: u16,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}x{}", self.flps, self.epns))
    }
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text, Self::PROCESSES_MAX)
    }
}

impl Shape {
    /// Most nodes of a role that are processes.
    const PROCESSES_MAX: u16 = 64;

    /// Reads `FLPsxEPNs`, with 1 to `most` of each.
    ///
    /// # Errors
    ///
    /// What was found and what was expected.
    pub(crate) fn parse(text: &str, most: u16) -> Result<Self, String> {
        let count = |part: &str| {
            let count = part.parse().ok();
            count.filter(|count| (1..=most).contains(count))
        };
        text.split_once('x')
            .and_then(|(flps, epns)| {
                let (flps, epns) = (count(flps)?, count(epns)?);
                Some(Self { flps, epns })
            })
            .ok_or_else(|| {
                format!("found `{text}`, expected FLPs x EPNs, 1 to {most} each, such as 3x5")
            })
    }
}
