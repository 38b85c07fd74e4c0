//! `power-of-two-memory`: the least loaded of two random targets and the best of the choice before.

use super::least_loaded::by_preference;
use super::power_of_two::PowerOfTwo;
use super::{Policy, Registration};
use crate::load::{Job, LoadView, TargetId};
use crate::refusal::Refusal;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_protocol::Timestamp;

pub(super) const POLICY: Registration = Registration {
    name: "power-of-two-memory",
    argument: None,
    make: |_, seed| Some(Box::new(PowerOfTwoMemory::new(seed))),
};

/// Draws two of the targets that are online, adds the least loaded of those that were looked at for the job before,
/// and takes the one that `least-loaded` would.
///
/// Mitzenmacher, Prabhakar, Shah, "Load balancing with memory", IEEE FOCS 2002: one remembered target is worth more than
/// one more drawn at random, since it is the best of all that were seen lately. Takes O(1) while a good part of the
/// targets has room, and O(n) otherwise, as `power-of-two`.
#[derive(Clone, Debug)]
pub struct PowerOfTwoMemory {
    lots: Xoshiro256PlusPlus,
    /// Targets that were looked at for the job before.
    seen: [Option<TargetId>; 3],
    otherwise: PowerOfTwo,
}

impl PowerOfTwoMemory {
    /// Returns a policy that draws from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            lots: Xoshiro256PlusPlus::seed_from_u64(seed),
            seen: [None; 3],
            otherwise: PowerOfTwo::new(seed),
        }
    }

    fn draw(&mut self, view: &LoadView) -> Option<TargetId> {
        let online = view.online_len();
        let nth = (online > 0).then(|| self.lots.random_range(..online))?;
        view.online(nth).map(|target| target.id)
    }
}

impl Policy for PowerOfTwoMemory {
    fn name(&self) -> &'static str {
        POLICY.name
    }

    fn choose(
        &mut self,
        now: Timestamp,
        job: &Job<'_>,
        view: &LoadView,
    ) -> Result<TargetId, Refusal> {
        // With the job before booked, the best of its candidates may be another one than it got.
        let seen = self.seen.into_iter().flatten();
        let seen = seen.filter_map(|id| view.get(id).filter(|target| target.is_online()));
        let remembered = seen.max_by(|a, b| by_preference(a, b));
        let remembered = remembered.map(|target| target.id);
        self.seen = [remembered, self.draw(view), self.draw(view)];
        let candidates = self.seen.into_iter().flatten();
        let fitting = candidates.filter_map(|id| view.get(id).filter(|target| target.fits(job)));
        match fitting.max_by(|a, b| by_preference(a, b)) {
            Some(target) => Ok(target.id),
            None => self.otherwise.choose(now, job, view),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract;
    use crate::load::TargetLoad;

    #[test]
    fn power_of_two_memory_keeps_the_contract() {
        contract::check(|seed| Box::new(PowerOfTwoMemory::new(seed)));
    }

    /// Places 10,000 jobs on 10,000 targets, none of them finished meanwhile; returns the jobs of the fullest.
    fn fullest(mut policy: impl Policy) -> u32 {
        let mut view = LoadView::new();
        for id in 0..10_000 {
            view.insert(TargetLoad::new(TargetId(id), 1000, 1000));
        }
        for id in 0..10_000 {
            let job = Job {
                id,
                bytes: 1,
                avoid: &[],
                is_early: false,
            };
            let target = policy.choose(Timestamp(0), &job, &view).expect("room");
            view.book(target, 1);
        }
        let booked = view.targets().iter().map(|target| target.booked_slots);
        booked.max().unwrap_or(0)
    }

    #[test]
    fn what_is_remembered_spreads_jobs_more_evenly() {
        // The paper: ln ln n ÷ (2 ln φ₂) with one remembered, ln ln n ÷ ln 2 of two drawn.
        let seeds = 0..5;
        let with: u32 = seeds
            .clone()
            .map(|seed| fullest(PowerOfTwoMemory::new(seed)))
            .sum();
        let without: u32 = seeds.map(|seed| fullest(PowerOfTwo::new(seed))).sum();
        assert!(with < without && with <= 3 * 5, "{with} and {without}");
    }

    #[test]
    fn a_full_farm_and_an_empty_one_are_refused_at_once() {
        let job = Job {
            id: 0,
            bytes: 1,
            avoid: &[],
            is_early: false,
        };
        let mut policy = PowerOfTwoMemory::new(1);
        let mut view = LoadView::new();
        assert_eq!(
            policy.choose(Timestamp(0), &job, &view),
            Err(Refusal::NoTarget)
        );
        view.insert(TargetLoad::new(TargetId(0), 1000, 0));
        assert_eq!(
            policy.choose(Timestamp(0), &job, &view),
            Err(Refusal::NoSlot)
        );
    }
}
