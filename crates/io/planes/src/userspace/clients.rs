//! Clients whose connections all go to one server.

use sheaf_serve::{ServerId, ServerPlace};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Clients that have connections, and where.
#[derive(Debug, Default)]
pub(super) struct Clients(Mutex<BTreeMap<IpAddr, Client>>);

/// Server with its place: a client stays there also when no slot names it any more.
pub(super) type At = (ServerId, ServerPlace);

#[derive(Clone, Debug)]
struct Client {
    server: At,
    /// Connections to the server that are being made or go on.
    connections: usize,
    /// Connections that go on.
    made: usize,
}

/// Connection of a client; counted until it is dropped.
#[derive(Debug)]
pub(super) struct Visit {
    clients: Arc<Clients>,
    client: IpAddr,
    is_made: bool,
}

impl Clients {
    /// Takes in a connection of `client`. Returns it with the server that the client is at, or with `chosen` if it is
    /// at none.
    pub(super) fn enter(self: &Arc<Self>, client: IpAddr, chosen: At) -> (Visit, At) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = held.entry(client).or_insert(Client {
            server: chosen,
            connections: 0,
            made: 0,
        });
        entry.connections += 1;
        let visit = Visit {
            clients: Arc::clone(self),
            client,
            is_made: false,
        };
        (visit, entry.server.clone())
    }

    /// Returns the number of clients that have connections.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.len()
    }
}

impl Visit {
    /// Takes that the connection to `server` is made. Returns whether it may go on: other connections of the client
    /// are at no other server.
    pub(super) fn made(&mut self, server: ServerId, place: &ServerPlace) -> bool {
        let mut held = self
            .clients
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(client) = held.get_mut(&self.client) else {
            return true;
        };
        if client.made > 0 && client.server.0 != server {
            return false;
        }
        if client.server.0 != server {
            client.server = (server, place.clone());
        }
        client.made += 1;
        self.is_made = true;
        true
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut held = self
            .clients
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = held.get_mut(&self.client) {
            client.connections -= 1;
            client.made -= usize::from(self.is_made);
            if client.connections == 0 {
                held.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_stays_at_its_server_until_its_last_connection_ends() {
        let clients = Arc::new(Clients::default());
        let client = IpAddr::from([10, 80, 1, 1]);
        let place = |id: u32| ServerPlace {
            name: format!("s{id}"),
            addresses: Vec::new(),
            port: 80,
        };
        let [a, b, c] = [0, 1, 2].map(|id| (ServerId(id), place(id)));
        let (mut first, at) = clients.enter(client, a.clone());
        assert_eq!(at, a);
        // The server does not answer: the next one is taken.
        assert!(first.made(b.0, &b.1));
        let (mut second, at) = clients.enter(client, c.clone());
        assert_eq!(at, b, "it is there already");
        assert!(
            !second.made(c.0, &c.1),
            "connections of a client are not split"
        );
        assert!(second.made(b.0, &b.1));
        drop(first);
        let (third, at) = clients.enter(client, c.clone());
        assert_eq!(at, b);
        drop((second, third));
        let (_, at) = clients.enter(client, c.clone());
        assert_eq!(at, c);
    }
}
