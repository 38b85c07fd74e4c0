//! Where peers come in: listening, accepting, and the room that there is for them.

use super::connection::{Connection, Side};
use super::session::Session;
use super::{Tcp, options, resolve, token};
use crate::transport::{CloseReason, Event, ListenError, ListenerId, TlsFailure};
use mio::Interest;
use mio::net::{TcpListener, TcpStream};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
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
    socket: TcpListener,
    is_bulk: bool,
    /// Whether there may be somebody to accept.
    pub(super) ready: bool,
    /// When to try again after a failure.
    pub(super) again: Option<Instant>,
}

impl Tcp {
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
        let asked = resolve(address).map_err(|_| ListenError::Address {
            address: address.to_owned(),
        })?;
        if self.security.tls(is_bulk).is_none() && !self.security.allows(asked) {
            let address = address.to_owned();
            return Err(ListenError::Insecure { address });
        }
        let socket = options::listening_socket(asked, &self.shared.config).map_err(failed)?;
        let mut socket = TcpListener::from_std(socket.into());
        let actual = socket.local_addr().map_err(failed)?;
        let id = ListenerId(self.id());
        let registry = self.poll.registry();
        registry
            .register(&mut socket, token(id.0), Interest::READABLE)
            .map_err(failed)?;
        self.listeners.push(Listener {
            id,
            socket,
            is_bulk,
            ready: true,
            again: None,
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
        let error = match listener.socket.accept() {
            Ok(_) if !self.has_room() => {
                self.shared.stats.refused.too_many += 1;
                return;
            }
            Ok((stream, peer)) => match self.welcome(listener, stream, peer, now) {
                Ok(event) => {
                    events.extend(event);
                    return;
                }
                Err(error) => error,
            },
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

    /// Takes in a connection of a peer. With TLS nobody is told of it before its handshake is over.
    fn welcome(
        &mut self,
        listener: &Listener,
        stream: TcpStream,
        peer: SocketAddr,
        now: Instant,
    ) -> io::Result<Option<Event>> {
        let (listener, is_bulk) = (listener.id, listener.is_bulk);
        let peer = peer.to_string();
        if let Some(tls) = self.security.tls(is_bulk) {
            let session = Session::server(tls, (listener, peer)).map_err(io::Error::other)?;
            self.add(Side::Accepting, stream, Some(session), now)?;
            return Ok(None);
        }
        let conn = self.add(Side::Accepting, stream, None, now)?;
        self.shared.stats.accepted += 1;
        Ok(Some(Event::Accepted {
            conn,
            listener,
            peer,
        }))
    }
}
