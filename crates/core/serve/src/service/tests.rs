//! A service in a world of clients, servers, agents and a plane that are late, fail and die.

mod by_client;

use super::*;
use crate::config::{DataConfig, HealthConfig, WeightsConfig};
use crate::flow::Affinity;
use core::net::IpAddr;
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

const STEP: Duration = Duration::from_millis(10);
const SLOTS: u32 = 251;

fn server(number: u32, has_agent: bool) -> ServerConfig {
    ServerConfig {
        name: format!("s{number}"),
        addresses: vec![IpAddr::from([10, 80, 0, 10 + number as u8])],
        port: None,
        weight: 1.0,
        agent: has_agent.then(|| "10.80.0.11:7401".parse().expect("an address")),
    }
}

fn config(servers: u32, has_agents: bool) -> ServiceConfig {
    ServiceConfig {
        name: "files".to_owned(),
        addresses: vec![IpAddr::from([10, 80, 0, 100])],
        port: 80,
        slots: SLOTS,
        drain_s: 3600,
        backend: None,
        affinity: Affinity::Connection,
        data: DataConfig::default(),
        health: HealthConfig::default(),
        weights: WeightsConfig::default(),
        servers: (0..servers)
            .map(|number| server(number, has_agents))
            .collect(),
    }
}

fn at(ms: u64) -> Timestamp {
    Timestamp(0) + Duration::from_millis(ms)
}

/// Server of the world.
#[derive(Clone, Debug, Default)]
struct Host {
    is_alive: bool,
    /// Whether its program answers checks.
    is_well: bool,
    flows: BTreeSet<Flow>,
}

/// Plane of the world: what a data plane does with packets.
#[derive(Clone, Debug, Default)]
struct Plane {
    wanted: Option<Wanted>,
    /// Connections that began while their slot was on the move, with their servers.
    fresh: BTreeSet<(Flow, ServerId)>,
    /// Connections that took the port of one that is pinned, with their servers.
    reused: BTreeSet<(Flow, ServerId)>,
}

impl Plane {
    fn apply(&mut self, wanted: Wanted) {
        if wanted.moving.is_empty() {
            self.fresh.clear();
        }
        if wanted.pins.is_empty() {
            self.reused.clear();
        }
        self.wanted = Some(wanted);
    }

    fn route(&mut self, flow: Flow, is_new: bool) -> Option<ServerId> {
        let wanted = self.wanted.as_ref()?;
        let slot = wanted.affinity.slot_of(flow, SLOTS);
        if wanted.affinity == Affinity::Client {
            let client = wanted.affinity.key(flow);
            let (pinned, is_held) = (wanted.pins.get(&client), wanted.held.contains(&client));
            return match pinned {
                // A first packet that is dropped comes again.
                Some(_) if is_new && is_held => None,
                None if is_new && wanted.moving.contains_key(&slot) => None,
                Some(pinned) => Some(*pinned),
                None => wanted.slots.get(slot as usize).copied(),
            };
        }
        if let Some(pinned) = wanted.pins.get(&flow) {
            // A client that takes its port again begins again.
            let target = wanted.moving.get(&slot).or(wanted.slots.get(slot as usize));
            let target = *target?;
            if is_new {
                self.reused.insert((flow, target));
            }
            let is_reused = self.reused.contains(&(flow, target));
            return Some(if is_reused { target } else { *pinned });
        }
        if let Some(id) = wanted.moving.get(&slot) {
            if is_new {
                self.fresh.insert((flow, *id));
            }
            let mut candidates = std::iter::once(id).chain(&wanted.former);
            if let Some(id) = candidates.find(|id| self.fresh.contains(&(flow, **id))) {
                return Some(*id);
            }
        }
        wanted.slots.get(slot as usize).copied()
    }
}

/// Event on its way.
enum Late {
    Applied(u64, Box<Wanted>),
    List(ServerId, u64),
    Listed(ServerId, u64, Vec<Flow>),
}

struct World {
    rng: Xoshiro256PlusPlus,
    now: Timestamp,
    service: Service,
    plane: Plane,
    hosts: BTreeMap<ServerId, Host>,
    late: Vec<(Timestamp, Late)>,
    plane_due: Timestamp,
    next_port: u32,
    connections: u64,
    fails_sometimes: bool,
    /// Latest change of health of each server.
    changed_at: BTreeMap<ServerId, Timestamp>,
    /// Whether no agent answers.
    is_silent: bool,
}

impl World {
    fn new(seed: u64, config: ServiceConfig) -> Self {
        let service = Service::new(at(0), config).expect("a good configuration");
        let host = Host {
            is_alive: true,
            is_well: true,
            flows: BTreeSet::new(),
        };
        let hosts = service
            .servers()
            .map(|(id, _)| (id, host.clone()))
            .collect();
        Self {
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            now: at(0),
            service,
            plane: Plane::default(),
            hosts,
            late: Vec::new(),
            plane_due: at(0),
            next_port: 0,
            connections: 0,
            fails_sometimes: false,
            changed_at: BTreeMap::new(),
            is_silent: false,
        }
    }

    fn later(&mut self, ms: std::ops::Range<u64>) -> Timestamp {
        self.now + Duration::from_millis(self.rng.random_range(ms))
    }

    fn flow(&mut self) -> Flow {
        self.next_port += 1;
        if self.service.config().affinity == Affinity::Client {
            // Few clients with many connections.
            return Flow {
                address: IpAddr::from([10, 80, 1, self.rng.random_range(0..100)]),
                port: 1024 + self.next_port as u16,
            };
        }
        let [_, high, low, last] = self.next_port.to_be_bytes();
        Flow {
            address: IpAddr::from([10, high, low, last]),
            port: 1024 + (self.next_port % 60_000) as u16,
        }
    }

    /// Opens a connection: it lives at the server that its first packet reaches.
    fn connect(&mut self) {
        let flow = self.flow();
        self.connect_from(flow);
    }

    fn connect_from(&mut self, flow: Flow) {
        let reached = self.plane.route(flow, true);
        let is_by_client = self.service.config().affinity == Affinity::Client;
        // A pinned client reaches its server also while that is down, until the plane knows that it is gone.
        let is_sure = |id: &ServerId| {
            let since = self.changed_at.get(id).copied().unwrap_or(at(0));
            self.service.is_up(*id) && self.now.since(since) > STEP * 10
        };
        let reached = reached.filter(|id| !is_by_client || is_sure(id));
        if let Some(host) = reached.and_then(|id| self.hosts.get_mut(&id))
            && host.is_alive
        {
            host.flows.insert(flow);
            self.connections += 1;
        }
    }

    /// Sends a packet of every connection; returns those that reach another server than theirs.
    fn broken(&mut self) -> Vec<(ServerId, Flow)> {
        let mut broken = Vec::new();
        for (id, host) in &self.hosts {
            for flow in &host.flows {
                if self.plane.route(*flow, false) != Some(*id) {
                    broken.push((*id, *flow));
                }
            }
        }
        broken
    }

    fn close_some(&mut self) {
        let rng = &mut self.rng;
        for host in self.hosts.values_mut() {
            host.flows.retain(|_| rng.random_range(0..40) > 0);
        }
    }

    fn actions(&mut self) {
        while let Some(action) = self.service.poll_action() {
            match action {
                Action::Apply { generation, wanted } => {
                    // The plane does one after the other.
                    let due = self.later(0..40).max(self.plane_due);
                    self.plane_due = due;
                    self.late.push((due, Late::Applied(generation, wanted)));
                }
                Action::AskFlows { server, question } => {
                    let due = self.later(0..40);
                    self.late.push((due, Late::List(server, question)));
                }
                Action::Health { server, .. } => drop(self.changed_at.insert(server, self.now)),
                Action::Drained { .. } => {}
            }
        }
    }

    fn events(&mut self) {
        let (due, late): (Vec<_>, Vec<_>) = std::mem::take(&mut self.late)
            .into_iter()
            .partition(|(at, _)| *at <= self.now);
        self.late = late;
        for (_, event) in due {
            match event {
                Late::Applied(generation, wanted) => {
                    let fails = self.fails_sometimes && self.rng.random_range(0..5) == 0;
                    let result = if fails {
                        Err("nft: no memory".to_owned())
                    } else {
                        self.plane.apply(*wanted);
                        Ok(())
                    };
                    self.service.handle_applied(self.now, generation, result);
                }
                Late::List(id, question) => match self.hosts.get(&id) {
                    // One that is down and whose agent is silent is gone.
                    Some(host) if host.is_alive && !(self.is_silent && self.service.is_up(id)) => {
                        let flows = host.flows.iter().copied().collect();
                        let due = self.later(0..40);
                        self.late.push((due, Late::Listed(id, question, flows)));
                    }
                    _ => self.service.handle_no_flows(self.now, id, question),
                },
                Late::Listed(id, question, flows) => {
                    self.service.handle_flows(self.now, id, question, &flows);
                }
            }
        }
    }

    /// Goes on for one step. Checks come every 250 ms.
    fn step(&mut self) {
        self.now = self.now + STEP;
        if self.now.0.is_multiple_of(250_000_000) {
            let checks: Vec<(ServerId, bool)> = self
                .hosts
                .iter()
                .map(|(id, host)| (*id, host.is_alive && host.is_well))
                .collect();
            for (id, is_well) in checks {
                let result = if is_well {
                    Ok(())
                } else {
                    Err("timeout".to_owned())
                };
                self.service.handle_check(self.now, id, result);
            }
        }
        if self
            .service
            .poll_timeout(self.now)
            .is_some_and(|due| due <= self.now)
        {
            self.service.turn(self.now);
        }
        self.actions();
        self.events();
        self.actions();
    }

    fn run(&mut self, ms: u64) {
        for _ in 0..ms / 10 {
            self.step();
        }
    }

    fn order(&mut self, order: Order) -> Result<(), OrderError> {
        self.service.handle_order(self.now, order)
    }

    fn status(&self) -> ServiceStatus {
        self.service.status(self.now)
    }
}

fn drain(number: u32) -> Order {
    Order::Drain {
        server: format!("s{number}"),
    }
}

#[test]
fn a_drain_moves_new_connections_and_breaks_none() {
    let mut world = World::new(1, config(6, true));
    world.run(1000);
    (0..600).for_each(|_| world.connect());
    for number in 0..3 {
        world.order(drain(number)).expect("a server to drain");
    }
    assert!(world.order(drain(9)).is_err());
    for _ in 0..200 {
        world.step();
        assert_eq!(world.broken(), []);
        world.connect();
    }
    let status = world.status();
    assert_eq!((status.step, status.moving), (Step::Steady, 0));
    let old: usize = status.servers[..3].iter().map(|server| server.slots).sum();
    assert_eq!((old, status.given_up), (0, 0));
    assert!(
        status.pins > 250,
        "half of 600 were at the three: {}",
        status.pins
    );
    for host in world.hosts.values_mut() {
        host.flows.clear();
    }
    world.run(2500);
    let status = world.status();
    assert!(
        status.servers[..3].iter().all(|server| server.is_drained),
        "{status:?}"
    );
    assert_eq!(status.pins, 0);
    for order in [3, 4].map(drain) {
        world.order(order).expect("others are left");
    }
    assert_eq!(
        world.order(drain(5)),
        Err(OrderError::Last("s5".to_owned()))
    );
}

#[test]
fn a_server_that_was_down_for_a_moment_leaves_no_pins() {
    let mut world = World::new(9, config(3, true));
    world.run(1000);
    (0..300).for_each(|_| world.connect());
    let table = world.status().table;
    world.hosts.get_mut(&ServerId(1)).expect("a host").is_well = false;
    world.run(2000);
    assert!(world.status().pins > 50 && !world.status().servers[1].is_up);
    assert_eq!(world.broken(), []);
    // Those that began elsewhere meanwhile stay there, pinned.
    (0..300).for_each(|_| world.connect());
    world.hosts.get_mut(&ServerId(1)).expect("a host").is_well = true;
    for _ in 0..1000 {
        world.step();
        assert_eq!(world.broken(), []);
    }
    let status = world.status();
    assert_eq!((status.step, &status.table), (Step::Steady, &table));
    let pins: Vec<usize> = status.servers.iter().map(|server| server.pins).collect();
    assert!(pins[0] > 20 && pins[1] == 0 && pins[2] > 20, "{pins:?}");
}

#[test]
fn a_port_that_is_taken_again_begins_again_at_the_new_server() {
    let mut world = World::new(6, config(3, true));
    world.run(1000);
    (0..300).for_each(|_| world.connect());
    let drained = ServerId(0);
    world.order(drain(0)).expect("a server to drain");
    world.run(1000);
    assert!(world.status().pins > 50);
    // In every step a connection ends and its port is taken again, also between a list and the change that follows.
    for _ in 0..400 {
        let host = world.hosts.get_mut(&drained).expect("three hosts");
        if let Some(flow) = host.flows.pop_first() {
            world.connect_from(flow);
        }
        world.step();
        assert_eq!(world.broken(), []);
    }
    world.run(2500);
    assert!(world.status().servers[0].is_drained);
    assert_eq!(world.broken(), []);
}

#[test]
fn without_agents_connections_keep_their_server_until_the_deadline() {
    let mut config = config(3, false);
    config.drain_s = 5;
    let mut world = World::new(2, config);
    world.run(1000);
    (0..300).for_each(|_| world.connect());
    world.order(drain(0)).expect("a server to drain");
    for _ in 0..490 {
        world.step();
        assert_eq!(world.broken(), []);
    }
    assert_eq!(world.status().step, Step::Listing);
    world.run(500);
    assert_eq!(world.status().step, Step::Steady);
    assert!(!world.broken().is_empty(), "the deadline has passed");
}

#[test]
fn a_dead_server_gets_no_new_connection_and_a_hung_one_keeps_its_own() {
    let mut world = World::new(3, config(4, true));
    world.run(1000);
    (0..400).for_each(|_| world.connect());
    let [dead, hung] = [ServerId(0), ServerId(1)];
    *world.hosts.get_mut(&dead).expect("four hosts") = Host::default();
    world.hosts.get_mut(&hung).expect("four hosts").is_well = false;
    let kept = world.hosts[&hung].flows.len();
    assert!(kept > 50);
    world.run(800);
    let before = world.connections;
    (0..200).for_each(|_| world.connect());
    assert_eq!(
        world.connections,
        before + 200,
        "none was lost at the dead one"
    );
    assert_eq!(
        world.hosts[&hung].flows.len(),
        kept,
        "none went to the hung one"
    );
    for _ in 0..400 {
        world.step();
        assert_eq!(world.broken(), []);
    }
    let status = world.status();
    assert_eq!(status.step, Step::Steady, "{status:?}");
    assert_eq!((status.servers[0].slots, status.servers[1].slots), (0, 0));
    assert_eq!(status.servers[1].pins, kept);
}

/// Everything at once; whatever happens, a connection breaks only with its server.
fn torture(seed: u64, affinity: Affinity) {
    let config = ServiceConfig {
        affinity,
        ..config(6, true)
    };
    let mut world = World::new(seed, config.clone());
    world.fails_sometimes = seed.is_multiple_of(2);
    world.run(1000);
    for _ in 0..3000 {
        let number = world.rng.random_range(0..6);
        let id = ServerId(number);
        match world.rng.random_range(0..100) {
            0 => drop(world.order(drain(number))),
            1 | 2 => drop(world.order(Order::Undrain {
                server: format!("s{number}"),
            })),
            3 => {
                let weight = f64::from(world.rng.random_range(1..40_u32)) / 10.0;
                let server = format!("s{number}");
                world
                    .order(Order::Weight { server, weight })
                    .expect("a good weight");
            }
            4 => *world.hosts.get_mut(&id).expect("six hosts") = Host::default(),
            5..=7 => {
                let host = world.hosts.get_mut(&id).expect("six hosts");
                (host.is_alive, host.is_well) = (true, true);
            }
            8 => world.hosts.get_mut(&id).expect("six hosts").is_well = false,
            9..=60 => world.connect(),
            61..=63 => world.close_some(),
            64 => world.is_silent = affinity == Affinity::Client,
            65..=69 => world.is_silent = false,
            _ => {}
        }
        world.step();
        // Of a server that was down together with its agent for so long, nothing is kept; the world's servers come
        // back without the connections that they had.
        assert_eq!(world.broken(), [], "seed {seed} at {:?}", world.now);
    }
    // The world gets quiet: the table depends on nothing but the state.
    for host in world.hosts.values_mut() {
        (host.is_alive, host.is_well) = (true, true);
    }
    world.fails_sometimes = false;
    world.is_silent = false;
    for number in 0..6 {
        let server = format!("s{number}");
        world.order(Order::Undrain { server }).expect("a server");
    }
    world.run(130_000);
    let status = world.status();
    assert_eq!(status.step, Step::Steady, "seed {seed}: {status:?}");
    let mut config = config;
    for (server, found) in config.servers.iter_mut().zip(&status.servers) {
        server.weight = found.weight;
    }
    let mut other = World::new(0, config);
    other.run(1000);
    assert_eq!(other.status().table, status.table, "seed {seed}");
}

#[test]
fn no_connection_breaks_whatever_happens() {
    for seed in 0..40 {
        torture(seed, Affinity::Connection);
    }
}

#[test]
fn a_trial_says_what_would_move_and_moves_nothing() {
    let mut config = config(6, true);
    config.slots = 4093;
    let mut world = World::new(4, config);
    world.run(1000);
    let before = world.service.wanted();
    let trial = world
        .service
        .trial(world.now, drain(2))
        .expect("a server to drain");
    assert_eq!(world.service.wanted(), before);
    assert_eq!(trial.servers["s2"][1], 0);
    let beyond = trial.moved - trial.needed;
    assert!(
        beyond * 100 <= trial.slots,
        "{beyond} of {} slots",
        trial.slots
    );
    let add = Order::Add {
        server: server(6, true),
    };
    let trial = world
        .service
        .trial(world.now, add.clone())
        .expect("a new server");
    assert!(trial.servers["s6"][1] >= trial.slots / 7 - 1);
    assert_eq!(world.order(add.clone()), Ok(()));
    assert_eq!(world.order(add), Err(OrderError::Taken("s6".to_owned())));
    let remove = |server: &str| Order::Remove {
        server: server.to_owned(),
    };
    assert_eq!(world.order(remove("s6")), Ok(()));
    assert_eq!(
        world.order(remove("s1")),
        Err(OrderError::InUse("s1".to_owned()))
    );
}

#[test]
fn an_explanation_agrees_with_the_plane() {
    let mut world = World::new(5, config(6, true));
    assert_eq!(
        world.service.explain(Flow {
            address: IpAddr::from([10, 0, 0, 1]),
            port: 1
        }),
        None
    );
    world.run(1000);
    (0..300).for_each(|_| world.connect());
    world.order(drain(0)).expect("a server to drain");
    world.run(500);
    let mut reasons = BTreeMap::new();
    let flows: Vec<Flow> = world
        .hosts
        .values()
        .flat_map(|host| host.flows.clone())
        .collect();
    for flow in flows {
        let explained = world.service.explain(flow).expect("servers are well");
        let server = world.plane.route(flow, false).expect("servers are well");
        assert_eq!(explained.server, format!("s{}", server.0));
        *reasons
            .entry(format!("{:?}", explained.reason))
            .or_insert(0) += 1;
    }
    assert!(reasons["Pin"] > 20 && reasons["Slot"] > 200, "{reasons:?}");
}

/// Has `service` run from `from` to `until` with a plane that follows at once; returns the questions for connections.
fn follow(service: &mut Service, from: u64, until: u64) -> Vec<(ServerId, u64)> {
    let mut asked = Vec::new();
    for ms in (from..until).step_by(10) {
        service.turn(at(ms));
        while let Some(action) = service.poll_action() {
            match action {
                Action::Apply { generation, .. } => {
                    service.handle_applied(at(ms), generation, Ok(()));
                }
                Action::AskFlows { server, question } => asked.push((server, question)),
                Action::Health { .. } | Action::Drained { .. } => {}
            }
        }
    }
    asked
}

#[test]
fn connections_of_a_plane_with_other_ways_are_kept_whatever_their_slot() {
    let flows: Vec<Flow> = (1..=60)
        .map(|port| Flow {
            address: IpAddr::from([10, 80, 1, 1]),
            port,
        })
        .collect();
    let all = 60..=60;
    for (is_listed, is_spread, expected) in [
        (true, false, all.clone()),
        (false, true, all),
        // Those of its slots.
        (false, false, 1..=40),
    ] {
        // A plane that lists connections needs no agents.
        let mut service = Service::new(at(0), config(3, !is_listed)).expect("a good configuration");
        if is_listed {
            service.list_by_plane();
        }
        if is_spread {
            service.spread_by_plane();
        }
        for number in [0, 1, 2, 0, 1, 2] {
            service.handle_check(at(0), ServerId(number), Ok(()));
        }
        assert_eq!(follow(&mut service, 0, 100), []);
        service
            .handle_order(at(100), drain(0))
            .expect("a server to drain");
        let asked = follow(&mut service, 100, 1000);
        assert!(asked.iter().any(|(id, _)| *id == ServerId(0)), "{asked:?}");
        for (id, question) in asked {
            let flows = match id {
                ServerId(0) => &flows[..],
                _ => &[],
            };
            match is_listed {
                true => service.handle_listed(at(1000), id, question, flows),
                false => service.handle_flows(at(1000), id, question, flows),
            }
        }
        let pinned = service.wanted().pins.len();
        assert!(
            expected.contains(&pinned),
            "{is_listed} {is_spread}: {pinned}"
        );
        assert!(!service.status(at(1000)).servers[0].is_drained);
        let asked = follow(&mut service, 1000, 3000);
        let (_, question) = asked.last().copied().expect("it is asked again");
        service.handle_listed(at(3000), ServerId(0), question, &[]);
        follow(&mut service, 3000, 3100);
        assert!(service.status(at(3100)).servers[0].is_drained);
    }
}
