//! `least-loaded`: the target with the largest share of its bytes free.

use super::{Policy, Registration};
use crate::load::{Job, LoadView, TargetId, TargetLoad};
use crate::refusal::Refusal;
use sheaf_protocol::Timestamp;
use std::cmp::{Ordering, Reverse};

pub(super) const POLICY: Registration = Registration {
    name: "least-loaded",
    argument: None,
    make: |_, _| Some(Box::new(LeastLoaded)),
};

/// Takes, among the targets with room, the one with the largest share of free bytes; among equal ones
/// that with fewer jobs booked, then the lowest.
///
/// The greedy rule of Azar, Broder, Karlin, Upfal ("Balanced Allocations", SIAM J. Comput. 29, 1999)
/// with all targets looked at, on bytes instead of balls; DUNE's data-flow orchestrator falls back to
/// it (least occupied builder, `dfmodules`) when all are busy. Shares rather than bytes, so that targets
/// of different sizes fill up evenly. It sees its own bookings at once; on reports alone it
/// would send everything to one target between two of them. Takes O(n).
#[derive(Clone, Copy, Debug, Default)]
pub struct LeastLoaded;

impl Policy for LeastLoaded {
    fn name(&self) -> &'static str {
        POLICY.name
    }

    fn choose(
        &mut self,
        _: Timestamp,
        job: &Job<'_>,
        view: &LoadView,
    ) -> Result<TargetId, Refusal> {
        view.targets()
            .iter()
            .filter(|target| target.fits(job))
            .max_by(|a, b| by_preference(a, b))
            .map(|target| target.id)
            .ok_or_else(|| view.refusal(job))
    }
}

/// Compares two targets; greater is better. Total, and equal only for equal ids.
pub(super) fn by_preference(a: &TargetLoad, b: &TargetLoad) -> Ordering {
    by_free_share(a, b).then_with(|| {
        let rank = |target: &TargetLoad| Reverse((target.booked_slots, target.id));
        rank(a).cmp(&rank(b))
    })
}

/// Compares free ÷ capacity without rounding, multiplied out: 64 by 64 bits fit 128.
fn by_free_share(a: &TargetLoad, b: &TargetLoad) -> Ordering {
    // A target without any capacity has nothing free. As 0/0 it would equal all others and the order
    // would not be one; as 0/1 it is a full target.
    let capacity = |target: &TargetLoad| u128::from(target.capacity_bytes.max(1));
    let a_scaled = u128::from(a.free_bytes()) * capacity(b);
    let b_scaled = u128::from(b.free_bytes()) * capacity(a);
    a_scaled.cmp(&b_scaled)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, check_jobs};
    use super::*;
    use crate::contract;

    #[test]
    fn least_loaded_keeps_the_contract() {
        contract::check(|_| Box::new(LeastLoaded));
    }

    #[test]
    fn least_loaded_deals_equal_jobs_out_evenly() {
        check(LeastLoaded, &[2, 0, 2], "0 2 0 2 NoSlot");
    }

    #[test]
    fn least_loaded_gives_an_epn_with_a_large_job_a_rest() {
        let targets = [0, 1].map(|id| TargetLoad::new(TargetId(id), 100, 9));
        let jobs = [
            (0, 40),
            (1, 10),
            (2, 10),
            (3, 10),
            (4, 10),
            (5, 10),
            (6, 10),
        ];
        check_jobs(LeastLoaded, &targets, &jobs, "0 1 1 1 1 0 1");
    }

    #[test]
    fn least_loaded_fills_epns_of_different_sizes_evenly() {
        let targets = [
            TargetLoad::new(TargetId(0), 100, 9),
            TargetLoad::new(TargetId(1), 300, 9),
        ];
        let jobs = [(0, 30); 8];
        check_jobs(LeastLoaded, &targets, &jobs, "0 1 1 1 0 1 1 1");
    }

    #[test]
    fn least_loaded_counts_what_the_consumer_holds() {
        let mut targets = [0, 1].map(|id| TargetLoad::new(TargetId(id), 100, 9));
        targets[0].held_bytes = 25;
        check_jobs(LeastLoaded, &targets, &[(0, 10); 4], "1 1 1 0");
    }

    #[test]
    fn least_loaded_parts_equal_shares_by_booked_jobs_and_then_by_id() {
        let mut targets = [0, 1, 2].map(|id| TargetLoad::new(TargetId(id), 100, 9));
        targets[0].booked_slots = 1;
        check_jobs(LeastLoaded, &targets, &[(0, 0); 4], "1 2 0 1");
    }

    #[test]
    fn an_epn_without_any_bytes_ranks_as_full() {
        let empty = TargetLoad::new(TargetId(0), 0, 9);
        let full = TargetLoad {
            booked_bytes: 100,
            ..TargetLoad::new(TargetId(1), 100, 9)
        };
        let huge = TargetLoad::new(TargetId(2), u64::MAX, 9);
        assert_eq!(by_free_share(&empty, &full), Ordering::Equal);
        assert_eq!(by_free_share(&empty, &huge), Ordering::Less);
        assert_eq!(by_free_share(&huge, &huge), Ordering::Equal);
    }
}
