//! Where peers come in: listening, accepting, and the room that there is for them.

use super::address::{Address, resolve};
use super::config::TcpConfig;
use super::connection::{Connection, Side};
use super::session::Session;
use super::stream::Stream;
use super::{Tcp, close_notice, options, token};
use crate::transport::{CloseReason, ConnId, Event, ListenError, ListenerId, TlsFailure};
use crate::unix::{UnixSocket, unix_path};
use mio::Interest;
use mio::unix::SourceFd;
use rustix::net::SocketFlags;
use socket2::{SockRef, Socket};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::time::{Duration, Instant};

/// Connections accepted at a listener in one poll.
const ACCEPTS_MAX: usize = 64;

/// Connections accepted at a listener with TLS in one poll. A handshake costs a signature, some 100 µs: those who
/// come may not keep those who are here from their data.
const HANDSHAKES_MAX: usize = 8;

/// After a failure to accept, for instance for want of file descriptors, the next attempt waits this long.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// One address that peers connect to.
pub(super) struct Listener {
    pub(super) id: ListenerId,
    socket: ListenSocket,
    is_bulk: bool,
    /// Whether a connection may wait to be accepted.
    pub(super) ready: bool,
    /// When to try again after a failure.
    pub(super) again: Option<Instant>,
    /// Whether its connections are [dealt](super::deal) to other endpoints.
    pub(super) deals: bool,
}

/// Connection of a peer that is not accepted yet.
pub(super) struct Arrival {
    stream: Stream,
    listener: ListenerId,
    is_bulk: bool,
    /// Address that the peer is counted for.
    pub(super) ip: IpAddr,
    /// Address of the peer, for logs.
    peer: String,
}

/// Socket that peers connect to.
enum ListenSocket {
    Inet(Socket),
    /// File goes with it.
    Unix(UnixSocket),
}

impl ListenSocket {
    fn socket(&self) -> BorrowedFd<'_> {
        match self {
            Self::Inet(socket) => socket.as_fd(),
            Self::Unix(socket) => socket.as_fd(),
        }
    }

    /// Returns where it is.
    fn address(&self) -> io::Result<Address> {
        match self {
            Self::Inet(socket) => {
                let address = socket.local_addr()?.as_socket();
                Ok(Address::Inet(address.ok_or(ErrorKind::InvalidData)?))
            }
            Self::Unix(socket) => Ok(Address::Unix(socket.path().to_owned())),
        }
    }

    /// Returns the next peer and its address. That of a Unix socket has no name of its own, and has that where it
    /// came in.
    fn accept(&self, config: &TcpConfig) -> io::Result<(Stream, Address)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (socket, peer) = rustix::net::acceptfrom_with(self.socket(), flags)?;
        let address = match self {
            Self::Inet(_) => {
                let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                Address::Inet(peer.ok_or(ErrorKind::ConnectionAborted)?)
            }
            Self::Unix(_) => {
                options::prepare_unix(&SockRef::from(&socket), config)?;
                self.address()?
            }
        };
        Ok((Stream::new(socket.into(), &address), address))
    }
}

/// Returns the address that a peer is counted for: one without an address on the network is a peer of this machine,
/// like those on loopback.
fn counted_for(peer: &Address) -> IpAddr {
    peer.ip().unwrap_or(Ipv4Addr::LOCALHOST.into())
}

impl Tcp {
    /// Makes room for one more connection from `ip`, at the cost of the oldest without an accepted hello if it must be.
    pub(super) fn make_room(&mut self, ip: IpAddr, events: &mut Vec<Event>) -> bool {
        let of_ip = self.by_ip.get(&ip).copied().unwrap_or(0);
        if of_ip >= self.shared.config.accepted_per_ip_max || !self.has_room() {
            return false;
        }
        if self.greeting.len() >= self.shared.config.greeting_max
            && let Some(oldest) = self.greeting.first().copied()
        {
            events.extend(self.remove(oldest, CloseReason::Crowded));
        }
        true
    }

    fn count_in(&mut self, conn: ConnId, ip: IpAddr, is_bulk: bool) {
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.ip = Some(ip);
            connection.is_bulk = is_bulk;
            *self.by_ip.entry(ip).or_default() += 1;
        }
    }

    pub(super) fn count_gone(&mut self, ip: IpAddr) {
        if let Some(count) = self.by_ip.get_mut(&ip) {
            *count -= 1;
            if *count == 0 {
                self.by_ip.remove(&ip);
            }
        }
    }

    /// Refuses a connection: with a close notice where the stream can carry one, and an entry in the refusals.
    pub(super) fn refuse_peer(&mut self, arrival: Arrival, now: Instant) {
        let Arrival {
            stream,
            is_bulk,
            peer,
            ..
        } = arrival;
        let reason = CloseReason::Crowded;
        self.shared.stats.refused.too_many += 1;
        let frame = self
            .close_notice
            .and_then(|close_notice| close_notice(&reason));
        if let Some(frame) = frame.filter(|_| self.security.tls(is_bulk).is_none()) {
            close_notice::refuse_peer(stream, frame, &mut self.shared, now);
        }
        self.note_refusal(peer, reason);
    }

    /// Makes room for one more connection of a peer, at the cost of the oldest handshake if it must be.
    fn has_room(&mut self) -> bool {
        let is_full = self.accepted >= self.shared.config.accepted_max;
        if !is_full && self.shaking.len() < self.shared.config.handshakes_max {
            return true;
        }
        let Some(oldest) = self.shaking.first().copied() else {
            return !is_full;
        };
        let since = self.connections.get(&oldest).map(Connection::age);
        let limit_ms = since.map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        self.shared.stats.refused.tls_crowded += 1;
        self.remove(oldest, CloseReason::Tls(TlsFailure::Slow { limit_ms }));
        true
    }

    /// Begins to listen.
    pub(super) fn open(
        &mut self,
        address: &str,
        is_bulk: bool,
    ) -> Result<(ListenerId, String), ListenError> {
        let failed = |source| ListenError::Io {
            address: address.to_owned(),
            source,
        };
        if let Some(Err(found)) = unix_path(address) {
            let address = address.to_owned();
            return Err(ListenError::Path { address, found });
        }
        let asked = resolve(address).map_err(|_| ListenError::Address {
            address: address.to_owned(),
        })?;
        if self.security.tls(is_bulk).is_none() && !self.security.allows(&asked) {
            let address = address.to_owned();
            return Err(ListenError::Insecure { address });
        }
        let config = &self.shared.config;
        let socket = match &asked {
            Address::Inet(asked) => {
                ListenSocket::Inet(options::listening_socket(*asked, config).map_err(failed)?)
            }
            Address::Unix(path) => {
                let socket = UnixSocket::bind(path).map_err(|source| ListenError::Unix {
                    address: address.to_owned(),
                    source,
                })?;
                // It listens already; this says how many may wait.
                let backlog = i32::from(config.listen_backlog);
                rustix::net::listen(&socket, backlog).map_err(|error| failed(error.into()))?;
                ListenSocket::Unix(socket)
            }
        };
        let actual = socket.address().map_err(failed)?;
        let id = ListenerId(self.id());
        let registry = self.poll.registry();
        registry
            .register(
                &mut SourceFd(&socket.socket().as_raw_fd()),
                token(id.0),
                Interest::READABLE,
            )
            .map_err(failed)?;
        self.listeners.push(Listener {
            id,
            socket,
            is_bulk,
            ready: true,
            again: None,
            deals: false,
        });
        Ok((id, actual.to_string()))
    }

    pub(super) fn accept_all(&mut self, events: &mut Vec<Event>, now: Instant) {
        let mut listeners = std::mem::take(&mut self.listeners);
        for listener in &mut listeners {
            if listener.again.is_some_and(|again| now < again) {
                continue;
            }
            listener.again = None;
            let is_sealed = self.security.tls(listener.is_bulk).is_some();
            let accepts_max = if is_sealed {
                HANDSHAKES_MAX
            } else {
                ACCEPTS_MAX
            };
            for _ in 0..accepts_max {
                if !listener.ready || listener.again.is_some() {
                    break;
                }
                self.accept(listener, events, now);
            }
        }
        self.listeners = listeners;
    }

    fn accept(&mut self, listener: &mut Listener, events: &mut Vec<Event>, now: Instant) {
        let accepted = listener.socket.accept(&self.shared.config);
        let arrival = accepted.map(|(stream, peer)| Arrival {
            stream,
            listener: listener.id,
            is_bulk: listener.is_bulk,
            ip: counted_for(&peer),
            peer: peer.to_string(),
        });
        let error = match arrival {
            Ok(arrival) if !self.make_room(arrival.ip, events) => {
                self.refuse_peer(arrival, now);
                return;
            }
            Ok(arrival) if listener.deals => return self.deal_out(arrival),
            Ok(arrival) => {
                let conn = self.next_conn();
                match self.take_in(conn, arrival, now) {
                    Ok(event) => {
                        events.extend(event);
                        return;
                    }
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        match error.kind() {
            ErrorKind::WouldBlock => listener.ready = false,
            ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {}
            _ => {
                self.shared.stats.accept_errors += 1;
                let again = now + ACCEPT_AGAIN;
                listener.again = Some(again);
                self.keep_deadline(Some(again));
            }
        }
    }

    /// Accepts a connection of a peer. With TLS it is reported when its handshake is over.
    pub(super) fn take_in(
        &mut self,
        conn: ConnId,
        arrival: Arrival,
        now: Instant,
    ) -> io::Result<Option<Event>> {
        let Arrival {
            stream,
            listener,
            is_bulk,
            ip,
            peer,
        } = arrival;
        if let Some(tls) = self.security.tls(is_bulk) {
            let arrival = (listener, peer);
            let session = Session::server(tls, arrival, self.shared.protection);
            let session = session.map_err(io::Error::other)?;
            self.add(conn, Side::Accepting, stream, Some(session), now)?;
            self.count_in(conn, ip, is_bulk);
            return Ok(None);
        }
        self.add(conn, Side::Accepting, stream, None, now)?;
        self.count_in(conn, ip, is_bulk);
        self.greeting.insert(conn);
        self.shared.stats.accepted += 1;
        if !self.shared.config.awaits_admission {
            self.offer_lane(conn);
        }
        Ok(Some(Event::Accepted {
            conn,
            listener,
            peer,
        }))
    }
}
