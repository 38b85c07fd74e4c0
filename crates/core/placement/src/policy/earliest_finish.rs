//! `earliest-finish`: the target that will be done with the job first.

use super::{Policy, Registration};
use crate::load::{Job, LoadView, TargetId, TargetLoad};
use crate::measure::Measured;
use crate::refusal::Refusal;
use sheaf_protocol::Timestamp;
use std::cmp::Ordering;
use std::time::Duration;

pub(super) const POLICY: Registration = Registration {
    name: "earliest-finish",
    argument: None,
    make: |_, _| Some(Box::new(EarliestFinish::default())),
};

/// Takes, among the targets with room, the one that is predicted to finish the job first; among equal ones the one
/// with fewer jobs booked, then the next in turn.
///
/// The prediction is that of two stages in a row: bytes arrive, then they are worked on. Jobs before it pass at the
/// pace of the slower stage, the job itself takes its time in both:
///
/// ```text
/// finish = occupied bytes × max(transfer, processing) + job bytes × (transfer + processing)
///                                 per byte, as measured of this target
/// ```
///
/// Minimum completion time (MCT) of Maheswaran, Ali, Siegel, Hensgen, Freund, "Dynamic mapping of a class of
/// independent tasks onto heterogeneous computing systems", J. Parallel Distrib. Comput. 59, 1999, section 3, with the
/// times measured ([`Measured`]) instead of given. It finds slow links and slow machines by itself. A target counts as
/// an average one until it is measured over [`JOBS_MIN`](Self::JOBS_MIN) jobs, and while it differs from the average
/// by less than a quarter, or by less than a millisecond for the job: equal targets get equal shares then. So does one
/// that has not finished a job in the last [`STALE_AFTER`](Self::STALE_AFTER), nor in
/// [`STALE_AFTER_JOBS`](Self::STALE_AFTER_JOBS) times the time that one takes it, so that one hiccup does not shut it
/// out for ever. Takes O(n).
#[derive(Clone, Copy, Debug)]
pub struct EarliestFinish {
    /// Target of the last choice.
    last: TargetId,
}

/// Difference of two times of a job that counts: a millisecond, in ns × MiB. Where jobs take less, the processor that a
/// process happens to get differs by more from one to the next.
const NOTICED_NS_MIB: u128 = 1_000_000 << 20;

/// Pace of a target in ns per MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pace {
    transfer: u64,
    processing: u64,
}

impl Pace {
    /// Whether it differs from that of the farm by more than equal targets do that are measured over ten jobs, and by
    /// a time that counts for a job of `bytes`. Below that a farm of equal targets would give most jobs to the one that
    /// was lucky last.
    fn is_unlike(self, average: Self, bytes: u64) -> bool {
        let sum = |pace: Self| u128::from(pace.transfer) + u128::from(pace.processing);
        let (own, average) = (sum(self), sum(average));
        let is_far = own * 5 < average * 4 || own * 4 > average * 5;
        is_far && own.abs_diff(average) * u128::from(bytes) >= NOTICED_NS_MIB
    }
}

impl Default for EarliestFinish {
    /// Begins with the lowest target.
    fn default() -> Self {
        Self {
            last: TargetId(u32::MAX),
        }
    }
}

impl EarliestFinish {
    /// How long measurements of a target are believed, at least.
    pub const STALE_AFTER: Duration = Duration::from_secs(10);
    /// The same, in times that a job takes the target: one that works on a job for minutes cannot be measured each
    /// second.
    pub const STALE_AFTER_JOBS: u32 = 4;
    /// Jobs, or reports of work, over which a target is measured before it is judged by that: the first ones open
    /// streams and touch new memory.
    pub const JOBS_MIN: u64 = 16;
}

impl Policy for EarliestFinish {
    fn name(&self) -> &'static str {
        POLICY.name
    }

    fn choose(
        &mut self,
        now: Timestamp,
        job: &Job<'_>,
        view: &LoadView,
    ) -> Result<TargetId, Refusal> {
        let average = average(now, view.measured());
        let targets = view.targets().iter().zip(view.measured());
        let among_equal = |target: &TargetLoad| {
            let turn = target.id.0.wrapping_sub(self.last.0).wrapping_sub(1);
            (target.booked_slots, turn)
        };
        let mut first: Option<(u128, &TargetLoad)> = None;
        for (target, measured) in targets.filter(|(target, _)| target.fits(job)) {
            let pace = pace(now, measured).filter(|pace| pace.is_unlike(average, job.bytes));
            let finish = finish(target, job, pace.unwrap_or(average));
            let is_before = first.is_none_or(|(least, best)| match finish.cmp(&least) {
                Ordering::Equal => among_equal(target) < among_equal(best),
                order => order.is_lt(),
            });
            if is_before {
                first = Some((finish, target));
            }
        }
        let (_, target) = first.ok_or_else(|| view.refusal(job))?;
        self.last = target.id;
        Ok(target.id)
    }
}

/// Returns when the target would be done with the job, in ns × MiB from now.
fn finish(target: &TargetLoad, job: &Job<'_>, pace: Pace) -> u128 {
    let before =
        u128::from(target.occupied_bytes()) * u128::from(pace.transfer.max(pace.processing));
    let itself = u128::from(job.bytes) * (u128::from(pace.transfer) + u128::from(pace.processing));
    before.saturating_add(itself)
}

fn pace(now: Timestamp, measured: &Measured) -> Option<Pace> {
    const STALE_AFTER_NS: u64 = EarliestFinish::STALE_AFTER.as_nanos() as u64;
    // In whole ns, which is called for each target twice: a `Duration` costs a division.
    let age_ns = now.0.saturating_sub(measured.done_at.0);
    let stale_after_jobs = || {
        let of_jobs = u128::from(EarliestFinish::STALE_AFTER_JOBS) * measured.job_time().as_nanos();
        u128::from(age_ns) < of_jobs
    };
    let is_known = measured.jobs >= EarliestFinish::JOBS_MIN
        && (age_ns < STALE_AFTER_NS || stale_after_jobs());
    is_known.then_some(Pace {
        transfer: measured.transfer_ns_per_mib,
        processing: measured.processing_ns_per_mib,
    })
}

/// Returns the mean pace of all measured targets; if none is measured, all are judged by their bytes.
fn average(now: Timestamp, measured: &[Measured]) -> Pace {
    let (mut count, mut transfer, mut processing) = (0_u64, 0_u128, 0_u128);
    for pace in measured.iter().filter_map(|measured| pace(now, measured)) {
        count += 1;
        transfer += u128::from(pace.transfer);
        processing += u128::from(pace.processing);
    }
    let mean = |sum: u128| {
        let mean = sum.checked_div(u128::from(count)).unwrap_or(1);
        u64::try_from(mean).unwrap_or(u64::MAX)
    };
    Pace {
        transfer: mean(transfer),
        processing: mean(processing),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, check_jobs};
    use super::*;
    use crate::contract;
    use crate::measure::Finished;

    const MS: u64 = 1_000_000;
    /// When the last measured job was done.
    const MEASURED: Timestamp = Timestamp(2_000_000 * MS);
    const JOB: Job<'_> = Job {
        id: 0,
        bytes: 1 << 20,
        avoid: &[],
        is_early: false,
    };

    /// Returns targets with room for 100 jobs of a MiB, of which a first one took this many ms to arrive and to be
    /// done.
    fn farm(ms: &[(u64, u64)]) -> LoadView {
        let mut view = LoadView::new();
        for (id, (transfer, processing)) in (0..).map(TargetId).zip(ms) {
            view.insert(TargetLoad::new(id, 100 << 20, 100));
            let jobs = if transfer + processing > 0 {
                EarliestFinish::JOBS_MIN
            } else {
                0
            };
            // One behind the other, the last one done at `MEASURED`.
            for left in (0..jobs).rev() {
                let begin = Timestamp(MEASURED.0 - (left + 1) * (transfer + processing) * MS);
                view.observe(
                    id,
                    &Finished {
                        bytes: JOB.bytes,
                        placed_at: begin,
                        arrived_at: begin + Duration::from_millis(*transfer),
                        done_at: begin + Duration::from_millis(transfer + processing),
                    },
                );
            }
        }
        view
    }

    /// Counts how many of `jobs` go where `later` than they were measured, none of them finished meanwhile.
    fn shares(view: LoadView, jobs: u32, later: Duration) -> Vec<u32> {
        shares_of(&JOB, view, jobs, later)
    }

    fn shares_of(job: &Job<'_>, mut view: LoadView, jobs: u32, later: Duration) -> Vec<u32> {
        let now = MEASURED + later;
        let mut policy = EarliestFinish::default();
        for _ in 0..jobs {
            let target = policy.choose(now, job, &view).expect("room for all");
            view.book(target, job.bytes);
        }
        view.targets()
            .iter()
            .map(|target| target.booked_slots)
            .collect()
    }

    #[test]
    fn earliest_finish_keeps_the_contract() {
        contract::check(|_| Box::new(EarliestFinish::default()));
    }

    #[test]
    fn targets_that_were_never_measured_get_equal_bytes() {
        check(EarliestFinish::default(), &[2, 0, 2], "0 2 0 2 NoSlot");
        let targets = [0, 1].map(|id| TargetLoad::new(TargetId(id), 100, 9));
        check_jobs(
            EarliestFinish::default(),
            &targets,
            &[(0, 40), (1, 10), (2, 10), (3, 10), (4, 10), (5, 10)],
            "0 1 1 1 1 0",
        );
    }

    #[test]
    fn a_target_of_half_the_speed_gets_half_as_many_jobs() {
        let now = Duration::from_secs(1);
        assert_eq!(
            shares(farm(&[(10, 0), (20, 0), (10, 0)]), 25, now),
            [10, 5, 10]
        );
        // Equal for a slow link and for a slow machine.
        assert_eq!(
            shares(farm(&[(1, 10), (1, 20), (1, 10)]), 25, now),
            [10, 5, 10]
        );
    }

    #[test]
    fn times_that_differ_by_less_than_a_millisecond_are_equal() {
        let (now, view) = (Duration::from_secs(1), farm(&[(2, 4), (2, 8), (2, 2)]));
        let job = |bytes| Job { bytes, ..JOB };
        // The average is 6.67 ms for a MiB; the target that is farthest from it is so by 3.33.
        let small = job((1 << 20) * 29 / 100);
        assert_eq!(
            shares_of(&small, view.clone(), 12, now),
            [4, 4, 4],
            "0.97 ms"
        );
        let large = job((1 << 20) * 31 / 100);
        let shares = shares_of(&large, view, 12, now);
        assert!(shares[1] < shares[0], "1.03 ms: {shares:?}");
    }

    #[test]
    fn a_fast_target_with_a_queue_is_better_than_a_slow_one_without() {
        let now = Duration::from_secs(1);
        assert_eq!(shares(farm(&[(100, 0), (10, 0)]), 9, now), [0, 9]);
    }

    #[test]
    fn what_the_consumer_holds_is_before_the_job() {
        let mut view = farm(&[(10, 0), (10, 0)]);
        view.set_held(TargetId(0), JOB.bytes);
        assert_eq!(shares(view, 1, Duration::from_secs(1)), [0, 1]);
    }

    #[test]
    fn a_target_that_is_not_measured_counts_as_an_average_one() {
        let now = Duration::from_secs(1);
        assert_eq!(
            shares(farm(&[(10, 0), (30, 0), (0, 0)]), 11, now),
            [6, 2, 3]
        );
    }

    #[test]
    fn what_was_measured_long_ago_is_not_believed() {
        let shares_at = |ms: u64| shares(farm(&[(10, 0), (1000, 0)]), 4, Duration::from_millis(ms));
        assert_eq!(shares_at(9000), [4, 0]);
        assert_eq!(shares_at(20_000), [2, 2]);
    }

    #[test]
    fn a_target_of_long_jobs_is_believed_for_as_many_of_them() {
        let shares_at =
            |s: u64| shares(farm(&[(0, 20_000), (0, 60_000)]), 4, Duration::from_secs(s));
        assert_eq!(shares_at(70), [3, 1]);
        assert_eq!(shares_at(400), [2, 2]);
    }

    #[test]
    fn the_pace_of_a_consumer_comes_from_its_own_reports() {
        let mut view = farm(&[(1, 0), (1, 0)]);
        for (target, ms) in [(0, 10), (1, 45)] {
            let busy = Duration::from_millis(ms);
            for report in 1..=50 {
                let at = MEASURED + Duration::from_millis(report * 20);
                view.observe_work(TargetId(target), JOB.bytes, busy, at);
            }
        }
        assert_eq!(shares(view, 9, Duration::from_secs(1)), [8, 1]);
    }
}
