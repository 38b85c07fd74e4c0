//! The `[writer]` table.

use crate::sink::StreamsSink;
use serde::{Deserialize, Serialize};

/// The `[writer]` table of a farm file.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct WriterNodesConfig {
    /// Where the writer nodes listen, and where EPNs find them, by index, HOST:PORT or `unix:PATH`.
    pub addresses: Vec<String>,
    /// Payload bytes that may be with a writer, shared by `run.epns` EPNs alike.
    pub capacity_bytes: u64,
    /// TFs that one EPN may have with a writer.
    pub window_tfs: u32,
    /// Period of pulses in ms.
    pub pulse_ms: u64,
    /// TFs that may be with the threads of a writer.
    pub queue_tfs: u32,
    /// Where it serves metrics; without it, nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<String>,
    /// Files, with the keys of the sink `streams`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<StreamsSink>,
}

impl Default for WriterNodesConfig {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            capacity_bytes: 1 << 30,
            window_tfs: 256,
            pulse_ms: 50,
            queue_tfs: 1024,
            metrics: None,
            files: None,
        }
    }
}

impl WriterNodesConfig {
    /// Bytes of the arena: what is with the writer, and a fourth of it for blocks that small bodies share.
    #[must_use]
    pub fn arena_bytes(&self) -> u64 {
        self.capacity_bytes.saturating_mul(5) / 4
    }

    /// Payload bytes that one of `epns` EPNs may have with a writer.
    #[must_use]
    pub fn window_bytes(&self, epns: u32) -> u64 {
        self.capacity_bytes / u64::from(epns.max(1))
    }
}
