//! One side in a process of its own, as `sheaf bench transport` starts them: one connection or hundreds.
//!
//! Framing as everywhere here, with a stamp of the benchmark in the place of the sequence number. With one
//! connection both sides block in their system calls; with several they take turns, one batch or one read each.

use crate::pool::Pool;
use crate::socket;
use anyhow::{Context as _, Result, bail, ensure};
use peer_harness::{Args, Layout, Role, Run, STAMP_BYTES, fill};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use std::io::{ErrorKind, IoSlice, Read as _, Write as _};
use std::net::TcpStream;

/// Payload length, then stamp.
const HEADER_BYTES: usize = 8 + STAMP_BYTES;
/// Bytes that the sender collects for one system call.
const BATCH_BYTES: usize = 256 << 10;
/// Most bytes that the receiver takes with one system call.
const READ_BYTES: usize = 1 << 20;
/// Linux takes 1024 pieces (`IOV_MAX`), and a message has two.
const BATCH_MESSAGES_MAX: usize = 512;
/// Socket buffers of all connections together, but no connection has less than the second.
const BUFFER_BYTES: (usize, usize) = (4 << 20, 256 << 10);
/// Time that a wait lasts before the process checks for a request to stop.
const WAIT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// Runs one side.
pub(crate) fn run(args: &Args) -> Result<()> {
    args.check()?;
    let buffer_bytes = (BUFFER_BYTES.0 / args.peers).max(BUFFER_BYTES.1);
    let congestion = args.congestion.as_deref();
    let mut pool = Pool::new(pool_bytes(args))?;
    if args.role == Role::Send {
        fill(&mut pool);
    }
    let (run, streams) = if let Some(address) = args.bind {
        let listener = socket::listen(address, congestion, buffer_bytes)?;
        let run = Run::ready(args)?;
        let accept = |_| Ok(listener.accept().context("cannot accept")?.0);
        let streams: Result<Vec<TcpStream>> = (0..args.peers).map(accept).collect();
        (run, streams?)
    } else {
        let connect = |address: &_| socket::connect_to(*address, congestion, buffer_bytes);
        let streams: Result<Vec<TcpStream>> = args.connect.iter().map(connect).collect();
        (Run::ready(args)?, streams?)
    };
    for stream in &streams {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(streams.len() > 1)?;
    }
    let in_force = streams.first().map(socket::congestion_of).transpose()?;
    let run = match args.role {
        Role::Send => send(args, run, streams, &pool)?,
        Role::Receive => receive(args, run, &streams, pool)?,
    };
    run.finish("sockets of the standard library", in_force)
}

/// A receiver needs room for a frame and a read on every connection.
fn pool_bytes(args: &Args) -> usize {
    match args.role {
        Role::Send => args.pool_bytes,
        Role::Receive => args.memory_bytes.max(args.peers * region_bytes_min(args)),
    }
}

fn region_bytes_min(args: &Args) -> usize {
    2 * (args.bytes + HEADER_BYTES).max(64 << 10)
}

/// A connection of the sender, and the batch that is on its way.
struct Outgoing {
    stream: TcpStream,
    headers: Vec<[u8; HEADER_BYTES]>,
    /// Sequence number of the first of them.
    first: u64,
    /// Bytes of the batch that the kernel has.
    written: usize,
    is_full: bool,
}

fn send(args: &Args, mut run: Run, streams: Vec<TcpStream>, pool: &[u8]) -> Result<Run> {
    let layout = Layout::new(args.bytes, args.pool_bytes);
    let frame_bytes = HEADER_BYTES + args.bytes;
    let batch = BATCH_BYTES
        .div_ceil(frame_bytes)
        .clamp(1, BATCH_MESSAGES_MAX);
    let mut connections: Vec<Outgoing> = streams.into_iter().map(Outgoing::new).collect();
    run.wait_go();
    while !run.is_stopping() {
        let mut has_moved = false;
        for connection in &mut connections {
            if connection.is_full {
                continue;
            }
            has_moved = true;
            if connection.headers.is_empty() {
                connection.begin(&mut run, batch, args.bytes);
            }
            connection.write(layout, args.bytes, pool)?;
        }
        if !has_moved {
            await_room(&mut connections)?;
        }
    }
    for connection in &mut connections {
        connection.stream.set_nonblocking(false)?;
        while !connection.headers.is_empty() {
            connection.write(layout, args.bytes, pool)?;
        }
    }
    Ok(run)
}

impl Outgoing {
    fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            headers: Vec::new(),
            first: 0,
            written: 0,
            is_full: false,
        }
    }

    fn begin(&mut self, run: &mut Run, count: usize, bytes: usize) {
        self.written = 0;
        for index in 0..count {
            let stamp = run.next_stamp();
            if index == 0 {
                self.first = stamp.sequence;
            }
            let mut header = [0; HEADER_BYTES];
            header[..8].copy_from_slice(&(bytes as u64).to_le_bytes());
            header[8..].copy_from_slice(&stamp.encode());
            self.headers.push(header);
            run.sent();
        }
    }

    /// Offers the kernel what is left of the batch.
    fn write(&mut self, layout: Layout, bytes: usize, pool: &[u8]) -> Result<()> {
        let mut pieces = Vec::with_capacity(2 * self.headers.len());
        for (sequence, header) in (self.first..).zip(&self.headers) {
            let offset = layout.offset(sequence);
            pieces.push(IoSlice::new(header));
            pieces.push(IoSlice::new(&pool[offset..offset + bytes]));
        }
        let mut rest = pieces.as_mut_slice();
        IoSlice::advance_slices(&mut rest, self.written);
        match self.stream.write_vectored(rest) {
            Ok(0) => bail!("the connection takes no more bytes"),
            Ok(written) => self.written += written,
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.is_full = true,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("cannot send"),
        }
        if self.written == self.headers.len() * (HEADER_BYTES + bytes) {
            self.headers.clear();
        }
        Ok(())
    }
}

fn await_room(connections: &mut [Outgoing]) -> Result<()> {
    let watch = |connection: &Outgoing| connection.is_full;
    let room: Vec<bool> = {
        let mut watched: Vec<PollFd<'_>> = connections
            .iter()
            .filter(|connection| watch(connection))
            .map(|connection| PollFd::new(&connection.stream, PollFlags::OUT))
            .collect();
        poll(&mut watched, Some(&WAIT))?;
        watched
            .iter()
            .map(|one| !one.revents().is_empty())
            .collect()
    };
    let full = connections
        .iter_mut()
        .filter(|connection| connection.is_full);
    for (connection, has_room) in full.zip(room) {
        connection.is_full = !has_room;
    }
    Ok(())
}

/// A connection of the receiver: bytes received and not yet delivered lie in `start..end` of its region.
struct Incoming {
    region: std::ops::Range<usize>,
    start: usize,
    end: usize,
    is_over: bool,
}

fn receive(args: &Args, mut run: Run, streams: &[TcpStream], mut pool: Pool) -> Result<Run> {
    let bytes = pool.len() / streams.len();
    let region = |index: usize| index * bytes..(index + 1) * bytes;
    let mut connections: Vec<Incoming> = (0..streams.len())
        .map(|index| Incoming {
            region: region(index),
            start: region(index).start,
            end: region(index).start,
            is_over: false,
        })
        .collect();
    if let ([stream], [connection]) = (streams, connections.as_mut_slice()) {
        while !connection.is_over {
            connection.turn(stream, &mut pool, args, &mut run)?;
        }
        return Ok(run);
    }
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (index, stream) in (0..).zip(streams) {
        epoll::add(
            &epoll,
            stream,
            epoll::EventData::new_u64(index),
            epoll::EventFlags::IN,
        )?;
    }
    let mut ready = Vec::with_capacity(256);
    let mut left = streams.len();
    while left > 0 {
        ready.clear();
        epoll::wait(
            &epoll,
            rustix::buffer::spare_capacity(&mut ready),
            Some(&WAIT),
        )?;
        for event in &ready {
            let index = usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
            let (Some(connection), Some(stream)) = (connections.get_mut(index), streams.get(index))
            else {
                continue;
            };
            connection.turn(stream, &mut pool, args, &mut run)?;
            if connection.is_over {
                epoll::delete(&epoll, stream)?;
                left -= 1;
            }
        }
    }
    Ok(run)
}

impl Incoming {
    /// One read, and all frames that are whole with it.
    fn turn(
        &mut self,
        mut stream: &TcpStream,
        pool: &mut Pool,
        args: &Args,
        run: &mut Run,
    ) -> Result<()> {
        let frame_bytes = HEADER_BYTES + args.bytes;
        if self.start + frame_bytes > self.region.end {
            pool.copy_within(self.start..self.end, self.region.start);
            self.end -= self.start - self.region.start;
            self.start = self.region.start;
        }
        let room_end = self.region.end.min(self.end + READ_BYTES);
        match stream.read(&mut pool[self.end..room_end]) {
            Ok(0) => {
                ensure!(self.start == self.end, "the stream ends inside a frame");
                self.is_over = true;
                return Ok(());
            }
            Ok(got) => self.end += got,
            Err(error)
                if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(error) => return Err(error).context("cannot receive"),
        }
        while self.end - self.start >= HEADER_BYTES {
            let bytes = &pool[self.start..self.end];
            let (length, rest) = bytes
                .split_first_chunk()
                .context("8 of the bytes of a header")?;
            let length = u64::from_le_bytes(*length);
            ensure!(
                length == args.bytes as u64,
                "a frame of {length} bytes came, expected {}",
                args.bytes
            );
            let Some(payload) = rest.get(STAMP_BYTES..STAMP_BYTES + args.bytes) else {
                break;
            };
            run.received(rest, payload.len(), payload.last())?;
            self.start += frame_bytes;
        }
        Ok(())
    }
}
