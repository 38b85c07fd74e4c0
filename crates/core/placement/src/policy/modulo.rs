//! `modulo`: the number of the job picks the target.

use super::{Policy, Registration};
use crate::load::{Job, LoadView, TargetId};
use crate::refusal::Refusal;
use sheaf_protocol::Timestamp;

pub(super) const POLICY: Registration = Registration {
    name: "modulo",
    argument: None,
    make: |_, _| Some(Box::new(Modulo)),
};

/// Takes the target at place (job id mod n) of the n that are online, ascending by id.
///
/// The rule of O2-Balancer (2017, blacklist mode), where every FLP applies it by itself to the online
/// list; NestDAQ and LCLS-II use it on a fixed list. Two FLPs that see different lists split a TF there; here
/// the ICN decides alone. It needs no memory of earlier choices, so equal ids meet again on one target
/// while the list stands; when the list changes, most ids move.
///
/// If the target at that place has no room or is avoided, the next one that has room gets the job, as in
/// flesnet's manager. The place is counted among all that are online, full ones too, so that a full
/// target moves its own jobs and no others. Takes O(log n) and a step for each target passed over.
#[derive(Clone, Copy, Debug, Default)]
pub struct Modulo;

impl Policy for Modulo {
    fn name(&self) -> &'static str {
        POLICY.name
    }

    fn choose(
        &mut self,
        _: Timestamp,
        job: &Job<'_>,
        view: &LoadView,
    ) -> Result<TargetId, Refusal> {
        let count = view.online_len() as u64;
        job.id
            .checked_rem(count)
            .and_then(|place| view.online(usize::try_from(place).ok()?))
            .and_then(|first| view.targets_from(first.id).find(|target| target.fits(job)))
            .map(|target| target.id)
            .ok_or_else(|| view.refusal(job))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, check_jobs};
    use super::*;
    use crate::contract;
    use crate::load::TargetLoad;

    #[test]
    fn modulo_keeps_the_contract() {
        contract::check(|_| Box::new(Modulo));
    }

    #[test]
    fn modulo_takes_consecutive_jobs_in_turn() {
        check(Modulo, &[3, 3, 3], "0 1 2 0 1 2 0");
    }

    #[test]
    fn modulo_goes_by_the_number_of_the_job_alone() {
        let targets = [2, 5, 9].map(|id| TargetLoad::new(TargetId(id), 100, 9));
        let jobs = [(7, 1), (7, 1), (6, 1), (u64::MAX, 1), (8, 1)];
        check_jobs(Modulo, &targets, &jobs, "5 5 2 2 9");
    }

    #[test]
    fn modulo_counts_only_epns_that_are_online() {
        let mut targets = [0, 1, 2, 3].map(|id| TargetLoad::new(TargetId(id), 100, 9));
        targets[1].available = false;
        targets[2].enabled = false;
        let jobs = [(0, 1), (1, 1), (2, 1), (3, 1)];
        check_jobs(Modulo, &targets, &jobs, "0 3 0 3");
    }

    #[test]
    fn modulo_gives_the_jobs_of_a_full_epn_to_the_next_and_leaves_the_others_where_they_are() {
        check(Modulo, &[9, 0, 9], "0 2 2 0 2 2");
    }
}
