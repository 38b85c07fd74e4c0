//! Check of the parts of a delivered TF against its roster and its sources (I3).

use super::{Found, found};
use crate::invariant::Invariant;
use crate::taken::Taken;
use sheaf_node::event::{MemberEvent, PartEvent};

/// Checks that the parts are those of the roster without the missing ones.
pub(super) fn check_roster(
    tf: u64,
    taken: &Taken,
    roster: Option<&[MemberEvent]>,
) -> Result<(), Found> {
    let Some(roster) = roster else {
        return found(
            Invariant::TruePieces,
            tf,
            format!("TF {tf} is delivered without a roster in the log"),
        );
    };
    let expected = roster
        .iter()
        .filter(|member| !taken.missing.contains(&member.flp));
    let parts = taken.parts.iter().map(|part| MemberEvent {
        flp: part.flp,
        incarnation: part.incarnation,
    });
    if expected.copied().eq(parts) {
        return Ok(());
    }
    let detail = format!(
        "TF {tf} is delivered with {:?}, its roster is {roster:?}, its verdict lacks {:?}",
        taken.parts, taken.missing
    );
    found(Invariant::TruePieces, tf, detail)
}

/// Checks that each part is the STF that its source made, once.
pub(super) fn check_parts(tf: u64, taken: &Taken, made: &[PartEvent]) -> Result<(), Found> {
    for (index, part) in taken.parts.iter().enumerate() {
        if taken.parts[..index]
            .iter()
            .any(|other| other.flp == part.flp)
        {
            return found(
                Invariant::TruePieces,
                tf,
                format!("TF {tf} has two STFs of flp:{}", part.flp),
            );
        }
        if taken.missing.contains(&part.flp) {
            return found(
                Invariant::TruePieces,
                tf,
                format!("TF {tf} has the STF of flp:{} that it lacks", part.flp),
            );
        }
        if !made.contains(part) {
            return found(
                Invariant::TruePieces,
                tf,
                format!("TF {tf} has a part that no FLP made: {part:?}"),
            );
        }
    }
    Ok(())
}
