//! Clients of the demo: each fetches one file after the other over a connection of its own, and compares checksums.

use sheaf_write::{Kinds, Summing, Sums};
use std::io::Read as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes that a client reads at once.
const READ_BYTES: usize = 64 << 10;
/// Longest time without a byte.
const PATIENCE: Duration = Duration::from_secs(20);

/// File of the service, with the checksums that its writer took.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// Path below the address of the service.
    pub(super) path: String,
    pub(super) sums: Sums,
}

/// Fate of one transfer.
#[derive(Clone, Debug)]
pub(super) struct Transfer {
    /// Server, if an answer came.
    pub(super) server: Option<String>,
    pub(super) began: Instant,
    pub(super) bytes: u64,
    /// Reason why it did not end well.
    pub(super) error: Option<Fault>,
}

/// Reason why a transfer did not end well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The connection or the answer.
    Broken(String),
    /// Bytes that are not those that were written.
    Differs(String),
}

/// State that clients share.
#[derive(Debug)]
pub(super) struct Crowd {
    pub(super) files: Vec<Wanted>,
    pub(super) addresses: Vec<SocketAddr>,
    /// Bytes per second of each client.
    pub(super) pace: f64,
    pub(super) is_over: AtomicBool,
    pub(super) under_way: AtomicUsize,
    pub(super) done: Mutex<Vec<Transfer>>,
}

impl Crowd {
    pub(super) fn done(&self) -> Vec<Transfer> {
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.clone()
    }

    /// Runs `count` clients until the end is asked for and their last transfers have ended.
    pub(super) fn run(self: &Arc<Self>, count: usize) {
        std::thread::scope(|scope| {
            for client in 0..count {
                scope.spawn(move || self.fetch_on(client));
            }
        });
    }

    fn fetch_on(&self, client: usize) {
        for number in 0.. {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let file = &self.files[(client + number) % self.files.len()];
            let address = self.addresses[client % self.addresses.len()];
            self.under_way.fetch_add(1, Ordering::Relaxed);
            let transfer = fetch(address, file, self.pace);
            self.under_way.fetch_sub(1, Ordering::Relaxed);
            let has_failed = transfer.error.is_some();
            let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
            done.push(transfer);
            drop(done);
            if has_failed {
                // A service that refuses is not asked in a tight loop.
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

/// Fetches a file over a new connection at `pace` bytes a second.
pub(super) fn fetch(address: SocketAddr, file: &Wanted, pace: f64) -> Transfer {
    let mut transfer = Transfer {
        server: None,
        began: Instant::now(),
        bytes: 0,
        error: None,
    };
    let mut summing = Summing::new(Kinds::default());
    let result = read(address, file, pace, &mut transfer, &mut summing);
    transfer.error = result.map_err(Fault::Broken).err().or_else(|| {
        let differs = file.sums.compare(&summing.sums());
        differs.err().map(|error| Fault::Differs(error.to_string()))
    });
    transfer
}

fn read(
    address: SocketAddr,
    file: &Wanted,
    pace: f64,
    transfer: &mut Transfer,
    summing: &mut Summing,
) -> Result<(), String> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_connect(Some(PATIENCE))
        .timeout_recv_response(Some(PATIENCE))
        .build()
        .into();
    let url = format!("http://{address}/{}", file.path);
    let answer = agent.get(url).call().map_err(|error| error.to_string())?;
    let name = answer.headers().get("X-Served-By");
    transfer.server = name.and_then(|name| Some(name.to_str().ok()?.to_owned()));
    let mut body = answer.into_body().into_reader();
    let mut buffer = vec![0; READ_BYTES];
    let began = Instant::now();
    loop {
        let read = body.read(&mut buffer).map_err(|error| error.to_string())?;
        if read == 0 {
            return Ok(());
        }
        summing.update(&buffer[..read]);
        transfer.bytes += read as u64;
        let due = Duration::from_secs_f64(transfer.bytes as f64 / pace);
        std::thread::sleep(due.saturating_sub(began.elapsed()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::net::TcpListener;

    /// Answers one request with `body` after a head that promises `length` bytes.
    fn answer(body: &'static [u8], length: usize) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") {
                stream.read_exact(&mut byte).expect("a head");
                head.push(byte[0]);
            }
            let head =
                format!("HTTP/1.1 200 OK\r\nX-Served-By: s1\r\nContent-Length: {length}\r\n\r\n");
            stream.write_all(head.as_bytes()).expect("written");
            stream.write_all(body).expect("written");
        });
        address
    }

    fn wanted(content: &[u8]) -> Wanted {
        let mut summing = Summing::new(Kinds::default());
        summing.update(content);
        Wanted {
            path: "a".to_owned(),
            sums: summing.sums(),
        }
    }

    #[test]
    fn bytes_that_differ_and_answers_that_end_early_are_told_apart() {
        let good = fetch(answer(b"beam", 4), &wanted(b"beam"), 1e9);
        assert_eq!((good.error, good.bytes), (None, 4));
        assert_eq!(good.server.as_deref(), Some("s1"));
        let differs = fetch(answer(b"bean", 4), &wanted(b"beam"), 1e9);
        assert!(matches!(differs.error, Some(Fault::Differs(text)) if text.starts_with("adler32")));
        let cut = fetch(answer(b"be", 4), &wanted(b"beam"), 1e9);
        assert!(matches!(cut.error, Some(Fault::Broken(_))), "{cut:?}");
    }
}
