//! `first-fit`: the target that has waited longest, if it has room to spare.

use super::{Policy, Registration};
use crate::load::{Job, LoadView, TargetId, TargetLoad};
use crate::refusal::Refusal;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_protocol::Timestamp;
use std::collections::VecDeque;

pub(super) const POLICY: Registration = Registration {
    name: "first-fit",
    argument: None,
    make: |_, seed| Some(Box::new(FirstFit::new(seed))),
};

/// Jobs at a target from which on it has to have room for [`RESERVE_JOBS`] more.
const CROWDED_JOBS: u32 = 8;
const RESERVE_JOBS: u64 = 4;

/// Goes through the targets in the order in which they were last taken, and takes the first with room to spare.
///
/// The rule of ALICE's DataDistribution (v1.6.4, `src/TfScheduler/TfSchedulerTfBuilderInfo.cxx`,
/// `findTfBuilderForTf`): a queue of builders, first fit from the front; one is passed over if it has no slot, less
/// than 1.2 times the TF free or, with more than eight TFs, less than four times; the chosen one goes to the
/// back, and a new one joins at a random end. While all have room it is round robin; one that was passed over
/// stays in front and gets the next job that it can take. There a TF is dropped when none has room to spare; here
/// the first with room at all gets it. Takes O(1) and a step for each target passed over.
#[derive(Clone, Debug)]
pub struct FirstFit {
    lots: Xoshiro256PlusPlus,
    /// Targets, front first, each with its place in the view while the members are these.
    queue: VecDeque<(TargetId, usize)>,
    /// Hash of the view in which these are the places.
    members: Option<u64>,
}

impl FirstFit {
    /// Returns a policy that draws from `seed` at which end a target joins.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            lots: Xoshiro256PlusPlus::seed_from_u64(seed),
            queue: VecDeque::new(),
            members: None,
        }
    }

    /// Adopts members that have come or gone. The only step that allocates.
    fn follow(&mut self, view: &LoadView) {
        let members = Some(view.members_hash());
        if self.members == members && self.queue.len() == view.len() {
            return;
        }
        self.members = members;
        let targets = view.targets();
        let mut is_known = vec![false; targets.len()];
        self.queue.retain_mut(|(id, place)| {
            let Ok(found) = targets.binary_search_by_key(id, |target| target.id) else {
                return false;
            };
            *place = found;
            !std::mem::replace(&mut is_known[found], true)
        });
        for (place, target) in targets.iter().enumerate() {
            if !is_known[place] && self.lots.random() {
                self.queue.push_back((target.id, place));
            } else if !is_known[place] {
                self.queue.push_front((target.id, place));
            }
        }
    }
}

/// Returns whether there is room for a fifth more than the job and, where many are already, for three more of its size.
fn has_spare_room(target: &TargetLoad, job: &Job<'_>) -> bool {
    let free = target.free_bytes();
    let is_crowded = target.booked_slots > CROWDED_JOBS;
    free >= job.bytes.saturating_add(job.bytes / 5)
        && (!is_crowded || free >= job.bytes.saturating_mul(RESERVE_JOBS))
}

impl Policy for FirstFit {
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
        let targets = view.targets();
        // The first target with room, for the case that none has room to spare.
        let mut tight = None;
        let spare = self.queue.iter().enumerate().position(|(nth, (_, place))| {
            let target = targets.get(*place).filter(|target| target.fits(job));
            target.is_some_and(|target| {
                tight.get_or_insert(nth);
                has_spare_room(target, job)
            })
        });
        let found = spare.or(tight);
        let Some(chosen) = found.and_then(|nth| self.queue.remove(nth)) else {
            return Err(view.refusal(job));
        };
        self.queue.push_back(chosen);
        Ok(targets[chosen.1].id)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, check_jobs};
    use super::*;
    use crate::contract;

    /// Returns a policy with the targets joined in the order of their ids.
    fn in_order(targets: usize) -> FirstFit {
        let ids = (0..).map(TargetId);
        let mut view = LoadView::new();
        ids.clone().take(targets).for_each(|id| {
            view.insert(TargetLoad::new(id, 1, 1));
        });
        FirstFit {
            queue: ids.zip(0..targets).collect(),
            members: Some(view.members_hash()),
            ..FirstFit::new(1)
        }
    }

    #[test]
    fn first_fit_keeps_the_contract() {
        contract::check(|seed| Box::new(FirstFit::new(seed)));
    }

    #[test]
    fn first_fit_is_round_robin_while_all_have_room() {
        check(in_order(3), &[9, 9, 9], "0 1 2 0 1 2 0");
    }

    #[test]
    fn who_was_passed_over_stays_in_front() {
        let mut targets = [0, 1, 2].map(|id| TargetLoad::new(TargetId(id), 100, 9));
        targets[1].held_bytes = 50;
        // The large job passes over target 1, which gets the small one next.
        let jobs = [(0, 10), (1, 60), (2, 10), (3, 10)];
        check_jobs(in_order(3), &targets, &jobs, "0 2 1 0");
    }

    #[test]
    fn a_target_is_passed_over_that_has_less_than_a_fifth_to_spare() {
        let targets =
            [119, 120].map(|bytes| TargetLoad::new(TargetId(bytes - 119), u64::from(bytes), 9));
        check_jobs(in_order(2), &targets, &[(0, 100)], "1");
        // A tight place is better than none.
        check_jobs(in_order(1), &targets[..1], &[(0, 100)], "0");
    }

    #[test]
    fn a_crowded_target_is_passed_over_without_room_for_four() {
        let mut targets = [0, 1].map(|id| TargetLoad::new(TargetId(id), 100, 20));
        (targets[0].booked_bytes, targets[0].booked_slots) = (61, 9);
        check_jobs(in_order(2), &targets, &[(0, 10)], "1");
        (targets[0].booked_bytes, targets[0].booked_slots) = (61, 8);
        check_jobs(in_order(2), &targets, &[(0, 10)], "0");
        (targets[0].booked_bytes, targets[0].booked_slots) = (60, 9);
        check_jobs(in_order(2), &targets, &[(0, 10)], "0");
    }

    #[test]
    fn the_queue_stands_when_members_come_and_go() {
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
        let mut policy = in_order(4);
        policy.members = None;
        let mut next = |view: &LoadView| policy.choose(Timestamp(0), &job, view).map(|t| t.0);
        assert_eq!([next(&view), next(&view)], [Ok(0), Ok(1)]);
        view.remove(TargetId(2));
        assert_eq!([next(&view), next(&view)], [Ok(3), Ok(0)]);
        view.insert(TargetLoad::new(TargetId(9), 100, 9));
        let mut turn: Vec<u32> = (0..4).flat_map(|_| next(&view)).collect();
        turn.sort_unstable();
        assert_eq!(turn, [0, 1, 3, 9], "each once");
    }
}
