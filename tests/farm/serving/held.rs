//! Connections of clients, and the servers that they reach.

use sheaf_testbed::site::{Place, Site};
use std::io::{Read as _, Write as _};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longest wait for anything.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Port of the service.
pub(super) const PORT: u16 = 8080;

/// Byte that asks a server for a transfer; others ask for its name.
const TRANSFER: u8 = b'T';
/// Bytes of a transfer.
const TRANSFER_BYTES: usize = 32 << 20;

/// Connection of a client: server that it is at.
pub(super) struct Held {
    pub(super) stream: TcpStream,
    pub(super) server: String,
}

impl Held {
    /// Opens a connection and reads the name of its server.
    pub(super) fn open(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut held = Self {
            stream,
            server: String::new(),
        };
        held.server = held.name()?;
        Ok(held)
    }

    pub(super) fn name(&mut self) -> std::io::Result<String> {
        let mut name = [0; 3];
        self.stream.read_exact(&mut name)?;
        Ok(String::from_utf8_lossy(&name).trim().to_owned())
    }

    /// Has the server send a transfer, and reads its begin. More is under way than buffers hold.
    pub(super) fn begin_transfer(&mut self) -> std::io::Result<()> {
        self.stream.write_all(&[TRANSFER])?;
        self.stream.read_exact(&mut vec![0; TRANSFER_BYTES / 16])
    }

    /// Reads the rest of a transfer; what came in.
    pub(super) fn end_transfer(&mut self) -> std::io::Result<Vec<u8>> {
        let mut rest = vec![0; TRANSFER_BYTES - TRANSFER_BYTES / 16];
        self.stream.read_exact(&mut rest)?;
        Ok(rest)
    }

    /// Whether the connection still reaches its server.
    pub(super) fn is_well(&mut self) -> bool {
        self.stream.write_all(b"x").is_ok() && self.name().is_ok_and(|name| name == self.server)
    }
}

pub(super) fn transfer() -> Vec<u8> {
    (0..TRANSFER_BYTES).map(|at| (at * 7 % 251) as u8).collect()
}

/// Serves in a place: each connection gets the name of the server, and again for each byte.
pub(super) fn serve(site: &Site, place: &Place, is_open: Arc<AtomicBool>) {
    let name = format!("{:<3}", place.name);
    let bind = move || TcpListener::bind((Ipv6Addr::UNSPECIFIED, PORT));
    let listener = site.inside(place, bind).expect("a thread in the place");
    let listener = listener
        .join()
        .expect("no panic")
        .expect("the place")
        .expect("a port");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            if !is_open.load(Ordering::Relaxed) {
                return; // The listener is closed: connections are refused.
            }
            let name = name.clone();
            std::thread::spawn(move || {
                let mut byte = [0];
                let _ = stream.write_all(name.as_bytes());
                while stream.read(&mut byte).is_ok_and(|found| found > 0) {
                    let is_sent = match byte {
                        [TRANSFER] => stream.write_all(&transfer()),
                        _ => stream.write_all(name.as_bytes()),
                    };
                    if is_sent.is_err() {
                        return;
                    }
                }
            });
        }
    });
}
