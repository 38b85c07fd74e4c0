//! `round-robin`: one target after the other.

use super::{Policy, Registration};
use crate::load::{Job, LoadView, TargetId};
use crate::refusal::Refusal;
use sheaf_protocol::Timestamp;

pub(super) const POLICY: Registration = Registration {
    name: "round-robin",
    argument: None,
    make: |_, _| Some(Box::new(RoundRobin::default())),
};

/// Takes the targets in turn and passes over those without room.
///
/// The rule of the ICN of O2-Balancer2 (tag `experiment-2`, `icn/src/icn.cxx`), extended to members that come and go.
/// Unlike artdaq's `RoundRobin_policy`, which starts a turn only when every receiver has a token, one full target does
/// not hold up the others. Takes O(log n) and a step for each target passed over.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundRobin {
    last: Option<TargetId>,
}

impl Policy for RoundRobin {
    fn name(&self) -> &'static str {
        POLICY.name
    }

    fn choose(
        &mut self,
        _: Timestamp,
        job: &Job<'_>,
        view: &LoadView,
    ) -> Result<TargetId, Refusal> {
        // Resume by id: when a member leaves, indexes shift and its successor would lose a turn.
        let Some(target) = view
            .targets_after(self.last)
            .find(|target| target.fits(job))
        else {
            return Err(view.refusal(job));
        };
        self.last = Some(target.id);
        Ok(target.id)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;
    use super::*;
    use crate::contract;
    use crate::load::TargetLoad;

    #[test]
    fn round_robin_keeps_the_contract() {
        contract::check(|_| Box::new(RoundRobin::default()));
    }

    #[test]
    fn round_robin_takes_the_epns_in_turn() {
        check(RoundRobin::default(), &[3, 3, 3], "0 1 2 0 1 2 0");
    }

    #[test]
    fn round_robin_passes_over_a_full_epn() {
        check(RoundRobin::default(), &[2, 0, 2], "0 2 0 2 NoSlot"); // free slots of EPN 0, 1, 2
    }

    #[test]
    fn no_epn_loses_a_turn_when_the_one_before_it_leaves() {
        let mut view = LoadView::new();
        for id in 0..4 {
            view.insert(TargetLoad::new(TargetId(id), 100, 9));
        }
        let job = Job {
            id: 0,
            bytes: 1,
            avoid: &[],
            is_early: false,
        };
        let mut policy = RoundRobin::default();
        let mut next = |view: &LoadView| policy.choose(Timestamp(0), &job, view).map(|t| t.0);
        assert_eq!(next(&view), Ok(0));
        assert_eq!(next(&view), Ok(1));
        view.remove(TargetId(1));
        assert_eq!(next(&view), Ok(2));
        view.insert(TargetLoad::new(TargetId(1), 100, 9));
        assert_eq!(next(&view), Ok(3));
        assert_eq!(next(&view), Ok(0));
        assert_eq!(next(&view), Ok(1));
    }
}
