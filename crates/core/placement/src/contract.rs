//! Suite for the contract of [`Policy`].
//!
//! [`check`] runs a policy through thousands of random views in which targets join, leave, hang, drain, fill up and
//! come back between two choices. Among them are unlikely ones: no target at all, all suspect, sizes of 0 and of
//! `u64::MAX`, more booked than there is. Every policy, ours or a user's, calls it in one test:
//!
//! ```
//! use sheaf_placement::{contract, policy::round_robin::RoundRobin};
//!
//! contract::check(|_seed| Box::new(RoundRobin::default()));
//! ```

use crate::load::{Job, LoadView, TargetId, TargetLoad};
use crate::measure::Finished;
use crate::policy::Policy;
use crate::refusal::Refusal;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_protocol::Timestamp;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Number of farms that [`check`] plays through.
const SEEDS: u64 = 200;
/// Jobs placed in each farm, with a changed view for each.
const CALLS: u64 = 100;

/// Breach of the contract, at a seed and a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("policy {policy} breaks its contract at seed {seed}, call {call}: {what}")]
pub struct Breach {
    /// Name of the policy.
    pub policy: &'static str,
    /// Seed of the farm, for [`check_seed`].
    pub seed: u64,
    /// Number of the call in it.
    pub call: u64,
    /// The rule that is broken, with the job and the view.
    pub what: String,
}

/// Runs the whole suite on the policies that `make` creates from seeds.
///
/// # Panics
///
/// If the policy breaks its contract. The message names the breach, the view, and the seed for [`check_seed`].
pub fn check(make: impl Fn(u64) -> Box<dyn Policy>) {
    try_check(make).unwrap_or_else(|breach| panic!("{breach}"));
}

/// Runs the one farm of `seed`, from which everything in it follows: one round of [`check`].
///
/// # Panics
///
/// If the policy breaks its contract.
pub fn check_seed(make: impl Fn(u64) -> Box<dyn Policy>, seed: u64) {
    try_seed(&make, seed).unwrap_or_else(|breach| panic!("{breach}"));
}

/// Runs the whole suite as [`check`] does, for callers that report a breach in their own way.
///
/// # Errors
///
/// The first [`Breach`].
pub fn try_check(make: impl Fn(u64) -> Box<dyn Policy>) -> Result<(), Breach> {
    (0..SEEDS).try_for_each(|seed| try_seed(&make, seed))
}

fn try_seed(make: &impl Fn(u64) -> Box<dyn Policy>, seed: u64) -> Result<(), Breach> {
    let mut farm = RandomFarm::new(seed);
    let mut policy = make(seed);
    let mut twin = make(seed);
    let name = policy.name();
    let mut now = Timestamp(0);
    for call in 0..CALLS {
        farm.change(now);
        let avoid = farm.avoid();
        let job = farm.job(call, &avoid);
        // Time stands still at times, leaps at others, but never goes back.
        let leap = if farm.lots.random_ratio(1, 20) {
            1000
        } else {
            1
        };
        now = Timestamp(now.0 + leap * farm.lots.random_range(0..3_000_000));
        let breach = |what: &str| Breach {
            policy: name,
            seed,
            call,
            what: format!("{what}; {job:?}; {:?}", farm.view),
        };
        let ask = |policy: &mut dyn Policy| {
            catch_unwind(AssertUnwindSafe(|| policy.choose(now, &job, &farm.view)))
                .map_err(|_| breach("it panics"))
        };
        let answer = ask(&mut *policy)?;
        if let Err(broken) = judge(answer, &job, &farm.view) {
            return Err(breach(&format!("{broken}: {answer:?}")));
        }
        let twin_answer = ask(&mut *twin)?;
        if answer != twin_answer {
            let both = format!("equal seeds and calls, but {answer:?} and {twin_answer:?}");
            return Err(breach(&both));
        }
        if policy.name() != name || twin.name() != name {
            return Err(breach("its name changes"));
        }
        if let Ok(target) = answer {
            farm.book(target, job.bytes);
        }
    }
    Ok(())
}

/// Checks `answer` for `job` and `view`, whatever the policy prefers. `Err` says what is wrong.
fn judge(
    answer: Result<TargetId, Refusal>,
    job: &Job<'_>,
    view: &LoadView,
) -> Result<(), &'static str> {
    let some_fit = view.targets().iter().any(|target| target.fits(job));
    match answer {
        Ok(choice) => match view.get(choice) {
            None => Err("the choice is not a member"),
            Some(target) if !target.fits(job) => Err("the choice has no room for the job"),
            Some(_) => Ok(()),
        },
        Err(_) if some_fit => Err("a refusal although a member has room"),
        Err(refusal) if refusal != view.refusal(job) => Err("the wrong reason"),
        Err(_) => Ok(()),
    }
}

/// A random farm, drawn from one seed.
struct RandomFarm {
    lots: Xoshiro256PlusPlus,
    view: LoadView,
    /// Bookings in no order: target and bytes.
    booked: Vec<(TargetId, u64)>,
    /// Ids are drawn below this; few make crowded farms in which targets come back.
    ids: u32,
    /// Capacities and jobs are drawn up to this.
    bytes_max: u64,
}

impl RandomFarm {
    fn new(seed: u64) -> Self {
        let mut lots = Xoshiro256PlusPlus::seed_from_u64(seed);
        let ids = [1, 3, 10, 40, u32::MAX][lots.random_range(0..5)];
        let bytes_max = [0, 3, 1000, 4_000_000, u64::MAX][lots.random_range(0..5)];
        let targets = lots.random_range(0..40);
        let mut farm = Self {
            lots,
            view: LoadView::new(),
            booked: Vec::new(),
            ids,
            bytes_max,
        };
        for _ in 0..targets {
            farm.join();
        }
        farm
    }

    /// Changes the farm at random between two choices.
    fn change(&mut self, now: Timestamp) {
        for _ in 0..self.lots.random_range(0..4) {
            let id = self.some_target();
            let yes = self.lots.random_ratio(2, 3);
            match self.lots.random_range(0..100) {
                0..15 => self.join(),
                15..25 => self.leave(id),
                25..45 => self.view.set_available(id, yes),
                45..55 => self.view.set_enabled(id, yes),
                55..60 => self.view.set_listed(id, yes),
                60..75 => {
                    let bytes = self.bytes();
                    self.view.set_held(id, bytes);
                }
                75..80 => self.view.set_weight(id, self.lots.random()),
                80..98 => self.release(now),
                98 => self.set_all(false),
                _ => self.set_all(true),
            }
        }
    }

    /// Adds or restarts a target, with some slots and bytes, or none.
    fn join(&mut self) {
        let id = TargetId(self.lots.random_range(..self.ids));
        self.leave(id);
        let slots = [0, 1, 2, 20, u32::MAX][self.lots.random_range(0..5)];
        let capacity_bytes = self.bytes();
        self.view.insert(TargetLoad {
            weight_milli: self.lots.random_range(0..3000),
            ..TargetLoad::new(id, capacity_bytes, slots)
        });
    }

    /// Removes a target with its bookings.
    fn leave(&mut self, id: TargetId) {
        self.view.remove(id);
        self.booked.retain(|(target, _)| *target != id);
    }

    fn book(&mut self, id: TargetId, bytes: u64) {
        self.view.book(id, bytes);
        self.booked.push((id, bytes));
    }

    /// Ends a job, mostly because its target has finished it.
    fn release(&mut self, now: Timestamp) {
        if !self.booked.is_empty() {
            let index = self.lots.random_range(..self.booked.len());
            let (id, bytes) = self.booked.swap_remove(index);
            self.view.release(id, bytes);
            if self.lots.random_ratio(4, 5) {
                let mut ago =
                    || Timestamp(now.0.saturating_sub(self.lots.random_range(0..9_000_000)));
                let finished = Finished {
                    bytes,
                    placed_at: ago(),
                    arrived_at: ago(),
                    done_at: now,
                };
                self.view.observe(id, &finished);
            }
        }
    }

    /// Cuts all targets off, or brings them back.
    fn set_all(&mut self, available: bool) {
        let ids: Vec<_> = self.view.targets().iter().map(|target| target.id).collect();
        for id in ids {
            self.view.set_available(id, available);
        }
    }

    /// Draws the next job: mostly a small one, at times an empty one or one for which there is hardly room.
    fn job<'a>(&mut self, call: u64, avoid: &'a [TargetId]) -> Job<'a> {
        let id = [call, self.lots.random(), u64::MAX][self.lots.random_range(0..3)];
        let bytes = match self.lots.random_range(0..10) {
            0 => 0,
            1 => u64::MAX,
            2 => self.bytes(),
            _ => self.bytes() / 16,
        };
        let is_early = self.lots.random_ratio(1, 4);
        Job {
            id,
            bytes,
            avoid,
            is_early,
        }
    }

    /// Draws the targets that the next job avoids: mostly none, at times all.
    fn avoid(&mut self) -> Vec<TargetId> {
        match self.lots.random_range(0..10) {
            0 => self.view.targets().iter().map(|target| target.id).collect(),
            1..4 => vec![self.some_target(), self.some_target()],
            _ => Vec::new(),
        }
    }

    /// Draws a member, or at times a target that may have left.
    fn some_target(&mut self) -> TargetId {
        let targets = self.view.targets();
        if targets.is_empty() || self.lots.random_ratio(1, 10) {
            TargetId(self.lots.random_range(..self.ids))
        } else {
            targets[self.lots.random_range(..targets.len())].id
        }
    }

    fn bytes(&mut self) -> u64 {
        self.lots.random_range(0..=self.bytes_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::least_loaded::LeastLoaded;
    use crate::policy::random::Random;
    use std::cell::Cell;

    /// Policy that answers by its function, to show that the suite notices.
    struct Bad<F>(F);

    impl<F: FnMut(&Job<'_>, &LoadView) -> Result<TargetId, Refusal> + Send> Policy for Bad<F> {
        fn name(&self) -> &'static str {
            "bad"
        }

        fn choose(
            &mut self,
            _: Timestamp,
            job: &Job<'_>,
            view: &LoadView,
        ) -> Result<TargetId, Refusal> {
            self.0(job, view)
        }
    }

    fn first_fit(job: &Job<'_>, view: &LoadView) -> Result<TargetId, Refusal> {
        let first = view.targets().iter().find(|target| target.fits(job));
        first.map(|t| t.id).ok_or_else(|| view.refusal(job))
    }

    #[test]
    fn a_policy_that_keeps_the_contract_passes() {
        check(|_| Box::new(Bad(first_fit)));
    }

    #[test]
    #[should_panic(expected = "the choice has no room for the job")]
    fn a_policy_that_forgets_what_a_job_avoids_is_found() {
        check(|_| {
            Box::new(Bad(|job: &Job<'_>, view: &LoadView| {
                first_fit(&Job { avoid: &[], ..*job }, view)
            }))
        });
    }

    #[test]
    #[should_panic(expected = "the choice is not a member")]
    fn a_policy_that_remembers_a_target_that_left_is_found() {
        check(|_| {
            let mut last = None;
            Box::new(Bad(move |job: &Job<'_>, view: &LoadView| {
                let choice = first_fit(job, view)?;
                let former: Option<TargetId> = last.replace(choice);
                let has_left = |id: &TargetId| view.get(*id).is_none();
                Ok(former.filter(has_left).unwrap_or(choice))
            }))
        });
    }

    #[test]
    #[should_panic(expected = "a refusal although a member has room")]
    fn a_policy_that_gives_up_early_is_found() {
        check(|_| {
            Box::new(Bad(|job: &Job<'_>, view: &LoadView| {
                let first = view.targets().first().filter(|target| target.fits(job));
                first.map(|t| t.id).ok_or_else(|| view.refusal(job))
            }))
        });
    }

    #[test]
    #[should_panic(expected = "the wrong reason")]
    fn a_policy_that_makes_up_its_reasons_is_found() {
        check(|_| {
            Box::new(Bad(|job: &Job<'_>, view: &LoadView| {
                first_fit(job, view).map_err(|_| Refusal::NoMemory)
            }))
        });
    }

    #[test]
    #[should_panic(expected = "it panics")]
    fn a_policy_that_panics_on_an_empty_view_is_found() {
        check(|_| {
            Box::new(Bad(|job: &Job<'_>, view: &LoadView| {
                assert!(!view.is_empty(), "a policy's own panic, on purpose");
                first_fit(job, view)
            }))
        });
    }

    #[test]
    #[should_panic(expected = "equal seeds and calls, but")]
    fn a_policy_that_is_not_seeded_is_found() {
        let made = Cell::new(0);
        check(|_| {
            made.set(made.get() + 1);
            Box::new(Random::new(made.get()))
        });
    }

    /// Guards the suite itself: one that never fills a farm, or never empties one, would pass anything.
    #[test]
    fn the_random_farms_refuse_for_every_reason_and_choose_many_times() {
        let (mut refused, mut chosen) = ([0; Refusal::ALL.len()], 0);
        for seed in 0..SEEDS {
            let mut farm = RandomFarm::new(seed);
            for call in 0..CALLS {
                farm.change(Timestamp(call));
                let avoid = farm.avoid();
                let job = farm.job(call, &avoid);
                match LeastLoaded.choose(Timestamp(0), &job, &farm.view) {
                    Ok(target) => {
                        farm.book(target, job.bytes);
                        chosen += 1;
                    }
                    Err(refusal) => refused[refusal.index()] += 1,
                }
            }
        }
        assert!(chosen > 5000, "{chosen}");
        assert!(refused.iter().all(|count| *count > 100), "{refused:?}");
    }
}
