//! Strangers that connect to the ports of a farm and do not behave.

use crate::clock::pause;
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::process::{Resource, Rlimit};
use sheaf_protocol::{Prefix, WireKind};
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use thiserror::Error;

/// A target that is no address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{found:?} is no address of a node")]
pub struct AddressError {
    /// The target found.
    pub found: String,
}

/// How long a connection may take.
const CONNECT_MAX: Duration = Duration::from_millis(200);
/// Pause between two looks at whether it is over.
const LOOK: Duration = Duration::from_millis(10);
/// Looks between two bytes of a slow peer: a byte a second.
const LOOKS_PER_BYTE: u32 = 100;

/// Peers that are there until this is dropped.
#[derive(Debug)]
pub struct Peers {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Peers {
    /// `count` connections to each of `targets`, which say the start of a frame, one byte a second.
    ///
    /// # Errors
    ///
    /// [`AddressError`] if a target is no address.
    pub fn slow(targets: &[String], count: u32) -> Result<Self, AddressError> {
        allow_files();
        let targets = addresses(targets)?;
        Ok(Self::run(move |is_over| {
            let words = Prefix::new(WireKind::Control, &[0; 64], 0).encode();
            let peers = (0..count).flat_map(|_| targets.iter());
            // A full backlog refuses: a connection that is not accepted is no load.
            let connect = |target| TcpStream::connect_timeout(target, CONNECT_MAX).ok();
            let mut peers: Vec<TcpStream> = peers
                .take_while(|_| !is_over.load(Ordering::SeqCst))
                .filter_map(connect)
                .collect();
            for look in 0_u32.. {
                if is_over.load(Ordering::SeqCst) {
                    return;
                }
                let said = (look / LOOKS_PER_BYTE) as usize;
                if look % LOOKS_PER_BYTE == 0 && said + 1 < words.len() {
                    peers.retain_mut(|peer| peer.write_all(&words[said..=said]).is_ok());
                }
                pause(LOOK);
            }
        }))
    }

    /// One connection after the other to each of `targets`: garbage, huge lengths, other versions, cut frames.
    ///
    /// # Errors
    ///
    /// [`AddressError`] if a target is no address.
    pub fn lying(targets: &[String], seed: u64) -> Result<Self, AddressError> {
        let targets = addresses(targets)?;
        Ok(Self::run(move |is_over| {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
            while !is_over.load(Ordering::SeqCst) {
                for target in &targets {
                    if let Ok(mut peer) = TcpStream::connect_timeout(target, CONNECT_MAX) {
                        // It may close while we speak.
                        let _ = peer.write_all(&lie(&mut rng));
                    }
                }
                pause(Duration::from_millis(1));
            }
        }))
    }

    fn run(task: impl FnOnce(&AtomicBool) + Send + 'static) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let flag = is_over.clone();
        Self {
            is_over,
            thread: Some(std::thread::spawn(move || task(&flag))),
        }
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Something that no node says.
fn lie(rng: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    let head: Vec<u8> = (0..rng.random_range(0..200_u32))
        .map(|_| rng.random())
        .collect();
    let kinds = [WireKind::Control, WireKind::Stf, WireKind::DataHello];
    let kind = kinds[rng.random_range(0..kinds.len())];
    let mut bytes = Prefix::new(kind, &head, rng.random_range(0..100))
        .encode()
        .to_vec();
    match rng.random_range(0..6_u32) {
        // 4 GiB of head, or more of body than there is memory.
        0 => bytes[8..12].fill(0xff),
        1 => bytes[12..20].fill(0xff),
        2 => bytes[4] = rng.random(),
        3 => bytes.truncate(rng.random_range(0..Prefix::SIZE)),
        4 => bytes = (0..100).map(|_| rng.random()).collect(),
        // A well-formed frame of nonsense.
        _ => {}
    }
    bytes.extend(head);
    bytes
}

fn addresses(targets: &[String]) -> Result<Vec<SocketAddr>, AddressError> {
    let parse = |text: &String| {
        text.parse().map_err(|_| AddressError {
            found: text.clone(),
        })
    };
    targets.iter().map(parse).collect()
}

/// As many files as this process may have at all.
fn allow_files() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(error) = rustix::process::setrlimit(Resource::Nofile, all) {
        tracing::warn!(%error, "Cannot have more files");
    }
}
