//! Payloads of O2 blocks: a TF of a file, or the share that one FLP has in it.
//!
//! A payload is itself a TF of the file format. One that is not the TF of the file byte for byte begins with a block
//! `FLP/SHEAF_SHARE`, which says where its blocks stand among all of the TF, so that the shares of several FLPs make
//! the same TF again.

use super::equipment::Equipment;
use super::header::Block;
use super::header::DataHeader;
use super::layout::{ENTRY_BYTES, FILE_VERSION, FLP, META_BYTES, PLACE_BYTES, SHARE};
use super::read::{FileTf, FileTfs};
use crate::fault::{Fault, FaultKind, Findings};
use crate::fields::{array, u32_le};
use crate::pieces::join;
use std::ops::Range;
use thiserror::Error;

/// Reason why a payload has no TF of O2 blocks.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("payload of O2 blocks has {count} faults, the first at {first}")]
pub struct PayloadError {
    /// The first fault; its offset is that within the payload.
    pub first: Fault,
    /// Number of faults.
    pub count: usize,
}

/// Refusal of a TF whose blocks are to be taken for RDH pages alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("TF has a block of {found}, expected RDH pages alone: blocks of RAWDATA")]
pub struct NotPages {
    /// Equipment of the first other block.
    pub found: Equipment,
}

/// The payload of an STF, read: one whole TF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TfPayload {
    tf: FileTf,
    /// For the share of an FLP: the rows of its blocks.
    places: Option<Vec<Place>>,
}

/// Row of blocks of one equipment in the TF of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// Number of the row, from 0.
    number: u32,
    /// Blocks in the row.
    blocks: u32,
    /// The four bytes in the entry of the index that mean nothing.
    padding: [u8; 4],
}

/// Entry of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) equipment: Equipment,
    pub(super) blocks: u32,
    /// Bytes of the blocks, headers included.
    pub(super) bytes: u64,
    pub(super) padding: [u8; 4],
}

/// Blocks of one equipment that follow each other.
pub(super) struct Row<'a> {
    pub(super) equipment: Equipment,
    pub(super) blocks: &'a [Block],
    /// Place among all rows of the TF, where it is known.
    pub(super) place: Option<u32>,
    pub(super) padding: [u8; 4],
}

impl TfPayload {
    /// Reads `payload`, which is not empty.
    ///
    /// # Errors
    ///
    /// [`PayloadError`] unless it is one TF without a fault.
    pub fn read(payload: &[u8]) -> Result<Self, PayloadError> {
        let mut findings = Findings::default();
        let mut tfs = FileTfs::new(payload);
        let tf = tfs.next_good(&mut findings);
        if let Some(tf) = &tf
            && tf.bytes < payload.len()
        {
            findings.fault(tf.bytes, FaultKind::BadOffset, || {
                let (found, expected) = (payload.len(), tf.bytes);
                format!("payload has {found} bytes, expected {expected}, those of one TF")
            });
        }
        findings.sort();
        let count = findings.faults.len();
        match (tf, findings.faults.into_iter().next()) {
            (Some(tf), None) => {
                let places = places(&tf, payload);
                Ok(Self { tf, places })
            }
            (_, Some(first)) => Err(PayloadError { first, count }),
            (None, None) => Err(PayloadError {
                first: Fault {
                    offset: 0,
                    kind: FaultKind::Truncated,
                    detail: "payload is empty, expected a TF".to_owned(),
                },
                count: 1,
            }),
        }
    }

    /// Returns the blocks of data.
    #[must_use]
    pub fn blocks(&self) -> &[Block] {
        let first = usize::from(self.places.is_some());
        self.tf.blocks.get(first..).unwrap_or_default()
    }

    /// Returns the TF, which in the share of an FLP begins with a block of ours.
    #[must_use]
    pub fn tf(&self) -> &FileTf {
        &self.tf
    }

    /// Returns whether the payload is the TF of a file byte for byte.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.places.is_none()
    }

    /// Returns the places of all RDH pages in the payload.
    ///
    /// # Errors
    ///
    /// [`NotPages`] with the first block that has none.
    pub fn pages(&self) -> Result<Vec<Range<usize>>, NotPages> {
        pages_of(self.blocks())
    }

    /// Returns the blocks in rows of one equipment; `payload` is what was read.
    pub(super) fn rows<'a>(&'a self, payload: &'a [u8]) -> Vec<Row<'a>> {
        let Some(places) = &self.places else {
            return rows_of(&self.tf, payload).collect();
        };
        let mut left = self.blocks();
        let mut rows = Vec::with_capacity(places.len());
        for place in places {
            let (blocks, rest) = left.split_at(left.len().min(place.blocks as usize));
            left = rest;
            if let Some(first) = blocks.first() {
                rows.push(Row {
                    equipment: first.header.equipment,
                    blocks,
                    place: Some(place.number),
                    padding: place.padding,
                });
            }
        }
        rows
    }
}

/// Returns the places of the RDH pages in `blocks`.
///
/// # Errors
///
/// [`NotPages`] with the first block that has none.
pub fn pages_of(blocks: &[Block]) -> Result<Vec<Range<usize>>, NotPages> {
    let mut pages = Vec::new();
    for block in blocks {
        let found = block.header.equipment;
        if !found.is_pages() {
            return Err(NotPages { found });
        }
        if !block.payload.is_empty() {
            join(&mut pages, block.payload.clone());
        }
    }
    Ok(pages)
}

/// The share of an FLP in one or several TFs of files, as the pieces of a payload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Excerpt {
    /// Bytes in front: description, index, places. Empty if the payload is one whole TF of a file.
    pub heads: Vec<u8>,
    /// Bytes behind: the input, and the place in it.
    pub pieces: Vec<(usize, Range<usize>)>,
    /// Number of blocks of data.
    pub blocks: usize,
}

impl Excerpt {
    /// Takes the blocks of `tfs` that are `wanted`. Each TF comes with the number of its input and the bytes of it;
    /// their blocks make one TF, whose description is that of the first.
    #[must_use]
    pub fn new(tfs: &[(usize, &[u8], &FileTf)], wanted: impl Fn(&Equipment) -> bool) -> Self {
        if let [(input, _, tf)] = tfs
            && tf.is_index_good
            && !tf.blocks.first().is_some_and(is_share)
            && tf
                .blocks
                .iter()
                .all(|block| wanted(&block.header.equipment))
        {
            return Self {
                heads: Vec::new(),
                pieces: vec![(*input, tf.offset..tf.offset + tf.bytes)],
                blocks: tf.blocks.len(),
            };
        }
        let mut made = Self::default();
        let mut places = Vec::new();
        let mut entries: Vec<Entry> = Vec::new();
        let mut place: u32 = 0;
        for (input, bytes, tf) in tfs {
            for row in rows_of(tf, bytes) {
                let range = row.bytes();
                if wanted(&row.equipment) {
                    places.extend_from_slice(&place.to_le_bytes());
                    places.extend_from_slice(&number_of(row.blocks.len()).to_le_bytes());
                    places.extend_from_slice(&row.padding);
                    widen(&mut entries, row.entry());
                    made.blocks += row.blocks.len();
                    match made.pieces.last_mut() {
                        Some((last, piece)) if last == input && piece.end == range.start => {
                            piece.end = range.end;
                        }
                        _ => made.pieces.push((*input, range)),
                    }
                }
                place = place.saturating_add(1);
            }
        }
        let header = DataHeader::new(share(), places.len() as u64).encode();
        let mut all = Vec::with_capacity(1 + entries.len());
        all.push(Entry {
            equipment: share(),
            blocks: 1,
            bytes: (header.len() + places.len()) as u64,
            padding: [0; 4],
        });
        for entry in entries {
            widen(&mut all, entry);
        }
        let time = tfs.iter().map(|(_, _, tf)| tf.write_time_ms).max();
        let fronts = tfs.iter().map(|(_, input, tf)| (*input, *tf));
        made.heads = front(fronts, time.unwrap_or(0), &all, true);
        made.heads.extend_from_slice(&header);
        made.heads.extend_from_slice(&places);
        made
    }

    /// Returns the bytes of the payload.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let pieces: usize = self.pieces.iter().map(|(_, range)| range.len()).sum();
        self.heads.len() + pieces
    }
}

impl Row<'_> {
    /// Returns the place of its blocks in the input, headers included.
    pub(super) fn bytes(&self) -> Range<usize> {
        let start = self.blocks.first().map_or(0, |block| block.offset);
        let end = self.blocks.last().map_or(start, |block| block.payload.end);
        start..end
    }

    fn entry(&self) -> Entry {
        Entry {
            equipment: self.equipment,
            blocks: number_of(self.blocks.len()),
            bytes: self.bytes().len() as u64,
            padding: self.padding,
        }
    }
}

/// Returns the rows of `tf`, which was read from `input`.
fn rows_of<'a>(tf: &'a FileTf, input: &'a [u8]) -> impl Iterator<Item = Row<'a>> {
    let index = tf.index.as_ref().filter(|_| tf.is_index_good);
    let entries = index.and_then(|index| input.get(index.payload.clone()));
    let entries = entries.unwrap_or_default();
    let rows = tf.blocks.chunk_by(is_same).enumerate();
    rows.filter_map(move |(number, blocks)| {
        Some(Row {
            equipment: blocks.first()?.header.equipment,
            blocks,
            place: None,
            padding: array(entries, number * ENTRY_BYTES + 28).unwrap_or_default(),
        })
    })
}

/// Returns description and index of a TF whose index has `entries`.
///
/// Their headers are those of the first TF of `fronts`, byte for byte but for the size of the index; without one, ours.
/// A TF without entries has an index if `has_index` or one of `fronts` has.
pub(super) fn front<'a>(
    fronts: impl Iterator<Item = (&'a [u8], &'a FileTf)>,
    write_time_ms: u64,
    entries: &[Entry],
    has_index: bool,
) -> Vec<u8> {
    let (mut meta, mut index) = (None, None);
    for (input, tf) in fronts {
        let header = |block: &Block| input.get(block.offset..block.payload.start);
        meta = meta.or_else(|| header(&tf.meta));
        index = index.or_else(|| header(tf.index.as_ref()?));
    }
    let ours = super::header::front_headers();
    let has_index = has_index || index.is_some() || !entries.is_empty();
    let meta = meta.unwrap_or(&ours.0);
    let mut index = index.unwrap_or(&ours.1).to_vec();
    index[72..80].copy_from_slice(&((entries.len() * ENTRY_BYTES) as u64).to_le_bytes());
    if !has_index {
        index.clear();
    }
    let data: u64 = entries.iter().map(|entry| entry.bytes).sum();
    let heads = meta.len() + META_BYTES + index.len() + entries.len() * ENTRY_BYTES;
    let mut bytes = Vec::with_capacity(heads);
    bytes.extend_from_slice(meta);
    for number in [FILE_VERSION, heads as u64 + data, write_time_ms] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(&index);
    let mut offset = 0_u64;
    for entry in entries {
        bytes.extend_from_slice(&entry.equipment.description);
        bytes.extend_from_slice(&entry.equipment.origin);
        bytes.extend_from_slice(&entry.blocks.to_le_bytes());
        bytes.extend_from_slice(&entry.equipment.subspec.to_le_bytes());
        bytes.extend_from_slice(&entry.padding);
        bytes.extend_from_slice(&offset.to_le_bytes());
        bytes.extend_from_slice(&entry.bytes.to_le_bytes());
        offset += entry.bytes;
    }
    bytes
}

/// Appends blocks to the entries of an index: those of one equipment that follow each other make one.
pub(super) fn widen(entries: &mut Vec<Entry>, entry: Entry) {
    match entries.last_mut() {
        Some(last) if last.equipment == entry.equipment => {
            last.blocks = last.blocks.saturating_add(entry.blocks);
            last.bytes += entry.bytes;
        }
        _ => entries.push(entry),
    }
}

/// Converts a number of blocks: a payload has fewer than 2^32, since each has 64 bytes at least.
pub(super) fn number_of(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn share() -> Equipment {
    Equipment {
        description: SHARE,
        origin: FLP,
        subspec: 0,
    }
}

fn is_share(block: &Block) -> bool {
    block.header.equipment == share()
}

fn is_same(a: &Block, b: &Block) -> bool {
    a.header.equipment == b.header.equipment
}

/// Returns the rows of a share, and where they stand in their TF; `None` if `tf` does not begin with such a list, or
/// one that contradicts its blocks.
fn places(tf: &FileTf, payload: &[u8]) -> Option<Vec<Place>> {
    let (first, mut left) = tf.blocks.split_first()?;
    let list = payload.get(first.payload.clone())?;
    if !is_share(first) || !list.len().is_multiple_of(PLACE_BYTES) {
        return None;
    }
    let mut places = Vec::with_capacity(list.len() / PLACE_BYTES);
    for entry in list.chunks_exact(PLACE_BYTES) {
        let place = Place {
            number: u32_le(entry, 0)?,
            blocks: u32_le(entry, 4)?,
            padding: array(entry, 8)?,
        };
        let (row, rest) = left.split_at_checked(place.blocks as usize)?;
        if row.is_empty() || row.chunk_by(is_same).count() > 1 {
            return None;
        }
        places.push(place);
        left = rest;
    }
    left.is_empty().then_some(places)
}
