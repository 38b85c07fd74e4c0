//! `fixed`: always the same target, while it has room.

use super::{Argument, Policy, Registration};
use crate::load::{Job, LoadView, TargetId};
use crate::refusal::Refusal;
use sheaf_protocol::Timestamp;

pub(super) const POLICY: Registration = Registration {
    name: "fixed",
    argument: Some(Argument {
        name: "TARGET",
        meaning: "the number of a target",
    }),
    make: |target, _| match target.map(str::parse) {
        None => Some(Box::new(Fixed::default())),
        Some(Ok(target)) => Some(Box::new(Fixed::new(TargetId(target)))),
        Some(Err(_)) => None,
    },
};

/// Takes one given target, or the lowest one, for every job that it has room for.
///
/// The network baseline of O2-Balancer2 (tag `experiment-1`, where the ICN draws its channel from 1 to 1): it measures
/// how much one target can take. If that one has no room, the next one that does gets the job, so that a pinned farm
/// loses nothing when its target dies; to measure one target alone, disable the others. Takes O(log n) and a step for
/// each target passed over.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fixed {
    first: TargetId,
}

impl Fixed {
    /// Returns a policy that prefers `first`, then the targets behind it. The default prefers the lowest.
    #[must_use]
    pub fn new(first: TargetId) -> Self {
        Self { first }
    }
}

impl Policy for Fixed {
    fn name(&self) -> &'static str {
        POLICY.name
    }

    fn choose(
        &mut self,
        _: Timestamp,
        job: &Job<'_>,
        view: &LoadView,
    ) -> Result<TargetId, Refusal> {
        view.targets_from(self.first)
            .find(|target| target.fits(job))
            .map(|target| target.id)
            .ok_or_else(|| view.refusal(job))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;
    use super::*;
    use crate::contract;

    #[test]
    fn fixed_keeps_the_contract() {
        contract::check(|_| Box::new(Fixed::default()));
        contract::check(|_| Box::new(Fixed::new(TargetId(20))));
        contract::check(|_| Box::new(Fixed::new(TargetId(u32::MAX))));
    }

    #[test]
    fn fixed_fills_the_lowest_epn_first() {
        check(Fixed::default(), &[2, 2], "0 0 1 1 NoSlot");
    }

    #[test]
    fn fixed_stays_on_its_epn_and_goes_to_the_next_when_that_is_full() {
        check(Fixed::new(TargetId(1)), &[1, 2, 1], "1 1 2 0 NoSlot");
    }

    #[test]
    fn fixed_on_an_epn_that_is_not_there_takes_the_one_behind() {
        check(Fixed::new(TargetId(9)), &[1, 1], "0 1 NoSlot");
    }
}
