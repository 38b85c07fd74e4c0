//! Close notice: the last frame to a peer whose connection is closed for a fault of the peer.

use super::connection::{Connection, Shared, Side};
use super::stats::Stats;
use super::stream::Stream;
use crate::transport::{CloseReason, ConnId, Frame};
use std::io::{ErrorKind, Read};
use std::net::Shutdown;
use std::time::Instant;

/// Function that gives the last frame to a peer whose connection is closed for a reason, if any.
pub type CloseNotice = fn(&CloseReason) -> Option<Frame>;

/// Bytes of a hostile peer that are still read, so that the notice reaches it before the reset does.
const DRAIN_BYTES_MAX: usize = 1 << 20;

impl Connection {
    /// Sends `frame` behind all that is queued, as far as the kernel takes it at once, and shuts down the sending side.
    pub(super) fn send_close_notice(&mut self, frame: Frame, shared: &mut Shared, now: Instant) {
        // A queue that is full, or a stream that is broken, carries no more.
        if !self.is_open() || self.outbox.push(frame).is_err() {
            return;
        }
        self.finish();
        self.flush_once(shared, now);
        let _ = self.socket().shutdown(Shutdown::Write);
        // Closing a socket with unread bytes resets it, and what we said may be lost with that.
        let mut left = DRAIN_BYTES_MAX;
        let mut buffer = std::mem::take(&mut shared.buffer);
        while left > 0 {
            match (&*self.socket()).read(&mut buffer) {
                Ok(0) => break,
                Ok(bytes) => left = left.saturating_sub(bytes),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        shared.buffer = buffer;
    }
}

/// Sends `frame` to a peer that is not accepted.
pub(super) fn refuse_peer(stream: Stream, frame: Frame, shared: &mut Shared, now: Instant) {
    let (conn, stats) = (ConnId(u64::MAX), shared.stats);
    let mut connection = Connection::new(conn, Side::Accepting, stream, None, &shared.config, now);
    connection.send_close_notice(frame, shared, now);
    // It never was a connection.
    shared.stats = Stats {
        writes: shared.stats.writes,
        ..stats
    };
}
