//! Options of the benchmark of the transport.

use serde::Serialize;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Processes on one side.
const SIDE_MAX: usize = 1024;
/// Sizes that the founding poster measured, and smaller ones.
pub const SIZES: [usize; 9] = [
    4096,
    10_000,
    65_536,
    262_144,
    1_000_000,
    4_000_000,
    16_000_000,
    64_000_000,
    100_000_000,
];

/// Transports to measure, and how. Every list is combined with every other one.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Numbers of processes.
    pub shapes: Vec<Shape>,
    /// Bytes of a message.
    pub sizes: Vec<usize>,
    /// Networks between the two sides; without effect if receivers are at another host.
    pub paths: Vec<Path>,
    /// Sides that bind; the other one connects.
    pub binds: Vec<Side>,
    /// Messages that may be queued for one connection; fewer if they would take more than the pool.
    pub queues: Vec<usize>,
    /// Names of the transports; all that are there, if empty. `plain-tcp` always runs.
    pub transports: Vec<String>,
    /// Undisturbed rounds to take for each row.
    pub pairs: u32,
    /// Length of the measured window of a run.
    pub seconds: f64,
    /// Time that a run goes before its window begins; longer with many processes.
    pub warm_up_seconds: f64,
    /// Bytes of payloads of all senders together.
    pub pool_bytes: usize,
    /// Bytes that all receivers together receive into; as the pool, if not given.
    pub receive_bytes: Option<usize>,
    /// Whether every process stays on a CPU, if there are two.
    pub pin: bool,
    /// Congestion control of all sockets, by its kernel name.
    pub congestion: String,
    /// Folder of the programs of the other libraries; else beside this program and in tools/peers/bin.
    pub peers_dir: Option<PathBuf>,
    /// Folder with certificates of `flp:0` and `epn:0`, for transports under TLS; they are not there without it.
    pub certificates: Option<PathBuf>,
    /// Host of the receivers.
    pub receivers: Receivers,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            shapes: vec![Shape {
                senders: 1,
                receivers: 1,
            }],
            sizes: SIZES.to_vec(),
            paths: vec![Path::Loopback],
            binds: vec![Side::Receiver],
            queues: vec![1000],
            transports: Vec::new(),
            pairs: 7,
            seconds: 0.8,
            warm_up_seconds: 0.3,
            pool_bytes: 256 << 20,
            receive_bytes: None,
            pin: true,
            congestion: "cubic".to_owned(),
            peers_dir: None,
            certificates: None,
            receivers: Receivers::Here,
        }
    }
}

/// Host of the receivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Receivers {
    /// This machine.
    Here,
    /// Another host, where a server is started by ssh.
    Host(String),
    /// Another host, where a server runs already.
    Server {
        /// Address of the server.
        address: SocketAddr,
        /// Token that the server printed.
        token: String,
    },
}

/// Network between the two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Path {
    /// The loopback device.
    Loopback,
    /// A pair of virtual network cards.
    Veth,
    /// A network.
    Remote,
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Loopback => "loopback",
            Self::Veth => "veth",
            Self::Remote => "remote",
        })
    }
}

/// One of the two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// The one that sends.
    Sender,
    /// The one that receives.
    Receiver,
}

/// Number of processes on each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Processes that send.
    pub senders: usize,
    /// Processes that receive.
    pub receivers: usize,
}

impl Shape {
    /// Returns the number of processes of the larger side.
    #[must_use]
    pub fn peers(self) -> usize {
        self.senders.max(self.receivers)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}-{}", self.senders, self.receivers))
    }
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let count = |part: &str| {
            part.parse()
                .ok()
                .filter(|count| (1..=SIDE_MAX).contains(count))
        };
        text.split_once('-')
            .and_then(|(senders, receivers)| {
                let (senders, receivers) = (count(senders)?, count(receivers)?);
                Some(Self { senders, receivers })
            })
            .ok_or_else(|| {
                format!(
                    "found `{text}`, expected senders-receivers, 1 to {SIDE_MAX} each, such as 1-64"
                )
            })
    }
}
