//! One endpoint that receives with one thread or several, from senders that cost next to nothing.
//!
//! Senders pass frames that were encoded before from memory to their sockets by `sendfile`, so that the processors are
//! there for the endpoint. It does what that of an EPN does: bodies go to one arena, their CRC-32C is taken on the way
//! and compared here, and they are held until as much has come in again. Numbers of threads take turns.

use crate::cpus::Cpus;
use crate::report::{self, Head};
use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use rustix::fs::MemfdFlags;
use serde::Serialize;
use sheaf_figures::stat::Spread;
use sheaf_protocol::{Prefix, WireKind, crc32c};
use sheaf_transport::{
    Arena, ArenaOptions, ConnId, Event, Security, Sharded, TcpConfig, Transport as _,
};
use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::Write as _;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes of encoded frames of one sender: more than fit into the caches.
const STREAM_BYTES: usize = 64 << 20;
/// Bytes of bodies that are held, as an EPN holds TFs.
const HELD_BYTES: usize = 64 << 20;
/// Memory of the endpoint.
const ARENA_BYTES: usize = 256 << 20;
/// Bytes of one call of a sender.
const CALL_BYTES: usize = 1 << 20;
/// Longest wait for an event, and for connections.
const WAIT: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(30);

/// Numbers of threads to compare, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Threads that receive; with 1 the thread of the caller does. The first one is what the others are held against.
    pub threads: Vec<usize>,
    /// Bytes of a body.
    pub sizes: Vec<usize>,
    /// Senders, a connection each.
    pub senders: usize,
    /// Rounds of each number of threads.
    pub rounds: u32,
    /// Length of a measured window, in s.
    pub seconds: f64,
    /// Time before it, in s.
    pub warm_up_seconds: f64,
    /// Congestion control of the senders, by its kernel name.
    pub congestion: String,
}

/// Figures of one number of threads with one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Bytes of a body.
    pub bytes: usize,
    /// Threads that receive.
    pub threads: usize,
    /// Bodies received, in 10⁹ bytes a second.
    pub gb_per_s: Spread,
    /// Bodies received a second, by the median of these.
    pub frames_per_s: f64,
    /// The same ÷ that of the first number of threads, round by round.
    pub ratio: Spread,
    /// Processor time of the process, senders included, in s for 10⁹ bytes.
    pub cpu_s_per_gb: Spread,
}

/// All rows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    #[serde(flatten)]
    head: Head,
    /// Senders, a connection each.
    pub senders: usize,
    /// Rounds of each row.
    pub rounds: u32,
    /// The rows.
    pub rows: Vec<Row>,
}

/// Measures all rows; `tell` takes each.
///
/// # Errors
///
/// What the operating system refuses, or a frame that is not as it was sent.
pub fn measure(options: &Options, tell: &mut dyn FnMut(&Row)) -> anyhow::Result<Report> {
    let cpus = Cpus::allowed(false).context("cannot read the CPU affinity")?;
    let mut rows = Vec::new();
    for &bytes in &options.sizes {
        let stream = Stream::new(bytes)?;
        let mut figures: Vec<Vec<Figures>> = vec![Vec::new(); options.threads.len()];
        for _ in 0..options.rounds {
            for (threads, figures) in options.threads.iter().zip(&mut figures) {
                figures.push(run(options, &stream, *threads)?);
            }
        }
        let first = figures.first().cloned().unwrap_or_default();
        for (threads, figures) in options.threads.iter().zip(&figures) {
            let ratios = figures.iter().zip(&first);
            let gb_per_s = Spread::of(figures.iter().map(|one| one.gb_per_s));
            let row = Row {
                bytes,
                threads: *threads,
                frames_per_s: gb_per_s.median.unwrap_or(0.0) * 1e9 / bytes as f64,
                gb_per_s,
                ratio: Spread::of(ratios.map(|(one, first)| one.gb_per_s / first.gb_per_s)),
                cpu_s_per_gb: Spread::of(figures.iter().map(|one| one.cpu_s_per_gb)),
            };
            tell(&row);
            rows.push(row);
        }
    }
    Ok(Report {
        head: Head::new(&cpus, options.seconds, options.warm_up_seconds),
        senders: options.senders,
        rounds: options.rounds,
        rows,
    })
}

/// Frames as they are on the wire, in memory that `sendfile` reads.
struct Stream {
    file: Arc<File>,
    /// Bytes of all of them.
    bytes: usize,
    /// Digests of the bodies, by the number that each head has.
    digests: Vec<u32>,
}

impl Stream {
    fn new(body_bytes: usize) -> anyhow::Result<Self> {
        let frames = (STREAM_BYTES / body_bytes).max(1);
        let memory = rustix::fs::memfd_create("sheaf-bench", MemfdFlags::CLOEXEC);
        let mut file = File::from(memory.context("cannot make memory for the frames")?);
        let mut body = vec![0; body_bytes];
        let (mut digests, mut bytes) = (Vec::new(), 0);
        for number in 0..frames {
            // Bodies differ, so that one in the place of another is noticed.
            for (at, word) in body.chunks_mut(8).enumerate() {
                let value = (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number as u64;
                word.copy_from_slice(&value.to_le_bytes()[..word.len()]);
            }
            digests.push(crc32c(&body));
            let head = (number as u64).to_le_bytes();
            let prefix = Prefix::new(WireKind::Stf, &head, body_bytes as u64).encode();
            for part in [&prefix[..], &head, &body] {
                file.write_all(part).context("no memory for the frames")?;
                bytes += part.len();
            }
        }
        Ok(Self {
            file: Arc::new(file),
            bytes,
            digests,
        })
    }

    /// Compares a frame with what was sent.
    fn check(&self, head: &[u8], digest: Option<u32>) -> anyhow::Result<()> {
        let number = head.try_into().map_or(u64::MAX, u64::from_le_bytes);
        let expected = usize::try_from(number)
            .ok()
            .and_then(|number| self.digests.get(number));
        let expected = expected.with_context(|| format!("no frame has the number {number}"))?;
        ensure!(
            digest == Some(*expected),
            "frame {number} has the digest {digest:?}, expected {expected}"
        );
        Ok(())
    }
}

/// Senders of one run. They end when it is dropped.
struct Senders {
    streams: Vec<TcpStream>,
    stops: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Senders {
    fn start(options: &Options, stream: &Stream, address: &str) -> anyhow::Result<Self> {
        let mut senders = Self {
            streams: Vec::new(),
            stops: Arc::default(),
            threads: Vec::new(),
        };
        for _ in 0..options.senders {
            let socket = TcpStream::connect(address).context("cannot connect")?;
            rustix::net::sockopt::set_tcp_congestion(&socket, &options.congestion)
                .with_context(|| format!("no congestion control {}", options.congestion))?;
            senders.streams.push(socket.try_clone()?);
            let (file, bytes) = (Arc::clone(&stream.file), stream.bytes);
            let stops = Arc::clone(&senders.stops);
            senders.threads.push(std::thread::spawn(move || {
                send(&socket, &file, bytes, &stops);
            }));
        }
        Ok(senders)
    }
}

impl Drop for Senders {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        for stream in &self.streams {
            // One that waits for room ends with it.
            let _ = stream.shutdown(Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Sends `bytes` of `file` again and again, until it is stopped or the connection ends.
fn send(socket: &TcpStream, file: &File, bytes: usize, stops: &AtomicBool) {
    while !stops.load(Ordering::Relaxed) {
        let mut at = 0;
        while at < bytes as u64 {
            let left = usize::try_from(bytes as u64 - at).unwrap_or(CALL_BYTES);
            match rustix::fs::sendfile(socket, file, Some(&mut at), left.min(CALL_BYTES)) {
                Ok(1..) => {}
                Err(rustix::io::Errno::INTR) => {}
                Ok(0) | Err(_) => return,
            }
        }
    }
}

/// Figures of one run.
#[derive(Clone, Copy, Debug)]
struct Figures {
    gb_per_s: f64,
    cpu_s_per_gb: f64,
}

fn run(options: &Options, stream: &Stream, threads: usize) -> anyhow::Result<Figures> {
    let arena = Arena::new(ARENA_BYTES, ArenaOptions::default())?;
    let config = TcpConfig {
        shared_memory: false,
        congestion_control: Some(options.congestion.clone()),
        ..TcpConfig::default()
    };
    let loops = if threads > 1 { threads } else { 0 };
    let mut endpoint = Sharded::new(config, &arena, &Security::Loopback, loops)?;
    let (_, address) = endpoint.listen_bulk("127.0.0.1:0")?;
    let senders = Senders::start(options, stream, &address)?;
    let mut run = Receiving {
        stream,
        events: Vec::new(),
        held: VecDeque::new(),
        held_bytes: 0,
        bytes: 0,
        accepted: 0,
    };
    let begun = Instant::now();
    while run.accepted < options.senders {
        ensure!(begun.elapsed() < PATIENCE, "senders do not connect");
        run.turn(&mut endpoint)?;
    }
    run.receive_for(&mut endpoint, options.warm_up_seconds)?;
    let (bytes, cpu_s, from) = (run.bytes, cpu_s(), Instant::now());
    run.receive_for(&mut endpoint, options.seconds)?;
    let gb = (run.bytes - bytes) as f64 / 1e9;
    ensure!(gb > 0.0, "nothing was received in {} s", options.seconds);
    let figures = Figures {
        gb_per_s: gb / from.elapsed().as_secs_f64(),
        cpu_s_per_gb: (self::cpu_s() - cpu_s) / gb,
    };
    drop(endpoint);
    drop(senders);
    Ok(figures)
}

/// Processor time of this process, in s.
fn cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Receiving side of a run.
struct Receiving<'a> {
    stream: &'a Stream,
    events: Vec<Event>,
    held: VecDeque<Bytes>,
    held_bytes: usize,
    bytes: u64,
    accepted: usize,
}

impl Receiving<'_> {
    fn receive_for(&mut self, endpoint: &mut Sharded, seconds: f64) -> anyhow::Result<()> {
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        while Instant::now() < until {
            self.turn(endpoint)?;
        }
        Ok(())
    }

    fn turn(&mut self, endpoint: &mut Sharded) -> anyhow::Result<()> {
        endpoint.poll(&mut self.events, Some(WAIT))?;
        for event in self.events.drain(..) {
            match event {
                Event::Accepted { .. } => self.accepted += 1,
                Event::Received {
                    frame, body_digest, ..
                } => {
                    self.stream.check(&frame.head, body_digest)?;
                    self.bytes += frame.body.len() as u64;
                    self.held_bytes += frame.body.len();
                    self.held.push_back(frame.body);
                    while self.held_bytes > HELD_BYTES
                        && let Some(oldest) = self.held.pop_front()
                    {
                        self.held_bytes -= oldest.len();
                    }
                }
                Event::Closed {
                    conn: ConnId(conn),
                    reason,
                } => bail!("connection {conn} ended: {reason}"),
                Event::Connected { .. } | Event::Writable { .. } | Event::Woken => {}
            }
        }
        Ok(())
    }
}

impl Report {
    /// Returns the report as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        report::to_json(self)
    }
}

impl Row {
    /// Head of the table of rows.
    pub const HEAD: &'static str =
        "    bytes  threads    GB/s  (min to max)     frames/s   ratio  (min to max)  CPU s/GB";
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |value: Option<f64>| value.unwrap_or(0.0);
        write!(
            f,
            "{:>9} {:>8} {:>7.2}  ({:.2} to {:.2}) {:>12.0} {:>7.2}  ({:.2} to {:.2}) {:>9.3}",
            self.bytes,
            self.threads,
            of(self.gb_per_s.median),
            of(self.gb_per_s.min),
            of(self.gb_per_s.max),
            self.frames_per_s,
            of(self.ratio.median),
            of(self.ratio.min),
            of(self.ratio.max),
            of(self.cpu_s_per_gb.median),
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = format!(
            "{}; {} senders by sendfile, {} rounds\n{}\n",
            self.head,
            self.senders,
            self.rounds,
            Row::HEAD
        );
        for row in &self.rows {
            let _ = writeln!(text, "{row}");
        }
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options {
            threads: vec![1, 2],
            sizes: vec![10_000],
            senders: 2,
            rounds: 1,
            seconds: 0.05,
            warm_up_seconds: 0.0,
            congestion: "cubic".to_owned(),
        }
    }

    #[test]
    fn every_number_of_threads_has_a_row_and_the_first_is_its_own_measure() {
        let report = measure(&options(), &mut |_| {}).unwrap();
        let rows: Vec<usize> = report.rows.iter().map(|row| row.threads).collect();
        assert_eq!(rows, [1, 2]);
        assert_eq!(report.rows[0].ratio.median, Some(1.0));
        assert!(
            report
                .rows
                .iter()
                .all(|row| row.gb_per_s.median > Some(0.0))
        );
        assert!(report.to_string().contains("CPU s/GB"));
    }

    #[test]
    fn a_frame_that_is_not_as_it_was_sent_ends_the_run() {
        let stream = Stream::new(1000).unwrap();
        let head = 3u64.to_le_bytes();
        assert!(stream.check(&head, Some(stream.digests[3])).is_ok());
        assert!(stream.check(&head, Some(stream.digests[4])).is_err());
        assert!(stream.check(&head, None).is_err());
        assert!(stream.check(&u64::MAX.to_le_bytes(), None).is_err());
        assert!(stream.check(b"short", None).is_err());
    }
}
