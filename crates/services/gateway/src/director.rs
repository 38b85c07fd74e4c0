//! The director: threads and a plane around the services.

mod probes;

use crate::config::{GatewayConfig, OnStop};
use crate::error::GatewayError;
use crate::event::{Ask, Event, Named, OrderRequest, Status};
use crate::http;
use crate::metrics::Meters;
use crate::orders::Orders;
use probes::Probes;
use sheaf_metrics::Registry;
use sheaf_planes::Plane;
use sheaf_protocol::Timestamp;
use sheaf_serve::{
    Action, Explained, Flow, HealthNews, Order, OrderError, Reason, ServerId, Service, Trial,
};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tracing::{error, info, warn};

/// Events that wait; those that give them wait when it is full.
const EVENTS: usize = 4096;
/// Time between two looks whether the machine still follows, for instance after a server got another network card.
const LOOK: Duration = Duration::from_secs(1);

/// Director that runs. It ends when dropped; what becomes of the plane is in its configuration.
#[derive(Debug)]
pub struct Director {
    address: SocketAddr,
    events: SyncSender<Event>,
    thread: Option<JoinHandle<()>>,
    stop_http: watch::Sender<bool>,
    http: Option<JoinHandle<()>>,
}

impl Director {
    /// Starts the director: its plane, the checks of its servers, HTTP.
    ///
    /// # Errors
    ///
    /// Fault of the configuration, or why a part does not begin. Nothing is left then.
    pub fn start(config: &GatewayConfig) -> Result<Self, GatewayError> {
        config.check()?;
        let (events, received) = sync_channel(EVENTS);
        let registry = Arc::new(Registry::default());
        let meters = Meters::new(registry.clone());
        let running = Running::new(config, events.clone(), received, meters)?;
        let (stop_http, stopped) = watch::channel(false);
        let router = http::router(events.clone(), registry);
        let (address, http) =
            crate::agent::serve("serve-http", config.director.listen, router, stopped)?;
        let thread = std::thread::Builder::new().name("serve-director".to_owned());
        let thread = thread
            .spawn(move || running.run())
            .map_err(GatewayError::Thread)?;
        Ok(Self {
            address,
            events,
            thread: Some(thread),
            stop_http,
            http: Some(http),
        })
    }

    /// Address of HTTP, with the port that was free if 0 was asked for.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Director {
    fn drop(&mut self) {
        let _ = self.stop_http.send(true);
        // A director that is gone already has nothing to stop.
        let _ = self.events.send(Event::Stop);
        for thread in [self.thread.take(), self.http.take()].into_iter().flatten() {
            let _ = thread.join(); // A panic was printed there.
        }
    }
}

/// The thread of the director.
struct Running {
    config: GatewayConfig,
    plane: Box<dyn Plane>,
    services: Vec<Service>,
    orders: Orders,
    probes: Probes,
    received: Receiver<Event>,
    meters: Meters,
    began: Instant,
    look_at: Instant,
}

impl Running {
    fn new(
        config: &GatewayConfig,
        events: SyncSender<Event>,
        received: Receiver<Event>,
        meters: Meters,
    ) -> Result<Self, GatewayError> {
        let mut plane = sheaf_planes::named(&config.director.plane, &config.plane())?;
        let orders = match &config.director.state {
            Some(path) => Orders::load(path).map_err(|error| GatewayError::Read {
                path: path.clone(),
                error,
            })?,
            None => Orders::default(),
        };
        let now = Timestamp(0);
        let mut services = Vec::new();
        for service in &config.services {
            let name = service.name.clone();
            let mut service = Service::new(now, service.clone())?;
            for order in orders.of(&name) {
                if let Err(error) = service.restore(now, order.clone()) {
                    warn!(service = name, %error, "An order of the state file is not carried out");
                }
            }
            // Connections that a director before this one kept in their place stay there.
            if let Some(installed) = plane.read_back(&name)? {
                let kept = installed.flows.len();
                service.adopt(now, &installed.flows);
                info!(
                    service = name,
                    connections = kept,
                    "Took over from the director before"
                );
            }
            if config.lists_connections() {
                service.list_by_plane();
            }
            if !config.follows_slots() {
                service.spread_by_plane();
            }
            services.push(service);
        }
        Ok(Self {
            config: config.clone(),
            plane,
            services,
            orders,
            probes: Probes::new(events, config.is_direct_return()),
            received,
            meters,
            began: Instant::now(),
            look_at: Instant::now() + LOOK,
        })
    }

    fn now(&self) -> Timestamp {
        Timestamp(0) + self.began.elapsed()
    }

    fn run(mut self) {
        let is_stopped = |event: &Event| matches!(event, Event::Stop);
        self.probes.follow(&self.services);
        loop {
            self.act();
            let wait = self.wait();
            match self.received.recv_timeout(wait) {
                Ok(event) if is_stopped(&event) => break,
                Ok(event) => self.handle(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.turn();
        }
        drop(self.probes);
        if self.config.director.on_stop == OnStop::Undo {
            for service in &self.config.services {
                if let Err(error) = self.plane.undo(&service.name) {
                    error!(service = service.name, %error, "The plane is not undone");
                }
            }
        }
    }

    fn wait(&self) -> Duration {
        let now = self.now();
        let due = self
            .services
            .iter()
            .filter_map(|service| service.poll_timeout(now))
            .min();
        let until_look = self.look_at.saturating_duration_since(Instant::now());
        due.map_or(until_look, |due| due.since(now).min(until_look))
    }

    fn turn(&mut self) {
        let now = self.now();
        for service in &mut self.services {
            if service.poll_timeout(now).is_some_and(|due| due <= now) {
                service.turn(now);
            }
        }
        if Instant::now() < self.look_at {
            return;
        }
        self.look_at = Instant::now() + LOOK;
        for service in &mut self.services {
            let name = service.config().name.clone();
            match self.plane.is_out_of_date(&name) {
                Ok(false) => {}
                Ok(true) => service.handle_plane_change(now),
                Err(error) => warn!(service = name, %error, "The plane cannot be looked at"),
            }
        }
    }

    fn handle(&mut self, event: Event) {
        let now = self.now();
        match event {
            Event::Check(at, id, result) => {
                self.meter(at, id, |meters, service, server| {
                    meters.checked(service, server, result.is_ok());
                });
                self.with(at, |service| service.handle_check(now, id, result));
            }
            Event::Load(at, id, report) => {
                self.with(at, |service| service.handle_load(now, id, report));
            }
            Event::Flows(at, id, question, flows) => {
                self.with(at, |service| {
                    service.handle_flows(now, id, question, &flows);
                });
            }
            Event::NoFlows(at, id, question) => {
                self.meter(at, id, Meters::unanswered);
                self.with(at, |service| {
                    service.handle_no_flows(now, id, question);
                });
            }
            Event::Unanswered(at, id) => self.meter(at, id, Meters::unanswered),
            Event::Ask(ask) => self.answer(now, ask),
            Event::Stop => {}
        }
    }

    fn with(&mut self, at: usize, work: impl FnOnce(&mut Service)) {
        if let Some(service) = self.services.get_mut(at) {
            work(service);
        }
    }

    /// Records something of a server; of one that is gone meanwhile, nothing.
    fn meter(&self, at: usize, id: ServerId, record: impl FnOnce(&Meters, &str, &str)) {
        let service = self.services.get(at);
        let server = service.and_then(|service| {
            let mut all = service.servers();
            all.find(|(one, _)| *one == id)
        });
        if let (Some(service), Some((_, server))) = (service, server) {
            record(&self.meters, &service.config().name, &server.name);
        }
    }

    /// Answers HTTP. One that does not wait for its answer any more gets none.
    fn answer(&mut self, now: Timestamp, ask: Ask) {
        match ask {
            Ask::Status(answer) => drop(answer.send(Box::new(self.status(now)))),
            Ask::Metrics(answer) => {
                let status = self.status(now);
                self.meters.take(&status);
                let _ = answer.send(());
            }
            Ask::Order(service, request, answer) => {
                let found = match self.place(&service) {
                    Ok(at) => Named::Found(self.order(now, at, request)),
                    Err(names) => Named::Unknown(names),
                };
                drop(answer.send(found));
            }
            Ask::Explain(service, client, answer) => {
                let found = match self.place(&service) {
                    Ok(at) => Named::Found(self.explain(at, client)),
                    Err(names) => Named::Unknown(names),
                };
                drop(answer.send(found));
            }
        }
    }

    fn explain(&mut self, at: usize, client: Flow) -> Result<Explained, String> {
        let service = &self.services[at];
        let explained = service.explain(client);
        let explained =
            explained.ok_or_else(|| "no server of the service has ever been well".to_owned())?;
        if self.config.follows_slots() {
            return Ok(explained);
        }
        let known = self.plane.connections(&service.config().name);
        let mut known = known.map_err(|error| error.to_string())?;
        let server = known.remove(&client.canonical()).ok_or_else(|| {
            let plane = &self.config.director.plane;
            format!("plane {plane:?} has a hash of its own, and knows no connection of this client")
        })?;
        Ok(Explained {
            server,
            reason: Reason::Plane,
            before: None,
            ..explained
        })
    }

    fn place(&self, name: &str) -> Result<usize, Vec<String>> {
        let mut all = self.services.iter();
        let names = || {
            self.config
                .services
                .iter()
                .map(|service| service.name.clone())
        };
        all.position(|service| service.config().name == name)
            .ok_or_else(|| names().collect())
    }

    fn order(
        &mut self,
        now: Timestamp,
        at: usize,
        request: OrderRequest,
    ) -> Result<Trial, OrderError> {
        let service = &mut self.services[at];
        let trial = service.trial(now, request.order.clone())?;
        if request.is_trial {
            return Ok(trial);
        }
        service.handle_order(now, request.order.clone())?;
        self.meters.ordered(&request.order);
        self.probes.follow(&self.services);
        let service = &self.services[at];
        let name = service.config().name.clone();
        info!(service = name, order = ?request.order, moved = trial.moved, "Order");
        let configured = &service.config().servers;
        let is_configured = match &request.order {
            Order::Remove { server } => configured.iter().any(|one| one.name == *server),
            _ => true,
        };
        self.orders.push(&name, request.order, is_configured);
        if let Some(path) = &self.config.director.state
            && let Err(error) = self.orders.save(path)
        {
            error!(path = %path.display(), %error, "The order is carried out and will not outlive the director");
        }
        Ok(trial)
    }

    fn status(&mut self, now: Timestamp) -> Status {
        let mut counted = BTreeMap::new();
        for service in &self.services {
            let name = &service.config().name;
            match self.plane.counters(name) {
                Ok(found) => drop(counted.insert(name.clone(), found)),
                Err(error) => warn!(service = name, %error, "The plane cannot be counted"),
            }
        }
        Status {
            director: self.config.director.name.clone(),
            plane: self.config.director.plane.clone(),
            uptime_s: self.began.elapsed().as_secs_f64(),
            services: self
                .services
                .iter()
                .map(|service| service.status(now))
                .collect(),
            counted,
        }
    }

    /// Carries out what the services ask for.
    fn act(&mut self) {
        for at in 0..self.services.len() {
            while let Some(action) = self.services[at].poll_action() {
                self.carry_out(at, action);
            }
        }
    }

    fn carry_out(&mut self, at: usize, action: Action) {
        let service = &self.services[at];
        let name = service.config().name.clone();
        let server_name = |id: ServerId| {
            let mut all = service.servers();
            let found = all.find(|(one, _)| *one == id);
            found
                .map(|(_, server)| server.name.clone())
                .unwrap_or_default()
        };
        match action {
            Action::Apply { generation, wanted } => {
                let began = Instant::now();
                let result = self.plane.apply(&wanted);
                self.meters.applied(&name, began.elapsed(), result.is_ok());
                if let Err(error) = &result {
                    error!(service = name, %error, "The plane does not follow; trying again");
                }
                let result = result.map_err(|error| error.to_string());
                let now = self.now();
                self.services[at].handle_applied(now, generation, result);
            }
            Action::AskFlows { server, question } if self.config.lists_connections() => {
                let listed = self.plane.connections(&name);
                let now = self.now();
                match listed {
                    Ok(listed) => {
                        let server_name = server_name(server);
                        let own = listed.into_iter().filter(|(_, at)| *at == server_name);
                        let flows: Vec<Flow> = own.map(|(flow, _)| flow).collect();
                        self.services[at].handle_listed(now, server, question, &flows);
                    }
                    Err(error) => {
                        warn!(service = name, %error, "The plane lists no connections; trying again");
                        self.services[at].handle_no_flows(now, server, question);
                    }
                }
            }
            Action::AskFlows { server, question } => {
                if !self.probes.ask(at, server, question) {
                    self.meter(at, server, Meters::unanswered);
                    let now = self.now();
                    self.services[at].handle_no_flows(now, server, question);
                }
            }
            Action::Health { server, news } => {
                self.meter(at, server, Meters::changed);
                let server = server_name(server);
                match news {
                    HealthNews::Up => info!(service = name, server, "A server is up"),
                    HealthNews::Down => warn!(service = name, server, "A server is down"),
                }
            }
            Action::Drained { server } => {
                info!(
                    service = name,
                    server = server_name(server),
                    "A server is drained"
                );
            }
        }
    }
}
