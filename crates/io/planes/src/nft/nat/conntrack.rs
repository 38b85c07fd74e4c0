//! Connections that the kernel tracks, over the netlink of netfilter.
//!
//! Numbers and layouts are those of `include/uapi/linux/netfilter/nfnetlink_conntrack.h` of Linux.

use crate::error::PlaneError;
use crate::netlink::{self, Message, Netlink, find};
use netlink_packet_core::{DefaultNla, NLA_F_NESTED, NLM_F_ACK, NLM_F_DUMP};
use netlink_sys::protocols::NETLINK_NETFILTER;
use rustix::io::Errno;
use sheaf_serve::Flow;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

const GET: u16 = 0x0101;
const DELETE: u16 = 0x0102;
/// Addresses and ports of the packets of the client.
const ORIGINAL: u16 = 1;
/// Addresses and ports of the answers.
const REPLY: u16 = 2;
const PROTOCOL: u16 = 4;
const TCP: u8 = 6;
/// Addresses and ports in a tuple.
const ADDRESSES: u16 = 1;
const PORTS: u16 = 2;
/// States from which no byte comes any more: `TCP_CONNTRACK_TIME_WAIT` and `TCP_CONNTRACK_CLOSE`.
const ENDED: [u8; 2] = [7, 8];

/// Connection that NAT has led to a server.
#[derive(Debug, PartialEq, Eq)]
struct Tracked {
    flow: Flow,
    server: SocketAddr,
    is_ended: bool,
    /// Tuple that names it to the kernel.
    tuple: Vec<u8>,
}

/// Returns the connections that go on and that NAT has led to one of `servers`, with the name of their server.
pub(super) fn connections(
    servers: &BTreeMap<SocketAddr, String>,
) -> Result<BTreeMap<Flow, String>, PlaneError> {
    let mut flows = BTreeMap::new();
    list(|tracked| {
        if let Some(name) = servers.get(&tracked.server).filter(|_| !tracked.is_ended) {
            flows.insert(tracked.flow, name.clone());
        }
    })?;
    Ok(flows)
}

/// Has the kernel forget connections to `servers`: the next packet of their clients begins again at another server,
/// which resets the connection.
pub(super) fn forget(servers: &BTreeMap<SocketAddr, String>) -> Result<(), PlaneError> {
    if servers.is_empty() {
        return Ok(());
    }
    let mut gone = Vec::new();
    list(|tracked| {
        if servers.contains_key(&tracked.server) {
            gone.push(tracked);
        }
    })?;
    let mut netlink = open()?;
    for tracked in gone {
        let tuple = DefaultNla::new(ORIGINAL | NLA_F_NESTED, tracked.tuple);
        let message = Message {
            kind: DELETE,
            header: [family(tracked.server.ip()), 0, 0, 0],
            attributes: netlink::bytes(&[tuple]),
        };
        match netlink.exchange(message, NLM_F_ACK, drop) {
            // Ended meanwhile.
            Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => {}
            result => result.map_err(|error| PlaneError::Kernel {
                what: "the end of a tracked connection",
                error,
            })?,
        }
    }
    Ok(())
}

fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { 2 } else { 10 }
}

fn open() -> Result<Netlink, PlaneError> {
    Netlink::open(NETLINK_NETFILTER).map_err(|error| PlaneError::Kernel {
        what: "a socket of netfilter",
        error,
    })
}

/// Calls `each` with the connections that NAT has led somewhere.
fn list(mut each: impl FnMut(Tracked)) -> Result<(), PlaneError> {
    let message = Message {
        kind: GET,
        header: [0; 4],
        attributes: Vec::new(),
    };
    let each = |answer: Message| {
        if let Some(tracked) = read(&answer.attributes) {
            each(tracked);
        }
    };
    let listed = open()?.exchange(message, NLM_F_DUMP, each);
    listed.map_err(|error| PlaneError::Kernel {
        what: "the list of tracked connections (modprobe nf_conntrack_netlink)",
        error,
    })
}

/// Reads a connection; `None` if it is none of TCP, or if it was not translated.
fn read(attributes: &[u8]) -> Option<Tracked> {
    let tuple = find(attributes, ORIGINAL)?;
    let (client, service) = ends(tuple)?;
    let (server, _) = ends(find(attributes, REPLY)?)?;
    if server == service {
        return None;
    }
    let state = find(find(find(attributes, PROTOCOL)?, 1)?, 1)?.first()?;
    let flow = Flow {
        address: client.ip(),
        port: client.port(),
    };
    Some(Tracked {
        flow,
        server,
        is_ended: ENDED.contains(state),
        tuple: tuple.to_vec(),
    })
}

/// Reads source and target of a tuple.
fn ends(tuple: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    let (addresses, ports) = (find(tuple, ADDRESSES)?, find(tuple, PORTS)?);
    if find(ports, 1)? != [TCP] {
        return None;
    }
    // Numbers of the address in IPv4 and in IPv6, and of the port.
    let end = |four, six, port| {
        let address = match find(addresses, four) {
            Some(bytes) => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
            None => IpAddr::from(<[u8; 16]>::try_from(find(addresses, six)?).ok()?),
        };
        let port = u16::from_be_bytes(find(ports, port)?.try_into().ok()?);
        Some(SocketAddr::new(address, port))
    };
    Some((end(1, 3, 2)?, end(2, 4, 3)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::nested;

    fn tuple(kind: u16, protocol: u8, source: &str, target: &str) -> DefaultNla {
        let ends = [source, target].map(|end| end.parse::<SocketAddr>().expect("an address"));
        let addresses = [0, 1].map(|at: u16| match ends[usize::from(at)].ip() {
            IpAddr::V4(address) => DefaultNla::new(at + 1, address.octets().to_vec()),
            IpAddr::V6(address) => DefaultNla::new(at + 3, address.octets().to_vec()),
        });
        let port = |at: usize| ends[at].port().to_be_bytes().to_vec();
        let ports = [
            DefaultNla::new(1, vec![protocol]),
            DefaultNla::new(2, port(0)),
            DefaultNla::new(3, port(1)),
        ];
        nested(
            kind,
            &[nested(ADDRESSES, &addresses), nested(PORTS, &ports)],
        )
    }

    fn entry(protocol: u8, original: [&str; 2], reply: [&str; 2], state: u8) -> Vec<u8> {
        let state = nested(1, &[DefaultNla::new(1, vec![state])]);
        netlink::bytes(&[
            tuple(ORIGINAL, protocol, original[0], original[1]),
            tuple(REPLY, protocol, reply[0], reply[1]),
            nested(PROTOCOL, &[state]),
        ])
    }

    #[test]
    fn connections_that_were_led_to_a_server_are_read() {
        let four = ["10.80.1.1:51000", "10.80.0.100:80"];
        let reply = ["10.80.0.11:8080", "10.80.0.2:51000"];
        let led = read(&entry(6, four, reply, 3)).expect("it is one");
        assert_eq!(led.flow.address.to_string(), "10.80.1.1");
        assert_eq!((led.flow.port, led.is_ended), (51_000, false));
        assert_eq!(led.server.to_string(), reply[0]);
        assert!(read(&entry(6, four, reply, 7)).is_some_and(|led| led.is_ended));
        let six = ["[fd00::1]:5", "[fd00::100]:80"];
        let back = ["[fd00::11]:8080", "[fd00::2]:6"];
        let led = read(&entry(6, six, back, 4)).expect("it is one");
        assert_eq!(led.server.to_string(), back[0]);
        assert_eq!(read(&entry(17, four, reply, 3)), None);
        let plain = ["10.80.0.100:80", "10.80.1.1:51000"];
        assert_eq!(read(&entry(6, four, plain, 3)), None);
    }

    #[test]
    fn an_entry_that_is_cut_is_none() {
        let four = ["10.80.1.1:51000", "10.80.0.100:80"];
        let whole = entry(6, four, ["10.80.0.11:8080", "10.80.0.2:51000"], 3);
        for length in 0..whole.len() {
            assert_eq!(read(&whole[..length]), None, "{length}");
        }
    }
}
