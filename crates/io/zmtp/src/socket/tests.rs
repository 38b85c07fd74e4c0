//! Sockets that talk to sockets of ours, and to peers that misbehave. Real ones: `tests/peers.rs`.

use super::*;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

const PATIENCE: Duration = Duration::from_secs(30);

fn any() -> Endpoint {
    "tcp://127.0.0.1:*".parse().unwrap()
}

fn config() -> SocketConfig {
    SocketConfig {
        reconnect_pause: (Duration::from_millis(5), Duration::from_millis(20)),
        ..SocketConfig::default()
    }
}

fn socket(socket_type: SocketType) -> Socket {
    Socket::new(socket_type, config()).unwrap()
}

/// Drives all of `sockets` until `done` gives something.
fn until<T>(
    sockets: &mut [&mut Socket],
    mut done: impl FnMut(&mut [&mut Socket]) -> Option<T>,
) -> T {
    let start = Instant::now();
    loop {
        for socket in sockets.iter_mut() {
            socket.drive().unwrap();
        }
        if let Some(found) = done(sockets) {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "it does not happen");
        sockets[0].wait(Duration::from_millis(1)).unwrap();
    }
}

/// A pair that stands: the first sends, the second receives, either is bound.
fn pair(first: SocketType, second: SocketType, first_binds: bool) -> (Socket, Socket) {
    let (mut sender, mut receiver) = (socket(first), socket(second));
    if second == SocketType::Sub {
        receiver.subscribe(b"").unwrap();
    }
    if first_binds {
        let at = sender.bind(&any()).unwrap();
        receiver.connect(&at).unwrap();
    } else {
        let at = receiver.bind(&any()).unwrap();
        sender.connect(&at).unwrap();
    }
    until(&mut [&mut sender, &mut receiver], |all| {
        let stands = all.iter().all(|socket| socket.peers() == 1);
        (stands && (first == SocketType::Push || all[0].subscribers() == 1)).then_some(())
    });
    (sender, receiver)
}

/// Whether the two at the front are each other's only peer.
fn stand(all: &mut [&mut Socket]) -> Option<()> {
    all.iter().all(|socket| socket.peers() == 1).then_some(())
}

fn numbered(number: u32, bytes: usize) -> Message {
    let head = Bytes::copy_from_slice(&number.to_le_bytes());
    Message::new(vec![head, vec![number as u8; bytes].into()])
}

fn number(message: &Message) -> u32 {
    u32::from_le_bytes(message.parts()[0][..].try_into().unwrap())
}

/// A raw TCP peer of a socket that has bound.
fn raw(socket: &mut Socket) -> TcpStream {
    let at = socket.bind(&any()).unwrap();
    let stream = TcpStream::connect(at.host_port().unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Why the next peer of `socket` goes.
fn gone(socket: &mut Socket) -> PeerError {
    until(&mut [socket], |all| {
        // Who receives sees the end of a stream behind the messages before it.
        while all[0].try_recv().is_some() {}
        loop {
            if let Event::Gone { reason, .. } = all[0].try_event()? {
                return Some(reason);
            }
        }
    })
}

/// Returns the greeting of a peer of type `name`.
fn hello(name: &str) -> Vec<u8> {
    let ready = crate::command::Command::Ready {
        socket_type: name.to_owned(),
        identity: Bytes::new(),
    };
    [
        &crate::greeting::Greeting::OURS.encode()[..],
        &ready.encode(),
    ]
    .concat()
}

#[test]
fn messages_of_all_sizes_arrive_whole_and_in_order_whoever_binds() {
    let sizes = [0, 1, 100, 255, 256, 1024, 1025, 20_000, 300_000, 5_000_000];
    for (first, second) in [
        (SocketType::Push, SocketType::Pull),
        (SocketType::Pub, SocketType::Sub),
    ] {
        for first_binds in [true, false] {
            let (mut sender, mut receiver) = pair(first, second, first_binds);
            let mut waiting: VecDeque<Message> = (0..60)
                .map(|number| numbered(number, sizes[number as usize % sizes.len()]))
                .collect();
            let expected = waiting.clone();
            let mut received = VecDeque::new();
            until(&mut [&mut sender, &mut receiver], |all| {
                // A PUB drops for who is slow: it is given one at a time.
                if (first == SocketType::Push || all[0].queued_messages() == 0)
                    && let Some(message) = waiting.pop_front()
                    && let Err(SendError::Full(back)) = all[0].try_send(message)
                {
                    waiting.push_front(back);
                }
                received
                    .extend(std::iter::from_fn(|| all[1].try_recv()).map(|(_, message)| message));
                (received.len() == expected.len()).then_some(())
            });
            assert!(
                received == expected,
                "{first} to {second}, bound {first_binds}"
            );
            assert_eq!(
                (
                    sender.stats().sent_messages,
                    receiver.stats().received_messages
                ),
                (60, 60)
            );
        }
    }
}

#[test]
fn the_largest_message_arrives_and_a_larger_one_is_not_taken() {
    let limits = Limits {
        frame_bytes_max: 1000,
        message_bytes_max: 1500,
        parts_max: 3,
    };
    let (mut push, mut pull) = (
        Socket::new(SocketType::Push, SocketConfig { limits, ..config() }).unwrap(),
        Socket::new(SocketType::Pull, SocketConfig { limits, ..config() }).unwrap(),
    );
    let at = pull.bind(&any()).unwrap();
    push.connect(&at).unwrap();
    until(&mut [&mut push, &mut pull], stand);
    let message =
        |sizes: &[usize]| Message::new(sizes.iter().map(|bytes| vec![7; *bytes].into()).collect());
    for beyond in [&[1001][..], &[1000, 501], &[1, 1, 1, 1]] {
        assert!(matches!(
            push.try_send(message(beyond)),
            Err(SendError::TooLarge { .. })
        ));
    }
    let largest = message(&[1000, 499, 1]);
    assert_eq!(push.try_send(largest.clone()), Ok(1));
    let (_, received) = until(&mut [&mut push, &mut pull], |all| all[1].try_recv());
    assert_eq!(received, largest);
}

#[test]
fn a_receiver_that_takes_nothing_holds_the_sender_back_in_bounded_memory() {
    let (mut push, mut pull) = (
        Socket::new(
            SocketType::Push,
            SocketConfig {
                high_water: HighWater {
                    messages: 4,
                    bytes: 1 << 20,
                },
                socket_buffer_bytes: Some(1 << 16),
                ..config()
            },
        )
        .unwrap(),
        Socket::new(
            SocketType::Pull,
            SocketConfig {
                socket_buffer_bytes: Some(1 << 16),
                ..config()
            },
        )
        .unwrap(),
    );
    let at = pull.bind(&any()).unwrap();
    push.connect(&at).unwrap();
    until(&mut [&mut push, &mut pull], stand);
    let mut sent = 0;
    let mut full_since: Option<Instant> = None;
    // The queue drains into the kernel's buffers: only when it has been full for a while is everything full.
    while full_since.is_none_or(|since| since.elapsed() < Duration::from_millis(50)) {
        push.drive().unwrap();
        pull.drive().unwrap();
        match push.try_send(numbered(sent, 100_000)) {
            Ok(_) => {
                sent += 1;
                full_since = None;
                assert!(sent < 200, "nothing holds the sender back");
            }
            Err(SendError::Full(_)) => drop(full_since.get_or_insert_with(Instant::now)),
            Err(other) => panic!("{other}"),
        }
    }
    assert!(push.queued_messages() <= 4);
    assert!(pull.held_bytes() <= 200_000, "{}", pull.held_bytes());
    let mut next = 0;
    until(&mut [&mut push, &mut pull], |all| {
        while let Some((_, message)) = all[1].try_recv() {
            assert_eq!((number(&message), message.bytes()), (next, 100_004));
            next += 1;
        }
        (next == sent).then_some(())
    });
}

#[test]
fn a_push_goes_round_its_peers_and_passes_over_a_full_one() {
    let mut push = Socket::new(
        SocketType::Push,
        SocketConfig {
            high_water: HighWater {
                messages: 1,
                bytes: 1 << 20,
            },
            ..config()
        },
    )
    .unwrap();
    let at = push.bind(&any()).unwrap();
    let (mut first, mut second) = (socket(SocketType::Pull), socket(SocketType::Pull));
    first.connect(&at).unwrap();
    second.connect(&at).unwrap();
    until(&mut [&mut push, &mut first, &mut second], |all| {
        (all[0].peers() == 2).then_some(())
    });
    for sent in 0..10 {
        assert_eq!(push.try_send(numbered(sent, 10)), Ok(1));
    }
    let mut got = [Vec::new(), Vec::new()];
    until(&mut [&mut push, &mut first, &mut second], |all| {
        for (at, got) in got.iter_mut().enumerate() {
            got.extend(
                std::iter::from_fn(|| all[at + 1].try_recv()).map(|(_, message)| number(&message)),
            );
        }
        (got[0].len() + got[1].len() == 10).then_some(())
    });
    got.sort();
    assert_eq!(got, [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]);
}

#[test]
fn what_a_peer_did_not_take_before_it_went_goes_to_the_next() {
    let (mut push, pull) = pair(SocketType::Push, SocketType::Pull, true);
    let at = push.bind(&any()).unwrap();
    // Too much for the kernel: the peer goes with a piece of it.
    let large = Message::from(Bytes::from(vec![7; 40 << 20]));
    assert_eq!(push.try_send(large.clone()), Ok(1));
    assert_eq!(push.queued_messages(), 1);
    drop(pull);
    assert!(matches!(
        gone(&mut push),
        PeerError::Closed | PeerError::Io(_)
    ));
    assert_eq!(
        (push.queued_messages(), push.stats().returned_messages),
        (1, 1)
    );
    let mut next = socket(SocketType::Pull);
    next.connect(&at).unwrap();
    let (_, received) = until(&mut [&mut push, &mut next], |all| all[1].try_recv());
    assert!(received == large);
}

#[test]
fn a_peer_that_stops_reading_is_given_up_when_another_could_take_more() {
    let mut push = Socket::new(
        SocketType::Push,
        SocketConfig {
            stall: Duration::from_millis(50),
            ..config()
        },
    )
    .unwrap();
    let mut stuck = raw(&mut push);
    stuck.write_all(&hello("PULL")).unwrap();
    until(&mut [&mut push], |all| (all[0].peers() == 1).then_some(()));
    let large = Message::from(Bytes::from(vec![7; 40 << 20]));
    assert_eq!(push.try_send(large.clone()), Ok(1));
    let at = push.bind(&any()).unwrap();
    let mut pull = socket(SocketType::Pull);
    pull.connect(&at).unwrap();
    let (_, received) = until(&mut [&mut push, &mut pull], |all| all[1].try_recv());
    assert!(received == large);
    assert_eq!(push.stats().ended_as("stalled"), 1);
}

#[test]
fn an_end_between_messages_loses_none_of_them() {
    let (mut push, mut pull) = pair(SocketType::Push, SocketType::Pull, false);
    for sent in 0..50 {
        push.try_send(numbered(sent, 20_000)).unwrap();
    }
    let finished = std::thread::spawn(move || push.finish(PATIENCE).unwrap());
    let mut next = 0;
    until(&mut [&mut pull], |all| {
        while let Some((_, message)) = all[0].try_recv() {
            assert_eq!(number(&message), next);
            next += 1;
        }
        (next == 50).then_some(())
    });
    assert_eq!(gone(&mut pull), PeerError::Closed);
    assert_eq!(finished.join().unwrap(), 0);
}

#[test]
fn rubbish_ends_its_connection_and_no_other() {
    let mut pull = Socket::new(
        SocketType::Pull,
        SocketConfig {
            limits: Limits {
                frame_bytes_max: 1000,
                ..Limits::default()
            },
            handshake: Duration::from_millis(50),
            ..config()
        },
    )
    .unwrap();
    let at = pull.bind(&any()).unwrap();
    let mut push = socket(SocketType::Push);
    push.connect(&at).unwrap();
    until(&mut [&mut push, &mut pull], stand);
    while pull.try_event().is_some() {}
    let mut plain = crate::greeting::Greeting::OURS.encode();
    plain[12..17].copy_from_slice(b"PLAIN");
    let mut cut = hello("PUSH");
    cut.extend(b"\0\x05abc");
    let mut large = hello("PUSH");
    large.extend(b"\x02\0\0\0\x7f\0\0\0\0");
    let cases: [(&[u8], &str); 9] = [
        (b"GET / HTTP/1.1\r\n\r\n", "protocol"),
        (b"\x01\0", "version"),
        (b"\xff\0\0\0\0\0\0\0\x01\x7f\x01\x05", "version"),
        (&plain, "mechanism"),
        (&hello("SUB"), "socket-type"),
        (&[hello("PUSH"), vec![0x80]].concat(), "frame"),
        (&large, "too-large"),
        (&cut, "cut"),
        (b"", "slow"),
    ];
    for (number, (bytes, code)) in (0..).zip(cases) {
        let mut bad = raw(&mut pull);
        bad.write_all(bytes).unwrap();
        if code == "cut" {
            bad.shutdown(std::net::Shutdown::Write).unwrap();
        }
        let reason = gone(&mut pull);
        assert_eq!(reason.code(), code, "{reason}");
        assert_eq!(pull.stats().ended_as(code), if number == 2 { 2 } else { 1 });
        let mut rest = Vec::new();
        let _ = bad.read_to_end(&mut rest);
        push.try_send(numbered(number, 3)).unwrap();
        let (_, message) = until(&mut [&mut push, &mut pull], |all| all[1].try_recv());
        assert_eq!(self::number(&message), number);
    }
}

#[test]
fn too_many_peers_are_turned_away_and_those_before_stay() {
    let mut pull = Socket::new(
        SocketType::Pull,
        SocketConfig {
            peers_max: 1,
            ..config()
        },
    )
    .unwrap();
    let at = pull.bind(&any()).unwrap();
    let mut push = socket(SocketType::Push);
    push.connect(&at).unwrap();
    until(&mut [&mut push, &mut pull], stand);
    let mut second = TcpStream::connect(at.host_port().unwrap()).unwrap();
    assert_eq!(gone(&mut pull), PeerError::Crowded { max: 1 });
    assert!(matches!(second.read(&mut [0]), Ok(0) | Err(_)));
    push.try_send(numbered(1, 3)).unwrap();
    until(&mut [&mut push, &mut pull], |all| all[1].try_recv());
}

#[test]
fn a_connection_is_made_when_somebody_comes_to_be_there() {
    let mut push = socket(SocketType::Push);
    let mut before = socket(SocketType::Pull);
    let at = before.bind(&any()).unwrap();
    drop(before);
    push.connect(&at).unwrap();
    assert!(matches!(gone(&mut push), PeerError::Unreachable(_)));
    assert_eq!(
        push.try_send(numbered(0, 1)),
        Err(SendError::Full(numbered(0, 1)))
    );
    let mut pull = socket(SocketType::Pull);
    pull.bind(&at).unwrap();
    until(&mut [&mut push, &mut pull], stand);
}

#[test]
fn a_publisher_gives_each_what_it_wants_and_waits_for_nobody() {
    let mut publisher = Socket::new(
        SocketType::Pub,
        SocketConfig {
            high_water: HighWater {
                messages: 2,
                bytes: 1 << 20,
            },
            ..config()
        },
    )
    .unwrap();
    let at = publisher.bind(&any()).unwrap();
    let (mut all_of_it, mut some) = (socket(SocketType::Sub), socket(SocketType::Sub));
    all_of_it.subscribe(b"").unwrap();
    some.subscribe(b"b").unwrap();
    all_of_it.connect(&at).unwrap();
    some.connect(&at).unwrap();
    until(&mut [&mut publisher, &mut all_of_it, &mut some], |all| {
        (all[0].subscribers() == 2).then_some(())
    });
    assert_eq!(publisher.try_send(Message::from(&b"a1"[..])), Ok(1));
    assert_eq!(publisher.try_send(Message::from(&b"b1"[..])), Ok(2));
    some.unsubscribe(b"b");
    until(&mut [&mut publisher, &mut all_of_it, &mut some], |all| {
        (all[0].subscribers() == 1).then_some(())
    });
    assert_eq!(publisher.try_send(Message::from(&b"b2"[..])), Ok(1));
    let mut got = Vec::new();
    until(&mut [&mut publisher, &mut all_of_it], |all| {
        got.extend(std::iter::from_fn(|| all[1].try_recv()).map(|(_, message)| message.joined(0)));
        (got.len() == 3).then_some(())
    });
    assert_eq!(got, [&b"a1"[..], b"b1", b"b2"]);
    let large = Message::from(Bytes::from(vec![7; 20 << 20]));
    for _ in 0..5 {
        publisher.try_send(large.clone()).unwrap();
    }
    assert!(
        publisher.stats().dropped_messages >= 3,
        "a slow subscriber takes unbounded memory"
    );
}

#[test]
fn a_unix_socket_serves_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("zmq");
    let endpoint = Endpoint::Ipc(path.clone());
    let (mut push, mut pull) = (socket(SocketType::Push), socket(SocketType::Pull));
    assert_eq!(pull.bind(&endpoint).unwrap(), endpoint);
    assert!(socket(SocketType::Pull).bind(&endpoint).is_err());
    push.connect(&endpoint).unwrap();
    until(&mut [&mut push, &mut pull], stand);
    push.try_send(numbered(5, 100_000)).unwrap();
    let (_, message) = until(&mut [&mut push, &mut pull], |all| all[1].try_recv());
    assert_eq!(message, numbered(5, 100_000));
    drop(pull);
    assert!(!path.exists());
}

#[test]
fn a_crowd_of_peers_is_served_in_turns() {
    let mut pull = socket(SocketType::Pull);
    let at = pull.bind(&any()).unwrap();
    let mut crowd: Vec<Socket> = (0..64).map(|_| socket(SocketType::Push)).collect();
    crowd.iter_mut().for_each(|push| push.connect(&at).unwrap());
    let mut all: Vec<&mut Socket> = crowd.iter_mut().chain([&mut pull]).collect();
    until(&mut all, |all| {
        let stands = all[64].peers() == 64 && all[..64].iter().all(|push| push.peers() == 1);
        stands.then_some(())
    });
    for push in &mut all[..64] {
        for sent in 0..20 {
            push.try_send(numbered(sent, 1000)).unwrap();
        }
    }
    let mut next = BTreeMap::new();
    let mut count = 0;
    until(&mut all, |all| {
        while let Some((peer, message)) = all[64].try_recv() {
            let next = next.entry(peer).or_insert(0);
            assert_eq!(
                number(&message),
                *next,
                "messages of one peer keep their order"
            );
            *next += 1;
            count += 1;
        }
        (count == 64 * 20).then_some(())
    });
}

#[test]
fn a_socket_does_only_what_its_type_does() {
    let mut pull = socket(SocketType::Pull);
    assert_eq!(
        pull.try_send(numbered(0, 1)),
        Err(SendError::Direction(SocketType::Pull))
    );
    assert!(socket(SocketType::Push).try_recv().is_none());
    assert_eq!(socket(SocketType::Pub).try_send(numbered(0, 1)), Ok(0));
}

#[test]
fn a_subscriber_that_stops_reading_is_given_up() {
    let mut publisher = Socket::new(
        SocketType::Pub,
        SocketConfig {
            stall: Duration::from_millis(50),
            ..config()
        },
    )
    .unwrap();
    let mut stuck = raw(&mut publisher);
    stuck.write_all(&hello("SUB")).unwrap();
    stuck.write_all(b"\x04\x0a\x09SUBSCRIBE").unwrap();
    until(&mut [&mut publisher], |all| {
        (all[0].subscribers() == 1).then_some(())
    });
    let large = Message::from(Bytes::from(vec![7; 40 << 20]));
    assert_eq!(publisher.try_send(large), Ok(1));
    assert!(matches!(gone(&mut publisher), PeerError::Stalled { .. }));
    assert_eq!(publisher.queued_messages(), 0);
}

#[test]
fn who_sends_again_himself_gets_nothing_sent_for_him() {
    let mut push = Socket::new(
        SocketType::Push,
        SocketConfig {
            resends: false,
            ..config()
        },
    )
    .unwrap();
    let mut gone_soon = raw(&mut push);
    gone_soon.write_all(&hello("PULL")).unwrap();
    until(&mut [&mut push], |all| (all[0].peers() == 1).then_some(()));
    let large = Message::from(Bytes::from(vec![7; 40 << 20]));
    assert_eq!(push.try_send(large), Ok(1));
    drop(gone_soon);
    gone(&mut push);
    assert_eq!(
        (push.queued_messages(), push.stats().returned_messages),
        (0, 1)
    );
}

#[test]
fn nobody_has_to_keep_what_comes_to_a_sender() {
    for (ours, theirs) in [(SocketType::Push, "PULL"), (SocketType::Pub, "SUB")] {
        let mut socket = socket(ours);
        let mut peer = raw(&mut socket);
        peer.write_all(&hello(theirs)).unwrap();
        // A message of 1 MiB is announced to one that takes none.
        peer.write_all(b"\x02\0\0\0\0\0\x10\0\0").unwrap();
        assert!(matches!(
            gone(&mut socket),
            PeerError::FrameTooLarge {
                found: 0x10_0000,
                ..
            }
        ));
    }
}

#[test]
fn half_open_peers_keep_no_other_out() {
    let config = SocketConfig {
        peers_max: 1,
        handshakes_max: 3,
        ..config()
    };
    let mut pull = Socket::new(SocketType::Pull, config).unwrap();
    let at = pull.bind(&any()).unwrap();
    let connect = || TcpStream::connect(at.host_port().unwrap()).unwrap();
    let mut half_open: Vec<TcpStream> = (0..10).map(|_| connect()).collect();
    // One that is in the middle of its handshake is heard, and stays.
    half_open[7].write_all(&hello("PUSH")[..20]).unwrap();
    let displaced = |socket: &Socket| socket.stats().ended_as("displaced");
    until(&mut [&mut pull], |all| {
        (displaced(all[0]) == 7).then_some(())
    });
    let mut push = socket(SocketType::Push);
    push.connect(&at).unwrap();
    until(&mut [&mut push, &mut pull], stand);
    assert_eq!((displaced(&pull), pull.stats().ended_as("crowded")), (8, 0));
    assert_eq!(push.try_send(numbered(1, 10)), Ok(1));
    let (_, received) = until(&mut [&mut push, &mut pull], |all| all[1].try_recv());
    assert_eq!(received, numbered(1, 10));
    // One that ends its handshake when there is no place any more is closed with its name.
    half_open[7].write_all(&hello("PUSH")[20..]).unwrap();
    until(&mut [&mut pull], |all| {
        (all[0].stats().ended_as("crowded") == 1).then_some(())
    });
    assert_eq!(pull.peers(), 1);
}

#[test]
fn a_message_before_the_handshake_takes_no_memory() {
    let mut pull = socket(SocketType::Pull);
    let mut peer = raw(&mut pull);
    let greeting = crate::greeting::Greeting::OURS.encode();
    // A part of 60 MB is announced.
    let head = [&[2][..], &60_000_000_u64.to_be_bytes()].concat();
    peer.write_all(&[&greeting[..], &head].concat()).unwrap();
    let (found, max) = (60_000_000, 1 << 10);
    assert_eq!(gone(&mut pull), PeerError::FrameTooLarge { found, max });
}
