//! Memory for bodies: bounded, waited for, released. And the life of an endpoint around it.

use crate::{
    PATIENCE, arena, authority, await_accepted, await_event, encrypted, sealed_tcp, stf, tcp,
    tls_of,
};
use sheaf_protocol::{Limits, Prefix, WireKind};
use sheaf_transport::tcp::resolve;
use sheaf_transport::{
    Arena, CloseReason, ConnId, ConnectError, EarlyFrame, Event, Frame, ListenError, SendError,
    Tcp, TcpConfig, Transport,
};
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A receiver with a small arena, and a sender connected to it.
struct Scene {
    arena: Arc<Arena>,
    receiver: Tcp,
    sender: Tcp,
    conn: ConnId,
}

impl Scene {
    fn new(arena_bytes: usize, config: TcpConfig) -> Self {
        let arena = arena(arena_bytes);
        let mut receiver = Tcp::new(config, Arc::clone(&arena)).unwrap();
        let mut sender = tcp(TcpConfig::default());
        let (_, address) = receiver.listen("127.0.0.1:0").unwrap();
        let conn = sender.connect(&address).unwrap();
        await_accepted(&mut receiver);
        Self {
            arena,
            receiver,
            sender,
            conn,
        }
    }

    /// Sends and receives until `least` frames are held, and then as long as anything moves.
    fn pump(
        &mut self,
        held: &mut Vec<Frame>,
        sent: &mut u8,
        total: u8,
        bytes: usize,
        least: usize,
    ) {
        let mut events = Vec::new();
        let (start, mut moved) = (Instant::now(), Instant::now());
        while held.len() < least || moved.elapsed() < Duration::from_millis(100) {
            let count = held.len();
            assert!(
                start.elapsed() < PATIENCE,
                "{count} frames came, expected {least}"
            );
            while *sent < total {
                match self.sender.send(self.conn, stf(*sent, bytes)) {
                    Ok(()) => *sent += 1,
                    Err(SendError::Full(_)) => break,
                    Err(other) => panic!("{other}"),
                }
            }
            self.sender
                .poll(&mut events, Some(Duration::from_millis(1)))
                .unwrap();
            self.receiver
                .poll(&mut events, Some(Duration::from_millis(1)))
                .unwrap();
            for event in events.drain(..) {
                if let Event::Received { frame, .. } = event {
                    held.push(frame);
                    moved = Instant::now();
                }
            }
        }
    }
}

#[test]
fn a_full_arena_holds_the_sender_back_and_loses_nothing() {
    for body_bytes in [50_000, 300_000] {
        let mut scene = Scene::new(4 << 20, TcpConfig::default());
        let (mut held, mut sent, count) = (Vec::new(), 0, 250);
        let mut received = Vec::new();
        while received.len() < usize::from(count) {
            scene.pump(&mut held, &mut sent, count, body_bytes, 1);
            assert!(
                held.len() * body_bytes <= 4 << 20,
                "{} frames in 4 MiB",
                held.len()
            );
            received.extend(held.drain(..).map(|frame| {
                assert_eq!(frame, stf(frame.head[0], body_bytes));
                frame.head[0]
            }));
        }
        assert!(
            received.iter().copied().eq(0..count),
            "the order changed: {received:?}"
        );
        assert!(scene.receiver.stats().waits_for_space > 0);
        assert_eq!(scene.arena.heap_blocks_total(), 0);
    }
}

#[test]
fn memory_that_another_thread_gives_back_ends_the_sleep() {
    let mut scene = Scene::new(2 << 20, TcpConfig::default());
    let (mut held, mut sent) = (Vec::new(), 0);
    scene.pump(&mut held, &mut sent, 12, 300_000, 6);
    let before = held.len();
    assert!(
        (1..12).contains(&before),
        "{before} frames of 300 kB in 2 MiB"
    );
    let start = Instant::now();
    let dropper = std::thread::spawn(move || drop(held));
    let arrived = |event: &Event| matches!(event, Event::Received { .. }).then_some(());
    let mut events = Vec::new();
    // No timeout: only the memory can end the sleep.
    while !events.iter().any(|event| arrived(event).is_some()) {
        scene.receiver.poll(&mut events, None).unwrap();
    }
    dropper.join().unwrap();
    assert!(start.elapsed() < PATIENCE);
}

#[test]
fn the_heap_stands_in_up_to_its_bound_and_is_counted() {
    let config = TcpConfig {
        heap_bytes_max: 1_000_000,
        ..TcpConfig::default()
    };
    let mut scene = Scene::new(2 << 20, config);
    let (mut held, mut sent) = (Vec::new(), 0);
    scene.pump(&mut held, &mut sent, 12, 300_000, 9);
    assert_eq!(
        held.len(),
        6 + 3,
        "6 bodies of 5 units fill 32 units, 3 fit in 1 MB"
    );
    assert_eq!(scene.receiver.stats().heap_fallbacks, 3);
    assert_eq!(scene.arena.heap_bytes(), 900_000);
    held.clear();
    scene.pump(&mut held, &mut sent, 12, 300_000, 3);
    assert_eq!(held.len(), 3);
    assert_eq!(scene.arena.heap_bytes(), 0);
}

#[test]
fn no_body_is_accepted_that_could_never_be_placed() {
    let scene = Scene::new(2 << 20, TcpConfig::default());
    let expected = Limits {
        body_bytes_max: 2 << 20,
        ..Limits::default()
    };
    assert_eq!(scene.receiver.limits(), expected);
}

#[test]
fn a_length_that_is_claimed_before_the_admission_takes_no_memory() {
    let arena = arena(4 << 20);
    let config = TcpConfig {
        awaits_admission: true,
        ..TcpConfig::default()
    };
    let mut receiver = Tcp::new(config, Arc::clone(&arena)).unwrap();
    let (_, address) = receiver.listen("127.0.0.1:0").unwrap();
    let claim = Prefix::new(WireKind::Stf, b"head", 2 << 20).encode();
    let claim = [claim.as_slice(), b"head"].concat();
    let hello = Prefix::new(WireKind::DataHello, b"hello", 0).encode();
    let hello = [hello.as_slice(), b"hello"].concat();
    for behind_hello in [false, true] {
        let mut peers = Vec::new();
        for _ in 0..8 {
            let mut peer = TcpStream::connect(&address).unwrap();
            let conn = await_accepted(&mut receiver);
            if behind_hello {
                peer.write_all(&hello).unwrap();
            }
            peer.write_all(&claim).unwrap();
            let what = "the hello or the end";
            let event = await_event(&mut receiver, what, |event| match event {
                Event::Received { conn: of, .. } | Event::Closed { conn: of, .. }
                    if *of == conn =>
                {
                    Some(event.clone())
                }
                _ => None,
            });
            let body = EarlyFrame::Body { found: 2 << 20 };
            let reason = CloseReason::Early(body);
            let is_refused = event == Event::Closed { conn, reason };
            assert_eq!(is_refused, !behind_hello, "{event:?}");
            assert_eq!(arena.used_bytes(), 0);
            peers.push((peer, conn));
        }
        // What stands behind the hellos is taken when they are accepted.
        for (_, conn) in &peers[..if behind_hello { 1 } else { 0 }] {
            receiver.admit(*conn, u32::MAX);
            let start = Instant::now();
            while arena.used_bytes() < 2 << 20 {
                assert!(start.elapsed() < PATIENCE);
                let wait = Some(Duration::from_millis(1));
                receiver.poll(&mut Vec::new(), wait).unwrap();
            }
        }
    }
    assert_eq!(receiver.stats().refused.early, 8);
}

#[test]
fn a_peer_that_waits_for_memory_and_sends_nothing_is_closed() {
    let arena = arena(2 << 20);
    let config = TcpConfig {
        stall_ms: 200,
        ..TcpConfig::default()
    };
    let mut receiver = Tcp::new(config, Arc::clone(&arena)).unwrap();
    let (_, address) = receiver.listen("127.0.0.1:0").unwrap();
    let full = arena.allocate(2 << 20).expect("all of it");
    let body = vec![7; 1 << 20];
    let claim = Prefix::new(WireKind::Stf, b"head", body.len() as u64).encode();
    let claim = [claim.as_slice(), b"head"].concat();
    let mut begin = |behind: &[u8]| {
        let mut peer = TcpStream::connect(&address).unwrap();
        let conn = await_accepted(&mut receiver);
        peer.write_all(&claim).unwrap();
        let waits = receiver.stats().waits_for_space;
        let start = Instant::now();
        while receiver.stats().waits_for_space == waits {
            assert!(start.elapsed() < PATIENCE, "it has not come to the body");
            let wait = Some(Duration::from_millis(1));
            receiver.poll(&mut Vec::new(), wait).unwrap();
        }
        // It lies in the socket: a connection that waits is not read.
        peer.write_all(behind).unwrap();
        (peer, conn)
    };
    let (honest_peer, honest) = begin(&body[..1000]);
    let (hesitant_peer, hesitant) = begin(&body[..1]);
    let (_silent, silent) = begin(&[]);
    let closed = await_event(&mut receiver, "an end", |event| match event {
        Event::Closed { conn, reason } => Some((*conn, reason.clone())),
        _ => None,
    });
    let reason = CloseReason::Stalled { limit_ms: 200 };
    assert_eq!(closed, (silent, reason));
    assert_eq!(receiver.stats().closed, 1, "those that have sent wait on");
    drop(full);
    for (mut peer, conn, sent) in [(honest_peer, honest, 1000), (hesitant_peer, hesitant, 1)] {
        peer.set_nonblocking(true).unwrap();
        let (mut rest, start) = (&body[sent..], Instant::now());
        let mut events = Vec::new();
        let is_whole =
            |event: &Event| matches!(event, Event::Received { conn: of, .. } if *of == conn);
        while !events.iter().any(is_whole) {
            assert!(start.elapsed() < PATIENCE, "it has not come");
            if let Ok(sent) = peer.write(rest) {
                rest = &rest[sent..];
            }
            let wait = Some(Duration::from_millis(1));
            receiver.poll(&mut events, wait).unwrap();
        }
    }
}

#[test]
fn a_body_that_has_come_encrypted_waits_for_memory_as_long_as_it_takes() {
    let authority = authority();
    let arena = arena(2 << 20);
    let full = arena.allocate(2 << 20).expect("all of it");
    let config = TcpConfig {
        stall_ms: 50,
        ..TcpConfig::default()
    };
    let security = encrypted(tls_of(&authority, "epn:0"));
    let mut receiver = Tcp::with_security(config, Arc::clone(&arena), security).unwrap();
    let mut sender = sealed_tcp(TcpConfig::default(), tls_of(&authority, "flp:0"));
    let (_, address) = receiver.listen("127.0.0.1:0").unwrap();
    let conn = sender.connect(&address).unwrap();
    sender.send(conn, stf(1, 1000)).unwrap();
    let (start, mut events) = (Instant::now(), Vec::new());
    let mut waits_since = None;
    // All of it lies in the session: the socket has nothing more.
    while waits_since.is_none_or(|since: Instant| since.elapsed() < Duration::from_millis(300)) {
        assert!(start.elapsed() < PATIENCE, "it has not come to the body");
        for endpoint in [&mut sender, &mut receiver] {
            let wait = Some(Duration::from_millis(1));
            endpoint.poll(&mut events, wait).unwrap();
            let is_end = |event: &Event| matches!(event, Event::Closed { .. });
            assert!(!events.iter().any(is_end), "{events:?}");
        }
        if receiver.stats().waits_for_space > 0 {
            waits_since.get_or_insert_with(Instant::now);
        }
    }
    drop(full);
    let frame = await_event(&mut receiver, "the frame", |event| match event {
        Event::Received { frame, .. } => Some(frame.clone()),
        _ => None,
    });
    assert_eq!(frame, stf(1, 1000));
}

#[test]
fn what_a_closed_connection_held_comes_back() {
    let mut scene = Scene::new(2 << 20, TcpConfig::default());
    let (mut held, mut sent) = (Vec::new(), 0);
    scene.pump(&mut held, &mut sent, 12, 300_000, 6);
    scene.sender.close(scene.conn);
    held.clear();
    await_event(&mut scene.receiver, "the end", |event| {
        matches!(event, Event::Closed { .. }).then_some(())
    });
    assert_eq!(scene.arena.used_bytes(), 0);
}

#[test]
fn a_waker_ends_the_sleep_from_another_thread() {
    let mut endpoint = tcp(TcpConfig::default());
    let waker = endpoint.waker();
    let thread = std::thread::spawn(move || waker.wake().unwrap());
    let mut events = Vec::new();
    while events.is_empty() {
        endpoint.poll(&mut events, None).unwrap();
    }
    assert_eq!(events, [Event::Woken]);
    thread.join().unwrap();
    endpoint.poll(&mut events, Some(Duration::ZERO)).unwrap();
    assert_eq!(events, []);
}

#[test]
fn what_is_no_address_is_refused() {
    let mut endpoint = tcp(TcpConfig::default());
    for address in ["", "here", "localhost:7100", "10.0.0.1", "1.2.3.4:99999"] {
        let refused = endpoint.connect(address);
        assert!(
            matches!(refused, Err(ConnectError::Address { .. })),
            "{address}: {refused:?}"
        );
    }
    assert!(matches!(
        endpoint.listen("here"),
        Err(ListenError::Address { .. })
    ));
    assert_eq!(
        resolve("localhost:7")
            .unwrap()
            .to_string()
            .rsplit_once(':')
            .unwrap()
            .1,
        "7"
    );
}

#[test]
fn a_restarted_endpoint_gets_its_port_again() {
    let mut scene = Scene::new(2 << 20, TcpConfig::default());
    scene.pump(&mut Vec::new(), &mut 0, 3, 1000, 3);
    let (_, address) = scene.receiver.listen("127.0.0.1:0").unwrap();
    let conn = scene.sender.connect(&address).unwrap();
    await_accepted(&mut scene.receiver);
    drop(scene.receiver);
    await_event(&mut scene.sender, "the end", |event| match event {
        Event::Closed { conn: closed, .. } if *closed == conn => Some(()),
        _ => None,
    });
    tcp(TcpConfig::default()).listen(&address).unwrap();
}

#[test]
fn a_small_arena_does_not_bound_what_is_sent() {
    let mut small = Tcp::new(TcpConfig::default(), arena(1)).unwrap();
    let mut receiver = tcp(TcpConfig::default());
    let (_, address) = receiver.listen("127.0.0.1:0").unwrap();
    let conn = small.connect(&address).unwrap();
    await_accepted(&mut receiver);
    small.send(conn, stf(1, 5 << 20)).unwrap();
    let sender = std::thread::spawn(move || {
        while small.queued_bytes(conn) > 0 {
            small
                .poll(&mut Vec::new(), Some(Duration::from_millis(1)))
                .unwrap();
        }
    });
    let received = |event: &Event| match event {
        Event::Received { frame, .. } => Some(frame.body.len()),
        _ => None,
    };
    assert_eq!(await_event(&mut receiver, "the frame", received), 5 << 20);
    sender.join().unwrap();
}

#[test]
fn a_busy_connection_leaves_turns_to_others() {
    let mut receiver = tcp(TcpConfig::default());
    let mut senders = [tcp(TcpConfig::default()), tcp(TcpConfig::default())];
    let (_, address) = receiver.listen("127.0.0.1:0").unwrap();
    let conns = senders.each_mut().map(|sender| {
        let conn = sender.connect(&address).unwrap();
        await_accepted(&mut receiver);
        conn
    });
    for ((sender, conn), frames) in senders.iter_mut().zip(conns).zip([30, 1]) {
        for _ in 0..frames {
            sender.send(conn, stf(frames, 100_000)).unwrap();
        }
        // As much as the sockets hold lies there when the receiver polls.
        while sender.queued_bytes(conn) > 0 && sender.stats().short_writes == 0 {
            sender
                .poll(&mut Vec::new(), Some(Duration::from_millis(1)))
                .unwrap();
        }
    }
    let mut before = 0;
    await_event(
        &mut receiver,
        "the frame of the quiet one",
        |event| match event {
            Event::Received { frame, .. } if frame.head[0] == 1 => Some(()),
            Event::Received { .. } => {
                before += 1;
                None
            }
            _ => None,
        },
    );
    assert!(
        before <= 15,
        "{before} of 30 frames before the one frame of the other connection"
    );
}
