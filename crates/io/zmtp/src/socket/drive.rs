//! Driver of a socket: polling for readiness, waiting, and the end.

use super::{Incoming, Pumped, Socket};
use crate::error::PeerError;
use crate::socket_type::SocketType;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::io;
use std::time::{Duration, Instant};

/// Ready descriptors that one look takes.
const READY_MAX: usize = 256;

impl Socket {
    /// Does what can be done now, without waiting.
    ///
    /// # Errors
    ///
    /// If the operating system cannot say what is ready.
    pub fn drive(&mut self) -> io::Result<()> {
        let mut ready: Vec<epoll::Event> = Vec::with_capacity(READY_MAX);
        loop {
            ready.clear();
            match epoll::wait(
                &self.epoll,
                spare_capacity(&mut ready),
                Some(&Timespec::default()),
            ) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let now = Instant::now();
            for event in &ready {
                self.look_at(event.data.u64(), event.flags, now);
            }
            if ready.len() < READY_MAX {
                break;
            }
        }
        self.keep_time(Instant::now());
        if self.socket_type == SocketType::Push {
            self.send_returned();
        }
        Ok(())
    }

    fn look_at(&mut self, id: u64, flags: EventFlags, now: Instant) {
        if self.listeners.contains_key(&id) {
            self.accept(id, now);
            return;
        }
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        if !peer.is_connected {
            if !flags.intersects(EventFlags::OUT | EventFlags::ERR | EventFlags::HUP) {
                return;
            }
            if let Err(error) = peer.stream.take_error() {
                self.close(id, PeerError::Unreachable(error.kind()), now);
                return;
            }
            peer.is_connected = true;
        }
        if flags.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::ERR | EventFlags::HUP)
        {
            peer.is_readable = true;
        }
        self.flush(id, now);
        self.give_turn(id);
        // Who takes messages reads them when it wants them; all else is done at once.
        while let Some(peer) = self.peers.get(&id) {
            if self.socket_type.receives() && peer.session.is_ready() {
                return;
            }
            match self.pump_until_ready(id, now) {
                Pumped::Busy => {}
                _ => return,
            }
        }
    }

    /// As [`pump`](Self::pump), but of a receiver only until the handshake is done, so that no message is taken.
    fn pump_until_ready(&mut self, id: u64, now: Instant) -> Pumped {
        if !self.socket_type.receives() {
            return self.pump(id, now);
        }
        loop {
            let Some(peer) = self.peers.get_mut(&id) else {
                return Pumped::Gone;
            };
            match peer.session.poll_incoming() {
                Ok(Some(Incoming::Ready(hello))) => {
                    self.greet(id, hello, now);
                    return Pumped::Idle;
                }
                // Before READY no message is given out.
                Ok(Some(Incoming::Message(_)) | None) => {}
                Err(reason) => {
                    self.flush(id, now);
                    self.close(id, reason, now);
                    return Pumped::Gone;
                }
            }
            match peer.session.fill(&peer.stream, now) {
                Ok(0) => {
                    let reason = peer.session.end_of_stream();
                    self.close(id, reason, now);
                    return Pumped::Gone;
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    peer.is_readable = false;
                    return Pumped::Idle;
                }
                Err(error) => {
                    self.close(id, PeerError::Io(error.kind()), now);
                    return Pumped::Gone;
                }
            }
        }
    }

    /// Waits until something can be done, for at most `timeout`, and does it.
    ///
    /// # Errors
    ///
    /// As [`drive`](Self::drive).
    pub fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let left = self
            .deadline()
            .map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let timeout = left.map_or(timeout, |left| left.min(timeout));
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        match rustix::event::poll(
            &mut [PollFd::new(&self.epoll, PollFlags::IN)],
            Some(&timeout),
        ) {
            Ok(_) | Err(Errno::INTR) => self.drive(),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes what is queued, tells all peers that nothing more comes, and waits until they have ended their side, so
    /// that nothing is thrown away on the way; for at most `timeout` in all. Gives how many messages are left. A socket
    /// that receives just ends.
    ///
    /// # Errors
    ///
    /// As [`drive`](Self::drive).
    pub fn finish(&mut self, timeout: Duration) -> io::Result<usize> {
        let end = Instant::now() + timeout;
        self.listeners.clear();
        if self.socket_type.receives() {
            self.connectors.clear();
            self.peers.clear();
        }
        let left = |end: Instant| end.saturating_duration_since(Instant::now());
        while self.queued_messages() > 0 && !left(end).is_zero() {
            self.wait(left(end))?;
        }
        self.connectors.clear();
        let messages = self.queued_messages();
        self.peers.values().for_each(|peer| peer.stream.end());
        while !self.peers.is_empty() && !left(end).is_zero() {
            self.wait(left(end))?;
        }
        Ok(messages)
    }
}
