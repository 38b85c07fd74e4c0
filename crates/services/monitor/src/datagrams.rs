//! Threads that receive datagrams.

use crate::kernel;
use crate::queue::Queue;
use crate::security::Guard;
use crate::shard::Shard;
use crate::stop::Stop;
use crate::wall;
use quinn_udp::{BATCH_SIZE, RecvMeta, UdpSockRef, UdpSocketState};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sheaf_intake::{Peer, Protocol};
use sheaf_samples::wire::line_protocol::Precision;
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tracing::{info, warn};

/// Largest datagram.
const DATAGRAM_MAX: usize = 65_536;
/// Batches taken of one socket before the next has its turn.
const TURN: usize = 16;
/// Longest sleep without a datagram: windows close and commits of others go on meanwhile.
const TICK: Duration = Duration::from_millis(10);
/// How often the kernel is asked what it dropped.
const DROPS_EVERY_MS: i64 = 1000;

/// Lines of Sheaf's own clients and of Telegraf have times in ns.
pub(crate) const LINES: Protocol = Protocol::Lines(Precision::Ns);

/// A socket of datagrams, and their format.
pub(crate) struct Door {
    way: Way,
    protocol: Protocol,
}

enum Way {
    /// UDP, received in batches.
    Udp(UdpSocket, UdpSocketState),
    /// Unix datagrams, one by one.
    Unix(UnixDatagram),
}

impl Door {
    /// Opens a UDP socket at `address`, one of several there may be.
    pub(crate) fn udp(
        address: SocketAddr,
        protocol: Protocol,
        buffer_bytes: u32,
    ) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
        socket.set_reuse_port(true)?;
        // What is granted is looked at below; a smaller buffer works.
        let _ = socket.set_recv_buffer_size(buffer_bytes as usize);
        socket.bind(&SockAddr::from(address))?;
        let granted = socket.recv_buffer_size()? / 2; // the kernel counts its own bookkeeping as well
        if granted < buffer_bytes as usize {
            warn!(
                %address,
                found = granted,
                wanted = buffer_bytes,
                "Receive buffer smaller than asked for: sysctl -w net.core.rmem_max={buffer_bytes}"
            );
        }
        let socket = UdpSocket::from(socket);
        info!(address = %socket.local_addr()?, buffer_bytes = granted, ?protocol, "Receiving over UDP");
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        let way = Way::Udp(socket, state);
        Ok(Self { way, protocol })
    }

    /// Opens a Unix socket at `path`; one that a process left behind is replaced.
    pub(crate) fn unix(path: &Path) -> io::Result<Self> {
        if UnixDatagram::unbound()?.connect(path).is_err() {
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let socket = UnixDatagram::bind(path)?;
        socket.set_nonblocking(true)?;
        info!(path = %path.display(), "Receiving line protocol over a Unix socket");
        Ok(Self {
            way: Way::Unix(socket),
            protocol: LINES,
        })
    }

    /// Address of a UDP socket.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match &self.way {
            Way::Udp(socket, _) => socket.local_addr().ok(),
            Way::Unix(_) => None,
        }
    }
}

/// One receiving thread.
pub(crate) struct Receiver {
    doors: Vec<Door>,
    shard: Shard,
    queue: Arc<Queue>,
    guard: Arc<Guard>,
    stop: Stop,
    buffers: Vec<Vec<u8>>,
    metas: Vec<RecvMeta>,
    dropped: u64,
    dropped_asked_ms: i64,
}

impl Receiver {
    pub(crate) fn new(
        doors: Vec<Door>,
        shard: Shard,
        queue: Arc<Queue>,
        guard: Arc<Guard>,
        stop: Stop,
    ) -> Self {
        Self {
            doors,
            shard,
            queue,
            guard,
            stop,
            buffers: vec![vec![0; DATAGRAM_MAX]; BATCH_SIZE],
            metas: vec![RecvMeta::default(); BATCH_SIZE],
            dropped: 0,
            dropped_asked_ms: 0,
        }
    }

    /// Receives until the collector stops; what waits in the kernel then is taken first.
    pub(crate) fn run(mut self) {
        while !self.stop.is_set() {
            self.sleep();
            // Without room nothing is read: datagrams wait in the kernel, which counts what it drops.
            if self.queue.wait_for_room(TICK) {
                self.take_turns();
            }
            let now_ms = wall::now_ms();
            self.shard.tick(now_ms);
            self.ask_drops(now_ms);
        }
        self.take_turns();
        self.shard.tick(wall::now_ms());
    }

    fn sleep(&self) {
        let mut files: Vec<PollFd<'_>> = self
            .doors
            .iter()
            .map(|door| match &door.way {
                Way::Udp(socket, _) => PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN),
                Way::Unix(socket) => PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN),
            })
            .collect();
        let tick = Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(TICK.subsec_nanos()),
        };
        // An interrupted sleep is a short one.
        let _ = poll(&mut files, Some(&tick));
    }

    fn take_turns(&mut self) {
        for door in &mut self.doors {
            for _ in 0..TURN {
                let protocol = door.protocol;
                let taken = match &door.way {
                    Way::Udp(socket, state) => take_udp(
                        (socket, state),
                        protocol,
                        &self.guard,
                        &mut self.buffers,
                        &mut self.metas,
                        &mut self.shard,
                    ),
                    Way::Unix(socket) => take_unix(socket, &mut self.buffers[0], &mut self.shard),
                };
                if !taken {
                    break;
                }
            }
        }
        self.shard.flush();
    }

    fn ask_drops(&mut self, now_ms: i64) {
        if now_ms - self.dropped_asked_ms < DROPS_EVERY_MS && now_ms >= self.dropped_asked_ms {
            return;
        }
        self.dropped_asked_ms = now_ms;
        let inodes: Vec<u64> = self
            .doors
            .iter()
            .filter_map(|door| match &door.way {
                Way::Udp(socket, _) => kernel::inode(socket),
                Way::Unix(_) => None,
            })
            .collect();
        let dropped = kernel::drops(&inodes);
        self.shard.take_drops(dropped.saturating_sub(self.dropped));
        self.dropped = dropped;
    }
}

/// Takes one batch of datagrams; `false` if there was none.
fn take_udp(
    (socket, state): (&UdpSocket, &UdpSocketState),
    protocol: Protocol,
    guard: &Guard,
    buffers: &mut [Vec<u8>],
    metas: &mut [RecvMeta],
    shard: &mut Shard,
) -> bool {
    let mut slices: Vec<IoSliceMut<'_>> = buffers
        .iter_mut()
        .map(|buffer| IoSliceMut::new(buffer))
        .collect();
    // Nothing is there, or an error of an earlier answer to a sender: the next batch tells.
    let Ok(count) = state.recv(UdpSockRef::from(socket), &mut slices, metas) else {
        return false;
    };
    let now_ms = wall::now_ms();
    for (meta, buffer) in metas.iter().zip(buffers.iter()).take(count) {
        if !guard.takes(meta.addr.ip()) {
            continue;
        }
        let peer = Peer {
            address: meta.addr.ip(),
            stream: u64::from(meta.addr.port()),
        };
        // The kernel may join datagrams of one sender and one length.
        let bytes = &buffer[..meta.len.min(buffer.len())];
        for datagram in bytes.chunks(meta.stride.max(1)) {
            shard.take(now_ms, peer, protocol, datagram);
        }
    }
    count > 0
}

fn take_unix(socket: &UnixDatagram, buffer: &mut [u8], shard: &mut Shard) -> bool {
    let Ok(length) = socket.recv(buffer) else {
        return false;
    };
    let peer = Peer {
        address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        stream: 0,
    };
    shard.take(wall::now_ms(), peer, LINES, &buffer[..length]);
    true
}
