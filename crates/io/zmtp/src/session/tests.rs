//! Two sessions that talk to each other, and one that receives what it should not.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn config(socket_type: SocketType) -> SessionConfig {
    SessionConfig {
        socket_type,
        identity: Bytes::from_static(b"me"),
        limits: Limits {
            frame_bytes_max: 1000,
            message_bytes_max: 1000,
            parts_max: 4,
        },
        handshake: 5 * SECOND,
        heartbeat: Some(Heartbeat {
            interval: SECOND,
            timeout: 2 * SECOND,
        }),
    }
}

fn session(socket_type: SocketType, now: Instant) -> Session {
    Session::new(config(socket_type), now)
}

/// Bytes that wait to be sent.
fn output(session: &mut Session, now: Instant) -> Vec<u8> {
    let mut bytes = Vec::new();
    session.write(&mut bytes, now).unwrap();
    bytes
}

/// A greeting of `minor`, and then frames.
fn stream(minor: u8, frames: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Greeting { major: 3, minor }.encode().to_vec();
    bytes.extend(frames.concat());
    bytes
}

fn ready_of(name: &str) -> Bytes {
    Command::Ready {
        socket_type: name.to_owned(),
        identity: Bytes::new(),
    }
    .encode()
}

/// A session whose handshake with a peer of `minor` and type `peer` is done, and what it has said till then is read.
fn stands(ours: SocketType, peer: &str, minor: u8, now: Instant) -> Session {
    let mut session = session(ours, now);
    session.push(&stream(minor, &[&ready_of(peer)]), now);
    let hello = PeerHello {
        socket_type: peer.to_owned(),
        identity: Bytes::new(),
        minor,
    };
    assert_eq!(session.poll_incoming(), Ok(Some(Incoming::Ready(hello))));
    let said = output(&mut session, now);
    assert_eq!(said[..64], Greeting::OURS.encode());
    session
}

/// Returns the result of `frames` of a peer of type `peer`.
fn hear(ours: SocketType, peer: &str, frames: &[&[u8]]) -> Result<Option<Incoming>, PeerError> {
    let now = Instant::now();
    let mut session = stands(ours, peer, 1, now);
    session.push(&frames.concat(), now);
    session.poll_incoming()
}

#[test]
fn two_sessions_shake_hands_and_talk() {
    let now = Instant::now();
    let (mut push, mut pull) = (
        session(SocketType::Push, now),
        session(SocketType::Pull, now),
    );
    push.send(Message::from(&b"first"[..]));
    let early = output(&mut push, now);
    assert!(
        !early.ends_with(b"first"),
        "messages wait for the handshake"
    );
    pull.push(&early, now);
    push.push(&output(&mut pull, now), now);
    let hello = |name: &str| {
        let (socket_type, identity) = (name.to_owned(), Bytes::from_static(b"me"));
        Ok(Some(Incoming::Ready(PeerHello {
            socket_type,
            identity,
            minor: 1,
        })))
    };
    assert_eq!(
        (push.poll_incoming(), pull.poll_incoming()),
        (hello("PULL"), hello("PUSH"))
    );
    pull.push(&output(&mut push, now), now);
    assert_eq!(
        pull.poll_incoming(),
        Ok(Some(Incoming::Message(Message::from(&b"first"[..]))))
    );
    assert_eq!(
        (
            pull.poll_incoming(),
            push.poll_incoming(),
            push.queued_messages()
        ),
        (Ok(None), Ok(None), 0)
    );
    assert_eq!(pull.end_of_stream(), PeerError::Closed);
}

#[test]
fn who_does_not_fit_is_told_so() {
    for (ours, peer) in [
        (SocketType::Push, "SUB"),
        (SocketType::Pull, "PUB"),
        (SocketType::Sub, "REQ"),
    ] {
        let now = Instant::now();
        let mut session = session(ours, now);
        session.push(&stream(1, &[&ready_of(peer)]), now);
        assert_eq!(
            session.poll_incoming(),
            Err(PeerError::SocketType {
                found: peer.to_owned(),
                ours
            })
        );
        let reason = format!("{ours} does not talk to {peer}");
        assert!(output(&mut session, now).ends_with(reason.as_bytes()));
    }
}

#[test]
fn nothing_comes_before_ready_and_ready_comes_once() {
    let early = |frames: &[&[u8]]| {
        let now = Instant::now();
        let mut session = session(SocketType::Pull, now);
        session.push(&stream(1, frames), now);
        session.poll_incoming().unwrap_err().to_string()
    };
    assert_eq!(
        early(&[b"\0\x01x"]),
        "the peer sends a message before its READY, expected READY"
    );
    let pong = Command::Pong {
        context: Bytes::new(),
    }
    .encode();
    assert_eq!(
        early(&[&pong]),
        "the peer sends another command before its READY, expected READY"
    );
    let error = Command::Error {
        reason: "full".to_owned(),
    }
    .encode();
    assert_eq!(early(&[&error]), "refused by the peer: full");
    let twice = hear(SocketType::Pull, "PUSH", &[&ready_of("PUSH")]).unwrap_err();
    assert_eq!(
        twice.to_string(),
        "the peer sends READY twice, expected messages"
    );
}

#[test]
fn subscriptions_are_commands_or_messages_as_the_peer_speaks() {
    let topic = Bytes::from_static(b"a");
    let message = |text: &'static [u8]| Message::from(text);
    for (minor, on, off) in [
        (0, b"\0\x02\x01a".to_vec(), b"\0\x02\0a".to_vec()),
        (
            1,
            b"\x04\x0b\x09SUBSCRIBEa".to_vec(),
            b"\x04\x08\x06CANCELa".to_vec(),
        ),
    ] {
        let now = Instant::now();
        let mut sub = stands(SocketType::Sub, "PUB", minor, now);
        sub.subscribe(&topic, true);
        assert_eq!(output(&mut sub, now), on);
        sub.subscribe(&topic, false);
        assert_eq!(output(&mut sub, now), off);
        let mut publisher = stands(SocketType::Pub, "SUB", minor, now);
        assert!(!publisher.wants(&message(b"a1")));
        publisher.push(&on, now);
        assert_eq!(publisher.poll_incoming(), Ok(None));
        assert!(publisher.wants(&message(b"a1")) && !publisher.wants(&message(b"b")));
        publisher.push(&off, now);
        assert_eq!(publisher.poll_incoming(), Ok(None));
        assert!(!publisher.wants(&message(b"a1")));
    }
}

#[test]
fn what_has_no_place_in_the_pattern_is_refused() {
    let subscribe = Command::Subscribe(Bytes::new()).encode();
    let error = hear(SocketType::Pull, "PUSH", &[&subscribe]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the peer sends a subscription, expected none: this is no PUB"
    );
    let error = hear(SocketType::Push, "PULL", &[b"\0\x01x"]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the peer sends a message to a PUSH, expected nothing"
    );
    let unknown = Command::Unknown {
        name: "NEW".to_owned(),
    }
    .encode();
    let message = Incoming::Message(Message::from(&b"x"[..]));
    assert_eq!(
        hear(SocketType::Pull, "PUSH", &[&unknown, b"\0\x01x"]),
        Ok(Some(message))
    );
}

#[test]
fn a_ping_is_answered_with_its_context() {
    let now = Instant::now();
    let mut pull = stands(SocketType::Pull, "PUSH", 0, now);
    pull.push(
        &Command::Ping {
            ttl_ds: 30,
            context: Bytes::from_static(b"ctx"),
        }
        .encode(),
        now,
    );
    assert_eq!(pull.poll_incoming(), Ok(None));
    assert_eq!(
        output(&mut pull, now),
        Command::Pong {
            context: Bytes::from_static(b"ctx")
        }
        .encode()
    );
    // The peer has said how long it bears silence of ours; as long we bear its own.
    assert_eq!(pull.deadline(), Some(now + 3 * SECOND));
    assert_eq!(pull.tick(now + 3 * SECOND, true), Ok(()));
    assert_eq!(
        pull.tick(now + 3 * SECOND, false),
        Err(PeerError::Silent { limit_ms: 3000 })
    );
}

#[test]
fn a_silent_peer_is_asked_and_then_given_up() {
    let now = Instant::now();
    let mut push = stands(SocketType::Push, "PULL", 1, now);
    assert_eq!(push.deadline(), Some(now + SECOND));
    push.tick(now + SECOND, false).unwrap();
    assert_eq!(output(&mut push, now), b"\x04\x07\x04PING\0\0");
    assert_eq!(push.deadline(), Some(now + 3 * SECOND));
    push.push(
        &Command::Pong {
            context: Bytes::new(),
        }
        .encode(),
        now + 2 * SECOND,
    );
    assert_eq!(push.poll_incoming(), Ok(None));
    push.tick(now + 3 * SECOND, false).unwrap();
    assert_eq!(
        push.tick(now + 5 * SECOND, false),
        Err(PeerError::Silent { limit_ms: 2000 })
    );
    // A peer of 3.0 knows no PING, and is not asked.
    let mut old = stands(SocketType::Push, "PULL", 0, now);
    assert_eq!(
        (old.deadline(), old.tick(now + 100 * SECOND, false)),
        (None, Ok(()))
    );
}

#[test]
fn a_handshake_has_an_end() {
    let now = Instant::now();
    let mut half_open = session(SocketType::Pull, now);
    assert_eq!(half_open.deadline(), Some(now + 5 * SECOND));
    half_open.tick(now + 4 * SECOND, false).unwrap();
    half_open.push(&Greeting::OURS.encode(), now + 4 * SECOND);
    assert_eq!(half_open.poll_incoming(), Ok(None));
    assert_eq!(
        half_open.end_of_stream(),
        PeerError::Cut {
            part: "the handshake"
        }
    );
    assert_eq!(
        half_open.tick(now + 5 * SECOND, false),
        Err(PeerError::Slow { limit_ms: 5000 })
    );
}

#[test]
fn the_end_of_a_stream_is_clean_between_messages_only() {
    let now = Instant::now();
    for (frames, expected) in [
        (&b""[..], PeerError::Closed),
        (b"\x01\x01x", PeerError::Cut { part: "a message" }),
        (b"\0", PeerError::Cut { part: "a message" }),
        (b"\0\x05abc", PeerError::Cut { part: "a message" }),
    ] {
        let mut pull = stands(SocketType::Pull, "PUSH", 1, now);
        pull.push(frames, now);
        assert_eq!(
            (pull.poll_incoming(), pull.end_of_stream()),
            (Ok(None), expected)
        );
    }
}
