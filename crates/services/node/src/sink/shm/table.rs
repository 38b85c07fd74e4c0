//! The table of the sink `shm` in a farm file.

use super::ShmWorker;
use crate::check::{Check, ConfigError, check_socket, path_for};
use crate::sink::handle::SinkHandle;
use crate::sink::{Opening, SinkError, SinkKind};
use serde::{Deserialize, Serialize};
use sheaf_protocol::NodeId;
use std::path::PathBuf;

/// The `[epn.sink]` table with `kind = "shm"`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShmSink {
    /// Where the EPN listens for its consumers. `{epn}` stands for the index of the EPN.
    pub path: PathBuf,
    /// Consumers that may be connected at once.
    pub consumers_max: u16,
    /// Bytes of payload that one of them may have at once, but one TF in any case.
    pub consumer_bytes_max: u64,
    /// Time after which a TF that a consumer does not take goes to another one.
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

impl SinkKind for ShmSink {
    fn check(&self, check: &mut Check) {
        check.socket_path("epn.sink.path", &self.path);
        for (key, found) in [
            ("epn.sink.consumers_max", u64::from(self.consumers_max)),
            ("epn.sink.reclaim_ms", self.reclaim_ms),
        ] {
            check.that(found >= 1, key, found, "at least 1");
        }
    }

    fn check_files(&self, node: NodeId) -> Option<ConfigError> {
        check_socket("epn.sink.path", &path_for(&self.path, node))
    }

    fn shares_memory(&self) -> bool {
        true
    }

    /// Of one consumer a socket, and the rings.
    fn descriptors_max(&self) -> usize {
        2 * usize::from(self.consumers_max)
    }

    fn open(&self, opening: Opening) -> Result<SinkHandle, SinkError> {
        Ok(SinkHandle::new(ShmWorker::spawn(self, opening)?))
    }
}
