//! Against real ZeroMQ: pyzmq, and libzmq from C. Both directions of both patterns, either side bound.
//!
//! Needs the Debian packages python3-zmq and libzmq3-dev (`scripts/setup.sh test`). Without them a test says that it is
//! skipped; with `CI=true` it fails.

use sheaf_zmtp::{Endpoint, HighWater, Message, SendError, Socket, SocketConfig, SocketType};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
/// Empty, the edges of short frames and of what is copied, and larger than any buffer on the way.
const SIZES: [usize; 8] = [0, 1, 255, 256, 70_000, 1025, 3_000_000, 17];
const COUNT: u32 = 200;

/// One of the two ways to real ZeroMQ.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Pyzmq,
    Libzmq,
}

/// The command of a peer; `None` if there is none here.
fn peer_command(kind: Kind) -> Option<Command> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peer");
    match kind {
        Kind::Pyzmq => {
            // Debian's package belongs to Debian's Python, which need not be the first on the path.
            let python = "/usr/bin/python3";
            let has = Command::new(python)
                .args(["-c", "import zmq"])
                .stderr(Stdio::null())
                .status();
            if !has.is_ok_and(|status| status.success()) {
                return missing("python3-zmq");
            }
            let mut command = Command::new(python);
            command.arg(folder.join("peer.py"));
            Some(command)
        }
        Kind::Libzmq => {
            if !Path::new("/usr/include/zmq.h").exists() {
                return missing("libzmq3-dev");
            }
            // Tests run at once in threads and processes: each builds its own.
            let binary = Path::new(env!("CARGO_TARGET_TMPDIR"))
                .join(format!("zmq-peer-{}", std::process::id()));
            static BUILT: std::sync::Once = std::sync::Once::new();
            BUILT.call_once(|| {
                let mut cc = Command::new("cc");
                cc.args(["-O1", "-Wall", "-Werror", "-o"])
                    .arg(&binary)
                    .arg(folder.join("peer.c"))
                    .arg("-lzmq");
                assert!(cc.status().unwrap().success(), "peer.c does not compile");
            });
            Some(Command::new(binary))
        }
    }
}

fn missing(package: &str) -> Option<Command> {
    let is_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
    assert!(
        !is_ci,
        "the package {package} is missing; run scripts/setup.sh test"
    );
    println!("skipped: the package {package} is not installed");
    None
}

struct Peer {
    process: Child,
    output: BufReader<ChildStdout>,
    /// Where it is bound or connected.
    endpoint: Endpoint,
}

impl Peer {
    fn start(mut command: Command, pattern: &str, method: &str, endpoint: &str) -> Self {
        let sizes: Vec<String> = SIZES.iter().map(ToString::to_string).collect();
        let mut process = command
            .args([
                pattern,
                method,
                endpoint,
                &COUNT.to_string(),
                &sizes.join(","),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let endpoint = line.trim().parse().unwrap();
        Self {
            process,
            output,
            endpoint,
        }
    }

    /// What it says in the end.
    fn finish(mut self) -> String {
        drop(self.process.stdin.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        assert!(
            self.process.wait().unwrap().success(),
            "the peer has failed"
        );
        rest.trim().to_owned()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Of a test that has failed; after `finish` it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

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
    let command = peer_command(kind)?;
    let mut socket = socket(ours);
    if ours == SocketType::Sub {
        socket.subscribe(b"").unwrap();
    }
    let peer = if we_bind {
        let at = socket.bind(&"tcp://127.0.0.1:*".parse().unwrap()).unwrap();
        Peer::start(command, pattern, "connect", &at.to_string())
    } else {
        let peer = Peer::start(command, pattern, "bind", "tcp://127.0.0.1:*");
        socket.connect(&peer.endpoint).unwrap();
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
                // A PUB cannot know that it is heard: it is told to begin when its first message has come.
                if !std::mem::replace(&mut has_begun, true) {
                    peer.process
                        .stdin
                        .as_mut()
                        .unwrap()
                        .write_all(b"\n")
                        .unwrap();
                }
                continue;
            }
            assert!(found == message(next), "message {next} is another one");
            next += 1;
        }
        next == COUNT
    });
    peer.finish();
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
    assert_eq!(peer.finish(), format!("ok {COUNT}"));
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
