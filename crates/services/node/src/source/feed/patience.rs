//! Patience with producers that send nothing.
//!
//! A producer may be silent as long as it likes, while no other one waits. One that waits is not kept out without a
//! word: the log names the silent one, and when the idle timeout is over its place is given away. One whose machine
//! has gone without an end of its stream is found by the kernel.

use super::Origin;
use crate::source::stop::{Stop, Waited, wait_only};
use rustix::event::PollFlags;
use rustix::net::{RecvFlags, recv, sockopt};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};
use tracing::warn;

/// Silence of a connection after which the kernel asks whether the other machine is there, how often it asks again, and
/// how many questions may stay without an answer.
const KEEP_IDLE: Duration = Duration::from_secs(10);
const KEEP_INTERVAL: Duration = Duration::from_secs(5);
const KEEP_PROBES: u32 = 3;
/// Silence after which the log says that another producer waits; then after twice as long, and so on.
const WARN_FIRST: Duration = Duration::from_secs(5);
/// A wait without a limit is begun again after this.
const LONG: Duration = Duration::from_secs(3600);

/// A producer that has connected.
pub(super) struct Producer {
    pub(super) peer: String,
    pub(super) stream: File,
}

impl Producer {
    /// Returns whether it has ended its stream and sent nothing, as a check of the port does.
    fn has_gone(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match recv(&self.stream, &mut [0; 1], flags) {
            Ok((_, bytes)) => bytes == 0,
            Err(error) => io::Error::from(error).kind() != ErrorKind::WouldBlock,
        }
    }
}

/// Has the kernel ask whether the other machine is there, so that a connection to one that is not has an end.
pub(super) fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEP_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEP_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, KEEP_PROBES)?;
    Ok(())
}

/// The stream of a producer. Its reads end when the feed does, and when a silent producer is replaced.
pub(super) struct Patience<'a> {
    peer: &'a str,
    stream: &'a File,
    stop: &'a Stop,
    origin: &'a Origin,
    idle_timeout: Duration,
    /// When it last sent something, or was last waited for.
    silent_since: Instant,
    pub(super) read_bytes: u64,
    pub(super) is_stopped: bool,
    /// Whether the next producer takes its place.
    pub(super) is_replaced: bool,
    /// The producer that is served next.
    pub(super) candidate: Option<Producer>,
}

/// Result of a wait for bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    Bytes,
    End,
}

impl<'a> Patience<'a> {
    pub(super) fn new(
        peer: &'a str,
        stream: &'a File,
        stop: &'a Stop,
        origin: &'a Origin,
        idle_timeout: Duration,
    ) -> Self {
        Self {
            peer,
            stream,
            stop,
            origin,
            idle_timeout,
            silent_since: Instant::now(),
            read_bytes: 0,
            is_stopped: false,
            is_replaced: false,
            candidate: None,
        }
    }

    /// Returns for how many seconds it has sent nothing.
    pub(super) fn silent_s(&self) -> u64 {
        self.silent_since.elapsed().as_secs()
    }

    /// Waits until there is something to read, the feed ends, or another producer takes the place of this one.
    fn wait(&mut self) -> io::Result<Came> {
        let Some(listener) = self.origin.listener() else {
            let waited = self.stop.wait(self.stream.as_fd(), PollFlags::IN, None)?;
            return Ok(self.came(waited));
        };
        // What the FLP made it wait for is no silence of its own.
        self.silent_since = Instant::now();
        let mut warn_after = WARN_FIRST;
        loop {
            let silent = self.silent_since.elapsed();
            let is_over = !self.idle_timeout.is_zero() && silent >= self.idle_timeout;
            if is_over {
                let stream = self.stream.as_fd();
                let (other, timeout) = match &self.candidate {
                    Some(candidate) => (candidate.stream.as_fd(), self.idle_timeout),
                    None => (listener, LONG),
                };
                match self.stop.wait_for_either(stream, other, timeout)? {
                    Waited::Second if self.gives_way()? => return Ok(Came::End),
                    Waited::Second => {}
                    // One that is silent as well makes room for the next.
                    Waited::TimedOut if wait_only(listener, PollFlags::IN, Duration::ZERO)? => {
                        self.candidate = None;
                    }
                    Waited::TimedOut => {}
                    waited => return Ok(self.came(waited)),
                }
                continue;
            }
            if silent >= warn_after {
                self.warn(listener)?;
                warn_after *= 2;
            }
            let ends = [warn_after, self.idle_timeout];
            let next = ends.into_iter().filter(|end| *end > silent).min();
            let timeout = next.map_or(LONG, |end| end - silent);
            // The stream alone: one that waits at the listener would end the wait at once.
            let stream = self.stream.as_fd();
            match self.stop.wait(stream, PollFlags::IN, Some(timeout))? {
                Waited::TimedOut => {}
                waited => return Ok(self.came(waited)),
            }
        }
    }

    fn came(&mut self, waited: Waited) -> Came {
        self.is_stopped = waited == Waited::Stopped;
        if self.is_stopped {
            Came::End
        } else {
            Came::Bytes
        }
    }

    fn warn(&self, listener: BorrowedFd<'_>) -> io::Result<()> {
        if wait_only(listener, PollFlags::IN, Duration::ZERO)? {
            let (peer, silent_s) = (self.peer, self.silent_s());
            let idle_timeout_ms = self.idle_timeout.as_millis();
            warn!(
                peer,
                silent_s, idle_timeout_ms, "A producer is silent while another one waits"
            );
        }
        Ok(())
    }

    /// Accepts the producer that waits, and then looks what it has sent; `true` if it takes the place of this one.
    fn gives_way(&mut self) -> io::Result<bool> {
        if let Some(candidate) = self.candidate.take() {
            self.is_replaced = !candidate.has_gone();
            self.candidate = self.is_replaced.then_some(candidate);
            return Ok(self.is_replaced);
        }
        match self.origin.accept() {
            Ok(next) => self.candidate = Some(next),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => {
                warn!(%error, "A producer cannot be accepted");
                self.is_stopped = self.stop.pause(super::ACCEPT_PAUSE)?;
            }
        }
        Ok(self.is_stopped)
    }
}

impl Read for Patience<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.wait()? == Came::End {
            return Ok(0);
        }
        let mut stream = self.stream;
        let bytes = stream.read(buffer)?;
        self.read_bytes += bytes as u64;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_producer_over_tcp_is_asked_whether_it_is_there() {
        let origin = Origin::Tcp(TcpListener::bind("127.0.0.1:0").unwrap());
        let Origin::Tcp(listener) = &origin else {
            unreachable!("just made")
        };
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = origin.accept().unwrap();
        assert_eq!(far.peer, near.local_addr().unwrap().to_string());
        assert!(sockopt::socket_keepalive(&far.stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&far.stream).unwrap(), KEEP_IDLE);
        let found = sockopt::tcp_keepintvl(&far.stream).unwrap();
        assert_eq!(found, KEEP_INTERVAL);
        assert_eq!(sockopt::tcp_keepcnt(&far.stream).unwrap(), KEEP_PROBES);
        assert!(!far.has_gone());
        drop(near);
        assert!(wait_only(&far.stream, PollFlags::IN, Duration::from_secs(30)).unwrap());
        assert!(far.has_gone());
    }
}
