//! The header in front of every block: O2's `DataHeader`, 96 bytes in version 3.

use super::equipment::Equipment;
use super::layout::{ANY, FLP, INDEX, META, META_BYTES, NONE};
use crate::fields::{array, u32_le};
use crate::view::View;
use std::ops::Range;
use thiserror::Error;

/// The first four bytes of any header of O2.
const MAGIC: [u8; 4] = *b"O2O2";
/// Kind of the header.
const KIND: [u8; 8] = *b"DataHead";
/// The version that is written. Versions 1 and 2 lack fields at the end.
const VERSION: u32 = 3;
/// Bytes that every version has, by version from 1 on.
const SIZES_MIN: [usize; 3] = [80, 88, DataHeader::SIZE];
/// Headers behind each other that are followed.
const STACK_MAX: usize = 16;
/// Bit of the flags that announces another header behind this one.
const NEXT: u32 = 1;

/// Reason why bytes are not the header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HeaderError {
    /// The bytes end inside the header.
    #[error("header is cut: {got} of {needed} bytes")]
    Truncated {
        /// Bytes found.
        got: usize,
        /// Bytes that the header has, as far as is known.
        needed: usize,
    },
    /// No header of O2.
    #[error("header starts with {found:02x?}, expected {MAGIC:02x?} (\"O2O2\")")]
    Magic {
        /// The four bytes found.
        found: [u8; 4],
    },
    /// A header of O2 of another kind.
    #[error("header is of kind {found:02x?}, expected {KIND:02x?} (\"DataHead\")")]
    Kind {
        /// The eight bytes found.
        found: [u8; 8],
    },
    /// Another version wrote it.
    #[error("header has version {found}, expected 1 to {VERSION}")]
    Version {
        /// The version found.
        found: u32,
    },
    /// A size that its version does not have.
    #[error("header states a size of {found}, expected at least {expected}")]
    Size {
        /// The size found, in bytes.
        found: u32,
        /// The smallest that its version has.
        expected: usize,
    },
    /// Too many headers behind each other.
    #[error("more than {STACK_MAX} headers follow each other")]
    Stack,
}

/// The header of a block. Fields that a version lacks are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHeader {
    /// Equipment of the data.
    pub equipment: Equipment,
    /// Number of blocks into which the data of the equipment are split.
    pub split_parts: u32,
    /// Index of this block among them, from 0.
    pub split_index: u32,
    /// Serialisation of the payload, ASCII, padded with zeros.
    pub serialisation: [u8; 8],
    /// Bytes of the payload that follows.
    pub payload_bytes: u64,
    /// The orbit that the TF begins with.
    pub first_orbit: u32,
    /// Number of the TF in its run, from 1.
    pub tf_counter: u32,
    /// The run.
    pub run: u32,
}

impl DataHeader {
    /// Bytes of a header of version 3.
    pub const SIZE: usize = 96;

    /// Returns a header of data that are not split and belong to no TF.
    #[must_use]
    pub fn new(equipment: Equipment, payload_bytes: u64) -> Self {
        Self {
            equipment,
            split_parts: 1,
            split_index: 0,
            serialisation: NONE,
            payload_bytes,
            first_orbit: 0,
            tf_counter: 0,
            run: 0,
        }
    }

    /// Returns the 96 bytes of version 3.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut raw = [0; Self::SIZE];
        raw[0..4].copy_from_slice(&MAGIC);
        raw[4] = Self::SIZE as u8; // 96
        raw[12..16].copy_from_slice(&VERSION.to_le_bytes());
        raw[16..24].copy_from_slice(&KIND);
        raw[24..32].copy_from_slice(&NONE);
        raw[32..48].copy_from_slice(&self.equipment.description);
        raw[48..52].copy_from_slice(&self.equipment.origin);
        raw[52..56].copy_from_slice(&self.split_parts.to_le_bytes());
        raw[56..64].copy_from_slice(&self.serialisation);
        raw[64..68].copy_from_slice(&self.equipment.subspec.to_le_bytes());
        raw[68..72].copy_from_slice(&self.split_index.to_le_bytes());
        raw[72..80].copy_from_slice(&self.payload_bytes.to_le_bytes());
        raw[80..84].copy_from_slice(&self.first_orbit.to_le_bytes());
        raw[84..88].copy_from_slice(&self.tf_counter.to_le_bytes());
        raw[88..92].copy_from_slice(&self.run.to_le_bytes());
        raw
    }

    /// Reads the header at the start of `bytes`, and passes over those that follow it. Returns the bytes of all.
    ///
    /// # Errors
    ///
    /// [`HeaderError`] with the first fault.
    pub fn decode(bytes: &[u8]) -> Result<(Self, usize), HeaderError> {
        let mut view = bytes;
        Self::read(&mut view, 0, bytes.len())
    }

    /// Reads the header at byte `at` of `view`, of which the bytes up to `end` are looked at, as
    /// [`decode`](Self::decode) does.
    pub(super) fn read(
        view: &mut impl View,
        at: usize,
        end: usize,
    ) -> Result<(Self, usize), HeaderError> {
        let left = end.saturating_sub(at);
        let bytes = view.at(at, Self::SIZE.min(left));
        let (size, version, mut flags) = base(bytes)?;
        let kind = field(bytes, 16)?;
        if kind != KIND {
            return Err(HeaderError::Kind { found: kind });
        }
        let known = usize::try_from(version)
            .ok()
            .and_then(|version| SIZES_MIN.get(version.checked_sub(1)?));
        let Some(size_min) = known.copied() else {
            return Err(HeaderError::Version { found: version });
        };
        let mut read = sized(left, size, size_min)?;
        let header = Self {
            equipment: Equipment {
                description: field(bytes, 32)?,
                origin: field(bytes, 48)?,
                subspec: u32::from_le_bytes(field(bytes, 64)?),
            },
            split_parts: u32::from_le_bytes(field(bytes, 52)?),
            split_index: u32::from_le_bytes(field(bytes, 68)?),
            serialisation: field(bytes, 56)?,
            payload_bytes: u64::from_le_bytes(field(bytes, 72)?),
            first_orbit: field_within(bytes, 80, size_min),
            tf_counter: field_within(bytes, 84, size_min),
            run: field_within(bytes, 88, size_min),
        };
        for _ in 1..STACK_MAX {
            if flags & NEXT == 0 {
                return Ok((header, read));
            }
            let left = left - read;
            let next = view.at(at + read, BASE_BYTES.min(left));
            let (size, _, next_flags) = base(next)?;
            read += sized(left, size, BASE_BYTES)?;
            flags = next_flags;
        }
        Err(HeaderError::Stack)
    }

    /// Returns whether `bytes` begin like the header of a block.
    #[must_use]
    pub fn is_at_start_of(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC) && array(bytes, 16) == Some(KIND)
    }
}

/// Number of bytes that every header of O2 begins with.
const BASE_BYTES: usize = 32;

/// Returns size, version and flags of any header of O2.
fn base(bytes: &[u8]) -> Result<(u32, u32, u32), HeaderError> {
    let magic: [u8; 4] = field(bytes, 0)?;
    if magic != MAGIC {
        return Err(HeaderError::Magic { found: magic });
    }
    let number = |at| field(bytes, at).map(u32::from_le_bytes);
    Ok((number(4)?, number(12)?, number(8)?))
}

/// Returns the stated size of a header whose bytes are all among the `left` ones.
fn sized(left: usize, size: u32, size_min: usize) -> Result<usize, HeaderError> {
    let found = size as usize;
    if found < size_min {
        return Err(HeaderError::Size {
            found: size,
            expected: size_min,
        });
    }
    if found > left {
        return Err(HeaderError::Truncated {
            got: left,
            needed: found,
        });
    }
    Ok(found)
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], HeaderError> {
    array(bytes, at).ok_or(HeaderError::Truncated {
        got: bytes.len(),
        needed: (at + N).max(SIZES_MIN[0]),
    })
}

/// Returns a number that later versions have, 0 where the version has no such field.
fn field_within(bytes: &[u8], at: usize, size: usize) -> u32 {
    let has = at + 4 <= size;
    has.then(|| u32_le(bytes, at)).flatten().unwrap_or(0)
}

/// One block of a TF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Byte of the input where the block begins.
    pub offset: usize,
    /// Header of the block.
    pub header: DataHeader,
    /// Place of the payload in the input.
    pub payload: Range<usize>,
}

/// Returns the headers of description and index as Sheaf writes them, the second of an empty index.
pub(super) fn front_headers() -> ([u8; DataHeader::SIZE], [u8; DataHeader::SIZE]) {
    let header = |description, origin, bytes: usize| {
        let equipment = Equipment {
            description,
            origin,
            subspec: 0,
        };
        DataHeader::new(equipment, bytes as u64).encode()
    };
    (header(META, FLP, META_BYTES), header(INDEX, ANY, 0))
}
