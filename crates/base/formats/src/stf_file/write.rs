//! Layout of a TF in a file: headers that are made, payloads that stay where they are.

use super::equipment::Equipment;
use super::header::DataHeader;
use super::layout::{ANY, ENTRY_BYTES, FILE_VERSION, FLP, INDEX, META, META_BYTES};
use crate::hbf::{Hbf, earliest, hbfs};
use crate::pieces::bytes_of;
use crate::rdh::Rdh;
use sheaf_protocol::{FlpId, PayloadFormat, RunId, TfId};
use std::collections::BTreeMap;
use std::ops::Range;

/// Description of a TF in a file, beside its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TfName {
    /// The run: 32 bits.
    pub run: u32,
    /// Number of the TF in its run, from 1: 32 bits.
    pub counter: u32,
    /// When the TF is written, in ms since 1970.
    pub write_time_ms: u64,
}

impl TfName {
    /// Returns the name of TF `tf` of `run`: the low halves of both, TF 0 being the first, as there is no room for
    /// more.
    #[must_use]
    pub fn new(run: RunId, tf: TfId, write_time_ms: u64) -> Self {
        let low = |number: u64| (number & u64::from(u32::MAX)) as u32; // what was just cut off
        Self {
            run: low(run.0),
            counter: low(tf.0.wrapping_add(1)),
            write_time_ms,
        }
    }
}

/// A piece of a TF in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bytes of [`TfImage::heads`].
    Head(Range<usize>),
    /// Bytes of the payload of a part.
    Payload {
        /// Place of the part among all.
        part: usize,
        /// Range of its bytes.
        range: Range<usize>,
    },
}

/// A TF as it stands in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TfImage {
    /// All headers and the index, one behind the other.
    pub heads: Vec<u8>,
    /// Pieces in their order.
    pub pieces: Vec<Piece>,
    /// Bytes of all pieces together.
    pub bytes: u64,
}

/// One block: the place of its payload.
struct Made {
    part: usize,
    pieces: Vec<Range<usize>>,
}

impl TfImage {
    /// Lays out a TF of `parts`, each with its FLP, its format and its payload.
    ///
    /// Blocks are ordered by description, origin and subspecification. A payload of RDH pages becomes a block for each
    /// heartbeat frame; one that is not made of whole HBFs, or not of pages, one block under a name of ours: every byte
    /// of every part is in the file.
    #[must_use]
    pub fn new(name: TfName, parts: &[(FlpId, PayloadFormat, &[u8])]) -> Self {
        let mut blocks: BTreeMap<Equipment, Vec<Made>> = BTreeMap::new();
        let mut orbits = Vec::new();
        for (part, (flp, format, payload)) in parts.iter().enumerate() {
            let whole = match format {
                PayloadFormat::RdhPages => whole_hbfs(payload),
                _ => None,
            };
            let Some(frames) = whole else {
                let made = Made {
                    part,
                    pieces: std::iter::once(0..payload.len()).collect(),
                };
                let equipment = Equipment::of_stf(*flp, *format);
                blocks.entry(equipment).or_default().push(made);
                continue;
            };
            for (equipment, orbit, pieces) in frames {
                orbits.push(orbit);
                blocks
                    .entry(equipment)
                    .or_default()
                    .push(Made { part, pieces });
            }
        }
        Self::of_blocks(name, earliest(orbits.into_iter()).unwrap_or(0), &blocks)
    }

    fn of_blocks(name: TfName, orbit: u32, blocks: &BTreeMap<Equipment, Vec<Made>>) -> Self {
        let count: usize = blocks.values().map(Vec::len).sum();
        let front = 2 * DataHeader::SIZE + META_BYTES + blocks.len() * ENTRY_BYTES;
        let payload_bytes: usize = blocks
            .values()
            .flatten()
            .map(|made| bytes_of(&made.pieces))
            .sum();
        let bytes = (front + count * DataHeader::SIZE + payload_bytes) as u64;
        let mut heads = Vec::with_capacity(front + count * DataHeader::SIZE);
        let block = |description, origin, bytes: usize| {
            let equipment = Equipment {
                description,
                origin,
                subspec: 0,
            };
            DataHeader::new(equipment, bytes as u64).encode()
        };
        heads.extend_from_slice(&block(META, FLP, META_BYTES));
        for number in [FILE_VERSION, bytes, name.write_time_ms] {
            heads.extend_from_slice(&number.to_le_bytes());
        }
        heads.extend_from_slice(&block(INDEX, ANY, blocks.len() * ENTRY_BYTES));
        let mut offset = 0_u64;
        for (equipment, made) in blocks {
            let payloads: usize = made.iter().map(|made| bytes_of(&made.pieces)).sum();
            let size = (payloads + made.len() * DataHeader::SIZE) as u64;
            heads.extend_from_slice(&equipment.description);
            heads.extend_from_slice(&equipment.origin);
            heads.extend_from_slice(&number_of(made.len()).to_le_bytes());
            heads.extend_from_slice(&equipment.subspec.to_le_bytes());
            heads.extend_from_slice(&[0; 4]);
            heads.extend_from_slice(&offset.to_le_bytes());
            heads.extend_from_slice(&size.to_le_bytes());
            offset += size;
        }
        let mut pieces = Vec::with_capacity(1 + 2 * count);
        let mut head_from = 0;
        for (equipment, made) in blocks {
            for (index, block) in made.iter().enumerate() {
                let header = DataHeader {
                    split_parts: number_of(made.len()),
                    split_index: number_of(index),
                    first_orbit: orbit,
                    tf_counter: name.counter,
                    run: name.run,
                    ..DataHeader::new(*equipment, bytes_of(&block.pieces) as u64)
                };
                heads.extend_from_slice(&header.encode());
                pieces.push(Piece::Head(head_from..heads.len()));
                head_from = heads.len();
                pieces.extend(block.pieces.iter().map(|range| Piece::Payload {
                    part: block.part,
                    range: range.clone(),
                }));
            }
        }
        if head_from < heads.len() {
            pieces.push(Piece::Head(head_from..heads.len()));
        }
        Self {
            heads,
            pieces,
            bytes,
        }
    }

    /// Returns the bytes of the file, piece by piece; `payloads` are those of the parts that it was made of.
    pub fn slices<'a>(&'a self, payloads: &'a [&'a [u8]]) -> impl Iterator<Item = &'a [u8]> {
        self.pieces.iter().map(move |piece| match piece {
            Piece::Head(range) => &self.heads[range.clone()],
            Piece::Payload { part, range } => &payloads[*part][range.clone()],
        })
    }
}

/// Equipment, orbit and place of an HBF.
type WholeHbf = (Equipment, u32, Vec<Range<usize>>);

/// Returns equipment, orbit and place of all HBFs of `payload`, if it is made of nothing else.
fn whole_hbfs(payload: &[u8]) -> Option<Vec<WholeHbf>> {
    let (frames, _) = hbfs(payload);
    let whole: usize = frames.iter().map(Hbf::bytes).sum();
    if whole != payload.len() || payload.is_empty() {
        return None;
    }
    let named = frames.into_iter().map(|hbf| {
        let first = hbf.pieces.first()?.start;
        let rdh = Rdh::decode(payload.get(first..)?).ok()?;
        Some((Equipment::of_page(&rdh), hbf.orbit, hbf.pieces))
    });
    named.collect()
}

/// Converts a number of blocks: a payload has fewer than 2^32, since each has 64 bytes at least.
fn number_of(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
