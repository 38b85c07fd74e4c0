//! Limits: what peers cannot take from others, and the codes they get.

use crate::{PATIENCE, await_accepted, await_event, stf, tcp};
use bytes::Bytes;
use sheaf_protocol::reject::Code;
use sheaf_protocol::{
    Control, Envelope, Incarnation, Limits, NodeId, Prefix, RunId, Term, WireKind,
};
use sheaf_transport::{CloseReason, ConnId, Event, Frame, Tcp, TcpConfig, Transport};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Tells the code of a reason, as nodes do.
fn close_notice(reason: &CloseReason) -> Option<Frame> {
    let code = match reason {
        CloseReason::Refused(_) => Code::TooBig,
        CloseReason::Silent { .. } => Code::HandshakeTimeout,
        CloseReason::Crowded => Code::TooManyConnections,
        _ => return None,
    };
    let envelope = Envelope {
        minor: 0,
        run: RunId(0),
        sender: NodeId::ICN,
        incarnation: Incarnation(0),
        term: Term(0),
        sequence: 0,
    };
    let detail = reason.to_string();
    let head = Control::Rejected { code, detail }.encode(&envelope);
    Some(Frame::without_body(WireKind::Control, head.into()))
}

fn server(config: TcpConfig) -> (Tcp, String) {
    let mut server = tcp(config);
    server.set_close_notice(close_notice);
    let (_, address) = server.listen("127.0.0.1:0").unwrap();
    (server, address)
}

/// The code that a peer got before its stream ended.
fn told(stream: &mut TcpStream) -> Code {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes); // A reset may come behind the word.
    let (_, control) = Control::decode(&bytes[Prefix::SIZE..]).unwrap();
    match control {
        Control::Rejected { code, .. } => code,
        other => panic!("the peer got {other:?}"),
    }
}

fn await_closed(server: &mut Tcp, of: ConnId) -> CloseReason {
    await_event(server, "the end of the connection", |event| match event {
        Event::Closed { conn, reason } if *conn == of => Some(reason.clone()),
        _ => None,
    })
}

/// Resident memory of this process, in bytes.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[test]
fn a_frame_of_4_gib_is_told_to_be_too_big_and_costs_no_memory() {
    let (mut server, address) = server(TcpConfig::default());
    let head = [7; 10];
    let mut oversized = Prefix::new(WireKind::Stf, &head, u64::from(u32::MAX))
        .encode()
        .to_vec();
    oversized.extend_from_slice(&head);
    let attack = |server: &mut Tcp| {
        let mut stream = TcpStream::connect(&address).unwrap();
        let conn = await_accepted(server);
        stream.write_all(&oversized).unwrap();
        let reason = await_closed(server, conn);
        assert!(matches!(reason, CloseReason::Refused(_)), "{reason}");
        assert_eq!(told(&mut stream), Code::TooBig);
    };
    attack(&mut server); // What is allocated once is allocated now.
    let before = resident_bytes();
    (0..20).for_each(|_| attack(&mut server));
    let grown = resident_bytes().saturating_sub(before);
    // Other tests of this process run at the same time, and their buffers count here; 20 × 4 GiB would show.
    assert!(grown < 512 << 20, "{grown} bytes more");
}

#[test]
fn a_peer_that_says_nothing_is_told_why_it_is_closed() {
    let (mut server, address) = server(TcpConfig {
        first_frame_ms: 50,
        ..TcpConfig::default()
    });
    let mut stream = TcpStream::connect(address).unwrap();
    let conn = await_accepted(&mut server);
    let reason = await_closed(&mut server, conn);
    assert!(matches!(reason, CloseReason::Silent { .. }), "{reason}");
    assert_eq!(told(&mut stream), Code::HandshakeTimeout);
}

#[test]
fn one_address_cannot_take_all_the_connections() {
    let (mut server, address) = server(TcpConfig {
        accepted_per_ip_max: 2,
        ..TcpConfig::default()
    });
    let kept: Vec<_> = (0..2)
        .map(|_| {
            let stream = TcpStream::connect(&address).unwrap();
            (stream, await_accepted(&mut server))
        })
        .collect();
    let mut third = TcpStream::connect(&address).unwrap();
    while server.stats().refused.too_many == 0 {
        server
            .poll(&mut Vec::new(), Some(Duration::from_millis(1)))
            .unwrap();
    }
    assert_eq!(told(&mut third), Code::TooManyConnections);
    let refusals = server.take_refusals();
    assert_eq!(refusals.len(), 1);
    assert_eq!(refusals[0].reason, CloseReason::Crowded);
    // When one goes, another may come.
    let (stream, conn) = kept.into_iter().next().unwrap();
    drop(stream);
    await_closed(&mut server, conn);
    let _fourth = TcpStream::connect(&address).unwrap();
    await_accepted(&mut server);
}

/// Sends `count` frames and waits until the server has them; says how long that took.
fn move_frames(client: &mut Tcp, server: &mut Tcp, conn: ConnId, count: usize) -> Duration {
    let start = Instant::now();
    let (mut sent, mut received, mut events) = (0, 0, Vec::new());
    while received < count {
        assert!(
            start.elapsed() < PATIENCE,
            "{received} of {count} frames came"
        );
        while sent < count && client.send(conn, stf(1, 100_000)).is_ok() {
            sent += 1;
        }
        client.poll(&mut events, Some(Duration::ZERO)).unwrap();
        server.poll(&mut events, Some(Duration::ZERO)).unwrap();
        let is_frame = |event: &&Event| matches!(event, Event::Received { .. });
        received += events.iter().filter(is_frame).count();
    }
    start.elapsed()
}

#[test]
fn ten_thousand_half_open_peers_keep_nobody_out_and_hold_up_nothing() {
    let (mut server, address) = server(TcpConfig::default());
    let mut client = tcp(TcpConfig::default());
    let good = client.connect(&address).unwrap();
    client.send(good, stf(0, 10)).unwrap();
    await_event(&mut client, "the connection", |event| {
        matches!(event, Event::Connected { .. }).then_some(())
    });
    await_accepted(&mut server);
    move_frames(&mut client, &mut server, good, 200);
    // What the server gives up the peers keep; the descriptors of both are in this process.
    let (done, is_done) = std::sync::mpsc::sync_channel(1);
    let attacked = address.clone();
    let attacker = std::thread::spawn(move || {
        let mut halves = Vec::new();
        while halves.len() < 10_000 {
            match TcpStream::connect(&attacked) {
                Ok(mut stream) => {
                    // One byte of a frame that never comes.
                    let _ = stream.write_all(b"S");
                    halves.push(stream);
                }
                // This machine lets a process have no more: then it is as many as that.
                Err(_) => break,
            }
        }
        let count = halves.len();
        done.send(halves).unwrap();
        count
    });
    let (mut longest, mut tries) = (Duration::ZERO, 0);
    let halves = loop {
        // An honest peer comes in the middle of that, and is served.
        let mut honest = tcp(TcpConfig::default());
        let start = Instant::now();
        let conn = honest.connect(&address).unwrap();
        honest
            .send(
                conn,
                Frame {
                    kind: WireKind::DataHello,
                    head: Bytes::from_static(b"honest"),
                    body: Bytes::new(),
                },
            )
            .unwrap();
        let mut events = Vec::new();
        let mut is_heard = false;
        while !is_heard {
            assert!(start.elapsed() < PATIENCE, "the honest peer is not heard");
            honest.poll(&mut events, Some(Duration::ZERO)).unwrap();
            server
                .poll(&mut events, Some(Duration::from_millis(1)))
                .unwrap();
            is_heard = events.iter().any(|event| {
                matches!(
                    event,
                    Event::Received { frame, .. } if frame.kind == WireKind::DataHello
                )
            });
        }
        longest = longest.max(start.elapsed());
        tries += 1;
        move_frames(&mut client, &mut server, good, 20);
        if let Ok(halves) = is_done.try_recv() {
            break halves;
        }
    };
    let count = attacker.join().unwrap();
    println!("{count} half-open peers, {tries} honest ones, the slowest heard after {longest:?}");
    assert!(count > 1000, "this machine gives {count} descriptors");
    // One second, three times over: the machine may be busy with other tests.
    assert!(longest < Duration::from_secs(3), "{longest:?}");
    assert!(server.stats().refused.too_many > 0);
    drop(halves);
    move_frames(&mut client, &mut server, good, 200);
}

#[test]
fn limits_hold_before_anything_is_allocated() {
    let limits = Limits {
        head_bytes_max: 100,
        body_bytes_max: 1000,
    };
    let (mut server, address) = server(TcpConfig {
        limits,
        ..TcpConfig::default()
    });
    for (head, body) in [(101_usize, 0_u64), (0, 1001), (0, u64::MAX)] {
        let head = vec![0; head];
        let mut stream = TcpStream::connect(&address).unwrap();
        let conn = await_accepted(&mut server);
        // The prefix alone is enough: nothing of what it announces is waited for.
        let prefix = Prefix::new(WireKind::Stf, &head, body).encode();
        stream.write_all(&prefix).unwrap();
        assert!(matches!(
            await_closed(&mut server, conn),
            CloseReason::Refused(_)
        ));
        assert_eq!(told(&mut stream), Code::TooBig);
    }
}
