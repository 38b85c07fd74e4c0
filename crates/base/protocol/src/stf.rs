//! The sub-timeframe (STF): one FLP's part of a TF, and the header that names it on the wire.

use crate::digest::crc32c;
use crate::id::{Attempt, FlpId, Incarnation, RunId, Source, TfId};
use bytes::Bytes;
use thiserror::Error;

/// Format of the payload of an STF. Behind `stf-builder` only the `verify` sink looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PayloadFormat {
    /// Bytes without structure.
    #[default]
    Opaque,
    /// ALICE raw-data pages, each beginning with an RDH (raw data header) of version 6 or 7.
    RdhPages,
    /// KM3NeT online DAQ records.
    Km3netRecords,
    /// LCLS-II XTC2 datagrams.
    Xtc2Datagrams,
    /// A TF of a file of DataDistribution: its description, index and blocks, each with its O2 headers.
    O2Blocks,
}

impl PayloadFormat {
    /// All formats, by their code.
    pub const ALL: [Self; 5] = [
        Self::Opaque,
        Self::RdhPages,
        Self::Km3netRecords,
        Self::Xtc2Datagrams,
        Self::O2Blocks,
    ];
    /// The highest code of a format.
    pub const CODE_MAX: u8 = Self::O2Blocks as u8;

    /// Returns the code in headers, feeds and files.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Returns the format of a code; `None` if there is none.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Returns the name in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Opaque => "opaque",
            Self::RdhPages => "RDH pages",
            Self::Km3netRecords => "KM3NeT records",
            Self::Xtc2Datagrams => "XTC2 datagrams",
            Self::O2Blocks => "O2 blocks",
        }
    }
}

/// Names one STF for ever: the same key always has the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StfKey {
    /// The run.
    pub run: RunId,
    /// The TF that the STF is a part of.
    pub tf: TfId,
    /// FLP that made the STF.
    pub source: Source,
}

/// One sub-timeframe as its FLP holds it. Immutable: cloning shares the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stf {
    /// The TF that it is a part of.
    pub tf: TfId,
    /// Format of the payload.
    pub format: PayloadFormat,
    /// CRC-32C of the payload, taken where the payload was made.
    pub digest: u32,
    /// The bytes.
    pub payload: Bytes,
}

impl Stf {
    /// Creates an STF of `payload`, whose digest is taken here.
    #[must_use]
    pub fn new(tf: TfId, format: PayloadFormat, payload: Bytes) -> Self {
        Self {
            tf,
            format,
            digest: crc32c(&payload),
            payload,
        }
    }

    /// Payload bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.payload.len() as u64
    }
}

/// The head of an STF frame: 64 bytes, little-endian. Layout: `docs/reference/protocol.md`, section "STF header".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StfHeader {
    /// Which STF this is.
    pub key: StfKey,
    /// The assignment that it is sent for.
    pub attempt: Attempt,
    /// Format of the payload.
    pub format: PayloadFormat,
    /// CRC-32C of the payload.
    pub digest: u32,
    /// Payload bytes, the same as the body length of the prefix.
    pub payload_bytes: u64,
}

/// Why the head of an STF frame is refused. The connection is closed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StfHeaderError {
    /// Not 64 bytes.
    #[error("STF header has {got} bytes, expected {}", StfHeader::SIZE)]
    Size {
        /// Bytes found.
        got: usize,
    },
    /// Another version wrote it.
    #[error("STF header has version {found}, expected {}", StfHeader::VERSION)]
    Version {
        /// The version found.
        found: u16,
    },
    /// Unknown payload format.
    #[error(
        "STF header has payload format {found}, expected 0 to {}",
        PayloadFormat::CODE_MAX
    )]
    Format {
        /// The code found.
        found: u8,
    },
    /// Header and frame prefix disagree about the payload.
    #[error("STF header says {stated} payload bytes, its frame has {framed}")]
    PayloadBytes {
        /// Size that the header states.
        stated: u64,
        /// The body length of the prefix.
        framed: u64,
    },
}

impl StfHeader {
    /// Bytes of a header on the wire.
    pub const SIZE: usize = 64;
    /// The header version of this build.
    pub const VERSION: u16 = 1;

    /// Returns the header of `stf` as `source` sends it in `run` for `attempt`.
    #[must_use]
    pub fn of(stf: &Stf, run: RunId, source: Source, attempt: Attempt) -> Self {
        Self {
            key: StfKey {
                run,
                tf: stf.tf,
                source,
            },
            attempt,
            format: stf.format,
            digest: stf.digest,
            payload_bytes: stf.bytes(),
        }
    }

    /// Returns the 64 bytes on the wire.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[0..2].copy_from_slice(&Self::VERSION.to_le_bytes());
        bytes[2] = self.format.code();
        bytes[4..6].copy_from_slice(&self.key.source.flp.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.key.run.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.key.tf.0.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.key.source.incarnation.0.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.attempt.0.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.digest.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes
    }

    /// Reads the head of a frame whose body has `framed` bytes.
    ///
    /// # Errors
    ///
    /// [`Size`](StfHeaderError::Size) unless `head` is 64 bytes long, [`Version`](StfHeaderError::Version)
    /// if another version wrote it, [`Format`](StfHeaderError::Format) for an unknown payload format,
    /// [`PayloadBytes`](StfHeaderError::PayloadBytes) if header and frame disagree.
    pub fn decode(head: &[u8], framed: u64) -> Result<Self, StfHeaderError> {
        let Ok(bytes) = <&[u8; Self::SIZE]>::try_from(head) else {
            return Err(StfHeaderError::Size { got: head.len() });
        };
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u32_at =
            |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 of 64 bytes"));
        let u64_at =
            |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 of 64 bytes"));
        if u16_at(0) != Self::VERSION {
            return Err(StfHeaderError::Version { found: u16_at(0) });
        }
        let format =
            PayloadFormat::from_code(bytes[2]).ok_or(StfHeaderError::Format { found: bytes[2] })?;
        let payload_bytes = u64_at(40);
        if payload_bytes != framed {
            return Err(StfHeaderError::PayloadBytes {
                stated: payload_bytes,
                framed,
            });
        }
        Ok(Self {
            key: StfKey {
                run: RunId(u64_at(8)),
                tf: TfId(u64_at(16)),
                source: Source {
                    flp: FlpId(u16_at(4)),
                    incarnation: Incarnation(u64_at(24)),
                },
            },
            attempt: Attempt(u32_at(32)),
            format,
            digest: u32_at(36),
            payload_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> StfHeader {
        let stf = Stf::new(
            TfId(7),
            PayloadFormat::RdhPages,
            Bytes::from_static(b"payload"),
        );
        let source = Source {
            flp: FlpId(3),
            incarnation: Incarnation(4),
        };
        StfHeader::of(&stf, RunId(9), source, Attempt(2))
    }

    #[test]
    fn formats_stand_by_their_code() {
        for (code, format) in (0..).zip(PayloadFormat::ALL) {
            assert_eq!(format.code(), code);
            assert_eq!(PayloadFormat::from_code(code), Some(format));
        }
        assert_eq!(PayloadFormat::from_code(PayloadFormat::CODE_MAX + 1), None);
    }

    #[test]
    fn a_header_survives_the_wire() {
        let header = header();
        assert_eq!(StfHeader::decode(&header.encode(), 7), Ok(header));
    }

    #[test]
    fn what_is_not_a_header_is_named() {
        let bytes = header().encode();
        let cut = StfHeader::decode(&bytes[..63], 7).unwrap_err();
        assert_eq!(cut.to_string(), "STF header has 63 bytes, expected 64");
        let other = StfHeader::decode(&bytes, 8).unwrap_err();
        assert_eq!(
            other.to_string(),
            "STF header says 7 payload bytes, its frame has 8"
        );
        let mut changed = bytes;
        changed[0] = 2;
        assert_eq!(
            StfHeader::decode(&changed, 7),
            Err(StfHeaderError::Version { found: 2 })
        );
        changed = bytes;
        changed[2] = 5;
        assert_eq!(
            StfHeader::decode(&changed, 7),
            Err(StfHeaderError::Format { found: 5 })
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused_without_a_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..130), framed in any::<u64>()
        ) {
            if let Ok(header) = StfHeader::decode(&bytes, framed) {
                prop_assert_eq!(StfHeader::decode(&header.encode(), framed), Ok(header));
            }
        }
    }
}
