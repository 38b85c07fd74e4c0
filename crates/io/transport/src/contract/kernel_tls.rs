//! Contract of TLS sessions whose records the kernel protects, at either end or at both.

use super::drive::Drive;
use super::{Pair, check, frame};
use crate::arena::{Arena, ArenaOptions};
use crate::tcp::KernelTls;
use crate::transport::{CloseReason, Event, TlsFailure, Transport as _};
use crate::{Bulk, Security, Tcp, TcpConfig};
use sheaf_auth::{Authority, Credentials, Moment, Tls, Validity, parse_node};
use sheaf_protocol::Limits;
use socket2::{Domain, Socket, Type};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

const LIMITS: Limits = Limits {
    head_bytes_max: 1 << 20,
    body_bytes_max: 3 << 20,
};

/// Records under one key: a large frame takes more.
const RECORDS_PER_KEY_MAX: u64 = 40;

/// Offset of the byte that is changed on its way: behind the handshake, within a frame.
const FLIPPED_AT: usize = 200_000;

/// Runs the suite over sessions of the kernel, which change their keys all the time.
///
/// # Panics
///
/// If a promise is broken, or the kernel [cannot do it](KernelTls::decide).
pub fn check_kernel_tls() {
    let (can, reason) = KernelTls::On.decide();
    assert!(can, "{reason}");
    let authority = Authority::new("north", Validity::of_days(10)).expect("a CA is made");
    let absent = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    absent.bind(&any.into()).expect("the port is free");
    let bound = absent.local_addr().expect("it is bound").as_socket();
    let no_listener = bound.expect("an address of IPv4").to_string();
    let pair = |client, server| Pair {
        client: endpoint(&authority, "flp:0", client),
        server: endpoint(&authority, "epn:0", server),
        address: any.to_string(),
        absent: no_listener.clone(),
        limits: LIMITS,
        // The queue, and a send and a receive buffer of twice what was asked for.
        held_bytes_max: (8 + 2 * 4 + 2 * 4 + 1) << 20,
    };
    check(|| pair(KernelTls::On, KernelTls::On));
    for (client, server) in [
        (KernelTls::On, KernelTls::On),
        (KernelTls::On, KernelTls::Off),
        (KernelTls::Off, KernelTls::On),
    ] {
        both_ways_arrive_whatever_the_keys(pair(client, server), client, server);
        check_changed_byte(pair(client, server));
    }
}

fn endpoint(authority: &Authority, node: &str, kernel_tls: KernelTls) -> Tcp {
    let node = parse_node(node).expect("a node");
    let pem = authority.issue(node, Validity::of_days(1));
    let pem = pem.expect("a certificate is made");
    let credentials = Credentials::from_pem(&pem, authority.certificate_pem(), Moment::now());
    let tls = Tls::new(&credentials.expect("they were just made")).expect("a configuration");
    let config = TcpConfig {
        limits: LIMITS,
        kernel_tls,
        records_per_key_max: Some(RECORDS_PER_KEY_MAX),
        ..TcpConfig::default()
    };
    let bulk = Bulk::Encrypted;
    Tcp::with_security(config, arena(), Security::Tls { tls, bulk }).expect("an endpoint")
}

fn arena() -> Arc<Arena> {
    let options = ArenaOptions {
        huge_pages: false,
        prefault: false,
        shared: false,
    };
    Arena::new(64 << 20, options).expect("memory for bodies")
}

fn both_ways_arrive_whatever_the_keys(pair: Pair<Tcp>, of_client: KernelTls, of_server: KernelTls) {
    let (mut drive, client, server) = Drive::connected(pair);
    let sizes = [100, 3, 1_000_000, 10_000, 0, 300_000, 16_384, 2_500_000];
    for (number, size) in sizes.into_iter().cycle().take(64).enumerate() {
        let frame = frame(number, size);
        drive.send(client, frame.clone());
        drive.expect_at_server(server, &frame);
        let back = drive.server.send(server, frame.clone());
        back.expect("the queue is empty");
        let event = drive.next_at_client();
        super::check_received(event, client, &frame);
    }
    for (stats, kernel_tls) in [
        (drive.client.stats(), of_client),
        (drive.server.stats(), of_server),
    ] {
        let expected = u64::from(kernel_tls == KernelTls::On);
        assert_eq!(stats.kernel_sessions, expected, "{kernel_tls:?}");
    }
    drive.client.finish(client);
    let ended = |reason| Event::Closed {
        conn: client,
        reason,
    };
    assert_eq!(drive.next_at_client(), ended(CloseReason::ByUs));
}

/// Changes a byte of a frame on its way between two ends with TLS: both sessions end, and no frame is made of it.
///
/// # Panics
///
/// If a promise is broken.
pub fn check_changed_byte(mut pair: Pair<Tcp>) {
    let relay = TcpListener::bind(&pair.address).expect("a port is free");
    let (_, address) = pair.server.listen(&pair.address).expect("a port is free");
    let at_relay = relay.local_addr().expect("it listens").to_string();
    let client = pair.client.connect(&at_relay).expect("it is begun");
    let now = Some(Duration::ZERO);
    let mut events = Vec::new();
    pair.client.poll(&mut events, now).expect("it polls");
    let (outer, _) = relay.accept().expect("the client has connected");
    let inner = TcpStream::connect(address).expect("the server listens");
    let copy = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
    let (mut from, mut to) = (copy(&outer), copy(&inner));
    let forth = std::thread::spawn(move || pass(&mut from, &mut to, Some(FLIPPED_AT)));
    let (mut from, mut to) = (inner, outer);
    let back = std::thread::spawn(move || pass(&mut from, &mut to, None));
    let sent = pair.client.send(client, frame(1, 1 << 20));
    sent.expect("the queue is empty");
    let begun = std::time::Instant::now();
    let mut reasons = Vec::new();
    while reasons.len() < 2 {
        assert!(begun.elapsed() < super::PATIENCE, "{reasons:?}");
        for endpoint in [&mut pair.client, &mut pair.server] {
            let soon = Some(Duration::from_millis(1));
            endpoint.poll(&mut events, soon).expect("it polls");
            reasons.extend(events.iter().filter_map(|event| match event {
                Event::Received { .. } => panic!("a frame was made of that"),
                Event::Closed { reason, .. } => Some(reason.clone()),
                _ => None,
            }));
        }
    }
    let is_named = |reason: &CloseReason| match reason {
        CloseReason::Tls(TlsFailure::Protocol(text)) => text.contains("decrypt"),
        _ => false,
    };
    assert!(reasons.iter().any(is_named), "{reasons:?}");
    assert_eq!(pair.server.stats().refused.tls_protocol, 1);
    drop(pair);
    forth.join().expect("it ends");
    back.join().expect("it ends");
}

/// Passes bytes, the one at `flip_at` with a bit changed.
fn pass(from: &mut TcpStream, to: &mut TcpStream, flip_at: Option<usize>) {
    let mut passed = 0;
    let mut buffer = vec![0; 16 << 10];
    while let Ok(bytes) = from.read(&mut buffer)
        && bytes > 0
    {
        if let Some(at) = flip_at.filter(|at| (passed..passed + bytes).contains(at)) {
            buffer[at - passed] ^= 0x10;
        }
        passed += bytes;
        if to.write_all(&buffer[..bytes]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
