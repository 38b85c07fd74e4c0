//! A ZeroMQ socket: any number of peers, bound or connected, driven by its owner.
//!
//! It has no thread. Its epoll is a file descriptor ([`AsFd`]): a caller that waits for that to be readable, or for
//! [`Socket::deadline`], and then calls [`Socket::drive`], keeps it going; [`Socket::wait`] does both.

mod drive;
mod links;
mod stats;

pub use stats::Stats;

use crate::endpoint::{BindError, Endpoint};
use crate::error::PeerError;
use crate::input::Limits;
use crate::message::Message;
use crate::outbox::HighWater;
use crate::session::{Heartbeat, Incoming, PeerHello, Session};
use crate::socket_type::SocketType;
use crate::stream::{Listener, Stream};
use crate::subscriptions::Subscriptions;
use bytes::Bytes;
use links::Connector;
use rustix::event::epoll::{self, CreateFlags, EventFlags};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Bytes that are read of one peer before the next has its turn.
const TURN_BYTES: usize = 1 << 20;
/// Events that wait for their owner. The oldest goes when one more comes.
const EVENTS_MAX: usize = 1024;

/// Options of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketConfig {
    /// Identity of the socket; at most 255 bytes.
    pub identity: Bytes,
    /// Limits of messages of each peer.
    pub limits: Limits,
    /// Bounds of the queue of each peer.
    pub high_water: HighWater,
    /// Peers at once whose handshake is done. One more is closed when it is accepted, or at the end of its handshake.
    pub peers_max: usize,
    /// Accepted connections at once whose handshake is not done, beside these peers. One more, and the one that was not
    /// heard for longest is closed: an honest peer needs a few ms, and half-open ones cannot keep it out.
    pub handshakes_max: usize,
    /// Longest handshake of a peer.
    pub handshake: Duration,
    /// Whether and how peers are asked for a sign of life.
    pub heartbeat: Option<Heartbeat>,
    /// A peer of a PUSH that takes nothing for so long, while another could, is given up; one of a PUB in any case.
    pub stall: Duration,
    /// Whether what a peer of a PUSH did not wholly take before it went goes to the next one, first. Else it is counted
    /// and thrown away, for an owner who sends it again himself.
    pub resends: bool,
    /// Pause before an address is tried again: the first, then twice as long up to the second.
    pub reconnect_pause: (Duration, Duration),
    /// Send and receive buffer that the kernel is asked for, in bytes each; without it, what the kernel thinks best.
    pub socket_buffer_bytes: Option<usize>,
}

impl Default for SocketConfig {
    fn default() -> Self {
        Self {
            identity: Bytes::new(),
            limits: Limits::default(),
            high_water: HighWater::default(),
            peers_max: 1024,
            handshakes_max: 64,
            handshake: Duration::from_secs(10),
            heartbeat: Some(Heartbeat {
                interval: Duration::from_secs(5),
                timeout: Duration::from_secs(30),
            }),
            stall: Duration::from_secs(30),
            resends: true,
            reconnect_pause: (Duration::from_millis(100), Duration::from_secs(2)),
            socket_buffer_bytes: None,
        }
    }
}

/// One connection of one socket. Never reused within the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerId(pub u64);

/// Event at a socket, beside messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The handshake with a peer is done.
    Ready {
        /// The connection.
        peer: PeerId,
        /// Address of the peer, for logs.
        address: String,
        /// Socket type and identity that the peer states.
        hello: PeerHello,
    },
    /// A connection is gone, or did not come to be. Once for each of them.
    Gone {
        /// The connection.
        peer: PeerId,
        /// Address of the peer.
        address: String,
        /// Why.
        reason: PeerError,
    },
    /// Peers cannot be accepted now, for instance because file descriptors ran out. It is tried again.
    NotAccepted(io::ErrorKind),
}

/// Why a message was not taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SendError {
    /// No peer with room. Returns the message.
    #[error("no peer has room")]
    Full(Message),
    /// Message larger than a peer with the same limits would accept.
    #[error("message of {found} bytes in {parts} parts is beyond the limits")]
    TooLarge {
        /// Bytes.
        found: u64,
        /// Parts.
        parts: usize,
    },
    /// Sockets of this type only receive.
    #[error("a {0} sends no messages")]
    Direction(SocketType),
}

/// One connection.
#[derive(Debug)]
struct Peer {
    stream: Stream,
    session: Session,
    address: String,
    /// The connector that it belongs to; `None` if it was accepted.
    connector: Option<u64>,
    /// Whether the connection stands; `false` while it is being made.
    is_connected: bool,
    /// Whether the kernel may have bytes of it.
    is_readable: bool,
    /// Whether it waits in `Socket::turns`.
    has_turn: bool,
}

impl Peer {
    /// Returns whether it has connected to us and its handshake is not done.
    fn is_half_open(&self) -> bool {
        self.connector.is_none() && !self.session.is_ready()
    }
}

/// Result of reading a peer.
enum Pumped {
    Message(Message),
    /// End of the turn, with more to read.
    Busy,
    /// Nothing more now.
    Idle,
    /// End of the connection.
    Gone,
}

/// A socket of one of the four types.
#[derive(Debug)]
pub struct Socket {
    socket_type: SocketType,
    config: SocketConfig,
    epoll: OwnedFd,
    listeners: BTreeMap<u64, Listener>,
    connectors: BTreeMap<u64, Connector>,
    peers: BTreeMap<u64, Peer>,
    next_id: u64,
    /// Peers that may have something to read, in the order of their turns.
    turns: VecDeque<u64>,
    /// The peer that got the last message; of a PUSH.
    last: u64,
    /// Messages that peers did not take before they went; they go out first. Of a PUSH.
    returned: VecDeque<Message>,
    /// Topics subscribed to; of a SUB.
    topics: Subscriptions,
    /// When accepting is tried again after it failed.
    accept_again: Option<Instant>,
    /// When was last done what is due.
    kept: Instant,
    events: VecDeque<Event>,
    stats: Stats,
}

impl Socket {
    /// Creates a socket without peers.
    ///
    /// # Errors
    ///
    /// If the operating system gives no epoll.
    pub fn new(socket_type: SocketType, config: SocketConfig) -> io::Result<Self> {
        Ok(Self {
            socket_type,
            config,
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            listeners: BTreeMap::new(),
            connectors: BTreeMap::new(),
            peers: BTreeMap::new(),
            next_id: 0,
            turns: VecDeque::new(),
            last: 0,
            returned: VecDeque::new(),
            topics: Subscriptions::default(),
            accept_again: None,
            kept: Instant::now(),
            events: VecDeque::new(),
            stats: Stats::default(),
        })
    }

    /// Lets peers connect to `endpoint`. Gives where that is, with the actual port.
    ///
    /// # Errors
    ///
    /// [`BindError`] if it is not possible to listen there.
    pub fn bind(&mut self, endpoint: &Endpoint) -> Result<Endpoint, BindError> {
        self.try_bind(endpoint).map_err(|source| BindError {
            endpoint: endpoint.to_string(),
            source,
        })
    }

    fn try_bind(&mut self, endpoint: &Endpoint) -> io::Result<Endpoint> {
        let listener = Listener::bind(endpoint, self.config.socket_buffer_bytes)?;
        let bound = listener.endpoint()?;
        let id = self.new_id();
        epoll::add(
            &self.epoll,
            &listener,
            epoll::EventData::new_u64(id),
            EventFlags::IN | EventFlags::ET,
        )?;
        self.listeners.insert(id, listener);
        Ok(bound)
    }

    /// Connects to `endpoint`, and reconnects whenever the connection is gone. An event reports when a peer is there.
    ///
    /// # Errors
    ///
    /// [`BindError`] if its name cannot be looked up.
    pub fn connect(&mut self, endpoint: &Endpoint) -> Result<(), BindError> {
        let addresses = match endpoint {
            Endpoint::Tcp { host, port } => {
                Endpoint::resolve(host, *port).map_err(|source| BindError {
                    endpoint: endpoint.to_string(),
                    source,
                })?
            }
            Endpoint::Ipc(_) => Vec::new(),
        };
        let id = self.new_id();
        self.connectors.insert(
            id,
            Connector::new(endpoint.clone(), addresses, self.config.reconnect_pause.0),
        );
        self.begin_connect(id, Instant::now());
        Ok(())
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Subscribes to messages whose first part begins with `topic`; of a SUB.
    ///
    /// # Errors
    ///
    /// [`PeerError::Subscriptions`] if there are too many.
    pub fn subscribe(&mut self, topic: &[u8]) -> Result<(), PeerError> {
        self.topics.add(topic)?;
        self.send_subscription(topic, true);
        Ok(())
    }

    /// Cancels one subscription to `topic`; of a SUB.
    pub fn unsubscribe(&mut self, topic: &[u8]) {
        self.topics.cancel(topic);
        self.send_subscription(topic, false);
    }

    fn send_subscription(&mut self, topic: &[u8], wanted: bool) {
        let topic = Bytes::copy_from_slice(topic);
        let ready: Vec<u64> = self.ready_peers().collect();
        for id in ready {
            if let Some(peer) = self.peers.get_mut(&id) {
                peer.session.subscribe(&topic, wanted);
            }
            self.flush(id, Instant::now());
        }
    }

    fn ready_peers(&self) -> impl Iterator<Item = u64> + '_ {
        self.peers
            .iter()
            .filter(|(_, peer)| peer.session.is_ready())
            .map(|(id, _)| *id)
    }

    /// Returns the next message and who sent it; peers have their turns. `None` if none has come whole.
    pub fn try_recv(&mut self) -> Option<(PeerId, Message)> {
        self.try_recv_of(|_| true)
    }

    /// As [`try_recv`](Self::try_recv), of those peers that `wants` names. The others keep their turns, and what they
    /// send waits in the kernel.
    pub fn try_recv_of(&mut self, wants: impl Fn(PeerId) -> bool) -> Option<(PeerId, Message)> {
        if !self.socket_type.receives() {
            return None;
        }
        let now = Instant::now();
        let mut passed_over = 0;
        while passed_over < self.turns.len()
            && let Some(id) = self.turns.pop_front()
        {
            if !wants(PeerId(id)) {
                self.turns.push_back(id);
                passed_over += 1;
                continue;
            }
            passed_over = 0;
            if let Some(peer) = self.peers.get_mut(&id) {
                peer.has_turn = false;
            }
            match self.pump(id, now) {
                Pumped::Message(message) => {
                    self.give_turn(id);
                    // A PUB of before ZMTP 3.1 may send what we have not asked for.
                    let is_wanted = self.socket_type == SocketType::Pull
                        || message
                            .parts()
                            .first()
                            .is_some_and(|part| self.topics.want(part));
                    if is_wanted {
                        self.stats.received(&message);
                        return Some((PeerId(id), message));
                    }
                }
                Pumped::Busy => self.give_turn(id),
                Pumped::Idle | Pumped::Gone => {}
            }
        }
        None
    }

    fn give_turn(&mut self, id: u64) {
        if let Some(peer) = self.peers.get_mut(&id)
            && !peer.has_turn
        {
            peer.has_turn = true;
            self.turns.push_back(id);
        }
    }

    /// Reads a peer until it has a message, its turn is over, or nothing more comes.
    fn pump(&mut self, id: u64, now: Instant) -> Pumped {
        let mut turn_bytes = 0;
        loop {
            let Some(peer) = self.peers.get_mut(&id) else {
                return Pumped::Gone;
            };
            match peer.session.poll_incoming() {
                Ok(Some(Incoming::Message(message))) => return Pumped::Message(message),
                Ok(Some(Incoming::Ready(hello))) => {
                    self.greet(id, hello, now);
                    continue;
                }
                Ok(None) => {}
                Err(reason) => {
                    self.flush(id, now);
                    self.close(id, reason, now);
                    return Pumped::Gone;
                }
            }
            let Some(peer) = self.peers.get_mut(&id) else {
                return Pumped::Gone;
            };
            if !peer.is_readable {
                self.flush(id, now); // what commands were answered with
                return Pumped::Idle;
            }
            if turn_bytes >= TURN_BYTES {
                return Pumped::Busy;
            }
            match peer.session.fill(&peer.stream, now) {
                Ok(0) => {
                    let reason = peer.session.end_of_stream();
                    self.close(id, reason, now);
                    return Pumped::Gone;
                }
                Ok(bytes) => turn_bytes += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => peer.is_readable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.close(id, PeerError::Io(error.kind()), now);
                    return Pumped::Gone;
                }
            }
        }
    }

    /// Queues a message: a PUSH for the next of its peers that has room, a PUB for all that have subscribed to it.
    /// Gives for how many.
    ///
    /// A PUB drops it for a peer without room, and counts that.
    ///
    /// # Errors
    ///
    /// [`SendError`]; of a PUSH also that no peer has room.
    pub fn try_send(&mut self, message: Message) -> Result<usize, SendError> {
        let (found, parts) = (message.bytes(), message.parts().len());
        let limits = &self.config.limits;
        let is_part_too_large = message
            .parts()
            .iter()
            .any(|part| part.len() as u64 > limits.frame_bytes_max);
        if found > limits.message_bytes_max || parts > limits.parts_max || is_part_too_large {
            return Err(SendError::TooLarge { found, parts });
        }
        match self.socket_type {
            SocketType::Push => {
                self.send_returned();
                if !self.returned.is_empty() {
                    return Err(SendError::Full(message));
                }
                self.push(message)
                    .map_or(Ok(1), |message| Err(SendError::Full(message)))
            }
            SocketType::Pub => Ok(self.publish(&message)),
            other => Err(SendError::Direction(other)),
        }
    }

    /// Gives the message back if no peer has room.
    fn push(&mut self, message: Message) -> Option<Message> {
        let high_water = self.config.high_water;
        let mut has_room = |(id, peer): (&u64, &mut Peer)| {
            (peer.session.is_ready() && peer.session.outbox().has_room(&message, &high_water))
                .then_some(*id)
        };
        let after = self.last.saturating_add(1);
        let next = self.peers.range_mut(after..).find_map(&mut has_room);
        let next = next.or_else(|| self.peers.range_mut(..after).find_map(&mut has_room));
        let Some(peer) = next.and_then(|id| self.peers.get_mut(&id)) else {
            return Some(message);
        };
        self.last = next.unwrap_or_default();
        peer.session.send(message);
        self.flush(self.last, Instant::now());
        None
    }

    fn publish(&mut self, message: &Message) -> usize {
        let high_water = self.config.high_water;
        let mut to = Vec::new();
        for (id, peer) in &mut self.peers {
            if !peer.session.wants(message) {
                continue;
            }
            if peer.session.outbox().has_room(message, &high_water) {
                peer.session.send(message.clone());
                to.push(*id);
            } else {
                self.stats.dropped_messages += 1;
            }
        }
        let now = Instant::now();
        to.iter().for_each(|id| self.flush(*id, now));
        to.len()
    }

    fn send_returned(&mut self) {
        while let Some(message) = self.returned.pop_front() {
            if let Some(back) = self.push(message) {
                self.returned.push_front(back);
                return;
            }
        }
    }

    /// Messages that were taken and are not wholly with the kernel.
    #[must_use]
    pub fn queued_messages(&self) -> usize {
        self.returned.len()
            + self
                .peers
                .values()
                .map(|peer| peer.session.queued_messages())
                .sum::<usize>()
    }

    /// Gives up what is queued. Peers that have a piece of a message are closed, so that they throw it away.
    pub fn discard_queued(&mut self) {
        self.returned.clear();
        let busy: Vec<u64> = self
            .peers
            .iter()
            .filter(|(_, peer)| peer.session.queued_messages() > 0)
            .map(|(id, _)| *id)
            .collect();
        for id in busy {
            self.close(id, PeerError::ByUs, Instant::now());
        }
        self.returned.clear();
    }

    /// Writes what waits for a peer, as much as it takes now.
    fn flush(&mut self, id: u64, now: Instant) {
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        if !peer.is_connected {
            return;
        }
        match peer.session.write(&mut peer.stream, now) {
            Ok(messages) => self.stats.sent_messages += messages,
            Err(error) => self.close(id, PeerError::Io(error.kind()), now),
        }
    }

    /// Closes the connection to a peer, because of what it sent or for any other reason of its owner.
    pub fn disconnect(&mut self, peer: PeerId) {
        self.close(peer.0, PeerError::ByUs, Instant::now());
    }

    /// Returns what happened, the oldest first.
    pub fn try_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn notify(&mut self, event: Event) {
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Returns the peers whose handshake is done.
    #[must_use]
    pub fn ready(&self) -> Vec<PeerId> {
        self.ready_peers().map(PeerId).collect()
    }

    /// Peers whose handshake is done.
    #[must_use]
    pub fn peers(&self) -> usize {
        self.ready_peers().count()
    }

    /// Peers that have subscribed to something; of a PUB.
    #[must_use]
    pub fn subscribers(&self) -> usize {
        self.peers
            .values()
            .filter(|peer| peer.session.is_ready() && peer.session.is_subscribed())
            .count()
    }

    /// Returns whether a PUSH has a peer with nothing queued, or a PUB any peer.
    #[must_use]
    pub fn has_idle_peer(&self) -> bool {
        self.peers
            .values()
            .any(|peer| peer.session.is_ready() && peer.session.queued_messages() == 0)
    }

    /// Counts so far.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns bytes of messages that have not come whole, of all peers together.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.peers
            .values()
            .map(|peer| peer.session.held_bytes())
            .sum()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(test)]
mod tests;
