//! Checks that a farm which is short of processors goes on steadily (I14).

use super::{Node, TortureFarm};
use crate::family::SeedFamily;
use crate::invariant::Invariant;
use crate::watch::{Found, found};
use sheaf_protocol::Timestamp;
use std::time::Duration;

/// Times that a node may be found silent: before its first report of a run delay.
const SUSPECTED_MAX: u64 = 1;
/// Time that a TF may take from its announce to its verdict.
const ON_THE_WAY: Duration = Duration::from_millis(2500);

impl TortureFarm<'_> {
    /// Checks at `now`, just before the processors are back, that no node was suspected again and again, and that half
    /// of the TFs that were due are built.
    pub(super) fn check_steady(&self, now: Timestamp) -> Result<(), Found> {
        if self.options.kind != SeedFamily::Starved {
            return Ok(());
        }
        let nodes = u64::from(self.options.flps) + u64::from(self.options.epns);
        for seat in &self.seats {
            let Some(Node::Icn(icn)) = &seat.process else {
                continue;
            };
            let Some(brain) = icn.scheduler() else {
                continue;
            };
            let (suspected, allowed) = (icn.suspected(), SUSPECTED_MAX * nodes);
            if suspected > allowed {
                let detail = format!(
                    "nodes were found silent {suspected} times, at most {allowed} are allowed for {nodes} nodes"
                );
                return found(Invariant::Steady, None, detail);
            }
            let reassigned = brain.accounting().reassigned;
            let due_for = brain
                .duration(seat.here(now))
                .saturating_sub(ON_THE_WAY)
                .as_secs_f64();
            let due = (due_for * self.options.rate_hz) as u64;
            if reassigned > due / 4 + allowed {
                let detail = format!(
                    "{reassigned} of {due} TFs were reassigned, expected at most a quarter"
                );
                return found(Invariant::Steady, None, detail);
            }
            let built = brain.accounting().complete;
            if 2 * built < due {
                let detail = format!("{built} of {due} TFs are built, expected half of them");
                return found(Invariant::Steady, None, detail);
            }
        }
        Ok(())
    }
}
