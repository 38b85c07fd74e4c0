//! STFs from the standard input of the FLP.

use super::feed::Feed;
use super::{Input, Opening, SourceError, SourceKind};
use serde::{Deserialize, Serialize};

/// The `[flp.source]` table with `kind = "stdin"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct StdinSource {}

impl SourceKind for StdinSource {
    fn is_fed(&self) -> bool {
        true
    }

    fn open(&self, opening: Opening<'_>) -> Result<Input, SourceError> {
        Feed::stdin(opening.stf_bytes_max, opening.memory, opening.wake)
            .map(Input::Fed)
            .map_err(|source| SourceError::listen("the standard input", source))
    }
}
