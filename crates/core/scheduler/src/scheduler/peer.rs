//! One FLP or one EPN as the scheduler knows it, and the operator's setting of an EPN.

use sheaf_placement::TargetId;
use sheaf_protocol::control::{EpnPulse, FlpPulse};
use sheaf_protocol::{EpnId, RosterId, Source, Target, TfId, Timestamp};
use std::collections::BTreeSet;

/// One life of an FLP.
#[derive(Debug)]
pub(super) struct FlpNode {
    pub(super) source: Source,
    /// The largest STF that it announces.
    pub(super) stf_bytes_max: u64,
    /// Answers, as far as the membership knows.
    pub(super) is_heard: bool,
    /// When its life was taken to be over.
    pub(super) gone_at: Option<Timestamp>,
    /// Wants to leave.
    pub(super) is_leaving: bool,
    /// Has said, after it ended, that it holds nothing any more.
    pub(super) holds_nothing: bool,
    /// What it said when asked to pause: the first TF not made.
    pub(super) stopped: Option<TfId>,
    /// The first TF that it will not make.
    pub(super) ended: Option<TfId>,
    pub(super) pulse: FlpPulse,
    /// What it was told to begin with.
    pub(super) first: Option<TfId>,
}

/// One life of an EPN.
#[derive(Debug)]
pub(super) struct EpnNode {
    pub(super) target: Target,
    pub(super) address: String,
    pub(super) is_leaving: bool,
    /// Has on its disk what it reports.
    pub(super) keeps: bool,
    /// Its stream is closed: it is not merely silent.
    pub(super) is_cut: bool,
    /// Its life is over, and it stays in the list all the same.
    pub(super) is_dead: bool,
    pub(super) pulse: EpnPulse,
    /// Bookings of TFs decided elsewhere: given back when the EPN has applied that release.
    pub(super) losing: Vec<(u64, u64)>,
    /// Rosters that it was told. TFs are not assigned in order, so the newest does not stand for all.
    pub(super) rosters_said: BTreeSet<RosterId>,
}

impl FlpNode {
    /// A life that is known from the log only.
    pub(super) fn expected(source: Source, stf_bytes_max: u64, first: TfId) -> Self {
        Self {
            source,
            stf_bytes_max,
            is_heard: false,
            gone_at: None,
            is_leaving: false,
            holds_nothing: false,
            stopped: None,
            ended: None,
            pulse: FlpPulse::default(),
            first: Some(first),
        }
    }
}

/// Returns the target by which the load view knows `epn`.
pub(super) fn target_id(epn: EpnId) -> TargetId {
    TargetId(u32::from(epn.0))
}

/// What an operator set about an EPN, in whatever life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EpnSetting {
    pub(super) weight_milli: u32,
    pub(super) enabled: bool,
}
