//! The transport over TCP and Unix sockets: one epoll loop, many connections.
//!
//! This module decides which connection has its turn and when to sleep. `outbox` batches what goes out,
//! `inbox` makes frames of what comes in, `connection` joins both to a socket.
//!
//! Why one thread, batches of 1 MB, and bodies read into place: on loopback one core moves 6 GB/s this way,
//! about as much as a bare pair of sockets, while one system call a message halves that at 256 KiB and takes
//! three quarters of it at 10 KB. Batches of 256 KiB cost a tenth of the throughput of 1 MB frames against batches
//! of 1 MB. Zero-copy sends are twice as slow on loopback, where the kernel copies after all.

mod address;
mod bodies;
mod close_notice;
mod config;
mod connect_retry;
mod connection;
mod deadlines;
mod deal;
mod inbox;
mod input;
mod kernel_tls;
mod kernel_trial;
mod lanes;
mod listener;
mod options;
mod outbox;
mod recorded;
mod records;
mod security;
mod session;
mod stats;
mod stream;
mod waker;
mod zero_copy;

pub use crate::unix::{UnixPathError, unix_path};
pub use address::{Address, resolve};
pub use close_notice::CloseNotice;
pub use config::TcpConfig;
pub(crate) use deal::Dealt;
pub use kernel_trial::KernelTls;
pub use options::SocketOptions;
pub(crate) use outbox::Dropped;
pub use recorded::{Recorded, frames_of};
pub use security::{Bulk, Refusal, Security};
pub use stats::{Refused, Stats};
pub(crate) use waker::Ringer;
pub use waker::Waker;

use crate::arena::{Arena, Freed};
use crate::handover::Holdings;
use crate::transport::{
    CloseReason, ConnId, ConnectError, Event, Frame, ListenError, ListenerId, SendError, Transport,
    WhenFull,
};
use bodies::Bodies;
use connect_retry::ConnectRetry;
use connection::{BUFFER_BYTES, CIPHER_BYTES, Connection, Shared, Side};
use lanes::Lanes;
use listener::Listener;
use mio::{Events, Interest, Poll, Token};
use rustc_hash::FxHashMap;
use session::{Protection, Session};
use sheaf_auth::Identity;
use sheaf_protocol::Limits;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stream::Stream;

/// The token of the waker. Connections and listeners have their id, which counts up from 0.
const WAKE: Token = Token(usize::MAX);

/// A poll gives no further connection its turn when it has this many events, so that the caller gets to its timers.
const EVENTS_MAX: usize = 4096;

/// Refused peers that are kept until they are read; further ones are only counted.
pub(crate) const REFUSALS_MAX: usize = 64;

/// A [`Transport`] over TCP, and over Unix sockets where an address says so.
pub struct Tcp {
    poll: Poll,
    notices: Events,
    waker: Waker,
    /// Held for the arena, which knows it weakly.
    _freed: Arc<Freed>,
    ids: u64,
    listeners: Vec<Listener>,
    /// By ids of this process, which no peer can choose so that they collide.
    connections: FxHashMap<ConnId, Connection>,
    accepted: usize,
    security: Security,
    /// Connections of peers whose handshake is not over, the oldest first.
    shaking: BTreeSet<ConnId>,
    /// Connections of peers without a whole first frame, or not admitted yet, the oldest first.
    greeting: BTreeSet<ConnId>,
    /// Connections of peers, by address.
    by_ip: HashMap<IpAddr, usize>,
    close_notice: Option<CloseNotice>,
    refusals: Vec<Refusal>,
    deal: deal::Deal,
    /// Connections that want a turn, in the order in which they get it.
    ready: VecDeque<ConnId>,
    /// Connections that wait for a place for a body.
    waiting: Vec<ConnId>,
    lanes: Lanes,
    holdings: Holdings,
    /// Events that came up between two polls.
    pending: Vec<Event>,
    /// The earliest time at which a deadline can pass. May be too early, never too late.
    deadline: Option<Instant>,
    shared: Shared,
    options: SocketOptions,
}

impl Tcp {
    /// Creates an endpoint without connections, whose bodies are placed in `arena`. Several endpoints may share one.
    ///
    /// # Errors
    ///
    /// If the operating system gives no epoll, event descriptor or socket.
    pub fn new(config: TcpConfig, arena: Arc<Arena>) -> io::Result<Self> {
        Self::with_security(config, arena, Security::default())
    }

    /// As [`new`](Self::new), whose connections are guarded as `security` says.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_security(
        config: TcpConfig,
        arena: Arc<Arena>,
        security: Security,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = mio::Waker::new(poll.registry(), WAKE)?;
        let waker = Waker::new(waker);
        let ringer = waker.ringer();
        // If this fails, the connections that wait for space are tried again at the next poll.
        let freed: Arc<Freed> = Arc::new(move || ringer.ring());
        arena.notify_when_freed(&freed);
        let options = options::in_force(&config)?;
        let room = arena.capacity_bytes().max(config.heap_bytes_max);
        let limits = Limits {
            body_bytes_max: config.limits.body_bytes_max.min(room),
            ..config.limits
        };
        let mut bodies = Bodies::new(arena, config.heap_bytes_max);
        bodies.takes_digests = config.body_digests;
        let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        let has_sessions = matches!(security, Security::Tls { .. });
        let cipher_bytes = if has_sessions { CIPHER_BYTES } else { 0 };
        let protection = Protection {
            wants_kernel: has_sessions && config.kernel_tls.decide().0,
            records_max: config.records_per_key_max,
        };
        Ok(Self {
            poll,
            notices: Events::with_capacity(1024),
            waker,
            _freed: freed,
            ids: 0,
            listeners: Vec::new(),
            connections: FxHashMap::default(),
            accepted: 0,
            security,
            shaking: BTreeSet::new(),
            greeting: BTreeSet::new(),
            by_ip: HashMap::new(),
            close_notice: None,
            refusals: Vec::new(),
            deal: deal::Deal::default(),
            ready: VecDeque::new(),
            waiting: Vec::new(),
            lanes: Lanes::default(),
            holdings: Holdings::default(),
            pending: Vec::new(),
            deadline: None,
            shared: Shared {
                config,
                limits,
                stats: Stats::default(),
                bodies,
                buffer,
                cipher: vec![0; cipher_bytes].into_boxed_slice(),
                protection,
                offers: Vec::new(),
            },
            options,
        })
    }

    /// Returns what has been counted so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            heap_fallbacks: self.shared.bodies.heap_fallbacks(),
            ..self.shared.stats
        }
    }

    /// Returns the peers turned away since the last call, as many as are remembered. All are counted in
    /// [`stats`](Self::stats).
    pub fn take_refusals(&mut self) -> Vec<Refusal> {
        std::mem::take(&mut self.refusals)
    }

    /// Sets what is said to peers whose connections end for what they did.
    pub fn set_close_notice(&mut self, close_notice: CloseNotice) {
        self.close_notice = Some(close_notice);
    }

    /// Returns the socket options in force, which are what the kernel gave of what was asked for.
    #[must_use]
    pub fn socket_options(&self) -> &SocketOptions {
        &self.options
    }

    /// Returns the largest frame that is accepted: that of the configuration, and no larger than the arena.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.shared.limits
    }

    /// Returns a handle that ends the sleep in [`poll`](Transport::poll) from another thread.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    pub(crate) fn ringer(&self) -> Ringer {
        self.waker.ringer()
    }

    pub(crate) fn config(&self) -> &TcpConfig {
        &self.shared.config
    }

    fn id(&mut self) -> u64 {
        self.ids += 1;
        self.ids - 1
    }

    /// Puts a connection on the list of those that want a turn, if it does.
    fn enlist(&mut self, conn: ConnId) {
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.enlist(&mut self.ready);
        }
    }

    /// Begins to watch the socket of the new connection `conn`.
    fn add(
        &mut self,
        conn: ConnId,
        side: Side,
        mut stream: Stream,
        session: Option<Session>,
        now: Instant,
    ) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll
            .registry()
            .register(&mut stream, token(conn.0), interest)?;
        let mut connection = Connection::new(conn, side, stream, session, &self.shared.config, now);
        connection.set_awaits_caller(self.deal.serves_others());
        if !connection.is_known() {
            self.shaking.insert(conn);
        }
        self.keep_deadline(connection.deadline(&self.shared.config).map(|(at, _)| at));
        self.connections.insert(conn, connection);
        self.accepted += usize::from(side == Side::Accepting);
        Ok(())
    }

    /// Takes a connection off all lists. Its socket is closed, and its end counted.
    fn remove(&mut self, conn: ConnId, reason: CloseReason) -> Option<Event> {
        let mut connection = self.connections.remove(&conn)?;
        self.deal.note_gone(conn);
        self.accepted -= usize::from(connection.side == Side::Accepting);
        if let Some(ip) = connection.ip {
            self.count_gone(ip);
        }
        self.greeting.remove(&conn);
        if let Some(frame) = self
            .close_notice
            .and_then(|close_notice| close_notice(&reason))
        {
            connection.send_close_notice(frame, &mut self.shared, Instant::now());
        }
        connection.forget_sends(&mut self.shared);
        // Closing the socket takes it out of epoll anyway; a failure here has no consequence.
        let _ = self.poll.registry().deregister(connection.socket());
        self.part(conn, &mut connection);
        self.shared.stats.count_close(&reason);
        self.shaking.remove(&conn);
        if let Some((_, peer)) = connection.take_arrival() {
            // It was never reported, so there is no event either.
            self.note_refusal(peer, reason);
            return None;
        }
        Some(Event::Closed { conn, reason })
    }

    fn note_refusal(&mut self, peer: String, reason: CloseReason) {
        if self.refusals.len() < REFUSALS_MAX {
            self.refusals.push(Refusal { peer, reason });
        }
    }

    /// Begins a connection.
    fn begin_connect(&mut self, address: &str, is_bulk: bool) -> Result<ConnId, ConnectError> {
        let peer = self.aim(address, is_bulk)?;
        let conn = self.next_conn();
        let begun = self.connect_as(conn, peer, is_bulk);
        begun.map_err(|source| ConnectError::Io {
            address: address.to_owned(),
            source,
        })?;
        Ok(conn)
    }

    /// Returns the peer that `address` names, if this endpoint may connect to it.
    pub(crate) fn aim(&self, address: &str, is_bulk: bool) -> Result<Address, ConnectError> {
        let refused = |found| ConnectError::Path {
            address: address.to_owned(),
            found,
        };
        let peer = match unix_path(address) {
            Some(path) => Address::Unix(path.map(Path::to_owned).map_err(refused)?),
            None => Address::Inet(address.parse().map_err(|_| ConnectError::Address {
                address: address.to_owned(),
            })?),
        };
        if self.security.tls(is_bulk).is_none() && !self.security.allows(&peer) {
            let address = address.to_owned();
            return Err(ConnectError::Insecure { address });
        }
        Ok(peer)
    }

    /// Begins the connection `conn` to a peer that this endpoint [may connect to](Self::aim).
    pub(crate) fn connect_as(
        &mut self,
        conn: ConnId,
        peer: Address,
        is_bulk: bool,
    ) -> io::Result<()> {
        let session = match self.security.tls(is_bulk) {
            Some(tls) => {
                let session = Session::client(tls, &peer, self.shared.protection);
                Some(session.map_err(io::Error::other)?)
            }
            None => None,
        };
        let socket = options::stream_socket(&peer, &self.shared.config)?;
        let begun = peer.begin(&socket);
        let stream = Stream::new(socket, &peer);
        self.add(conn, Side::Connecting, stream, session, Instant::now())?;
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.connect_retry = Some(ConnectRetry::new(peer, Instant::now()));
            connection.is_bulk = is_bulk;
            let due = connection.connect_retry_due(&self.shared.config);
            self.keep_deadline(due);
        }
        if let Err(error) = begun {
            let closed = self.remove(conn, CloseReason::Unreachable(error.kind()));
            self.pending.extend(closed);
        }
        Ok(())
    }

    /// Begins a connection once more, on a new socket. Without one the old socket goes on trying.
    fn retry_connect(&mut self, conn: ConnId, now: Instant) {
        let Some(connection) = self.connections.get_mut(&conn) else {
            return;
        };
        let Some(connect_retry) = &mut connection.connect_retry else {
            return;
        };
        let peer = connect_retry.peer.clone();
        connect_retry.again(now);
        let Ok(socket) = options::stream_socket(&peer, &self.shared.config) else {
            return;
        };
        if let Err(error) = peer.begin(&socket) {
            // The listener of the socket has gone. On a network the old attempt may still get an answer.
            if peer.ip().is_none() {
                let closed = self.remove(conn, CloseReason::Unreachable(error.kind()));
                self.pending.extend(closed);
            }
            return;
        }
        let mut stream = Stream::new(socket, &peer);
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registry = self.poll.registry();
        if registry
            .register(&mut stream, token(conn.0), interest)
            .is_err()
        {
            return;
        }
        // The old socket is closed, which takes it out of epoll anyway.
        let _ = registry.deregister(connection.socket());
        connection.retry_connect(stream);
        self.shared.stats.connect_retries += 1;
    }

    fn keep_deadline(&mut self, at: Option<Instant>) {
        self.deadline = [self.deadline, at].into_iter().flatten().min();
    }

    /// Returns how long to sleep: not at all while there is something to do.
    fn sleep(&mut self, timeout: Option<Duration>) -> Option<Duration> {
        let lanes_sleep = self.lanes_sleep();
        let busy = !self.ready.is_empty()
            || !lanes_sleep
            || !self.pending.is_empty()
            || self
                .listeners
                .iter()
                .any(|listener| listener.ready && listener.again.is_none());
        if busy {
            return Some(Duration::ZERO);
        }
        let deadline = self
            .deadline
            .map(|at| at.saturating_duration_since(Instant::now()));
        [timeout, deadline].into_iter().flatten().min()
    }

    /// Looks for places for the bodies that wait for one.
    fn retry_waiting(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        self.shared.bodies.want();
        let now = Instant::now();
        for conn in std::mem::take(&mut self.waiting) {
            let Some(connection) = self.connections.get_mut(&conn) else {
                continue;
            };
            if connection.find_space(&mut self.shared.bodies, now) {
                connection.waiting = false;
                self.enlist(conn);
            } else {
                self.waiting.push(conn);
            }
        }
    }

    /// Notes what epoll says.
    fn notice(&mut self, events: &mut Vec<Event>) {
        let notices = std::mem::replace(&mut self.notices, Events::with_capacity(0));
        for notice in &notices {
            if notice.token() == WAKE {
                if self.waker.take_wake() {
                    events.push(Event::Woken);
                }
                continue;
            }
            let id = notice.token().0 as u64;
            if let Some(connection) = self.connections.get_mut(&ConnId(id)) {
                connection.notice(notice);
                self.enlist(ConnId(id));
            } else if let Some(listener) = self
                .listeners
                .iter_mut()
                .find(|listener| listener.id.0 == id)
            {
                listener.ready = true;
            } else {
                self.lanes.awake.push(id);
            }
        }
        self.notices = notices;
    }

    /// Gives every connection that wants one a turn.
    fn take_turns(&mut self, events: &mut Vec<Event>, now: Instant) {
        for _ in 0..self.ready.len() {
            if events.len() >= EVENTS_MAX {
                return;
            }
            let Some(conn) = self.ready.pop_front() else {
                return;
            };
            let Some(connection) = self.connections.get_mut(&conn) else {
                continue;
            };
            connection.listed = false;
            match connection.turn(&mut self.shared, events, now) {
                Ok(()) => {
                    if connection.asks_caller() {
                        self.deal.ask(conn);
                    }
                    let is_new = connection.is_known() && self.shaking.remove(&conn);
                    if is_new {
                        self.greeting.insert(conn);
                    }
                    let is_admitted = is_new && connection.is_admitted();
                    if connection.has_greeted() {
                        self.greeting.remove(&conn);
                    }
                    if connection.wants_space() && !connection.waiting {
                        connection.waiting = true;
                        self.waiting.push(conn);
                    }
                    let deadline = connection.deadline(&self.shared.config).map(|(at, _)| at);
                    let room_due = connection.room_due();
                    self.keep_deadline(deadline);
                    self.keep_deadline(room_due);
                    if is_admitted {
                        self.offer_lane(conn);
                    }
                    self.enlist(conn);
                }
                Err(reason) => events.extend(self.remove(conn, reason)),
            }
        }
    }
}

impl Transport for Tcp {
    /// Listens at HOST:PORT or `unix:PATH`. A name is looked up, which can wait for a name server.
    fn listen(&mut self, address: &str) -> Result<(ListenerId, String), ListenError> {
        self.open(address, false)
    }

    fn listen_bulk(&mut self, address: &str) -> Result<(ListenerId, String), ListenError> {
        self.open(address, true)
    }

    /// Connects to IP:PORT or `unix:PATH`. Names are for [`resolve`], which can wait.
    fn connect(&mut self, address: &str) -> Result<ConnId, ConnectError> {
        self.begin_connect(address, false)
    }

    fn connect_bulk(&mut self, address: &str) -> Result<ConnId, ConnectError> {
        self.begin_connect(address, true)
    }

    fn identity(&self, conn: ConnId) -> Option<&Identity> {
        self.connections.get(&conn)?.identity()
    }

    fn admit(&mut self, conn: ConnId, head_bytes_max: u32) {
        let Some(connection) = self.connections.get_mut(&conn) else {
            return;
        };
        if connection.admit(head_bytes_max) {
            if connection.has_greeted() {
                self.greeting.remove(&conn);
            }
            self.offer_lane(conn);
            self.enlist(conn);
        }
    }

    fn send(&mut self, conn: ConnId, frame: Frame) -> Result<(), SendError> {
        frame
            .check(&self.shared.config.limits)
            .map_err(SendError::TooLarge)?;
        let connection = self
            .connections
            .get_mut(&conn)
            .filter(|found| found.takes_frames());
        let Some(connection) = connection else {
            return Err(SendError::Closed);
        };
        let stats = &mut self.shared.stats;
        match connection.outbox.push(frame) {
            Ok(dropped) => {
                stats.frames_dropped += dropped.frames;
                stats.bytes_dropped += dropped.bytes;
            }
            Err(error) => {
                stats.frames_held_back += 1;
                return Err(error);
            }
        }
        if connection.outbox.can_lend() {
            // What is wrong with the lane is found once more in its turn, and told there.
            let _ = connection.lend_now(stats);
        }
        connection.enlist(&mut self.ready);
        Ok(())
    }

    fn set_when_full(&mut self, conn: ConnId, when_full: WhenFull) {
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.outbox.set_when_full(when_full);
        }
    }

    fn close(&mut self, conn: ConnId) {
        let closed = self.remove(conn, CloseReason::ByUs);
        self.pending.extend(closed);
    }

    fn finish(&mut self, conn: ConnId) {
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.finish();
            self.enlist(conn);
        }
    }

    fn queued_bytes(&self, conn: ConnId) -> u64 {
        self.connections
            .get(&conn)
            .map_or(0, Connection::queued_bytes)
    }

    fn poll(&mut self, events: &mut Vec<Event>, timeout: Option<Duration>) -> io::Result<()> {
        events.clear();
        self.retry_waiting();
        let sleep = self.sleep(timeout);
        self.shared.stats.polls += 1;
        match self.poll.poll(&mut self.notices, sleep) {
            Ok(()) => self.notice(events),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        events.append(&mut self.pending);
        let now = Instant::now();
        self.accept_all(events, now);
        self.meet(events);
        self.take_turns(events, now);
        self.expire(events);
        Ok(())
    }
}

impl std::fmt::Debug for Tcp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tcp")
            .field("listeners", &self.listeners.len())
            .field("connections", &self.connections.len())
            .field("stats", &self.shared.stats)
            .finish_non_exhaustive()
    }
}

fn token(id: u64) -> Token {
    Token(
        usize::try_from(id).expect("ids count up from 0 and do not reach 2^32 on a 32-bit machine"),
    )
}
