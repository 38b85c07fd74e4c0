//! `weighted`: the target that did least lately and has least before it.

use super::{Policy, Registration};
use crate::load::{Job, LoadView, TargetId, TargetLoad};
use crate::measure::Measured;
use crate::refusal::Refusal;
use sheaf_protocol::Timestamp;

pub(super) const POLICY: Registration = Registration {
    name: "weighted",
    argument: None,
    make: |_, _| Some(Box::new(Weighted)),
};

/// Takes, among the targets with room, the one with the least load for its weight, where its load is the bytes that
/// it finished in the last five seconds and those booked at it or with its consumer now; among equal ones the lowest.
///
/// The storage balancing of the ATLAS data acquisition in 2017 ("Weighted Assignment Policy", steps 1 and 2 of
/// the slides): the load of a writer thread is the work it did in a sliding window, typically of 5 s, and the load of
/// what is assigned is added at once, since the window alone sends files that come close together to one thread. They
/// measured +2 % over round robin. It evens out bytes, not time: targets of unlike speed need weights
/// ([`TargetLoad::weight_milli`]), which ATLAS did not. Takes O(n).
#[derive(Clone, Copy, Debug, Default)]
pub struct Weighted;

impl Policy for Weighted {
    fn name(&self) -> &'static str {
        POLICY.name
    }

    fn choose(
        &mut self,
        now: Timestamp,
        job: &Job<'_>,
        view: &LoadView,
    ) -> Result<TargetId, Refusal> {
        let targets = view.targets().iter().zip(view.measured());
        let mut best: Option<(u128, u128, TargetId)> = None;
        for (target, measured) in targets.filter(|(target, _)| target.fits(job)) {
            let (load, weight) = (
                load(now, target, measured),
                u128::from(target.weight_milli.max(1)),
            );
            // load ÷ weight without rounding, multiplied out: 65 bits by 32.
            if best.is_none_or(|(least, its_weight, _)| load * its_weight < least * weight) {
                best = Some((load, weight, target.id));
            }
        }
        best.map(|(_, _, id)| id).ok_or_else(|| view.refusal(job))
    }
}

fn load(now: Timestamp, target: &TargetLoad, measured: &Measured) -> u128 {
    u128::from(measured.window_bytes(now)) + u128::from(target.occupied_bytes())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, check_jobs};
    use super::*;
    use crate::contract;
    use crate::measure::Finished;

    #[test]
    fn weighted_keeps_the_contract() {
        contract::check(|_| Box::new(Weighted));
    }

    #[test]
    fn weighted_counts_what_is_assigned_at_once() {
        check(Weighted, &[2, 0, 2], "0 2 0 2 NoSlot");
    }

    #[test]
    fn weighted_gives_a_target_of_three_shares_three_times_the_bytes() {
        let mut targets = [0, 1].map(|id| TargetLoad::new(TargetId(id), 1000, 99));
        targets[1].weight_milli = 3000;
        check_jobs(Weighted, &targets, &[(0, 10); 8], "0 1 1 1 0 1 1 1");
    }

    /// Returns the target of a job of one byte at `second`, when target 0 finished 100 bytes and target 1 has 50
    /// booked.
    fn chosen_at(second: u64) -> TargetId {
        let at = |second: u64| Timestamp(second * 1_000_000_000);
        let mut view = LoadView::new();
        view.insert(TargetLoad::new(TargetId(0), 1000, 9));
        view.insert(TargetLoad::new(TargetId(1), 1000, 9));
        view.observe(
            TargetId(0),
            &Finished {
                bytes: 100,
                placed_at: at(0),
                arrived_at: at(1),
                done_at: at(1),
            },
        );
        view.book(TargetId(1), 50);
        let job = Job {
            id: 0,
            bytes: 1,
            avoid: &[],
            is_early: false,
        };
        Weighted
            .choose(at(second), &job, &view)
            .expect("room on both")
    }

    #[test]
    fn what_a_target_has_done_counts_until_the_window_has_passed() {
        assert_eq!(chosen_at(1), TargetId(1));
        assert_eq!(chosen_at(7), TargetId(1));
        assert_eq!(
            chosen_at(8),
            TargetId(0),
            "40 of the 100 are still in sight"
        );
        assert_eq!(chosen_at(60), TargetId(0));
    }
}
