//! Records that say where the bodies of a message lie, and records in which a message comes back.
//!
//! A lane and a hand-over have them in common; `docs/how-to/shm.md` has their layout, for other languages. All integers
//! are little-endian. Whatever a peer writes into a record, reading it gives a message or a fault.

use super::answer::{TAGS_BYTES_MAX, are_tags};
use crate::fault::ShmFault;

/// Bytes at the front of a record of a message: number, slot, bytes of the head, bodies.
pub(crate) const FIXED: usize = 8 + 4 + 4 + 4;
/// Bytes of the place of a body: region, offset, bytes.
pub(crate) const PLACE: usize = 4 + 8 + 8;
/// Bytes at the front of a record that comes back: slot, product.
pub(crate) const BACK_FIXED: usize = 4 + 4;
/// Bytes of a record that comes back without an answer: its slot.
pub(crate) const BACK_SLOT: usize = 4;

/// Place of a body in memory that both sides have mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) region: u32,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

impl Place {
    pub(crate) fn encode(self) -> [u8; PLACE] {
        let mut encoded = [0; PLACE];
        encoded[..4].copy_from_slice(&self.region.to_le_bytes());
        encoded[4..12].copy_from_slice(&self.offset.to_le_bytes());
        encoded[12..].copy_from_slice(&self.bytes.to_le_bytes());
        encoded
    }

    pub(crate) fn decode(encoded: &[u8; PLACE]) -> Self {
        let (region, rest) = encoded.split_first_chunk().expect("20 bytes");
        let (offset, bytes) = rest.split_first_chunk().expect("16 bytes");
        Self {
            region: u32::from_le_bytes(*region),
            offset: u64::from_le_bytes(*offset),
            bytes: u64::from_le_bytes(bytes.try_into().expect("8 bytes")),
        }
    }

    /// Fault of a place that is not in the memory it names.
    pub(crate) fn fault(self) -> ShmFault {
        let Self {
            region,
            offset,
            bytes,
        } = self;
        ShmFault::Place {
            region,
            offset,
            bytes,
        }
    }
}

/// Record of a message, without its head and places: those follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fixed {
    pub(crate) number: u64,
    /// Number under which the message comes back.
    pub(crate) slot: u32,
    pub(crate) head_bytes: u32,
    pub(crate) bodies: u32,
}

impl Fixed {
    pub(crate) fn encode(self) -> [u8; FIXED] {
        let mut encoded = [0; FIXED];
        encoded[..8].copy_from_slice(&self.number.to_le_bytes());
        encoded[8..12].copy_from_slice(&self.slot.to_le_bytes());
        encoded[12..16].copy_from_slice(&self.head_bytes.to_le_bytes());
        encoded[16..].copy_from_slice(&self.bodies.to_le_bytes());
        encoded
    }
}

/// Record of a message that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub(crate) number: u64,
    pub(crate) slot: u32,
    pub(crate) head: &'a [u8],
    places: &'a [[u8; PLACE]],
}

impl<'a> Message<'a> {
    /// Reads the record of a ring whose records have at most `most` bytes.
    pub(crate) fn read(record: &'a [u8], most: usize) -> Result<Self, ShmFault> {
        let found = record.len();
        let wrong = |least| ShmFault::Record { found, least, most };
        let (number, rest) = record.split_first_chunk().ok_or_else(|| wrong(FIXED))?;
        let (slot, rest) = rest.split_first_chunk().ok_or_else(|| wrong(FIXED))?;
        let (head_bytes, rest) = rest.split_first_chunk().ok_or_else(|| wrong(FIXED))?;
        let (bodies, rest) = rest.split_first_chunk().ok_or_else(|| wrong(FIXED))?;
        let head_bytes = u32::from_le_bytes(*head_bytes) as usize;
        let needed = (u32::from_le_bytes(*bodies) as usize)
            .checked_mul(PLACE)
            .and_then(|bytes| bytes.checked_add(head_bytes))
            .unwrap_or(usize::MAX);
        if needed != rest.len() {
            return Err(wrong(needed.saturating_add(FIXED)));
        }
        let (head, places) = rest.split_at(head_bytes);
        let (places, _) = places.as_chunks();
        Ok(Self {
            number: u64::from_le_bytes(*number),
            slot: u32::from_le_bytes(*slot),
            head,
            places,
        })
    }

    /// Returns where its bodies lie.
    pub(crate) fn places(&self) -> impl ExactSizeIterator<Item = Place> + use<'a> {
        self.places.iter().map(Place::decode)
    }
}

/// Writes the front of a record that comes back; the tags follow. Product 0: none.
pub(crate) fn back(slot: u32, product: u32) -> [u8; BACK_FIXED] {
    let mut encoded = [0; BACK_FIXED];
    encoded[..4].copy_from_slice(&slot.to_le_bytes());
    encoded[4..].copy_from_slice(&product.to_le_bytes());
    encoded
}

/// Reads a record that comes back: slot, product, tags. It may end behind the slot: then there is no answer.
pub(crate) fn read_back(record: &[u8]) -> Result<(u32, u32, &str), ShmFault> {
    let (found, least) = (record.len(), BACK_SLOT);
    let most = BACK_FIXED + TAGS_BYTES_MAX;
    let wrong = || ShmFault::Record { found, least, most };
    let (slot, rest) = record.split_first_chunk().ok_or_else(wrong)?;
    if rest.is_empty() {
        return Ok((u32::from_le_bytes(*slot), 0, ""));
    }
    let (product, tags) = rest.split_first_chunk().ok_or_else(wrong)?;
    if tags.len() > TAGS_BYTES_MAX {
        return Err(wrong());
    }
    let tags = std::str::from_utf8(tags).ok().filter(|tags| are_tags(tags));
    let tags = tags.ok_or(ShmFault::Word("tags that are no words"))?;
    Ok((
        u32::from_le_bytes(*slot),
        u32::from_le_bytes(*product),
        tags,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_no_other_length_is_one() {
        let fixed = Fixed {
            number: 1 << 40,
            slot: 7,
            head_bytes: 4,
            bodies: 2,
        };
        let places = [(1, 2, 3), (u32::MAX, u64::MAX, 0)].map(|(region, offset, bytes)| Place {
            region,
            offset,
            bytes,
        });
        let encoded = places.map(Place::encode).concat();
        let record = [&fixed.encode()[..], b"head", &encoded].concat();
        let message = Message::read(&record, 1000).unwrap();
        assert_eq!((message.number, message.slot), (1 << 40, 7));
        assert_eq!(message.head, b"head");
        assert_eq!(message.places().collect::<Vec<_>>(), places);
        for cut in 0..record.len() {
            assert!(Message::read(&record[..cut], 1000).is_err(), "{cut} bytes");
        }
        let more = [&record[..], b"x"].concat();
        let fault = ShmFault::Record {
            found: 65,
            least: 64,
            most: 1000,
        };
        assert_eq!(Message::read(&more, 1000), Err(fault));
    }

    #[test]
    fn a_way_back_is_a_slot_a_product_and_words() {
        let record = [&back(3, 9)[..], b"a,b"].concat();
        assert_eq!(read_back(&record), Ok((3, 9, "a,b")));
        assert_eq!(read_back(&back(3, 0)), Ok((3, 0, "")));
        assert_eq!(read_back(&record[..4]), Ok((3, 0, "")));
        for bytes in [0, 3, 5, 7] {
            assert!(read_back(&record[..bytes]).is_err(), "{bytes} bytes");
        }
        assert!(read_back(&[&back(3, 9)[..], &[b'a'; 65]].concat()).is_err());
        assert!(read_back(&[&back(3, 9)[..], b"A"].concat()).is_err());
    }
}
