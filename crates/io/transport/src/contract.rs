//! Contract of every transport, as a suite that runs against any of them.
//!
//! An implementation, ours or a user's, passes [`check`] in one test. The suite knows two endpoints of it and
//! nothing else. It panics with a sentence when a promise of [`Transport`] is broken. One that holds peers back until
//! they are admitted passes [`check_admission`] as well.

mod admission;
mod drive;
mod kernel_tls;

pub use admission::check_admission;
pub use kernel_tls::{check_changed_byte, check_kernel_tls};

use crate::transport::{CloseReason, ConnId, Event, Frame, SendError, Transport, WhenFull};
use bytes::Bytes;
use drive::{Drive, PATIENCE, check_received, frame, most};
use sheaf_protocol::{Limits, WireKind};
use std::time::{Duration, Instant};

/// Two endpoints of the transport under test.
pub struct Pair<T> {
    /// Connects.
    pub client: T,
    /// Listens.
    pub server: T,
    /// Where the server may listen. Port 0 is replaced.
    pub address: String,
    /// Address without a listener.
    pub absent: String,
    /// The largest frame that both take. The suite sends bodies of exactly this size: keep it to a few MB.
    pub limits: Limits,
    /// Bytes that client and server together may take in for a receiver that does not poll, the buffers of the
    /// operating system included.
    pub held_bytes_max: u64,
}

/// Runs the suite; `make` gives a fresh pair for every part of it.
///
/// # Panics
///
/// If a promise is broken.
pub fn check<T: Transport>(mut make: impl FnMut() -> Pair<T>) {
    small_and_large_frames_arrive_in_order(make());
    frames_of_any_allowed_size_arrive(make());
    a_frame_beyond_the_limits_is_not_taken(make());
    both_sides_can_send_before_the_connection_stands(make());
    a_receiver_that_does_not_poll_holds_the_sender_back(make());
    full_queues_drop_what_they_say(make(), WhenFull::DropNewest);
    full_queues_drop_what_they_say(make(), WhenFull::DropOldest);
    finishing_delivers_all_and_closes_both_sides(make());
    a_peer_that_learns_of_our_end_sends_what_it_has(make());
    closing_ends_both_sides_once(make());
    a_peer_that_dies_is_noticed_once(make());
    nobody_at_the_address_is_an_event(make());
    an_address_in_use_is_refused(make());
    many_connections_are_kept_apart(make());
}

fn small_and_large_frames_arrive_in_order<T: Transport>(pair: Pair<T>) {
    let (mut drive, client, server) = Drive::connected(pair);
    let (_, largest) = most(drive.limits);
    let sizes = [0, 1, 100, 10_000, 3, 200_000, 0, 70_000, largest / 2, 17];
    let frames: Vec<Frame> = (0..400)
        .map(|number| frame(number, sizes[number * 7 % sizes.len()].min(largest)))
        .collect();
    for frame in &frames {
        drive.send(client, frame.clone());
    }
    for frame in &frames {
        drive.expect_at_server(server, frame);
    }
    drive.until("an empty queue", |drive| {
        drive.client.queued_bytes(client) == 0
    });
    drive.expect_silence();
}

fn frames_of_any_allowed_size_arrive<T: Transport>(pair: Pair<T>) {
    let (mut drive, client, server) = Drive::connected(pair);
    let (head_max, body_max) = most(drive.limits);
    for (head, body) in [
        (0, 0),
        (0, 1),
        (1, 0),
        (head_max, 0),
        (0, body_max),
        (head_max, body_max),
    ] {
        let (head, body) = (Bytes::from(vec![5; head]), Bytes::from(vec![6; body]));
        let frame = Frame {
            kind: WireKind::Stf,
            head,
            body,
        };
        drive.send(client, frame.clone());
        drive.expect_at_server(server, &frame);
    }
}

fn a_frame_beyond_the_limits_is_not_taken<T: Transport>(pair: Pair<T>) {
    let (mut drive, client, server) = Drive::connected(pair);
    let (head_max, body_max) = most(drive.limits);
    for (head, body) in [(head_max + 1, 0), (0, body_max + 1)] {
        let (head, body) = (Bytes::from(vec![5; head]), Bytes::from(vec![6; body]));
        let refused = drive.client.send(
            client,
            Frame {
                kind: WireKind::Stf,
                head,
                body,
            },
        );
        assert!(
            matches!(refused, Err(SendError::TooLarge(_))),
            "too large, but: {refused:?}"
        );
    }
    drive.send(client, frame(1, 1));
    drive.expect_at_server(server, &frame(1, 1));
}

fn both_sides_can_send_before_the_connection_stands<T: Transport>(pair: Pair<T>) {
    let (mut drive, address) = Drive::new(pair);
    let client = drive
        .client
        .connect(&address)
        .expect("a connection can be begun");
    drive.send(client, frame(1, 1000));
    let server = drive.accepted();
    drive
        .server
        .send(server, frame(2, 2000))
        .expect("an empty queue takes a frame");
    drive.expect_at_server(server, &frame(1, 1000));
    assert_eq!(drive.next_at_client(), Event::Connected { conn: client });
    let event = drive.next_at_client();
    check_received(event, client, &frame(2, 2000));
}

fn a_receiver_that_does_not_poll_holds_the_sender_back<T: Transport>(pair: Pair<T>) {
    let (mut drive, client, server) = Drive::connected(pair);
    let size = most(drive.limits).1.min(100_000);
    let mut sent = 0;
    let start = Instant::now();
    let mut refused_since = None;
    // The queue drains into the buffers of the operating system as the client polls: only when it has been
    // full for some time is everything full.
    while refused_since.is_none_or(|since: Instant| since.elapsed() < Duration::from_millis(50)) {
        assert!(start.elapsed() < PATIENCE, "the queue never stays full");
        match drive.client.send(client, frame(sent, size)) {
            Ok(()) => {
                sent += 1;
                refused_since = None;
            }
            Err(SendError::Full(back)) => {
                assert_eq!(back, frame(sent, size), "another frame came back");
                refused_since.get_or_insert_with(Instant::now);
                // Room that came before the refusal was used. What comes from here on has not been.
                drive.at_client.clear();
                drive.poll_client();
            }
            Err(other) => panic!("a frame is not taken: {other}"),
        }
        let held = (sent * size) as u64;
        let max = drive.held_bytes_max;
        assert!(
            held <= max,
            "{held} bytes were taken in for a receiver that takes none, max {max}"
        );
    }
    let writable = Event::Writable { conn: client };
    drive.until("room", |drive| drive.at_client.contains(&writable));
    assert!(
        drive.client.send(client, frame(sent, size)).is_ok(),
        "room was said, and there is none"
    );
    for number in 0..=sent {
        drive.expect_at_server(server, &frame(number, size));
    }
}

fn full_queues_drop_what_they_say<T: Transport>(pair: Pair<T>, when_full: WhenFull) {
    let (mut drive, client, server) = Drive::connected(pair);
    drive.client.set_when_full(client, when_full);
    let size = most(drive.limits).1.min(100_000);
    // Without polls in between, nothing leaves the queue.
    let count = usize::try_from(drive.held_bytes_max).expect("a small bound") / size + 2;
    for number in 0..count {
        drive
            .client
            .send(client, frame(number, size))
            .expect("a queue that drops takes everything");
    }
    assert!(
        drive.client.queued_bytes(client) <= drive.held_bytes_max,
        "the queue is not bounded"
    );
    drive.client.finish(client);
    let mut numbers = Vec::new();
    let reason = loop {
        match drive.next_at_server() {
            Event::Received { frame, .. } => {
                let number = frame
                    .head
                    .first_chunk()
                    .expect("the suite's heads begin with a number");
                numbers.push(usize::from_le_bytes(*number));
            }
            Event::Closed { conn, reason } if conn == server => break reason,
            other => panic!("unexpected at the server: {other:?}"),
        }
    };
    assert_eq!(reason, CloseReason::ByPeer);
    assert!(numbers.len() < count, "nothing was dropped");
    assert!(
        numbers.is_sorted(),
        "what was left changed places: {numbers:?}"
    );
    let kept = if when_full == WhenFull::DropOldest {
        count - 1
    } else {
        0
    };
    assert!(
        numbers.contains(&kept),
        "{when_full:?} has dropped frame {kept} of {count}"
    );
}

fn finishing_delivers_all_and_closes_both_sides<T: Transport>(pair: Pair<T>) {
    let (mut drive, client, server) = Drive::connected(pair);
    let size = most(drive.limits).1.min(300_000);
    for number in 0..20 {
        drive
            .client
            .send(client, frame(number, size))
            .expect("the queue takes 6 MB");
    }
    drive.client.finish(client);
    assert_eq!(
        drive.client.send(client, frame(0, 0)),
        Err(SendError::Closed)
    );
    for number in 0..20 {
        drive.expect_at_server(server, &frame(number, size));
    }
    let (by_peer, by_us) = (CloseReason::ByPeer, CloseReason::ByUs);
    assert_eq!(
        drive.next_at_server(),
        Event::Closed {
            conn: server,
            reason: by_peer
        }
    );
    assert_eq!(
        drive.next_at_client(),
        Event::Closed {
            conn: client,
            reason: by_us
        }
    );
    drive.expect_silence();
    assert_eq!(
        drive.server.send(server, frame(0, 0)),
        Err(SendError::Closed)
    );
}

fn a_peer_that_learns_of_our_end_sends_what_it_has<T: Transport>(pair: Pair<T>) {
    let (mut drive, client, server) = Drive::connected(pair);
    let size = most(drive.limits).1.min(300_000);
    for number in 0..20 {
        drive
            .server
            .send(server, frame(number, size))
            .expect("the queue takes 6 MB");
    }
    drive.client.finish(client);
    for number in 0..20 {
        let event = drive.next_at_client();
        check_received(event, client, &frame(number, size));
    }
    let reason = CloseReason::ByUs;
    assert_eq!(
        drive.next_at_client(),
        Event::Closed {
            conn: client,
            reason
        }
    );
    let reason = CloseReason::ByPeer;
    assert_eq!(
        drive.next_at_server(),
        Event::Closed {
            conn: server,
            reason
        }
    );
    drive.expect_silence();
}

fn closing_ends_both_sides_once<T: Transport>(pair: Pair<T>) {
    let (mut drive, client, server) = Drive::connected(pair);
    drive.client.close(client);
    drive.client.close(client);
    drive.client.finish(client);
    assert_eq!(
        drive.client.send(client, frame(0, 0)),
        Err(SendError::Closed)
    );
    let reason = CloseReason::ByUs;
    assert_eq!(
        drive.next_at_client(),
        Event::Closed {
            conn: client,
            reason
        }
    );
    assert!(matches!(drive.next_at_server(), Event::Closed { conn, .. } if conn == server));
    drive.expect_silence();
}

fn a_peer_that_dies_is_noticed_once<T: Transport>(pair: Pair<T>) {
    let (drive, client, server) = Drive::connected(pair);
    let Drive {
        client: mut dying,
        server: mut survivor,
        ..
    } = drive;
    dying
        .send(client, frame(1, 1000))
        .expect("an empty queue takes a frame");
    let mut events = Vec::new();
    dying
        .poll(&mut events, Some(Duration::ZERO))
        .expect("poll works");
    drop(dying);
    let start = Instant::now();
    let mut seen = Vec::new();
    while !seen
        .iter()
        .any(|event| matches!(event, Event::Closed { .. }))
    {
        assert!(
            start.elapsed() < PATIENCE,
            "the death of the peer is never noticed"
        );
        survivor
            .poll(&mut events, Some(Duration::from_millis(1)))
            .expect("poll works");
        seen.append(&mut events);
    }
    for _ in 0..20 {
        survivor
            .poll(&mut events, Some(Duration::from_millis(1)))
            .expect("poll works");
        seen.append(&mut events);
    }
    let closed = |event: &Event| matches!(event, Event::Closed { conn, .. } if *conn == server);
    assert_eq!(
        seen.iter().filter(|event| closed(event)).count(),
        1,
        "closed once: {seen:?}"
    );
    assert!(
        seen.last().is_some_and(closed),
        "something came after the end: {seen:?}"
    );
}

fn nobody_at_the_address_is_an_event<T: Transport>(pair: Pair<T>) {
    let absent = pair.absent.clone();
    let (mut drive, _) = Drive::new(pair);
    let conn = drive
        .client
        .connect(&absent)
        .expect("a connection can be begun");
    // Taken or refused as closed: a transport may know at once, and says so with an event in either case.
    let _ = drive.client.send(conn, frame(1, 1));
    let event = drive.next_at_client();
    let reason = match event {
        Event::Closed {
            conn: closed,
            reason,
        } if closed == conn => reason,
        other => panic!("expected the end of the connection, found {other:?}"),
    };
    assert!(
        matches!(reason, CloseReason::Unreachable(_)),
        "unreachable, but: {reason}"
    );
    assert_eq!(drive.client.send(conn, frame(1, 1)), Err(SendError::Closed));
    drive.expect_silence();
}

fn an_address_in_use_is_refused<T: Transport>(pair: Pair<T>) {
    let (mut drive, address) = Drive::new(pair);
    let refused = drive
        .client
        .listen(&address)
        .expect_err("the server listens there");
    assert!(
        refused.to_string().contains(&address),
        "the address is not named: {refused}"
    );
}

fn many_connections_are_kept_apart<T: Transport>(pair: Pair<T>) {
    let (mut drive, address) = Drive::new(pair);
    let clients: Vec<ConnId> = (0..20)
        .map(|_| {
            drive
                .client
                .connect(&address)
                .expect("a connection can be begun")
        })
        .collect();
    for round in 0..10 {
        for (number, client) in clients.iter().enumerate() {
            drive.send(*client, frame(number, 50_000 + round));
        }
    }
    let mut received: Vec<(ConnId, Vec<Frame>)> = Vec::new();
    let mut frames = 0;
    while frames < 200 {
        match drive.next_at_server() {
            Event::Accepted { conn, .. } => received.push((conn, Vec::new())),
            Event::Received { conn, frame, .. } => {
                let of = received.iter_mut().find(|(other, _)| *other == conn);
                of.expect("a frame comes after its connection")
                    .1
                    .push(frame);
                frames += 1;
            }
            other => panic!("unexpected at the server: {other:?}"),
        }
    }
    let mut numbers: Vec<usize> = Vec::new();
    for (_, frames) in &received {
        let number = frames.first().and_then(|frame| frame.head.first_chunk());
        let number = usize::from_le_bytes(*number.expect("every connection brought frames"));
        let expected: Vec<Frame> = (0..10).map(|round| frame(number, 50_000 + round)).collect();
        assert!(*frames == expected, "connections were mixed up");
        numbers.push(number);
    }
    numbers.sort_unstable();
    assert!(
        numbers.iter().copied().eq(0..20),
        "not every connection arrived: {numbers:?}"
    );
}
