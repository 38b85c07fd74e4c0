//! The other machines of a farm: which addresses there are, whether they answer, and what their pages say.

use sheaf_node::config::{FarmConfig, for_index, is_address};
use sheaf_protocol::{EpnId, FlpId, NodeId};
use socket2::SockRef;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Questions at once.
const AT_ONCE: usize = 64;
/// Largest page of a node.
const PAGE_MAX: u64 = 16 << 20;

/// Purpose of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    /// Other nodes connect to it.
    Node,
    /// Page with metrics.
    Page,
    /// A server of ZooKeeper.
    Registry,
}

/// An address in a farm file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) purpose: Purpose,
    /// Node, such as `epn:3`, or the server.
    pub(crate) name: String,
    /// HOST:PORT.
    pub(crate) address: String,
}

/// Outcome of the questions to an address.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    /// Time of the look-up of the name, and its result.
    pub(crate) lookup: Option<(Duration, Result<SocketAddr, String>)>,
    /// Connection, or why there is none.
    pub(crate) connected: Option<Result<Connected, String>>,
    /// The page, or the answer of a registry; or why there is none.
    pub(crate) page: Option<Result<String, String>>,
}

/// A connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connected {
    /// Address of this machine.
    pub(crate) own: IpAddr,
    /// Largest segment that the other end and the way to it take, in bytes.
    pub(crate) segment: Option<u32>,
}

/// All addresses of a farm and what came of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peers {
    pub(crate) all: BTreeMap<Place, Heard>,
}

impl Peers {
    /// Asks every address of the farm, each for at most `patience`.
    pub(crate) fn ask(farm: &FarmConfig, patience: Duration) -> Self {
        let places = places(farm);
        let next = AtomicUsize::new(0);
        let all = Mutex::new(BTreeMap::new());
        std::thread::scope(|scope| {
            for _ in 0..AT_ONCE.min(places.len()) {
                scope.spawn(|| {
                    while let Some(place) = places.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let heard = ask(place, patience);
                        let mut all = all.lock().expect("no thread has panicked with it");
                        all.insert(place.clone(), heard);
                    }
                });
            }
        });
        let all = all.into_inner().expect("no thread has panicked with it");
        Self { all }
    }

    /// Returns whether a node answers at the address with which `text` begins.
    pub(crate) fn is_reached(&self, text: &str) -> bool {
        let begins = |place: &Place| {
            let rest = text.strip_prefix(&place.address);
            rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
        };
        let mut all = self.all.iter();
        all.any(|(place, heard)| begins(place) && matches!(heard.connected, Some(Ok(_))))
    }

    /// Returns what came of addresses for `purpose`.
    pub(crate) fn of(&self, purpose: Purpose) -> impl Iterator<Item = (&Place, &Heard)> {
        let all = self.all.iter();
        all.filter(move |(place, _)| place.purpose == purpose)
    }
}

/// Whether `address` is that of all cards of a machine.
fn is_any(address: &str) -> bool {
    address.starts_with("0.0.0.0:") || address.starts_with("[::]:")
}

/// Returns the address of the page of a node that others reach at `reached`: a page on all cards is there as well.
fn page_of(page: &str, reached: &str) -> String {
    let port = page.rsplit_once(':').map(|(_, port)| port);
    let host = reached.rsplit_once(':').map(|(host, _)| host);
    match (host, port) {
        (Some(host), Some(port)) if is_any(page) => format!("{host}:{port}"),
        _ => page.to_owned(),
    }
}

/// Returns the addresses of a farm file at which something listens and is found: no Unix sockets, no ports that the
/// kernel chooses, no pages of nodes whose machine the farm file does not name.
pub(crate) fn places(farm: &FarmConfig) -> Vec<Place> {
    let mut all = Vec::new();
    let mut put = |purpose, name: String, address: String| {
        if is_address(&address) && !address.ends_with(":0") && !is_any(&address) {
            all.push(Place {
                purpose,
                name,
                address,
            });
        }
    };
    for (index, address) in farm.icn.all_addresses().into_iter().enumerate() {
        let node = format!("icn:{index}");
        if let Some(page) = &farm.icn.metrics {
            put(Purpose::Page, node.clone(), page_of(page, &address));
        }
        put(Purpose::Node, node, address);
    }
    // On other machines than the ICN, and loopback in the farm file: each is started with an address of its own.
    let is_loopback = |address: &str| address.starts_with("127.") || address.starts_with("[::1]:");
    let is_own = |address: &str| is_loopback(address) && !is_loopback(&farm.icn.all_addresses()[0]);
    let epns = (0..farm.run.epns).filter_map(|epn| u16::try_from(epn).ok());
    for node in epns.map(|epn| NodeId::from(EpnId(epn))) {
        let reached = farm.epn.advertise.as_ref().unwrap_or(&farm.epn.listen);
        let reached = for_index(reached, node);
        if is_own(&reached) {
            continue;
        }
        if let Some(page) = &farm.epn.metrics {
            let page = page_of(&for_index(page, node), &reached);
            put(Purpose::Page, node.to_string(), page);
        }
        put(Purpose::Node, node.to_string(), reached);
    }
    if let Some(page) = &farm.flp.metrics {
        let flps = (0..farm.run.flps).filter_map(|flp| u16::try_from(flp).ok());
        for node in flps.map(|flp| NodeId::from(FlpId(flp))) {
            put(Purpose::Page, node.to_string(), for_index(page, node));
        }
    }
    for (index, address) in farm.writer.addresses.iter().enumerate() {
        put(Purpose::Node, format!("writer:{index}"), address.clone());
    }
    for server in &farm.membership.servers {
        put(Purpose::Registry, server.clone(), server.clone());
    }
    all.sort();
    // Nodes of one machine may share a page in the farm file.
    all.dedup_by(|one, other| one.purpose == other.purpose && one.address == other.address);
    all
}

fn ask(place: &Place, patience: Duration) -> Heard {
    let since = Instant::now();
    let found = place.address.to_socket_addrs();
    let found = found.map_err(|error| error.to_string());
    let found = found.and_then(|mut all| all.next().ok_or_else(|| "no address".to_owned()));
    let mut heard = Heard {
        lookup: Some((since.elapsed(), found.clone())),
        ..Heard::default()
    };
    let Ok(address) = found else {
        return heard;
    };
    let connected = connect(address, patience);
    let is_there = connected.is_ok();
    heard.connected = Some(connected);
    if is_there {
        heard.page = match place.purpose {
            Purpose::Node => None,
            Purpose::Page => Some(page(&place.address, patience)),
            Purpose::Registry => Some(registry(address, patience)),
        };
    }
    heard
}

fn connect(address: SocketAddr, patience: Duration) -> Result<Connected, String> {
    let stream =
        TcpStream::connect_timeout(&address, patience).map_err(|error| error.to_string())?;
    let own = stream.local_addr().map_err(|error| error.to_string())?.ip();
    let segment = SockRef::from(&stream).tcp_mss().ok();
    Ok(Connected { own, segment })
}

fn page(address: &str, patience: Duration) -> Result<String, String> {
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(patience))
        .build();
    let agent: ureq::Agent = config.into();
    let answer = agent.get(format!("http://{address}/metrics")).call();
    let mut answer = answer.map_err(|error| error.to_string())?;
    let body = answer.body_mut().with_config().limit(PAGE_MAX);
    body.read_to_string().map_err(|error| error.to_string())
}

/// Asks a server of ZooKeeper how it is: its four letters `srvr`.
fn registry(address: SocketAddr, patience: Duration) -> Result<String, String> {
    use std::io::{Read as _, Write as _};
    let talk = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        stream.write_all(b"srvr")?;
        let mut text = String::new();
        stream.take(PAGE_MAX).read_to_string(&mut text)?;
        Ok(text)
    };
    talk().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn every_address_of_a_farm_file_is_known_once() {
        let text = "[run]\nflps = 2\nepns = 2\n[icn]\naddresses = [\"a:1\", \"b:1\", \"c:1\"]\nmetrics = \"0.0.0.0:9\"\n\
                    [icn.ledger]\nbackend = \"majority\"\ndirectory = \"/tmp\"\n[flp]\nmetrics = \"flp:2\"\n\
                    [epn]\nlisten = \"epn-{epn}:3\"\nmetrics = \"0.0.0.0:4\"\n[security]\ninsecure = true\n";
        let farm = FarmConfig::parse_for(text, Path::new("f"), &[]).expect("a farm file");
        let found = places(&farm);
        let found: Vec<String> = found
            .iter()
            .map(|place| format!("{:?} {} {}", place.purpose, place.name, place.address))
            .collect();
        let expected = [
            "Node epn:0 epn-0:3",
            "Node epn:1 epn-1:3",
            "Node icn:0 a:1",
            "Node icn:1 b:1",
            "Node icn:2 c:1",
            "Page epn:0 epn-0:4",
            "Page epn:1 epn-1:4",
            "Page flp:0 flp:2",
            "Page icn:0 a:9",
            "Page icn:1 b:9",
            "Page icn:2 c:9",
        ];
        assert_eq!(found, expected);
    }
}
