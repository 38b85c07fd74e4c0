//! The four socket types, and which of them may be connected to each other.

use std::fmt;

/// Type of a socket: direction and pattern of its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketType {
    /// Delivers each message to one of its peers, in turn.
    Push,
    /// Takes messages of all its peers, in turn.
    Pull,
    /// Delivers each message to all peers that have subscribed to it.
    Pub,
    /// Takes the messages that it has subscribed to.
    Sub,
}

impl SocketType {
    /// Returns the name in the property `Socket-Type`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Push => "PUSH",
            Self::Pull => "PULL",
            Self::Pub => "PUB",
            Self::Sub => "SUB",
        }
    }

    /// Returns the names of those it may talk to (RFC 37, "The Socket-Type Property").
    #[must_use]
    pub fn peers(self) -> &'static [&'static str] {
        match self {
            Self::Push => &["PULL"],
            Self::Pull => &["PUSH"],
            Self::Pub => &["SUB", "XSUB"],
            Self::Sub => &["PUB", "XPUB"],
        }
    }

    /// Returns whether messages come in.
    #[must_use]
    pub fn receives(self) -> bool {
        matches!(self, Self::Pull | Self::Sub)
    }
}

impl fmt::Display for SocketType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
