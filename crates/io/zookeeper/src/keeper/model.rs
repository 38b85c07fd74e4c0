//! ZooKeeper in virtual time: one tree, sessions that expire, clients that can be cut off one by one.
//!
//! The model promises what ZooKeeper promises (writes in one order, a session's own requests in order, watches once and
//! not lost over a reconnect, ephemeral nodes as long as the session) and is as unkind as permitted: requests and
//! answers take a seeded time, and a cut loses either of them.

mod tree;

use super::{Keeper, KeeperError, KeeperEvent, Kind, Request, Ticket};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_protocol::Timestamp;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A ZooKeeper that any number of [`ModelKeeper`]s have sessions with.
#[derive(Clone, Debug)]
pub struct Model(Arc<Mutex<World>>);

/// One client of a [`Model`]. When dropped, it acts as a process that was killed: its session runs out.
#[derive(Debug)]
pub struct ModelKeeper {
    world: Arc<Mutex<World>>,
    id: usize,
    next: u64,
    /// Session that the caller knows of; 0: none.
    session: i64,
}

#[derive(Debug)]
struct World {
    random: Xoshiro256PlusPlus,
    latency: (Duration, Duration),
    now: Timestamp,
    nodes: BTreeMap<String, Node>,
    clients: Vec<Client>,
    is_up: bool,
    last_session: i64,
}

#[derive(Clone, Debug, Default)]
struct Node {
    data: Vec<u8>,
    version: i32,
    owner: i64,
    /// Number of children that the node has had.
    sequence: u32,
}

#[derive(Debug)]
struct Client {
    timeout: Duration,
    /// Number of the session; 0: none yet, or over.
    session: i64,
    is_cut: bool,
    is_paused: bool,
    is_gone: bool,
    /// Whether the client believes to be connected: a cut is noticed late.
    is_connected: bool,
    /// Since when nothing arrives although the client believes to be connected, and when it will notice.
    silent: Option<(Timestamp, Timestamp)>,
    /// Whether the session has ended and the client does not know.
    is_expiry_pending: bool,
    /// The last moment at which the servers could hear the client.
    heard: Timestamp,
    /// When the connection that is being made is established.
    connects_at: Option<Timestamp>,
    requests: VecDeque<Asked>,
    /// Events on their way to the client, with the time of arrival.
    events: VecDeque<(Timestamp, KeeperEvent)>,
    data_watches: BTreeSet<String>,
    child_watches: BTreeSet<String>,
    /// Watches that fired while the client was cut off.
    missed: Vec<String>,
}

/// A request on its way.
#[derive(Debug)]
struct Asked {
    at: Timestamp,
    ticket: Ticket,
    /// Session that it was made in.
    session: i64,
    request: Request,
}

impl Model {
    /// Returns an empty ZooKeeper. Every request and every answer takes between `fastest` and `slowest`.
    #[must_use]
    pub fn new(seed: u64, fastest: Duration, slowest: Duration) -> Self {
        Self(Arc::new(Mutex::new(World {
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            latency: (fastest, slowest.max(fastest)),
            now: Timestamp(0),
            nodes: BTreeMap::from([("/".to_owned(), Node::default())]),
            clients: Vec::new(),
            is_up: true,
            last_session: 0,
        })))
    }

    /// Returns a new client, whose sessions outlive breaks up to `timeout`.
    #[must_use]
    pub fn client(&self, now: Timestamp, timeout: Duration) -> ModelKeeper {
        let mut world = lock(&self.0);
        world.advance(now);
        let id = world.clients.len();
        let client = Client {
            timeout,
            session: 0,
            is_cut: false,
            is_paused: false,
            is_gone: false,
            is_connected: false,
            silent: None,
            is_expiry_pending: false,
            heard: now,
            connects_at: None,
            requests: VecDeque::new(),
            events: VecDeque::new(),
            data_watches: BTreeSet::new(),
            child_watches: BTreeSet::new(),
            missed: Vec::new(),
        };
        world.clients.push(client);
        world.connect(id);
        ModelKeeper {
            world: self.0.clone(),
            id,
            next: 0,
            session: 0,
        }
    }

    /// Stops all servers, or restarts them. Sessions last meanwhile: no server is there to end them, and a
    /// client that comes back counts from then.
    pub fn set_up(&self, now: Timestamp, is_up: bool) {
        let mut world = lock(&self.0);
        world.advance(now);
        world.is_up = is_up;
        for id in 0..world.clients.len() {
            if is_up {
                world.clients[id].heard = now;
                world.connect(id);
            } else if world.clients[id].is_connected {
                world.lose(id, "the servers are gone");
            }
        }
    }

    /// Cuts one client off, or connects it again: it notices after two fifths of its session. `id` is
    /// [`ModelKeeper::id`].
    pub fn set_cut(&self, now: Timestamp, id: usize, is_cut: bool) {
        let mut world = lock(&self.0);
        world.advance(now);
        world.set_cut(id, is_cut);
    }

    /// Stops the process of a client, or lets it go on: it is not polled meanwhile, and its session runs out.
    pub fn set_paused(&self, now: Timestamp, id: usize, is_paused: bool) {
        let mut world = lock(&self.0);
        world.advance(now);
        world.clients[id].is_paused = is_paused;
        if !is_paused && world.clients[id].is_expiry_pending && world.clients[id].is_connected {
            world.lose(id, "a server closed the connection");
            world.connect(id);
        }
    }

    /// Ends the session of a client that is alive.
    pub fn expire(&self, now: Timestamp, id: usize) {
        let mut world = lock(&self.0);
        world.advance(now);
        world.end_session(id);
    }

    /// Writes a node in the way of a client outside the farm; creates it if it is not there.
    pub fn write(&self, now: Timestamp, path: &str, data: &[u8]) {
        let mut world = lock(&self.0);
        world.advance(now);
        match world.nodes.get_mut(path) {
            Some(node) => {
                node.data = data.to_vec();
                node.version += 1;
                world.fire(path, false);
            }
            None => {
                let made = world.create(0, path, data, Kind::Persistent);
                debug_assert!(made.is_ok(), "{path}: {made:?}");
                world.fire(path, true);
            }
        }
    }

    /// Removes a node in the way of a client outside the farm.
    pub fn remove(&self, now: Timestamp, path: &str) {
        let mut world = lock(&self.0);
        world.advance(now);
        if world.delete(path, None).is_ok() {
            world.fire(path, true);
        }
    }

    /// Returns the data of a node.
    #[must_use]
    pub fn read(&self, now: Timestamp, path: &str) -> Option<Vec<u8>> {
        let mut world = lock(&self.0);
        world.advance(now);
        world.nodes.get(path).map(|node| node.data.clone())
    }

    /// Returns the names of the children of a node, ascending.
    #[must_use]
    pub fn list(&self, now: Timestamp, path: &str) -> Vec<String> {
        let mut world = lock(&self.0);
        world.advance(now);
        world.children(path)
    }
}

impl ModelKeeper {
    /// Returns the id of this client in its [`Model`].
    #[must_use]
    pub fn id(&self) -> usize {
        self.id
    }
}

impl Keeper for ModelKeeper {
    fn submit(&mut self, now: Timestamp, request: Request) -> Ticket {
        let mut world = lock(&self.world);
        world.advance(now);
        self.next += 1;
        let ticket = Ticket(self.next);
        if world.clients[self.id].is_connected {
            let last = world.clients[self.id].requests.back().map(|last| last.at);
            let asked = Asked {
                at: world.after_latency(last),
                ticket,
                session: self.session,
                request,
            };
            world.clients[self.id].requests.push_back(asked);
        } else {
            let lost = KeeperEvent::Answer(ticket, Err(KeeperError::Lost));
            world.notify_at_once(self.id, lost);
        }
        ticket
    }

    fn poll(&mut self, now: Timestamp) -> Option<KeeperEvent> {
        let mut world = lock(&self.world);
        world.advance(now);
        let client = &mut world.clients[self.id];
        // Messages on the way when it was cut off wait, with everything behind them.
        let until = client.silent.map_or(now, |(since, _)| since);
        let is_there = client.events.front().is_some_and(|(at, _)| *at <= until);
        let (_, event) = is_there.then(|| client.events.pop_front())??;
        match event {
            KeeperEvent::Connected { session, .. } => self.session = session,
            KeeperEvent::Expired => self.session = 0,
            _ => {}
        }
        Some(event)
    }

    fn next_due(&self) -> Option<Timestamp> {
        let world = lock(&self.world);
        let client = &world.clients[self.id];
        // Others' requests may fire a watch of this one, so every one counts that can arrive.
        let all = (0..world.clients.len()).filter(|id| world.reaches(*id));
        let requests = all.filter_map(|id| Some(world.clients[id].requests.front()?.at));
        // An event that is held up by a cut is due when the cut is noticed.
        let own = client.events.front().map(|(at, _)| *at);
        let own = own.filter(|at| client.silent.is_none_or(|(since, _)| *at <= since));
        let notices = client.silent.map(|(_, notices)| notices);
        let due = requests.chain(own).chain(client.connects_at).chain(notices);
        due.min().map(|due| due.max(Timestamp(world.now.0 + 1)))
    }
}

impl Drop for ModelKeeper {
    fn drop(&mut self) {
        let mut world = lock(&self.world);
        let client = &mut world.clients[self.id];
        client.is_gone = true;
        client.is_connected = false;
        client.requests.clear();
        client.events.clear();
    }
}

fn lock(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

fn parent(path: &str) -> &str {
    match path.rfind('/') {
        Some(at) if at > 0 => &path[..at],
        _ => "/",
    }
}

impl World {
    /// Carries out everything that happens until `now`, in the order of its time.
    fn advance(&mut self, now: Timestamp) {
        loop {
            let due = [
                self.first(|world, id| {
                    let at = world.clients[id].requests.front().map(|first| first.at);
                    at.filter(|_| world.reaches(id))
                }),
                self.first(|world, id| world.clients[id].connects_at),
                self.first(|world, id| world.clients[id].silent.map(|(_, notices)| notices)),
                self.first(World::expires_at),
            ];
            let due = due.into_iter().enumerate();
            let due = due.filter_map(|(what, found)| found.map(|(at, id)| (at, what, id)));
            let Some((at, what, id)) = due.min().filter(|(at, ..)| *at <= now) else {
                break;
            };
            self.now = self.now.max(at);
            self.hear();
            match what {
                0 => self.carry_out(id),
                1 => self.connected(id),
                2 => self.lose(id, "no server answers"),
                _ => self.end_session(id),
            }
        }
        self.now = self.now.max(now);
        self.hear();
    }

    /// Notes all clients that the servers can hear.
    fn hear(&mut self) {
        for id in 0..self.clients.len() {
            let client = &self.clients[id];
            if client.is_connected && !client.is_paused && self.reaches(id) {
                self.clients[id].heard = self.now;
            }
        }
    }

    fn first(
        &self,
        when: impl Fn(&Self, usize) -> Option<Timestamp>,
    ) -> Option<(Timestamp, usize)> {
        let all = 0..self.clients.len();
        all.filter_map(|id| Some((when(self, id)?, id))).min()
    }

    /// Returns when the session of a silent client runs out. Without servers none does.
    fn expires_at(&self, id: usize) -> Option<Timestamp> {
        let client = &self.clients[id];
        let is_heard = client.is_connected && !client.is_paused && self.reaches(id);
        (self.is_up && client.session != 0 && !is_heard).then(|| client.heard + client.timeout)
    }

    fn reaches(&self, id: usize) -> bool {
        let client = &self.clients[id];
        self.is_up && !client.is_cut && !client.is_gone
    }

    /// Returns a moment one latency after now, and not before `last`: no message overtakes another.
    fn after_latency(&mut self, last: Option<Timestamp>) -> Timestamp {
        let (fastest, slowest) = self.latency;
        let span = u64::try_from((slowest - fastest).as_nanos()).unwrap_or(u64::MAX);
        let extra = if span == 0 {
            0
        } else {
            self.random.random_range(0..=span)
        };
        let at = self.now + fastest + Duration::from_nanos(extra);
        last.map_or(at, |last| at.max(last))
    }

    fn notify(&mut self, id: usize, event: KeeperEvent) {
        let last = self.clients[id].events.back().map(|(at, _)| *at);
        let at = self.after_latency(last);
        self.clients[id].events.push_back((at, event));
    }

    fn notify_at_once(&mut self, id: usize, event: KeeperEvent) {
        let client = &mut self.clients[id];
        let at = client
            .events
            .back()
            .map_or(self.now, |(at, _)| self.now.max(*at));
        client.events.push_back((at, event));
    }

    fn set_cut(&mut self, id: usize, is_cut: bool) {
        let now = self.now;
        let client = &mut self.clients[id];
        if client.is_gone || client.is_cut == is_cut {
            return;
        }
        client.is_cut = is_cut;
        if is_cut {
            client.connects_at = None;
            if client.is_connected {
                client.silent = Some((now, now + client.timeout * 2 / 5));
            }
        } else if client.silent.take().is_some() {
            // Messages that waited on both sides are sent again.
            for (at, _) in &mut client.events {
                *at = (*at).max(now);
            }
            for asked in &mut client.requests {
                asked.at = asked.at.max(now);
            }
            let missed = std::mem::take(&mut client.missed);
            for path in missed {
                self.notify(id, KeeperEvent::Changed { path });
            }
            if self.clients[id].is_expiry_pending {
                self.lose(id, "a server closed the connection");
                self.connect(id);
            }
        } else {
            self.connect(id);
        }
    }

    /// Breaks the connection: answers on the way are lost, and requests on the way may still arrive.
    fn lose(&mut self, id: usize, why: &str) {
        let now = self.now;
        let client = &mut self.clients[id];
        client.is_connected = false;
        let until = client.silent.take().map_or(now, |(since, _)| since);
        let mut lost = Vec::new();
        let events = std::mem::take(&mut client.events);
        for (at, event) in events {
            match event {
                _ if at <= until => client.events.push_back((at, event)),
                KeeperEvent::Answer(ticket, _) => lost.push(ticket),
                KeeperEvent::Changed { path } => client.missed.push(path),
                other => client.events.push_back((now, other)),
            }
        }
        let requests = std::mem::take(&mut client.requests);
        lost.extend(requests.iter().map(|asked| asked.ticket));
        // A prefix of the messages on the way arrives, for TCP keeps the order, unless the way was cut.
        let arriving = match requests.len() {
            0 => 0,
            _ if !self.reaches(id) => 0,
            len => self.random.random_range(0..=len),
        };
        self.notify_at_once(
            id,
            KeeperEvent::Away {
                why: why.to_owned(),
            },
        );
        for asked in requests.into_iter().take(arriving) {
            // The request is carried out now, so that nothing of a connection comes after the next one; its answer is
            // lost.
            let _ = self.perform(id, asked.session, asked.request, false);
        }
        for ticket in lost {
            self.notify_at_once(id, KeeperEvent::Answer(ticket, Err(KeeperError::Lost)));
        }
    }

    fn connect(&mut self, id: usize) {
        if self.reaches(id) && !self.clients[id].is_connected {
            let at = self.after_latency(None);
            self.clients[id].connects_at = Some(at);
        }
    }

    fn connected(&mut self, id: usize) {
        let now = self.now;
        self.clients[id].connects_at = None;
        if !self.reaches(id) {
            return;
        }
        if std::mem::take(&mut self.clients[id].is_expiry_pending) {
            self.notify(id, KeeperEvent::Expired);
        }
        if self.clients[id].session == 0 {
            self.last_session += 1;
            let session = self.last_session;
            let client = &mut self.clients[id];
            client.session = session;
            client.data_watches.clear();
            client.child_watches.clear();
            client.missed.clear();
        }
        let client = &mut self.clients[id];
        client.is_connected = true;
        client.heard = now;
        let (session, timeout) = (client.session, client.timeout);
        let missed = std::mem::take(&mut client.missed);
        self.notify(id, KeeperEvent::Connected { session, timeout });
        for path in missed {
            self.notify(id, KeeperEvent::Changed { path });
        }
    }

    fn end_session(&mut self, id: usize) {
        let session = std::mem::take(&mut self.clients[id].session);
        if session == 0 {
            return;
        }
        let gone = self.nodes.iter().filter(|(_, node)| node.owner == session);
        let gone: Vec<_> = gone.map(|(path, _)| path.clone()).collect();
        for path in gone {
            if self.delete(&path, None).is_ok() {
                self.fire(&path, true);
            }
        }
        let client = &mut self.clients[id];
        client.is_expiry_pending = !client.is_gone;
        if client.is_connected && !client.is_paused && self.reaches(id) {
            self.lose(id, "a server closed the connection");
            self.connect(id);
        }
    }

    fn carry_out(&mut self, id: usize) {
        let Some(asked) = self.clients[id].requests.pop_front() else {
            return;
        };
        let answer = self.perform(id, asked.session, asked.request, true);
        self.notify(id, KeeperEvent::Answer(asked.ticket, answer));
    }
}
