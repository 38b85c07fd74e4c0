//! `join-idle-queue`: a target that has nothing to do, in turn; if none is idle, one by lot.

use super::random::Random;
use super::{Policy, Registration};
use crate::load::{Job, LoadView, TargetId, TargetLoad};
use crate::refusal::Refusal;
use sheaf_protocol::Timestamp;

pub(super) const POLICY: Registration = Registration {
    name: "join-idle-queue",
    argument: None,
    make: |_, seed| Some(Box::new(JoinIdleQueue::new(seed))),
};

/// Takes the next target, in the order of ids, that has room and nothing to do: no job booked, and no bytes with its
/// consumer. While none is idle, draws among those with room.
///
/// Lu, Xie, Kliot, Geller, Larus, Greenberg, "Join-Idle-Queue: A novel load balancing algorithm for dynamically
/// scalable web services", Performance Evaluation 68, 2011: what has to be known of a target is only that it is idle,
/// which it says itself at the end of its work, and an old report of anything else does no harm. With many targets
/// some are nearly always idle, and no job waits; with few and a high load it draws, and waits grow as under `random`.
/// Takes O(n).
#[derive(Clone, Debug)]
pub struct JoinIdleQueue {
    last: Option<TargetId>,
    random: Random,
}

impl JoinIdleQueue {
    /// Returns a policy that draws from `seed` while none is idle.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            last: None,
            random: Random::new(seed),
        }
    }
}

fn is_idle(target: &TargetLoad) -> bool {
    target.booked_slots == 0 && target.occupied_bytes() == 0
}

impl Policy for JoinIdleQueue {
    fn name(&self) -> &'static str {
        POLICY.name
    }

    fn choose(
        &mut self,
        now: Timestamp,
        job: &Job<'_>,
        view: &LoadView,
    ) -> Result<TargetId, Refusal> {
        let mut turn = view.targets_after(self.last);
        let idle = turn.find(|target| is_idle(target) && target.fits(job));
        if let Some(target) = idle {
            self.last = Some(target.id);
            return Ok(target.id);
        }
        self.random.choose(now, job, view)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;
    use super::*;
    use crate::contract;

    #[test]
    fn join_idle_queue_keeps_the_contract() {
        contract::check(|seed| Box::new(JoinIdleQueue::new(seed)));
    }

    #[test]
    fn idle_targets_have_their_turn_and_then_lots_are_drawn() {
        check(JoinIdleQueue::new(1), &[1, 1, 1], "0 1 2 NoSlot");
        let mut view = LoadView::new();
        for id in 0..3 {
            view.insert(TargetLoad::new(TargetId(id), 1000, 100));
        }
        let mut policy = JoinIdleQueue::new(1);
        let mut choose = |view: &mut LoadView, id| {
            let job = Job {
                id,
                bytes: 10,
                avoid: &[],
                is_early: false,
            };
            let target = policy.choose(Timestamp(0), &job, view).expect("room");
            view.book(target, 10);
            target
        };
        let turn: Vec<u32> = (0..3).map(|id| choose(&mut view, id).0).collect();
        assert_eq!(turn, [0, 1, 2]);
        // All are busy now; the one that is free again is found, whatever the turn.
        view.release(TargetId(1), 10);
        assert_eq!(choose(&mut view, 3), TargetId(1));
        // Bytes with the consumer are work as well.
        view.release(TargetId(0), 10);
        view.set_held(TargetId(0), 10);
        view.release(TargetId(2), 10);
        assert_eq!(choose(&mut view, 4), TargetId(2));
        let drawn: std::collections::BTreeSet<u32> =
            (5..60).map(|id| choose(&mut view, id).0).collect();
        assert_eq!(drawn.len(), 3, "by lot");
    }
}
