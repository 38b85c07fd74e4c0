//! Plane in user space: a proxy that takes connections at the virtual address and makes one to the server.
//!
//! Both directions go through pipes of the kernel (`splice`), so no byte is copied into this process. It needs no
//! rights, and costs what a proxy costs: every byte passes the director. A connection stays with its server as long
//! as it lives, whatever the table says meanwhile. With the affinity of clients so does a client: further connections
//! go where those go that it has.

mod clients;
mod pump;

use crate::error::PlaneError;
use crate::plane::{Counted, Installed, Plane};
use clients::{At, Clients, Visit};
use sheaf_serve::{Affinity, Flow, ServerId, ServerPlace, Wanted};
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tracing::{debug, warn};

/// Connections that wait to be taken.
const BACKLOG: i32 = 4096;
/// Pause after a connection could not be taken, for instance because no file descriptor is left.
const PAUSE: Duration = Duration::from_millis(50);
/// Longest time of a connection to a server; the next server is tried then.
const CONNECT: Duration = Duration::from_secs(2);

/// State that the tasks of a service share.
#[derive(Debug)]
struct Shared {
    wanted: RwLock<Arc<Wanted>>,
    counted: Mutex<BTreeMap<String, Arc<Counters>>>,
    clients: Arc<Clients>,
    /// Connections of clients that go on, with the name of their server.
    flows: Mutex<BTreeMap<Flow, Arc<str>>>,
}

/// Connection in the list, until it is dropped.
struct Listed<'a> {
    shared: &'a Shared,
    flow: Flow,
    server: Arc<str>,
}

impl<'a> Listed<'a> {
    fn new(shared: &'a Shared, flow: Flow, server: &str) -> Self {
        let server: Arc<str> = server.into();
        shared.flows().insert(flow, Arc::clone(&server));
        Self {
            shared,
            flow,
            server,
        }
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        let mut flows = self.shared.flows();
        // The client may have taken its port again before this end of the connection was closed.
        if flows
            .get(&self.flow)
            .is_some_and(|at| Arc::ptr_eq(at, &self.server))
        {
            flows.remove(&self.flow);
        }
    }
}

#[derive(Debug, Default)]
struct Counters {
    connections: AtomicU64,
    bytes: AtomicU64,
}

/// Service that is served: a thread with the listeners.
#[derive(Debug)]
struct Serving {
    shared: Arc<Shared>,
    listens: BTreeSet<SocketAddr>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // A panic was printed there.
        }
    }
}

/// Proxy.
#[derive(Debug, Default)]
pub(crate) struct Userspace {
    services: BTreeMap<String, Serving>,
}

impl Userspace {
    pub(crate) fn new() -> Self {
        Self::default()
    }
}

impl Plane for Userspace {
    fn apply(&mut self, wanted: &Wanted) -> Result<(), PlaneError> {
        let [first, last] = wanted.further_ports.unwrap_or([1, 0]);
        let ports = || (first..=last).chain([wanted.port]);
        let listens: BTreeSet<SocketAddr> = wanted
            .addresses
            .iter()
            .flat_map(|address| ports().map(|port| SocketAddr::new(*address, port)))
            .collect();
        if let Some(serving) = self.services.get(&wanted.service)
            && serving.listens == listens
        {
            let mut held = serving
                .shared
                .wanted
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            *held = Arc::new(wanted.clone());
            return Ok(());
        }
        let serving = Serving::begin(wanted, listens)?;
        self.services.insert(wanted.service.clone(), serving);
        Ok(())
    }

    fn read_back(&mut self, service: &str) -> Result<Option<Installed>, PlaneError> {
        let Some(serving) = self.services.get(service) else {
            return Ok(None);
        };
        let wanted = serving.shared.wanted();
        let name = |id: &ServerId| {
            let place = wanted.servers.get(id);
            place.map(|place| place.name.clone()).unwrap_or_default()
        };
        Ok(Some(Installed {
            slots: wanted.slots.iter().map(name).collect(),
            moving: wanted
                .moving
                .iter()
                .map(|(slot, id)| (*slot, name(id)))
                .collect(),
            flows: wanted
                .pins
                .iter()
                .map(|(flow, id)| (*flow, name(id)))
                .collect(),
            ..Installed::default()
        }))
    }

    fn counters(&mut self, service: &str) -> Result<BTreeMap<String, Counted>, PlaneError> {
        let Some(serving) = self.services.get(service) else {
            return Ok(BTreeMap::new());
        };
        let held = serving
            .shared
            .counted
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let counted = held.iter().map(|(name, counters)| {
            let counted = Counted {
                packets: counters.connections.load(Ordering::Relaxed),
                bytes: counters.bytes.load(Ordering::Relaxed),
            };
            (name.clone(), counted)
        });
        Ok(counted.collect())
    }

    fn connections(&mut self, service: &str) -> Result<BTreeMap<Flow, String>, PlaneError> {
        let Some(serving) = self.services.get(service) else {
            return Ok(BTreeMap::new());
        };
        let flows = serving.shared.flows();
        let listed = flows
            .iter()
            .map(|(flow, server)| (*flow, server.to_string()));
        Ok(listed.collect())
    }

    fn undo(&mut self, service: &str) -> Result<(), PlaneError> {
        self.services.remove(service);
        Ok(())
    }
}

impl Shared {
    fn wanted(&self) -> Arc<Wanted> {
        Arc::clone(&self.wanted.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn flows(&self) -> MutexGuard<'_, BTreeMap<Flow, Arc<str>>> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counters(&self, server: &str) -> Arc<Counters> {
        let mut held = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(held.entry(server.to_owned()).or_default())
    }
}

impl Serving {
    fn begin(wanted: &Wanted, listens: BTreeSet<SocketAddr>) -> Result<Self, PlaneError> {
        let mut listeners = Vec::new();
        for address in &listens {
            let listener = listen(*address);
            listeners.push(listener.map_err(|error| PlaneError::Listen {
                address: *address,
                error,
            })?);
        }
        let shared = Arc::new(Shared {
            wanted: RwLock::new(Arc::new(wanted.clone())),
            counted: Mutex::default(),
            clients: Arc::default(),
            flows: Mutex::default(),
        });
        let (stop, stopped) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.map_err(PlaneError::Thread)?;
        let state = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name(format!("serve-{}", wanted.service));
        let thread = thread.spawn(move || runtime.block_on(serve(listeners, state, stopped)));
        Ok(Self {
            shared,
            listens,
            stop,
            thread: Some(thread.map_err(PlaneError::Thread)?),
        })
    }
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Takes connections until the plane stops; those that go on end with it.
async fn serve(
    listeners: Vec<TcpListener>,
    shared: Arc<Shared>,
    mut stopped: watch::Receiver<bool>,
) {
    for listener in listeners {
        let shared = Arc::clone(&shared);
        match tokio::net::TcpListener::from_std(listener) {
            Ok(listener) => drop(tokio::spawn(take(listener, shared))),
            Err(error) => warn!(%error, "A listener of the plane cannot be used"),
        }
    }
    let _ = stopped.wait_for(|is_stopped| *is_stopped).await;
}

async fn take(listener: tokio::net::TcpListener, shared: Arc<Shared>) {
    loop {
        match listener.accept().await {
            Ok((client, peer)) => {
                let shared = Arc::clone(&shared);
                drop(tokio::spawn(async move {
                    if let Err(error) = relay(client, peer, &shared).await {
                        debug!(%peer, %error, "A connection has ended");
                    }
                }));
            }
            Err(error) => {
                warn!(%error, "No connection can be taken; trying again");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Returns the servers of a connection, that of the table first; others follow if it does not answer, each again and
/// again.
fn candidates(wanted: &Wanted, flow: Flow) -> impl Iterator<Item = (ServerId, &ServerPlace)> {
    let slots = u32::try_from(wanted.slots.len()).unwrap_or(u32::MAX);
    let slot = wanted.affinity.slot_of(flow, slots);
    let own = wanted.slots.iter().skip(slot as usize);
    let moving = wanted.moving.get(&slot).into_iter();
    let ids = moving.chain(own).chain(&wanted.slots).copied();
    ids.filter_map(|id| Some((id, wanted.servers.get(&id)?)))
}

/// Takes a connection in, and returns the server that its client is at.
fn enter(wanted: &Wanted, flow: Flow, shared: &Shared) -> Option<(Visit, At)> {
    let (id, place) = candidates(wanted, flow).next()?;
    match wanted.affinity {
        Affinity::Connection => None,
        Affinity::Client => Some(shared.clients.enter(flow.address, (id, place.clone()))),
    }
}

async fn relay(client: TcpStream, peer: SocketAddr, shared: &Shared) -> std::io::Result<()> {
    let address: IpAddr = peer.ip().to_canonical();
    let flow = Flow {
        address,
        port: peer.port(),
    };
    let wanted = shared.wanted();
    let local = client.local_addr()?;
    let mut refused = None;
    let mut tried = BTreeSet::new();
    let mut visit = enter(&wanted, flow, shared);
    let at = visit.as_ref().map(|(_, at)| at.clone());
    let at = at.iter().map(|(id, place)| (*id, place));
    for (id, place) in at.chain(candidates(&wanted, flow)) {
        if !tried.insert(id) {
            continue;
        }
        let is_v4 = local.is_ipv4();
        let own = place.addresses.iter().find(|own| own.is_ipv4() == is_v4);
        let Some(own) = own.or(place.addresses.first()) else {
            continue;
        };
        // Further ports are equal on both sides.
        let is_further = local.port() != wanted.port;
        let port = if is_further { local.port() } else { place.port };
        // In the list before it is at the server: a list behind a change of the table has all that began before it.
        let _listed = Listed::new(shared, flow, &place.name);
        let connecting = TcpStream::connect(SocketAddr::new(*own, port));
        match tokio::time::timeout(CONNECT, connecting).await {
            Ok(Ok(_))
                if visit
                    .as_mut()
                    .is_some_and(|(visit, _)| !visit.made(id, place)) =>
            {
                refused = Some(std::io::Error::other("the client is at another server"));
                break;
            }
            Ok(Ok(server)) => {
                let counters = shared.counters(&place.name);
                counters.connections.fetch_add(1, Ordering::Relaxed);
                client.set_nodelay(true)?;
                server.set_nodelay(true)?;
                return pump::both(&client, &server, &counters.bytes).await;
            }
            Ok(Err(error)) => refused = Some(error),
            Err(_) => refused = Some(std::io::ErrorKind::TimedOut.into()),
        }
    }
    // No answer is better than a wrong one: the client sees a reset.
    let _ = socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO));
    Err(refused.unwrap_or_else(|| std::io::Error::other("no server is well")))
}

#[cfg(test)]
mod tests;
