//! State machine of one service.

mod holds;
mod moves;
mod status;
#[cfg(test)]
mod tests;

pub use status::{Explained, Reason, ServerStatus, ServiceStatus, Step, Trial};

use crate::config::{ConfigError, ServerConfig, ServiceConfig};
use crate::flow::Flow;
use crate::health::{Health, HealthNews};
use crate::wanted::{ServerId, ServerPlace, Wanted};
use crate::weights::{LoadReport, Weights};
use serde::{Deserialize, Serialize};
use sheaf_protocol::Timestamp;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Time between the change of a plane and the list of connections: packets under way have arrived by then, also in a
/// machine whose processors are all busy.
const SETTLE: Duration = Duration::from_millis(200);
/// Time after which a question to an agent, or a change of a plane, that failed is repeated.
const AGAIN: Duration = Duration::from_millis(500);
/// Time after which a server that is down, and whose agent does not answer, is taken for gone with its connections.
const GONE: Duration = Duration::from_secs(2);
/// Time between two lists of the connections of a server that has pins.
const PINS_EVERY: Duration = Duration::from_secs(1);

/// Step that the driver has to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make the plane look like this, and report by [`Service::handle_applied`].
    Apply {
        /// Number of this state; later ones are larger.
        generation: u64,
        /// The state.
        wanted: Box<Wanted>,
    },
    /// Ask the agent of the server for its connections to the virtual addresses, and report by
    /// [`Service::handle_flows`] or [`Service::handle_no_flows`]; or the plane, and report by
    /// [`Service::handle_listed`].
    AskFlows {
        /// The server.
        server: ServerId,
        /// Number of the question, which the answer has to have.
        question: u64,
    },
    /// A server has come up or gone down.
    Health {
        /// The server.
        server: ServerId,
        /// The change.
        news: HealthNews,
    },
    /// A server that was drained has no slot and no pinned connection left.
    Drained {
        /// The server.
        server: ServerId,
    },
}

/// Order of an operator.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Order {
    /// Give the server no new connection; those that it has go on.
    Drain {
        /// Name of the server.
        server: String,
    },
    /// Give the server connections again.
    Undrain {
        /// Name of the server.
        server: String,
    },
    /// Change the configured weight of the server.
    Weight {
        /// Name of the server.
        server: String,
        /// New weight.
        weight: f64,
    },
    /// Take a further server in.
    Add {
        /// The server.
        server: ServerConfig,
    },
    /// Forget a server that is drained or down.
    Remove {
        /// Name of the server.
        server: String,
    },
}

impl Order {
    /// Returns the name of the kind, as in the body of a request.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Drain { .. } => "drain",
            Self::Undrain { .. } => "undrain",
            Self::Weight { .. } => "weight",
            Self::Add { .. } => "add",
            Self::Remove { .. } => "remove",
        }
    }
}

/// Reason why an order is not carried out.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OrderError {
    /// Name that no server has.
    #[error("found no server {found:?}, expected one of {expected}")]
    Unknown {
        /// Name as found.
        found: String,
        /// Names there are.
        expected: String,
    },
    /// Server of a name that there is.
    #[error("found a server {0:?} already, expected a new name")]
    Taken(String),
    /// Server whose connections would break.
    #[error("server {0:?} still has slots or connections: drain it first")]
    InUse(String),
    /// The last server that gets connections.
    #[error("server {0:?} is the last that gets connections")]
    Last(String),
    /// Fault in the order.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

#[derive(Clone, Debug)]
struct Server {
    config: ServerConfig,
    health: Health,
    down_since: Option<Timestamp>,
    is_draining: bool,
    is_drained_told: bool,
    weights: Weights,
    /// Latest answer of the agent.
    answered_at: Option<Timestamp>,
    /// Latest question for connections that was answered.
    answered: u64,
    flows: Option<usize>,
}

/// Slot on the move.
#[derive(Clone, Debug)]
struct Moving {
    /// Server of its new connections.
    to: ServerId,
    /// Servers that may have connections of it, and whose agents are still to list them: the one before, and those
    /// that it was to move to and that went down meanwhile.
    holders: BTreeSet<ServerId>,
}

/// Server whose connections are to be listed, as slots are leaving it.
#[derive(Clone, Copy, Debug)]
struct Losing {
    /// State of the plane from which on all of them are on the move.
    generation: u64,
    since: Timestamp,
    /// When the plane had followed.
    opened_at: Option<Timestamp>,
    ask_at: Option<Timestamp>,
    /// Question that is out.
    question: Option<u64>,
}

/// Virtual address and the servers behind it.
#[derive(Clone, Debug)]
pub struct Service {
    config: ServiceConfig,
    servers: BTreeMap<ServerId, Server>,
    next_id: u32,
    slots: Vec<ServerId>,
    /// Servers that the table was dealt out for last, and that table.
    dealt: (Vec<moves::Member>, Arc<[ServerId]>),
    moving: BTreeMap<u32, Moving>,
    losing: BTreeMap<ServerId, Losing>,
    /// Pinned connections: server, and when the pin ends in any case.
    pins: BTreeMap<Flow, (ServerId, Timestamp)>,
    pins_asked_at: BTreeMap<ServerId, Timestamp>,
    /// Pinned clients whose new connections wait.
    holds: BTreeMap<Flow, holds::Hold>,
    put_off: BTreeMap<ServerId, holds::PutOff>,
    generation: u64,
    applied: u64,
    apply_error: Option<String>,
    apply_again_at: Option<Timestamp>,
    has_changed: bool,
    /// Whether the plane lists connections, and no agent has to.
    is_listed_by_plane: bool,
    /// Whether the plane has a hash of its own, and slots are shares alone.
    is_spread_by_plane: bool,
    /// When the first table is made, though not every server has been checked.
    begin_at: Timestamp,
    questions: u64,
    weights_at: Timestamp,
    /// Connections that lost their server: their agent did not list them, or their time was up.
    given_up: u64,
    actions: VecDeque<Action>,
}

impl Service {
    /// Creates the service. No server is up before its first good check.
    ///
    /// # Errors
    ///
    /// Fault of the configuration.
    pub fn new(now: Timestamp, config: ServiceConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let servers = config.servers.clone();
        let first = Duration::from_millis(config.health.every_ms + config.health.timeout_ms);
        let mut service = Self {
            config,
            servers: BTreeMap::new(),
            next_id: 0,
            slots: Vec::new(),
            dealt: (Vec::new(), Arc::default()),
            moving: BTreeMap::new(),
            losing: BTreeMap::new(),
            pins: BTreeMap::new(),
            pins_asked_at: BTreeMap::new(),
            holds: BTreeMap::new(),
            put_off: BTreeMap::new(),
            generation: 0,
            applied: 0,
            apply_error: None,
            apply_again_at: None,
            has_changed: true,
            is_listed_by_plane: false,
            is_spread_by_plane: false,
            begin_at: now + first * 2,
            questions: 0,
            weights_at: now,
            given_up: 0,
            actions: VecDeque::new(),
        };
        for server in servers {
            service.insert(server);
        }
        service.turn(now);
        Ok(service)
    }

    fn insert(&mut self, config: ServerConfig) -> ServerId {
        let id = ServerId(self.next_id);
        self.next_id += 1;
        let server = Server {
            config,
            health: Health::default(),
            down_since: None,
            is_draining: false,
            is_drained_told: false,
            weights: Weights::default(),
            answered_at: None,
            answered: 0,
            flows: None,
        };
        self.servers.insert(id, server);
        id
    }

    /// Has the plane asked for connections ([`handle_listed`](Self::handle_listed)), and not the agents of the servers.
    pub fn list_by_plane(&mut self) {
        self.is_listed_by_plane = true;
    }

    /// Takes that the plane spreads connections by a hash of its own: slots are shares alone.
    pub fn spread_by_plane(&mut self) {
        self.is_spread_by_plane = true;
    }

    /// Configuration as it began.
    #[must_use]
    pub fn config(&self) -> &ServiceConfig {
        &self.config
    }

    /// Returns the servers with their configuration.
    pub fn servers(&self) -> impl Iterator<Item = (ServerId, &ServerConfig)> {
        self.servers
            .iter()
            .map(|(id, server)| (*id, &server.config))
    }

    /// Takes the result of a check of a server.
    pub fn handle_check(&mut self, now: Timestamp, id: ServerId, result: Result<(), String>) {
        let Some(server) = self.servers.get_mut(&id) else {
            return;
        };
        if let Some(news) = server.health.handle_check(now, result, &self.config.health) {
            server.down_since = (news == HealthNews::Down).then_some(now);
            self.actions.push_back(Action::Health { server: id, news });
        }
        self.turn(now);
    }

    /// Takes the load of a server from its agent.
    pub fn handle_load(&mut self, now: Timestamp, id: ServerId, report: LoadReport) {
        if let Some(server) = self.servers.get_mut(&id) {
            server.answered_at = Some(now);
            server.flows = usize::try_from(report.transfers).ok();
            server
                .weights
                .handle_report(now, report, &self.config.weights);
        }
        self.turn(now);
    }

    /// Takes the connections of a server to the virtual addresses, listed after [`Action::AskFlows`].
    pub fn handle_flows(&mut self, now: Timestamp, id: ServerId, question: u64, flows: &[Flow]) {
        if let Some(server) = self.servers.get_mut(&id) {
            server.answered_at = Some(now);
        }
        self.handle_listed(now, id, question, flows);
    }

    /// Takes the connections of a server as the plane lists them, which says nothing about the server itself.
    pub fn handle_listed(&mut self, now: Timestamp, id: ServerId, question: u64, flows: &[Flow]) {
        let connections = flows.len();
        let affinity = self.config.affinity;
        let flows: BTreeSet<Flow> = flows.iter().map(|flow| affinity.key(*flow)).collect();
        let Some(server) = self.servers.get_mut(&id) else {
            return;
        };
        if question <= server.answered {
            return; // An older list knows less.
        }
        server.answered = question;
        server.flows = Some(connections);
        if self.is_by_client() {
            self.release(id, question, &flows);
        } else {
            let before = self.pins.len();
            self.pins
                .retain(|flow, (at, _)| *at != id || flows.contains(flow));
            self.has_changed |= self.pins.len() != before;
        }
        let asked = self.losing.get(&id).and_then(|losing| losing.question);
        if asked.is_some_and(|asked| asked <= question) {
            self.settle(now, id, &flows);
        }
        self.turn(now);
    }

    /// Takes that the agent of a server has not answered.
    pub fn handle_no_flows(&mut self, now: Timestamp, id: ServerId, question: u64) {
        if let Some(losing) = self.losing.get_mut(&id)
            && losing.question == Some(question)
        {
            losing.question = None;
            losing.ask_at = Some(now + AGAIN);
        }
        self.turn(now);
    }

    /// Takes the end of an [`Action::Apply`]: the plane is in that state, or as it was before with a reason.
    pub fn handle_applied(&mut self, now: Timestamp, generation: u64, result: Result<(), String>) {
        match result {
            Ok(()) => {
                self.applied = self.applied.max(generation);
                self.apply_error = None;
                let applied = self.applied;
                for losing in self.losing.values_mut() {
                    if losing.generation <= applied && losing.ask_at.is_none() {
                        losing.opened_at = Some(now);
                        losing.ask_at = Some(now + SETTLE);
                    }
                }
                self.holds_applied(now);
            }
            Err(reason) if generation == self.generation => {
                self.apply_error = Some(reason);
                self.apply_again_at = Some(now + AGAIN);
            }
            // A later state is on its way.
            Err(_) => {}
        }
        self.turn(now);
    }

    /// Carries an order out.
    ///
    /// # Errors
    ///
    /// Why it is not; nothing has changed then.
    pub fn handle_order(&mut self, now: Timestamp, order: Order) -> Result<(), OrderError> {
        match order {
            Order::Drain { server } => {
                let id = self.id_of(&server)?;
                let mut others = self
                    .members(now)
                    .into_iter()
                    .filter(|(other, ..)| *other != id);
                if others.next().is_none() {
                    return Err(OrderError::Last(server));
                }
                self.server_mut(id, |server| server.is_draining = true);
            }
            Order::Undrain { server } => {
                let id = self.id_of(&server)?;
                self.server_mut(id, |server| {
                    server.is_draining = false;
                    server.is_drained_told = false;
                });
            }
            Order::Weight { server, weight } => {
                let id = self.id_of(&server)?;
                let mut config = self.servers[&id].config.clone();
                config.weight = weight;
                config.check(&self.config)?;
                self.server_mut(id, |server| server.config = config);
            }
            Order::Add { server } => {
                if self.id_of(&server.name).is_ok() {
                    return Err(OrderError::Taken(server.name));
                }
                server.check(&self.config)?;
                self.insert(server);
            }
            Order::Remove { server } => {
                let id = self.id_of(&server)?;
                if self.is_in_use(id) {
                    return Err(OrderError::InUse(server));
                }
                self.servers.remove(&id);
            }
        }
        self.turn(now);
        Ok(())
    }

    /// Carries an order out that was given to a director before: also a drain of the last server.
    ///
    /// # Errors
    ///
    /// As for [`handle_order`](Self::handle_order).
    pub fn restore(&mut self, now: Timestamp, order: Order) -> Result<(), OrderError> {
        if let Order::Drain { server } = &order {
            let id = self.id_of(server)?;
            self.server_mut(id, |server| server.is_draining = true);
            return Ok(());
        }
        self.handle_order(now, order)
    }

    /// Pins connections to the servers at which a director before kept them, by name.
    pub fn adopt(&mut self, now: Timestamp, flows: &BTreeMap<Flow, String>) {
        let until = now + Duration::from_secs(self.config.drain_s);
        for (flow, name) in flows {
            if let Ok(id) = self.id_of(name) {
                self.pins
                    .insert(self.config.affinity.key(*flow), (id, until));
                self.has_changed = true;
            }
        }
    }

    /// Takes that the plane is out of date on the side of the machine.
    pub fn handle_plane_change(&mut self, now: Timestamp) {
        self.has_changed = true;
        self.turn(now);
    }

    fn server_mut(&mut self, id: ServerId, change: impl FnOnce(&mut Server)) {
        if let Some(server) = self.servers.get_mut(&id) {
            change(server);
        }
    }

    fn id_of(&self, name: &str) -> Result<ServerId, OrderError> {
        let mut all = self.servers.iter();
        let found = all.find(|(_, server)| server.config.name == name);
        found.map(|(id, _)| *id).ok_or_else(|| {
            let names = self
                .servers
                .values()
                .map(|server| server.config.name.as_str());
            OrderError::Unknown {
                found: name.to_owned(),
                expected: names.collect::<Vec<_>>().join(", "),
            }
        })
    }

    /// Whether slots or pins name the server, or its agent has found connections.
    fn is_in_use(&self, id: ServerId) -> bool {
        let flows = self.servers.get(&id).and_then(|server| server.flows);
        let is_up = self.is_up(id);
        flows.is_some_and(|flows| is_up && flows > 0)
            || self.slots.contains(&id)
            || self
                .moving
                .values()
                .any(|slot| slot.to == id || slot.holders.contains(&id))
            || self.pins.values().any(|(at, _)| *at == id)
    }

    /// Does what is due at this time. Called by every event, and by the driver at [`poll_timeout`](Self::poll_timeout).
    pub fn turn(&mut self, now: Timestamp) {
        self.step_weights(now);
        self.give_up(now);
        self.put_off(now);
        self.open(now);
        self.unpin_at_home();
        self.ask(now);
        self.apply(now);
        self.tell_drained();
    }

    fn step_weights(&mut self, now: Timestamp) {
        let config = &self.config.weights;
        let every = Duration::from_millis(config.every_ms);
        if !config.follow_load || now.since(self.weights_at) < every {
            return;
        }
        self.weights_at = now;
        let well = self
            .servers
            .values_mut()
            .filter(|server| server.health.is_up());
        Weights::step(well.map(|server| &mut server.weights), now, config);
    }

    fn is_up(&self, id: ServerId) -> bool {
        self.servers
            .get(&id)
            .is_some_and(|server| server.health.is_up())
    }

    /// Asks the agents for connections: of servers that lose slots once the plane has followed, of servers with pins
    /// from time to time.
    fn ask(&mut self, now: Timestamp) {
        for (id, losing) in &mut self.losing {
            let server = self.servers.get(id);
            let is_listed =
                self.is_listed_by_plane || server.is_some_and(|one| one.config.agent.is_some());
            let is_due = losing.ask_at.is_some_and(|at| now >= at);
            if is_listed && is_due && losing.question.is_none() {
                self.questions += 1;
                losing.question = Some(self.questions);
                self.actions.push_back(Action::AskFlows {
                    server: *id,
                    question: self.questions,
                });
            }
        }
        let pinned: BTreeSet<ServerId> = self.pins.values().map(|(id, _)| *id).collect();
        self.pins_asked_at.retain(|id, _| pinned.contains(id));
        let held = self.held_servers(now);
        for id in pinned {
            let asked_at = self.pins_asked_at.entry(id).or_insert(now);
            if now.since(*asked_at) >= PINS_EVERY || held.contains(&id) {
                *asked_at = now;
                self.questions += 1;
                self.holds_asked(now, id, self.questions);
                self.actions.push_back(Action::AskFlows {
                    server: id,
                    question: self.questions,
                });
            }
        }
    }

    fn apply(&mut self, now: Timestamp) {
        let again = self.apply_again_at.is_some_and(|at| now >= at);
        // A table that a director before this one made is better than none.
        if self.slots.is_empty() || (!self.has_changed && !again) {
            return;
        }
        self.has_changed = false;
        self.apply_again_at = None;
        self.generation += 1;
        // States of the plane that were not carried out are out of date.
        self.actions
            .retain(|action| !matches!(action, Action::Apply { .. }));
        self.actions.push_back(Action::Apply {
            generation: self.generation,
            wanted: Box::new(self.wanted()),
        });
    }

    /// Returns the state that the plane has to carry out.
    #[must_use]
    pub fn wanted(&self) -> Wanted {
        let pins: BTreeMap<Flow, ServerId> = self
            .pins
            .iter()
            .map(|(flow, (id, _))| (*flow, *id))
            .collect();
        let named: BTreeSet<ServerId> = self
            .slots
            .iter()
            .chain(self.moving.values().map(|slot| &slot.to))
            .chain(self.moving.values().flat_map(|slot| &slot.holders))
            .chain(pins.values())
            .copied()
            .collect();
        let place = |id: &ServerId| {
            let config = &self.servers.get(id)?.config;
            Some((
                *id,
                ServerPlace {
                    name: config.name.clone(),
                    addresses: config.addresses.clone(),
                    port: config.port.unwrap_or(self.config.port),
                },
            ))
        };
        Wanted {
            service: self.config.name.clone(),
            addresses: self.config.addresses.clone(),
            port: self.config.port,
            further_ports: self.config.further_ports(),
            affinity: self.config.affinity,
            servers: named.iter().filter_map(place).collect(),
            slots: self.slots.clone(),
            former: self.former(),
            moving: self
                .moving
                .iter()
                .map(|(slot, moving)| (*slot, moving.to))
                .collect(),
            pins,
            held: self.holds.keys().copied().collect(),
        }
    }

    fn tell_drained(&mut self) {
        let drained: Vec<ServerId> = self
            .servers
            .iter()
            .filter(|(id, server)| {
                server.is_draining && !server.is_drained_told && !self.is_in_use(**id)
            })
            .map(|(id, _)| *id)
            .collect();
        for id in drained {
            self.server_mut(id, |server| server.is_drained_told = true);
            self.actions.push_back(Action::Drained { server: id });
        }
    }

    /// Returns the next action for the driver.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Returns when [`turn`](Self::turn) has something to do next, at the latest.
    #[must_use]
    pub fn poll_timeout(&self, now: Timestamp) -> Option<Timestamp> {
        let asks = self
            .losing
            .values()
            .filter(|losing| losing.question.is_none());
        let asks = asks.filter_map(|losing| losing.ask_at);
        let drain = Duration::from_secs(self.config.drain_s);
        let begins = self
            .slots
            .is_empty()
            .then_some(self.begin_at)
            .filter(|at| *at > now);
        let ends = self.losing.values().map(|losing| losing.since + drain);
        let goners = self.servers.iter().filter(|(id, _)| self.is_in_use(**id));
        let goners = goners.filter_map(|(id, server)| {
            let opened = self.losing.get(id).and_then(|losing| losing.opened_at);
            let since = server.answered_at.max(opened).unwrap_or(Timestamp(0));
            server.down_since.map(|down| down.max(since) + GONE)
        });
        let pins = self.pins_asked_at.values().map(|at| *at + PINS_EVERY);
        let pin_ends = self.pins.values().map(|(_, until)| *until);
        let every = Duration::from_millis(self.config.weights.every_ms);
        let weights = self
            .config
            .weights
            .follow_load
            .then(|| self.weights_at + every);
        let shares = self.servers.values();
        let shares = shares.filter_map(|one| one.health.next_share(now, &self.config.health));
        asks.chain(ends)
            .chain(goners.filter(|at| *at > now))
            .chain(pins)
            .chain(pin_ends)
            .chain(self.apply_again_at)
            .chain(begins)
            .chain(weights)
            .chain(shares)
            .chain(self.hold_times(now))
            .min()
    }
}
