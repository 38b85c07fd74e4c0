//! Segment of a log in ZooKeeper: the records of one write.
//!
//! Little-endian: `SLZ1`, flags (u8; 1: the last append goes on in the next segment), term (u64), number of the segment
//! (u64), records before it (u64), records in it (u32), bytes of them (u32), the records, CRC-32C of all before (u32).

use sheaf_protocol::{DecodeError, Record, Term, crc32c};
use thiserror::Error;

const MAGIC: &[u8; 4] = b"SLZ1";
const HEAD: usize = 4 + 1 + 8 + 8 + 8 + 4 + 4;
const CRC: usize = 4;

/// One segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// The term of the leader that wrote it.
    pub(super) term: Term,
    /// Number of the segment, as in its name.
    pub(super) number: u64,
    /// Number of records in the segments before it.
    pub(super) before: u64,
    /// Whether the last append goes on in the next segment.
    pub(super) goes_on: bool,
    /// The records.
    pub(super) records: Vec<Record>,
}

/// Reason why bytes are no segment.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum SegmentError {
    #[error("found {found} bytes, expected at least {}", HEAD + CRC)]
    Cut { found: usize },
    #[error("found {found:02x?} at its begin, expected {MAGIC:02x?}")]
    Magic { found: [u8; 4] },
    #[error("found the flags {found:#x}, expected 0 or 1")]
    Flags { found: u8 },
    #[error("found {found} bytes, expected {expected}")]
    Length { found: usize, expected: u64 },
    #[error("found the CRC-32C {found:08x}, expected {expected:08x}")]
    Crc { found: u32, expected: u32 },
    #[error("found the number {found}, expected {expected}")]
    Number { found: u64, expected: u64 },
    #[error("found {found} records, expected {expected}")]
    Count { found: usize, expected: u32 },
    #[error("no record: {0}")]
    Record(#[from] DecodeError),
}

/// Returns the bytes of a segment whose `count` records are encoded already.
pub(super) fn encode(
    term: Term,
    number: u64,
    before: u64,
    goes_on: bool,
    count: u32,
    records: &[u8],
) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD + records.len() + CRC);
    bytes.extend(MAGIC);
    bytes.push(u8::from(goes_on));
    for value in [term.0, number, before] {
        bytes.extend(value.to_le_bytes());
    }
    bytes.extend(count.to_le_bytes());
    let length = u32::try_from(records.len()).expect("records of at most 512 KiB");
    bytes.extend(length.to_le_bytes());
    bytes.extend(records);
    let crc = crc32c(&bytes);
    bytes.extend(crc.to_le_bytes());
    bytes
}

impl Segment {
    /// Reads the segment with this `number`.
    pub(super) fn decode(number: u64, bytes: &[u8]) -> Result<Self, SegmentError> {
        let found = bytes.len();
        if found < HEAD + CRC {
            return Err(SegmentError::Cut { found });
        }
        let (rest, crc) = bytes.split_at(found - CRC);
        let (head, body) = rest.split_at(HEAD);
        let magic = [head[0], head[1], head[2], head[3]];
        if magic != *MAGIC {
            return Err(SegmentError::Magic { found: magic });
        }
        let length = u32_at(head, 33);
        let expected = (HEAD + CRC) as u64 + u64::from(length);
        if found as u64 != expected {
            return Err(SegmentError::Length { found, expected });
        }
        let (found, expected) = (u32_at(crc, 0), crc32c(rest));
        if found != expected {
            return Err(SegmentError::Crc { found, expected });
        }
        if head[4] > 1 {
            return Err(SegmentError::Flags { found: head[4] });
        }
        let found = u64_at(head, 13);
        if found != number {
            return Err(SegmentError::Number {
                found,
                expected: number,
            });
        }
        let records = Record::decode_all(body)?;
        let expected = u32_at(head, 29);
        if records.len() as u64 != u64::from(expected) {
            let found = records.len();
            return Err(SegmentError::Count { found, expected });
        }
        Ok(Self {
            term: Term(u64_at(head, 5)),
            number,
            before: u64_at(head, 21),
            goes_on: head[4] == 1,
            records,
        })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(
        bytes[at..at + 4]
            .try_into()
            .expect("4 bytes of a checked length"),
    )
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(
        bytes[at..at + 8]
            .try_into()
            .expect("8 bytes of a checked length"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_protocol::RunId;

    fn sample() -> Vec<u8> {
        let mut records = Vec::new();
        Record::Opened { run: RunId(9) }.encode_into(&mut records);
        Record::Over.encode_into(&mut records);
        encode(Term(3), 17, 100, true, 2, &records)
    }

    #[test]
    fn a_segment_survives_being_written() {
        let segment = Segment::decode(17, &sample()).unwrap();
        let records = vec![Record::Opened { run: RunId(9) }, Record::Over];
        let (term, number, before) = (Term(3), 17, 100);
        let goes_on = true;
        assert_eq!(
            segment,
            Segment {
                term,
                number,
                before,
                goes_on,
                records
            }
        );
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_an_error() {
        let bytes = sample();
        for cut in 0..bytes.len() {
            assert!(Segment::decode(17, &bytes[..cut]).is_err(), "cut at {cut}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Segment::decode(17, &bytes).is_err(), "bit {bit}");
        }
        let moved = Segment::decode(18, &bytes).unwrap_err().to_string();
        assert_eq!(moved, "found the number 17, expected 18");
    }
}
