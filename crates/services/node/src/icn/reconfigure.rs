//! Keys of the farm file that an ICN follows while it runs.

use super::IcnNode;
use sheaf_membership::LivenessConfig;
use sheaf_placement::policy::{self, UnknownPolicy};
use sheaf_scheduler::SchedulerConfig;
use sheaf_transport::Transport;

impl<T: Transport> IcnNode<T> {
    /// Takes over the policy, deadlines and limits of silence, for this term and later ones.
    ///
    /// # Errors
    ///
    /// [`UnknownPolicy`] if the policy does not exist; then nothing has changed.
    pub fn reconfigure(
        &mut self,
        scheduler: &SchedulerConfig,
        liveness: LivenessConfig,
    ) -> Result<(), UnknownPolicy> {
        policy::by_name(&scheduler.policy, scheduler.seed)?;
        self.terms.scheduler.follow(scheduler);
        self.terms.liveness = LivenessConfig {
            pulse_ms: self.terms.liveness.pulse_ms,
            ..liveness
        };
        if let Some(lead) = &mut self.lead {
            lead.scheduler.reconfigure(scheduler)?;
            lead.members.reconfigure(liveness);
        }
        Ok(())
    }
}
