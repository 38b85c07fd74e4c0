//! Records of the writers in torture: each tells its number, its place and whether it is whole.

use sheaf_protocol::splitmix;
use sheaf_stream_files::Record;
use sheaf_write::Place;
use std::io::{self, Read};

/// Bytes in front of the content: mark, length of the content, number, stream, block.
const HEAD: usize = 32;
const MARK: u64 = 0x6b73_6564_2066_6865;
/// Bytes behind the content: a hash of all before.
const TAIL: usize = 8;

/// Record whose bytes follow from its number and place.
#[derive(Debug)]
pub(super) struct Numbered {
    pub(super) number: u64,
    bytes: Vec<u8>,
    tells_its_end: bool,
}

/// Record as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) number: u64,
    pub(super) stream: u16,
    pub(super) block: u64,
    pub(super) bytes: u64,
}

fn hash(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    words.fold(0, |sum: u64, word| {
        splitmix::mix(sum ^ word).wrapping_add(splitmix::GAMMA)
    })
}

impl Numbered {
    pub(super) fn new(number: u64, place: Place, content: u64) -> Self {
        let mut bytes = Vec::with_capacity(HEAD + content as usize + TAIL);
        let head = [
            MARK,
            content << 16 | u64::from(place.stream.0),
            number,
            place.block,
        ];
        for word in head {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend((0..content).map(|at| splitmix::mix(number ^ at << 32).to_le_bytes()[0]));
        bytes.extend(hash(&bytes).to_le_bytes());
        Self {
            number,
            bytes,
            tells_its_end: true,
        }
    }

    /// Makes the record one whose end a recovery may not find by its bytes.
    pub(super) fn listed(self, is_listed: bool) -> Self {
        Self {
            tells_its_end: !is_listed,
            ..self
        }
    }
}

impl Record for Numbered {
    fn slices(&self) -> Vec<&[u8]> {
        let (head, content) = self.bytes.split_at(HEAD);
        vec![head, content]
    }

    fn tells_its_end(&self) -> bool {
        self.tells_its_end
    }
}

/// Reads a record; `None` if there is no whole one.
pub(super) fn read(reader: &mut dyn Read) -> io::Result<Option<Found>> {
    let mut bytes = Vec::new();
    if reader.take(HEAD as u64).read_to_end(&mut bytes)? < HEAD {
        return Ok(None);
    }
    let word = |bytes: &[u8], at: usize| {
        u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
    };
    let content = word(&bytes, 8) >> 16;
    // What is no record may have any length.
    if word(&bytes, 0) != MARK || content > 1 << 20 {
        return Ok(None);
    }
    let rest = content + TAIL as u64;
    if (reader.take(rest).read_to_end(&mut bytes)? as u64) < rest {
        return Ok(None);
    }
    let end = bytes.len() - TAIL;
    if word(&bytes, end) != hash(&bytes[..end]) {
        return Ok(None);
    }
    Ok(Some(Found {
        number: word(&bytes, 16),
        stream: word(&bytes, 8).to_le_bytes()[0].into(),
        block: word(&bytes, 24),
        bytes: bytes.len() as u64,
    }))
}
