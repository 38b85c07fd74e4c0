//! Ends of transfers.

use serde::{Deserialize, Serialize};
use std::fmt;

/// End of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// All that was announced and expected came, or was taken by the server.
    Finished,
    /// Something else happened.
    Failed(Failure),
    /// The run ended first.
    Cut,
}

/// Reason why a transfer is not finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Failure {
    /// The server's machine refused the connection.
    Refused,
    /// No way to the server's machine.
    Unreachable,
    /// No connection within the timeout.
    NoConnection,
    /// The client's machine has no free port, descriptor or memory for a connection.
    NoRoom,
    /// The handshake of TLS failed, or a record was damaged.
    Tls,
    /// The connection was closed before an answer.
    NoAnswer,
    /// The connection was reset.
    Reset,
    /// The body ended before its length.
    Short,
    /// No byte went or came within the timeout.
    Stalled,
    /// The status is not the one of success.
    BadStatus,
    /// The head of the answer cannot be read, or announces another length than that of the object.
    BadAnswer,
}

impl Failure {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Refused,
        Self::Unreachable,
        Self::NoConnection,
        Self::NoRoom,
        Self::Tls,
        Self::NoAnswer,
        Self::Reset,
        Self::Short,
        Self::Stalled,
        Self::BadStatus,
        Self::BadAnswer,
    ];

    /// Name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::NoConnection => "no-connection",
            Self::NoRoom => "no-room",
            Self::Tls => "tls",
            Self::NoAnswer => "no-answer",
            Self::Reset => "reset",
            Self::Short => "short",
            Self::Stalled => "stalled",
            Self::BadStatus => "bad-status",
            Self::BadAnswer => "bad-answer",
        }
    }

    /// Returns whether a transfer that had a connection was broken, as a drain must not do it.
    #[must_use]
    pub fn is_break(self) -> bool {
        matches!(
            self,
            Self::NoAnswer | Self::Reset | Self::Short | Self::Stalled
        )
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_json() {
        for failure in Failure::ALL {
            let json = serde_json::to_string(&failure).unwrap();
            assert_eq!(json, format!("\"{failure}\""));
        }
    }
}
