//! The life of a peer: ready, go, marks, stop.

use crate::latency::Histogram;
use crate::machine::machine_busy_s;
use crate::payload::{Layout, Stamp};
use crate::report::{self, Mark, PeerReport};
use crate::{Args, Role};
use anyhow::{Context as _, Result, bail, ensure};
use rustix::time::{ClockId, clock_gettime};
use std::io::{BufRead as _, Write as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// From this size on every message is timed; of smaller ones every 64th, since looking at the clock costs 2 % of them.
const TIMED_BYTES: usize = 65536;

/// Silence after which a receiver that was asked to stop has received everything.
const SILENCE: Duration = Duration::from_millis(300);

/// One peer at work.
#[derive(Debug)]
pub struct Run {
    shared: Arc<Shared>,
    layout: Layout,
    bytes: usize,
    id: u16,
    times_all: bool,
    /// The next sequence number by sender.
    next: Vec<u64>,
    count: u64,
    went: Receiver<()>,
    /// Ends with the word to stop.
    ears: JoinHandle<()>,
    last_heard: Instant,
}

#[derive(Debug)]
struct Shared {
    messages: AtomicU64,
    last_ns: AtomicU64,
    by_sender: Vec<AtomicU64>,
    is_measuring: AtomicBool,
    is_stopping: AtomicBool,
    marks: Mutex<Vec<Mark>>,
    times: Histogram,
}

impl Run {
    /// Reports that this peer is ready: listens, or has begun to connect. From now on it reads commands.
    ///
    /// # Errors
    ///
    /// If the standard output is closed.
    pub fn ready(args: &Args) -> Result<Self> {
        let senders = if args.role == Role::Receive {
            args.peers
        } else {
            0
        };
        let shared = Arc::new(Shared {
            messages: AtomicU64::new(0),
            last_ns: AtomicU64::new(0),
            by_sender: (0..senders).map(|_| AtomicU64::new(0)).collect(),
            is_measuring: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            marks: Mutex::new(Vec::new()),
            times: Histogram::new(),
        });
        let (go, went) = sync_channel(1);
        let heard = Arc::clone(&shared);
        let ears = std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                match line.trim() {
                    // A second one says nothing new.
                    "go" => drop(go.try_send(())),
                    "mark" => heard.mark(),
                    _ => break,
                }
            }
            // Also when the runner has ended.
            heard.is_stopping.store(true, Ordering::Release);
        });
        let mut out = std::io::stdout().lock();
        out.write_all(b"ready\n")
            .context("the standard output is closed")?;
        out.flush()?;
        Ok(Self {
            shared,
            layout: Layout::new(args.bytes, args.pool_bytes),
            bytes: args.bytes,
            id: args.id,
            times_all: args.bytes >= TIMED_BYTES,
            next: vec![0; senders],
            count: 0,
            went,
            ears,
            last_heard: Instant::now(),
        })
    }

    /// Waits for the word to begin.
    pub fn wait_go(&self) {
        // An error means that the runner ended or asked to stop at once.
        let _ = self.went.recv();
    }

    /// Returns whether the runner asked this peer to stop.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.shared.is_stopping.load(Ordering::Relaxed)
    }

    /// Returns whether a receiver has everything: the runner asked it to stop, and nothing arrived for a while.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_stopping() && self.last_heard.elapsed() > SILENCE
    }

    /// The sequence number of the next message, and its stamp.
    #[must_use]
    pub fn next_stamp(&self) -> Stamp {
        let is_timed = self.times_all || self.count.is_multiple_of(64);
        Stamp {
            sender: self.id,
            sequence: self.count,
            sent_ns: if is_timed { now_ns() } else { 0 },
        }
    }

    /// Counts a message that was passed to the library.
    pub fn sent(&mut self) {
        self.count += 1;
        self.shared.messages.store(self.count, Ordering::Relaxed);
    }

    /// Checks and counts a message of `bytes`, which begins with `stamp` and ends with `last_byte`.
    ///
    /// # Errors
    ///
    /// What is wrong with it; the benchmark is over then.
    pub fn received(&mut self, stamp: &[u8], bytes: usize, last_byte: Option<&u8>) -> Result<()> {
        ensure!(
            bytes == self.bytes,
            "a message of {bytes} bytes came, expected {}",
            self.bytes
        );
        let stamp = Stamp::decode(stamp).context("a message without a stamp came")?;
        let sender = usize::from(stamp.sender);
        let Some(next) = self.next.get_mut(sender) else {
            bail!(
                "a message of sender {sender} came, there are {}",
                self.next.len()
            );
        };
        // Another receiver may have those between; that none is lost the counts of both sides say.
        let is_next = stamp.sequence >= *next;
        ensure!(
            is_next,
            "message {} of sender {sender} came, expected {next}",
            stamp.sequence
        );
        *next = stamp.sequence + 1;
        let expected = self.layout.last_byte(stamp.sequence);
        ensure!(
            last_byte == Some(&expected),
            "message {} of sender {sender} ends with {last_byte:?}, expected {expected}",
            stamp.sequence
        );
        self.count += 1;
        let shared = &self.shared;
        shared.messages.store(self.count, Ordering::Relaxed);
        if let Some(count) = shared.by_sender.get(sender) {
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        if self.times_all || stamp.sent_ns != 0 {
            let now = now_ns();
            if self.times_all {
                shared.last_ns.store(now, Ordering::Relaxed);
            }
            if stamp.sent_ns != 0 && shared.is_measuring.load(Ordering::Relaxed) {
                shared.times.add(now.saturating_sub(stamp.sent_ns));
            }
        }
        if self.is_stopping() {
            self.last_heard = Instant::now();
        }
        Ok(())
    }

    /// Prints the report once the runner asked to stop: a receiver whose senders have gone may not have heard yet of
    /// marks that were set before.
    ///
    /// # Errors
    ///
    /// If the standard output is closed.
    pub fn finish(self, version: &str, congestion: Option<String>) -> Result<()> {
        // It does not panic.
        let _ = self.ears.join();
        let marks = self
            .shared
            .marks
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let report = PeerReport {
            version: version.to_owned(),
            messages: self.count,
            marks: marks.clone(),
            rss_bytes_max: report::rss_bytes_max(),
            congestion,
            latency_us: self.shared.times.summary(),
        };
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", serde_json::to_string(&report)?)?;
        Ok(out.flush()?)
    }
}

impl Shared {
    fn mark(&self) {
        let last_ns = self.last_ns.load(Ordering::Relaxed);
        let now = now_ns();
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let mark = Mark {
            t_s: now as f64 / 1e9,
            cpu_s: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
            busy_s: machine_busy_s().unwrap_or(0.0),
            messages: self.messages.load(Ordering::Relaxed),
            last_t_s: (if last_ns == 0 { now } else { last_ns }) as f64 / 1e9,
            by_sender: self
                .by_sender
                .iter()
                .map(|count| count.load(Ordering::Relaxed))
                .collect(),
        };
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        marks.push(mark);
        self.is_measuring.store(marks.len() == 1, Ordering::Relaxed);
    }
}

/// The machine's monotonic clock, the same for all processes of it.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
