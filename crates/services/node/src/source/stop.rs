//! Waiting for a peer without waiting for ever: every wait ends when the node drops its [`Stopper`].

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Held by the node. When it is dropped, every wait on its [`Stop`] ends.
#[derive(Debug)]
pub(crate) struct Stopper {
    _cord: UnixStream,
}

/// Held by the thread that waits.
#[derive(Debug)]
pub(crate) struct Stop {
    cord: UnixStream,
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// The peer can be read from or written to, or is gone.
    Ready,
    /// The second of two peers can be read from, and the first one cannot.
    Second,
    /// The node wants to end.
    Stopped,
    /// The time is over.
    TimedOut,
}

/// A cord with its two ends.
pub(crate) fn stop_cord() -> io::Result<(Stopper, Stop)> {
    let (held, cord) = UnixStream::pair()?;
    Ok((Stopper { _cord: held }, Stop { cord }))
}

impl Stop {
    /// Waits until `peer` is ready as `flags` say, for at most `timeout` if there is one.
    pub(crate) fn wait(
        &self,
        peer: BorrowedFd<'_>,
        flags: PollFlags,
        timeout: Option<Duration>,
    ) -> io::Result<Waited> {
        let mut fds = [
            PollFd::new(&self.cord, PollFlags::IN),
            PollFd::from_borrowed_fd(peer, flags),
        ];
        poll(&mut fds, timeout)?;
        Ok(match fds {
            [cord, _] if !cord.revents().is_empty() => Waited::Stopped,
            [_, peer] if !peer.revents().is_empty() => Waited::Ready,
            _ => Waited::TimedOut,
        })
    }

    /// Waits until one of two peers can be read from, for at most `timeout`.
    pub(crate) fn wait_for_either(
        &self,
        first: BorrowedFd<'_>,
        second: BorrowedFd<'_>,
        timeout: Duration,
    ) -> io::Result<Waited> {
        let mut fds = [
            PollFd::new(&self.cord, PollFlags::IN),
            PollFd::from_borrowed_fd(first, PollFlags::IN),
            PollFd::from_borrowed_fd(second, PollFlags::IN),
        ];
        poll(&mut fds, Some(timeout))?;
        let [is_cord, is_first, is_second] = fds.map(|fd| !fd.revents().is_empty());
        Ok(match (is_cord, is_first, is_second) {
            (true, _, _) => Waited::Stopped,
            (_, true, _) => Waited::Ready,
            (_, _, true) => Waited::Second,
            _ => Waited::TimedOut,
        })
    }

    /// Waits for the end, for at most `timeout`. Tells whether it has come.
    pub(crate) fn pause(&self, timeout: Duration) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.cord, PollFlags::IN)];
        poll(&mut fds, Some(timeout))?;
        Ok(!fds[0].revents().is_empty())
    }
}

/// Waits until `peer` is ready as `flags` say, for at most `timeout`. Tells whether it is.
pub(crate) fn wait_only(peer: impl AsFd, flags: PollFlags, timeout: Duration) -> io::Result<bool> {
    let mut fds = [PollFd::new(&peer, flags)];
    poll(&mut fds, Some(timeout))?;
    Ok(!fds[0].revents().is_empty())
}

fn poll(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    loop {
        match rustix::event::poll(fds, timeout.as_ref()) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn a_wait_ends_with_the_peer_the_time_or_the_node() {
        let (stopper, stop) = stop_cord().unwrap();
        let (mut near, far) = UnixStream::pair().unwrap();
        let none = Some(Duration::ZERO);
        assert_eq!(
            stop.wait(far.as_fd(), PollFlags::IN, none).unwrap(),
            Waited::TimedOut
        );
        assert!(!wait_only(&far, PollFlags::IN, Duration::ZERO).unwrap());
        near.write_all(b"x").unwrap();
        assert_eq!(
            stop.wait(far.as_fd(), PollFlags::IN, None).unwrap(),
            Waited::Ready
        );
        assert!(!stop.pause(Duration::ZERO).unwrap());
        drop(stopper);
        assert_eq!(
            stop.wait(far.as_fd(), PollFlags::IN, None).unwrap(),
            Waited::Stopped
        );
        assert!(stop.pause(Duration::from_secs(60)).unwrap());
    }
}
