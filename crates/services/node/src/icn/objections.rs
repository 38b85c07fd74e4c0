//! Objections: messages that the ICN refuses, and its answers.

use super::IcnNode;
use crate::identity;
use sheaf_metrics::Registry;
use sheaf_protocol::control::Hello;
use sheaf_protocol::reject::Code;
use sheaf_protocol::{Envelope, NodeId, Role, Timestamp};
use sheaf_transport::{ConnId, Refusal, Transport};

impl<T: Transport> IcnNode<T> {
    /// Whether the certificate at the other end of `conn` is that of another node; then the stream is closed.
    pub(super) fn is_denied(&mut self, now: Timestamp, conn: ConnId, node: NodeId) -> bool {
        let denial = identity::denial(&self.transport, conn, node);
        let is_denied = denial.is_some();
        if let Some(detail) = denial {
            self.reject(now, conn, Code::RoleDenied, &detail);
        }
        is_denied
    }

    /// Tells a peer why its message is not taken, and closes its stream.
    pub(super) fn reject(&mut self, now: Timestamp, conn: ConnId, code: Code, detail: &str) {
        self.refused_messages += 1;
        self.peer_guard
            .reject(now, &mut self.transport, conn, code, detail);
    }

    /// Peers were turned away before they had a stream.
    pub fn handle_refusals(&mut self, now: Timestamp, refusals: Vec<Refusal>) {
        self.peer_guard.turned_away(now, refusals);
    }

    /// Brings the metric of rejected inputs up to date.
    pub fn export_rejected(&self, registry: &Registry) {
        self.peer_guard.export(registry);
    }

    /// How often something was rejected with this code.
    #[must_use]
    pub fn rejected(&self, code: Code) -> u64 {
        self.peer_guard.count(code)
    }

    /// A node follows another leader, or is in another run: its message changes nothing, and it is notified.
    pub(super) fn object_to(&mut self, now: Timestamp, conn: ConnId, envelope: &Envelope) {
        let Some(lead) = &self.lead else {
            return;
        };
        let (term, run) = (lead.term, lead.scheduler.run());
        let (code, detail) = if envelope.term < term {
            let detail = format!("found term {}, expected {}", envelope.term.0, term.0);
            (Code::Fenced, detail)
        } else if envelope.run != run {
            let detail = format!("found run {}, expected {run}", envelope.run);
            (Code::OtherRun, detail)
        } else {
            return;
        };
        self.peer_guard
            .object(now, &mut self.transport, conn, code, &detail);
    }

    /// Why a node cannot be of this farm.
    pub(super) fn objection(&self, node: NodeId, hello: &Hello) -> Option<String> {
        let stf_bytes_max = self.terms.stf_bytes_max;
        match node.role {
            Role::Icn if !self.peers.is_one(node.index) => {
                Some(format!("{node} is none of the ICNs that this one knows"))
            }
            Role::Flp if hello.stf_bytes_max > stf_bytes_max => Some(format!(
                "{node} announces STFs of up to {} bytes, this farm takes {stf_bytes_max}",
                hello.stf_bytes_max
            )),
            Role::Epn if hello.data_address.is_empty() => {
                Some(format!("{node} says no data address"))
            }
            Role::Epn if hello.slots == 0 || hello.capacity_bytes == 0 => {
                Some(format!("{node} has room for nothing"))
            }
            Role::Writer => Some(format!("{node} is for EPNs: an ICN knows no writers")),
            Role::Icn | Role::Flp | Role::Epn | Role::Operator => None,
        }
    }
}
