//! Threads that check servers and ask their agents.

use crate::agent::CheckHere;
use crate::agent_client::{AgentClient, CheckClient};
use crate::backend::health_kind;
use crate::check::check;
use crate::event::Event;
use sheaf_serve::{CheckAt, HealthConfig, ServerConfig, ServerId, Service, ServiceConfig};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};
use tracing::error;

/// Time between two questions for the load of a server.
const LOAD_EVERY: Duration = Duration::from_secs(1);
/// Questions for connections that wait for one agent.
const QUESTIONS: usize = 8;

/// Ends of the threads of one server of one service; the threads end by themselves when these are dropped, at the
/// latest with their timeouts.
#[derive(Debug, Default)]
struct Probe {
    check: Option<SyncSender<()>>,
    /// Questions for the agent.
    questions: Option<SyncSender<u64>>,
}

/// Threads of all servers.
#[derive(Debug)]
pub(super) struct Probes {
    events: SyncSender<Event>,
    /// Whether packets reach the servers with the virtual address; else with that of the server.
    is_direct_return: bool,
    all: BTreeMap<(usize, ServerId), Probe>,
}

impl Probes {
    pub(super) fn new(events: SyncSender<Event>, is_direct_return: bool) -> Self {
        Self {
            events,
            is_direct_return,
            all: BTreeMap::new(),
        }
    }

    /// Starts threads for servers that have none, and ends those of servers that are gone.
    pub(super) fn follow(&mut self, services: &[Service]) {
        let mut before = std::mem::take(&mut self.all);
        for (at, service) in services.iter().enumerate() {
            for (id, server) in service.servers() {
                let key = (at, id);
                let start = || self.start(key, service.config(), server);
                let probe = before.remove(&key).unwrap_or_else(start);
                self.all.insert(key, probe);
            }
        }
    }

    fn start(
        &self,
        key: (usize, ServerId),
        service: &ServiceConfig,
        server: &ServerConfig,
    ) -> Probe {
        Probe::start(&self.events, key, service, server, self.is_direct_return)
    }

    /// Asks the agent of a server for its connections. Returns whether it has one that is not busy.
    pub(super) fn ask(&self, at: usize, id: ServerId, question: u64) -> bool {
        let probe = self.all.get(&(at, id));
        let questions = probe.and_then(|probe| probe.questions.as_ref());
        questions.is_some_and(|questions| match questions.try_send(question) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        })
    }
}

impl Probe {
    fn start(
        events: &SyncSender<Event>,
        key: (usize, ServerId),
        service: &ServiceConfig,
        server: &ServerConfig,
        is_direct_return: bool,
    ) -> Self {
        let mut probe = Self::default();
        let port = server.port.unwrap_or(service.port);
        if let Some(address) = server.addresses.first() {
            let (stop, stopped) = sync_channel(1);
            let (events, health) = (events.clone(), service.health.clone());
            let kind = health_kind(service);
            let (name, address) = (server.name.clone(), SocketAddr::new(*address, port));
            let asked = server.agent.filter(|_| health.at == CheckAt::Virtual);
            let here = asked.map(|agent| {
                let order = CheckHere {
                    kind: kind.clone(),
                    server: name.clone(),
                    addresses: service.addresses.clone(),
                    port,
                    timeout_ms: health.timeout_ms,
                };
                CheckClient::new(agent, order)
            });
            let work = move || {
                let both = |timeout| match check(&kind, &name, address, timeout) {
                    Ok(()) => here.as_ref().map_or(Seen::Well, Seen::here),
                    Err(fault) => Seen::Fault(fault),
                };
                checks(&events, key, &health, &stopped, both);
            };
            spawn("serve-check", work);
            probe.check = Some(stop);
        }
        if let Some(agent) = server.agent {
            let (questions, asked) = sync_channel(QUESTIONS);
            let events = events.clone();
            let addresses = match is_direct_return {
                true => &service.addresses,
                false => &server.addresses,
            };
            let client = AgentClient::new(agent, addresses, port);
            spawn("serve-ask", move || {
                questions_of(&events, key, &client, &asked);
            });
            probe.questions = Some(questions);
        }
        probe
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) {
    // A server that is not checked stays down, which is seen; another try comes with the next director.
    if let Err(error) = std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
    {
        error!(%error, "A thread cannot be started: its server is not checked");
    }
}

/// Result of a check.
enum Seen {
    Well,
    Fault(String),
    /// The server is well at its own address, and its agent has not said how it is at the virtual ones.
    Unanswered,
}

impl Seen {
    /// Lets the agent check the server at the virtual addresses.
    fn here(client: &CheckClient) -> Self {
        match client.check() {
            Ok(None) => Self::Well,
            Ok(Some(fault)) => Self::Fault(fault),
            Err(_) => Self::Unanswered,
        }
    }
}

/// Checks a server until the other end of `stopped` is dropped.
fn checks(
    events: &SyncSender<Event>,
    (at, id): (usize, ServerId),
    health: &HealthConfig,
    stopped: &Receiver<()>,
    check: impl Fn(Duration) -> Seen,
) {
    let every = Duration::from_millis(health.every_ms);
    let timeout = Duration::from_millis(health.timeout_ms);
    loop {
        let began = Instant::now();
        let seen = check(timeout);
        let unanswered = matches!(seen, Seen::Unanswered).then_some(Event::Unanswered(at, id));
        let result = match seen {
            // A server whose agent is silent is known by its own address.
            Seen::Well | Seen::Unanswered => Ok(()),
            Seen::Fault(fault) => Err(fault),
        };
        let events_of = unanswered.into_iter().chain([Event::Check(at, id, result)]);
        for event in events_of {
            if events.send(event).is_err() {
                return;
            }
        }
        let left = every.saturating_sub(began.elapsed());
        if stopped.recv_timeout(left) == Err(RecvTimeoutError::Disconnected) {
            return;
        }
    }
}

/// Asks an agent: for connections when there is a question, for the load from time to time.
fn questions_of(
    events: &SyncSender<Event>,
    (at, id): (usize, ServerId),
    client: &AgentClient,
    asked: &Receiver<u64>,
) {
    loop {
        let question = match asked.recv_timeout(LOAD_EVERY) {
            Ok(question) => Some(question),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let answer = client.ask();
        let sent = match (question, answer) {
            (Some(question), Ok(answer)) => {
                events.send(Event::Flows(at, id, question, answer.flows))
            }
            (Some(question), Err(_)) => events.send(Event::NoFlows(at, id, question)),
            (None, Ok(answer)) => events.send(Event::Load(at, id, answer.load)),
            // A server whose agent is silent is known by its checks.
            (None, Err(_)) => Ok(()),
        };
        if sent.is_err() {
            return;
        }
    }
}
