//! State of one client.

use super::socket::Interest;
use super::stream::Stream;
use crate::bucket::Bucket;
use crate::exchange::Exchange;
use std::time::Instant;

/// Activity of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing, until it wakes: no transfer is under way.
    Idle,
    /// Awaits its connection.
    Connecting,
    /// Sends or receives.
    Running,
    /// Waits for what its rate allows.
    Paused,
}

/// One client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) state: State,
    pub(super) stream: Option<Stream>,
    pub(super) interest: Interest,
    pub(super) exchange: Exchange,
    /// Head of the request.
    pub(super) request: Vec<u8>,
    pub(super) target: usize,
    /// When the transfer began: the call, or the request on a connection that was there.
    pub(super) began: Instant,
    /// When the request was sent.
    pub(super) asked: Instant,
    pub(super) has_first_byte: bool,
    /// Whether the connection served a transfer before.
    pub(super) is_reused: bool,
    pub(super) bucket: Option<Bucket>,
    /// When it wants to be looked at.
    pub(super) wake: Instant,
    /// Earliest time at which it will be.
    pub(super) queued: Option<Instant>,
}

impl Client {
    /// A client that begins at `wake`.
    pub(super) fn new(wake: Instant) -> Self {
        Self {
            state: State::Idle,
            stream: None,
            interest: Interest::None,
            exchange: Exchange::new(0),
            request: Vec::new(),
            target: 0,
            began: wake,
            asked: wake,
            has_first_byte: false,
            is_reused: false,
            bucket: None,
            wake,
            queued: None,
        }
    }
}
