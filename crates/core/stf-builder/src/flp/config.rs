//! Configuration of making and holding STFs.

use serde::{Deserialize, Serialize};

/// When STFs are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// TF `t` is due `t` ÷ rate after the start of the run, in Hz.
    RateHz(f64),
    /// As fast as the hold takes them.
    Max,
    /// When the ICN's heartbeat calls for them.
    Icn,
    /// When the source has them.
    External,
}

/// Behaviour for a TF that is due while the hold is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenFull {
    /// The source waits. For sources that can.
    #[default]
    Block,
    /// The TF is skipped, and its fate is `source-overrun`. For detectors, which do not wait.
    DropNewest,
}

/// Way of STFs to their EPN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Push {
    /// Pushed as soon as they are assigned. The shortest way where switches have room for the bursts of all FLPs.
    #[default]
    Eager,
    /// Large STFs are offered, and the EPN fetches a few at a time. For switches with shallow buffers.
    Granted,
}

impl Push {
    /// Both ways.
    pub const ALL: [Self; 2] = [Self::Eager, Self::Granted];

    /// Returns the name in files, flags and results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Eager => "eager",
            Self::Granted => "granted",
        }
    }
}

/// Configuration of pace, hold and retransmission of an FLP.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlpConfig {
    /// When STFs are made.
    pub pace: Pace,
    /// Behaviour when the hold is full.
    pub when_full: WhenFull,
    /// Bytes of STFs kept until their TF is decided.
    pub hold_bytes: u64,
    /// STFs kept until their TF is decided.
    pub hold_stfs_max: u32,
    /// Way of STFs to their EPN.
    pub push: Push,
    /// With [`Push::Granted`], STFs up to this size are pushed all the same, in bytes.
    pub eager_bytes: u64,
    /// How long an answer of the ICN is awaited before an announce is repeated, in ms.
    pub repeat_ms: u64,
    /// First pause before a broken data stream is opened again, in ms; it doubles up to a second.
    pub reconnect_ms: u64,
    /// How long a data stream may be broken before the ICN is notified, in ms.
    pub unreachable_ms: u64,
}

impl Default for FlpConfig {
    fn default() -> Self {
        Self {
            pace: Pace::RateHz(100.0),
            when_full: WhenFull::Block,
            hold_bytes: 512 << 20,
            hold_stfs_max: 4096,
            push: Push::Eager,
            eager_bytes: 64 << 10,
            repeat_ms: 100,
            reconnect_ms: 10,
            unreachable_ms: 200,
        }
    }
}
