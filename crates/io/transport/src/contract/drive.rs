//! Drives the two endpoints of a contract test.

use super::Pair;
use crate::transport::{ConnId, Event, Frame, SendError, Transport};
use bytes::Bytes;
use sheaf_protocol::{Limits, WireKind, crc32c};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Longest wait for an event before a check fails.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Two endpoints, driven in turn, and what has happened at each.
pub(super) struct Drive<T> {
    pub(super) client: T,
    pub(super) server: T,
    pub(super) limits: Limits,
    pub(super) held_bytes_max: u64,
    pub(super) at_client: VecDeque<Event>,
    pub(super) at_server: VecDeque<Event>,
    pub(super) events: Vec<Event>,
}

impl<T: Transport> Drive<T> {
    pub(super) fn new(pair: Pair<T>) -> (Self, String) {
        let Pair {
            client,
            mut server,
            address,
            limits,
            held_bytes_max,
            ..
        } = pair;
        let (_, address) = server.listen(&address).expect("the server can listen");
        let (at_client, at_server, events) = Default::default();
        let drive = Self {
            client,
            server,
            limits,
            held_bytes_max,
            at_client,
            at_server,
            events,
        };
        (drive, address)
    }

    /// Returns a drive with one connection that stands.
    pub(super) fn connected(pair: Pair<T>) -> (Self, ConnId, ConnId) {
        let (mut drive, address) = Self::new(pair);
        let client = drive
            .client
            .connect(&address)
            .expect("a connection can be begun");
        let server = drive.accepted();
        assert_eq!(drive.next_at_client(), Event::Connected { conn: client });
        (drive, client, server)
    }

    pub(super) fn poll_client(&mut self) {
        self.client
            .poll(&mut self.events, Some(Duration::from_millis(1)))
            .expect("poll works");
        self.at_client.extend(self.events.drain(..));
    }

    pub(super) fn poll_server(&mut self) {
        self.server
            .poll(&mut self.events, Some(Duration::from_millis(1)))
            .expect("poll works");
        self.at_server.extend(self.events.drain(..));
    }

    /// Polls both sides until `done` says so.
    pub(super) fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let start = Instant::now();
        while !done(self) {
            assert!(
                start.elapsed() < PATIENCE,
                "{what} has not happened in {PATIENCE:?}"
            );
            self.poll_client();
            self.poll_server();
        }
    }

    pub(super) fn next_at_client(&mut self) -> Event {
        self.until("an event at the client", |drive| {
            !drive.at_client.is_empty()
        });
        self.at_client.pop_front().expect("just seen")
    }

    pub(super) fn next_at_server(&mut self) -> Event {
        self.until("an event at the server", |drive| {
            !drive.at_server.is_empty()
        });
        self.at_server.pop_front().expect("just seen")
    }

    pub(super) fn accepted(&mut self) -> ConnId {
        match self.next_at_server() {
            Event::Accepted { conn, .. } => conn,
            other => panic!("expected an accepted connection, found {other:?}"),
        }
    }

    /// The next event at the server is this frame, whole.
    pub(super) fn expect_at_server(&mut self, on: ConnId, expected: &Frame) {
        let event = self.next_at_server();
        check_received(event, on, expected);
    }

    /// Sends from the client, waiting for room where needed.
    pub(super) fn send(&mut self, conn: ConnId, mut frame: Frame) {
        loop {
            match self.client.send(conn, frame) {
                Ok(()) => return,
                Err(SendError::Full(back)) => frame = back,
                Err(other) => panic!("a frame is not taken: {other}"),
            }
            self.until("room after a refusal", |drive| {
                let writable = Event::Writable { conn };
                let at = drive.at_client.iter().position(|event| *event == writable);
                at.and_then(|at| drive.at_client.remove(at)).is_some()
            });
        }
    }

    /// A few more rounds bring no event of `at_client` or `at_server`.
    pub(super) fn expect_silence(&mut self) {
        for _ in 0..20 {
            self.poll_client();
            self.poll_server();
        }
        assert!(
            self.at_client.is_empty(),
            "unexpected at the client: {:?}",
            self.at_client
        );
        assert!(
            self.at_server.is_empty(),
            "unexpected at the server: {:?}",
            self.at_server
        );
    }
}

pub(super) fn check_received(event: Event, on: ConnId, expected: &Frame) {
    let Event::Received {
        conn,
        frame,
        body_digest,
        ..
    } = event
    else {
        panic!("expected a frame on {on:?}, found {event:?}");
    };
    assert_eq!(conn, on, "the frame came on another connection");
    assert_eq!(frame.kind, expected.kind, "the kind changed on the way");
    assert!(
        frame.head == expected.head,
        "the head changed on the way, or frames changed places"
    );
    let (bytes, sent) = (frame.body.len(), expected.body.len());
    assert!(
        frame.body == expected.body,
        "the body changed on the way: {bytes} bytes of {sent}"
    );
    let digest = crc32c(&expected.body);
    assert!(
        body_digest.is_none_or(|found| found == digest),
        "the digest is not that of the body"
    );
}

/// Returns a frame whose content depends on `number`, so that two are never taken for each other.
pub(super) fn frame(number: usize, body_bytes: usize) -> Frame {
    let kind = if body_bytes == 0 {
        WireKind::Control
    } else {
        WireKind::Stf
    };
    let head = Bytes::from(number.to_le_bytes().repeat(1 + number % 9));
    let body: Vec<u8> = (number..)
        .map(|value| value.to_le_bytes()[0])
        .take(body_bytes)
        .collect();
    Frame {
        kind,
        head,
        body: body.into(),
    }
}

/// `limits` as lengths.
pub(super) fn most(limits: Limits) -> (usize, usize) {
    let head = usize::try_from(limits.head_bytes_max).expect("the suite runs with small limits");
    let body = usize::try_from(limits.body_bytes_max).expect("the suite runs with small limits");
    (head, body)
}
