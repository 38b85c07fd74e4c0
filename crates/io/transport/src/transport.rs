//! The trait, and the types that callers and implementations share.

use crate::fault::ShmFault;
use crate::unix::UnixBindError;
use crate::unix::UnixPathError;
use bytes::Bytes;
use sheaf_auth::Identity;
use sheaf_protocol::{Limits, Prefix, PrefixError, WireKind};
use std::io;
use std::time::Duration;
use thiserror::Error;

/// Bytes of the largest head that a peer may send before it is [admitted](Transport::admit). The largest hello has an
/// address of 1024 bytes.
pub const EARLY_HEAD_BYTES_MAX: u32 = 4 << 10;

/// One connection of one endpoint. Never reused within the endpoint; means nothing outside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// One address that an endpoint listens at. Never reused within the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId(pub u64);

/// One message: an encoded head, and a payload that the transport never looks into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Kind of the head.
    pub kind: WireKind,
    /// The encoded message. Copied on arrival, to a chunk that it shares with others: who keeps it for long copies it.
    pub head: Bytes,
    /// The payload, empty for most messages. Never copied on the way out.
    pub body: Bytes,
}

impl Frame {
    /// Creates a frame without a body.
    #[must_use]
    pub fn without_body(kind: WireKind, head: Bytes) -> Self {
        Self {
            kind,
            head,
            body: Bytes::new(),
        }
    }

    /// Returns bytes on the wire: prefix, head and body.
    #[must_use]
    pub fn wire_bytes(&self) -> u64 {
        (Prefix::SIZE + self.head.len() + self.body.len()) as u64
    }

    /// Holds the lengths against `limits`, which the receiver is assumed to share.
    pub(crate) fn check(&self, limits: &Limits) -> Result<(), PrefixError> {
        let head = u32::try_from(self.head.len()).unwrap_or(u32::MAX);
        if head > limits.head_bytes_max {
            let max = limits.head_bytes_max;
            return Err(PrefixError::HeadTooLarge { found: head, max });
        }
        let body = self.body.len() as u64;
        if body > limits.body_bytes_max {
            let max = limits.body_bytes_max;
            return Err(PrefixError::BodyTooLarge { found: body, max });
        }
        Ok(())
    }
}

/// Event at an endpoint.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A peer connected to us.
    Accepted {
        /// The new connection.
        conn: ConnId,
        /// Where it came in.
        listener: ListenerId,
        /// Address of the peer, for logs.
        peer: String,
    },
    /// A connection that we asked for stands.
    Connected {
        /// The id that [`Transport::connect`] gave.
        conn: ConnId,
    },
    /// A whole frame came in.
    Received {
        /// Where.
        conn: ConnId,
        /// The frame.
        frame: Frame,
        /// CRC-32C of the body, taken piece by piece as it arrived, while the piece was in the cache. `None` if none
        /// has looked at it yet: it lies in memory of the peer, or [digests](crate::TcpConfig::body_digests) are off.
        body_digest: Option<u32>,
        /// From the first byte of the frame to its last, as this endpoint saw them. Zero if one read brought both.
        spent: Duration,
    },
    /// A frame of the size that was last refused with [`SendError::Full`] would now be taken.
    Writable {
        /// Where.
        conn: ConnId,
    },
    /// The connection is gone. Comes exactly once for every connection, also for one that never stood and for
    /// one that we closed ourselves. Nothing of the connection comes after it.
    Closed {
        /// Which.
        conn: ConnId,
        /// Why.
        reason: CloseReason,
    },
    /// Wake by a [`Waker`](crate::Waker). Several wakes may give one event.
    Woken,
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CloseReason {
    /// The peer ended the stream between two frames.
    #[error("closed by the peer")]
    ByPeer,
    /// Closed by this side, or finished by both.
    #[error("closed by this node")]
    ByUs,
    /// The peer, or a machine between, threw the connection away. What was under way may be lost.
    #[error("reset by the peer")]
    Reset,
    /// The stream ended inside a frame.
    #[error("cut off inside a frame, {missing} bytes of it are missing")]
    Cut {
        /// Bytes that were still to come, as far as they were announced.
        missing: u64,
    },
    /// Frame of the peer that this node does not accept.
    #[error("refused: {0}")]
    Refused(PrefixError),
    /// Frame that a peer may send only after its hello is [accepted](Transport::admit).
    #[error("refused before its hello is accepted: {0}")]
    Early(EarlyFrame),
    /// Violation of the rules of shared memory by the peer.
    #[error("shared memory: {0}")]
    Shm(ShmFault),
    /// A peer connected and sent no hello in time that was accepted.
    #[error(
        "no whole frame came, or none was accepted as hello, within {limit_ms} ms of connecting"
    )]
    Silent {
        /// The limit, in ms.
        limit_ms: u64,
    },
    /// A frame was begun, and then nothing more came, or the peer took nothing more.
    #[error("no byte moved inside a frame for {limit_ms} ms")]
    Stalled {
        /// The limit, in ms.
        limit_ms: u64,
    },
    /// There were more connections than allowed, and this one had said nothing yet, or came last.
    #[error("too many connections")]
    Crowded,
    /// The peers do not agree on a TLS session, or one does not trust the other.
    #[error("TLS: {0}")]
    Tls(TlsFailure),
    /// No answer at the address.
    #[error("unreachable: {0}")]
    Unreachable(io::ErrorKind),
    /// The operating system reported something else.
    #[error("failed: {0}")]
    Io(io::ErrorKind),
}

/// Fault of a frame on a connection whose peer is not [admitted](Transport::admit) yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EarlyFrame {
    /// The head is larger than that of any hello.
    #[error("found a head of {found} bytes, expected at most {EARLY_HEAD_BYTES_MAX}")]
    Head {
        /// Length in bytes.
        found: u32,
    },
    /// The frame has a payload.
    #[error("found a body of {found} bytes, expected none")]
    Body {
        /// Length in bytes.
        found: u64,
    },
    /// The frame is about a lane of shared memory.
    #[error("found a frame about a lane, expected a hello")]
    Lane,
}

/// Why there is no TLS session, or no more.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TlsFailure {
    /// Bytes that are no TLS: a peer that is configured without certificates, or another protocol.
    #[error("the peer does not speak TLS")]
    Plain,
    /// The peer showed no certificate.
    #[error("the peer has no certificate")]
    NoCertificate,
    /// The certificate of the peer is not one of a node of this farm that holds now.
    #[error("the certificate of the peer is refused: {0}")]
    Certificate(String),
    /// Refusal by the peer, with its alert, such as `CertificateExpired`.
    #[error("the peer refuses the connection with alert {0}")]
    Alert(String),
    /// Anything else that ends a session: another version, a damaged record, a stream cut off in the handshake.
    #[error("{0}")]
    Protocol(String),
    /// The handshake did not end in time.
    #[error("no handshake within {limit_ms} ms")]
    Slow {
        /// The limit, in ms.
        limit_ms: u64,
    },
}

/// Behaviour of a full queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// Returns it with [`SendError::Full`]; [`Event::Writable`] says when to try again. Nothing is lost.
    #[default]
    Block,
    /// Drops it and counts it.
    DropNewest,
    /// Drops as many of the oldest frames as needed, but none that is partly sent, and counts them. If that
    /// does not make room, the new frame is dropped.
    DropOldest,
}

/// Why an endpoint cannot listen at an address.
#[derive(Debug, Error)]
pub enum ListenError {
    /// The text is no address.
    #[error(
        "cannot listen at \"{address}\": expected HOST:PORT, such as 0.0.0.0:7100 or [::]:7100, or {}",
        UnixPathError::EXPECTED
    )]
    Address {
        /// The text.
        address: String,
    },
    /// Path that other nodes could not use.
    #[error(
        "cannot listen at \"{address}\": found {found}, expected {}",
        UnixPathError::EXPECTED
    )]
    Path {
        /// The text.
        address: String,
        /// Fault of the path.
        found: UnixPathError,
    },
    /// The socket cannot be had.
    #[error("cannot listen at {address}: {source}")]
    Unix {
        /// The address.
        address: String,
        /// Why.
        source: UnixBindError,
    },
    /// The address cannot be had; [`io::ErrorKind::AddrInUse`] says that another process has it.
    #[error("cannot listen at {address}: {source}")]
    Io {
        /// The address.
        address: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Off loopback nothing is said in the clear unless that was asked for.
    #[error("will not listen at {address} without certificates: it is not loopback")]
    Insecure {
        /// The address.
        address: String,
    },
}

/// Why no connection could even be begun.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The text is no address. Names are resolved by the caller, since that can block.
    #[error(
        "cannot connect to \"{address}\": expected IP:PORT, such as 10.0.0.1:7100 or [::1]:7100, or {}",
        UnixPathError::EXPECTED
    )]
    Address {
        /// The text.
        address: String,
    },
    /// Path that no socket can have.
    #[error(
        "cannot connect to \"{address}\": found {found}, expected {}",
        UnixPathError::EXPECTED
    )]
    Path {
        /// The text.
        address: String,
        /// Fault of the path.
        found: UnixPathError,
    },
    /// The operating system refuses at once, for instance because no file descriptor is left.
    #[error("cannot connect to {address}: {source}")]
    Io {
        /// The address.
        address: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Off loopback nothing is said in the clear unless that was asked for.
    #[error("will not connect to {address} without certificates: it is not loopback")]
    Insecure {
        /// The address.
        address: String,
    },
}

/// Why a frame was not queued.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum SendError {
    /// The queue is full and its behaviour is [`WhenFull::Block`]. The frame comes back; wait for
    /// [`Event::Writable`].
    #[error("the queue of the connection is full")]
    Full(Frame),
    /// The connection is closed or finished, or never was. [`Event::Closed`] has come or will come.
    #[error("the connection is closed")]
    Closed,
    /// The frame is beyond the limits of the farm: its receiver would close the connection.
    #[error("frame cannot be sent: {0}")]
    TooLarge(PrefixError),
}

/// Moves frames between endpoints.
///
/// One endpoint belongs to one thread, which calls [`poll`](Self::poll) in a loop. No call but `poll` ever
/// waits, and none performs input or output for longer than one system call.
///
/// # Contract, checked for every transport by [`contract::check`](crate::contract::check)
///
/// - frames of one connection arrive whole, once, and in the order in which they were sent;
/// - what is queued on a connection is bounded; what is beyond the bound is refused or dropped as
///   [`WhenFull`] says, and after a refusal [`Event::Writable`] comes as soon as there is room;
/// - a queue takes at least one frame, however large (within the limits);
/// - [`finish`](Self::finish) delivers all that was queued before;
/// - every connection ends with exactly one [`Event::Closed`], and nothing of it comes afterwards;
/// - where peers are [admitted](Self::admit), one that is not has one frame without a body delivered, and takes no
///   memory for more ([`contract::check_admission`](crate::contract::check_admission)).
pub trait Transport {
    /// Listens at `address` and answers with the actual address, in which port 0 is replaced.
    ///
    /// # Errors
    ///
    /// [`ListenError`] if the address is not one, or cannot be had.
    fn listen(&mut self, address: &str) -> Result<(ListenerId, String), ListenError>;

    /// Begins a connection to `address`. Completes with [`Event::Connected`] or [`Event::Closed`]. Frames may
    /// be queued at once.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] if nothing could be begun; no event comes then.
    fn connect(&mut self, address: &str) -> Result<ConnId, ConnectError>;

    /// As [`listen`](Self::listen), for connections that carry bulk data. The same, unless the transport was made so
    /// that bulk data travels in the clear beside control streams that do not.
    ///
    /// # Errors
    ///
    /// As [`listen`](Self::listen).
    fn listen_bulk(&mut self, address: &str) -> Result<(ListenerId, String), ListenError> {
        self.listen(address)
    }

    /// As [`connect`](Self::connect), for a connection that carries bulk data: the counterpart of
    /// [`listen_bulk`](Self::listen_bulk).
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    fn connect_bulk(&mut self, address: &str) -> Result<ConnId, ConnectError> {
        self.connect(address)
    }

    /// Returns who is at the other end of `conn`, as its certificate proves: from [`Event::Accepted`] or
    /// [`Event::Connected`] on, until it closes. `None` where peers prove nothing: memory, plain connections.
    fn identity(&self, conn: ConnId) -> Option<&Identity> {
        let _ = conn;
        None
    }

    /// Admits the peer that made `conn`: its hello is accepted. From now on its frames may have bodies, and heads of
    /// up to `head_bytes_max` bytes, within the limits of the endpoint. Without effect on other connections.
    ///
    /// A transport that waits for this ([`TcpConfig::awaits_admission`](crate::TcpConfig::awaits_admission)) delivers
    /// one frame of an accepted connection, which has no body and a head of at most [`EARLY_HEAD_BYTES_MAX`]; what the
    /// peer has sent behind it is delivered after the admission, or never. Others admit every peer at once.
    fn admit(&mut self, conn: ConnId, head_bytes_max: u32) {
        let _ = (conn, head_bytes_max);
    }

    /// Queues `frame` on `conn`. It leaves with the next [`poll`](Self::poll)s.
    ///
    /// # Errors
    ///
    /// [`SendError`]; the frame was not queued.
    fn send(&mut self, conn: ConnId, frame: Frame) -> Result<(), SendError>;

    /// Sets what the queue of `conn` does when it is full. Without effect on a closed connection.
    fn set_when_full(&mut self, conn: ConnId, when_full: WhenFull);

    /// Ends `conn` and drops what is queued. [`Event::Closed`] with [`CloseReason::ByUs`] comes with the next poll.
    fn close(&mut self, conn: ConnId);

    /// Sends all that is queued, then ends our side. Frames of the peer still arrive, until it ends its side;
    /// a peer that learns of our end sends what it has queued and ends its own. Then [`Event::Closed`] comes.
    fn finish(&mut self, conn: ConnId);

    /// Returns bytes queued on `conn`: accepted by [`send`](Self::send), not yet taken by the operating system.
    fn queued_bytes(&self, conn: ConnId) -> u64;

    /// Moves bytes, and puts what happened into `events`, which is emptied first.
    ///
    /// Waits for at most `timeout` (`None`: without end) when there is nothing to do, and may return early
    /// with no events. A connection gets a fair turn in each call, so a caller keeps calling.
    ///
    /// # Errors
    ///
    /// Only what makes the whole endpoint useless. What happens to a connection is an event.
    fn poll(&mut self, events: &mut Vec<Event>, timeout: Option<Duration>) -> io::Result<()>;
}
