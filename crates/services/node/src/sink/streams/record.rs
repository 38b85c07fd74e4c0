//! Parts of TFs as they go through the engine.

use crate::sink::{Delivery, recomputed};
use bytes::Bytes;
use sheaf_protocol::Tf;
use sheaf_stream_files::Record;
use std::sync::{Arc, OnceLock};

/// A TF that streams have parts of. It is delivered when the last record that holds it is written.
pub(super) struct Shared {
    pub(super) tf: Tf<Bytes>,
    /// Observations about its bytes, made by the first worker that has a part.
    pub(super) delivery: OnceLock<Delivery>,
}

/// Part of a TF that one stream gets.
pub(super) struct TfRecord {
    pub(super) head: Vec<u8>,
    pub(super) part: Tf<Bytes>,
    pub(super) whole: Arc<Shared>,
}

impl Record for TfRecord {
    fn slices(&self) -> Vec<&[u8]> {
        let payloads = self.part.parts.iter().map(|part| part.payload.as_ref());
        std::iter::once(self.head.as_slice())
            .chain(payloads)
            .collect()
    }

    fn prepare(&mut self) {
        self.whole
            .delivery
            .get_or_init(|| recomputed(&self.whole.tf));
    }
}
