//! STFs from producers that connect to a Unix socket.

use super::feed::{Feed, IDLE_TIMEOUT_MS};
use super::{Input, Opening, SourceError, SourceKind};
use crate::check::{Check, ConfigError, check_socket, path_for};
use serde::{Deserialize, Serialize};
use sheaf_protocol::NodeId;
use std::path::PathBuf;
use std::time::Duration;

/// The `[flp.source]` table with `kind = "unix"`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct UnixSource {
    /// Where the FLP listens. `{flp}` stands for its index.
    pub path: PathBuf,
    /// Silence of a producer, in ms, after which one that waits takes its place. 0: never.
    pub idle_timeout_ms: u64,
}

impl Default for UnixSource {
    fn default() -> Self {
        Self {
            path: PathBuf::new(),
            idle_timeout_ms: IDLE_TIMEOUT_MS,
        }
    }
}

impl SourceKind for UnixSource {
    fn is_fed(&self) -> bool {
        true
    }

    fn check(&self, check: &mut Check) {
        check.socket_path("flp.source.path", &self.path);
    }

    fn check_files(&self, node: NodeId) -> Option<ConfigError> {
        check_socket("flp.source.path", &path_for(&self.path, node))
    }

    fn open(&self, opening: Opening<'_>) -> Result<Input, SourceError> {
        let path = path_for(&self.path, opening.flp.into());
        let idle_timeout = Duration::from_millis(self.idle_timeout_ms);
        Feed::unix(
            &path,
            opening.stf_bytes_max,
            idle_timeout,
            opening.memory,
            opening.wake,
        )
        .map(Input::Fed)
        .map_err(|source| SourceError::listen(path.display(), source))
    }
}
