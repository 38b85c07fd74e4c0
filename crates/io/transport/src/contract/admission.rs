//! The suite of transports that hold the connections of peers back until they are admitted.

use super::Pair;
use super::drive::{Drive, check_received, frame, most};
use crate::transport::{
    CloseReason, ConnId, EARLY_HEAD_BYTES_MAX, EarlyFrame, Event, Frame, Transport,
};
use bytes::Bytes;
use sheaf_protocol::{PrefixError, WireKind};

/// Runs the suite; `make` gives a fresh pair for every part of it, whose server waits for admissions.
///
/// # Panics
///
/// If a promise of [`Transport::admit`] is broken.
pub fn check_admission<T: Transport>(mut make: impl FnMut() -> Pair<T>) {
    what_is_behind_a_hello_arrives_after_the_admission(make());
    only_a_hello_is_taken_before_the_admission(make());
    what_a_refused_peer_has_sent_never_arrives(make());
    heads_are_as_large_as_the_admission_says(make());
    a_hello_that_is_never_answered_ends_the_connection(make());
}

fn what_is_behind_a_hello_arrives_after_the_admission<T: Transport>(pair: Pair<T>) {
    let (mut drive, client, server) = Drive::connected(pair);
    let largest = most(drive.limits).1;
    let sizes = [0, 100, 20_000, largest, 3, 200_000];
    for (number, size) in sizes.into_iter().enumerate() {
        drive.send(client, frame(number, size));
    }
    drive.expect_at_server(server, &frame(0, 0));
    drive.expect_silence();
    drive.server.admit(server, u32::MAX);
    for (number, size) in sizes.into_iter().enumerate().skip(1) {
        drive.expect_at_server(server, &frame(number, size));
    }
    drive.server.admit(server, u32::MAX);
    drive.send(client, frame(7, 7));
    drive.expect_at_server(server, &frame(7, 7));
}

fn only_a_hello_is_taken_before_the_admission<T: Transport>(pair: Pair<T>) {
    let (mut drive, address) = Drive::new(pair);
    let head = |bytes: u32| Bytes::from(vec![5; bytes as usize]);
    let found = EARLY_HEAD_BYTES_MAX + 1;
    let body = Bytes::from_static(b"body");
    for (kind, head, body, expected) in [
        (WireKind::Stf, head(8), body, EarlyFrame::Body { found: 4 }),
        (
            WireKind::Control,
            head(found),
            Bytes::new(),
            EarlyFrame::Head { found },
        ),
        (WireKind::Lane, head(1), Bytes::new(), EarlyFrame::Lane),
    ] {
        let client = drive.client.connect(&address).expect("it can be begun");
        let server = drive.accepted();
        drive.send(client, Frame { kind, head, body });
        let reason = CloseReason::Early(expected);
        let closed = Event::Closed {
            conn: server,
            reason,
        };
        assert_eq!(drive.next_at_server(), closed);
        drive.until("the end at the client", |drive| {
            let is_end =
                |event: &Event| matches!(event, Event::Closed { conn, .. } if *conn == client);
            drive.at_client.iter().any(is_end)
        });
        drive.at_client.clear();
    }
    let client = drive.client.connect(&address).expect("it can be begun");
    let server = drive.accepted();
    let largest = Frame::without_body(WireKind::Control, head(EARLY_HEAD_BYTES_MAX));
    drive.send(client, largest.clone());
    drive.expect_at_server(server, &largest);
}

fn what_a_refused_peer_has_sent_never_arrives<T: Transport>(pair: Pair<T>) {
    let (mut drive, client, server) = Drive::connected(pair);
    for (number, size) in [0, 200_000, 300].into_iter().enumerate() {
        drive.send(client, frame(number, size));
    }
    drive.expect_at_server(server, &frame(0, 0));
    let last = frame(9, 0);
    drive.server.send(server, last.clone()).expect("room");
    drive.server.finish(server);
    // Too late.
    drive.server.admit(server, u32::MAX);
    let event = drive.next_at_client();
    check_received(event, client, &last);
    let closed = |conn: ConnId, reason| Event::Closed { conn, reason };
    assert_eq!(
        drive.next_at_server(),
        closed(server, CloseReason::ByUs),
        "what was refused is read up, so that the last frame is not lost to a reset"
    );
    assert_eq!(drive.next_at_client(), closed(client, CloseReason::ByPeer));
    drive.expect_silence();
}

fn heads_are_as_large_as_the_admission_says<T: Transport>(pair: Pair<T>) {
    let (mut drive, client, server) = Drive::connected(pair);
    let head = |bytes| Frame::without_body(WireKind::Control, Bytes::from(vec![3; bytes]));
    drive.send(client, head(1));
    drive.expect_at_server(server, &head(1));
    drive.server.admit(server, 100);
    drive.send(client, head(100));
    drive.expect_at_server(server, &head(100));
    drive.send(client, head(101));
    let (found, max) = (101, 100);
    let reason = CloseReason::Refused(PrefixError::HeadTooLarge { found, max });
    let closed = Event::Closed {
        conn: server,
        reason,
    };
    assert_eq!(drive.next_at_server(), closed);
}

fn a_hello_that_is_never_answered_ends_the_connection<T: Transport>(pair: Pair<T>) {
    let (mut drive, client, server) = Drive::connected(pair);
    drive.send(client, frame(1, 0));
    drive.send(client, frame(2, 1000));
    drive.expect_at_server(server, &frame(1, 0));
    let event = drive.next_at_server();
    let is_silent = |reason: &CloseReason| matches!(reason, CloseReason::Silent { .. });
    assert!(
        matches!(&event, Event::Closed { conn, reason } if *conn == server && is_silent(reason)),
        "expected the end of a connection without an accepted hello, found {event:?}"
    );
}
