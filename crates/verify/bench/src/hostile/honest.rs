//! Honest clients: a file, again and again, each by a connection of its own, at a steady rate.

use super::HonestRow;
use super::server::FILE_BYTES;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest time of a request.
const WITHIN: Duration = Duration::from_secs(30);

/// Times of honest clients, and their failures.
#[derive(Debug, Default)]
pub(super) struct Honest {
    times: Vec<Duration>,
    failed: u64,
}

impl Honest {
    /// Runs one client until all is over.
    pub(super) fn run(address: SocketAddr, rate_hz: f64, is_over: &AtomicBool) -> Self {
        let mut got = Self::default();
        let pause = Duration::from_secs_f64(1.0 / rate_hz.max(0.001));
        let mut due = Instant::now();
        while !is_over.load(Ordering::Relaxed) {
            let begun = Instant::now();
            match fetch(address) {
                Ok(()) => got.times.push(begun.elapsed()),
                Err(_) => got.failed += 1,
            }
            due += pause;
            while let Some(left) = due.checked_duration_since(Instant::now()) {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                std::thread::park_timeout(left);
            }
        }
        got
    }

    pub(super) fn add(&mut self, other: Self) {
        self.times.extend(other.times);
        self.failed += other.failed;
    }

    pub(super) fn row(mut self) -> HonestRow {
        self.times.sort();
        let at = |share: f64| {
            let last = self.times.len().saturating_sub(1);
            let time = self.times.get((last as f64 * share).round() as usize);
            time.map_or(0.0, |time| time.as_secs_f64() * 1e3)
        };
        HonestRow {
            finished: self.times.len() as u64,
            failed: self.failed,
            p50_ms: at(0.5),
            p99_ms: at(0.99),
            max_ms: at(1.0),
        }
    }
}

fn fetch(address: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, WITHIN)?;
    stream.set_read_timeout(Some(WITHIN))?;
    stream.write_all(b"GET /a HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::with_capacity(FILE_BYTES + 512);
    stream.read_to_end(&mut answer)?;
    let is_good = answer.starts_with(b"HTTP/1.1 200") && answer.len() > FILE_BYTES;
    is_good
        .then_some(())
        .ok_or(io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_sorted_times() {
        let honest = Honest {
            times: (1..=101).rev().map(Duration::from_millis).collect(),
            failed: 2,
        };
        let row = honest.row();
        assert_eq!((row.finished, row.failed), (101, 2));
        assert_eq!((row.p50_ms, row.p99_ms, row.max_ms), (51.0, 100.0, 101.0));
        assert_eq!(Honest::default().row(), HonestRow::default());
    }
}
