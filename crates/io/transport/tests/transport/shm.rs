//! Bodies that are lent to a peer on this machine, instead of copied.

use crate::{
    PATIENCE, arena, authority, await_accepted, await_event, encrypted, nobody_at, tls_of,
};
use bytes::Bytes;
use sheaf_auth::Identity;
use sheaf_protocol::{Limits, Prefix};
use sheaf_transport::contract::{Pair, check};
use sheaf_transport::{
    Arena, ArenaOptions, CloseReason, ConnId, ConnectError, Event, Frame, ListenError, ListenerId,
    Security, SendError, Stats, Tcp, TcpConfig, Transport, WhenFull, WireKind,
};
use std::cell::RefCell;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LIMITS: Limits = Limits {
    head_bytes_max: 1 << 20,
    body_bytes_max: 3 << 20,
};
const LANE_BYTES: u64 = 4 << 20;

fn shared_arena(bytes: usize) -> Arc<Arena> {
    let options = ArenaOptions {
        huge_pages: false,
        prefault: false,
        shared: true,
    };
    Arena::new(bytes, options).unwrap()
}

fn config() -> TcpConfig {
    TcpConfig {
        limits: LIMITS,
        lane_bytes_max: LANE_BYTES,
        ..TcpConfig::default()
    }
}

/// An endpoint that writes the bodies which it sends into memory that it lends out of, as long as there is room.
struct Lending {
    tcp: Tcp,
    memory: Arc<Arena>,
    /// The sums of all endpoints of a test, which are gone when the test looks.
    total: Rc<RefCell<Stats>>,
}

impl Lending {
    fn new(config: TcpConfig, security: Security, total: &Rc<RefCell<Stats>>) -> Self {
        let memory = shared_arena(24 << 20);
        let mut tcp = Tcp::with_security(config, arena(64 << 20), security).unwrap();
        tcp.lend(&memory, u64::MAX);
        let total = Rc::clone(total);
        Self { tcp, memory, total }
    }

    fn place(&self, body: &Bytes) -> Bytes {
        let Some(mut block) = self.memory.allocate(body.len()) else {
            return body.clone();
        };
        block.as_mut().copy_from_slice(body);
        block.freeze()
    }
}

impl Drop for Lending {
    fn drop(&mut self) {
        let (stats, mut total) = (self.tcp.stats(), self.total.borrow_mut());
        total.lanes += stats.lanes;
        total.lanes_failed += stats.lanes_failed;
        total.lent_frames_out += stats.lent_frames_out;
        total.lent_frames_in += stats.lent_frames_in;
        total.frames_in += stats.frames_in;
    }
}

impl Transport for Lending {
    fn listen(&mut self, address: &str) -> Result<(ListenerId, String), ListenError> {
        self.tcp.listen_bulk(address)
    }

    fn connect(&mut self, address: &str) -> Result<ConnId, ConnectError> {
        self.tcp.connect_bulk(address)
    }

    fn identity(&self, conn: ConnId) -> Option<&Identity> {
        self.tcp.identity(conn)
    }

    fn send(&mut self, conn: ConnId, frame: Frame) -> Result<(), SendError> {
        let body = self.place(&frame.body);
        match self.tcp.send(
            conn,
            Frame {
                body,
                ..frame.clone()
            },
        ) {
            Err(SendError::Full(_)) => Err(SendError::Full(frame)),
            sent => sent,
        }
    }

    fn set_when_full(&mut self, conn: ConnId, when_full: WhenFull) {
        self.tcp.set_when_full(conn, when_full);
    }

    fn close(&mut self, conn: ConnId) {
        self.tcp.close(conn);
    }

    fn finish(&mut self, conn: ConnId) {
        self.tcp.finish(conn);
    }

    fn queued_bytes(&self, conn: ConnId) -> u64 {
        self.tcp.queued_bytes(conn)
    }

    fn poll(&mut self, events: &mut Vec<Event>, timeout: Option<Duration>) -> io::Result<()> {
        self.tcp.poll(events, timeout)
    }
}

fn check_contract(security: impl FnMut() -> (Security, Security)) -> Stats {
    check_contract_at("127.0.0.1:0", || nobody_at("127.0.0.1"), security)
}

fn check_contract_at(
    address: &str,
    absent: impl Fn() -> String,
    mut security: impl FnMut() -> (Security, Security),
) -> Stats {
    let total = Rc::default();
    check(|| {
        let (client, server) = security();
        Pair {
            client: Lending::new(config(), client, &total),
            server: Lending::new(config(), server, &total),
            address: address.to_owned(),
            absent: absent(),
            limits: LIMITS,
            held_bytes_max: ((8 + 8 + 2 * 4 + 2 * 4 + 1) << 20) + LANE_BYTES,
        }
    });
    let stats = *total.borrow();
    assert!(stats.lanes > 0, "{stats:?}");
    assert!(stats.lent_frames_in > 0, "{stats:?}");
    stats
}

#[test]
fn lanes_keep_the_contract() {
    let stats = check_contract(|| (Security::default(), Security::default()));
    println!(
        "{} of {} frames were lent",
        stats.lent_frames_in, stats.frames_in
    );
}

#[test]
fn lanes_beside_unix_sockets_keep_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| format!("unix:{}/{name}", folder.path().display());
    check_contract_at(
        &at("server"),
        || at("absent"),
        || (Security::default(), Security::default()),
    );
}

#[test]
fn lanes_beside_encrypted_streams_keep_the_contract() {
    let authority = authority();
    let (flp, epn) = (tls_of(&authority, "flp:0"), tls_of(&authority, "epn:0"));
    check_contract(|| (encrypted(flp.clone()), encrypted(epn.clone())));
}

/// Two endpoints with a lane between them.
struct Two {
    client: Tcp,
    server: Tcp,
    memory: Arc<Arena>,
    to_server: ConnId,
    to_client: ConnId,
}

impl Two {
    fn new() -> Self {
        let mut two = Self::connected(config());
        two.await_lane();
        two
    }

    /// Returns two endpoints with a connection, to a server of this configuration.
    fn connected(of_server: TcpConfig) -> Self {
        let memory = shared_arena(24 << 20);
        let mut client = Tcp::new(config(), arena(4 << 20)).unwrap();
        client.lend(&memory, u64::MAX);
        let mut server = Tcp::new(of_server, arena(4 << 20)).unwrap();
        let (_, address) = server.listen_bulk("127.0.0.1:0").unwrap();
        let to_server = client.connect_bulk(&address).unwrap();
        let to_client = await_accepted(&mut server);
        Self {
            client,
            server,
            memory,
            to_server,
            to_client,
        }
    }

    fn await_lane(&mut self) {
        self.until("a lane at both ends", |two| {
            two.client.stats().lanes == 1 && two.server.stats().lanes == 1
        });
    }

    /// Polls both until `holds`; what the server received comes back.
    fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) -> Vec<Event> {
        let (start, mut events, mut all) = (Instant::now(), Vec::new(), Vec::new());
        while !holds(self) {
            assert!(start.elapsed() < PATIENCE, "{what} has not come");
            self.client
                .poll(&mut events, Some(Duration::from_millis(1)))
                .unwrap();
            self.server
                .poll(&mut events, Some(Duration::from_millis(1)))
                .unwrap();
            all.append(&mut events);
        }
        all
    }

    fn frame(&self, fill: u8, bytes: usize) -> Frame {
        let mut block = self.memory.allocate(bytes).expect("there is room");
        block.as_mut().fill(fill);
        Frame {
            kind: WireKind::Stf,
            head: Bytes::from_static(b"head"),
            body: block.freeze(),
        }
    }

    fn receive(&mut self, frames: u64) -> Vec<Frame> {
        let events = self.until("the frames", |two| two.server.stats().frames_in == frames);
        let frames = events.into_iter().filter_map(|event| match event {
            Event::Received { frame, .. } => Some(frame),
            _ => None,
        });
        frames.collect()
    }
}

#[test]
fn a_peer_is_offered_a_lane_when_it_is_admitted() {
    let awaits_admission = true;
    let mut two = Two::connected(TcpConfig {
        awaits_admission,
        ..config()
    });
    let hello = Frame::without_body(WireKind::DataHello, Bytes::from_static(b"hello"));
    two.client.send(two.to_server, hello).unwrap();
    two.receive(1);
    let offered = two.server.stats().frames_out;
    assert_eq!(offered, 0, "nothing is offered to a stranger");
    two.server.admit(two.to_client, u32::MAX);
    two.await_lane();
    let frame = two.frame(7, 1_000_000);
    two.client.send(two.to_server, frame).unwrap();
    let received = two.receive(2);
    assert_eq!(received[0].body, vec![7; 1_000_000]);
    assert_eq!(two.server.stats().lent_frames_in, 1);
}

#[test]
fn a_lent_body_is_not_moved_and_comes_back_when_it_is_dropped() {
    let mut two = Two::new();
    let frame = two.frame(7, 1_000_000);
    two.client.send(two.to_server, frame).unwrap();
    let received = two.receive(1);
    assert_eq!(received[0].body, vec![7; 1_000_000]);
    assert!(
        two.server.stats().bytes_in < 1000,
        "it did not come by the stream"
    );
    assert_eq!(two.client.stats().lent_frames_out, 1);
    assert_eq!(two.memory.used_bytes(), 16 << 16);
    let body = received.into_iter().next().unwrap().body;
    let part = body.slice(3..5);
    drop(body);
    two.client
        .poll(&mut Vec::new(), Some(Duration::ZERO))
        .unwrap();
    assert_eq!(
        two.memory.used_bytes(),
        16 << 16,
        "a part of it is still looked at"
    );
    // On any thread.
    let read = std::thread::spawn(move || part.to_vec()).join().unwrap();
    assert_eq!(read, [7, 7]);
    two.until("the memory", |two| two.memory.used_bytes() == 0);
}

#[test]
fn a_body_stays_lent_when_its_stream_is_over() {
    let mut two = Two::new();
    let frame = two.frame(9, 200_000);
    two.client.send(two.to_server, frame).unwrap();
    let received = two.receive(1);
    two.client.close(two.to_server);
    two.until("the end", |two| two.server.stats().closed == 1);
    assert_eq!(two.client.parting_lanes(), 1);
    assert_eq!(two.memory.used_bytes(), 4 << 16, "a reader has it");
    assert_eq!(received[0].body, vec![9; 200_000]);
    drop(received);
    two.until("the memory", |two| two.client.parting_lanes() == 0);
    assert_eq!(two.memory.used_bytes(), 0);
}

/// Role of a child of these tests; without it the test has nothing to do.
const CHILD: &str = "SHEAF_TEST_LANE_CHILD";

/// A process that plays one end, until it is killed.
fn child(part: &str, address: &str) -> Child {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(program);
    command.args(["--exact", "shm::a_child_that_is_killed", "--nocapture"]);
    command.env(CHILD, format!("{part} {address}"));
    command.stdout(Stdio::piped()).spawn().unwrap()
}

/// The rest of the line of `child` that begins with `word`.
fn heard_of(child: &mut Child, word: &str) -> String {
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    let mut rests = lines.filter_map(|line| Some(line.unwrap().strip_prefix(word)?.to_owned()));
    rests.next().expect("the child says it")
}

#[test]
fn a_child_that_is_killed() {
    let Ok(part) = std::env::var(CHILD) else {
        return;
    };
    let (part, address) = part.split_once(' ').unwrap();
    let (mut events, mut held) = (Vec::new(), Vec::new());
    if part == "borrows" {
        let mut server = Tcp::new(config(), arena(4 << 20)).unwrap();
        let (_, address) = server.listen_bulk("127.0.0.1:0").unwrap();
        println!("\nlistens {address}");
        loop {
            server.poll(&mut events, None).unwrap();
            held.append(&mut events);
            if server.stats().frames_in == 3 {
                println!("\nholds {}", server.stats().lent_frames_in);
            }
        }
    }
    let memory = shared_arena(8 << 20);
    let mut client = Tcp::new(config(), arena(4 << 20)).unwrap();
    client.lend(&memory, u64::MAX);
    let conn = client.connect_bulk(address).unwrap();
    while client.stats().lanes == 0 {
        client.poll(&mut events, None).unwrap();
    }
    for fill in 1..=3 {
        let mut block = memory.allocate(300_000).unwrap();
        block.as_mut().fill(fill);
        let frame = Frame {
            kind: WireKind::Stf,
            head: Bytes::new(),
            body: block.freeze(),
        };
        client.send(conn, frame).unwrap();
    }
    loop {
        client.poll(&mut events, None).unwrap();
    }
}

#[test]
fn what_a_borrower_had_comes_back_when_it_is_killed() {
    let mut borrower = child("borrows", "-");
    let address = heard_of(&mut borrower, "listens ");
    let memory = shared_arena(8 << 20);
    let mut client = Tcp::new(config(), arena(4 << 20)).unwrap();
    client.lend(&memory, u64::MAX);
    let conn = client.connect_bulk(&address).unwrap();
    let (start, mut events) = (Instant::now(), Vec::new());
    while client.stats().lanes == 0 {
        assert!(start.elapsed() < PATIENCE, "no lane has come");
        client
            .poll(&mut events, Some(Duration::from_millis(1)))
            .unwrap();
    }
    for fill in 1..=3 {
        let mut block = memory.allocate(300_000).unwrap();
        block.as_mut().fill(fill);
        let frame = Frame {
            kind: WireKind::Stf,
            head: Bytes::new(),
            body: block.freeze(),
        };
        client.send(conn, frame).unwrap();
    }
    client.poll(&mut events, Some(Duration::ZERO)).unwrap();
    assert_eq!(heard_of(&mut borrower, "holds "), "3");
    client.poll(&mut events, Some(Duration::ZERO)).unwrap();
    assert_eq!(memory.used_bytes(), 15 << 16, "it is lent");
    borrower.kill().unwrap();
    borrower.wait().unwrap();
    await_event(&mut client, "the end", |event| {
        matches!(event, Event::Closed { .. }).then_some(())
    });
    let start = Instant::now();
    while client.parting_lanes() > 0 {
        assert!(
            start.elapsed() < PATIENCE,
            "the borrower is still waited for"
        );
        client
            .poll(&mut events, Some(Duration::from_millis(1)))
            .unwrap();
    }
    assert_eq!(memory.used_bytes(), 0);
}

#[test]
fn what_a_lender_had_lent_stays_when_it_is_killed() {
    let mut server = Tcp::new(config(), arena(4 << 20)).unwrap();
    let (_, address) = server.listen_bulk("127.0.0.1:0").unwrap();
    let mut lender = child("lends", &address);
    let (start, mut events, mut frames) = (Instant::now(), Vec::new(), Vec::new());
    while frames.len() < 3 {
        assert!(start.elapsed() < PATIENCE, "the frames have not come");
        server
            .poll(&mut events, Some(Duration::from_millis(1)))
            .unwrap();
        frames.extend(events.drain(..).filter_map(|event| match event {
            Event::Received { frame, .. } => Some(frame),
            _ => None,
        }));
    }
    assert_eq!(server.stats().lent_frames_in, 3);
    lender.kill().unwrap();
    lender.wait().unwrap();
    let reason = await_event(&mut server, "the end", |event| match event {
        Event::Closed { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    assert!(
        matches!(reason, CloseReason::ByPeer | CloseReason::Reset),
        "{reason:?}"
    );
    for (fill, frame) in (1_u8..).zip(&frames) {
        assert_eq!(frame.body, vec![fill; 300_000]);
    }
}

#[test]
fn what_was_sent_before_the_end_arrives_before_it() {
    let mut two = Two::new();
    for fill in 0..30 {
        let frame = two.frame(fill, 70_000);
        two.client.send(two.to_server, frame).unwrap();
        // Its head is too long for a lane: it takes the stream.
        let other = Frame {
            kind: WireKind::Stf,
            head: Bytes::from(vec![fill; 20_000]),
            body: Bytes::from(vec![fill; 1000]),
        };
        two.client.send(two.to_server, other).unwrap();
    }
    two.client.finish(two.to_server);
    let events = two.until("the end", |two| two.server.stats().closed == 1);
    let bodies: Vec<(u8, usize)> = events
        .iter()
        .filter_map(|event| match event {
            Event::Received { frame, .. } => Some((frame.body[0], frame.body.len())),
            _ => None,
        })
        .collect();
    let expected: Vec<(u8, usize)> = (0..30)
        .flat_map(|fill| [(fill, 70_000), (fill, 1000)])
        .collect();
    assert_eq!(bodies, expected);
    let conn = two.to_client;
    let closed = Event::Closed {
        conn,
        reason: CloseReason::ByPeer,
    };
    assert_eq!(events.iter().filter(|event| **event == closed).count(), 1);
    assert_eq!(two.client.stats().lent_frames_out, 30);
}

#[test]
fn a_receiver_that_sleeps_is_woken() {
    let mut two = Two::new();
    let waker = two.server.waker();
    let (mut server, to_server) = (two.server, two.to_server);
    let reader = std::thread::spawn(move || {
        let (mut events, mut frames) = (Vec::new(), 0);
        while frames < 1000 {
            // Without end: a wake that is lost is a test that hangs.
            server.poll(&mut events, None).unwrap();
            let received = |event: &&Event| matches!(event, Event::Received { .. });
            frames += events.iter().filter(received).count();
        }
    });
    let mut block = two.memory.allocate(1000).unwrap();
    block.as_mut().fill(1);
    let body = block.freeze();
    let mut events = Vec::new();
    for _ in 0..1000 {
        let frame = Frame {
            kind: WireKind::Stf,
            head: Bytes::from_static(b"head"),
            body: body.clone(),
        };
        two.client.send(to_server, frame).unwrap();
        two.client.poll(&mut events, Some(Duration::ZERO)).unwrap();
    }
    let start = Instant::now();
    while !reader.is_finished() {
        assert!(start.elapsed() < PATIENCE, "a wake was lost");
        two.client
            .poll(&mut events, Some(Duration::from_millis(1)))
            .unwrap();
    }
    reader.join().unwrap();
    drop(waker);
}

#[test]
fn an_endpoint_that_shares_nothing_is_served_by_the_stream() {
    for shares in [[true, false], [false, true]] {
        let endpoint = |shared_memory| {
            let config = TcpConfig {
                shared_memory,
                ..config()
            };
            Tcp::new(config, arena(4 << 20)).unwrap()
        };
        let (mut client, mut server) = (endpoint(shares[0]), endpoint(shares[1]));
        let memory = shared_arena(4 << 20);
        client.lend(&memory, u64::MAX);
        let (_, address) = server.listen_bulk("127.0.0.1:0").unwrap();
        let conn = client.connect_bulk(&address).unwrap();
        let mut block = memory.allocate(10).unwrap();
        block.as_mut().fill(5);
        let frame = Frame {
            kind: WireKind::Stf,
            head: Bytes::new(),
            body: block.freeze(),
        };
        client.send(conn, frame.clone()).unwrap();
        let mut events = Vec::new();
        let start = Instant::now();
        while server.stats().frames_in == 0 {
            assert!(start.elapsed() < PATIENCE, "the frame has not come");
            client
                .poll(&mut events, Some(Duration::from_millis(1)))
                .unwrap();
            server
                .poll(&mut events, Some(Duration::from_millis(1)))
                .unwrap();
        }
        assert_eq!((client.stats().lanes, server.stats().lanes), (0, 0));
    }
}

#[test]
fn words_on_lanes_where_there_can_be_none_end_the_stream() {
    let mut server = Tcp::new(config(), arena(4 << 20)).unwrap();
    let (_, bulk) = server.listen_bulk("127.0.0.1:0").unwrap();
    for (word, says) in [
        (vec![2], "the opening of a lane that there is not"),
        (
            vec![1; 30],
            "neither an offer nor an opening that this side may say",
        ),
        (
            vec![],
            "neither an offer nor an opening that this side may say",
        ),
        (
            vec![9],
            "neither an offer nor an opening that this side may say",
        ),
    ] {
        let mut peer = TcpStream::connect(&bulk).unwrap();
        let prefix = Prefix::new(WireKind::Lane, &word, 0);
        peer.write_all(&prefix.encode()).unwrap();
        peer.write_all(&word).unwrap();
        let reason = await_event(&mut server, "the end", |event| match event {
            Event::Closed { reason, .. } => Some(reason.to_string()),
            _ => None,
        });
        assert_eq!(
            reason,
            format!("shared memory: unexpected message about shared memory: {says}")
        );
        let mut rest = Vec::new();
        let _ = peer.read_to_end(&mut rest);
    }
    assert_eq!(server.stats().refused.shm, 4);
}
