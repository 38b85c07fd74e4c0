//! The head of a checkpoint in the verdict log: what all records before it in the run come to.
//!
//! A checkpoint is one append: this head first, behind it the records that say the rest. The ranges of released TFs,
//! the sources and the undone verdicts are of kinds of their own, because they count nothing; rosters, settings, the
//! clock and the stop are the records that they always are. Whoever reads the head forgets what it has read before.

use crate::codec::{DecodeError, Reader, Writer};
use crate::id::{FlpId, RosterId, RunId, TfId};
use crate::verdict::DropReason;

/// What the log of a run comes to, up to a point.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// The run.
    pub run: RunId,
    /// The first TF that no record has named.
    pub frontier: TfId,
    /// The highest name that a roster has had.
    pub last_roster: RosterId,
    /// TFs below this are decided and done.
    pub floor: TfId,
    /// TFs built with all parts.
    pub complete: u64,
    /// TFs built with parts missing.
    pub incomplete: u64,
    /// TFs not built, by [`DropReason::index`].
    pub dropped: [u64; DropReason::ALL.len()],
    /// Of the built ones: the EPN died with it.
    pub abandoned: u64,
    /// Payload bytes of built TFs.
    pub bytes: u64,
}

/// STFs of one FLP, as far as the log tells of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SummedSource {
    /// The FLP, over all its lives.
    pub flp: FlpId,
    /// Its STFs in built TFs.
    pub built: u64,
}

impl Checkpoint {
    /// The version of its bytes.
    pub const VERSION: u8 = 1;

    /// TFs with a verdict.
    #[must_use]
    pub fn decided(&self) -> u64 {
        let dropped = self
            .dropped
            .iter()
            .fold(0_u64, |sum, count| sum.saturating_add(*count));
        self.complete
            .saturating_add(self.incomplete)
            .saturating_add(dropped)
    }

    pub(crate) fn write(&self, out: &mut Writer<'_>) {
        out.u8(Self::VERSION);
        out.u64(self.run.0);
        out.u64(self.frontier.0);
        out.u32(self.last_roster.0);
        out.u64(self.floor.0);
        out.u64(self.complete);
        out.u64(self.incomplete);
        for count in self.dropped {
            out.u64(count);
        }
        out.u64(self.abandoned);
        out.u64(self.bytes);
    }

    pub(crate) fn read(input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let version = input.u8("version of a checkpoint")?;
        if version != Self::VERSION {
            return Err(DecodeError::Invalid {
                what: "version of a checkpoint",
                found: u64::from(version),
                expected: "1",
            });
        }
        let mut found = Self {
            run: RunId(input.u64("run")?),
            frontier: TfId(input.u64("frontier")?),
            last_roster: RosterId(input.u32("last roster id")?),
            floor: TfId(input.u64("floor")?),
            complete: input.u64("complete TFs")?,
            incomplete: input.u64("incomplete TFs")?,
            ..Self::default()
        };
        for count in &mut found.dropped {
            *count = input.u64("dropped TFs")?;
        }
        found.abandoned = input.u64("abandoned TFs")?;
        found.bytes = input.u64("TF bytes")?;
        if found.floor > found.frontier {
            return Err(DecodeError::Invalid {
                what: "floor of a checkpoint",
                found: found.floor.0,
                expected: "at most the frontier",
            });
        }
        Ok(found)
    }
}
