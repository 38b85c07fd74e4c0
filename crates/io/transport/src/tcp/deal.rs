//! Connections that one endpoint accepts and another one serves: see [`Sharded`](crate::Sharded).
//!
//! The endpoint that listens counts them, since the limits on peers are those of the node. The one that serves them
//! does all the rest, the handshake included.

use super::Tcp;
use super::listener::Arrival;
use crate::transport::{ConnId, ListenerId};
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

/// Connection of a peer that another endpoint is to serve.
pub(crate) struct Dealt {
    /// Id at both endpoints.
    pub(crate) conn: ConnId,
    arrival: Arrival,
}

/// Connections that are dealt to other endpoints, or were dealt to this one.
#[derive(Default)]
pub(super) struct Deal {
    /// Accepted and not taken yet.
    out: Vec<Dealt>,
    /// Addresses of those that others serve.
    ips: HashMap<ConnId, IpAddr>,
    /// Connections that ended here, for an endpoint that serves those of another one.
    gone: Option<Vec<ConnId>>,
    /// Connections whose peer has ended, and that wait for a word of the caller.
    asking: Vec<ConnId>,
}

impl Deal {
    pub(super) fn note_gone(&mut self, conn: ConnId) {
        if let Some(gone) = &mut self.gone {
            gone.push(conn);
        }
    }

    /// Returns whether this endpoint serves connections of another one.
    pub(super) fn serves_others(&self) -> bool {
        self.gone.is_some()
    }

    /// Notes that the peer of `conn` has ended.
    pub(super) fn ask(&mut self, conn: ConnId) {
        self.asking.push(conn);
    }
}

impl Tcp {
    /// Has connections that come in at `listener` dealt to other endpoints.
    pub(crate) fn deal_at(&mut self, listener: ListenerId) {
        let found = self.listeners.iter_mut().find(|one| one.id == listener);
        if let Some(found) = found {
            found.deals = true;
        }
    }

    pub(super) fn deal_out(&mut self, arrival: Arrival) {
        let conn = self.next_conn();
        self.accepted += 1;
        *self.by_ip.entry(arrival.ip).or_default() += 1;
        self.deal.ips.insert(conn, arrival.ip);
        self.deal.out.push(Dealt { conn, arrival });
    }

    /// Returns the connections that were accepted for other endpoints since the last call.
    pub(crate) fn take_dealt(&mut self) -> Vec<Dealt> {
        std::mem::take(&mut self.deal.out)
    }

    /// Notes that the endpoint which served a dealt connection has ended it.
    pub(crate) fn end_dealt(&mut self, conn: ConnId) {
        if let Some(ip) = self.deal.ips.remove(&conn) {
            self.accepted -= 1;
            self.count_gone(ip);
        }
    }

    /// Returns an id for a connection that another endpoint makes.
    pub(crate) fn next_conn(&mut self) -> ConnId {
        ConnId(self.id())
    }

    /// Makes this endpoint one that serves connections of another one: ids of its own are `first` and above, so that
    /// they meet none of the other one, and it notes which connections end.
    pub(crate) fn serve_others(&mut self, first: u64) {
        self.ids = first;
        self.deal.gone = Some(Vec::new());
    }

    /// Serves a connection that another endpoint has accepted.
    pub(crate) fn adopt(&mut self, dealt: Dealt) {
        let Dealt { conn, arrival } = dealt;
        let now = Instant::now();
        let mut events = Vec::new();
        if self.make_room(arrival.ip, &mut events) {
            match self.take_in(conn, arrival, now) {
                Ok(event) => events.extend(event),
                Err(_) => {
                    self.shared.stats.accept_errors += 1;
                    self.deal.note_gone(conn);
                }
            }
        } else {
            self.refuse_peer(arrival, now);
            self.deal.note_gone(conn);
        }
        self.pending.append(&mut events);
    }

    /// Returns connections whose peers have sent their last since the last call. They end when they are
    /// [released](Self::end_with_peer).
    pub(crate) fn take_asking(&mut self) -> Vec<ConnId> {
        std::mem::take(&mut self.deal.asking)
    }

    /// Ends `conn`, whose peer has ended, when all is sent that is queued.
    pub(crate) fn end_with_peer(&mut self, conn: ConnId) {
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.set_awaits_caller(false);
            if !std::mem::replace(&mut connection.listed, true) {
                self.ready.push_back(conn);
            }
        }
    }

    /// Puts the connections that have ended since the last call into `gone`, reported or not; none as long as the next
    /// poll has their last events, and does not sleep.
    pub(crate) fn take_gone(&mut self, gone: &mut Vec<ConnId>) {
        if let Some(ended) = &mut self.deal.gone
            && self.pending.is_empty()
        {
            gone.append(ended);
        }
    }
}
