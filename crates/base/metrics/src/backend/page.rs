//! Page of a process that a scraper asks for: the metrics as Prometheus text.
//!
//! Open to strangers, so that its use of the process is bounded: one connection at a time, a head of 8 KiB, a few
//! seconds.

use crate::registry::Registry;
use crate::reporting::Verbosity;
use crate::text::CONTENT_TYPE;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Largest head of a request.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Time for the head of a request, and for the answer to be taken.
const WITHIN: Duration = Duration::from_secs(2);

/// Listener with its thread. Dropping it closes both.
#[derive(Debug)]
pub(crate) struct Page {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Page {
    /// Serves the metrics of `registry` up to `verbosity` at `address`.
    pub(crate) fn serve(
        address: &str,
        registry: Arc<Registry>,
        verbosity: Verbosity,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let run = move || {
            for stream in listener.incoming() {
                if over.load(Ordering::Acquire) {
                    break;
                }
                // A client that fails harms itself alone.
                let _ = stream.and_then(|stream| answer(stream, &registry, verbosity));
            }
        };
        let thread = std::thread::Builder::new().name("metrics-page".to_owned());
        Ok(Self {
            address,
            is_over,
            thread: Some(thread.spawn(run)?),
        })
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // A connection wakes the thread. Without one it is left behind.
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(match address {
                SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        if TcpStream::connect_timeout(&address, WITHIN).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

/// Answers one request.
fn answer(mut stream: TcpStream, registry: &Registry, verbosity: Verbosity) -> io::Result<()> {
    let head = head(&mut stream)?;
    let mut words = head.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next());
    let path = path.and_then(|path| path.split('?').next());
    let (status, kind, body) = match (method, path) {
        ("GET", Some("/metrics" | "/")) => {
            let mut text = String::new();
            registry.encode_for(verbosity, &mut text);
            ("200 OK", CONTENT_TYPE, text)
        }
        ("GET", _) => (
            "404 Not Found",
            "text/plain",
            "expected /metrics\n".to_owned(),
        ),
        _ => (
            "405 Method Not Allowed",
            "text/plain",
            "expected GET\n".to_owned(),
        ),
    };
    stream.set_write_timeout(Some(WITHIN))?;
    write!(
        stream,
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// Reads the head of a request.
fn head(stream: &mut TcpStream) -> io::Result<String> {
    let end = Instant::now() + WITHIN;
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while !head.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || head.len() > HEAD_BYTES_MAX {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let length = stream.read(&mut buffer)?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&buffer[..length]);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(page: &Page, request: &str) -> String {
        let mut stream = TcpStream::connect(page.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        // A head beyond the limit ends in a reset.
        let _ = stream.read_to_string(&mut text);
        text
    }

    #[test]
    fn a_scraper_gets_the_metrics_and_others_an_error() {
        let registry = Arc::new(Registry::default());
        registry.counter("a_total", "Help.", &[]).add(3);
        registry.counter("debug_total", "Help.", &[]).add(3);
        let policy = crate::Policy::new([("^debug_", Verbosity::Debug)]);
        registry.set_policy(policy.unwrap());
        let page = Page::serve("127.0.0.1:0", registry, Verbosity::Info).unwrap();
        let text = ask(&page, "GET /metrics?x=1 HTTP/1.1\r\nhost: a\r\n\r\n");
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())));
        assert!(body.ends_with("\na_total 3\n"), "{body}");
        assert!(ask(&page, "GET /x HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(ask(&page, "POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        assert_eq!(ask(&page, &"x".repeat(3 * HEAD_BYTES_MAX)), "");
        // The next client is served.
        assert!(ask(&page, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
        let address = page.address;
        drop(page);
        assert!(TcpStream::connect(address).is_err(), "the port is closed");
    }
}
