//! Counts of a socket.

use crate::error::PeerError;
use crate::message::Message;
use std::collections::BTreeMap;

/// Counts of a socket since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Handshakes that were done.
    pub peers: u64,
    /// Messages taken of peers.
    pub received_messages: u64,
    /// Bytes of them.
    pub received_bytes: u64,
    /// Messages whose last byte the kernel has taken.
    pub sent_messages: u64,
    /// Messages that a PUB has dropped for a subscriber without room.
    pub dropped_messages: u64,
    /// Messages that a peer did not wholly take before it went.
    pub returned_messages: u64,
    /// Connections that ended, by [`PeerError::code`].
    pub ended: BTreeMap<&'static str, u64>,
}

impl Stats {
    /// Connections that ended as `code` says.
    #[must_use]
    pub fn ended_as(&self, code: &str) -> u64 {
        self.ended.get(code).copied().unwrap_or(0)
    }

    pub(super) fn received(&mut self, message: &Message) {
        self.received_messages += 1;
        self.received_bytes += message.bytes();
    }

    pub(super) fn end(&mut self, reason: &PeerError) {
        *self.ended.entry(reason.code()).or_default() += 1;
    }
}
