//! Line between a shipper and a server, which may be bad.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Bytes of one read from which on it is a piece of a body, and not the head of a request.
const BODY: usize = 4096;

/// How the line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    Good,
    /// Turns over a bit in each piece of a body that is sent.
    Damages,
    /// Cuts the connection in the middle of the next large body, once.
    CutsOnce,
    /// Tells other checksums of objects than the server does.
    WrongSums,
}

/// End that bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Shipper,
    Server,
}

/// Relay on a port of its own.
pub(super) struct Relay {
    at: SocketAddr,
    line: Arc<Mutex<Line>>,
}

impl Relay {
    pub(super) fn start(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let at = listener.local_addr().expect("bound");
        let line = Arc::new(Mutex::new(Line::Good));
        let of_all = Arc::clone(&line);
        // It ends with the process, like the threads of its connections.
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else {
                    continue;
                };
                let back = (far.try_clone(), near.try_clone());
                let (Ok(from), Ok(to)) = back else {
                    continue;
                };
                let (line, of_back) = (Arc::clone(&of_all), Arc::clone(&of_all));
                std::thread::spawn(move || pass(From::Shipper, near, far, &line));
                std::thread::spawn(move || pass(From::Server, from, to, &of_back));
            }
        });
        Self { at, line }
    }

    pub(super) fn endpoint(&self) -> String {
        format!("http://{}", self.at)
    }

    pub(super) fn set(&self, line: Line) {
        *self.line.lock().expect("no thread panics") = line;
    }

    pub(super) fn line(&self) -> Line {
        *self.line.lock().expect("no thread panics")
    }
}

/// Passes bytes on until one end closes, in the way of `line`.
fn pass(end: From, mut from: TcpStream, mut to: TcpStream, line: &Mutex<Line>) {
    let mut bytes = vec![0; 1 << 16];
    let mut of_body = 0;
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let is_body = count >= BODY;
        of_body += if is_body { count } else { 0 };
        let mut line = line.lock().expect("no thread panics");
        match (end, *line) {
            (From::Shipper, Line::Damages) if is_body => bytes[count - 1] ^= 1,
            (From::Shipper, Line::CutsOnce) if of_body > 2_000_000 => {
                *line = Line::Good;
                break;
            }
            (From::Server, Line::WrongSums) => change_sum(&mut bytes[..count]),
            _ => {}
        }
        drop(line);
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    // The other end may have closed it before.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// Changes the first letter of a checksum in the head of an answer.
fn change_sum(head: &mut [u8]) {
    let name = b"x-amz-checksum-crc32c: ";
    let mut places = head.windows(name.len());
    let found = places.position(|place| place.eq_ignore_ascii_case(name));
    if let Some(letter) = found.and_then(|at| head.get_mut(at + name.len())) {
        *letter = if *letter == b'A' { b'B' } else { b'A' };
    }
}
