//! Why a connection ended.

use crate::command::CommandError;
use crate::frame::FrameError;
use crate::greeting::GreetingError;
use crate::socket_type::SocketType;
use std::io;
use thiserror::Error;

/// Why there is no connection to a peer, or no more.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PeerError {
    /// Peer without ZMTP 3 and mechanism NULL.
    #[error(transparent)]
    Greeting(#[from] GreetingError),
    /// A frame begins with what is no head.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A command cannot be understood.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// A frame is larger than is accepted. Nothing was allocated for it.
    #[error("frame of {found} bytes, at most {max} are accepted")]
    FrameTooLarge {
        /// Bytes announced.
        found: u64,
        /// The cap.
        max: u64,
    },
    /// The parts of a message are larger together than is accepted.
    #[error("message of at least {found} bytes, at most {max} are accepted")]
    MessageTooLarge {
        /// Bytes announced so far.
        found: u64,
        /// The cap.
        max: u64,
    },
    /// A message has too many parts.
    #[error("message of more than {max} parts")]
    TooManyParts {
        /// The cap.
        max: usize,
    },
    /// There is no memory for a frame within the cap.
    #[error("no memory for a frame of {bytes} bytes")]
    NoMemory {
        /// Bytes of the frame.
        bytes: u64,
    },
    /// Sockets of these types do not talk to each other.
    #[error("the peer is a {found}, expected {} of a {ours}", ours.peers().join(" or "))]
    SocketType {
        /// Socket type of the peer.
        found: String,
        /// Socket type of this end.
        ours: SocketType,
    },
    /// Refusal by the peer.
    #[error("refused by the peer: {reason}")]
    Refused {
        /// Reason that the peer gives.
        reason: String,
    },
    /// Something that has no place here.
    #[error("the peer sends {what}, expected {expected}")]
    Unexpected {
        /// Frame or command that came.
        what: &'static str,
        /// Frame or command that was expected.
        expected: &'static str,
    },
    /// More subscriptions than are kept for one peer.
    #[error("the peer subscribes to more than {topics} topics or {bytes} bytes of them")]
    Subscriptions {
        /// Topics kept.
        topics: usize,
        /// Bytes of topics kept.
        bytes: usize,
    },
    /// The handshake did not end in time: a half-open connection, or a peer that waits.
    #[error("no handshake within {limit_ms} ms")]
    Slow {
        /// The limit, in ms.
        limit_ms: u64,
    },
    /// Nothing was received for too long, though a PING was sent.
    #[error("no sign of life for {limit_ms} ms")]
    Silent {
        /// The limit, in ms.
        limit_ms: u64,
    },
    /// The peer takes nothing, while others do without.
    #[error("no byte taken for {limit_ms} ms")]
    Stalled {
        /// The limit, in ms.
        limit_ms: u64,
    },
    /// The peer ended the stream between two messages.
    #[error("closed by the peer")]
    Closed,
    /// The stream ended inside a message or the handshake.
    #[error("cut off inside {part}")]
    Cut {
        /// Where.
        part: &'static str,
    },
    /// Closed by this end.
    #[error("closed by this node")]
    ByUs,
    /// There are too many connections.
    #[error("too many connections, at most {max} are accepted")]
    Crowded {
        /// The cap.
        max: usize,
    },
    /// The handshake gave way to a newer one: too many were under way, and nothing came of this one for longest.
    #[error("gave way to a newer connection, with {max} handshakes under way")]
    Displaced {
        /// The cap.
        max: usize,
    },
    /// No answer at the address.
    #[error("unreachable: {0}")]
    Unreachable(io::ErrorKind),
    /// The operating system says so.
    #[error("failed: {0}")]
    Io(io::ErrorKind),
}

impl PeerError {
    /// Returns a short name for counters and metrics.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Greeting(GreetingError::Protocol { .. }) => "protocol",
            Self::Greeting(GreetingError::Old { .. }) => "version",
            Self::Greeting(GreetingError::Mechanism { .. }) => "mechanism",
            Self::Frame(_) => "frame",
            Self::Command(_) => "command",
            Self::FrameTooLarge { .. } | Self::MessageTooLarge { .. } => "too-large",
            Self::TooManyParts { .. } => "too-many-parts",
            Self::NoMemory { .. } => "no-memory",
            Self::SocketType { .. } => "socket-type",
            Self::Refused { .. } => "refused",
            Self::Unexpected { .. } => "unexpected",
            Self::Subscriptions { .. } => "subscriptions",
            Self::Slow { .. } => "slow",
            Self::Silent { .. } => "silent",
            Self::Stalled { .. } => "stalled",
            Self::Closed => "closed",
            Self::Cut { .. } => "cut",
            Self::ByUs => "by-us",
            Self::Crowded { .. } => "crowded",
            Self::Displaced { .. } => "displaced",
            Self::Unreachable(_) => "unreachable",
            Self::Io(_) => "io",
        }
    }

    /// Returns whether it is an ordinary end, and nothing is wrong.
    #[must_use]
    pub fn is_ordinary(&self) -> bool {
        matches!(self, Self::Closed | Self::ByUs)
    }
}
