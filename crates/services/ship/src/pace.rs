//! A limit of the bandwidth that all copies share, and a reader that keeps it.

use sheaf_stream_files::SummingReader;
use sheaf_write::Kinds;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time that copies may be behind their rate and make up for.
const BURST: Duration = Duration::from_millis(250);
/// Longest pause without a look at whether all shall end.
const LOOK: Duration = Duration::from_millis(200);

/// Bandwidth of all copies together, and whether they go on.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    bytes_per_s: Option<u64>,
    until: Mutex<Option<Instant>>,
    copied: AtomicU64,
    ends: AtomicBool,
}

impl Pace {
    pub(crate) fn new(bytes_per_s: Option<u64>) -> Self {
        Self {
            bytes_per_s,
            ..Self::default()
        }
    }

    /// Ends all copies at their next piece.
    pub(crate) fn end(&self) {
        self.ends.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }

    /// Bytes of all copies so far.
    pub(crate) fn copied(&self) -> u64 {
        self.copied.load(Ordering::Relaxed)
    }

    /// Waits until `bytes` more are within the rate.
    ///
    /// # Errors
    ///
    /// An error if all shall end; not [`Interrupted`](io::ErrorKind::Interrupted), after which readers go on.
    fn take(&self, bytes: u64) -> io::Result<()> {
        self.copied.fetch_add(bytes, Ordering::Relaxed);
        let due = self.bytes_per_s.map(|rate| {
            let now = Instant::now();
            let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
            let earliest = now.checked_sub(BURST).unwrap_or(now);
            let from = until.map_or(now, |until| until.max(earliest));
            let due = from + Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
            *until = Some(due);
            due
        });
        self.wait(due)
    }

    /// Waits for a while.
    ///
    /// # Errors
    ///
    /// An error if all shall end.
    pub(crate) fn pause(&self, pause: Duration) -> io::Result<()> {
        self.wait(Instant::now().checked_add(pause))
    }

    fn wait(&self, due: Option<Instant>) -> io::Result<()> {
        loop {
            if self.is_ending() {
                return Err(io::Error::other("the shipper ends"));
            }
            let left = due.map(|due| due.saturating_duration_since(Instant::now()));
            match left {
                Some(left) if !left.is_zero() => std::thread::park_timeout(left.min(LOOK)),
                Some(_) | None => return Ok(()),
            }
        }
    }
}

/// Reader at the common pace.
#[derive(Debug)]
pub(crate) struct Paced<'a, R = File> {
    inner: R,
    pace: &'a Pace,
}

impl<'a, R: Read> Paced<'a, R> {
    pub(crate) fn new(inner: R, pace: &'a Pace) -> Self {
        Self { inner, pace }
    }
}

impl<R: Read> Read for Paced<'_, R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(bytes)?;
        self.pace.take(count as u64)?;
        Ok(count)
    }
}

/// Opens a file to be read at the common pace, and summed.
pub(crate) fn open_paced<'a>(path: &Path, pace: &'a Pace) -> io::Result<SummingReader<Paced<'a>>> {
    let file = File::open(path)?;
    Ok(SummingReader::new(Paced::new(file, pace), Kinds::default()))
}
