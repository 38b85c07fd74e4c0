//! Link of an FLP or an EPN to the ICNs: found in a registry, followed, and left in order.

use crate::registry::Discovery;
use crate::uplink::{Heard, JoinRefusal, Uplink};
use sheaf_membership::RunDelays;
use sheaf_protocol::{Control, Timestamp};
use sheaf_transport::{ConnId, Frame, Transport};
use std::time::Duration;

/// How long a node that wants to leave waits for an ICN that is not there.
pub(crate) const LEAVE_ALONE_AFTER: Duration = Duration::from_secs(5);

/// Link to the ICNs: the streams, where they are found, and whether the node leaves.
pub(crate) struct IcnLink {
    pub(crate) uplink: Uplink,
    discovery: Option<Discovery>,
    leaving_since: Option<Timestamp>,
    refused: Option<JoinRefusal>,
    has_joined: bool,
    run_delays: RunDelays,
}

impl IcnLink {
    /// Makes the link of a node that does not leave yet; without a registry, the ICNs are where `uplink` says.
    pub(crate) fn new(uplink: Uplink) -> Self {
        Self {
            uplink,
            discovery: None,
            leaving_since: None,
            refused: None,
            has_joined: false,
            run_delays: RunDelays::default(),
        }
    }

    /// Finds the ICNs in a registry from now on.
    pub(crate) fn discover(&mut self, discovery: Discovery) {
        self.discovery = Some(discovery);
    }

    /// Leaves the registry, if there is one.
    pub(crate) fn deregister(&mut self, now: Timestamp) {
        if let Some(discovery) = &mut self.discovery {
            discovery.leave(now);
        }
    }

    /// Looks where the ICNs are, and opens the streams and repeats the hellos that are due.
    pub(crate) fn handle_tick<T: Transport>(&mut self, now: Timestamp, transport: &mut T) {
        if let Some(discovery) = &mut self.discovery
            && discovery.look(now)
        {
            self.uplink.set_addresses(discovery.icns(), transport);
        }
        self.uplink.set_patience(self.patience(now));
        self.uplink.handle_tick(now, transport);
    }

    /// Handles a frame of one of the streams. A refusal is kept for [`take_refusal`](Self::take_refusal).
    pub(crate) fn handle_frame<T: Transport>(
        &mut self,
        now: Timestamp,
        conn: ConnId,
        frame: &Frame,
        transport: &mut T,
    ) -> Heard {
        match self.uplink.handle_frame(now, conn, frame, transport) {
            Heard::Refused(mut refusal) => {
                // A later life of a node that has been a member is another process, not this one before its clock was
                // set back.
                if self.has_joined {
                    refusal.incarnation_min = 0;
                }
                self.refused = Some(refusal);
                Heard::Nothing
            }
            joined @ Heard::Joined { .. } => {
                self.has_joined = true;
                joined
            }
            heard => heard,
        }
    }

    /// Returns why an ICN refused the node, if one did.
    pub(crate) fn take_refusal(&mut self) -> Option<JoinRefusal> {
        self.refused.take()
    }

    /// Notes that the node leaves, and announces it; `false` if it leaves already.
    pub(crate) fn leave<T: Transport>(&mut self, now: Timestamp, transport: &mut T) -> bool {
        if self.is_leaving() {
            return false;
        }
        self.leaving_since = Some(now);
        self.uplink.send(transport, &Control::Leaving);
        true
    }

    /// Repeats that the node leaves, as an ICN may not know it yet; `false` if it does not leave.
    pub(crate) fn send_leaving<T: Transport>(&mut self, transport: &mut T) -> bool {
        if self.is_leaving() {
            self.uplink.send(transport, &Control::Leaving);
        }
        self.is_leaving()
    }

    /// Notes that this node had to wait for a processor for `delay`, until just before `now`.
    pub(crate) fn handle_run_delay(&mut self, now: Timestamp, delay: Duration) {
        if self.uplink.is_joined() {
            self.run_delays.add(now, delay);
        } else {
            // Without an ICN there are no pulses between which run delays add up.
            self.run_delays = RunDelays::default();
        }
    }

    /// Returns how much longer than usual an answer of the ICN may take at `now`: both ends wait for a processor.
    pub(crate) fn patience(&self, now: Timestamp) -> Duration {
        self.run_delays.longest(now) + self.uplink.leader_run_delay()
    }

    /// Sends a pulse if one is due, and with it that the node leaves. The pulse gets the run delay of this node.
    pub(crate) fn send_pulse<T: Transport>(
        &mut self,
        now: Timestamp,
        transport: &mut T,
        pulse: impl FnOnce(u64) -> Control,
    ) {
        if self.uplink.take_pulse(now) {
            let delay = self.run_delays.longest(now);
            self.run_delays.handle_pulse();
            let delay_ns = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
            self.uplink.send(transport, &pulse(delay_ns));
            self.uplink.send_log(now, transport);
            self.send_leaving(transport);
        }
    }

    /// Returns whether the node leaves.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving_since.is_some()
    }

    /// Returns whether the node has been leaving for `patience` and no ICN is there that it could wait for.
    pub(crate) fn is_alone(&self, now: Timestamp, patience: Duration) -> bool {
        let is_over = |since| now.since(since) >= patience;
        !self.uplink.is_joined() && self.leaving_since.is_some_and(is_over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_protocol::control::Hello;
    use sheaf_protocol::{EpnId, Incarnation};
    use sheaf_transport::memory::{Faults, Network};

    #[test]
    fn a_node_leaves_once_and_waits_for_its_icn_only_so_long() {
        let mut transport = Network::new(1, Faults::default()).endpoint("epn");
        let hello = Hello {
            data_address: "epn:1".to_owned(),
            capacity_bytes: 1000,
            slots: 1,
            stf_bytes_max: 0,
            weight_milli: 1000,
            is_durable: false,
            ..Hello::default()
        };
        let uplink = Uplink::new(Vec::new(), EpnId(0).into(), Incarnation(1), hello);
        let mut link = IcnLink::new(uplink);
        let at = |s: u64| Timestamp(s * 1_000_000_000);
        assert!(!link.send_leaving(&mut transport));
        assert!(!link.is_alone(at(99), LEAVE_ALONE_AFTER), "it stays");
        assert!(link.leave(at(100), &mut transport));
        assert!(!link.leave(at(104), &mut transport), "it leaves already");
        assert!(link.send_leaving(&mut transport));
        assert!(link.is_alone(at(100), Duration::ZERO));
        assert!(!link.is_alone(at(104), LEAVE_ALONE_AFTER));
        assert!(link.is_alone(at(105), LEAVE_ALONE_AFTER));
    }
}
