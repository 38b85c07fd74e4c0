//! Tests of the registry in a ZooKeeper beyond the contract, against the model.

use sheaf_membership::{Member, Registry, RegistryEvent};
use sheaf_protocol::{EpnId, Incarnation, NodeId, Role, Timestamp};
use sheaf_zookeeper::keeper::model::{Model, ModelKeeper};
use sheaf_zookeeper::registry::ZooKeeperRegistry;
use std::time::Duration;

const SESSION: Duration = Duration::from_millis(400);

type Node = ZooKeeperRegistry<ModelKeeper>;

/// One observer of `interest` and the nodes beside it; every line of what happened.
struct World {
    now: Timestamp,
    model: Model,
    observer: Node,
    nodes: Vec<Node>,
}

impl World {
    fn new(interest: &[Role]) -> Self {
        let now = Timestamp(0);
        let model = Model::new(1, Duration::from_micros(100), Duration::from_millis(2));
        let keeper = model.client(now, SESSION);
        Self {
            now,
            observer: ZooKeeperRegistry::new(keeper, "memory", "/sheaf", interest),
            nodes: Vec::new(),
            model,
        }
    }

    fn start(&mut self, node: NodeId, incarnation: u64) {
        let keeper = self.model.client(self.now, SESSION);
        let mut registry = ZooKeeperRegistry::new(keeper, "memory", "/sheaf", &[Role::Flp]);
        let incarnation = Incarnation(incarnation);
        let address = "a:1".to_owned();
        registry.join(
            self.now,
            Member {
                node,
                incarnation,
                address,
            },
        );
        self.nodes.push(registry);
    }

    /// Lets `ms` go by; returns the events of the observer and the nodes, as text.
    fn run(&mut self, ms: u64) -> String {
        let end = self.now + Duration::from_millis(ms);
        let mut said = Vec::new();
        while self.now < end {
            for (index, node) in self.nodes.iter_mut().enumerate() {
                while let Some(event) = node.poll(self.now) {
                    if let RegistryEvent::Problem { what } = event {
                        said.push(format!("node {index}: {what}"));
                    }
                }
            }
            while let Some(event) = self.observer.poll(self.now) {
                said.push(match event {
                    RegistryEvent::View(view) => {
                        let member = |one: &Member| format!("{}/{}", one.node, one.incarnation.0);
                        format!(
                            "[{}]",
                            view.iter().map(member).collect::<Vec<_>>().join(" ")
                        )
                    }
                    RegistryEvent::Away { .. } => "away".to_owned(),
                    RegistryEvent::Back => "back".to_owned(),
                    RegistryEvent::Problem { what } => what,
                });
            }
            self.now = self.now + Duration::from_millis(1);
        }
        said.join("; ")
    }
}

fn epn(index: u16) -> NodeId {
    EpnId(index).into()
}

#[test]
fn garbage_over_a_node_is_named_once_and_the_last_good_state_stays() {
    let mut world = World::new(&[]);
    world.start(epn(1), 7);
    assert_eq!(world.run(100), "[epn:1/7]");
    // Its process is stopped, so it cannot mend its place.
    let id = world.nodes[0].keeper().id();
    let node = world.nodes.remove(0);
    world.model.set_paused(world.now, id, true);
    let path = "/sheaf/nodes/epn-0001";
    world
        .model
        .write(world.now, path, b"sheaf 1\nincarnation many\n");
    let said = world.run(100);
    let named = "/sheaf/nodes/epn-0001: found \"many\", expected an incarnation from 0 to 2^64 - 1";
    assert_eq!(said, named);
    assert_eq!(world.observer.view().len(), 1);
    // Its session runs out.
    assert_eq!(world.run(1000), "[]");
    // It goes on, registers with a new session, and nothing of the garbage is left.
    world.model.set_paused(world.now, id, false);
    world.nodes.push(node);
    assert_eq!(world.run(100), "[epn:1/7]");
}

#[test]
fn a_node_mends_its_own_place_and_says_so() {
    let mut world = World::new(&[]);
    world.start(epn(1), 7);
    world.run(100);
    let path = "/sheaf/nodes/epn-0001";
    world.model.write(world.now, path, b"");
    assert!(
        world
            .run(100)
            .contains("node 0: /sheaf/nodes/epn-0001: found \"\"")
    );
    assert_eq!(world.observer.view().len(), 1);
    world.model.remove(world.now, path);
    world.run(100);
    assert_eq!(world.observer.view().len(), 1);
}

#[test]
fn two_processes_with_one_index_are_told_so() {
    let mut world = World::new(&[]);
    world.start(epn(1), 7);
    world.run(100);
    world.start(epn(1), 6);
    assert_eq!(
        world.run(100),
        "node 1: /sheaf/nodes/epn-0001: incarnation 7 is registered, but this is 6; is one index given to two processes?"
    );
    // When the later one has left, the earlier one has the place.
    let now = world.now;
    world.nodes[0].leave(now);
    world.run(3);
    world.run(100);
    assert_eq!(world.observer.view()[0].incarnation, Incarnation(6));
}

#[test]
fn only_roles_of_interest_are_read() {
    let mut world = World::new(&[Role::Icn]);
    world.start(epn(1), 7);
    world.start(NodeId::ICN, 3);
    assert_eq!(world.run(100), "[icn:0/3]");
    world
        .model
        .write(world.now, "/sheaf/nodes/epn-0002", b"garbage");
    assert_eq!(world.run(100), "");
    world
        .model
        .write(world.now, "/sheaf/nodes/nonsense\x1b[31m", b"");
    // Every node that lists reports it.
    let said = world.run(100);
    let what = "/sheaf/nodes: found the name \"nonsense\\u{1b}[31m\", expected a role and an index such as epn-0003";
    assert_eq!(said.matches(what).count(), 3, "{said}");
}

#[test]
fn all_servers_away_and_back_again_is_said_once_and_costs_no_view() {
    let mut world = World::new(&[]);
    world.start(epn(1), 7);
    world.start(epn(2), 7);
    world.run(100);
    world.model.set_up(world.now, false);
    assert_eq!(world.run(5000), "away");
    assert_eq!(world.observer.view().len(), 2);
    world.model.set_up(world.now, true);
    assert_eq!(world.run(1000), "back");
}
