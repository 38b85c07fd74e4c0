//! Lanes: setup of shared memory beside connections.
//!
//! The accepting side of a bulk stream whose peer has an address of this machine offers a lane on the stream. The
//! connecting side brings the memory to the listener that the offer names, is accepted there, and announces on the
//! stream that all further frames are named in the lane. Whatever fails on the way, the stream carries all, as to
//! another machine.

use super::connection::{Connection, LaneIn, OFFER, OPEN};
use super::{Tcp, token};
use crate::arena::Arena;
use crate::handover::Holdings;
use crate::mapping::Mapping;
use crate::shm::lane::{LaneReceiver, LaneSender, MEMORY_BYTES};
use crate::shm::lendable::Lendable;
use crate::shm::meeting::{self, Joining, LaneListener, Offer, REGIONS_MAX, Signal};
use crate::shm::message::Token;
use crate::transport::{CloseReason, ConnId, Event, Frame};
use mio::Interest;
use mio::unix::SourceFd;
use sheaf_protocol::WireKind;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

/// Most connections at the listener that have not named their stream yet; one more closes the oldest.
const JOINING_MAX: usize = 64;

/// The lanes of an endpoint, by the ids of their sockets.
#[derive(Default)]
pub(super) struct Lanes {
    /// Memory that may be lent.
    lendable: Vec<Lendable>,
    listener: Option<(u64, LaneListener)>,
    /// Whether opening the listener failed, so that no lanes are offered.
    is_shut: bool,
    /// Streams that were offered a lane and did not come for it yet.
    offered: BTreeMap<Token, ConnId>,
    /// Peers that have not brought all of their memory.
    joining: BTreeMap<u64, Joining>,
    /// Lanes that were brought and not welcomed yet.
    pending: HashMap<u64, (ConnId, LaneSender)>,
    /// Lanes that stand, by the ids of their sockets.
    standing: HashMap<u64, ConnId>,
    /// Lanes without a stream, whose borrower has not given all back.
    parting: HashMap<u64, LaneSender>,
    /// Sockets of which epoll has told.
    pub(super) awake: Vec<u64>,
}

impl Tcp {
    /// Has bodies that lie in `arena` lent to peers on this machine, instead of copied, if it was made to be
    /// [shared](crate::ArenaOptions::shared). At most `bytes_max` of it are lent at once: what is beyond travels, as to
    /// another machine, so that a peer that keeps what it has does not take the memory from the source of it.
    ///
    /// Bodies that lie elsewhere are copied into the first such arena as long as it is not half full. An endpoint lends
    /// out of at most seven; further ones are not lent out of.
    pub fn lend(&mut self, arena: &Arc<Arena>, bytes_max: u64) {
        self.lend_one(arena, bytes_max);
    }

    /// As [`lend`](Self::lend). Returns what may be lent now, for other endpoints that lend out of it, too.
    pub(crate) fn lend_one(&mut self, arena: &Arc<Arena>, bytes_max: u64) -> Option<Lendable> {
        let is_wanted = arena.file().is_some() && self.lanes.lendable.len() < REGIONS_MAX;
        is_wanted.then(|| {
            let lendable = Lendable::new(Arc::clone(arena), bytes_max);
            self.lend_out_of(lendable.clone());
            lendable
        })
    }

    /// Lends out of memory that another endpoint lends out of, too, within one bound.
    pub(crate) fn lend_out_of(&mut self, lendable: Lendable) {
        self.lanes.lendable.push(lendable);
    }

    /// Notes what is lent to this endpoint where another one does.
    pub(crate) fn share_holdings(&mut self, holdings: Holdings) {
        self.holdings = holdings;
    }

    /// Returns what peers have lent to this endpoint, to be passed to further processes where it lies.
    #[must_use]
    pub fn holdings(&self) -> Holdings {
        self.holdings.clone()
    }

    /// Offers a lane to a peer on this machine.
    pub(super) fn offer_lane(&mut self, conn: ConnId) {
        let is_wanted = self.shared.config.shared_memory && !self.lanes.is_shut;
        let connection = self.connections.get(&conn);
        if !is_wanted || !connection.is_some_and(|found| found.is_bulk && found.is_local()) {
            return;
        }
        let Ok((name, token)) = self.open_lane_listener() else {
            self.lanes.is_shut = true; // No Unix sockets here: the streams carry all.
            self.shared.stats.lanes_failed += 1;
            return;
        };
        let offer = Offer { token, name };
        let head = [&[OFFER], offer.encode().as_slice()].concat();
        let frame = Frame::without_body(WireKind::Lane, head.into());
        if let Some(connection) = self.connections.get_mut(&conn)
            && connection.outbox.push(frame).is_ok()
        {
            self.lanes.offered.insert(token, conn);
            self.enlist(conn);
        }
    }

    fn open_lane_listener(&mut self) -> io::Result<(Vec<u8>, Token)> {
        let token = Token::new()?;
        if let Some((_, listener)) = &self.lanes.listener {
            return Ok((listener.name.clone(), token));
        }
        let listener = LaneListener::open()?;
        let id = self.id();
        self.watch(id, listener.socket())?;
        let name = listener.name.clone();
        self.lanes.listener = Some((id, listener));
        Ok((name, token))
    }

    fn watch(&self, id: u64, socket: BorrowedFd<'_>) -> io::Result<()> {
        let socket = socket.as_raw_fd();
        let registry = self.poll.registry();
        registry.register(&mut SourceFd(&socket), token(id), Interest::READABLE)
    }

    fn unwatch(&self, socket: BorrowedFd<'_>) {
        // A failure says that epoll does not know it any more.
        let _ = self
            .poll
            .registry()
            .deregister(&mut SourceFd(&socket.as_raw_fd()));
    }

    /// Returns whether every lane has asked for a wake, or has nothing that a turn would take.
    pub(super) fn lanes_sleep(&mut self) -> bool {
        let mut all_sleep = true;
        for conn in self.lanes.standing.values() {
            if let Some(connection) = self.connections.get_mut(conn)
                && !connection.listed
                && !connection.lane_sleeps()
            {
                connection.listed = true;
                self.ready.push_back(*conn);
                all_sleep = false;
            }
        }
        all_sleep
    }

    /// Brings lanes on: offers, peers that join, welcomes, wakes, and what comes back.
    pub(super) fn meet(&mut self, events: &mut Vec<Event>) {
        for (conn, offer) in std::mem::take(&mut self.shared.offers) {
            if self.shared.config.shared_memory && self.connect_lane(conn, &offer).is_err() {
                self.shared.stats.lanes_failed += 1;
            }
        }
        let mut awake = std::mem::take(&mut self.lanes.awake);
        for id in awake.drain(..) {
            if self
                .lanes
                .listener
                .as_ref()
                .is_some_and(|(listener, _)| *listener == id)
            {
                self.accept_lanes();
            } else if self.lanes.joining.contains_key(&id) {
                self.receive_hello(id);
            } else if self.lanes.pending.contains_key(&id) {
                self.receive_welcome(id);
            } else if let Some(conn) = self.lanes.standing.get(&id).copied() {
                self.poll_lane(conn);
            } else if let Some(lane_sender) = self.lanes.parting.get(&id)
                && meeting::listen(lane_sender.socket()) == Signal::Gone
            {
                self.lanes.parting.remove(&id);
            }
        }
        self.lanes.awake = awake;
        self.take_back(events);
    }

    /// Reclaims what peers release: memory that the rest of the process waits for.
    fn take_back(&mut self, events: &mut Vec<Event>) {
        let mut broken = Vec::new();
        for conn in self.lanes.standing.values() {
            if let Some(connection) = self.connections.get_mut(conn)
                && let Some(lane_sender) = connection.outbox.lane_sender()
                && let Err(fault) = lane_sender.reap()
            {
                broken.push((*conn, CloseReason::Shm(fault)));
            }
        }
        broken.sort_unstable_by_key(|(conn, _)| *conn);
        for (conn, reason) in broken {
            events.extend(self.remove(conn, reason));
        }
        // One that breaks its ring now has its memory until it ends.
        let poll = &self.poll;
        self.lanes.parting.retain(|_, lane_sender| {
            let keeps = lane_sender.reap().is_err() || lane_sender.has_lent();
            if !keeps {
                let socket = lane_sender.socket().as_raw_fd();
                let _ = poll.registry().deregister(&mut SourceFd(&socket));
            }
            keeps
        });
    }

    /// Brings a lane to where `offer` says.
    fn connect_lane(&mut self, conn: ConnId, offer: &Offer) -> io::Result<()> {
        let is_pending = self.lanes.pending.values().any(|(of, _)| *of == conn);
        // One lane a stream, however often it is offered.
        let is_wanted =
            |found: &mut Connection| found.is_local() && found.outbox.lane_sender().is_none();
        let connection = self.connections.get_mut(&conn);
        if self.lanes.lendable.is_empty() || is_pending || !connection.is_some_and(is_wanted) {
            return Ok(());
        }
        let memory = Mapping::shared(MEMORY_BYTES)?;
        let regions = self.lanes.lendable.clone();
        let socket = meeting::connect(offer, &memory, &regions)?;
        let id = self.id();
        self.watch(id, socket.as_fd())?;
        let lane_sender = LaneSender::new(
            Arc::new(memory),
            regions,
            socket,
            self.shared.config.lane_bytes_max,
        );
        self.lanes.pending.insert(id, (conn, lane_sender));
        Ok(())
    }

    fn accept_lanes(&mut self) {
        loop {
            let Some((_, listener)) = &self.lanes.listener else {
                return;
            };
            let Ok(Some(socket)) = listener.accept() else {
                return; // An error (no file descriptor left) leaves it to the stream.
            };
            let id = self.id();
            if self.watch(id, socket.as_fd()).is_err() {
                continue;
            }
            if self.lanes.joining.len() >= JOINING_MAX
                && let Some((_, oldest)) = self.lanes.joining.pop_first()
            {
                self.unwatch(oldest.socket());
                self.shared.stats.lanes_failed += 1;
            }
            self.lanes.joining.insert(id, Joining::new(socket));
            self.receive_hello(id);
        }
    }

    fn receive_hello(&mut self, id: u64) {
        let Some(joining) = self.lanes.joining.get_mut(&id) else {
            return;
        };
        let hello = match joining.receive(MEMORY_BYTES) {
            Ok(None) => return,
            Ok(Some(hello)) => Some(hello),
            Err(_) => None,
        };
        let Some(socket) = self.lanes.joining.remove(&id).map(Joining::into_socket) else {
            return;
        };
        let offered = hello.and_then(|hello| {
            let conn = self.lanes.offered.remove(&hello.token)?;
            Some((hello, conn))
        });
        let is_welcome = || meeting::welcome(socket.as_fd()).is_ok();
        match offered.filter(|(_, conn)| self.connections.contains_key(conn) && is_welcome()) {
            Some((hello, conn)) => {
                let lane_receiver = LaneReceiver::new(hello.lane, hello.regions, socket);
                self.holdings.add(lane_receiver.session());
                if let Some(connection) = self.connections.get_mut(&conn) {
                    connection.lane = Some(Box::new(LaneIn::new(lane_receiver)));
                    self.lanes.standing.insert(id, conn);
                    self.shared.stats.lanes += 1;
                }
            }
            None => {
                self.unwatch(socket.as_fd());
                self.shared.stats.lanes_failed += 1;
            }
        }
    }

    fn receive_welcome(&mut self, id: u64) {
        let Some((_, lane_sender)) = self.lanes.pending.get(&id) else {
            return;
        };
        let signal = meeting::listen(lane_sender.socket());
        if signal == Signal::Wakes {
            return;
        }
        let Some((conn, lane_sender)) = self.lanes.pending.remove(&id) else {
            return;
        };
        match self.connections.get_mut(&conn) {
            Some(connection) if signal == Signal::Welcome && connection.takes_frames() => {
                let open = Frame::without_body(WireKind::Lane, vec![OPEN].into());
                connection.outbox.open_lane(lane_sender, open);
                self.lanes.standing.insert(id, conn);
                self.shared.stats.lanes += 1;
                self.enlist(conn);
            }
            _ => {
                self.unwatch(lane_sender.socket());
                self.shared.stats.lanes_failed += 1;
            }
        }
    }

    /// A wake: there is something to take, or room again. If the other end is gone, the stream tells so too.
    fn poll_lane(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(&conn) else {
            return;
        };
        if let Some(lane) = &connection.lane {
            meeting::listen(lane.lane_receiver.socket());
        }
        if let Some(lane_sender) = connection.outbox.lane_sender() {
            meeting::listen(lane_sender.socket());
            connection.outbox.try_lane_again();
        }
        self.enlist(conn);
    }

    /// The stream of `connection` is over. What it borrowed goes back when its last user is done with it; what it lent
    /// stays lent until it comes back, or its borrower is gone.
    pub(super) fn part(&mut self, conn: ConnId, connection: &mut Connection) {
        self.lanes.offered.retain(|_, offered| *offered != conn);
        let pending: Vec<u64> = self
            .lanes
            .pending
            .iter()
            .filter(|(_, (of, _))| *of == conn)
            .map(|(id, _)| *id)
            .collect();
        for id in pending {
            if let Some((_, lane_sender)) = self.lanes.pending.remove(&id) {
                self.unwatch(lane_sender.socket());
            }
        }
        if let Some(lane) = connection.lane.take() {
            self.lanes.standing.retain(|_, standing| *standing != conn);
            self.unwatch(lane.lane_receiver.socket());
        }
        if let Some(mut lane_sender) = connection.outbox.take_lane_sender() {
            let id = self
                .lanes
                .standing
                .iter()
                .find_map(|(id, standing)| (*standing == conn).then_some(*id));
            let Some(id) = id else { return };
            self.lanes.standing.remove(&id);
            let is_broken = lane_sender.reap().is_err();
            let is_gone = meeting::listen(lane_sender.socket()) == Signal::Gone;
            if !is_gone && (is_broken || lane_sender.has_lent()) {
                self.lanes.parting.insert(id, lane_sender);
            } else {
                self.unwatch(lane_sender.socket());
            }
        }
    }

    /// Lanes whose streams are over and whose borrowers have not given all back.
    #[must_use]
    pub fn parting_lanes(&self) -> usize {
        self.lanes.parting.len()
    }
}
