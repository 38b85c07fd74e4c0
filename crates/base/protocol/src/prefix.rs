//! The prefix before every frame on a stream: how long, what kind, is it ours.

use crate::digest::Digest;
use thiserror::Error;

/// Kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WireKind {
    /// One [`Control`](crate::Control) message in the head, no body.
    Control,
    /// An [`StfHeader`](crate::StfHeader) in the head, its payload in the body.
    Stf,
    /// A hello of the data stream: who connects. In the head, no body.
    DataHello,
    /// Message between two transports on one machine about shared memory, invisible to nodes. In the head, no body.
    Lane,
}

/// The largest frame that a node accepts. A peer that announces more is refused before anything is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest head, in bytes.
    pub head_bytes_max: u32,
    /// Largest body, in bytes.
    pub body_bytes_max: u64,
}

impl Default for Limits {
    /// Heads up to 1 MiB (a full batch of announces), bodies up to 256 MiB.
    fn default() -> Self {
        Self {
            head_bytes_max: 1 << 20,
            body_bytes_max: 256 << 20,
        }
    }
}

/// The first 24 bytes of every frame. Layout: `docs/reference/protocol.md`, section "Prefix".
///
/// The head follows, then the body. The digest covers the first 20 bytes of the prefix and the head;
/// the body has a digest of its own in the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Kind of the frame.
    pub kind: WireKind,
    /// Bytes of the head.
    pub head_bytes: u32,
    /// Bytes of the body.
    pub body_bytes: u64,
    /// CRC-32C of the first 20 bytes of the prefix and the head.
    pub digest: u32,
}

/// Why the first bytes of a frame are refused. The connection is closed: the stream has lost its beat.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PrefixError {
    /// Another protocol speaks, or the stream is shifted.
    #[error(
        "frame starts with {found:02x?}, expected {:02x?} (\"SHEF\")",
        Prefix::MAGIC
    )]
    Magic {
        /// The four bytes found.
        found: [u8; 4],
    },
    /// Another version of Sheaf speaks.
    #[error("frame has wire version {found}, this node speaks {}", Prefix::VERSION)]
    Version {
        /// The version found.
        found: u8,
    },
    /// Unknown kind of frame.
    #[error("frame is of kind {found}, expected 1 (control), 2 (STF), 3 (data hello) or 4 (lane)")]
    Kind {
        /// The kind found.
        found: u8,
    },
    /// The head is larger than this node accepts.
    #[error("frame has a head of {found} bytes, at most {max} are accepted")]
    HeadTooLarge {
        /// Bytes announced.
        found: u32,
        /// The cap.
        max: u32,
    },
    /// The body is larger than this node accepts.
    #[error("frame has a body of {found} bytes, at most {max} are accepted")]
    BodyTooLarge {
        /// Bytes announced.
        found: u64,
        /// The cap.
        max: u64,
    },
    /// The head does not have the digest that the prefix says.
    #[error("frame head has CRC-32C {computed:08x}, its prefix says {stated:08x}")]
    Digest {
        /// The digest in the prefix.
        stated: u32,
        /// The digest of what arrived.
        computed: u32,
    },
}

impl Prefix {
    /// Bytes of a prefix on the wire.
    pub const SIZE: usize = 24;
    /// The first four bytes of every frame.
    pub const MAGIC: [u8; 4] = *b"SHEF";
    /// The wire version of this build.
    pub const VERSION: u8 = 1;

    /// Creates the prefix of a frame of `kind` with this `head` and a body of `body_bytes`.
    ///
    /// # Panics
    ///
    /// If `head` is 4 GiB or longer.
    #[must_use]
    pub fn new(kind: WireKind, head: &[u8], body_bytes: u64) -> Self {
        let head_bytes = u32::try_from(head.len()).expect("heads are small");
        let mut prefix = Self {
            kind,
            head_bytes,
            body_bytes,
            digest: 0,
        };
        prefix.digest = prefix.digest_with(head);
        prefix
    }

    /// Returns the 24 bytes on the wire.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[0..4].copy_from_slice(&Self::MAGIC);
        bytes[4] = Self::VERSION;
        bytes[5] = match self.kind {
            WireKind::Control => 1,
            WireKind::Stf => 2,
            WireKind::DataHello => 3,
            WireKind::Lane => 4,
        };
        bytes[8..12].copy_from_slice(&self.head_bytes.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.body_bytes.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.digest.to_le_bytes());
        bytes
    }

    /// Reads a prefix and holds its lengths against `limits`.
    ///
    /// # Errors
    ///
    /// All of [`PrefixError`] but [`Digest`](PrefixError::Digest), which [`check`](Self::check) gives.
    pub fn decode(bytes: &[u8; Self::SIZE], limits: &Limits) -> Result<Self, PrefixError> {
        let magic = [bytes[0], bytes[1], bytes[2], bytes[3]];
        if magic != Self::MAGIC {
            return Err(PrefixError::Magic { found: magic });
        }
        if bytes[4] != Self::VERSION {
            return Err(PrefixError::Version { found: bytes[4] });
        }
        let kind = match bytes[5] {
            1 => WireKind::Control,
            2 => WireKind::Stf,
            3 => WireKind::DataHello,
            4 => WireKind::Lane,
            found => return Err(PrefixError::Kind { found }),
        };
        let head_bytes = u32::from_le_bytes(bytes[8..12].try_into().expect("4 of 24 bytes"));
        let body_bytes = u64::from_le_bytes(bytes[12..20].try_into().expect("8 of 24 bytes"));
        let digest = u32::from_le_bytes(bytes[20..24].try_into().expect("4 of 24 bytes"));
        if head_bytes > limits.head_bytes_max {
            let max = limits.head_bytes_max;
            return Err(PrefixError::HeadTooLarge {
                found: head_bytes,
                max,
            });
        }
        if body_bytes > limits.body_bytes_max {
            let max = limits.body_bytes_max;
            return Err(PrefixError::BodyTooLarge {
                found: body_bytes,
                max,
            });
        }
        Ok(Self {
            kind,
            head_bytes,
            body_bytes,
            digest,
        })
    }

    /// Holds the head that followed against the digest of this prefix.
    ///
    /// # Errors
    ///
    /// [`Digest`](PrefixError::Digest) if prefix or head changed on the way.
    pub fn check(&self, head: &[u8]) -> Result<(), PrefixError> {
        let computed = self.digest_with(head);
        if computed == self.digest {
            Ok(())
        } else {
            Err(PrefixError::Digest {
                stated: self.digest,
                computed,
            })
        }
    }

    fn digest_with(&self, head: &[u8]) -> u32 {
        let mut digest = Digest::default();
        digest.update(&self.encode()[..20]);
        digest.update(head);
        digest.value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(kind: WireKind, head: &[u8], body_bytes: u64) -> [u8; Prefix::SIZE] {
        Prefix::new(kind, head, body_bytes).encode()
    }

    #[test]
    fn a_prefix_survives_the_wire() {
        let head = b"head";
        for kind in [
            WireKind::Control,
            WireKind::Stf,
            WireKind::DataHello,
            WireKind::Lane,
        ] {
            let prefix = Prefix::new(kind, head, 77);
            let read = Prefix::decode(&prefix.encode(), &Limits::default()).unwrap();
            assert_eq!(read, prefix);
            read.check(head).unwrap();
        }
    }

    #[test]
    fn what_is_not_a_prefix_is_named() {
        let good = encoded(WireKind::Stf, b"head", 9);
        let limits = Limits {
            head_bytes_max: 100,
            body_bytes_max: 1000,
        };
        let changed = |at: usize, to: u8| {
            let mut bytes = good;
            bytes[at] = to;
            Prefix::decode(&bytes, &limits).unwrap_err().to_string()
        };
        assert_eq!(
            changed(0, b'G'),
            "frame starts with [47, 48, 45, 46], expected [53, 48, 45, 46] (\"SHEF\")"
        );
        assert_eq!(
            changed(4, 9),
            "frame has wire version 9, this node speaks 1"
        );
        assert_eq!(
            changed(5, 7),
            "frame is of kind 7, expected 1 (control), 2 (STF), 3 (data hello) or 4 (lane)"
        );
        assert_eq!(
            changed(9, 1),
            "frame has a head of 260 bytes, at most 100 are accepted"
        );
        assert_eq!(
            changed(13, 4),
            "frame has a body of 1033 bytes, at most 1000 are accepted"
        );
    }

    proptest! {
        #[test]
        fn a_flipped_bit_is_noticed(
            head in prop::collection::vec(any::<u8>(), 1..200),
            flip in any::<prop::sample::Index>(),
        ) {
            let mut prefix = encoded(WireKind::Control, &head, 0);
            let mut head = head;
            let bit = flip.index((Prefix::SIZE + head.len()) * 8);
            // Bytes 6 and 7 are reserved: senders write 0, readers do not look.
            prop_assume!(bit / 8 != 6 && bit / 8 != 7);
            if bit / 8 < Prefix::SIZE {
                prefix[bit / 8] ^= 1 << (bit % 8);
            } else {
                head[bit / 8 - Prefix::SIZE] ^= 1 << (bit % 8);
            }
            let outcome = Prefix::decode(&prefix, &Limits::default()).and_then(|p| p.check(&head));
            prop_assert!(outcome.is_err());
        }
    }
}
