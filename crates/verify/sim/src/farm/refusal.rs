//! Ends of nodes and streams that a farm with second processes and old clocks may have.

use crate::family::SeedFamily;
use crate::options::{Fault, Log, Options};
use sheaf_node::epn::EpnError;
use sheaf_node::flp::FlpError;

/// Returns whether the faults of a farm break no stream of a node that has come back: it is paused, far from the end of
/// its session in the registry.
pub(super) fn keeps_streams(options: &Options) -> bool {
    let half = options.session / 2;
    let is_long = |fault: &Fault| matches!(fault, Fault::Pause { length, .. } if *length >= half);
    let is_short = !options.faults.iter().any(|(_, fault)| is_long(fault));
    options.kind == SeedFamily::Lives && options.log == Log::ZooKeeper && is_short
}

/// Returns the lowest incarnation with which the process may join, if an ICN has refused it; 0: none.
pub(super) fn flp_refusal(error: &FlpError) -> u64 {
    let FlpError::Refused(refusal) = error;
    refusal.incarnation_min
}

/// Returns the same of an EPN; `None` if it ends for another reason.
pub(super) fn epn_refusal(error: &EpnError) -> Option<u64> {
    match error {
        EpnError::Refused(refusal) => Some(refusal.incarnation_min),
        EpnError::Listen(_) => None,
    }
}
