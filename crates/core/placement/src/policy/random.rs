//! `random`: any target that has room, each as likely as the others.

use super::{Policy, Registration};
use crate::load::{Job, LoadView, TargetId};
use crate::refusal::Refusal;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_protocol::Timestamp;

pub(super) const POLICY: Registration = Registration {
    name: "random",
    argument: None,
    make: |_, seed| Some(Box::new(Random::new(seed))),
};

/// Draws uniformly among the targets that have room.
///
/// The reference that every other policy has to beat: O2-Balancer2 draws its channel like this (over a
/// single one), and with n jobs on n targets the fullest gets about ln n / ln ln n of them (Azar, Broder,
/// Karlin, Upfal: "Balanced Allocations", SIAM J. Comput. 29, 1999, section 1).
///
/// Draws from all that are online until one has room, which is O(1) while a good part of them has; after
/// [`DRAWS_MAX`](Self::DRAWS_MAX) failures it counts those with room and draws one of them in O(n).
/// Both ways are uniform.
#[derive(Clone, Debug)]
pub struct Random {
    lots: Xoshiro256PlusPlus,
}

impl Random {
    /// Draws that may fail before the targets with room are counted: all fail in a farm half full once in 256 jobs.
    pub const DRAWS_MAX: u32 = 8;

    /// Returns a policy that draws from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            lots: Xoshiro256PlusPlus::seed_from_u64(seed),
        }
    }
}

impl Policy for Random {
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
            let target = view.online(self.lots.random_range(..online));
            if let Some(target) = target.filter(|target| target.fits(job)) {
                return Ok(target.id);
            }
        }
        let with_room = || view.targets().iter().filter(|target| target.fits(job));
        match with_room().count() {
            0 => Err(view.refusal(job)),
            count => {
                let target = with_room().nth(self.lots.random_range(..count));
                Ok(target.expect("one of those just counted").id)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;
    use super::*;
    use crate::contract;
    use crate::load::TargetLoad;

    #[test]
    fn random_keeps_the_contract() {
        contract::check(|seed| Box::new(Random::new(seed)));
    }

    #[test]
    fn random_passes_over_full_epns() {
        check(Random::new(1), &[0, 2, 0], "1 1 NoSlot");
    }

    #[test]
    fn random_draws_the_same_from_the_same_seed_on_every_machine() {
        check(Random::new(1), &[9, 9, 9, 9], "3 2 0 2 0 2 3 2 0 0 3 1");
    }

    /// Checks draws with `with_room` of `count` targets having room: each of them must come up within 5 % of its share
    /// (over seven sigmas at 20,000 draws each).
    fn check_uniform(count: u32, with_room: &[u32]) {
        let mut view = LoadView::new();
        for id in 0..count {
            let slots = u32::from(with_room.contains(&id));
            view.insert(TargetLoad::new(TargetId(id), 0, slots));
        }
        let job = Job {
            id: 0,
            bytes: 0,
            avoid: &[],
            is_early: false,
        };
        let mut policy = Random::new(2);
        let mut chosen = vec![0_u32; count as usize];
        for _ in 0..20_000 * with_room.len() {
            let target = policy.choose(Timestamp(0), &job, &view).expect("has room");
            chosen[target.0 as usize] += 1;
        }
        for &id in with_room {
            let times = chosen[id as usize];
            assert!((19_000..=21_000).contains(&times), "{id}: {times}");
        }
    }

    #[test]
    fn random_gives_each_epn_with_room_the_same_share() {
        check_uniform(5, &[0, 1, 2, 3, 4]);
        check_uniform(5, &[0, 1, 4]);
    }

    #[test]
    fn random_gives_equal_shares_also_when_almost_all_epns_are_full() {
        check_uniform(100, &[3, 4, 99]);
    }
}
