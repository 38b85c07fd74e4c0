//! Unix sockets: what of them is unlike TCP. That they keep the contract is tested with it.

use crate::{PATIENCE, await_accepted, await_event, stf, tcp};
use sheaf_protocol::PrefixError;
use sheaf_transport::unix::UnixBindError;
use sheaf_transport::{
    CloseReason, ConnectError, Event, ListenError, Tcp, TcpConfig, Transport, WireKind,
};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A folder with sockets.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn at(&self, name: &str) -> String {
        format!("unix:{}", self.path(name).display())
    }
}

fn endpoint() -> Tcp {
    tcp(TcpConfig::default())
}

fn await_closed(endpoint: &mut Tcp) -> CloseReason {
    await_event(endpoint, "the end of a connection", |event| match event {
        Event::Closed { reason, .. } => Some(reason.clone()),
        _ => None,
    })
}

#[test]
fn the_address_is_told_as_it_was_written() {
    let folder = Folder::new();
    let (mut server, mut client) = (endpoint(), endpoint());
    let (_, address) = server.listen(&folder.at("s")).unwrap();
    assert_eq!(address, folder.at("s"));
    client.connect(&address).unwrap();
    let peer = await_event(&mut server, "a connection", |event| match event {
        Event::Accepted { peer, .. } => Some(peer.clone()),
        _ => None,
    });
    assert_eq!(peer, address);
}

#[test]
fn an_endpoint_takes_its_socket_with_it_and_replaces_that_of_the_dead() {
    let folder = Folder::new();
    drop(UnixListener::bind(folder.path("s")).unwrap());
    assert!(folder.path("s").exists());
    let mut server = endpoint();
    server.listen(&folder.at("s")).unwrap();
    let mut second = endpoint();
    let refused = second.listen(&folder.at("s")).unwrap_err();
    let expected = format!(
        "cannot listen at {}: another process listens there",
        folder.at("s")
    );
    assert_eq!(refused.to_string(), expected);
    let is_taken = |error| {
        matches!(
            error,
            ListenError::Unix {
                source: UnixBindError::Taken,
                ..
            }
        )
    };
    assert!(is_taken(refused));
    // The question did not arrive.
    let mut events = Vec::new();
    server.poll(&mut events, Some(Duration::ZERO)).unwrap();
    assert_eq!((events, server.stats().accepted), (Vec::new(), 0));
    drop(server);
    assert!(!folder.path("s").exists());
    second.listen(&folder.at("s")).unwrap();
}

#[test]
fn where_nobody_can_listen_is_said() {
    let folder = Folder::new();
    let mut server = endpoint();
    let mut check = |address: &str, expected: &str| {
        let refused = server.listen(address).unwrap_err().to_string();
        assert_eq!(
            refused,
            expected.replace("DIR", folder.0.path().to_str().unwrap())
        );
    };
    check(
        &folder.at("no/s"),
        "cannot listen at unix:DIR/no/s: there is no folder DIR/no",
    );
    std::fs::write(folder.path("file"), "").unwrap();
    check(
        &folder.at("file"),
        "cannot listen at unix:DIR/file: a file is there that is no socket",
    );
    let long = format!("unix:/{}", "s".repeat(107));
    check(
        &long,
        &format!(
            "cannot listen at \"{long}\": found a path of 108 bytes, more than the 107 of a Unix socket, expected \
             unix:PATH, an absolute path of at most 107 letters, digits and ./_-+@=~:"
        ),
    );
    let refused = endpoint().connect("unix:s").unwrap_err();
    assert!(matches!(refused, ConnectError::Path { .. }), "{refused}");
}

#[test]
fn peers_are_counted_as_those_of_this_machine() {
    let folder = Folder::new();
    let mut server = tcp(TcpConfig {
        accepted_per_ip_max: 2,
        ..TcpConfig::default()
    });
    server.listen(&folder.at("s")).unwrap();
    let (_, port) = server.listen("127.0.0.1:0").unwrap();
    let _first = UnixStream::connect(folder.path("s")).unwrap();
    await_accepted(&mut server);
    let _second = std::net::TcpStream::connect(port).unwrap();
    await_accepted(&mut server);
    let _third = UnixStream::connect(folder.path("s")).unwrap();
    let (start, mut events) = (Instant::now(), Vec::new());
    while server.stats().refused.too_many == 0 {
        assert!(start.elapsed() < PATIENCE, "no peer was turned away");
        server
            .poll(&mut events, Some(Duration::from_millis(1)))
            .unwrap();
    }
    assert_eq!(server.take_refusals()[0].peer, folder.at("s"));
}

#[test]
fn what_is_no_frame_is_refused() {
    let folder = Folder::new();
    let mut server = endpoint();
    server.listen(&folder.at("s")).unwrap();
    let mut peer = UnixStream::connect(folder.path("s")).unwrap();
    peer.write_all(&[b'x'; 100]).unwrap();
    let reason = await_closed(&mut server);
    let is_magic = matches!(reason, CloseReason::Refused(PrefixError::Magic { .. }));
    assert!(is_magic, "{reason}");
    assert_eq!(server.stats().refused.magic, 1);
}

#[test]
fn a_full_queue_of_connections_is_asked_again_without_a_busy_loop() {
    let folder = Folder::new();
    let listener = UnixListener::bind(folder.path("s")).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    // One may wait beside those that the listener has room for, which are none.
    let first = UnixStream::connect(folder.path("s")).unwrap();
    let mut client = tcp(TcpConfig {
        connect_retry_ms: 20,
        connect_ms: 60_000,
        ..TcpConfig::default()
    });
    let conn = client.connect(&folder.at("s")).unwrap();
    let (start, mut events) = (Instant::now(), Vec::new());
    while client.stats().connect_retries < 3 {
        client.poll(&mut events, Some(PATIENCE)).unwrap();
        assert_eq!(events, [], "no peer has answered");
        assert!(start.elapsed() < PATIENCE, "not begun once more");
    }
    // A wake or two for each attempt, and not as many as the machine gives.
    let polls = client.stats().polls;
    assert!(polls < 20, "{polls} polls for 3 attempts");
    // One that waits stays; a further one gets an error when no answer can come any more.
    let (_waiting, _) = listener.accept().unwrap();
    drop(first);
    await_event(&mut client, "the connection", |event| match event {
        Event::Connected { conn: found } => (*found == conn).then_some(()),
        other => panic!("{other:?}"),
    });
    client.connect(&folder.at("s")).unwrap();
    client.poll(&mut events, Some(Duration::ZERO)).unwrap();
    assert_eq!(events, [], "the queue is full again");
    drop(listener);
    // The first one stands in the queue of the listener, and goes with it, too.
    let gone = CloseReason::Unreachable(io::ErrorKind::ConnectionRefused);
    await_event(&mut client, "the end of the second", |event| match event {
        Event::Closed { reason, .. } => (*reason == gone).then_some(()),
        _ => None,
    });
}

#[test]
fn nobody_is_asked_again_when_the_listener_has_gone() {
    let folder = Folder::new();
    let mut client = endpoint();
    client.connect(&folder.at("s")).unwrap();
    let reason = await_closed(&mut client);
    assert_eq!(reason, CloseReason::Unreachable(io::ErrorKind::NotFound));
    drop(UnixListener::bind(folder.path("s")).unwrap());
    client.connect(&folder.at("s")).unwrap();
    let reason = await_closed(&mut client);
    let expected = CloseReason::Unreachable(io::ErrorKind::ConnectionRefused);
    assert_eq!(reason, expected);
}

/// Not a test by itself: the process that dies in the one below.
#[test]
fn a_child_that_listens() {
    let Ok(address) = std::env::var("SHEAF_UNIX_CHILD") else {
        return;
    };
    let mut server = endpoint();
    server.listen(&address).unwrap();
    println!("\nlistens");
    let received = await_event(&mut server, "a frame", |event| match event {
        Event::Received { frame, .. } => Some(frame.kind),
        _ => None,
    });
    assert_eq!(received, WireKind::Stf);
    println!("\nreceived");
    // Until it is killed.
    let _ = io::stdin().read(&mut [0]);
}

#[test]
fn a_process_that_is_killed_is_noticed_and_its_socket_replaced() {
    let folder = Folder::new();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "unix::a_child_that_listens", "--nocapture"])
        .env("SHEAF_UNIX_CHILD", folder.at("s"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut await_line = |word: &str| lines.find(|line| line.as_ref().unwrap() == word).unwrap();
    await_line("listens").unwrap();
    let mut client = endpoint();
    let conn = client.connect(&folder.at("s")).unwrap();
    client.send(conn, stf(1, 100)).unwrap();
    await_event(&mut client, "the connection", |event| {
        matches!(event, Event::Connected { .. }).then_some(())
    });
    client.poll(&mut Vec::new(), Some(Duration::ZERO)).unwrap();
    await_line("received").unwrap();
    child.kill().unwrap();
    let reason = await_closed(&mut client);
    let is_its_end = matches!(reason, CloseReason::ByPeer | CloseReason::Reset);
    assert!(is_its_end, "{reason}");
    child.wait().unwrap();
    assert!(folder.path("s").exists(), "the dead take nothing away");
    endpoint().listen(&folder.at("s")).unwrap();
}
