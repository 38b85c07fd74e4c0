//! How connections come and go: accepted, connected, greeted, given up, connected again.

use super::{Event, Peer, PeerId, Socket};
use crate::endpoint::Endpoint;
use crate::error::PeerError;
use crate::input::Limits;
use crate::message::Message;
use crate::session::{PeerHello, Session, SessionConfig, millis};
use crate::socket_type::SocketType;
use crate::stream::Stream;
use rustix::event::epoll::{self, EventFlags};
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Shortest pause between checks of deadlines: a deadline may have passed that nothing can be done about yet.
const STEP: Duration = Duration::from_millis(10);
/// Bytes of a message that subscribes: the topic, and one byte before it. As many as all topics of a peer may have.
const SUBSCRIPTION_BYTES_MAX: u64 = 64 << 10;

/// An endpoint that is connected to, whenever it is not.
#[derive(Debug)]
pub(super) struct Connector {
    endpoint: Endpoint,
    addresses: Vec<SocketAddr>,
    /// Which address is next.
    at: usize,
    pause: Duration,
    /// When it is tried again; `None` while there is a connection.
    due: Option<Instant>,
}

impl Connector {
    pub(super) fn new(endpoint: Endpoint, addresses: Vec<SocketAddr>, pause: Duration) -> Self {
        Self {
            endpoint,
            addresses,
            at: 0,
            pause,
            due: None,
        }
    }

    fn begin(&mut self, buffer_bytes: Option<usize>) -> io::Result<Stream> {
        if let Endpoint::Ipc(path) = &self.endpoint {
            return Stream::unix(path);
        }
        let address = self.addresses.get(self.at % self.addresses.len().max(1));
        self.at = self.at.wrapping_add(1);
        let address = address.copied().ok_or(io::ErrorKind::AddrNotAvailable)?;
        Stream::begin(address, buffer_bytes)
    }
}

impl Socket {
    pub(super) fn accept(&mut self, listener: u64, now: Instant) {
        while let Some(accepted) = self.listeners.get(&listener).map(super::Listener::accept) {
            match accepted {
                Ok((stream, address)) => self.add(stream, address, None, now),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The peer has gone while it waited.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    self.accept_again = now.checked_add(ACCEPT_PAUSE);
                    self.notify(Event::NotAccepted(error.kind()));
                    return;
                }
            }
        }
    }

    pub(super) fn begin_connect(&mut self, id: u64, now: Instant) {
        let buffer_bytes = self.config.socket_buffer_bytes;
        let Some(connector) = self.connectors.get_mut(&id) else {
            return;
        };
        connector.due = None;
        let address = connector.endpoint.to_string();
        match connector.begin(buffer_bytes) {
            Ok(stream) => self.add(stream, address, Some(id), now),
            Err(error) => {
                let peer = PeerId(self.new_id());
                self.lose(
                    peer,
                    address,
                    Some(id),
                    PeerError::Unreachable(error.kind()),
                    now,
                );
            }
        }
    }

    fn add(&mut self, stream: Stream, address: String, connector: Option<u64>, now: Instant) {
        let id = self.new_id();
        if let Some(crowded) = self.crowded() {
            self.lose(PeerId(id), address, connector, crowded, now);
            return;
        }
        if connector.is_none() {
            self.make_room(now);
        }
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        if let Err(error) = epoll::add(&self.epoll, &stream, epoll::EventData::new_u64(id), flags) {
            let kind = io::Error::from(error).kind();
            self.lose(PeerId(id), address, connector, PeerError::Io(kind), now);
            return;
        }
        let session = SessionConfig {
            socket_type: self.socket_type,
            identity: self.config.identity.clone(),
            limits: self.accepted(),
            handshake: self.config.handshake,
            heartbeat: self.config.heartbeat,
        };
        let is_connected = connector.is_none();
        let peer = Peer {
            stream,
            session: Session::new(session, now),
            address,
            connector,
            is_connected,
            is_readable: false,
            has_turn: false,
        };
        self.peers.insert(id, peer);
        // The epoll says when it can be written to, also for the first time.
    }

    /// Returns why no further peer is taken, if there are as many as there may be.
    fn crowded(&self) -> Option<PeerError> {
        let max = self.config.peers_max;
        let taken = self.peers.values().filter(|peer| !peer.is_half_open());
        (taken.count() >= max).then_some(PeerError::Crowded { max })
    }

    /// Makes room for one more handshake, at the cost of the one that was not heard for longest if it must be.
    fn make_room(&mut self, now: Instant) {
        let max = self.config.handshakes_max;
        let half_open = || self.peers.iter().filter(|(_, peer)| peer.is_half_open());
        if half_open().count() < max {
            return;
        }
        let longest = half_open().min_by_key(|(id, peer)| (peer.session.heard(), **id));
        if let Some(id) = longest.map(|(id, _)| *id) {
            self.close(id, PeerError::Displaced { max }, now);
        }
    }

    /// Returns what may come in: of who only sends, nothing but the subscriptions of a peer of before ZMTP 3.1.
    fn accepted(&self) -> Limits {
        if self.socket_type.receives() {
            return self.config.limits;
        }
        Limits {
            frame_bytes_max: SUBSCRIPTION_BYTES_MAX,
            message_bytes_max: SUBSCRIPTION_BYTES_MAX,
            parts_max: 1,
        }
    }

    /// The handshake with a peer is done.
    pub(super) fn greet(&mut self, id: u64, hello: PeerHello, now: Instant) {
        let max = self.config.peers_max;
        let others = self.peers.iter().filter(|(other, _)| **other != id);
        if others.filter(|(_, peer)| !peer.is_half_open()).count() >= max {
            self.close(id, PeerError::Crowded { max }, now);
            return;
        }
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        for topic in self.topics.topics() {
            peer.session.subscribe(topic, true);
        }
        if let Some(connector) = peer
            .connector
            .and_then(|connector| self.connectors.get_mut(&connector))
        {
            connector.pause = self.config.reconnect_pause.0;
        }
        let address = peer.address.clone();
        self.stats.peers += 1;
        self.notify(Event::Ready {
            peer: PeerId(id),
            address,
            hello,
        });
        self.flush(id, now);
    }

    /// Ends the connection to a peer. What a PUSH had for it goes to the others.
    pub(super) fn close(&mut self, id: u64, reason: PeerError, now: Instant) {
        let Some(mut peer) = self.peers.remove(&id) else {
            return;
        };
        if self.socket_type == SocketType::Push {
            let back: Vec<Message> = peer.session.outbox().take_back().collect();
            self.stats.returned_messages += back.len() as u64;
            if self.config.resends {
                self.returned.extend(back);
            }
        }
        let Peer {
            stream,
            address,
            connector,
            ..
        } = peer;
        drop(stream);
        self.lose(PeerId(id), address, connector, reason, now);
    }

    fn lose(
        &mut self,
        peer: PeerId,
        address: String,
        connector: Option<u64>,
        reason: PeerError,
        now: Instant,
    ) {
        self.stats.end(&reason);
        if let Some(connector) = connector.and_then(|connector| self.connectors.get_mut(&connector))
        {
            connector.due = now.checked_add(connector.pause);
            connector.pause = (connector.pause * 2).min(self.config.reconnect_pause.1);
        }
        self.notify(Event::Gone {
            peer,
            address,
            reason,
        });
    }

    /// Does what is due.
    pub(super) fn keep_time(&mut self, now: Instant) {
        if self.deadline().is_none_or(|deadline| deadline > now) {
            return;
        }
        self.kept = now;
        if self.accept_again.is_some_and(|due| due <= now) {
            self.accept_again = None;
            let listeners: Vec<u64> = self.listeners.keys().copied().collect();
            listeners.into_iter().for_each(|id| self.accept(id, now));
        }
        let due = self
            .connectors
            .iter()
            .filter(|(_, connector)| connector.due.is_some_and(|due| due <= now));
        let due: Vec<u64> = due.map(|(id, _)| *id).collect();
        due.into_iter().for_each(|id| self.begin_connect(id, now));
        let peers: Vec<u64> = self.peers.keys().copied().collect();
        for id in peers {
            let is_missed = match self.socket_type {
                SocketType::Push => self.other_is_idle(id),
                SocketType::Pub => true,
                SocketType::Pull | SocketType::Sub => false,
            };
            let Some(peer) = self.peers.get_mut(&id) else {
                continue;
            };
            let is_unread = peer.is_readable || peer.session.held_bytes() > 0;
            let stall = self.config.stall;
            let outcome = match peer.session.tick(now, is_unread) {
                Ok(()) if is_missed && peer.session.stalled_for(now) >= stall => {
                    Err(PeerError::Stalled {
                        limit_ms: millis(stall),
                    })
                }
                other => other,
            };
            match outcome {
                Ok(()) => self.flush(id, now),
                Err(reason) => self.close(id, reason, now),
            }
        }
    }

    fn other_is_idle(&self, id: u64) -> bool {
        let mut others = self.peers.iter().filter(|(other, _)| **other != id);
        others.any(|(_, peer)| peer.session.is_ready() && peer.session.queued_messages() == 0)
    }

    /// Returns when [`drive`](Self::drive) has something to do even if no peer sends.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let may_stall = match self.socket_type {
            SocketType::Push => self.peers.len() > 1,
            SocketType::Pub => true,
            SocketType::Pull | SocketType::Sub => false,
        };
        let stall = may_stall.then_some(self.config.stall);
        let peers = self.peers.values().flat_map(|peer| {
            let stalled = stall.and_then(|stall| peer.session.stalled_since()?.checked_add(stall));
            peer.session.deadline().into_iter().chain(stalled)
        });
        let connectors = self
            .connectors
            .values()
            .filter_map(|connector| connector.due);
        let soonest = peers.chain(connectors).chain(self.accept_again).min()?;
        Some(soonest.max(self.kept.checked_add(STEP)?))
    }
}
