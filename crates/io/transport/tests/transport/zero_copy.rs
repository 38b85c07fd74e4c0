//! Sends that the kernel is asked not to copy. Here it always copies, so what is tested is that nothing is lost, that
//! memory comes back, and that a connection stops asking.

use crate::{PATIENCE, arena, stf};
use bytes::Bytes;
use sheaf_transport::{Arena, Event, Frame, SendError, Tcp, TcpConfig, Transport, WireKind};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn config() -> TcpConfig {
    TcpConfig {
        zero_copy_everywhere: true,
        shared_memory: false,
        ..TcpConfig::default()
    }
}

fn body(memory: &Arc<Arena>, fill: u8, bytes: usize) -> Bytes {
    let mut block = memory.allocate(bytes).unwrap();
    block.as_mut().fill(fill);
    block.freeze()
}

#[test]
fn a_connection_stops_asking_when_the_kernel_copies_and_loses_nothing() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        if TcpListener::bind(address).is_err() {
            println!("skipped: no {address} on this machine");
            continue;
        }
        let memory = arena(64 << 20);
        let mut client = Tcp::new(config(), arena(1 << 20)).unwrap();
        let mut server = Tcp::new(config(), arena(64 << 20)).unwrap();
        let (_, address) = server.listen(address).unwrap();
        let conn = client.connect(&address).unwrap();
        let sizes = [10, 100_000, 0, 64 << 10, (64 << 10) - 1, 3_000_000];
        let (start, mut events, mut received) = (Instant::now(), Vec::new(), Vec::new());
        for number in 0..60_u8 {
            let mut frame = Frame {
                body: body(&memory, number, sizes[usize::from(number) % sizes.len()]),
                ..stf(number, 0)
            };
            while let Err(SendError::Full(same)) = client.send(conn, frame) {
                frame = same;
                turn(&mut client, &mut server, &mut events, &mut received);
            }
            assert!(start.elapsed() < PATIENCE, "the queue stays full");
        }
        while received.len() < 60 || memory.used_bytes() > 0 {
            turn(&mut client, &mut server, &mut events, &mut received);
            assert!(
                start.elapsed() < PATIENCE,
                "{} frames are there",
                received.len()
            );
        }
        for (number, (head, filled, bytes)) in (0_u8..).zip(received) {
            assert_eq!(head, [number; 8]);
            assert!(filled, "the bytes of frame {number}");
            assert_eq!(bytes, sizes[usize::from(number) % sizes.len()]);
        }
        let stats = client.stats();
        println!(
            "{} sends without a copy, {} of them copied",
            stats.zero_copy_sends, stats.zero_copy_copied
        );
        assert!(stats.zero_copy_copied > 0, "loopback copies");
        let asked = stats.zero_copy_sends;
        // From now on it asks no more.
        client
            .send(
                conn,
                Frame {
                    body: body(&memory, 1, 1 << 20),
                    ..stf(1, 0)
                },
            )
            .unwrap();
        let mut received = Vec::new();
        while received.is_empty() {
            turn(&mut client, &mut server, &mut events, &mut received);
            assert!(start.elapsed() < PATIENCE, "the last frame");
        }
        assert_eq!(client.stats().zero_copy_sends, asked);
        assert_eq!((client.stats().closed, server.stats().closed), (0, 0));
    }
}

type Seen = (Vec<u8>, bool, usize);

fn turn(client: &mut Tcp, server: &mut Tcp, events: &mut Vec<Event>, received: &mut Vec<Seen>) {
    client.poll(events, Some(Duration::from_millis(1))).unwrap();
    server.poll(events, Some(Duration::from_millis(1))).unwrap();
    for event in events.drain(..) {
        if let Event::Received { frame, .. } = event {
            assert_eq!(frame.kind, WireKind::Stf);
            let filled = frame.body.iter().all(|byte| *byte == frame.head[0]);
            received.push((frame.head.to_vec(), filled, frame.body.len()));
        }
    }
}

#[test]
fn a_connection_that_is_closed_gives_its_memory_back_at_once() {
    let memory = arena(64 << 20);
    let mut client = Tcp::new(config(), arena(1 << 20)).unwrap();
    // The peer does not read.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let conn = client
        .connect(&listener.local_addr().unwrap().to_string())
        .unwrap();
    let (mut events, start) = (Vec::new(), Instant::now());
    while client.stats().connected == 0 {
        client
            .poll(&mut events, Some(Duration::from_millis(1)))
            .unwrap();
        assert!(start.elapsed() < PATIENCE, "no connection");
    }
    let frame = Frame {
        body: body(&memory, 1, 30 << 20),
        ..stf(1, 0)
    };
    client.send(conn, frame).unwrap();
    client.poll(&mut events, Some(Duration::ZERO)).unwrap();
    assert!(memory.used_bytes() > 0);
    client.close(conn);
    assert_eq!(memory.used_bytes(), 0);
}
