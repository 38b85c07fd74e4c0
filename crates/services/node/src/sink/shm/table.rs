//! The table of the sink `shm` in a farm file.

use super::ShmWorker;
use crate::check::{Check, ConfigError, check_socket, path_for};
use crate::sink::handle::SinkHandle;
use crate::sink::{Opening, SinkError, SinkKind, StreamsSink};
use serde::{Deserialize, Serialize};
use sheaf_protocol::NodeId;
use sheaf_transport::handover::Answers;
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
    /// Files of streams for the TFs that consumers give back, and for what they made of them; without it, TFs end with
    /// their consumers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<StreamsSink>,
    /// Largest product of a TF that a consumer returns, in MiB.
    pub product_mib_max: u64,
}

/// Name of the table of the files in a farm file.
const WRITE: &str = "epn.sink.write";

impl ShmSink {
    /// Returns what consumers may say of TFs that they give back; `None`: nothing.
    pub(super) fn answers(&self) -> Option<Answers> {
        let product_bytes_max = self.product_mib_max.saturating_mul(1 << 20);
        self.write.as_ref().map(|_| Answers { product_bytes_max })
    }
}

impl Default for ShmSink {
    fn default() -> Self {
        Self {
            path: PathBuf::new(),
            consumers_max: 16,
            consumer_bytes_max: 512 << 20,
            reclaim_ms: 1000,
            write: None,
            product_mib_max: 64,
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
        let found = self.product_mib_max;
        let key = "epn.sink.product_mib_max";
        check.that((1..=1 << 20).contains(&found), key, found, "1 to 1048576");
        if let Some(write) = &self.write {
            write.check_at(WRITE, true, check);
        }
    }

    fn check_files(&self, node: NodeId) -> Option<ConfigError> {
        let files = || self.write.as_ref()?.check_folder(WRITE, node);
        check_socket("epn.sink.path", &path_for(&self.path, node)).or_else(files)
    }

    fn shares_memory(&self) -> bool {
        true
    }

    fn sees_the_end(&self) -> bool {
        true
    }

    /// Of one consumer a socket, the rings, and a product that is just read.
    fn descriptors_max(&self) -> usize {
        let files = self.write.as_ref().map_or(0, StreamsSink::files_max);
        3 * usize::from(self.consumers_max) + files
    }

    fn open(&self, opening: Opening) -> Result<SinkHandle, SinkError> {
        Ok(SinkHandle::new(ShmWorker::spawn(self, opening)?))
    }
}
