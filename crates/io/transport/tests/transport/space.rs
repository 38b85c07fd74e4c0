//! Memory for bodies: bounded, waited for, released. And the life of an endpoint around it.

use crate::{PATIENCE, arena, await_accepted, await_event, stf, tcp};
use sheaf_protocol::Limits;
use sheaf_transport::tcp::resolve;
use sheaf_transport::{
    Arena, ConnId, ConnectError, Event, Frame, ListenError, SendError, Tcp, TcpConfig, Transport,
};
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
