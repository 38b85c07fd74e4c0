//! Patience with nodes that wait for a processor: their answers are late, and nothing is lost.
//!
//! A message that is repeated too early, or a TF that is moved too early, costs processor time where there is none. So
//! every answer is awaited longer by what its way takes longer now: the run delays that the nodes on it report, and
//! that of this ICN.

use super::Scheduler;
use sheaf_protocol::{NodeId, Target, Timestamp};
use std::time::Duration;

/// State of a release on its way to a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Releasing {
    /// The newest version when the node last got on, and when that was; `None`: nothing is known to be on its way.
    sent: Option<(u64, Timestamp)>,
}

impl Releasing {
    /// Handles a pulse of a node that has applied version `applied`, where `said` is the newest one. Returns whether
    /// that has to be sent to it once more.
    pub(super) fn is_missed(
        &mut self,
        now: Timestamp,
        applied: u64,
        said: u64,
        patience: Duration,
    ) -> bool {
        let is_missed = match self.sent {
            // What was sent to all since then comes behind.
            _ if applied >= said => false,
            Some((version, _)) if applied >= version => false,
            Some((_, at)) if now.since(at) < patience => return false,
            Some(_) | None => true,
        };
        self.sent = Some((said, now));
        is_missed
    }
}

impl Scheduler {
    /// Notes how long this ICN has lately had to wait for a processor.
    pub fn handle_run_delay(&mut self, own: Duration) {
        self.run_delay = own;
    }

    /// Returns for each node that has joined how long it has lately had to wait for a processor, in ns.
    pub fn run_delays(&self) -> impl Iterator<Item = (NodeId, u64)> {
        let flps = self.flps.values();
        let flps = flps.map(|node| (node.source.flp.into(), node.pulse.run_delay_ns));
        let epns = self.epns.values();
        let epns = epns.map(|node| (node.target.epn.into(), node.pulse.run_delay_ns));
        flps.chain(epns)
    }

    /// Returns how long an answer of a node whose run delay is `run_delay_ns` is awaited before a message is repeated.
    pub(super) fn repeat_after(&self, run_delay_ns: u64) -> Duration {
        self.config.repeat() + self.run_delay + Duration::from_nanos(run_delay_ns)
    }

    /// Returns how long an answer of `target` is awaited before a message is repeated.
    pub(super) fn repeat_to(&self, target: Target) -> Duration {
        self.config.repeat() + self.run_delay + self.run_delay_of(target)
    }

    /// Returns how long `target` has for a TF whose STFs are all announced.
    pub(super) fn deadline_of(&self, target: Target) -> Duration {
        let way = self.run_delay + self.run_delay_of(target) + self.flp_run_delay;
        self.config.tf_deadline() + way
    }

    fn run_delay_of(&self, target: Target) -> Duration {
        let node = self.epns.get(&target.epn);
        let node = node.filter(|node| node.target == target);
        node.map_or(Duration::ZERO, |node| {
            Duration::from_nanos(node.pulse.run_delay_ns)
        })
    }

    /// Looks, every now and then, which FLP waits longest for its processor: a TF needs all of them.
    pub(super) fn look_at_run_delays(&mut self) {
        let heard = self.flps.values().filter(|node| node.absence.is_none());
        let longest = heard.map(|node| node.pulse.run_delay_ns).max();
        self.flp_run_delay = Duration::from_nanos(longest.unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_sent_again_only_to_a_node_that_does_not_get_on() {
        let ms = |ms: u64| Timestamp(ms * 1_000_000);
        let patience = Duration::from_millis(100);
        let mut releasing = Releasing::default();
        let mut pulse = |at, applied, said| releasing.is_missed(ms(at), applied, said, patience);
        assert!(pulse(0, 0, 5), "the node has just joined");
        assert!(!pulse(20, 0, 6), "on its way");
        assert!(!pulse(90, 5, 9), "9 is behind 5");
        assert!(!pulse(180, 7, 12));
        assert!(pulse(190, 7, 12), "9 was sent at 90");
        assert!(!pulse(289, 7, 12));
        assert!(pulse(290, 7, 12));
        assert!(!pulse(300, 12, 12));
        assert!(!pulse(320, 12, 13), "on its way");
        assert!(pulse(420, 12, 13));
    }
}
