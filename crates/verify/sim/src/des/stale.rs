//! Old information: a policy that chooses from a picture of the loads that is renewed now and then.

use super::queue::Nanos;
use sheaf_placement::{Job, LoadView, Policy, Refusal, TargetId};
use sheaf_protocol::Timestamp;

/// Lets a policy see the loads as they were at the last report of all EPNs, and what it has placed since.
///
/// All EPNs report at the same moment, every `period`; in between nothing that they finish is known, but the ICN knows
/// its own bookings. An EPN that seems to have room and has none is not chosen: then the policy is asked with the true
/// loads, as an EPN announces its room at once. Source: Mitzenmacher, "How useful is old information?", IEEE TPDS
/// 11(1), 2000, periodic update, with one dispatcher.
pub(super) struct Stale {
    policy: Box<dyn Policy>,
    period: Nanos,
    seen: LoadView,
    seen_at: Option<Nanos>,
}

impl Stale {
    /// Returns `policy` with reports every `period`.
    pub(super) fn new(policy: Box<dyn Policy>, period: Nanos) -> Self {
        Self {
            policy,
            period,
            seen: LoadView::new(),
            seen_at: None,
        }
    }

    /// Renews the picture if a report is due, or EPNs have come or gone.
    fn look(&mut self, now: Nanos, view: &LoadView) {
        let report = now - now % self.period;
        let is_new = self.seen_at != Some(report);
        if is_new || self.seen.members_hash() != view.members_hash() {
            self.seen.clone_from(view);
            self.seen_at = Some(report);
        }
    }
}

impl Policy for Stale {
    fn name(&self) -> &'static str {
        self.policy.name()
    }

    fn choose(
        &mut self,
        now: Timestamp,
        job: &Job<'_>,
        view: &LoadView,
    ) -> Result<TargetId, Refusal> {
        self.look(now.0, view);
        let seen = self.policy.choose(now, job, &self.seen);
        let fits = |target: &TargetId| view.get(*target).is_some_and(|load| load.fits(job));
        let chosen = match seen.ok().filter(fits) {
            Some(target) => target,
            None => self.policy.choose(now, job, view)?,
        };
        self.seen.book(chosen, job.bytes);
        Ok(chosen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_placement::{TargetLoad, policy};

    const PERIOD: Nanos = 1_000;

    fn job(id: u64) -> Job<'static> {
        Job {
            id,
            bytes: 10,
            avoid: &[],
            is_early: false,
        }
    }

    fn view(held: [u64; 2]) -> LoadView {
        let mut view = LoadView::new();
        for (epn, held) in (0..).zip(held) {
            view.insert(TargetLoad::new(TargetId(epn), 100, 10));
            view.set_held(TargetId(epn), held);
        }
        view
    }

    #[test]
    fn what_is_finished_shows_at_the_next_report_and_what_is_placed_at_once() {
        let least_loaded = policy::by_name("least-loaded", 1).expect("a policy");
        let mut stale = Stale::new(least_loaded, PERIOD);
        let mut choose = |now, view: &LoadView| stale.choose(Timestamp(now), &job(1), view);
        assert_eq!(choose(0, &view([30, 0])), Ok(TargetId(1)));
        // EPN 0 is empty by now, and EPN 1 full; only what was placed there is known.
        let now = view([0, 90]);
        assert_eq!(choose(400, &now), Ok(TargetId(1)));
        assert_eq!(choose(800, &now), Ok(TargetId(1)));
        assert_eq!(choose(PERIOD, &now), Ok(TargetId(0)));
    }

    #[test]
    fn an_epn_without_room_is_not_chosen_from_an_old_picture() {
        let least_loaded = policy::by_name("least-loaded", 1).expect("a policy");
        let mut stale = Stale::new(least_loaded, PERIOD);
        let mut choose = |now, view: &LoadView| stale.choose(Timestamp(now), &job(1), view);
        assert_eq!(choose(0, &view([30, 0])), Ok(TargetId(1)));
        assert_eq!(choose(1, &view([30, 100])), Ok(TargetId(0)));
        assert!(choose(2, &view([100, 100])).is_err());
    }
}
