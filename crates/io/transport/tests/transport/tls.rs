//! Admission over TLS: peers without it, without a certificate, with a wrong one, and peers that
//! never come to the point. None of them costs an honest peer more than its patience.

mod rogue;

use crate::{arena, authority, await_event, encrypted, sealed_tcp, stf, tcp, tls_of};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use sheaf_auth::{Authority, Credentials, Identity, Moment, Tls, Validity, parse_node};
use sheaf_transport::contract::{Pair, check_changed_byte};
use sheaf_transport::tcp::Refused;
use sheaf_transport::{
    Bulk, CloseReason, ConnId, ConnectError, Event, Limits, ListenError, Security, Tcp, TcpConfig,
    TlsFailure, Transport,
};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// The first bytes of a ClientHello that goes on for 16,380 bytes, which never come.
const HALF_A_HELLO: [u8; 9] = [0x16, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc];

/// A server with certificates, epn:0.
struct Scene {
    authority: Authority,
    server: Tcp,
    address: String,
}

impl Scene {
    fn new(config: TcpConfig) -> Self {
        Self::at("127.0.0.1:0", config)
    }

    fn at(address: &str, config: TcpConfig) -> Self {
        let authority = authority();
        let mut server = sealed_tcp(config, tls_of(&authority, "epn:0"));
        let (_, address) = server.listen(address).unwrap();
        Self {
            authority,
            server,
            address,
        }
    }

    fn honest(&self) -> Tcp {
        sealed_tcp(TcpConfig::default(), tls_of(&self.authority, "flp:5"))
    }

    /// An honest peer gets in and is served, within a second as far as an idle machine goes.
    fn check_honest(&mut self) {
        let mut client = self.honest();
        let (at_client, at_server) = self.join(&mut client);
        assert_eq!(node_of(&self.server, at_server), "sheaf://north/flp/5");
        assert_eq!(node_of(&client, at_client), "sheaf://north/epn/0");
        client.send(at_client, stf(3, 100_000)).unwrap();
        until(
            &mut [&mut client, &mut self.server],
            "a frame",
            |event| match event {
                Event::Received { conn, frame, .. } if *conn == at_server => {
                    assert_eq!(*frame, stf(3, 100_000));
                    Some(())
                }
                _ => None,
            },
        );
    }

    /// Connects `client` and gives both ends.
    fn join(&mut self, client: &mut Tcp) -> (ConnId, ConnId) {
        let at_client = client.connect(&self.address).unwrap();
        let (mut connected, mut accepted) = (false, None);
        until(&mut [client, &mut self.server], "the connection", |event| {
            match event {
                Event::Connected { conn } if *conn == at_client => connected = true,
                Event::Accepted { conn, .. } => accepted = Some(*conn),
                Event::Closed { reason, .. } => panic!("{reason}"),
                _ => {}
            }
            accepted.filter(|_| connected)
        });
        (at_client, accepted.unwrap())
    }

    /// Expects that the server refuses the next peer, and tells the reason to that peer alone.
    fn await_refusal(&mut self) -> TlsFailure {
        let start = Instant::now();
        let mut events = Vec::new();
        loop {
            assert!(start.elapsed() < crate::PATIENCE, "no peer is turned away");
            let timeout = Some(Duration::from_millis(1));
            self.server.poll(&mut events, timeout).unwrap();
            assert_eq!(events, [], "no event names a peer that was turned away");
            let refusals = self.server.take_refusals();
            if let Some(refusal) = refusals.first() {
                assert_eq!(refusals.len(), 1);
                assert!(refusal.peer.starts_with("127.0.0.1:"), "{}", refusal.peer);
                match &refusal.reason {
                    CloseReason::Tls(failure) => return failure.clone(),
                    other => panic!("{other}"),
                }
            }
        }
    }

    fn refused(&self) -> Refused {
        self.server.stats().refused
    }
}

fn node_of(endpoint: &Tcp, conn: ConnId) -> String {
    endpoint.identity(conn).map(Identity::to_string).unwrap()
}

/// Polls `endpoints` in turn until `found` makes something of an event.
fn until<R>(
    endpoints: &mut [&mut Tcp],
    what: &str,
    mut found: impl FnMut(&Event) -> Option<R>,
) -> R {
    let start = Instant::now();
    let mut events = Vec::new();
    loop {
        assert!(start.elapsed() < crate::PATIENCE, "{what} has not come");
        for endpoint in &mut *endpoints {
            let timeout = Some(Duration::from_millis(1));
            endpoint.poll(&mut events, timeout).unwrap();
            if let Some(result) = events.iter().find_map(&mut found) {
                return result;
            }
        }
    }
}

/// A client with these TLS parts is turned away, and learns why.
#[track_caller]
fn check_refused(make: impl Fn(&Authority) -> Tls) -> (TlsFailure, CloseReason, Refused) {
    let mut scene = Scene::new(TcpConfig::default());
    let mut client = sealed_tcp(TcpConfig::default(), make(&scene.authority));
    let conn = client.connect(&scene.address).unwrap();
    let (mut failure, mut reason) = (None, None);
    let start = Instant::now();
    let mut events = Vec::new();
    while failure.is_none() || reason.is_none() {
        assert!(start.elapsed() < crate::PATIENCE, "{failure:?} {reason:?}");
        let timeout = Some(Duration::from_millis(1));
        scene.server.poll(&mut events, timeout).unwrap();
        assert_eq!(events, []);
        if let Some(refusal) = scene.server.take_refusals().pop() {
            failure = Some(refusal.reason);
        }
        client.poll(&mut events, timeout).unwrap();
        for event in &events {
            match event {
                Event::Closed {
                    conn: on,
                    reason: why,
                } if *on == conn => reason = Some(why.clone()),
                // The client is done with its part of the handshake before the server has looked at it.
                Event::Connected { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
    let refused = scene.refused();
    scene.check_honest();
    match failure {
        Some(CloseReason::Tls(failure)) => (failure, reason.unwrap(), refused),
        other => panic!("{other:?}"),
    }
}

#[test]
fn both_ends_know_each_other() {
    Scene::new(TcpConfig::default()).check_honest();
}

#[test]
fn a_plain_client_gets_an_alert_and_leaves_no_trace() {
    for bytes in [
        &b"SHF1 and so on, more than enough for a prefix of ours"[..],
        b"GET / HTTP/1.1\r\nHost: sheaf\r\n\r\n",
        &[0xff; 100],
    ] {
        let mut scene = Scene::new(TcpConfig::default());
        let mut peer = TcpStream::connect(&scene.address).unwrap();
        peer.write_all(bytes).unwrap();
        assert_eq!(scene.await_refusal(), TlsFailure::Plain);
        let counted = Refused {
            tls_plain: 1,
            ..Refused::default()
        };
        assert_eq!(scene.refused(), counted);
        assert_eq!(scene.server.stats().accepted, 0);
        let mut answer = Vec::new();
        peer.read_to_end(&mut answer).unwrap();
        // Alert (21), in the clear, two bytes: fatal (2), and which.
        assert_eq!(
            (answer.len(), answer[0], answer[5]),
            (7, 21, 2),
            "{answer:?}"
        );
        scene.check_honest();
    }
}

#[test]
fn a_node_without_certificates_is_told_that_the_other_side_has_them() {
    let mut scene = Scene::new(TcpConfig::default());
    let mut client = tcp(TcpConfig::default());
    let conn = client.connect(&scene.address).unwrap();
    client.send(conn, stf(1, 1000)).unwrap();
    let reason = until(
        &mut [&mut client, &mut scene.server],
        "the end",
        |event| match event {
            Event::Closed { conn: on, reason } if *on == conn => Some(reason.clone()),
            _ => None,
        },
    );
    // The alert is no frame, which is all that a plain node can know of it.
    assert!(
        matches!(reason, CloseReason::Cut { .. } | CloseReason::Reset),
        "{reason}"
    );
    assert_eq!(scene.refused().tls_plain, 1);
}

#[test]
fn a_client_with_certificates_is_not_taken_in_by_a_plain_server() {
    let mut server = tcp(TcpConfig::default());
    let (_, address) = server.listen("127.0.0.1:0").unwrap();
    let mut client = sealed_tcp(TcpConfig::default(), tls_of(&authority(), "flp:0"));
    let conn = client.connect(&address).unwrap();
    client.send(conn, stf(1, 1000)).unwrap();
    let mut is_refused = false;
    let mut reason = None;
    until(
        &mut [&mut client, &mut server],
        "the end of both",
        |event| {
            match event {
                Event::Closed {
                    reason: CloseReason::Refused(_),
                    ..
                } => is_refused = true,
                Event::Closed {
                    conn: on,
                    reason: why,
                } if *on == conn => reason = Some(why.clone()),
                Event::Received { .. } | Event::Connected { .. } => panic!("{event:?}"),
                _ => {}
            }
            (is_refused && reason.is_some()).then_some(())
        },
    );
    let reason = reason.unwrap();
    assert!(
        matches!(reason, CloseReason::Tls(TlsFailure::Protocol(_))),
        "{reason}"
    );
    assert_eq!(client.stats().connected, 0);
}

#[test]
fn a_certificate_of_another_ca_is_refused() {
    let (failure, reason, refused) = check_refused(|_| tls_of(&authority(), "flp:5"));
    // The client looks first, and it does not know the CA of the server either.
    let text = "it was not signed by the CA of this farm".to_owned();
    assert_eq!(reason, CloseReason::Tls(TlsFailure::Certificate(text)));
    assert!(matches!(failure, TlsFailure::Alert(_)), "{failure}");
    assert_eq!(refused.tls_alert, 1);
}

#[test]
fn a_node_of_another_farm_is_refused_even_under_the_same_ca() {
    // One CA with the names of two farms is made by hand: ours signs for its own farm only. So the server is of
    // another farm than its CA says.
    let farm = |name: &str| Authority::new(name, Validity::of_days(1)).unwrap();
    let (north, south) = (farm("north"), farm("south"));
    let of = |authority: &Authority| {
        let pem = authority
            .issue(parse_node("flp:5").unwrap(), Validity::of_days(1))
            .unwrap();
        let credentials = Credentials::from_pem(&pem, authority.certificate_pem(), Moment::now());
        (Tls::new(&credentials.unwrap()).unwrap(), pem)
    };
    let ((tls, _), (_, foreign)) = (of(&north), of(&south));
    let chain = [CertificateDer::from_pem_slice(foreign.certificate.as_bytes()).unwrap()];
    let refused = tls
        .peer(Some(&chain), Moment::now())
        .unwrap_err()
        .to_string();
    assert_eq!(
        refused,
        "the peer is sheaf://south/flp/5, expected a node of farm north"
    );
    // A session that is taken up again brings the certificate of its first handshake: its date counts still.
    let chain = [CertificateDer::from_pem_slice(of(&north).1.certificate.as_bytes()).unwrap()];
    let later = Moment::now().plus_days(2);
    let refused = tls.peer(Some(&chain), later).unwrap_err().to_string();
    assert!(refused.contains("is valid from"), "{refused}");
}

#[test]
fn a_handshake_that_does_not_go_on_is_ended_in_time() {
    for bytes in [&[][..], &HALF_A_HELLO] {
        let mut scene = Scene::new(TcpConfig {
            handshake_ms: 30,
            ..TcpConfig::default()
        });
        let mut peer = TcpStream::connect(&scene.address).unwrap();
        peer.write_all(bytes).unwrap();
        assert_eq!(scene.await_refusal(), TlsFailure::Slow { limit_ms: 30 });
        assert_eq!(
            scene.refused(),
            Refused {
                tls_slow: 1,
                ..NONE
            }
        );
        // The peer learns of it: its stream ends.
        assert!(matches!(peer.read(&mut [0; 10]), Ok(0) | Err(_)));
    }
}

#[test]
fn a_handshake_byte_by_byte_is_ended_in_time() {
    let mut scene = Scene::new(TcpConfig {
        handshake_ms: 20,
        ..TcpConfig::default()
    });
    let mut peer = TcpStream::connect(&scene.address).unwrap();
    let mut events = Vec::new();
    let start = Instant::now();
    let mut bytes = HALF_A_HELLO.iter().chain(std::iter::repeat(&0));
    while scene.refused().tls_slow == 0 {
        assert!(start.elapsed() < crate::PATIENCE);
        let byte = *bytes.next().unwrap();
        // Refused once the server has had enough.
        let _ = peer.write(&[byte]);
        scene
            .server
            .poll(&mut events, Some(Duration::from_millis(1)))
            .unwrap();
        assert_eq!(events, []);
    }
}

#[test]
fn a_crowd_of_half_open_handshakes_keeps_nobody_out() {
    const CROWD: usize = 400;
    let mut scene = Scene::new(TcpConfig {
        handshakes_max: 64,
        accepted_max: 100,
        ..TcpConfig::default()
    });
    let mut crowd = Vec::new();
    for number in 0..CROWD {
        let mut peer = TcpStream::connect(&scene.address).unwrap();
        if number % 2 == 0 {
            peer.write_all(&HALF_A_HELLO).unwrap();
        }
        crowd.push(peer);
        if number % 50 == 0 {
            scene
                .server
                .poll(&mut Vec::new(), Some(Duration::ZERO))
                .unwrap();
        }
    }
    let start = Instant::now();
    scene.check_honest();
    // The promise is one second on a machine of its own; three times that where others work, too.
    assert!(
        start.elapsed() < Duration::from_secs(3),
        "{:?}",
        start.elapsed()
    );
    assert!(
        scene.refused().tls_crowded >= (CROWD - 64 - 1) as u64,
        "{:?}",
        scene.refused()
    );
    assert_eq!(scene.refused().too_many, 0);
}

#[test]
fn an_older_version_of_tls_is_refused() {
    let mut scene = Scene::new(TcpConfig::default());
    let mut peer = TcpStream::connect(&scene.address).unwrap();
    peer.write_all(&hello_of_tls_12()).unwrap();
    let failure = scene.await_refusal();
    assert!(matches!(failure, TlsFailure::Protocol(_)), "{failure}");
    let mut answer = Vec::new();
    peer.read_to_end(&mut answer).unwrap();
    // Alert 70: protocol_version.
    assert_eq!(answer, [21, 3, 3, 0, 2, 2, 70]);
    scene.check_honest();
}

/// A ClientHello as of RFC 5246, section 7.4.1.2: without the extension that names version 1.3.
fn hello_of_tls_12() -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend_from_slice(&[7; 32]); // random
    body.push(0); // no session
    body.extend_from_slice(&[0, 2, 0xc0, 0x2b]); // ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
    body.extend_from_slice(&[1, 0]); // no compression
    let groups = [0, 10, 0, 4, 0, 2, 0, 23];
    let schemes = [0, 13, 0, 4, 0, 2, 4, 3];
    body.extend_from_slice(&[0, 16]);
    body.extend_from_slice(&groups);
    body.extend_from_slice(&schemes);
    let length = |bytes: usize| u16::try_from(bytes).unwrap().to_be_bytes();
    let mut message = vec![1, 0];
    message.extend_from_slice(&length(body.len()));
    message.extend_from_slice(&body);
    let mut record = vec![0x16, 3, 1];
    record.extend_from_slice(&length(message.len()));
    record.extend_from_slice(&message);
    record
}

#[test]
fn a_flipped_bit_ends_the_session_and_makes_no_frame() {
    let authority = authority();
    let endpoint = |node| sealed_tcp(TcpConfig::default(), tls_of(&authority, node));
    check_changed_byte(Pair {
        client: endpoint("flp:5"),
        server: endpoint("epn:0"),
        address: "127.0.0.1:0".to_owned(),
        absent: String::new(),
        limits: Limits::default(),
        held_bytes_max: 0,
    });
}

#[test]
fn who_comes_back_takes_up_the_session() {
    check_resumed("127.0.0.1:0");
}

#[test]
fn who_comes_back_to_a_unix_socket_takes_up_the_session() {
    let folder = tempfile::tempdir().unwrap();
    check_resumed(&format!("unix:{}/s", folder.path().display()));
}

fn check_resumed(address: &str) {
    let mut scene = Scene::at(address, TcpConfig::default());
    let mut client = scene.honest();
    for round in 0..3 {
        let (at_client, at_server) = scene.join(&mut client);
        assert_eq!(node_of(&scene.server, at_server), "sheaf://north/flp/5");
        // The ticket for the next time comes behind the handshake: before any frame of the server.
        scene.server.send(at_server, stf(1, 10)).unwrap();
        until(&mut [&mut client, &mut scene.server], "a frame", |event| {
            matches!(event, Event::Received { .. }).then_some(())
        });
        client.close(at_client);
        until(&mut [&mut client, &mut scene.server], "the end", |event| {
            matches!(event, Event::Closed { conn, .. } if *conn == at_server).then_some(())
        });
        for stats in [client.stats(), scene.server.stats()] {
            assert_eq!(
                (stats.handshakes, stats.handshakes_resumed),
                (round + 1, round)
            );
        }
    }
}

#[test]
fn a_peer_that_dies_is_told_from_one_that_ends() {
    let mut scene = Scene::new(TcpConfig::default());
    let mut client = scene.honest();
    let (_, at_server) = scene.join(&mut client);
    drop(client);
    let reason = await_event(&mut scene.server, "the end", |event| match event {
        Event::Closed { conn, reason } if *conn == at_server => Some(reason.clone()),
        _ => None,
    });
    // Its last word is missing: what it had sent may be cut off.
    assert_eq!(reason, CloseReason::Reset);
}

#[test]
fn what_is_off_loopback_needs_certificates_or_a_word() {
    let mut endpoint = tcp(TcpConfig::default());
    let refused = endpoint.listen("0.0.0.0:0");
    assert!(
        matches!(refused, Err(ListenError::Insecure { .. })),
        "{refused:?}"
    );
    let refused = endpoint.connect("10.0.0.1:7000");
    assert!(
        matches!(refused, Err(ConnectError::Insecure { .. })),
        "{refused:?}"
    );
    let mut insecure =
        Tcp::with_security(TcpConfig::default(), arena(1 << 20), Security::Insecure).unwrap();
    insecure.listen("0.0.0.0:0").unwrap();
    sealed_tcp(TcpConfig::default(), tls_of(&authority(), "epn:0"))
        .listen("0.0.0.0:0")
        .unwrap();
}

#[test]
fn bulk_data_in_the_clear_must_be_asked_for_and_leaves_control_encrypted() {
    let authority = authority();
    let endpoint = |node, bulk| {
        let tls = tls_of(&authority, node);
        let security = Security::Tls { tls, bulk };
        Tcp::with_security(TcpConfig::default(), arena(64 << 20), security).unwrap()
    };
    for (bulk, is_known) in [(Bulk::Encrypted, true), (Bulk::CrcOnly, false)] {
        let (mut epn, mut flp) = (endpoint("epn:0", bulk), endpoint("flp:5", bulk));
        let (_, data) = epn.listen_bulk("127.0.0.1:0").unwrap();
        let (_, control) = epn.listen("127.0.0.1:0").unwrap();
        for (address, is_bulk) in [(data, true), (control, false)] {
            let conn = if is_bulk {
                flp.connect_bulk(&address).unwrap()
            } else {
                flp.connect(&address).unwrap()
            };
            flp.send(conn, stf(1, 200_000)).unwrap();
            let at = until(
                &mut [&mut flp, &mut epn],
                "the frame",
                |event| match event {
                    Event::Received { conn, frame, .. } => {
                        assert_eq!(*frame, stf(1, 200_000));
                        Some(*conn)
                    }
                    _ => None,
                },
            );
            assert_eq!(epn.identity(at).is_some(), is_known || !is_bulk, "{bulk:?}");
        }
    }
}

#[test]
fn a_full_arena_holds_an_encrypted_sender_back_and_loses_nothing() {
    const FRAMES: u8 = 60;
    let authority = authority();
    let small = encrypted(tls_of(&authority, "epn:0"));
    let mut server = Tcp::with_security(TcpConfig::default(), arena(2 << 20), small).unwrap();
    let (_, address) = server.listen("127.0.0.1:0").unwrap();
    let mut client = sealed_tcp(TcpConfig::default(), tls_of(&authority, "flp:5"));
    let conn = client.connect(&address).unwrap();
    let (mut sent, mut received, mut held) = (0, Vec::new(), Vec::new());
    let (mut events, start) = (Vec::new(), Instant::now());
    while received.len() < usize::from(FRAMES) {
        assert!(start.elapsed() < crate::PATIENCE, "{received:?}");
        while sent < FRAMES && client.send(conn, stf(sent, 300_000)).is_ok() {
            sent += 1;
        }
        client
            .poll(&mut events, Some(Duration::from_millis(1)))
            .unwrap();
        server
            .poll(&mut events, Some(Duration::from_millis(1)))
            .unwrap();
        for event in events.drain(..) {
            match event {
                Event::Received {
                    frame, body_digest, ..
                } => {
                    assert_eq!(frame, stf(frame.head[0], 300_000));
                    assert_eq!(body_digest, Some(sheaf_protocol::crc32c(&frame.body)));
                    received.push(frame.head[0]);
                    held.push(frame);
                }
                Event::Closed { reason, .. } => panic!("{reason}"),
                _ => {}
            }
        }
        if held.len() > 4 {
            held.clear();
        }
    }
    assert!(received.iter().copied().eq(0..FRAMES), "{received:?}");
    assert!(server.stats().waits_for_space > 0);
}

/// Nothing was refused.
const NONE: Refused = Refused {
    magic: 0,
    version: 0,
    kind: 0,
    head_too_large: 0,
    body_too_large: 0,
    early: 0,
    digest: 0,
    cut: 0,
    shm: 0,
    silent: 0,
    stalled: 0,
    too_many: 0,
    tls_plain: 0,
    tls_no_certificate: 0,
    tls_certificate: 0,
    tls_alert: 0,
    tls_protocol: 0,
    tls_slow: 0,
    tls_crowded: 0,
};
