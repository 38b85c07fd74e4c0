//! `oracle`: the policy that knows beforehand how long each EPN will work on each TF. Only a simulation has it.

use super::draw::TimeDraw;
use super::queue::Nanos;
use crate::scenario::{ORACLE, Scenario};
use sheaf_placement::{Job, LoadView, Policy, Refusal, TargetId, TargetLoad};
use sheaf_protocol::Timestamp;

/// Time for which an EPN counts as busy that is late.
const LATE_NS: Nanos = 1_000_000;

/// Places a TF on the EPN, among those with room, that will be the first to finish it; among equal ones the lowest.
///
/// The times of processing are those that the run draws, of this TF and of all before it; the network and faults are
/// not foreseen: an EPN that should be idle and is not, since its TF took its time on the way, counts as busy for
/// [`LATE_NS`]. What the turnaround of another policy is longer is that policy's regret. With EPNs alike no policy that
/// places each TF at once gives shorter turnarounds on average; with EPNs that differ a better one may look further
/// ahead than one TF, and waits may be shorter where TFs go to slow EPNs that are idle.
pub(super) struct Oracle {
    times: TimeDraw,
    speeds: Vec<f64>,
    /// For each EPN when each of its consumers will be free, ascending.
    free_at: Vec<Vec<Nanos>>,
}

impl Oracle {
    /// Returns the policy of a run whose times of processing are drawn from `seed`.
    pub(super) fn new(scenario: &Scenario, seed: u64, epns: u32) -> Self {
        let speed = |epn| scenario.group_of(epn).map_or(1.0, |group| group.speed);
        let parallel = scenario.processing.parallel as usize;
        Self {
            times: TimeDraw::of(scenario, seed),
            speeds: (0..epns).map(speed).collect(),
            free_at: vec![vec![0; parallel]; epns as usize],
        }
    }

    /// Returns when the EPN would have finished the job.
    fn finish(&self, now: Nanos, job: &Job<'_>, target: &TargetLoad) -> Nanos {
        let epn = target.id.0 as usize;
        let lanes = &self.free_at[epn];
        let working = lanes.iter().filter(|free_at| **free_at > now).count();
        let begin = match target.occupied_bytes() > 0 && working == 0 {
            true => now + LATE_NS,
            false => lanes[0].max(now),
        };
        begin + self.times.ns(job.id, self.speeds[epn], job.bytes)
    }
}

impl Policy for Oracle {
    fn name(&self) -> &'static str {
        ORACLE
    }

    fn choose(
        &mut self,
        now: Timestamp,
        job: &Job<'_>,
        view: &LoadView,
    ) -> Result<TargetId, Refusal> {
        let fitting = view.targets().iter().filter(|target| target.fits(job));
        let finish = |target: &TargetLoad| (self.finish(now.0, job, target), target.id);
        let best = fitting.map(finish).min();
        let (done_at, target) = best.ok_or_else(|| view.refusal(job))?;
        let lanes = &mut self.free_at[target.0 as usize];
        lanes[0] = done_at;
        lanes.sort_unstable();
        Ok(target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Distribution, Group};

    fn scenario() -> Scenario {
        let mut scenario = Scenario {
            epns: 2,
            ..Scenario::default()
        };
        scenario.processing.ms = 10.0;
        scenario
    }

    /// Places TFs that come at once, none of them finished meanwhile.
    fn placed(scenario: &Scenario, tfs: u64) -> Vec<u32> {
        let mut oracle = Oracle::new(scenario, 7, scenario.epns);
        let mut view = LoadView::new();
        for epn in 0..scenario.epns {
            view.insert(TargetLoad::new(TargetId(epn), 1000, 100));
        }
        let place = |id| {
            let job = Job {
                id,
                bytes: 1,
                avoid: &[],
                is_early: false,
            };
            oracle.choose(Timestamp(0), &job, &view).expect("room").0
        };
        (0..tfs).map(place).collect()
    }

    #[test]
    fn equal_tfs_go_in_turn_and_more_of_them_to_the_faster_epn() {
        assert_eq!(placed(&scenario(), 4), [0, 1, 0, 1]);
        let mut uneven = scenario();
        uneven.groups = vec![Group {
            epns: 1,
            speed: 2.0,
            nic: 1.0,
            weight: 1.0,
        }];
        assert_eq!(placed(&uneven, 6), [0, 0, 1, 0, 0, 1]);
    }

    #[test]
    fn the_times_of_a_run_are_foreseen() {
        let mut scenario = scenario();
        scenario.processing.distribution = Distribution::Exponential;
        let times = TimeDraw::of(&scenario, 7);
        let mut free_at = [0; 2];
        let expected: Vec<u32> = (0..50)
            .map(|tf| {
                let epn = usize::from(free_at[1] < free_at[0]);
                free_at[epn] += times.ns(tf, 1.0, 1);
                epn as u32
            })
            .collect();
        assert_eq!(placed(&scenario, 50), expected);
    }

    #[test]
    fn every_consumer_of_an_epn_counts() {
        let mut scenario = scenario();
        scenario.processing.parallel = 2;
        // Two at each EPN, then the first ones are full.
        assert_eq!(placed(&scenario, 5), [0, 0, 1, 1, 0]);
    }
}
