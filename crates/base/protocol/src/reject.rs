//! Why an input from outside is rejected: a closed list of codes.
//!
//! Every rejected input has one of these codes. The peer is sent the code where the stream can still
//! carry it ([`Control::Rejected`](crate::Control::Rejected)), the node counts it by peer and code, and says at
//! most one log line a second for each pair. What every code means and what to do: `docs/reference/codes.md`.

use std::fmt;

/// Defines [`Code`] from its table: variant, number on the wire, name, whether the stream ends, and what came.
macro_rules! codes {
    ($($code:ident = $number:literal, $name:literal, $ends:literal, $input:literal;)+) => {
        /// Reason why an input was rejected. The numbers are those of the wire; one is never given out twice.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Code {
            $(
                #[doc = concat!("`", $name, "`: ", $input, ".")]
                $code = $number,
            )+
        }

        impl Code {
            /// All codes, by number.
            pub const ALL: [Self; [$($number),+].len()] = [$(Self::$code),+];

            /// Returns the name in metrics, logs and documents, such as `"too-big"`.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$code => $name,)+
                }
            }

            /// Returns a description of the input, as on the reference page.
            #[must_use]
            pub fn input(self) -> &'static str {
                match self {
                    $(Self::$code => $input,)+
                }
            }

            /// Returns whether the stream of the sender is closed: `"yes"`, `"no"`, or `"–"` if it has ended already.
            #[must_use]
            pub fn ends(self) -> &'static str {
                match self {
                    $(Self::$code => $ends,)+
                }
            }
        }
    };
}

codes! {
    BadFrame = 1, "bad-frame", "yes",
        "bytes that are no frame of Sheaf: another protocol, a stream out of step, a damaged head";
    OtherVersion = 2, "other-version", "yes",
        "a frame of another version of the protocol";
    TooBig = 3, "too-big", "yes",
        "a length beyond the limit; nothing was allocated for it";
    BadMessage = 4, "bad-message", "yes",
        "a frame whose head is no message of its kind";
    BadDigest = 5, "bad-digest", "yes",
        "a payload without the digest that its source stated";
    RoleDenied = 6, "role-denied", "yes",
        "a node that speaks for another, or says what its role may not; a certificate of another node";
    Fenced = 7, "fenced", "no",
        "a message of a term that is over";
    OtherRun = 8, "other-run", "no",
        "a message or an STF of another run";
    RefusedJoin = 9, "refused-join", "yes",
        "a hello that the farm does not accept; the answer is `refused`, and the node ends";
    NotJoined = 10, "not-joined", "yes",
        "a message before the hello of its stream, or a second hello";
    WrongStream = 11, "wrong-stream", "yes",
        "an STF on a control stream, or a control message on a data stream";
    WrongTarget = 12, "wrong-target", "yes",
        "a data stream that means another EPN, or a former life of it";
    Conflict = 13, "conflict", "no",
        "two different payloads under one name; the first one stays";
    HandshakeTimeout = 14, "handshake-timeout", "yes",
        "a connection without a whole frame within 3 s";
    Stalled = 15, "stalled", "yes",
        "a frame that was begun and did not go on for 10 s";
    Cut = 16, "cut", "–",
        "a stream that ended inside a frame";
    TooManyConnections = 17, "too-many-connections", "yes",
        "more connections than `transport.connections_max`, or than one address may have, \
         or 512 that have said nothing: then the oldest of these goes";
    Untrusted = 18, "untrusted", "yes",
        "no TLS, no certificate, or one that this farm does not trust";
}

impl Code {
    /// The number on the wire.
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
