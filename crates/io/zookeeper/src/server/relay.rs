//! A TCP relay between a client and a server, which can be set to misbehave.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Behaviour of the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Everything passes.
    Open,
    /// Nothing passes and nothing is lost: bytes wait, connections stand. As a path that swallows packets.
    Held,
    /// Every connection is closed, and new ones as soon as they come. As a server that is down.
    Closed,
    /// Requests pass, answers wait: requests take effect and their answers do not arrive.
    Deaf,
}

/// Listens on a loopback address and passes bytes on to one server, as its [`Flow`] says.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    flow: Flow,
    /// Bytes that have gone to the server.
    sent: u64,
    streams: Vec<TcpStream>,
    is_over: bool,
}

impl Relay {
    /// Starts one in front of `server`, which is HOST:PORT.
    ///
    /// # Errors
    ///
    /// If no loopback port can be had.
    pub fn start(server: &str) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let state = State {
            flow: Flow::Open,
            sent: 0,
            streams: Vec::new(),
            is_over: false,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let (accepting, server) = (shared.clone(), server.to_owned());
        thread::Builder::new()
            .name("relay".into())
            .spawn(move || accept(&accepting, &listener, &server))?;
        Ok(Self { address, shared })
    }

    /// HOST:PORT for clients.
    #[must_use]
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Changes what is done with bytes and connections.
    pub fn set(&self, flow: Flow) {
        let mut state = self.shared.lock();
        state.flow = flow;
        if flow == Flow::Closed {
            state.close_all();
        }
        self.shared.changed.notify_all();
    }

    /// How many bytes have gone to the server so far.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.shared.lock().sent
    }

    /// Waits until more than `bytes` bytes have gone to the server.
    pub fn wait_sent(&self, bytes: u64) {
        let mut state = self.shared.lock();
        while state.sent <= bytes && !state.is_over {
            state = wait(&self.shared.changed, state);
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.is_over = true;
        state.close_all();
        self.shared.changed.notify_all();
        drop(state);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn close_all(&mut self) {
        for stream in self.streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn wait<'a>(changed: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    changed.wait(state).unwrap_or_else(PoisonError::into_inner)
}

fn accept(shared: &Arc<Shared>, listener: &TcpListener, server: &str) {
    while let Ok((client, _)) = listener.accept() {
        let mut state = shared.lock();
        if state.is_over {
            return;
        }
        if state.flow == Flow::Closed {
            continue;
        }
        let Ok(upstream) = TcpStream::connect(server) else {
            continue;
        };
        let _ = (client.set_nodelay(true), upstream.set_nodelay(true));
        let copies = [&client, &client, &upstream, &upstream].map(TcpStream::try_clone);
        let [
            Ok(from_client),
            Ok(to_client),
            Ok(from_server),
            Ok(to_server),
        ] = copies
        else {
            continue;
        };
        state.streams.extend([client, upstream]);
        drop(state);
        let (up, down) = (shared.clone(), shared.clone());
        thread::spawn(move || pass(&up, from_client, to_server, true));
        thread::spawn(move || pass(&down, from_server, to_client, false));
    }
}

/// Passes bytes on in one direction until either side closes.
fn pass(shared: &Shared, mut from: TcpStream, mut to: TcpStream, is_up: bool) {
    let mut buffer = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let mut state = shared.lock();
        while !state.is_over && (state.flow == Flow::Held || (state.flow == Flow::Deaf && !is_up)) {
            state = wait(&shared.changed, state);
        }
        drop(state);
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
        if is_up {
            shared.lock().sent += count as u64;
            shared.changed.notify_all();
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
