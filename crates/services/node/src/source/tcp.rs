//! STFs from producers that connect to a TCP address.

use super::feed::Feed;
use super::{Input, Opening, SourceError, SourceKind};
use crate::check::{ADDRESS, Check, for_index, is_address};
use serde::{Deserialize, Serialize};
use sheaf_protocol::{FlpId, NodeId};

/// The `[flp.source]` table with `kind = "tcp"`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct TcpSource {
    /// Where the FLP listens, as HOST:PORT. `{flp}` stands for its index.
    pub listen: String,
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
        Feed::tcp(&address, opening.stf_bytes_max, opening.wake)
            .map(Input::Fed)
            .map_err(|source| SourceError::listen(address, source))
    }
}
