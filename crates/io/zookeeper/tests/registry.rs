//! The registry keeps to its contract on real servers.

use sheaf_membership::contract::{self, RegistryFarm};
use sheaf_membership::{Member, Registry, RegistryEvent};
use sheaf_protocol::{NodeId, Timestamp};
use sheaf_zookeeper::keeper::{Keeper, KeeperEvent, Kind, Request};
use sheaf_zookeeper::registry::ZooKeeperRegistry;
use sheaf_zookeeper::server::{Ensemble, Flow, Home, Relay, ServerOptions};
use sheaf_zookeeper::{Live, Waker, ZooKeeperOptions};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex};
use std::time::{Duration, Instant};

const SESSION: Duration = Duration::from_millis(400);
/// How long nothing has to happen until nothing will: some sessions.
const PATIENCE: Duration = Duration::from_millis(1200);

/// One server for all tests of this file. It ends with the process.
static SERVER: LazyLock<Option<Ensemble>> = LazyLock::new(|| {
    let home = Home::for_tests()?;
    let server = Ensemble::start(&home, &ServerOptions::standalone());
    Some(server.unwrap_or_else(|error| panic!("{error}")))
});

/// Woken by every registry.
#[derive(Default)]
struct Rings {
    count: Mutex<u64>,
    rung: Condvar,
}

impl Rings {
    fn waker(self: &Arc<Self>) -> Waker {
        let rings = self.clone();
        Box::new(move || {
            *rings.count.lock().unwrap() += 1;
            rings.rung.notify_all();
        })
    }

    /// Waits until there were more than `seen` rings, or until `end`; gives how many there were.
    fn wait(&self, seen: u64, end: Instant) -> u64 {
        let count = self.count.lock().unwrap();
        let left = end.saturating_duration_since(Instant::now());
        *self
            .rung
            .wait_timeout_while(count, left, |count| *count <= seen)
            .unwrap()
            .0
    }
}

type Node = ZooKeeperRegistry<Live>;

struct Real {
    start: Instant,
    root: String,
    rings: Arc<Rings>,
    relay: Relay,
    observer: Node,
    nodes: Vec<(NodeId, Relay, Node)>,
}

impl Real {
    fn new(server: &Ensemble) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let root = format!("/test/{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let rings = Arc::new(Rings::default());
        let relay = Relay::start(&server.addresses()[0]).unwrap();
        let observer = registry(&relay, &root, &rings);
        Self {
            start: Instant::now(),
            root,
            rings,
            relay,
            observer,
            nodes: Vec::new(),
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp(0) + self.start.elapsed()
    }

    fn take(&mut self, node: NodeId) -> (NodeId, Relay, Node) {
        let latest = self.nodes.iter().rposition(|(one, ..)| *one == node);
        self.nodes.remove(latest.expect("a process of the node"))
    }
}

fn registry(relay: &Relay, root: &str, rings: &Arc<Rings>) -> Node {
    let options = ZooKeeperOptions::new(vec![relay.address()], SESSION);
    let live = Live::start(&options, rings.waker()).unwrap();
    ZooKeeperRegistry::new(live, "zookeeper", root, &[])
}

impl RegistryFarm for Real {
    fn observer(&mut self) -> &mut dyn Registry {
        &mut self.observer
    }

    fn next(&mut self) -> Option<RegistryEvent> {
        let end = Instant::now() + PATIENCE;
        loop {
            let seen = *self.rings.count.lock().unwrap();
            let now = self.now();
            for (_, _, node) in &mut self.nodes {
                while node.poll(now).is_some() {}
            }
            if let Some(event) = self.observer.poll(now) {
                return Some(event);
            }
            if Instant::now() >= end {
                return None;
            }
            let all = self.nodes.iter().map(|(.., node)| node);
            let due = all
                .chain([&self.observer])
                .filter_map(Registry::next_due)
                .min();
            let due = due.map_or(end, |due| Instant::now() + due.since(now));
            self.rings.wait(seen, due.min(end));
        }
    }

    fn start(&mut self, me: Member) {
        let relay = Relay::start(&SERVER.as_ref().unwrap().addresses()[0]).unwrap();
        let mut node = registry(&relay, &self.root, &self.rings);
        let id = me.node;
        node.join(self.now(), me);
        self.nodes.push((id, relay, node));
    }

    fn leave(&mut self, node: NodeId) {
        let (_, _relay, mut registry) = self.take(node);
        let now = self.now();
        while registry.poll(now).is_some() {}
        registry.leave(now);
    }

    fn kill(&mut self, node: NodeId) {
        let (_, _relay, registry) = self.take(node);
        registry.into_keeper().vanish();
    }

    fn expire(&mut self, node: NodeId) {
        let set = |farm: &Self, flow| {
            let latest = farm.nodes.iter().rev().find(|(one, ..)| *one == node);
            latest.expect("a process of the node").1.set(flow);
        };
        set(self, Flow::Held);
        while self
            .observer
            .view()
            .iter()
            .any(|member| member.node == node)
        {
            assert!(self.next().is_some(), "the session does not run out");
        }
        set(self, Flow::Open);
    }

    fn set_away(&mut self, is_away: bool) {
        self.relay
            .set(if is_away { Flow::Closed } else { Flow::Open });
    }

    fn garble(&mut self, node: NodeId) -> bool {
        let options = ZooKeeperOptions::new(SERVER.as_ref().unwrap().addresses(), SESSION);
        let mut keeper = Live::start(&options, self.rings.waker()).unwrap();
        let path = format!("{}/nodes/{}", self.root, Member::name_of(node));
        let write = || Request::Create {
            path: path.clone(),
            data: b"\xff\x00{}".to_vec(),
            kind: Kind::Persistent,
        };
        loop {
            let seen = *self.rings.count.lock().unwrap();
            match keeper.poll(self.now()) {
                Some(KeeperEvent::Connected { .. }) => {
                    keeper.submit(self.now(), write());
                }
                Some(KeeperEvent::Answer(_, answer)) => {
                    answer.unwrap();
                    return true;
                }
                Some(_) => {}
                None => drop(self.rings.wait(seen, Instant::now() + PATIENCE)),
            }
        }
    }
}

#[test]
fn the_registry_on_a_real_server_keeps_to_the_contract() {
    let Some(server) = &*SERVER else { return };
    contract::check(|| Real::new(server));
}
