//! The transports as their users meet them: through the trait, and through the wire.

mod connect_retry;
mod contract;
mod faults;
mod hostile;
mod kernel_tls;
mod limits;
mod shards;
mod shm;
mod space;
mod steady;
mod storm;
mod tls;
mod unix;
mod zero_copy;

use bytes::Bytes;
use sheaf_auth::{Authority, Credentials, Moment, Tls, Validity, parse_node};
use sheaf_transport::{
    Arena, ArenaOptions, Bulk, ConnId, Event, Frame, Security, Tcp, TcpConfig, Transport, WireKind,
};
use socket2::{Domain, Socket, Type};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long anything may take before it counts as never happening.
const PATIENCE: Duration = Duration::from_secs(30);

fn arena(bytes: usize) -> Arc<Arena> {
    Arena::new(
        bytes,
        ArenaOptions {
            huge_pages: false,
            prefault: false,
            shared: false,
        },
    )
    .unwrap()
}

fn tcp(config: TcpConfig) -> Tcp {
    Tcp::new(config, arena(64 << 20)).unwrap()
}

/// Returns a port of `host` without a listener, which no other process can take: it is bound until the tests end.
fn nobody_at(host: &str) -> String {
    let ip: IpAddr = host.parse().unwrap();
    let port = Socket::new(Domain::for_address((ip, 0).into()), Type::STREAM, None).unwrap();
    port.bind(&SocketAddr::from((ip, 0)).into()).unwrap();
    let address = port.local_addr().unwrap().as_socket().unwrap();
    std::mem::forget(port);
    address.to_string()
}

/// A CA for one test.
fn authority() -> Authority {
    Authority::new("north", Validity::of_days(10)).unwrap()
}

/// Returns the configuration from which `node` connects.
fn tls_of(authority: &Authority, node: &str) -> Tls {
    let pem = authority
        .issue(parse_node(node).unwrap(), Validity::of_days(1))
        .unwrap();
    let credentials = Credentials::from_pem(&pem, authority.certificate_pem(), Moment::now());
    Tls::new(&credentials.unwrap()).unwrap()
}

fn encrypted(tls: Tls) -> Security {
    let bulk = Bulk::Encrypted;
    Security::Tls { tls, bulk }
}

fn sealed_tcp(config: TcpConfig, tls: Tls) -> Tcp {
    Tcp::with_security(config, arena(64 << 20), encrypted(tls)).unwrap()
}

fn stf(number: u8, body_bytes: usize) -> Frame {
    let body = Bytes::from(vec![number; body_bytes]);
    Frame {
        kind: WireKind::Stf,
        head: Bytes::from(vec![number; 8]),
        body,
    }
}

/// Polls `endpoint` until `found` makes something of an event; other events are passed over.
fn await_event<R>(
    endpoint: &mut impl Transport,
    what: &str,
    mut found: impl FnMut(&Event) -> Option<R>,
) -> R {
    let start = Instant::now();
    let mut events = Vec::new();
    loop {
        assert!(start.elapsed() < PATIENCE, "{what} has not come");
        endpoint
            .poll(&mut events, Some(Duration::from_millis(1)))
            .unwrap();
        if let Some(result) = events.iter().find_map(&mut found) {
            return result;
        }
    }
}

fn await_accepted(endpoint: &mut impl Transport) -> ConnId {
    await_event(endpoint, "a connection", |event| match event {
        Event::Accepted { conn, .. } => Some(*conn),
        _ => None,
    })
}
