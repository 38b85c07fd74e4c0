//! `maglev`: equal ids meet on one target, and hardly any moves when the targets change.

use super::{Policy, Registration};
use crate::load::{Job, LoadView, TargetId, TargetLoad};
use crate::refusal::Refusal;
use sheaf_protocol::{Timestamp, splitmix};

pub(super) const POLICY: Registration = Registration {
    name: "maglev",
    argument: None,
    make: |_, _| Some(Box::new(Maglev::default())),
};

/// Mark of a free entry in a table that is being filled.
const EMPTY: u32 = u32::MAX;
/// Entries looked at behind that of the job before the targets are searched one by one.
const STEPS_MAX: usize = 512;
/// The largest weight counts as this many times the smallest at most.
const WEIGHT_RATIO_MAX: u64 = 16;

/// Looks the number of the job up in a table that names the targets, each as often as its weight says.
///
/// Eisenbud et al., "Maglev: A Fast and Reliable Software Network Load Balancer", NSDI 2016, section 3.4 and pseudocode
/// 1: each target goes through the table in an order of its own, (offset + i × skip) mod the size, which is prime; in
/// turn each takes its next entry that is free. Weights change how often a turn comes. So the table is almost even, and
/// when one of n targets leaves, its 1/n of the entries moves, and of the others about as few as can be. Connections
/// keep their server this way, and no connection has to be remembered.
///
/// A target that is offline or full keeps its entries: its jobs go to the target of the next entry, spread over all,
/// and return when it does. Only members that join or leave, or weights, make a new table, which takes about size × ln
/// size steps. Equal for every instance and seed: two balancers with one view agree. Takes O(1).
#[derive(Clone, Debug)]
pub struct Maglev {
    /// Table entries, as places in the view.
    table: Vec<u32>,
    size: usize,
    /// Hash of the members that the table is made of.
    members: Option<u64>,
    /// Per target while the table is filled: place of its next entry, step to the one after, and weight saved.
    walks: Vec<Walk>,
}

#[derive(Clone, Copy, Debug)]
struct Walk {
    next: usize,
    skip: usize,
    weight: u64,
    saved: u64,
}

impl Default for Maglev {
    /// Returns a policy with the table size that the paper uses.
    fn default() -> Self {
        Self::of_size(Self::SIZE)
    }
}

impl Maglev {
    /// Number of entries of the table: a prime, which the paper recommends to be a hundred times the number of targets.
    /// With 2,000 of them the shares are even within 3 %.
    pub const SIZE: usize = 65_537;

    /// Returns a policy with a table of the smallest prime from `size` on.
    #[must_use]
    pub fn of_size(size: usize) -> Self {
        let is_prime = |n: &usize| {
            *n > 2
                && (2..)
                    .take_while(|d| d * d <= *n)
                    .all(|d| !n.is_multiple_of(d))
        };
        let size = (size.min(1 << 24)..).find(is_prime);
        Self {
            table: Vec::new(),
            size: size.expect("there is a prime behind every number"),
            members: None,
            walks: Vec::new(),
        }
    }

    fn follow(&mut self, view: &LoadView) {
        let members = Some(view.members_hash());
        if self.members != members {
            self.members = members;
            self.fill(view.targets());
        }
    }

    fn fill(&mut self, targets: &[TargetLoad]) {
        let members = targets.iter().map(|target| {
            let hash = splitmix::hash(u64::from(target.id.0));
            (hash, target.weight_milli)
        });
        self.deal(members);
    }

    /// Returns a table of `size` entries, which is prime, as places in `members`: the hash of each and its weight.
    /// Equal members in equal order have equal tables, so balancers agree that never spoke to each other. Empty
    /// without members.
    #[must_use]
    pub fn table(size: usize, members: &[(u64, u32)]) -> Vec<u32> {
        let mut policy = Self::of_size(size);
        policy.deal(members.iter().copied());
        policy.table
    }

    fn deal(&mut self, members: impl Iterator<Item = (u64, u32)> + Clone) {
        let size = self.size as u64;
        let heaviest = members.clone().map(|(_, weight)| weight).max();
        let turn = u64::from(heaviest.unwrap_or(0)).max(1);
        self.walks.clear();
        self.walks.extend(members.map(|(hash, weight)| Walk {
            next: index(hash % size),
            skip: index(splitmix::hash(hash) % (size - 1)) + 1,
            weight: u64::from(weight).max(turn.div_ceil(WEIGHT_RATIO_MAX)),
            saved: 0,
        }));
        self.table.clear();
        if self.walks.is_empty() {
            return;
        }
        self.table.resize(self.size, EMPTY);
        let mut left = self.size;
        loop {
            for (place, walk) in (0..).zip(&mut self.walks) {
                walk.saved += walk.weight;
                if walk.saved < turn {
                    continue;
                }
                walk.saved -= turn;
                while self.table[walk.next] != EMPTY {
                    walk.next += walk.skip;
                    if walk.next >= self.size {
                        walk.next -= self.size;
                    }
                }
                self.table[walk.next] = place;
                left -= 1;
                if left == 0 {
                    return;
                }
            }
        }
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("below the size of a table in memory")
}

impl Policy for Maglev {
    fn name(&self) -> &'static str {
        POLICY.name
    }

    fn choose(
        &mut self,
        _: Timestamp,
        job: &Job<'_>,
        view: &LoadView,
    ) -> Result<TargetId, Refusal> {
        self.follow(view);
        let start = index(splitmix::hash(job.id) % self.size as u64);
        let (before, behind) = self.table.split_at(start.min(self.table.len()));
        let places = behind.iter().chain(before).take(STEPS_MAX);
        let mut steps = places.filter_map(|place| view.targets().get(*place as usize));
        let found = steps.find(|target| target.fits(job));
        // A farm almost full: the rest in turn.
        let first = TargetId(u32::try_from(start).unwrap_or(0));
        found
            .or_else(|| view.targets_from(first).find(|target| target.fits(job)))
            .map(|target| target.id)
            .ok_or_else(|| view.refusal(job))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;
    use super::*;
    use crate::contract;

    const JOBS: u64 = 20_000;

    fn farm(ids: impl IntoIterator<Item = u32>) -> LoadView {
        let mut view = LoadView::new();
        for id in ids {
            view.insert(TargetLoad::new(TargetId(id), 1000, 1000));
        }
        view
    }

    /// Returns the target of each of the jobs.
    fn places(policy: &mut Maglev, view: &LoadView) -> Vec<u32> {
        let place = |id: u64| {
            let job = Job {
                id,
                bytes: 1,
                avoid: &[],
                is_early: false,
            };
            policy.choose(Timestamp(0), &job, view).expect("room").0
        };
        (0..JOBS).map(place).collect()
    }

    fn shares(places: &[u32], targets: u32) -> Vec<u64> {
        let mut shares = vec![0; targets as usize];
        places.iter().for_each(|id| shares[*id as usize] += 1);
        shares
    }

    #[test]
    fn maglev_keeps_the_contract() {
        contract::check(|_| Box::new(Maglev::of_size(251)));
        // More targets than entries.
        contract::check(|_| Box::new(Maglev::of_size(7)));
        contract::check_seed(|_| Box::new(Maglev::default()), 1);
    }

    #[test]
    fn the_size_of_a_table_is_prime() {
        for (asked, size) in [(0, 3), (3, 3), (4, 5), (250, 251), (65_536, 65_537)] {
            assert_eq!(Maglev::of_size(asked).size, size);
        }
    }

    #[test]
    fn equal_ids_meet_on_one_target_and_on_the_next_entry_when_it_is_full() {
        let view = farm(0..10);
        let mut policy = Maglev::default();
        assert_eq!(
            places(&mut policy, &view),
            places(&mut Maglev::default(), &view)
        );
        check(Maglev::of_size(251), &[0, 0, 2, 0], "2 2 NoSlot");
    }

    #[test]
    fn entries_are_dealt_out_evenly() {
        let mut policy = Maglev::default();
        policy.follow(&farm(0..1000));
        let mut counts = vec![0; 1000];
        policy
            .table
            .iter()
            .for_each(|place| counts[*place as usize] += 1);
        assert!(
            counts.iter().all(|count| (65..=66).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn a_target_of_two_shares_gets_twice_the_jobs() {
        let mut view = farm(0..4);
        view.set_weight(TargetId(2), 2000);
        let shares = shares(&places(&mut Maglev::default(), &view), 4);
        let share = JOBS / 5;
        assert!(shares[2].abs_diff(2 * share) < share / 10, "{shares:?}");
        assert!(shares[0].abs_diff(share) < share / 10, "{shares:?}");
        // A weight of 0 forbids nothing.
        view.set_weight(TargetId(0), 0);
        assert!(places(&mut Maglev::default(), &view).contains(&0));
    }

    /// Counts jobs that moved although their target is there before and after.
    fn moved_in_vain(before: &[u32], after: &[u32], changed: u32) -> u64 {
        let pairs = before.iter().zip(after);
        let vain = pairs.filter(|(was, is)| was != is && **was != changed && **is != changed);
        vain.count() as u64
    }

    #[test]
    fn when_a_target_leaves_hardly_any_other_job_moves() {
        let mut policy = Maglev::default();
        let all = places(&mut policy, &farm(0..100));
        let without = places(&mut policy, &farm((0..100).filter(|id| *id != 40)));
        assert!(!without.contains(&40));
        // Figure 12 of the paper: at a hundred and more entries a target, a few per cent.
        let vain = moved_in_vain(&all, &without, 40);
        assert!(vain < JOBS * 3 / 100, "{vain} of {JOBS}");
        assert_eq!(
            places(&mut policy, &farm(0..100)),
            all,
            "it comes back to its own"
        );
    }

    #[test]
    fn when_a_target_joins_it_takes_its_share_and_hardly_any_other_job_moves() {
        let mut policy = Maglev::default();
        let before = places(&mut policy, &farm(0..100));
        let after = places(&mut policy, &farm(0..101));
        let share = after.iter().filter(|id| **id == 100).count() as u64;
        assert!(share.abs_diff(JOBS / 101) < JOBS / 500, "{share}");
        let vain = moved_in_vain(&before, &after, 100);
        assert!(vain < JOBS * 3 / 100, "{vain} of {JOBS}");
    }

    #[test]
    fn while_a_target_is_offline_no_job_of_another_moves_and_its_own_spread() {
        let mut view = farm(0..100);
        let mut policy = Maglev::default();
        let before = places(&mut policy, &view);
        view.set_available(TargetId(40), false);
        let during = places(&mut policy, &view);
        assert_eq!(moved_in_vain(&before, &during, 40), 0);
        let heirs = before.iter().zip(&during).filter(|(was, _)| **was == 40);
        let heirs: std::collections::BTreeSet<u32> = heirs.map(|(_, is)| *is).collect();
        assert!(heirs.len() > 50, "{heirs:?}");
        view.set_available(TargetId(40), true);
        assert_eq!(places(&mut policy, &view), before);
    }
}
