//! Against real ZeroMQ: pyzmq, and libzmq from C. Both directions of both patterns, either side bound.
//!
//! Needs the Debian packages python3-zmq and libzmq3-dev (`scripts/setup.sh test`). Without them a test says that it is
//! skipped; with `CI=true` it fails.

#[path = "peer/program.rs"]
mod program;

use program::{Kind, Peer, SIZES, program};
use sheaf_zmtp::{Endpoint, HighWater, Message, SendError, Socket, SocketConfig, SocketType};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const COUNT: u32 = 200;

fn message(number: u32) -> Message {
    let bytes = vec![(number % 256) as u8; SIZES[number as usize % SIZES.len()]];
    Message::new(vec![number.to_le_bytes().to_vec().into(), bytes.into()])
}

fn socket(socket_type: SocketType) -> Socket {
    // A PUB drops for who is slow: this one never has to.
    let high_water = match socket_type {
        SocketType::Pub => HighWater {
            messages: COUNT as usize,
            bytes: u64::MAX,
        },
        _ => HighWater {
            messages: 10,
            bytes: 8 << 20,
        },
    };
    Socket::new(
        socket_type,
        SocketConfig {
            high_water,
            ..SocketConfig::default()
        },
    )
    .unwrap()
}

fn until(socket: &mut Socket, mut done: impl FnMut(&mut Socket) -> bool) {
    let start = Instant::now();
    while !done(socket) {
        assert!(
            start.elapsed() < PATIENCE,
            "it does not happen; counted so far: {:?}",
            socket.stats()
        );
        socket.wait(Duration::from_millis(100)).unwrap();
    }
}

/// Our socket of type `ours` and a peer of `pattern` that knows where to find it, or the other way round.
fn meet(kind: Kind, ours: SocketType, pattern: &str, we_bind: bool) -> Option<(Socket, Peer)> {
    let command = program(kind, "tests/peer/peer")?;
    let sizes: Vec<String> = SIZES.iter().map(ToString::to_string).collect();
    let (count, sizes) = (COUNT.to_string(), sizes.join(","));
    let start = |method: &str, endpoint: &str| {
        Peer::start(command, &[pattern, method, endpoint, &count, &sizes])
    };
    let mut socket = socket(ours);
    if ours == SocketType::Sub {
        socket.subscribe(b"").unwrap();
    }
    let peer = if we_bind {
        let at = socket.bind(&"tcp://127.0.0.1:*".parse().unwrap()).unwrap();
        let mut peer = start("connect", &at.to_string());
        peer.line();
        peer
    } else {
        let mut peer = start("bind", "tcp://127.0.0.1:*");
        let at: Endpoint = peer.line().parse().unwrap();
        socket.connect(&at).unwrap();
        peer
    };
    Some((socket, peer))
}

fn check_receiving(kind: Kind, ours: SocketType, pattern: &str, we_bind: bool) {
    let Some((mut socket, mut peer)) = meet(kind, ours, pattern, we_bind) else {
        return;
    };
    let mut next = 0;
    let mut has_begun = false;
    until(&mut socket, |socket| {
        while let Some((_, found)) = socket.try_recv() {
            if found.bytes() == 0 {
                // A PUB cannot know that its messages arrive: it gets the order to begin when the first has come.
                if !std::mem::replace(&mut has_begun, true) {
                    peer.begin();
                }
                continue;
            }
            assert!(found == message(next), "message {next} is another one");
            next += 1;
        }
        next == COUNT
    });
    peer.end();
    until(&mut socket, |socket| {
        socket.try_recv().is_none() && socket.stats().ended_as("closed") == 1
    });
}

fn check_sending(kind: Kind, ours: SocketType, pattern: &str, we_bind: bool) {
    let Some((mut socket, peer)) = meet(kind, ours, pattern, we_bind) else {
        return;
    };
    until(&mut socket, |socket| match ours {
        SocketType::Pub => socket.subscribers() == 1,
        _ => socket.peers() == 1,
    });
    let mut next = 0;
    until(&mut socket, |socket| {
        while next < COUNT {
            match socket.try_send(message(next)) {
                Ok(peers) => assert_eq!(peers, 1),
                Err(SendError::Full(_)) => return false,
                Err(other) => panic!("{other}"),
            }
            next += 1;
        }
        socket.queued_messages() == 0
    });
    assert_eq!(peer.end(), format!("ok {COUNT}"));
    assert_eq!(socket.stats().dropped_messages, 0);
}

#[test]
fn pyzmq_pushes_to_our_pull() {
    check_receiving(Kind::Pyzmq, SocketType::Pull, "push", true);
    check_receiving(Kind::Pyzmq, SocketType::Pull, "push", false);
}

#[test]
fn libzmq_pushes_to_our_pull() {
    check_receiving(Kind::Libzmq, SocketType::Pull, "push", true);
    check_receiving(Kind::Libzmq, SocketType::Pull, "push", false);
}

#[test]
fn our_push_serves_a_pull_of_pyzmq() {
    check_sending(Kind::Pyzmq, SocketType::Push, "pull", true);
    check_sending(Kind::Pyzmq, SocketType::Push, "pull", false);
}

#[test]
fn our_push_serves_a_pull_of_libzmq() {
    check_sending(Kind::Libzmq, SocketType::Push, "pull", true);
    check_sending(Kind::Libzmq, SocketType::Push, "pull", false);
}

#[test]
fn pyzmq_publishes_to_our_sub() {
    check_receiving(Kind::Pyzmq, SocketType::Sub, "pub", true);
    check_receiving(Kind::Pyzmq, SocketType::Sub, "pub", false);
}

#[test]
fn libzmq_publishes_to_our_sub() {
    check_receiving(Kind::Libzmq, SocketType::Sub, "pub", true);
    check_receiving(Kind::Libzmq, SocketType::Sub, "pub", false);
}

#[test]
fn our_pub_serves_a_sub_of_pyzmq() {
    check_sending(Kind::Pyzmq, SocketType::Pub, "sub", true);
    check_sending(Kind::Pyzmq, SocketType::Pub, "sub", false);
}

#[test]
fn our_pub_serves_a_sub_of_libzmq() {
    check_sending(Kind::Libzmq, SocketType::Pub, "sub", true);
    check_sending(Kind::Libzmq, SocketType::Pub, "sub", false);
}
