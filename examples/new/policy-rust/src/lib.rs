//! The policy my-policy: which EPN gets the next timeframe (TF).

use sheaf_placement::{Job, LoadView, Policy, Refusal, TargetId};
use sheaf_protocol::Timestamp;

/// Name in farm files, experiments and on command lines.
pub const NAME: &str = "my-policy";

/// Chooses the EPN with the most free memory.
#[derive(Debug)]
pub struct MyPolicy;

impl MyPolicy {
    /// Begins a run. A policy that draws lots draws them from `seed`: equal seeds give equal choices.
    #[must_use]
    pub fn new(_seed: u64) -> Self {
        Self
    }
}

impl Policy for MyPolicy {
    fn name(&self) -> &'static str {
        NAME
    }

    fn choose(
        &mut self,
        _now: Timestamp,
        job: &Job<'_>,
        view: &LoadView,
    ) -> Result<TargetId, Refusal> {
        let targets = view.targets().iter();
        targets
            .filter(|target| target.fits(job))
            .max_by_key(|target| (target.free_bytes(), std::cmp::Reverse(target.id)))
            .map(|target| target.id)
            .ok_or_else(|| view.refusal(job))
    }
}
