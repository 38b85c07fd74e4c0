//! The first 64 bytes of a connection: versions and security mechanisms.

use thiserror::Error;

/// The greeting of ZMTP 3 (RFC 37, "Connection Greeting").
///
/// | byte | size | field | value |
/// | --- | --- | --- | --- |
/// | 0 | 10 | signature | `ff`, 8 bytes of padding, `7f` |
/// | 10 | 1 | major version | 3 |
/// | 11 | 1 | minor version | 1 |
/// | 12 | 20 | mechanism | `NULL`, filled up with zeros |
/// | 32 | 1 | as-server | 0 |
/// | 33 | 31 | filler | 0 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// Major version: 3, or more of a peer that can do more.
    pub major: u8,
    /// Minor version: 0 or 1.
    pub minor: u8,
}

/// Why a connection is none of ZMTP 3 with mechanism NULL.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GreetingError {
    /// Something else speaks.
    #[error("the peer speaks {speaks}, expected ZMTP 3: it begins with {found:02x?}")]
    Protocol {
        /// Protocol that the peer seems to speak, such as `HTTP`.
        speaks: &'static str,
        /// Up to ten bytes of it.
        found: Vec<u8>,
    },
    /// ZeroMQ before version 4.
    #[error("the peer speaks ZMTP {major}, expected 3: its ZeroMQ is older than 4.0")]
    Old {
        /// Major version, 1 or 2.
        major: u8,
    },
    /// Peer with a security mechanism, which is not supported.
    #[error("the peer wants mechanism {found}, expected NULL")]
    Mechanism {
        /// The name of the mechanism, without its zeros.
        found: String,
    },
}

impl Greeting {
    /// Bytes of a greeting.
    pub const SIZE: usize = 64;
    /// Version of this build.
    pub const OURS: Self = Self { major: 3, minor: 1 };
    /// The one mechanism that is spoken.
    const NULL: [u8; 20] = *b"NULL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

    /// Returns the 64 bytes. libzmq writes a length of 1 into the padding, for peers of ZMTP 1; so do we.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[0] = 0xff;
        bytes[8] = 1;
        bytes[9] = 0x7f;
        bytes[10] = self.major;
        bytes[11] = self.minor;
        bytes[12..32].copy_from_slice(&Self::NULL);
        bytes
    }

    /// Reads a greeting.
    ///
    /// A peer of a higher version than ours is understood: it has to come down to us.
    ///
    /// # Errors
    ///
    /// [`GreetingError`] with what speaks instead.
    pub fn decode(bytes: &[u8; Self::SIZE]) -> Result<Self, GreetingError> {
        Self::check_start(bytes)?;
        let mechanism = &bytes[12..32];
        if mechanism != Self::NULL {
            let end = mechanism.iter().position(|byte| *byte == 0);
            let name = mechanism.get(..end.unwrap_or(mechanism.len()));
            let found = String::from_utf8_lossy(name.unwrap_or_default());
            return Err(GreetingError::Mechanism {
                found: found.escape_debug().to_string(),
            });
        }
        Ok(Self {
            major: bytes[10],
            minor: bytes[11],
        })
    }

    /// Returns whether what has come so far can become a greeting, so that another protocol is known by its first
    /// bytes.
    ///
    /// # Errors
    ///
    /// [`GreetingError::Protocol`] or [`GreetingError::Old`].
    pub fn check_start(bytes: &[u8]) -> Result<(), GreetingError> {
        let Some(first) = bytes.first() else {
            return Ok(());
        };
        // ZMTP 1.0 begins with a frame: length, then flags of 0. Its largest anonymous one is 01 00.
        if *first == 1 && bytes.get(1).is_none_or(|flags| *flags == 0) {
            return match bytes.len() {
                1 => Ok(()),
                _ => Err(GreetingError::Old { major: 1 }),
            };
        }
        if *first != 0xff || bytes.get(9).is_some_and(|last| *last != 0x7f) {
            let found = bytes[..bytes.len().min(10)].to_vec();
            return Err(GreetingError::Protocol {
                speaks: guess(&found),
                found,
            });
        }
        match bytes.get(10) {
            // 0 stands for 1.0, 1 for 2.0 and 2 for 2.1 (RFC 15).
            Some(0) => Err(GreetingError::Old { major: 1 }),
            Some(1 | 2) => Err(GreetingError::Old { major: 2 }),
            _ => Ok(()),
        }
    }
}

/// Returns what begins like this.
fn guess(start: &[u8]) -> &'static str {
    const KNOWN: [(&[u8], &str); 9] = [
        (b"GET ", "HTTP"),
        (b"POST", "HTTP"),
        (b"PUT ", "HTTP"),
        (b"HEAD", "HTTP"),
        (b"HTTP", "HTTP"),
        (b"PRI ", "HTTP/2"),
        (b"SSH-", "SSH"),
        (b"\x16\x03", "TLS"),
        (b"STFF", "the feed of an FLP"),
    ];
    KNOWN
        .iter()
        .find(|(begin, _)| start.starts_with(begin))
        .map_or("something else", |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_survives_its_bytes() {
        let bytes = Greeting::OURS.encode();
        assert_eq!(bytes[..12], *b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\x01");
        assert_eq!(Greeting::decode(&bytes), Ok(Greeting::OURS));
        for end in 0..=Greeting::SIZE {
            assert_eq!(Greeting::check_start(&bytes[..end]), Ok(()));
        }
    }

    #[test]
    fn other_versions_are_understood_or_named() {
        for (major, minor, expected) in [
            (3, 0, Ok((3, 0))),
            (4, 7, Ok((4, 7))),
            (
                0,
                0,
                Err("the peer speaks ZMTP 1, expected 3: its ZeroMQ is older than 4.0"),
            ),
            (
                1,
                5,
                Err("the peer speaks ZMTP 2, expected 3: its ZeroMQ is older than 4.0"),
            ),
            (
                2,
                0,
                Err("the peer speaks ZMTP 2, expected 3: its ZeroMQ is older than 4.0"),
            ),
        ] {
            let found = Greeting::decode(&Greeting { major, minor }.encode());
            let found = found.map(|greeting| (greeting.major, greeting.minor));
            assert_eq!(
                found.map_err(|error| error.to_string()),
                expected.map_err(str::to_owned)
            );
        }
    }

    #[test]
    fn what_is_no_greeting_is_named_by_its_first_bytes() {
        let cases: [(&[u8], &str); 6] = [
            (b"GET / HTTP/1.1\r\n", "HTTP"),
            (b"\x16\x03\x01\x02", "TLS"),
            (b"SSH-2.0-OpenSSH", "SSH"),
            (b"\xff\0\0\0\0\0\0\0\x01\x00", "something else"),
            (b"x", "something else"),
            (b"\x01\x07", "something else"),
        ];
        for (start, expected) in cases {
            match Greeting::check_start(start) {
                Err(GreetingError::Protocol { speaks, .. }) => assert_eq!(speaks, expected),
                other => panic!("{start:02x?}: {other:?}"),
            }
        }
        // An anonymous peer of ZeroMQ 2 sends the frame 01 00.
        assert_eq!(Greeting::check_start(b"\x01"), Ok(()));
        assert_eq!(
            Greeting::check_start(b"\x01\x00"),
            Err(GreetingError::Old { major: 1 })
        );
    }

    #[test]
    fn another_mechanism_is_named() {
        for name in ["PLAIN", "CURVE", "NULL2", "\u{7}"] {
            let mut bytes = Greeting::OURS.encode();
            bytes[12..32].fill(0);
            bytes[12..12 + name.len()].copy_from_slice(name.as_bytes());
            let found = name.escape_debug().to_string();
            assert_eq!(
                Greeting::decode(&bytes),
                Err(GreetingError::Mechanism { found })
            );
        }
    }
}
