//! Bytes of a ledger directory: segments of entries, the state of the member, the synced mark.
//!
//! All numbers are little-endian. `docs/how-to/ledger.md` draws the same layouts.

use super::{HardState, Seat};
use crate::entry::Entry;
use bytes::Bytes;
use sheaf_protocol::{Digest, Term, crc32c};

/// Size of a segment: it is closed when the next entry would begin behind this.
pub(crate) const SEGMENT_BYTES: u64 = 8 << 20;
/// Head of a segment: magic, first index, term of the entry before, records before, CRC-32C of all, 4 bytes zero.
pub(crate) const SEGMENT_HEAD: usize = 40;
const SEGMENT_MAGIC: [u8; 8] = *b"SHFLOG2\n";
/// Head of an entry: length of the body (4), CRC-32C of all that follows it and of the length (4), term (8), index (8),
/// synced index at the time of writing (8).
pub(crate) const ENTRY_HEAD: usize = 32;

/// Name of the file of the term and vote.
pub(crate) const STATE: &str = "state";
/// Name of the file in which the next one is written before it takes the place of the last.
pub(crate) const STATE_NEXT: &str = "state.next";
const STATE_MAGIC: [u8; 8] = *b"SHFVOTE1";
pub(crate) const STATE_BYTES: usize = 36;

/// Name of the file that holds the index up to which everything is synced.
pub(crate) const SYNCED: &str = "synced";
const SYNCED_MAGIC: [u8; 8] = *b"SHFSYNC1";
pub(crate) const SYNCED_BYTES: usize = 20;

/// Returns the name of the segment whose first entry is `first`.
pub(crate) fn segment_name(first: u64) -> String {
    format!("log-{first:020}")
}

/// Returns the first index of a segment, by its name; `None` if it is no segment.
pub(crate) fn segment_first(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("log-")?;
    let is_number = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

/// Head of a segment: the point from which it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHead {
    /// First entry of the segment.
    pub(crate) first: u64,
    /// The term of the entry before it.
    pub(crate) term: Term,
    /// Records in all entries before it.
    pub(crate) records: u64,
}

pub(crate) fn segment_head(head: SegmentHead) -> [u8; SEGMENT_HEAD] {
    let mut bytes = [0; SEGMENT_HEAD];
    bytes[..8].copy_from_slice(&SEGMENT_MAGIC);
    bytes[8..16].copy_from_slice(&head.first.to_le_bytes());
    bytes[16..24].copy_from_slice(&head.term.0.to_le_bytes());
    bytes[24..32].copy_from_slice(&head.records.to_le_bytes());
    let crc = crc32c(&bytes[..32]);
    bytes[32..36].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Appends the bytes of `entry`; everything up to index `synced` was synced before.
pub(crate) fn put_entry(out: &mut Vec<u8>, entry: &Entry, synced: u64) {
    let length = u32::try_from(entry.body.len()).expect("a body is capped far below 4 GiB");
    let start = out.len();
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&entry.term.0.to_le_bytes());
    out.extend_from_slice(&entry.index.to_le_bytes());
    out.extend_from_slice(&synced.to_le_bytes());
    out.extend_from_slice(&entry.body);
    let crc = entry_crc(&out[start..]);
    out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
}

fn entry_crc(bytes: &[u8]) -> u32 {
    let mut digest = Digest::default();
    digest.update(&bytes[..4]);
    digest.update(&bytes[8..]);
    digest.value()
}

/// An entry as it lies in a segment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) entry: Entry,
    pub(crate) synced: u64,
    /// Head and body.
    pub(crate) bytes: usize,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*field))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let field = bytes.get(at..)?.first_chunk::<8>()?;
    Some(u64::from_le_bytes(*field))
}

/// Returns how many bytes the entry at the front of `bytes` has, if its head is there and is a possible one.
pub(crate) fn entry_bytes(bytes: &[u8]) -> Option<usize> {
    let length = u32_at(bytes, 0)? as usize;
    (bytes.len() >= ENTRY_HEAD && (Entry::HEAD_BYTES..=Entry::BODY_BYTES_MAX).contains(&length))
        .then_some(ENTRY_HEAD + length)
}

/// Returns the entry at the front of `bytes`, or its fault.
pub(crate) fn read_entry(bytes: &[u8]) -> Result<Stored, &'static str> {
    let cut = "an entry is cut";
    if bytes.len() < ENTRY_HEAD {
        return Err(cut);
    }
    let size = entry_bytes(bytes).ok_or("the length of an entry is impossible")?;
    let whole = bytes.get(..size).ok_or(cut)?;
    if u32_at(whole, 4) != Some(entry_crc(whole)) {
        return Err("the checksum of an entry is wrong");
    }
    let (term, index, synced) = (u64_at(whole, 8), u64_at(whole, 16), u64_at(whole, 24));
    Ok(Stored {
        entry: Entry {
            term: Term(term.ok_or(cut)?),
            index: index.ok_or(cut)?,
            body: Bytes::copy_from_slice(&whole[ENTRY_HEAD..]),
        },
        synced: synced.ok_or(cut)?,
        bytes: size,
    })
}

/// Returns the head of the segment of `first`; `None` if `bytes` do not begin with one.
pub(crate) fn read_segment_head(bytes: &[u8], first: u64) -> Option<SegmentHead> {
    let head = SegmentHead {
        first,
        term: Term(u64_at(bytes, 16)?),
        records: u64_at(bytes, 24)?,
    };
    bytes.starts_with(&segment_head(head)).then_some(head)
}

pub(crate) fn state_bytes(state: &HardState) -> [u8; STATE_BYTES] {
    let mut bytes = [0; STATE_BYTES];
    bytes[..8].copy_from_slice(&STATE_MAGIC);
    bytes[8..16].copy_from_slice(&state.term.0.to_le_bytes());
    // 0 is no ICN: one is written as its index and 1.
    let vote = state.vote.map_or(0, |icn| u32::from(icn) + 1);
    bytes[16..20].copy_from_slice(&vote.to_le_bytes());
    if let Some(seat) = state.seat {
        bytes[20..24].copy_from_slice(&(u32::from(seat.icn) + 1).to_le_bytes());
        bytes[24..28].copy_from_slice(&u32::from(seat.icns).to_le_bytes());
        bytes[28] = u8::from(seat.has_joined);
    }
    let crc = crc32c(&bytes[..STATE_BYTES - 4]);
    bytes[STATE_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

pub(crate) fn read_state(bytes: &[u8]) -> Result<HardState, &'static str> {
    if bytes.len() != STATE_BYTES || !bytes.starts_with(&STATE_MAGIC) {
        return Err("this is no state of a ledger of this version");
    }
    if u32_at(bytes, STATE_BYTES - 4) != Some(crc32c(&bytes[..STATE_BYTES - 4])) {
        return Err("the checksum of the state is wrong");
    }
    let number = |at| u32_at(bytes, at).unwrap_or(0);
    let icn = |at| number(at).checked_sub(1).map(u16::try_from).transpose();
    let wrong = "an ICN in the state has an index beyond 65535";
    let seat = icn(20).map_err(|_| wrong)?;
    Ok(HardState {
        term: Term(u64_at(bytes, 8).unwrap_or(0)),
        vote: icn(16).map_err(|_| wrong)?,
        seat: match seat {
            Some(icn) => Some(Seat {
                icn,
                icns: u16::try_from(number(24)).map_err(|_| wrong)?,
                has_joined: bytes.get(28) == Some(&1),
            }),
            None => None,
        },
    })
}

pub(crate) fn synced_bytes(index: u64) -> [u8; SYNCED_BYTES] {
    let mut bytes = [0; SYNCED_BYTES];
    bytes[..8].copy_from_slice(&SYNCED_MAGIC);
    bytes[8..16].copy_from_slice(&index.to_le_bytes());
    let crc = crc32c(&bytes[..16]);
    bytes[16..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Returns the index in the synced mark; `None` if it is torn or missing, which a power failure may do to it.
pub(crate) fn read_synced(bytes: &[u8]) -> Option<u64> {
    let index = u64_at(bytes, 8)?;
    (bytes == synced_bytes(index)).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry {
            term: Term(3),
            index: 9,
            body: Bytes::from_static(&[1, 1, 0, 0, 0, 9]),
        }
    }

    #[test]
    fn an_entry_is_read_back_and_no_flipped_bit_goes_unseen() {
        let mut bytes = Vec::new();
        put_entry(&mut bytes, &entry(), 7);
        let stored = read_entry(&bytes).unwrap();
        assert_eq!(
            (stored.entry, stored.synced, stored.bytes),
            (entry(), 7, 38)
        );
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(read_entry(&bytes).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        for cut in 0..bytes.len() {
            assert!(read_entry(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn a_state_is_read_back_and_no_flipped_bit_goes_unseen() {
        let seat = |has_joined| Seat {
            icn: 2,
            icns: 3,
            has_joined,
        };
        for (vote, seat) in [
            (None, None),
            (Some(0), Some(seat(false))),
            (Some(2), Some(seat(true))),
        ] {
            let state = HardState {
                term: Term(7),
                vote,
                seat,
            };
            let mut bytes = state_bytes(&state);
            assert_eq!(read_state(&bytes), Ok(state));
            for bit in 0..bytes.len() * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(read_state(&bytes).is_err(), "bit {bit}");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    #[test]
    fn segments_are_named_so_that_their_order_is_that_of_their_names() {
        assert_eq!(segment_name(12), "log-00000000000000000012");
        assert_eq!(segment_first(&segment_name(u64::MAX)), Some(u64::MAX));
        for name in [
            "log-12",
            "state",
            "log-0000000000000000001x",
            "log-99999999999999999999",
        ] {
            assert_eq!(segment_first(name), None, "{name}");
        }
    }

    #[test]
    fn a_torn_mark_says_nothing() {
        let bytes = synced_bytes(5);
        assert_eq!(read_synced(&bytes), Some(5));
        assert_eq!(read_synced(&bytes[..19]), None);
        assert_eq!(read_synced(&[0; SYNCED_BYTES]), None);
    }
}
