//! `power-of-two`: the less loaded of two random targets.

use super::{Policy, Registration, least_loaded};
use crate::load::{Job, LoadView, TargetId, TargetLoad};
use crate::refusal::Refusal;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_protocol::Timestamp;

pub(super) const POLICY: Registration = Registration {
    name: "power-of-two",
    argument: None,
    make: |_, seed| Some(Box::new(PowerOfTwo::new(seed))),
};

/// Draws two of the targets that are online, and takes the one that `least-loaded` would.
///
/// Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing", IEEE Trans. Parallel Distrib. Syst. 12(10),
/// 2001: with n jobs on n targets the fullest has about ln ln n / ln 2 of them instead of `random`'s
/// ln n / ln ln n, for the price of one more look (theorem 1 of Azar, Broder, Karlin, Upfal, SIAM J. Comput. 29,
/// 1999). It does not send everybody to the one target that looks best in an old report.
///
/// Takes O(1) while a good part of the targets has room. After [`DRAWS_MAX`](Self::DRAWS_MAX) pairs without room, it
/// goes on from a random target to the next with room, in O(n).
#[derive(Clone, Debug)]
pub struct PowerOfTwo {
    lots: Xoshiro256PlusPlus,
}

impl PowerOfTwo {
    /// Upper bound of pairs drawn without room: reached in a farm half full once in 256 jobs.
    pub const DRAWS_MAX: u32 = 4;

    /// Returns a policy that draws from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            lots: Xoshiro256PlusPlus::seed_from_u64(seed),
        }
    }
}

impl Policy for PowerOfTwo {
    fn name(&self) -> &'static str {
        POLICY.name
    }

    fn choose(
        &mut self,
        _: Timestamp,
        job: &Job<'_>,
        view: &LoadView,
    ) -> Result<TargetId, Refusal> {
        let online = view.online_len();
        if online == 0 {
            return Err(view.refusal(job));
        }
        for _ in 0..Self::DRAWS_MAX {
            let first = self.lots.random_range(..online);
            // Two different ones, each pair as likely.
            let step = if online > 1 {
                self.lots.random_range(1..online)
            } else {
                0
            };
            let pair = [first, (first + step) % online].map(|nth| view.online(nth));
            let fitting = pair.into_iter().flatten().filter(|target| target.fits(job));
            if let Some(target) = fitting.max_by(|a, b| least_loaded::by_preference(a, b)) {
                return Ok(target.id);
            }
        }
        let start = view.online(self.lots.random_range(..online));
        let start = start.map_or(TargetId(0), |target: &TargetLoad| target.id);
        let found = view.targets_from(start).find(|target| target.fits(job));
        found
            .map(|target| target.id)
            .ok_or_else(|| view.refusal(job))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;
    use super::*;
    use crate::contract;
    use crate::policy::random::Random;

    #[test]
    fn power_of_two_keeps_the_contract() {
        contract::check(|seed| Box::new(PowerOfTwo::new(seed)));
    }

    #[test]
    fn of_two_targets_it_takes_the_less_loaded_one() {
        check(PowerOfTwo::new(1), &[3, 3], "0 1 0 1 0 1 NoSlot");
    }

    #[test]
    fn power_of_two_finds_the_only_one_with_room() {
        check(
            PowerOfTwo::new(1),
            &[0, 0, 0, 0, 0, 0, 0, 0, 0, 2],
            "9 9 NoSlot",
        );
        check(PowerOfTwo::new(1), &[1], "0 NoSlot");
    }

    /// Returns the jobs at the fullest of as many targets as there are jobs.
    fn fullest(mut policy: impl Policy) -> u32 {
        let mut view = LoadView::new();
        for id in 0..1000 {
            view.insert(TargetLoad::new(TargetId(id), 1000, 1000));
        }
        for id in 0..1000 {
            let job = Job {
                id,
                bytes: 1,
                avoid: &[],
                is_early: false,
            };
            let target = policy
                .choose(Timestamp(0), &job, &view)
                .expect("room everywhere");
            view.book(target, 1);
        }
        view.targets()
            .iter()
            .map(|t| t.booked_slots)
            .max()
            .unwrap_or(0)
    }

    #[test]
    fn two_choices_leave_the_fullest_far_below_that_of_one_choice() {
        for seed in 0..10 {
            // ln ln 1000 / ln 2 = 2.8, ln 1000 / ln ln 1000 = 3.6, both and a little.
            let (two, one) = (fullest(PowerOfTwo::new(seed)), fullest(Random::new(seed)));
            assert!(
                two <= 4 && one >= 4 && two < one,
                "seed {seed}: {two} and {one}"
            );
        }
    }
}
