//! Why an input from outside is rejected: a closed list of codes.
//!
//! Every rejected input has one of these codes. The peer is sent the code where the stream can still
//! carry it ([`Control::Rejected`](crate::Control::Rejected)), the node counts it by peer and code, and says at
//! most one log line a second for each pair. What every code means and what to do: `docs/reference/codes.md`.

use std::fmt;

/// Why an input was rejected. The numbers are those of the wire; one is never given out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Code {
    /// The bytes are no frame of Sheaf: another protocol, a stream out of step, a damaged head.
    BadFrame = 1,
    /// A frame of another version of the protocol.
    OtherVersion = 2,
    /// A length beyond the limit. Nothing was allocated for it.
    TooBig = 3,
    /// The head of a frame is no message of its kind.
    BadMessage = 4,
    /// The payload does not have the digest that its source stated.
    BadDigest = 5,
    /// The sender speaks for another node, or says what its role may not say.
    RoleDenied = 6,
    /// The sender follows, or is, an ICN whose term is over.
    Fenced = 7,
    /// The message belongs to another run.
    OtherRun = 8,
    /// A hello that this farm does not accept.
    RefusedJoin = 9,
    /// A message before the hello of its stream, or a second hello of another node.
    NotJoined = 10,
    /// A frame of a kind that does not belong on its stream.
    WrongStream = 11,
    /// A data stream that means another EPN, or another life of it.
    WrongTarget = 12,
    /// Two different payloads under one name. The first one stays.
    Conflict = 13,
    /// Handshake without a whole first frame in time.
    HandshakeTimeout = 14,
    /// A frame was begun and did not go on.
    Stalled = 15,
    /// The stream ended inside a frame.
    Cut = 16,
    /// More connections than are allowed in all, from one address, or without a first frame.
    TooManyConnections = 17,
    /// The peer has no certificate that this farm trusts, or speaks no TLS where it must.
    Untrusted = 18,
}

impl Code {
    /// All codes, by number.
    pub const ALL: [Self; 18] = [
        Self::BadFrame,
        Self::OtherVersion,
        Self::TooBig,
        Self::BadMessage,
        Self::BadDigest,
        Self::RoleDenied,
        Self::Fenced,
        Self::OtherRun,
        Self::RefusedJoin,
        Self::NotJoined,
        Self::WrongStream,
        Self::WrongTarget,
        Self::Conflict,
        Self::HandshakeTimeout,
        Self::Stalled,
        Self::Cut,
        Self::TooManyConnections,
        Self::Untrusted,
    ];

    /// Name in metrics, logs and documents, such as `"too-big"`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BadFrame => "bad-frame",
            Self::OtherVersion => "other-version",
            Self::TooBig => "too-big",
            Self::BadMessage => "bad-message",
            Self::BadDigest => "bad-digest",
            Self::RoleDenied => "role-denied",
            Self::Fenced => "fenced",
            Self::OtherRun => "other-run",
            Self::RefusedJoin => "refused-join",
            Self::NotJoined => "not-joined",
            Self::WrongStream => "wrong-stream",
            Self::WrongTarget => "wrong-target",
            Self::Conflict => "conflict",
            Self::HandshakeTimeout => "handshake-timeout",
            Self::Stalled => "stalled",
            Self::Cut => "cut",
            Self::TooManyConnections => "too-many-connections",
            Self::Untrusted => "untrusted",
        }
    }

    /// Returns the number on the wire.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }

    /// Returns the code of a number on the wire.
    #[must_use]
    pub fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.number() == number)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_stands_at_its_number_and_has_a_name_of_its_own() {
        for (at, code) in Code::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(code.number()), at + 1);
            assert_eq!(Code::of_number(code.number()), Some(code));
            let namesakes = Code::ALL.iter().filter(|other| other.name() == code.name());
            assert_eq!(namesakes.count(), 1);
        }
        assert_eq!(Code::of_number(0), None);
        assert_eq!(Code::of_number(19), None);
    }
}
