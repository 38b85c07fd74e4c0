//! Tests that the embedded registry keeps the contract.

use sheaf_membership::contract::{self, RegistryFarm};
use sheaf_membership::embedded::EmbeddedRegistry;
use sheaf_membership::{LivenessConfig, Member, Registry, RegistryEvent};
use sheaf_protocol::{Incarnation, NodeId, Timestamp};
use std::time::Duration;

/// Messages that an ICN receives from its nodes.
struct Embedded {
    now: Timestamp,
    icn: EmbeddedRegistry,
    nodes: Vec<(NodeId, Incarnation)>,
}

impl Embedded {
    fn latest(&mut self, node: NodeId) -> (NodeId, Incarnation) {
        let found = self.nodes.iter().rposition(|(one, _)| *one == node);
        self.nodes.remove(found.expect("a process of the node"))
    }
}

impl RegistryFarm for Embedded {
    fn observer(&mut self) -> &mut dyn Registry {
        &mut self.icn
    }

    fn next(&mut self) -> Option<RegistryEvent> {
        let end = self.now + Duration::from_secs(5);
        while self.now < end {
            if let Some(event) = self.icn.poll(self.now) {
                return Some(event);
            }
            self.now = self.now + Duration::from_millis(20);
            for (node, incarnation) in &self.nodes {
                self.icn.handle_heard(self.now, *node, *incarnation);
            }
            self.icn.handle_tick(self.now);
        }
        None
    }

    fn start(&mut self, me: Member) {
        let life = (me.node, me.incarnation);
        // A refused process ends.
        if self.icn.handle_hello(self.now, me).is_ok() {
            self.nodes.push(life);
        }
    }

    fn leave(&mut self, node: NodeId) {
        let (node, incarnation) = self.latest(node);
        self.icn.handle_left(node, incarnation);
        self.icn.handle_closed(self.now, node, incarnation);
    }

    fn kill(&mut self, node: NodeId) {
        let (node, incarnation) = self.latest(node);
        self.icn.handle_closed(self.now, node, incarnation);
    }

    /// Closes the stream from this side; the node sends its hello again.
    fn expire(&mut self, node: NodeId) {
        let (node, incarnation) = self.latest(node);
        let known = self.icn.view();
        let me = known.iter().find(|member| member.node == node).cloned();
        self.icn.handle_closed(self.now, node, incarnation);
        self.start(me.expect("it has joined"));
    }

    fn set_away(&mut self, is_away: bool) {
        self.icn.handle_icn(!is_away);
    }

    fn garble(&mut self, _node: NodeId) -> bool {
        false
    }
}

#[test]
fn the_icn_as_registry_keeps_to_the_contract() {
    contract::check(|| Embedded {
        now: Timestamp(0),
        icn: EmbeddedRegistry::new(LivenessConfig::default(), &[]),
        nodes: Vec::new(),
    });
}
