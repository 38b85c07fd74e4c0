//! Programs of others that run beside a collector: found or skipped by name, killed when dropped.

use super::PATIENCE;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Process that is killed when dropped.
pub(crate) struct Peer(Child);

impl Peer {
    /// Starts `program`; `None`, and a line that says so, if it is not installed.
    pub(crate) fn start(program: &str, args: &[&str], folder: &Path) -> Option<Self> {
        let child = Command::new(program)
            .args(args)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match child {
            Ok(child) => Some(Self(child)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                println!("skipped: {program} is not installed");
                None
            }
            Err(error) => panic!("{program}: {error}"),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns an address of this machine that is free now.
pub(crate) fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
}

/// Waits until `address` takes connections.
#[track_caller]
pub(crate) fn await_listening(address: SocketAddr) {
    let begun = Instant::now();
    while TcpStream::connect(address).is_err() {
        assert!(begun.elapsed() < PATIENCE, "{address} does not listen");
        pause();
    }
}

/// Waits a moment before a program of others is asked again: it does not say when it is ready.
#[expect(
    clippy::disallowed_methods,
    reason = "the event is awaited by asking, and the program asked needs the processor"
)]
pub(crate) fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}
