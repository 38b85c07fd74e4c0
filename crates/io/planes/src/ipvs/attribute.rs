//! Attributes of messages of IPVS, and of the controller of generic netlink.
//!
//! Numbers and layouts are those of `include/uapi/linux/ip_vs.h` and `include/uapi/linux/genetlink.h` of Linux. Numbers
//! are in the order of the machine, ports and addresses in that of the network.

use crate::netlink::{find, nested};
use crate::plane::Counted;
use netlink_packet_core::DefaultNla;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Service, in a command.
pub(super) const SERVICE: u16 = 1;
/// Server, in a command.
pub(super) const TARGET: u16 = 2;
/// Scheduler: a Maglev table by address and port.
const SCHEDULER: &str = "mh";
/// Flag of `mh`: another server is taken for one that gets no connections (`IP_VS_SVC_F_SCHED_MH_FALLBACK`).
const FALLBACK: u32 = 0x08;
/// Flag of `mh`: the port of the client is hashed too (`IP_VS_SVC_F_SCHED_MH_PORT`).
const WITH_PORT: u32 = 0x10;
/// Direct return (`IP_VS_CONN_F_DROUTE`).
const DIRECT_RETURN: u32 = 3;
const TCP: u16 = 6;
const INET: u16 = 2;
const INET6: u16 = 10;

/// Server of a service, as the kernel has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) weight: u32,
    pub(crate) counted: Counted,
}

fn number(kind: u16, value: u32) -> DefaultNla {
    DefaultNla::new(kind, value.to_ne_bytes().to_vec())
}

fn short(kind: u16, value: u16) -> DefaultNla {
    DefaultNla::new(kind, value.to_ne_bytes().to_vec())
}

/// Returns text as an attribute, with the zero at its end.
pub(super) fn text(kind: u16, value: &str) -> DefaultNla {
    let mut bytes = value.as_bytes().to_vec();
    bytes.push(0);
    DefaultNla::new(kind, bytes)
}

/// Returns an address in the 16 bytes that both families have.
fn address(kind: u16, address: IpAddr) -> DefaultNla {
    let mut bytes = vec![0; 16];
    match address {
        IpAddr::V4(address) => bytes[..4].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => bytes.copy_from_slice(&address.octets()),
    }
    DefaultNla::new(kind, bytes)
}

fn port(kind: u16, port: u16) -> DefaultNla {
    DefaultNla::new(kind, port.to_be_bytes().to_vec())
}

fn family(address: IpAddr) -> u16 {
    match address {
        IpAddr::V4(_) => INET,
        IpAddr::V6(_) => INET6,
    }
}

fn key(service: SocketAddr) -> Vec<DefaultNla> {
    vec![
        short(1, family(service.ip())),
        short(2, TCP),
        address(3, service.ip()),
        port(4, service.port()),
    ]
}

/// Returns what names a service.
pub(super) fn named(service: SocketAddr) -> DefaultNla {
    nested(SERVICE, &key(service))
}

/// Returns a service as a whole.
pub(super) fn service(service: SocketAddr) -> DefaultNla {
    let flags = FALLBACK | WITH_PORT;
    // Flags, and those that are meant.
    let flags: Vec<u8> = [flags, flags].map(u32::to_ne_bytes).concat();
    let mask = match service {
        SocketAddr::V4(_) => u32::MAX,
        SocketAddr::V6(_) => 128,
    };
    let mut all = key(service);
    all.extend([
        text(6, SCHEDULER),
        DefaultNla::new(7, flags),
        number(8, 0),
        number(9, mask),
    ]);
    nested(SERVICE, &all)
}

/// Returns what names a server.
pub(super) fn named_target(target: SocketAddr) -> DefaultNla {
    nested(TARGET, &target_key(target))
}

fn target_key(target: SocketAddr) -> Vec<DefaultNla> {
    vec![
        address(1, target.ip()),
        port(2, target.port()),
        short(11, family(target.ip())),
    ]
}

/// Returns a server as a whole.
pub(super) fn target(target: SocketAddr, weight: u32) -> DefaultNla {
    let mut all = target_key(target);
    all.extend([
        number(3, DIRECT_RETURN),
        number(4, weight),
        // No bounds of connections.
        number(5, 0),
        number(6, 0),
    ]);
    nested(TARGET, &all)
}

fn read_number(bytes: &[u8], kind: u16) -> Option<u32> {
    Some(u32::from_ne_bytes(find(bytes, kind)?.try_into().ok()?))
}

fn read_long(bytes: &[u8], kind: u16) -> Option<u64> {
    Some(u64::from_ne_bytes(find(bytes, kind)?.try_into().ok()?))
}

/// Reads a server from the attributes of an answer.
pub(super) fn read_target(bytes: &[u8]) -> Option<Target> {
    let inner = find(bytes, TARGET)?;
    let family = u16::from_ne_bytes(find(inner, 11)?.try_into().ok()?);
    let address: [u8; 16] = find(inner, 1)?.try_into().ok()?;
    let ip = match family {
        INET => IpAddr::V4(Ipv4Addr::new(
            address[0], address[1], address[2], address[3],
        )),
        INET6 => IpAddr::V6(Ipv6Addr::from(address)),
        _ => return None,
    };
    let port = u16::from_be_bytes(find(inner, 2)?.try_into().ok()?);
    let statistics = find(inner, 12).unwrap_or_default();
    Some(Target {
        address: SocketAddr::new(ip, port),
        weight: read_number(inner, 4)?,
        counted: Counted {
            packets: read_long(statistics, 2).unwrap_or(0),
            bytes: read_long(statistics, 4).unwrap_or(0),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_core::{NLA_F_NESTED, Nla as _};
    use std::slice;

    fn bytes(attribute: &DefaultNla) -> Vec<u8> {
        crate::netlink::bytes(slice::from_ref(attribute))
    }

    #[test]
    fn a_server_is_read_as_it_was_written() {
        for text in ["10.80.0.11:8080", "[fd00:80::11]:80"] {
            let address: SocketAddr = text.parse().expect("an address");
            let found = read_target(&bytes(&target(address, 1365))).expect("it is read");
            assert_eq!((found.address, found.weight), (address, 1365));
            assert_eq!(found.counted, Counted::default());
        }
    }

    #[test]
    fn counters_are_those_of_packets_and_bytes_that_came_in() {
        let long = |kind, value: u64| DefaultNla::new(kind, value.to_ne_bytes().to_vec());
        let statistics = nested(12, &[long(1, 1), long(2, 7), long(3, 0), long(4, 700)]);
        let address: SocketAddr = "10.80.0.11:80".parse().expect("an address");
        let mut all = target_key(address);
        all.extend([number(4, 1), statistics]);
        let found = read_target(&bytes(&nested(TARGET, &all))).expect("it is read");
        let expected = Counted {
            packets: 7,
            bytes: 700,
        };
        assert_eq!(found.counted, expected);
    }

    #[test]
    fn a_service_is_laid_out_as_ipvsadm_lays_it_out() {
        let attribute = service("10.80.0.100:8080".parse().expect("an address"));
        assert_eq!(attribute.kind(), SERVICE | NLA_F_NESTED);
        let bytes = bytes(&attribute);
        let inner = find(&bytes, SERVICE).expect("a service");
        assert_eq!(find(inner, 1), Some(&[2, 0][..]));
        assert_eq!(find(inner, 2), Some(&[6, 0][..]));
        assert_eq!(
            find(inner, 3).map(|all| &all[..5]),
            Some(&[10, 80, 0, 100, 0][..])
        );
        assert_eq!(find(inner, 4), Some(&[0x1f, 0x90][..]));
        assert_eq!(find(inner, 6), Some(&b"mh\0"[..]));
        assert_eq!(find(inner, 7), Some(&[0x18, 0, 0, 0, 0x18, 0, 0, 0][..]));
        assert_eq!(find(inner, 9), Some(&[255; 4][..]));
        assert_eq!(find(inner, 10), None);
    }

    #[test]
    fn an_answer_that_is_cut_is_no_server() {
        let address: SocketAddr = "10.80.0.11:80".parse().expect("an address");
        let whole = bytes(&target(address, 1));
        for length in 0..whole.len() {
            assert_eq!(read_target(&whole[..length]), None, "{length}");
        }
    }
}
