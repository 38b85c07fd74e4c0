//! One side of the benchmark: the transport of the farm and nothing else.
//!
//! It speaks the language of `tools/peers`. A message is a frame whose head is the stamp and whose body lies in the
//! pool. What came in is held until as much has come in again as half of the memory holds, as an EPN holds
//! timeframes; so bodies go to memory that has left the caches.

use anyhow::{Context as _, bail};
use bytes::{BufMut as _, Bytes, BytesMut};
use peer_harness::{Args, Layout, Role, Run, fill};
use sheaf_transport::{
    Arena, ArenaOptions, ConnId, Event, Frame, Security, SendError, Tcp, TcpConfig, Transport,
    WireKind,
};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::unix::process::parent_id;
use std::time::Duration;

/// Interval at which a waiting process looks for the order to stop.
const WAIT: Duration = Duration::from_millis(50);
/// Socket buffers of all connections together, but no connection has less than the second.
const BUFFER_BYTES: (usize, usize) = (4 << 20, 256 << 10);
/// Heads are cut out of blocks of so many bytes.
const HEADS_BYTES: usize = 64 << 10;

/// Ways of the bytes between the two sides.
#[derive(Debug)]
pub struct Ways {
    /// Whether bodies stay in the memory of the sender.
    pub shares_memory: bool,
    /// Whether Unix sockets stand for the addresses.
    pub is_unix: bool,
    /// Protection of the connections.
    pub security: Security,
}

/// Runs one side.
///
/// # Errors
///
/// What is wrong with the arguments, the connections, or a message that came.
pub fn run(args: &Args, ways: Ways) -> anyhow::Result<()> {
    let at = |address: &SocketAddr| {
        if ways.is_unix {
            socket_of(address)
        } else {
            address.to_string()
        }
    };
    args.check()?;
    let config = TcpConfig {
        shared_memory: ways.shares_memory,
        ..config(args)
    };
    let mut peer = Peer::new(args, config, ways.security)?;
    let (run, conns) = match args.bind {
        Some(address) => {
            peer.tcp.listen_bulk(&at(&address))?;
            let run = Run::ready(args)?;
            let conns = peer.await_conns(args.peers)?;
            (run, conns)
        }
        None => {
            let connect = |address: &_| peer.tcp.connect_bulk(&at(address));
            let conns: Result<Vec<ConnId>, _> = args.connect.iter().map(connect).collect();
            peer.await_conns(args.peers)?;
            (Run::ready(args)?, conns?)
        }
    };
    let congestion = (!ways.is_unix).then(|| peer.tcp.socket_options().congestion_control.clone());
    let run = match args.role {
        Role::Send => peer.send(args, run, &conns)?,
        Role::Receive => peer.receive(args, run)?,
    };
    run.finish(concat!("sheaf ", env!("CARGO_PKG_VERSION")), congestion)?;
    Ok(())
}

/// The socket that stands for an address. Both sides are children of one process, which has given out the addresses.
fn socket_of(address: &SocketAddr) -> String {
    let folder = std::env::temp_dir();
    let (folder, parent, port) = (folder.display(), parent_id(), address.port());
    format!("unix:{folder}/sheaf-bench-{parent}-{port}.sock")
}

fn config(args: &Args) -> TcpConfig {
    let buffer_bytes = (BUFFER_BYTES.0 / args.peers).max(BUFFER_BYTES.1);
    TcpConfig {
        queue_bytes_max: (args.queue as u64).saturating_mul(args.bytes as u64 + 64),
        // Hundreds of processes on two CPUs take their time to begin.
        first_frame_ms: 60_000,
        connect_ms: 30_000,
        unacknowledged_ms: 30_000,
        send_buffer_bytes: buffer_bytes,
        receive_buffer_bytes: buffer_bytes,
        congestion_control: args.congestion.clone(),
        // No peer looks at payloads. What it costs a farm is in `bench farm`.
        body_digests: false,
        ..TcpConfig::default()
    }
}

struct Peer {
    tcp: Tcp,
    events: Vec<Event>,
    pool: Bytes,
}

impl Peer {
    fn new(args: &Args, config: TcpConfig, security: Security) -> anyhow::Result<Self> {
        // A receiver keeps half of its memory, and needs room for what comes in meanwhile.
        let bytes = match args.role {
            Role::Send => args.pool_bytes,
            Role::Receive => args
                .memory_bytes
                .max((args.peers + 1) * 2 * args.bytes.max(1 << 20)),
        };
        let options = ArenaOptions {
            shared: config.shared_memory && args.role == Role::Send,
            ..ArenaOptions::default()
        };
        let arena = Arena::new(bytes, options)?;
        let mut pool = Bytes::new();
        if args.role == Role::Send {
            let mut block = arena
                .allocate(args.pool_bytes)
                .context("the pool does not fit the arena")?;
            fill(block.as_mut());
            pool = block.freeze();
        }
        let mut tcp = Tcp::with_security(config, arena.clone(), security)?;
        tcp.lend(&arena, u64::MAX);
        Ok(Self {
            tcp,
            events: Vec::new(),
            pool,
        })
    }

    /// Waits for `count` connections.
    fn await_conns(&mut self, count: usize) -> anyhow::Result<Vec<ConnId>> {
        let mut conns = Vec::new();
        while conns.len() < count {
            self.tcp.poll(&mut self.events, Some(WAIT))?;
            for event in self.events.drain(..) {
                match event {
                    Event::Accepted { conn, .. } | Event::Connected { conn } => conns.push(conn),
                    Event::Closed { reason, .. } => bail!("a connection ended: {reason}"),
                    _ => {}
                }
            }
        }
        Ok(conns)
    }

    /// Keeps every queue full, in turns of one frame.
    fn send(mut self, args: &Args, mut run: Run, conns: &[ConnId]) -> anyhow::Result<Run> {
        let layout = Layout::new(args.bytes, args.pool_bytes);
        let mut heads = BytesMut::new();
        let mut open: VecDeque<ConnId> = conns.iter().copied().collect();
        let mut refused: Option<Frame> = None;
        run.wait_go();
        while !run.is_stopping() {
            while let Some(conn) = open.pop_front() {
                let frame = refused.take().unwrap_or_else(|| {
                    let stamp = run.next_stamp();
                    let from = layout.offset(stamp.sequence);
                    let body = self.pool.slice(from..from + args.bytes);
                    run.sent();
                    frame(&mut heads, &stamp.encode(), body)
                });
                match self.tcp.send(conn, frame) {
                    Ok(()) => open.push_back(conn),
                    Err(SendError::Full(frame)) => refused = Some(frame),
                    Err(error) => bail!("cannot send: {error}"),
                }
            }
            self.tcp.poll(&mut self.events, Some(WAIT))?;
            for event in self.events.drain(..) {
                match event {
                    Event::Writable { conn } => open.push_back(conn),
                    Event::Closed { reason, .. } => bail!("a connection ended: {reason}"),
                    _ => {}
                }
            }
        }
        // One frame may be counted that no queue has taken yet.
        let mut left = conns.len();
        while let Some(frame) = refused.take() {
            let Some(&conn) = conns.first() else { break };
            match self.tcp.send(conn, frame) {
                Err(SendError::Full(frame)) => refused = Some(frame),
                sent => sent?,
            }
            self.tcp.poll(&mut self.events, Some(WAIT))?;
        }
        for conn in conns {
            self.tcp.finish(*conn);
        }
        while left > 0 {
            self.tcp.poll(&mut self.events, Some(WAIT))?;
            left -= self
                .events
                .iter()
                .filter(|event| matches!(event, Event::Closed { .. }))
                .count();
        }
        Ok(run)
    }

    fn receive(mut self, args: &Args, mut run: Run) -> anyhow::Result<Run> {
        let mut held: VecDeque<Bytes> = VecDeque::new();
        let mut left = args.peers;
        while left > 0 {
            self.tcp.poll(&mut self.events, Some(WAIT))?;
            for event in self.events.drain(..) {
                match event {
                    Event::Received { conn: _, frame, .. } => {
                        run.received(&frame.head, frame.body.len(), frame.body.last())?;
                        held.push_back(frame.body);
                        if held.len() > args.held_max() {
                            held.pop_front();
                        }
                    }
                    Event::Closed { conn, reason } => {
                        if reason != sheaf_transport::CloseReason::ByPeer {
                            bail!("connection {} ended: {reason}", conn.0);
                        }
                        left -= 1;
                    }
                    _ => {}
                }
            }
        }
        Ok(run)
    }
}

/// A frame whose head is cut out of a block that many heads share.
fn frame(heads: &mut BytesMut, stamp: &[u8], body: Bytes) -> Frame {
    if heads.capacity() < stamp.len() {
        heads.reserve(HEADS_BYTES);
    }
    heads.put_slice(stamp);
    Frame {
        kind: WireKind::Stf,
        head: heads.split().freeze(),
        body,
    }
}
