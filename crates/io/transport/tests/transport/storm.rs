//! As many connections as a large farm has, all begun at once.

use crate::steady::heap_bytes;
use crate::{PATIENCE, arena};
use bytes::Bytes;
use rustix::process::{Resource, getrlimit, setrlimit};
use sheaf_transport::{ConnId, Event, Frame, Tcp, TcpConfig, Transport, WireKind};
use std::time::{Duration, Instant};

/// Endpoints of this process that connect to one another, and what a connection takes.
struct Storm {
    client: Tcp,
    server: Tcp,
    conns: Vec<ConnId>,
    events: Vec<Event>,
}

/// Memory in bytes: of this thread's on the heap, and of the kernel's for TCP on the whole machine, with all that
/// others do.
fn memory() -> (i64, i64) {
    let sockstat = std::fs::read_to_string("/proc/net/sockstat").unwrap();
    let tcp = sockstat.lines().find(|line| line.starts_with("TCP:"));
    let kernel_pages: i64 = tcp
        .and_then(|line| line.rsplit(' ').next())
        .unwrap()
        .parse()
        .unwrap();
    (heap_bytes(), kernel_pages * 4096)
}

fn allow_files(count: u64) {
    let mut limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    assert!(
        hard >= count,
        "the hard limit of open files is {hard}, this test needs {count}"
    );
    limit.current = Some(limit.current.unwrap_or(u64::MAX).max(count));
    setrlimit(Resource::Nofile, limit).unwrap();
}

impl Storm {
    /// `count` connections, all begun before the first is accepted. A lane would need no bytes of a connection.
    fn new(count: usize) -> Self {
        allow_files(2 * count as u64 + 500);
        let config = || TcpConfig {
            shared_memory: false,
            connect_ms: 30_000,
            first_frame_ms: 30_000,
            greeting_max: count,
            ..TcpConfig::default()
        };
        let mut server = Tcp::new(config(), arena(64 << 20)).unwrap();
        let mut client = Tcp::new(config(), arena(1 << 20)).unwrap();
        let (_, address) = server.listen_bulk("127.0.0.1:0").unwrap();
        let connect = |_| client.connect_bulk(&address).unwrap();
        let conns: Vec<ConnId> = (0..count).map(connect).collect();
        let mut storm = Self {
            client,
            server,
            conns,
            events: Vec::new(),
        };
        let count = count as u64;
        storm.until("all connections", |storm| {
            storm.server.stats().accepted == count && storm.client.stats().connected == count
        });
        assert_eq!(storm.server.stats().closed + storm.client.stats().closed, 0);
        storm
    }

    fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !holds(self) {
            assert!(start.elapsed() < PATIENCE, "{what}: not in {PATIENCE:?}");
            for endpoint in [&mut self.client, &mut self.server] {
                let wait = Some(Duration::from_millis(1));
                endpoint.poll(&mut self.events, wait).unwrap();
                for event in self.events.drain(..) {
                    assert!(!matches!(event, Event::Closed { .. }), "{event:?}");
                }
            }
        }
    }

    /// One frame on each connection.
    fn pass(&mut self, body: &Bytes) {
        let before = self.server.stats().frames_in;
        for conn in &self.conns {
            let frame = Frame {
                kind: WireKind::Stf,
                head: Bytes::from_static(&[1; 64]),
                body: body.clone(),
            };
            self.client.send(*conn, frame).unwrap();
        }
        let count = self.conns.len() as u64;
        self.until("a frame on each", |storm| {
            storm.server.stats().frames_in == before + count
        });
    }
}

/// Makes the storm, sends over all connections, and tells what one of them takes at both ends.
fn check(who: &str, count: usize, body_bytes: usize, bytes_max: i64) {
    let before = memory();
    let start = Instant::now();
    let mut storm = Storm::new(count);
    let stood = start.elapsed();
    let empty = memory();
    let body = Bytes::from(vec![5; body_bytes]);
    for _ in 0..3 {
        storm.pass(&body);
    }
    let after = memory();
    let each = |now: i64, then: i64| (now - then) / i64::try_from(count).unwrap();
    println!(
        "{who}: {count} connections stood after {stood:?}; each takes {} bytes of heap at both ends, {} after 3 \
         frames of {body_bytes}; the kernel {} and {}",
        each(empty.0, before.0),
        each(after.0, before.0),
        each(empty.1, before.1),
        each(after.1, before.1)
    );
    let found = each(after.0, before.0);
    assert!(
        found <= bytes_max,
        "{found} bytes a connection, {bytes_max} at most"
    );
}

#[test]
fn an_flp_reaches_1750_epns_at_once() {
    check("an FLP of 1,750 EPNs", 1750, 4096, 8 << 10);
}

#[test]
fn an_epn_takes_268_flps_at_once() {
    check("an EPN of 268 FLPs", 268, 200_000, 16 << 10);
}
