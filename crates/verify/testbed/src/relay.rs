//! A relay between two nodes, in user space: what the kernel cannot be asked to do to a TCP stream.

use crate::IoError;
use crate::clock::pause;
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thiserror::Error;

/// Reasons why there is no relay.
#[derive(Debug, Error)]
pub enum RelayError {
    /// The target is no address.
    #[error("cannot relay to {found:?}, expected ADDRESS:PORT")]
    Target {
        /// The target found.
        found: String,
    },
    /// The operating system gives no socket.
    #[error(transparent)]
    Io(#[from] IoError),
}

/// Fault applied to the bytes that pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tamper {
    /// Nothing.
    #[default]
    Nothing,
    /// One bit of the next bytes is flipped.
    FlipBit,
    /// Half of the next bytes are passed on, then the connection is closed.
    Truncate,
    /// The eight bytes at the start of the next piece become a huge number.
    Oversize,
    /// Every piece comes later, by up to this many ms.
    Delay(u64),
    /// Nothing passes; the connections stay.
    Freeze,
    /// Connections are closed, new ones too.
    Close,
}

/// Passes on bytes in both directions. Only the way to the far end is tampered with, delay and freeze both ways.
#[derive(Debug)]
pub struct Relay {
    address: String,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    tamper: Mutex<(Tamper, u64)>,
    /// Rings when that changes, or all is over.
    changed: Condvar,
    /// Whether what is done only once is still to be done.
    is_armed: AtomicBool,
    /// How often bytes were tampered with.
    done: AtomicU64,
    is_over: AtomicBool,
    streams: Mutex<BTreeMap<u64, TcpStream>>,
}

/// How long a read waits before it looks whether all is over.
const LOOK: Duration = Duration::from_millis(20);
/// The same for a stream that is frozen.
const FROZEN_LOOK: Duration = Duration::from_millis(500);
/// Bytes that are passed on at once.
const PIECE_BYTES: usize = 64 << 10;

impl Relay {
    /// Returns a relay to the listener at `target` for each accepted connection.
    ///
    /// # Errors
    ///
    /// All of [`RelayError`].
    pub fn to(target: &str) -> Result<Self, RelayError> {
        let what = || IoError::of(format!("relay to {target}"));
        let target_address = target.parse().map_err(|_| RelayError::Target {
            found: target.to_owned(),
        })?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(what())?;
        let address = listener.local_addr().map_err(what())?.to_string();
        let shared = Arc::new(Shared {
            target: target_address,
            tamper: Mutex::default(),
            changed: Condvar::new(),
            is_armed: AtomicBool::new(false),
            done: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            streams: Mutex::default(),
        });
        let acceptor = std::thread::spawn({
            let shared = shared.clone();
            move || shared.accept(&listener)
        });
        Ok(Self {
            address,
            shared,
            acceptor: Some(acceptor),
        })
    }

    /// Where to connect.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// From now on the bytes that pass are treated so; what happens to them follows from `seed`.
    pub fn set(&self, tamper: Tamper, seed: u64) {
        *lock(&self.shared.tamper) = (tamper, seed);
        self.shared.changed.notify_all();
        self.shared.is_armed.store(true, Ordering::SeqCst);
        if tamper == Tamper::Close {
            self.shared.close_all();
        }
    }

    /// How often bytes were tampered with.
    pub fn done(&self) -> u64 {
        self.shared.done.load(Ordering::SeqCst)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        self.shared.changed.notify_all();
        self.shared.close_all();
        // It waits for a connection: this one ends it.
        let _ = TcpStream::connect(&self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for (number, near) in (0..).zip(listener.incoming().flatten()) {
            if self.is_over.load(Ordering::SeqCst) {
                return;
            }
            if self.tamper().0 == Tamper::Close {
                continue;
            }
            // No listener at present: the near end sees a closed connection, and tries again.
            let Ok(far) = TcpStream::connect(self.target) else {
                continue;
            };
            let _ = (near.set_nodelay(true), far.set_nodelay(true));
            let clones = (near.try_clone(), far.try_clone());
            let (Ok(near_again), Ok(far_again)) = clones else {
                continue;
            };
            if let (Ok(near), Ok(far)) = (near.try_clone(), far.try_clone()) {
                let mut streams = lock(&self.streams);
                streams.insert(2 * number, near);
                streams.insert(2 * number + 1, far);
            }
            let (there, back) = (self.clone(), self.clone());
            std::thread::spawn(move || {
                there.pass(&near, &far, number, true);
                there.forget(number);
            });
            std::thread::spawn(move || back.pass(&far_again, &near_again, number, false));
        }
    }

    fn tamper(&self) -> (Tamper, u64) {
        *lock(&self.tamper)
    }

    /// Waits while nothing may pass. Frozen streams are many where the ends try again and again: they must not be
    /// busy.
    fn await_thaw(&self) {
        let mut tamper = lock(&self.tamper);
        while tamper.0 == Tamper::Freeze && !self.is_over.load(Ordering::SeqCst) {
            // With a bound, since the end may come between the question and the wait.
            let waited = self.changed.wait_timeout(tamper, FROZEN_LOOK);
            tamper = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn close_all(&self) {
        for stream in lock(&self.streams).values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn forget(&self, number: u64) {
        let mut streams = lock(&self.streams);
        streams.remove(&(2 * number));
        streams.remove(&(2 * number + 1));
    }

    /// Passes on until one end closes.
    fn pass(&self, mut from: &TcpStream, mut to: &TcpStream, number: u64, is_forth: bool) {
        let mut piece = vec![0; PIECE_BYTES];
        let mut last = (Tamper::Nothing, 0);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(number);
        let _ = from.set_read_timeout(Some(LOOK));
        loop {
            self.await_thaw();
            let count = match from.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if is_timeout(&error) => {
                    if self.is_over.load(Ordering::SeqCst) {
                        break;
                    }
                    continue;
                }
                Err(_) => break,
            };
            // These may have come behind an order to freeze that the read did not know of.
            self.await_thaw();
            let order = self.tamper();
            if order.0 == Tamper::Close {
                break;
            }
            if order != last {
                rng = Xoshiro256PlusPlus::seed_from_u64(order.1 ^ number);
            }
            last = order;
            let is_once = matches!(
                order.0,
                Tamper::FlipBit | Tamper::Oversize | Tamper::Truncate
            );
            let is_mine = is_once && is_forth && self.is_armed.swap(false, Ordering::SeqCst);
            let bytes = &mut piece[..count];
            let mut is_last = false;
            match order.0 {
                Tamper::Delay(ms) => wait_ms(rng.random_range(0..=ms)),
                Tamper::FlipBit if is_mine => {
                    let at = rng.random_range(0..bytes.len());
                    bytes[at] ^= 1 << rng.random_range(0..8_u32);
                    self.done.fetch_add(1, Ordering::SeqCst);
                }
                Tamper::Oversize if is_mine => {
                    // Where the body length of a prefix stands, if the piece starts with one.
                    let field = bytes.len().min(20).saturating_sub(8)..bytes.len().min(20);
                    bytes[field].fill(0xff);
                    self.done.fetch_add(1, Ordering::SeqCst);
                }
                Tamper::Truncate if is_mine => {
                    is_last = true;
                    self.done.fetch_add(1, Ordering::SeqCst);
                }
                _ => {}
            }
            let kept = if is_last { count / 2 } else { count };
            if to.write_all(&piece[..kept]).is_err() || is_last {
                break;
            }
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

/// Waits without losing what comes meanwhile: the kernel keeps it.
fn wait_ms(ms: u64) {
    let until = Instant::now() + Duration::from_millis(ms);
    pause(until.saturating_duration_since(Instant::now()));
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends `words` through a relay with `tamper`; gives what comes out.
    fn passed(tamper: Tamper, words: &[u8]) -> Vec<u8> {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let relay = Relay::to(&server.local_addr().unwrap().to_string()).unwrap();
        relay.set(tamper, 7);
        let mut client = TcpStream::connect(relay.address()).unwrap();
        let (mut far, _) = server.accept().unwrap();
        client.write_all(words).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut found = Vec::new();
        far.read_to_end(&mut found).unwrap();
        found
    }

    #[test]
    fn a_relay_passes_on_everything_or_does_what_it_is_told() {
        let words = [0x55; 1000];
        assert_eq!(passed(Tamper::Nothing, &words), words);
        assert_eq!(passed(Tamper::Delay(5), &words), words);
        assert_eq!(passed(Tamper::Truncate, &words).len(), 500);
        let flipped = passed(Tamper::FlipBit, &words);
        let bits = flipped.iter().map(|byte| (byte ^ 0x55).count_ones());
        assert_eq!((flipped.len(), bits.sum::<u32>()), (1000, 1));
        let oversize = passed(Tamper::Oversize, &words);
        assert_eq!(oversize[12..20], [0xff; 8]);
        assert_eq!(oversize[..12], words[..12]);
    }

    #[test]
    fn a_frozen_relay_passes_everything_on_when_it_thaws() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let relay = Relay::to(&server.local_addr().unwrap().to_string()).unwrap();
        relay.set(Tamper::Freeze, 0);
        let mut client = TcpStream::connect(relay.address()).unwrap();
        let (mut far, _) = server.accept().unwrap();
        client.write_all(b"late").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        far.set_read_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        let mut found = Vec::new();
        assert!(is_timeout(&far.read_to_end(&mut found).unwrap_err()));
        relay.set(Tamper::Nothing, 0);
        far.set_read_timeout(None).unwrap();
        far.read_to_end(&mut found).unwrap();
        assert_eq!(found, b"late");
    }

    #[test]
    fn what_comes_behind_the_order_to_freeze_never_passes_if_the_relay_is_closed() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let relay = Relay::to(&server.local_addr().unwrap().to_string()).unwrap();
        let mut client = TcpStream::connect(relay.address()).unwrap();
        let (mut far, _) = server.accept().unwrap();
        client.write_all(b"1").unwrap();
        let mut one = [0];
        far.read_exact(&mut one).unwrap();
        // The relay waits in its next read, most likely.
        relay.set(Tamper::Freeze, 0);
        client.write_all(b"2").unwrap();
        relay.set(Tamper::Close, 0);
        let mut rest = Vec::new();
        // The end may be a reset as well.
        let _ = far.read_to_end(&mut rest);
        assert_eq!(rest, b"");
    }

    #[test]
    fn a_closed_relay_lets_nobody_through() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let relay = Relay::to(&server.local_addr().unwrap().to_string()).unwrap();
        relay.set(Tamper::Close, 0);
        let mut client = TcpStream::connect(relay.address()).unwrap();
        let mut byte = [0];
        assert!(matches!(client.read(&mut byte), Ok(0) | Err(_)));
    }
}
