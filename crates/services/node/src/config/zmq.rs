//! What a farm file says of sockets of ZeroMQ: as the source of an FLP and as the sink of an EPN.

use serde::{Deserialize, Serialize};
use sheaf_protocol::PayloadFormat;

/// `kind = "zmq"` of `[flp.source]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ZmqSource {
    /// Where, as ZeroMQ writes it: `tcp://HOST:PORT` or `ipc://PATH`. `{flp}` stands for the index of the FLP.
    pub endpoint: String,
    /// Who listens there.
    pub method: ZmqMethod,
    /// What its producers are.
    pub pattern: ZmqIntake,
    /// With `pattern = "sub"`: only messages whose first part begins with this.
    pub topic: String,
    /// How a message says which TF it is of.
    pub framing: ZmqFraming,
    /// What payloads are made of, where messages do not say it.
    pub format: StfFormat,
    /// The number of its producers that is TF 0.
    pub first_tf: u64,
    /// Producers at once.
    pub peers_max: u32,
}

impl Default for ZmqSource {
    fn default() -> Self {
        Self {
            endpoint: String::new(),
            method: ZmqMethod::Bind,
            pattern: ZmqIntake::Pull,
            topic: String::new(),
            framing: ZmqFraming::Record,
            format: StfFormat::Opaque,
            first_tf: 0,
            peers_max: 4,
        }
    }
}

/// Who listens at an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZmqMethod {
    /// The node.
    #[default]
    Bind,
    /// The peer; the node connects, and again whenever the connection is gone.
    Connect,
}

/// The socket of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZmqIntake {
    /// PULL, of producers that PUSH: they wait when the FLP does.
    #[default]
    Pull,
    /// SUB, of producers that PUB: they throw away what the FLP does not take.
    Sub,
}

/// How a message of a producer says which TF it is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZmqFraming {
    /// A record of `docs/feed.md`: a head of 24 bytes, then the payload.
    #[default]
    Record,
    /// A part with the TF id, then the payload.
    TfId,
    /// A part of 24 bytes as O2-Balancer2 has it, then the payload.
    O2Balancer,
    /// It does not: all of it is payload, and each message is one TF further.
    Count,
}

/// What payloads are made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StfFormat {
    /// Bytes without structure.
    #[default]
    Opaque,
    /// ALICE raw-data pages.
    Rdh,
    /// KM3NeT records.
    Km3net,
    /// LCLS-II datagrams.
    Xtc2,
}

impl From<StfFormat> for PayloadFormat {
    fn from(format: StfFormat) -> Self {
        match format {
            StfFormat::Opaque => Self::Opaque,
            StfFormat::Rdh => Self::RdhPages,
            StfFormat::Km3net => Self::Km3netRecords,
            StfFormat::Xtc2 => Self::Xtc2Datagrams,
        }
    }
}

/// `kind = "zmq"` of `[epn.sink]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ZmqSink {
    /// Where, as ZeroMQ writes it: `tcp://HOST:PORT` or `ipc://PATH`. `{epn}` stands for the index of the EPN.
    pub endpoint: String,
    /// Who listens there.
    pub method: ZmqMethod,
    /// What its consumers are.
    pub pattern: ZmqOutlet,
    /// How a TF is laid out.
    pub framing: ZmqLayout,
    /// A consumer that takes nothing for so long, in ms, is given up: of `push` if another could, of `pub` always.
    pub stall_ms: u64,
}

impl Default for ZmqSink {
    fn default() -> Self {
        Self {
            endpoint: String::new(),
            method: ZmqMethod::Bind,
            pattern: ZmqOutlet::Push,
            framing: ZmqLayout::Tf,
            stall_ms: 5000,
        }
    }
}

/// The socket of a sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZmqOutlet {
    /// PUSH, to consumers that PULL: each TF goes to one of them, and waits until there is one.
    #[default]
    Push,
    /// PUB, to consumers that SUB: each TF goes to all of them, and to nobody if there is none.
    Pub,
}

/// How a TF is laid out for consumers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZmqLayout {
    /// One message: the head of a TF file, then a part for each STF.
    #[default]
    Tf,
    /// As O2-Balancer2 has it: a message for each STF, of a header of 24 bytes and the payload.
    O2Balancer,
}
