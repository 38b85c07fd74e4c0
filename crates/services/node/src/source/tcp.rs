//! STFs from producers that connect to a TCP address.

use super::feed::{Feed, IDLE_TIMEOUT_MS};
use super::{Input, Opening, SourceError, SourceKind};
use crate::check::{ADDRESS, Check, for_index, is_address};
use serde::{Deserialize, Serialize};
use sheaf_protocol::{FlpId, NodeId};
use std::time::Duration;

/// The `[flp.source]` table with `kind = "tcp"`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct TcpSource {
    /// Where the FLP listens, as HOST:PORT. `{flp}` stands for its index.
    pub listen: String,
    /// Silence of a producer, in ms, after which one that waits takes its place. 0: never.
    pub idle_timeout_ms: u64,
}

impl Default for TcpSource {
    fn default() -> Self {
        Self {
            listen: String::new(),
            idle_timeout_ms: IDLE_TIMEOUT_MS,
        }
    }
}

impl SourceKind for TcpSource {
    fn is_fed(&self) -> bool {
        true
    }

    fn check(&self, check: &mut Check) {
        let first = for_index(&self.listen, FlpId(0).into());
        check.that(
            is_address(&first),
            "flp.source.listen",
            format!("\"{}\"", self.listen),
            ADDRESS,
        );
    }

    fn address(&self, node: NodeId) -> Option<String> {
        Some(for_index(&self.listen, node))
    }

    fn open(&self, opening: Opening<'_>) -> Result<Input, SourceError> {
        let address = for_index(&self.listen, opening.flp.into());
        let idle_timeout = Duration::from_millis(self.idle_timeout_ms);
        Feed::tcp(
            &address,
            opening.stf_bytes_max,
            idle_timeout,
            opening.memory,
            opening.wake,
        )
        .map(Input::Fed)
        .map_err(|source| SourceError::listen(address, source))
    }
}
