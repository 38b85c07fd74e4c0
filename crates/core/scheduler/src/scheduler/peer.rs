//! One FLP or one EPN as the scheduler knows it, and the operator's setting of an EPN.

use super::absent::{Absence, Hold};
use super::run_delay::Releasing;
use sheaf_placement::TargetId;
use sheaf_protocol::control::{Consumed, EpnPulse, FlpPulse, Position};
use sheaf_protocol::{EpnId, RosterId, Source, Target, TfId, Timestamp};
use std::collections::BTreeSet;

/// One life of an FLP.
#[derive(Debug)]
pub(super) struct FlpNode {
    pub(super) source: Source,
    /// Largest STF that the FLP announces.
    pub(super) stf_bytes_max: u64,
    /// STFs that it can hold.
    pub(super) hold: Hold,
    /// State while it is not heard.
    pub(super) absence: Option<Absence>,
    /// When it was heard again after an absence.
    pub(super) back_at: Option<Timestamp>,
    /// Time at which this life was declared over.
    pub(super) gone_at: Option<Timestamp>,
    /// Whether the node wants to leave.
    pub(super) is_leaving: bool,
    /// Reported, after its end, that the hold is empty.
    pub(super) holds_nothing: bool,
    /// Answer to a pause: the first TF not made.
    pub(super) stopped: Option<TfId>,
    /// The first TF that the FLP will not make.
    pub(super) ended: Option<TfId>,
    pub(super) pulse: FlpPulse,
    pub(super) releasing: Releasing,
    /// First TF that the ICN asked for.
    pub(super) first: Option<TfId>,
    /// Where the source stands against the run, as far as the FLP knows.
    pub(super) position: Option<Position>,
}

impl FlpNode {
    /// Notes that it is heard again; returns whether new TFs were made without it.
    pub(super) fn end_absence(&mut self, now: Timestamp) -> bool {
        let Some(absence) = self.absence.take() else {
            return false;
        };
        self.back_at = Some(now);
        absence.is_left_behind
    }
}

/// One life of an EPN.
#[derive(Debug)]
pub(super) struct EpnNode {
    pub(super) target: Target,
    pub(super) address: String,
    pub(super) is_leaving: bool,
    /// Has sent a pulse, which follows the report of the TFs that it holds.
    pub(super) has_reported: bool,
    /// Reports TFs only once they are on its disk (ack level `stored`).
    pub(super) is_durable: bool,
    /// FLPs that have a data stream open to it.
    pub(super) sources: BTreeSet<Source>,
    /// Stream closed, as opposed to silence.
    pub(super) is_cut: bool,
    /// Life over, but still in the list of EPNs.
    pub(super) is_dead: bool,
    pub(super) pulse: EpnPulse,
    /// Work of its consumer by its last report.
    pub(super) consumed: Consumed,
    pub(super) releasing: Releasing,
    /// Bookings of TFs decided elsewhere: released when the EPN has applied that release.
    pub(super) losing: Vec<(u64, u64)>,
    /// Rosters sent to the EPN. TFs are not assigned in order, so the newest does not stand for all.
    pub(super) rosters_said: BTreeSet<RosterId>,
}

impl FlpNode {
    /// Returns a life that is known from the log only.
    pub(super) fn expected(
        now: Timestamp,
        source: Source,
        stf_bytes_max: u64,
        first: TfId,
    ) -> Self {
        Self {
            source,
            stf_bytes_max,
            hold: Hold::default(),
            absence: Some(Absence::new(now)),
            back_at: None,
            gone_at: None,
            is_leaving: false,
            holds_nothing: false,
            stopped: None,
            ended: None,
            pulse: FlpPulse::default(),
            releasing: Releasing::default(),
            first: Some(first),
            position: None,
        }
    }
}

/// Counts of the lives of an EPN that are over, as their last heartbeats told this leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FormerEpn {
    /// Payload bytes received, refused ones included.
    pub received_bytes: u64,
    /// STFs refused because they were there already.
    pub duplicates_refused: u64,
    /// STFs with a wrong digest.
    pub digest_mismatches: u64,
    /// Share of the work of the last one, in thousandths.
    pub weight_milli: u32,
}

/// Report of an FLP that it cannot reach an EPN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unreachable {
    /// First report of those that followed each other without a gap.
    pub(super) since: Timestamp,
    /// End of the assumption, unless it is reported again.
    pub(super) until: Timestamp,
}

/// Returns the target by which the load view knows `epn`.
pub(super) fn target_id(epn: EpnId) -> TargetId {
    TargetId(u32::from(epn.0))
}

/// Settings of an EPN by an operator, for all its lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EpnSetting {
    pub(super) weight_milli: u32,
    pub(super) enabled: bool,
}
