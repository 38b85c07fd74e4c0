//! Tests that the registry over the model keeps the contract of every registry.

use sheaf_membership::contract::{self, RegistryFarm};
use sheaf_membership::{Member, Registry, RegistryEvent};
use sheaf_protocol::{NodeId, Timestamp};
use sheaf_zookeeper::keeper::model::{Model, ModelKeeper};
use sheaf_zookeeper::registry::ZooKeeperRegistry;
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
