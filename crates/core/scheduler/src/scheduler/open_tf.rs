//! One TF that is not done: its announces, its place, its verdict.

use sheaf_protocol::{Attempt, DropReason, FlpId, RosterId, Source, Target, Timestamp};
use std::cell::Cell;
use std::sync::Arc;

/// The sources whose STFs make a TF whole, by FLP id.
pub(crate) type Members = Arc<[Source]>;

/// State of one member's STF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Not announced yet; this many bytes at most.
    Unknown(u64),
    Announced(u64),
    Skipped(DropReason),
}

/// Phase of a TF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Waits for announces.
    Gathering,
    /// Waits for room at an EPN.
    Queued,
    /// Is being built.
    Building { target: Target, deadline: Timestamp },
    /// Has its verdict; the EPN has yet to acknowledge that the consumer has it.
    Committed {
        target: Target,
        missing: Vec<FlpId>,
        said_at: Timestamp,
    },
}

/// Verdict of a TF that is built again.
#[derive(Clone, Debug)]
pub(super) struct Former {
    /// The life of the EPN, which is over as far as this leader knows.
    pub(super) target: Target,
    pub(super) missing: Vec<FlpId>,
    /// Parts as they were counted with the verdict.
    pub(super) parts: Vec<Part>,
}

/// Room that was reserved for a TF at one EPN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Booking {
    pub(super) target: Target,
    pub(super) bytes: u64,
    pub(super) placed_at: Timestamp,
}

#[derive(Debug)]
pub(super) struct OpenTf {
    pub(super) roster: RosterId,
    pub(super) members: Members,
    /// Parts, one for each member.
    pub(super) parts: Vec<Part>,
    pub(super) phase: Phase,
    pub(super) attempt: Attempt,
    /// Whether the TF was found at an EPN when this ICN took over: it may have parts that no FLP has announced since.
    pub(super) is_adopted: bool,
    /// FLPs that were asked to retransmit to the EPN where the TF was found.
    pub(super) asked_again: Vec<FlpId>,
    pub(super) bookings: Vec<Booking>,
    /// First announce, or the heartbeat in paced mode.
    pub(super) first_at: Timestamp,
    /// Latest assignment.
    pub(super) assigned_at: Timestamp,
    /// First and last byte at the EPN that built the TF.
    pub(super) bytes_at: (Timestamp, Timestamp),
    /// Payload bytes of the TF as it was committed.
    pub(super) committed_bytes: u64,
    /// Verdict in force while the TF is built again: the EPN that it names has died.
    pub(super) former: Option<Former>,
    /// Whether the verdict in the log is an amendment: the delivery is marked.
    pub(super) is_redelivered: bool,
    /// All parts before this one are announced: a part once announced stays so, and 250 announces do not look at 250
    /// parts each.
    heard_before: Cell<usize>,
}

impl OpenTf {
    pub(super) fn new(
        now: Timestamp,
        roster: RosterId,
        members: Members,
        parts: Vec<Part>,
    ) -> Self {
        Self {
            roster,
            parts,
            members,
            phase: Phase::Gathering,
            attempt: Attempt(0),
            is_adopted: false,
            asked_again: Vec::new(),
            bookings: Vec::new(),
            first_at: now,
            assigned_at: now,
            bytes_at: (now, now),
            committed_bytes: 0,
            former: None,
            is_redelivered: false,
            heard_before: Cell::new(0),
        }
    }

    pub(super) fn member_index(&self, source: Source) -> Option<usize> {
        self.members.binary_search(&source).ok()
    }

    /// Removes a member and the state of its part.
    pub(super) fn remove_part(&mut self, index: usize) -> Part {
        self.heard_before.set(0);
        self.parts.remove(index)
    }

    /// Returns whether the TF has no verdict.
    pub(super) fn is_undecided(&self) -> bool {
        self.is_unbuilt() && self.former.is_none()
    }

    /// Returns whether no EPN has built the TF, or the one that has is dead and the TF is built again.
    pub(super) fn is_unbuilt(&self) -> bool {
        !matches!(self.phase, Phase::Committed { .. })
    }

    /// Returns the EPN that the TF is committed to.
    pub(super) fn winner(&self) -> Option<Target> {
        match self.phase {
            Phase::Committed { target, .. } => Some(target),
            _ => None,
        }
    }

    pub(super) fn all_heard(&self) -> bool {
        let before = self.heard_before.get();
        let rest = self.parts.get(before..).unwrap_or_default();
        let unheard = rest
            .iter()
            .position(|part| matches!(part, Part::Unknown(_)));
        self.heard_before
            .set(before + unheard.unwrap_or(rest.len()));
        unheard.is_none()
    }

    /// Returns the bytes to reserve: announced ones, and the most that the other parts may bring.
    pub(super) fn bytes_expected(&self) -> u64 {
        let bytes = |part: &Part| match part {
            Part::Unknown(bytes) | Part::Announced(bytes) => *bytes,
            Part::Skipped(_) => 0,
        };
        let announced = self.parts.iter().map(bytes).sum();
        // A leader that took over knows what was built, and not what was announced.
        let built = self.former.as_ref().map_or(0, |_| self.committed_bytes);
        built.max(announced)
    }

    /// Returns the FLPs that will never have an STF of this TF.
    pub(super) fn absent(&self) -> Vec<FlpId> {
        let is_skipped = |part: &Part| matches!(part, Part::Skipped(_));
        let members = self.members.iter().zip(&self.parts);
        members
            .filter(|(_, part)| is_skipped(part))
            .map(|(source, _)| source.flp)
            .collect()
    }

    pub(super) fn first_skip(&self) -> Option<DropReason> {
        self.parts.iter().find_map(|part| match part {
            Part::Skipped(reason) => Some(*reason),
            _ => None,
        })
    }

    pub(super) fn reason_of(&self, flp: FlpId) -> Option<DropReason> {
        let index = self.members.iter().position(|member| member.flp == flp)?;
        match self.parts[index] {
            Part::Skipped(reason) => Some(reason),
            _ => None,
        }
    }
}
