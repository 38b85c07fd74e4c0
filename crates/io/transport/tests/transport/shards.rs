//! Endpoints with several event loops: the contract, and what the loops have in common.

use crate::{PATIENCE, arena, authority, await_event, encrypted, nobody_at, stf, tls_of};
use rustix::thread::{CpuSet, sched_getaffinity};
use sheaf_auth::Identity;
use sheaf_protocol::Limits;
use sheaf_transport::contract::{Pair, check, check_admission};
use sheaf_transport::{
    Arena, ArenaOptions, CloseReason, ConnId, ConnectError, Event, Frame, ListenError, ListenerId,
    Loops, Security, SendError, Sharded, TcpConfig, Transport, WhenFull,
};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LIMITS: Limits = Limits {
    head_bytes_max: 1 << 20,
    body_bytes_max: 3 << 20,
};

fn config() -> TcpConfig {
    TcpConfig {
        limits: LIMITS,
        ..TcpConfig::default()
    }
}

fn endpoint(config: TcpConfig, security: &Security, loops: usize) -> Sharded {
    Sharded::new(config, &arena(256 << 20), security, loops).unwrap()
}

/// An endpoint of which all connections carry bulk data, so that its loops have them.
struct AllBulk(Sharded);

impl Transport for AllBulk {
    fn listen(&mut self, address: &str) -> Result<(ListenerId, String), ListenError> {
        self.0.listen_bulk(address)
    }

    fn connect(&mut self, address: &str) -> Result<ConnId, ConnectError> {
        self.0.connect_bulk(address)
    }

    fn identity(&self, conn: ConnId) -> Option<&Identity> {
        self.0.identity(conn)
    }

    fn admit(&mut self, conn: ConnId, head_bytes_max: u32) {
        self.0.admit(conn, head_bytes_max);
    }

    fn send(&mut self, conn: ConnId, frame: Frame) -> Result<(), SendError> {
        self.0.send(conn, frame)
    }

    fn set_when_full(&mut self, conn: ConnId, when_full: WhenFull) {
        self.0.set_when_full(conn, when_full);
    }

    fn close(&mut self, conn: ConnId) {
        self.0.close(conn);
    }

    fn finish(&mut self, conn: ConnId) {
        self.0.finish(conn);
    }

    fn queued_bytes(&self, conn: ConnId) -> u64 {
        self.0.queued_bytes(conn)
    }

    fn poll(&mut self, events: &mut Vec<Event>, timeout: Option<Duration>) -> io::Result<()> {
        self.0.poll(events, timeout)
    }
}

/// Returns a pair of which the client has `loops.0` loops of data and the server `loops.1`.
fn pair(
    make: impl Fn(&str, usize) -> Sharded,
    loops: (usize, usize),
    address: &str,
    absent: String,
) -> Pair<AllBulk> {
    Pair {
        client: AllBulk(make("flp:0", loops.0)),
        server: AllBulk(make("epn:0", loops.1)),
        address: address.to_owned(),
        absent,
        limits: LIMITS,
        // The queue, a send and a receive buffer of twice what was asked for, and news that are not taken: as much as
        // is allowed, and what one turn brings on top of it.
        held_bytes_max: (8 + 2 * 4 + 2 * 4 + 8 + 16) << 20,
    }
}

fn plain(_: &str, loops: usize) -> Sharded {
    endpoint(config(), &Security::Loopback, loops)
}

#[test]
fn loops_keep_the_contract() {
    for loops in [(1, 1), (3, 2), (0, 2), (2, 0)] {
        println!("loops of client and server: {loops:?}");
        check(|| pair(plain, loops, "127.0.0.1:0", nobody_at("127.0.0.1")));
    }
}

#[test]
fn loops_keep_the_contract_over_unix_sockets() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| format!("unix:{}/{name}", folder.path().display());
    check(|| pair(plain, (2, 2), &at("server"), at("absent")));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn loops_keep_the_contract_under_tls() {
    let authority = authority();
    let make = |node: &str, loops| endpoint(config(), &encrypted(tls_of(&authority, node)), loops);
    check(|| pair(make, (2, 2), "127.0.0.1:0", nobody_at("127.0.0.1")));
}

#[test]
fn loops_keep_the_contract_of_admissions() {
    let guarded = TcpConfig {
        awaits_admission: true,
        first_frame_ms: 2_000,
        ..config()
    };
    let plain = |_: &str, loops| endpoint(guarded.clone(), &Security::Loopback, loops);
    check_admission(|| pair(plain, (2, 2), "127.0.0.1:0", nobody_at("127.0.0.1")));
    let authority = authority();
    let sealed =
        |node: &str, loops| endpoint(guarded.clone(), &encrypted(tls_of(&authority, node)), loops);
    check_admission(|| pair(sealed, (2, 2), "127.0.0.1:0", nobody_at("127.0.0.1")));
}

/// Polls both endpoints until `done` says so.
fn until(one: &mut Sharded, other: &mut Sharded, mut done: impl FnMut(&[Event], &[Event]) -> bool) {
    let begun = Instant::now();
    let (mut at_one, mut at_other) = (Vec::new(), Vec::new());
    loop {
        assert!(begun.elapsed() < PATIENCE, "it has not happened");
        one.poll(&mut at_one, Some(Duration::from_millis(1)))
            .unwrap();
        other
            .poll(&mut at_other, Some(Duration::from_millis(1)))
            .unwrap();
        if done(&at_one, &at_other) {
            return;
        }
    }
}

fn count(events: &[Event], is_wanted: impl Fn(&Event) -> bool) -> usize {
    events.iter().filter(|event| is_wanted(event)).count()
}

#[test]
fn connections_are_dealt_to_the_loop_with_the_fewest() {
    let (mut client, mut server) = (plain("", 2), plain("", 3));
    let (_, address) = server.listen_bulk("127.0.0.1:0").unwrap();
    let (_, control) = server.listen("127.0.0.1:0").unwrap();
    let conns: Vec<ConnId> = (0..6)
        .map(|_| client.connect_bulk(&address).unwrap())
        .collect();
    client.connect(&control).unwrap();
    let (mut accepted, mut connected) = (0, 0);
    until(&mut client, &mut server, |at_client, at_server| {
        accepted += count(at_server, |event| matches!(event, Event::Accepted { .. }));
        connected += count(at_client, |event| matches!(event, Event::Connected { .. }));
        (accepted, connected) == (7, 7)
    });
    let by_loop = |endpoint: &Sharded| endpoint.connections_by_loop().collect::<Vec<_>>();
    assert_eq!(
        (by_loop(&client), by_loop(&server)),
        (vec![3, 3], vec![2, 2, 2])
    );
    for conn in &conns[..5] {
        client.close(*conn);
        client.close(*conn);
        assert_eq!(client.send(*conn, stf(1, 1)), Err(SendError::Closed));
    }
    let mut closed = (0, 0);
    until(&mut client, &mut server, |at_client, at_server| {
        let is_ours = |event: &Event| {
            let reason = CloseReason::ByUs;
            matches!(event, Event::Closed { reason: found, .. } if *found == reason)
        };
        closed.0 += count(at_client, is_ours);
        closed.1 += count(at_server, |event| matches!(event, Event::Closed { .. }));
        closed == (5, 5)
    });
    let left = |endpoint: &Sharded| endpoint.connections_by_loop().sum::<usize>();
    until(&mut client, &mut server, |_, _| true);
    assert_eq!((left(&client), left(&server)), (1, 1));
    let (of_client, of_server) = (client.stats(), server.stats());
    assert_eq!((of_client.connected, of_client.closed), (7, 5));
    assert_eq!((of_server.accepted, of_server.closed), (7, 5));
}

/// Returns the name of a thread of this process, and its CPUs as the kernel lists them.
fn name_and_cpus(thread: u32) -> [String; 2] {
    let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap();
    ["Name:", "Cpus_allowed_list:"].map(|key| {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        line.unwrap().trim().to_owned()
    })
}

#[test]
fn loops_stay_at_their_cpus_and_the_caller_where_it_was() {
    let before = sched_getaffinity(None).unwrap();
    let mut allowed = (0..CpuSet::MAX_CPU).filter(|cpu| before.is_set(*cpu));
    let cpu = allowed.next_back().unwrap();
    let loops = Loops {
        count: 2,
        cpus: vec![cpu],
    };
    let memory = arena(64 << 20);
    let endpoint = Sharded::new(config(), &memory, &Security::Loopback, loops).unwrap();
    let found: Vec<[String; 2]> = endpoint.thread_ids().map(name_and_cpus).collect();
    let expected = |name: &str| [name.to_owned(), cpu.to_string()];
    assert_eq!(found, [expected("sheaf-data-0"), expected("sheaf-data-1")]);
    assert_eq!(sched_getaffinity(None).unwrap(), before);
    for (cpu, expected) in [
        (CpuSet::MAX_CPU - 1, "Invalid argument (os error 22)"),
        (5000, "found CPU 5000, expected 0 to 1023"),
    ] {
        let (count, cpus) = (1, vec![cpu]);
        let loops = Loops { count, cpus };
        let refused = Sharded::new(config(), &memory, &Security::Loopback, loops);
        assert_eq!(refused.err().unwrap().to_string(), expected);
    }
    assert_eq!(sched_getaffinity(None).unwrap(), before);
}

#[test]
fn frames_of_many_connections_arrive_in_one_arena_and_leave_it() {
    let memory = arena(64 << 20);
    let mut server = Sharded::new(config(), &memory, &Security::Loopback, 2).unwrap();
    let mut client = plain("", 2);
    let (_, address) = server.listen_bulk("127.0.0.1:0").unwrap();
    let conns: Vec<ConnId> = (0..4)
        .map(|_| client.connect_bulk(&address).unwrap())
        .collect();
    let frames = 50;
    for number in 0..frames {
        for conn in &conns {
            client.send(*conn, stf(number, 20_000)).unwrap();
        }
    }
    let mut received = Vec::new();
    until(&mut client, &mut server, |_, at_server| {
        for event in at_server {
            if let Event::Received {
                conn,
                frame,
                body_digest,
                ..
            } = event
            {
                let digest = sheaf_protocol::crc32c(&frame.body);
                assert_eq!(*body_digest, Some(digest), "taken by the loop");
                received.push((*conn, frame.clone()));
            }
        }
        received.len() == usize::from(frames) * conns.len()
    });
    assert!(memory.used_bytes() > 0, "bodies lie in the arena");
    for conn in received.iter().map(|(conn, _)| *conn) {
        let of_conn = received.iter().filter(|(of, _)| *of == conn);
        for (number, (_, frame)) in (0..).zip(of_conn) {
            assert_eq!(*frame, stf(number, 20_000));
        }
    }
    for conn in conns {
        assert_eq!(client.queued_bytes(conn), 0);
    }
    drop(received);
    drop((client, server));
    assert_eq!(
        (memory.used_bytes(), Arc::strong_count(&memory)),
        (0, 1),
        "the loops have ended"
    );
}

#[test]
fn the_limits_on_peers_hold_over_all_loops() {
    let limited = TcpConfig {
        accepted_per_ip_max: 3,
        ..config()
    };
    let mut server = endpoint(limited, &Security::Loopback, 2);
    let mut client = plain("", 0);
    let (_, address) = server.listen_bulk("127.0.0.1:0").unwrap();
    let conns: Vec<ConnId> = (0..4)
        .map(|_| client.connect_bulk(&address).unwrap())
        .collect();
    let (mut accepted, mut ended) = (0, 0);
    until(&mut client, &mut server, |at_client, at_server| {
        accepted += count(at_server, |event| matches!(event, Event::Accepted { .. }));
        ended += count(at_client, |event| matches!(event, Event::Closed { .. }));
        (accepted, ended) == (3, 1)
    });
    assert_eq!(server.stats().refused.too_many, 1);
    let refusals = server.take_refusals();
    assert_eq!(refusals.len(), 1, "{refusals:?}");
    for conn in conns {
        client.close(conn);
    }
    let mut closed = 0;
    until(&mut client, &mut server, |_, at_server| {
        closed += count(at_server, |event| matches!(event, Event::Closed { .. }));
        closed == 3
    });
    client.connect_bulk(&address).unwrap();
    let mut accepted = 0;
    until(&mut client, &mut server, |_, at_server| {
        accepted += count(at_server, |event| matches!(event, Event::Accepted { .. }));
        accepted == 1
    });
}

#[test]
fn a_peer_without_a_certificate_is_turned_away_by_the_loop() {
    let authority = authority();
    let mut server = endpoint(config(), &encrypted(tls_of(&authority, "epn:0")), 2);
    let mut client = plain("", 1);
    let (_, address) = server.listen_bulk("127.0.0.1:0").unwrap();
    let conn = client.connect_bulk(&address).unwrap();
    client.send(conn, stf(1, 100)).unwrap();
    let mut refusals = Vec::new();
    let begun = Instant::now();
    let mut events = Vec::new();
    while refusals.is_empty() {
        assert!(begun.elapsed() < PATIENCE, "no refusal");
        client
            .poll(&mut events, Some(Duration::from_millis(1)))
            .unwrap();
        server
            .poll(&mut events, Some(Duration::from_millis(1)))
            .unwrap();
        assert!(events.is_empty(), "it was never reported: {events:?}");
        refusals = server.take_refusals();
    }
    assert_eq!(server.stats().refused.tls_plain, 1);
    assert_eq!(server.connections_by_loop().sum::<usize>(), 0);
}

#[test]
fn bodies_are_lent_by_every_loop_within_one_bound() {
    let options = ArenaOptions {
        huge_pages: false,
        prefault: false,
        shared: true,
    };
    let memory = Arena::new(16 << 20, options).unwrap();
    let mut client = Sharded::new(config(), &memory, &Security::Loopback, 2).unwrap();
    // As much as two of four bodies.
    client.lend(&memory, 2 << 20);
    let mut server = plain("", 2);
    let (_, address) = server.listen_bulk("127.0.0.1:0").unwrap();
    let conns: Vec<ConnId> = (0..2)
        .map(|_| client.connect_bulk(&address).unwrap())
        .collect();
    // Lanes come to stand after the connections, which no event tells.
    let begun = Instant::now();
    while client.stats().lanes + server.stats().lanes < 4 {
        assert!(begun.elapsed() < PATIENCE, "no lanes");
        until(&mut client, &mut server, |_, _| true);
    }
    let body = || {
        let mut block = memory.allocate(1 << 20).unwrap();
        block.as_mut().fill(7);
        block.freeze()
    };
    for conn in conns.iter().chain(&conns) {
        let frame = Frame {
            body: body(),
            ..stf(7, 0)
        };
        client.send(*conn, frame).unwrap();
    }
    let mut received = Vec::new();
    until(&mut client, &mut server, |_, at_server| {
        for event in at_server {
            if let Event::Received { frame, .. } = event {
                received.push(frame.clone());
            }
        }
        received.len() == 4
    });
    assert_eq!(client.stats().lent_frames_out, 2);
    assert_eq!(server.stats().lent_frames_in, 2);
}

#[test]
fn the_end_of_an_endpoint_ends_its_connections() {
    let mut server = plain("", 2);
    let (_, address) = server.listen_bulk("127.0.0.1:0").unwrap();
    let mut client = plain("", 2);
    let conn = client.connect_bulk(&address).unwrap();
    let accepted = loop {
        let mut events = Vec::new();
        client
            .poll(&mut events, Some(Duration::from_millis(1)))
            .unwrap();
        server
            .poll(&mut events, Some(Duration::from_millis(1)))
            .unwrap();
        if let Some(Event::Accepted { conn, .. }) = events.first() {
            break *conn;
        }
    };
    drop(server);
    let reason = await_event(&mut client, "the end", |event| match event {
        Event::Closed { conn: of, reason } if *of == conn => Some(reason.clone()),
        _ => None,
    });
    assert!(
        matches!(reason, CloseReason::ByPeer | CloseReason::Reset),
        "{reason} of {accepted:?}"
    );
    assert_eq!(client.connections_by_loop().sum::<usize>(), 0);
}
