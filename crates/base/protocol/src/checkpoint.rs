//! The head of a checkpoint in the verdict log: what all records before it in the run come to.
//!
//! A checkpoint is one append: this head first, behind it the records that say the rest. The ranges of released TFs,
//! the sources and the undone verdicts are of kinds of their own, because they count nothing; rosters, settings, the
//! clock and the stop are the records that they always are. A reader of the head forgets all records before it.

use crate::codec::{DecodeError, Reader, Writer};
use crate::id::{EpnId, FlpId, RosterId, RunId, TfId};
use crate::verdict::DropReason;
use crate::wire::{Name, Numbers, Wire, wire_struct};

/// Sum of the log of a run, up to a point.
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
    /// STFs in built TFs.
    pub built: u64,
}

/// TFs of one EPN, as far as the log tells of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SummedTarget {
    /// The EPN, over all its lives.
    pub epn: EpnId,
    /// TFs committed to it.
    pub built: u64,
    /// Of these, acknowledged: its consumer has them.
    pub delivered: u64,
}

impl Checkpoint {
    /// The version of its bytes.
    pub const VERSION: u8 = 2;

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
}

wire_struct! {
    Checkpoint {
        run: RunId,
        frontier: TfId = "frontier",
        last_roster: RosterId = "last roster id",
        floor: TfId = "floor",
        complete: u64 = "complete TFs",
        incomplete: u64 = "incomplete TFs",
        dropped: Counts = "dropped TFs",
        abandoned: u64 = "abandoned TFs",
        bytes: u64 = "TF bytes",
    }
    CheckpointOfTen {
        run: RunId,
        frontier: TfId = "frontier",
        last_roster: RosterId = "last roster id",
        floor: TfId = "floor",
        complete: u64 = "complete TFs",
        incomplete: u64 = "incomplete TFs",
        dropped: [u64; 10] = "dropped TFs",
        abandoned: u64 = "abandoned TFs",
        bytes: u64 = "TF bytes",
    }
    SummedSource { flp: FlpId, built: u64 = "built STFs" }
    SummedTarget { epn: EpnId, built: u64 = "built TFs", delivered: u64 = "delivered TFs" }
}

/// The head of version 1, which had ten reasons and did not count them.
#[derive(Clone)]
struct CheckpointOfTen {
    run: RunId,
    frontier: TfId,
    last_roster: RosterId,
    floor: TfId,
    complete: u64,
    incomplete: u64,
    dropped: [u64; 10],
    abandoned: u64,
    bytes: u64,
}

impl From<CheckpointOfTen> for Checkpoint {
    fn from(found: CheckpointOfTen) -> Self {
        let mut dropped = [0; DropReason::ALL.len()];
        dropped[..10].copy_from_slice(&found.dropped);
        Self {
            run: found.run,
            frontier: found.frontier,
            last_roster: found.last_roster,
            floor: found.floor,
            complete: found.complete,
            incomplete: found.incomplete,
            dropped,
            abandoned: found.abandoned,
            bytes: found.bytes,
        }
    }
}

/// Dropped TFs by reason: how many reasons (u8), and a count each. A log that knows fewer reasons is read.
struct Counts;

impl Wire for Counts {
    type Value = [u64; DropReason::ALL.len()];

    const BYTES_MIN: usize = 1;
    const IS_FIXED: bool = false;

    fn write(value: &Self::Value, out: &mut Writer<'_>) {
        out.u8(u8::try_from(value.len()).expect("few reasons"));
        value.iter().for_each(|count| out.u64(*count));
    }

    fn read(input: &mut Reader<'_>, name: Name) -> Result<Self::Value, DecodeError> {
        let mut counts = [0; DropReason::ALL.len()];
        let what = "number of drop reasons";
        let found = input.u8(what)?;
        let known = counts.get_mut(..usize::from(found));
        let known = known.ok_or(DecodeError::Invalid {
            what,
            found: u64::from(found),
            expected: "at most 13",
        })?;
        for count in known {
            *count = u64::read(input, name)?;
        }
        Ok(counts)
    }

    fn sample(numbers: &mut Numbers, variant: usize) -> Self::Value {
        [(); DropReason::ALL.len()].map(|()| u64::sample(numbers, variant))
    }

    fn layout() -> String {
        format!("count u8 ({}), count × u64", DropReason::ALL.len())
    }
}

/// A checkpoint behind its version; a floor above the frontier is refused.
pub(crate) struct CheckpointForm;

impl Wire for CheckpointForm {
    type Value = Box<Checkpoint>;

    const BYTES_MIN: usize = 1 + Checkpoint::BYTES_MIN;

    fn write(value: &Self::Value, out: &mut Writer<'_>) {
        out.u8(Checkpoint::VERSION);
        Checkpoint::write(value, out);
    }

    fn read(input: &mut Reader<'_>, name: Name) -> Result<Self::Value, DecodeError> {
        let version = input.u8("version of a checkpoint")?;
        let found = match version {
            1 => CheckpointOfTen::read(input, name)?.into(),
            Checkpoint::VERSION => Checkpoint::read(input, name)?,
            _ => {
                return Err(DecodeError::Invalid {
                    what: "version of a checkpoint",
                    found: u64::from(version),
                    expected: "1 or 2",
                });
            }
        };
        if found.floor > found.frontier {
            return Err(DecodeError::Invalid {
                what: "floor of a checkpoint",
                found: found.floor.0,
                expected: "at most the frontier",
            });
        }
        Ok(Box::new(found))
    }

    fn sample(numbers: &mut Numbers, variant: usize) -> Self::Value {
        let mut sample = Checkpoint::sample(numbers, variant);
        std::mem::swap(&mut sample.floor, &mut sample.frontier);
        Box::new(sample)
    }

    fn layout() -> String {
        format!(
            "`version` u8 ({}), {}",
            Checkpoint::VERSION,
            Checkpoint::layout()
        )
    }
}
