//! Why an input from outside is rejected: a closed list of codes.
//!
//! Every rejected input has one of these codes. The peer is sent the code where the stream can still
//! carry it ([`Control::Rejected`](crate::Control::Rejected)), the node counts it by peer and code, and says at
//! most one log line a second for each pair. What every code means and what to do: `docs/reference/codes.md`.

use std::fmt;

/// Defines [`Code`] from its table: variant, number on the wire, name, whether the stream ends, roles that send
/// and get the code, input, and what an operator does about it. The table of the reference page follows from it.
macro_rules! codes {
    ($(
        $code:ident = $number:literal, $name:literal, ends $ends:literal, sent $sent_by:literal,
        $input:literal, $advice:literal;
    )+) => {
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

            /// Returns the roles that send the code, and those that get it.
            #[must_use]
            pub fn sent_by(self) -> &'static str {
                match self {
                    $(Self::$code => $sent_by,)+
                }
            }

            /// Returns what an operator does about it.
            #[must_use]
            pub fn advice(self) -> &'static str {
                match self {
                    $(Self::$code => $advice,)+
                }
            }
        }
    };
}

codes! {
    BadFrame = 1, "bad-frame", ends "yes", sent "any node to its peer",
        "bytes that are no frame of Sheaf: another protocol, a stream out of step, a damaged head",
        "look what runs at the address of the peer";
    OtherVersion = 2, "other-version", ends "yes", sent "any node to its peer",
        "a frame of another version of the protocol",
        "bring both nodes to one version";
    TooBig = 3, "too-big", ends "yes", sent "any node to its peer",
        "a length beyond the limit; nothing was allocated for it",
        "raise `stf_bytes_max` on both sides, or look what the peer is";
    BadMessage = 4, "bad-message", ends "yes", sent "any node to its peer",
        "a frame whose head is no message of its kind",
        "report it: a node of the same version does not send such";
    BadDigest = 5, "bad-digest", ends "yes", sent "EPN to FLP",
        "a payload without the digest that its source stated",
        "look at the memory and the network of the machines between; twice for one STF drops its TF as \
         `corrupt-at-source`";
    RoleDenied = 6, "role-denied", ends "yes", sent "any node to its peer",
        "a node that speaks for another, or says what its role may not; a certificate of another node",
        "look who uses this name or certificate";
    Fenced = 7, "fenced", ends "no", sent "ICN to ICN, FLP and EPN",
        "a message of a term that is over",
        "nothing, if it ends: the peer has yet to hear of the new leader";
    OtherRun = 8, "other-run", ends "no", sent "ICN to FLP and EPN, EPN to FLP",
        "a message or an STF of another run",
        "nothing, if it ends: the peer has yet to hear of the new run";
    RefusedJoin = 9, "refused-join", ends "yes", sent "ICN to the peer that joins",
        "a hello that the farm does not accept; the answer is `refused`, and the node ends",
        "as the text says";
    NotJoined = 10, "not-joined", ends "yes", sent "ICN to ICN, FLP and EPN, EPN to FLP",
        "a message before the hello of its stream, or a second hello",
        "report it";
    WrongStream = 11, "wrong-stream", ends "yes", sent "any node to its peer",
        "an STF on a control stream, or a control message on a data stream",
        "look what address the peer was given";
    WrongTarget = 12, "wrong-target", ends "yes", sent "EPN to FLP",
        "a data stream that means another EPN, or a former life of it",
        "nothing, if it ends: an FLP that has yet to hear of a restart";
    Conflict = 13, "conflict", ends "no", sent "EPN to FLP",
        "two different payloads under one name; the first one stays",
        "look for two FLPs with one index";
    HandshakeTimeout = 14, "handshake-timeout", ends "yes", sent "ICN and EPN to the peer that connects",
        "a connection without a whole frame within 3 s, or whose hello is not accepted 3 s later",
        "look what the peer is: a scanner, a port check";
    Stalled = 15, "stalled", ends "yes", sent "any node to its peer",
        "a frame that was begun and did not go on for 10 s",
        "look at the machine of the peer";
    Cut = 16, "cut", ends "–", sent "any node to its peer",
        "a stream that ended inside a frame",
        "look whether the peer died";
    TooManyConnections = 17, "too-many-connections", ends "yes", sent "ICN and EPN to the peer that connects",
        "more connections than `transport.connections_max`, or than one address may have, \
         or 512 that have said nothing: then the oldest of these goes",
        "raise the limit, or look who opens them";
    Untrusted = 18, "untrusted", ends "yes", sent "any node to its peer",
        "no TLS, no certificate, or one that this farm does not trust",
        "give the node a certificate ([security.md](../how-to/security.md))";
    BeforeHello = 19, "before-hello", ends "yes", sent "ICN and EPN to the peer that connects",
        "a payload, or a head above 4 KiB, before the hello of the connection was accepted; nothing was allocated for it",
        "look what the peer is: no node sends such";
    WrongNonce = 20, "wrong-nonce", ends "yes", sent "ICN and EPN to the peer that connects",
        "a hello without the nonce of its stream, such as one that was recorded on another stream",
        "look who sends records of the farm's streams ([security.md](../how-to/security.md))";
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
        assert_eq!(Code::of_number(21), None);
    }
}
