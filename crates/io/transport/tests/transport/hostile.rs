//! Peers that are not ours, are broken, or mean harm: each ends with a typed reason, is counted, and leaves
//! the connections of others alone.

use crate::{await_accepted, await_event, stf, tcp};
use sheaf_protocol::{Limits, Prefix, PrefixError, WireKind};
use sheaf_transport::tcp::Refused;
use sheaf_transport::{CloseReason, ConnId, Event, Tcp, TcpConfig, Transport};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// A server with one well-behaved client.
struct Scene {
    server: Tcp,
    address: String,
    client: Tcp,
    /// The connection as the client and as the server know it.
    good: (ConnId, ConnId),
}

impl Scene {
    fn new(config: TcpConfig) -> Self {
        let limits = Limits {
            head_bytes_max: 1000,
            body_bytes_max: 1 << 20,
        };
        let mut server = tcp(TcpConfig { limits, ..config });
        let mut client = tcp(TcpConfig::default());
        let (_, address) = server.listen("127.0.0.1:0").unwrap();
        let at_client = client.connect(&address).unwrap();
        await_event(&mut client, "the connection", |event| {
            matches!(event, Event::Connected { .. }).then_some(())
        });
        let at_server = await_accepted(&mut server);
        let mut scene = Self {
            server,
            address,
            client,
            good: (at_client, at_server),
        };
        scene.check_good();
        scene
    }

    /// The good connection still works.
    fn check_good(&mut self) {
        self.client.send(self.good.0, stf(3, 1000)).unwrap();
        self.client
            .poll(&mut Vec::new(), Some(Duration::ZERO))
            .unwrap();
        let good = self.good.1;
        await_event(
            &mut self.server,
            "a frame of the good client",
            |event| match event {
                Event::Received { conn, frame, .. } if *conn == good => {
                    assert_eq!(*frame, stf(3, 1000));
                    Some(())
                }
                Event::Closed { conn, reason } if *conn == good => panic!("{reason}"),
                _ => None,
            },
        );
    }

    fn connect(&mut self) -> (TcpStream, ConnId) {
        let stream = TcpStream::connect(&self.address).unwrap();
        (stream, await_accepted(&mut self.server))
    }

    fn await_end(&mut self, of: ConnId) -> CloseReason {
        await_event(
            &mut self.server,
            "the end of the connection",
            |event| match event {
                Event::Closed { conn, reason } if *conn == of => Some(reason.clone()),
                Event::Closed { conn, reason } => panic!("{conn:?} closed too: {reason}"),
                Event::Received { conn, .. } if *conn == of => panic!("a frame was made of that"),
                _ => None,
            },
        )
    }

    /// A peer that sends `bytes`, and then keeps the connection open.
    fn attack(&mut self, bytes: &[u8]) -> CloseReason {
        let (mut stream, conn) = self.connect();
        stream.write_all(bytes).unwrap();
        let reason = self.await_end(conn);
        // The peer learns of it: its stream ends, in order or by a reset.
        assert!(matches!(stream.read(&mut [0; 10]), Ok(0) | Err(_)));
        self.check_good();
        reason
    }

    fn refused(&self) -> Refused {
        self.server.stats().refused
    }
}

/// A frame on the wire, with one byte changed.
fn changed(at: usize, to: u8) -> Vec<u8> {
    let head = [7; 10];
    let mut bytes = Prefix::new(WireKind::Control, &head, 0).encode().to_vec();
    bytes.extend_from_slice(&head);
    bytes[at] = to;
    bytes
}

#[track_caller]
fn check(bytes: &[u8], expected: &PrefixError, counted: Refused) {
    let mut scene = Scene::new(TcpConfig::default());
    assert_eq!(scene.attack(bytes), CloseReason::Refused(expected.clone()));
    assert_eq!(scene.refused(), counted);
}

#[test]
fn another_protocol_is_refused() {
    let bytes = b"GET / HTTP/1.1\r\nHost: sheaf\r\n\r\n";
    let counted = Refused {
        magic: 1,
        ..Refused::default()
    };
    check(bytes, &PrefixError::Magic { found: *b"GET " }, counted);
}

#[test]
fn another_version_is_refused() {
    let counted = Refused {
        version: 1,
        ..Refused::default()
    };
    check(&changed(4, 9), &PrefixError::Version { found: 9 }, counted);
}

#[test]
fn an_unknown_kind_is_refused() {
    let counted = Refused {
        kind: 1,
        ..Refused::default()
    };
    check(&changed(5, 99), &PrefixError::Kind { found: 99 }, counted);
}

#[test]
fn a_hostile_head_length_is_refused() {
    let counted = Refused {
        head_too_large: 1,
        ..Refused::default()
    };
    let found = 10 | 0xff00_0000;
    check(
        &changed(11, 0xff),
        &PrefixError::HeadTooLarge { found, max: 1000 },
        counted,
    );
}

#[test]
fn a_hostile_body_length_is_refused() {
    let counted = Refused {
        body_too_large: 1,
        ..Refused::default()
    };
    let (found, max) = (0xff << 56, 1 << 20);
    check(
        &changed(19, 0xff),
        &PrefixError::BodyTooLarge { found, max },
        counted,
    );
}

#[test]
fn a_flipped_bit_in_the_head_is_refused() {
    let mut scene = Scene::new(TcpConfig::default());
    let reason = scene.attack(&changed(Prefix::SIZE + 2, 6));
    assert!(
        matches!(reason, CloseReason::Refused(PrefixError::Digest { .. })),
        "{reason}"
    );
    assert_eq!(
        scene.refused(),
        Refused {
            digest: 1,
            ..Refused::default()
        }
    );
}

#[test]
fn a_cut_frame_says_what_is_missing() {
    for (sent, missing) in [(5, 19), (24, 110), (30, 104), (34, 100), (133, 1)] {
        let mut scene = Scene::new(TcpConfig::default());
        let head = [7; 10];
        let mut bytes = Prefix::new(WireKind::Stf, &head, 100).encode().to_vec();
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(&[1; 100]);
        let (mut stream, conn) = scene.connect();
        stream.write_all(&bytes[..sent]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(scene.await_end(conn), CloseReason::Cut { missing });
        assert_eq!(
            scene.refused(),
            Refused {
                cut: 1,
                ..Refused::default()
            }
        );
        scene.check_good();
    }
}

#[test]
fn a_peer_that_says_nothing_is_closed() {
    for bytes in [[].as_slice(), &changed(0, b'S')[..20]] {
        let mut scene = Scene::new(TcpConfig {
            first_frame_ms: 20,
            ..TcpConfig::default()
        });
        assert_eq!(scene.attack(bytes), CloseReason::Silent { limit_ms: 20 });
        assert_eq!(
            scene.refused(),
            Refused {
                silent: 1,
                ..Refused::default()
            }
        );
    }
}

#[test]
fn a_peer_that_stops_inside_a_frame_is_closed() {
    let mut scene = Scene::new(TcpConfig {
        stall_ms: 20,
        ..TcpConfig::default()
    });
    let (mut stream, conn) = scene.connect();
    stream.write_all(&changed(0, b'S')).unwrap();
    await_event(&mut scene.server, "the first frame", |event| {
        matches!(event, Event::Received { .. }).then_some(())
    });
    stream.write_all(&changed(0, b'S')[..30]).unwrap();
    assert_eq!(scene.await_end(conn), CloseReason::Stalled { limit_ms: 20 });
    assert_eq!(
        scene.refused(),
        Refused {
            stalled: 1,
            ..Refused::default()
        }
    );
    scene.check_good();
}

#[test]
fn what_came_before_the_damage_is_kept() {
    let mut scene = Scene::new(TcpConfig::default());
    let (mut stream, conn) = scene.connect();
    stream
        .write_all(&[changed(0, b'S'), changed(0, b'X')].concat())
        .unwrap();
    let mut frames = 0;
    let reason = await_event(
        &mut scene.server,
        "the end of the connection",
        |event| match event {
            Event::Received { conn: on, .. } if *on == conn => {
                frames += 1;
                None
            }
            Event::Closed { conn: on, reason } if *on == conn => Some(reason.clone()),
            _ => None,
        },
    );
    assert!(
        matches!(reason, CloseReason::Refused(PrefixError::Magic { .. })),
        "{reason}"
    );
    assert_eq!(frames, 1);
}

#[test]
fn a_reset_is_told_from_an_orderly_end() {
    let mut scene = Scene::new(TcpConfig::default());
    let (stream, conn) = scene.connect();
    socket2::SockRef::from(&stream)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop(stream);
    assert_eq!(scene.await_end(conn), CloseReason::Reset);
    assert_eq!(scene.server.stats().failed, 1);
    scene.check_good();
}

#[test]
fn connections_beyond_the_bound_are_closed_at_once() {
    let mut scene = Scene::new(TcpConfig {
        accepted_max: 2,
        ..TcpConfig::default()
    });
    let (second, conn) = scene.connect();
    let mut third = TcpStream::connect(&scene.address).unwrap();
    while scene.refused().too_many == 0 {
        scene.check_good();
    }
    assert!(matches!(third.read(&mut [0; 10]), Ok(0) | Err(_)));
    drop(second);
    assert_eq!(scene.await_end(conn), CloseReason::ByPeer);
    scene.connect(); // There is room again.
}
