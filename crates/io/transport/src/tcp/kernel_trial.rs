//! Decision whether the kernel protects records: a trial on loopback shows whether it can, can change keys, and takes
//! less processor time for it.

use super::kernel_tls::{Way, failure, give, prepare, receive};
use super::records::{BYTES_MAX, Direction, OVERHEAD, PLAIN_BYTES_MAX};
use super::zero_copy::thread_time;
use ring::rand::{SecureRandom as _, SystemRandom};
use rustix::io::Errno;
use rustls::crypto::cipher::{AeadKey, Iv};
use rustls::{ConnectionTrafficSecrets, ContentType};
use std::fmt;
use std::io::{self, IoSliceMut, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::OnceLock;
use std::time::Duration;

/// Bytes that are sent and received each way: more than caches hold, as payload is.
const BYTES: usize = 16 << 20;

/// Bytes sent before they are received: they fit the buffers of a socket.
const BATCH_BYTES: usize = 4 * PLAIN_BYTES_MAX;

/// Longest wait for bytes that were sent before.
const PATIENCE: Duration = Duration::from_secs(10);

/// Choice between the kernel and the process for the records of TLS sessions over TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KernelTls {
    /// The kernel, where it can change keys and takes less processor time, which a trial on loopback shows.
    #[default]
    Auto,
    /// The kernel, where it can change keys: for cards that encrypt, which loopback does not show.
    On,
    /// The process.
    Off,
}

impl KernelTls {
    /// Returns whether the kernel is to protect records, and why: a sentence for the log. The first call makes a trial
    /// of some 50 ms, in which nothing leaves the machine.
    #[must_use]
    pub fn decide(self) -> (bool, &'static str) {
        static TRIED: OnceLock<Tried> = OnceLock::new();
        if self == Self::Off {
            return (false, "transport.kernel_tls is off");
        }
        let tried = TRIED.get_or_init(Tried::new);
        match (self, tried.is_able) {
            (Self::On, true) => (true, "transport.kernel_tls is on"),
            (_, is_able) => (is_able && tried.is_cheaper, &tried.text),
        }
    }
}

/// Result of the trial.
struct Tried {
    is_able: bool,
    is_cheaper: bool,
    text: String,
}

impl Tried {
    fn new() -> Self {
        match run() {
            Ok(costs) => Self {
                is_able: true,
                is_cheaper: costs.in_kernel < costs.in_process,
                text: costs.to_string(),
            },
            Err(text) => Self {
                is_able: false,
                is_cheaper: false,
                text,
            },
        }
    }
}

/// Processor time of both ends for [`BYTES`].
#[derive(Clone, Copy, Debug)]
struct Costs {
    in_kernel: Duration,
    in_process: Duration,
}

impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[expect(clippy::cast_precision_loss, reason = "16 MiB")]
        let per_gb = |time: Duration| time.as_secs_f64() * 1e9 / BYTES as f64;
        let (kernel, process) = (per_gb(self.in_kernel), per_gb(self.in_process));
        write!(
            f,
            "a trial on loopback took {kernel:.2} s of processor time per GB in the kernel and {process:.2} in the \
             process"
        )
    }
}

/// Makes the trial; a sentence on why the kernel cannot, if it cannot.
fn run() -> Result<Costs, String> {
    let payload = vec![0x5a; BYTES];
    // Not 0, which the allocator gives untouched: the first way would pay for the pages.
    let mut place = vec![1; BYTES];
    let in_kernel = kernel(&payload, &mut place)?;
    let mut is_whole = place == payload;
    place.fill(0);
    let failed = |error: io::Error| format!("a trial on loopback failed: {error}");
    let in_process = process(&payload, &mut place).map_err(failed)?;
    is_whole &= place == payload;
    match is_whole {
        true => Ok(Costs {
            in_kernel,
            in_process,
        }),
        false => Err("a trial on loopback received other bytes than were sent".to_owned()),
    }
}

/// Sends `payload` to `place` with records of the kernel.
fn kernel(payload: &[u8], place: &mut [u8]) -> Result<Duration, String> {
    let failed = |error: io::Error| format!("a trial on loopback failed: {error}");
    let (mut from, to) = pair().map_err(failed)?;
    prepare(&from)
        .and_then(|()| prepare(&to))
        .map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::NOENT) => "the kernel has no TLS (module tls)".to_owned(),
            _ => format!("the kernel refuses TLS: {error}"),
        })?;
    let secrets = Secret::new().map_err(failed)?.keys();
    give(&from, Way::Send, 0, &secrets)
        .and_then(|()| give(&to, Way::Receive, 0, &secrets))
        .map_err(|error| format!("the kernel refuses keys of AES-256-GCM: {error}"))?;
    // The same keys again, for records that none has used.
    give(&from, Way::Send, 0, &secrets).map_err(|error| {
        format!("the kernel cannot change keys, which Linux 6.14 and later can ({error})")
    })?;
    let begun = thread_time();
    for (out, into) in payload
        .chunks(BATCH_BYTES)
        .zip(place.chunks_mut(BATCH_BYTES))
    {
        from.write_all(out).map_err(failed)?;
        let mut filled = 0;
        while filled < into.len() {
            let received = receive(&to, &mut [IoSliceMut::new(&mut into[filled..])]);
            match received {
                Ok(received) if received.kind == Some(ContentType::ApplicationData) => {
                    filled += received.bytes;
                }
                Ok(received) => return Err(format!("a trial on loopback received {received:?}")),
                // Loopback delivers within the call that sends, as a rule.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => await_bytes(&to)?,
                Err(error) => {
                    let text = failure(&error).map(|failure| failure.to_string());
                    return Err(text.unwrap_or_else(|| failed(error)));
                }
            }
        }
    }
    Ok(thread_time().saturating_sub(begun))
}

fn await_bytes(socket: &TcpStream) -> Result<(), String> {
    let mut byte = [0];
    match socket.peek(&mut byte) {
        Ok(1) => Ok(()),
        Ok(_) => Err("a trial on loopback ended early".to_owned()),
        Err(error) => Err(format!("a trial on loopback failed: {error}")),
    }
}

/// Sends `payload` to `place` with records as the transport makes and opens them.
fn process(payload: &[u8], place: &mut [u8]) -> io::Result<Duration> {
    let (mut from, mut to) = pair()?;
    let secret = Secret::new()?;
    let direction = || Direction::new((0, secret.keys())).map_err(io::Error::other);
    let (mut tx, mut rx) = (direction()?, direction()?);
    let mut cipher = vec![0; BATCH_BYTES / PLAIN_BYTES_MAX * BYTES_MAX];
    let begun = thread_time();
    for (out, into) in payload
        .chunks(BATCH_BYTES)
        .zip(place.chunks_mut(BATCH_BYTES))
    {
        let mut filled = 0;
        for piece in out.chunks(PLAIN_BYTES_MAX) {
            filled += tx.seal(ContentType::ApplicationData, piece, &mut cipher[filled..]);
        }
        from.write_all(&cipher[..filled])?;
        to.read_exact(&mut cipher[..filled])?;
        let records = cipher[..filled].chunks_mut(PLAIN_BYTES_MAX + OVERHEAD);
        for (record, into) in records.zip(into.chunks_mut(PLAIN_BYTES_MAX)) {
            let opened = rx.open(record);
            let (_, plain) = opened.map_err(|_| io::Error::other("a record is damaged"))?;
            into.copy_from_slice(plain);
        }
    }
    Ok(thread_time().saturating_sub(begun))
}

/// Returns two connected sockets.
fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let from = TcpStream::connect(listener.local_addr()?)?;
    let own = from.local_addr()?;
    // Another process may have connected first.
    let to = loop {
        let (to, peer) = listener.accept()?;
        if peer == own {
            break to;
        }
    };
    for socket in [&from, &to] {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
    }
    Ok((from, to))
}

/// Key of one trial, in whose records nothing is secret.
#[derive(Clone, Copy)]
struct Secret {
    key: [u8; 32],
    iv: [u8; 12],
}

impl Secret {
    fn new() -> io::Result<Self> {
        let (mut key, mut iv) = ([0; 32], [0; 12]);
        let random = SystemRandom::new();
        random
            .fill(&mut key)
            .and_then(|()| random.fill(&mut iv))
            .map_err(|_| io::Error::other("no random numbers"))?;
        Ok(Self { key, iv })
    }

    /// Of AES-256-GCM: keys of other lengths are only made by handshakes.
    fn keys(self) -> ConnectionTrafficSecrets {
        ConnectionTrafficSecrets::Aes256Gcm {
            key: AeadKey::from(self.key),
            iv: Iv::from(self.iv),
        }
    }
}
