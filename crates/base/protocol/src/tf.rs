//! A built timeframe, as it is delivered to the consumer.

use crate::id::{Attempt, FlpId, RunId, Source, TfId};
use crate::stf::PayloadFormat;

/// One STF of a TF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part<P> {
    /// The source that made the STF.
    pub source: Source,
    /// Format of the payload.
    pub format: PayloadFormat,
    /// CRC-32C of the payload as its source stated it, and as it was found on arrival.
    pub digest: u32,
    /// Payload bytes.
    pub bytes: u64,
    /// The payload.
    pub payload: P,
}

/// A committed TF: all parts of its roster but the missing ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tf<P> {
    /// The run.
    pub run: RunId,
    /// The TF.
    pub tf: TfId,
    /// The assignment that it was built for.
    pub attempt: Attempt,
    /// Whether an EPN that died may have delivered the TF before.
    pub is_redelivered: bool,
    /// The STFs, by FLP id.
    pub parts: Vec<Part<P>>,
    /// FLPs of the roster without a part, by id; empty for a complete TF.
    pub missing: Vec<FlpId>,
}

impl<P> Tf<P> {
    /// Returns the payload bytes of all parts.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }

    /// Whether it is what a consumer made of a TF, in one part, and not the TF itself.
    #[must_use]
    pub fn is_product(&self) -> bool {
        let mut sources = self.parts.iter().map(|part| part.source.flp);
        sources.next() == Some(FlpId::PRODUCT)
    }
}
