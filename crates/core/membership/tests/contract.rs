//! Tests that the embedded registry and the one in virtual time keep the contract.

use sheaf_membership::contract::{self, RegistryFarm};
use sheaf_membership::embedded::EmbeddedRegistry;
use sheaf_membership::keeper::model::{Model, ModelKeeper};
use sheaf_membership::zookeeper::ZooKeeperRegistry;
use sheaf_membership::{LivenessConfig, Member, Registry, RegistryEvent};
use sheaf_protocol::{Incarnation, NodeId, Timestamp};
use std::time::Duration;

const SESSION: Duration = Duration::from_millis(400);
/// Time without an event after which none is expected: some sessions.
const PATIENCE: Duration = Duration::from_millis(2000);

/// Registries of one process each over one model.
struct Virtual {
    now: Timestamp,
    model: Model,
    observer: ZooKeeperRegistry<ModelKeeper>,
    nodes: Vec<(NodeId, ZooKeeperRegistry<ModelKeeper>)>,
}

impl Virtual {
    fn new(seed: u64) -> Self {
        let now = Timestamp(0);
        let model = Model::new(seed, Duration::from_micros(100), Duration::from_millis(3));
        let keeper = model.client(now, SESSION);
        Self {
            now,
            observer: ZooKeeperRegistry::new(keeper, "memory", "/farm/one", &[]),
            nodes: Vec::new(),
            model,
        }
    }

    fn latest(&mut self, node: NodeId) -> usize {
        let found = self.nodes.iter().rposition(|(one, _)| *one == node);
        found.expect("a process of the node")
    }
}

impl RegistryFarm for Virtual {
    fn observer(&mut self) -> &mut dyn Registry {
        &mut self.observer
    }

    fn next(&mut self) -> Option<RegistryEvent> {
        let end = self.now + PATIENCE;
        loop {
            for (_, registry) in &mut self.nodes {
                while registry.poll(self.now).is_some() {}
            }
            if let Some(event) = self.observer.poll(self.now) {
                return Some(event);
            }
            let all = self.nodes.iter().map(|(_, registry)| registry);
            let due = all.chain([&self.observer]).filter_map(Registry::next_due);
            let next = due.min().unwrap_or(end).max(Timestamp(self.now.0 + 1));
            // A session that runs out is due for the servers only.
            self.now = next.min(self.now + Duration::from_millis(10));
            if self.now >= end {
                return None;
            }
        }
    }

    fn start(&mut self, me: Member) {
        let keeper = self.model.client(self.now, SESSION);
        let mut registry = ZooKeeperRegistry::new(keeper, "memory", "/farm/one", &[me.node.role]);
        let node = me.node;
        registry.join(self.now, me);
        self.nodes.push((node, registry));
    }

    fn leave(&mut self, node: NodeId) {
        let latest = self.latest(node);
        let (_, mut registry) = self.nodes.remove(latest);
        registry.leave(self.now);
        // The process ends when the answer to its request has been received; see below.
        for _ in 0..100 {
            self.now = self.now + Duration::from_micros(100);
            while registry.poll(self.now).is_some() {}
        }
    }

    fn kill(&mut self, node: NodeId) {
        let latest = self.latest(node);
        self.nodes.remove(latest);
    }

    fn expire(&mut self, node: NodeId) {
        let latest = self.latest(node);
        let client = self.nodes[latest].1.keeper().id();
        self.model.expire(self.now, client);
    }

    fn set_away(&mut self, is_away: bool) {
        let client = self.observer.keeper().id();
        self.model.set_cut(self.now, client, is_away);
    }

    fn garble(&mut self, node: NodeId) -> bool {
        let path = format!("/farm/one/nodes/{}", Member::name_of(node));
        self.model.write(self.now, &path, b"\xff\x00{}");
        true
    }
}

#[test]
fn the_registry_in_virtual_time_keeps_to_the_contract() {
    for seed in 0..60 {
        println!("seed {seed}");
        contract::check(|| Virtual::new(seed));
    }
}

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
