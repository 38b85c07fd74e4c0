//! Walk through a file TF by TF, without copying: the parts of each, and its faults.
//!
//! Blocks are believed, the index is held against them. A TF that is cut or whose blocks contradict its size is left
//! out as a whole: part of a TF must not pass for a TF.

use super::equipment::Equipment;
use super::header::{DataHeader, HeaderError};
use super::layout::{ENTRY_BYTES, FILE_VERSION, INDEX, META, META_BYTES};
use crate::fault::{FaultKind, Findings, NoteKind};
use crate::fields::{array, u32_le};
use std::ops::Range;

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

/// One TF of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileTf {
    /// Byte of the input where the TF begins.
    pub offset: usize,
    /// Bytes of the TF in the file, headers and index included.
    pub bytes: usize,
    /// When the TF was written, in ms since 1970.
    pub write_time_ms: u64,
    /// Description of the TF: the block in front of all others.
    pub meta: Block,
    /// Index of the TF; `None` if the TF has its description alone.
    pub index: Option<Block>,
    /// Whether the index says what the blocks are.
    pub is_index_good: bool,
    /// Data of the TF, in the order of the file.
    pub blocks: Vec<Block>,
}

impl FileTf {
    /// Returns the number of the TF in its run, from 1; 0 if no block has it.
    #[must_use]
    pub fn counter(&self) -> u32 {
        self.first_of(|header| header.tf_counter)
    }

    /// Returns the run; 0 if no block has it.
    #[must_use]
    pub fn run(&self) -> u32 {
        self.first_of(|header| header.run)
    }

    /// Returns the orbit that the TF begins with; 0 if no block has it.
    #[must_use]
    pub fn first_orbit(&self) -> u32 {
        self.first_of(|header| header.first_orbit)
    }

    /// Returns the bytes of all payloads.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        self.blocks
            .iter()
            .map(|block| block.payload.len() as u64)
            .sum()
    }

    fn first_of(&self, field: impl Fn(&DataHeader) -> u32) -> u32 {
        let mut values = self.blocks.iter().map(|block| field(&block.header));
        values.find(|value| *value != 0).unwrap_or(0)
    }
}

/// Fault of a TF: its place, kind and text.
struct Refusal {
    offset: usize,
    kind: FaultKind,
    detail: String,
}

impl Refusal {
    fn new(offset: usize, kind: FaultKind, detail: String) -> Self {
        Self {
            offset,
            kind,
            detail,
        }
    }
}

/// TFs of an input in their order.
#[derive(Clone, Debug)]
pub struct FileTfs<'a> {
    bytes: &'a [u8],
    at: usize,
    before: Option<(u32, u32)>,
}

impl<'a> FileTfs<'a> {
    /// Returns the TFs in `bytes`, which begins with a TF.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            before: None,
        }
    }

    /// Returns whether `bytes` begin like such a file.
    #[must_use]
    pub fn are_at_start_of(bytes: &[u8]) -> bool {
        DataHeader::is_at_start_of(bytes)
    }

    /// Returns the byte of the input up to which it was walked.
    #[must_use]
    pub fn position(&self) -> usize {
        self.at
    }

    /// Returns the next whole TF. Anything else is reported to `findings`, and passed over by the size that it states
    /// if a TF or the end is there; if not, the walk ends.
    pub fn next_good(&mut self, findings: &mut Findings) -> Option<FileTf> {
        while self.at < self.bytes.len() {
            let start = self.at;
            match self.tf_at(start, findings) {
                Ok(tf) => {
                    self.at = start + tf.bytes;
                    self.note_order(&tf, findings);
                    return Some(tf);
                }
                Err((refusal, stated)) => {
                    let resumed = stated.and_then(|bytes| self.resume(start, bytes));
                    findings.fault(refusal.offset, refusal.kind, || match resumed {
                        Some(at) => format!("{}; the walk goes on at byte {at}", refusal.detail),
                        None => format!("{}; the walk stops here", refusal.detail),
                    });
                    self.at = resumed.unwrap_or(self.bytes.len());
                    resumed?;
                }
            }
        }
        None
    }

    /// Returns where the TF behind one of `bytes` bytes at `start` begins, if there is one or the end.
    fn resume(&self, start: usize, bytes: usize) -> Option<usize> {
        let next = start.checked_add(bytes)?;
        let rest = self.bytes.get(next..)?;
        let is_good = bytes > 0 && (rest.is_empty() || is_tf_start(rest));
        is_good.then_some(next)
    }

    /// Returns the TF that begins at byte `start`, or its fault and the size that it states.
    fn tf_at(
        &self,
        start: usize,
        findings: &mut Findings,
    ) -> Result<FileTf, (Refusal, Option<usize>)> {
        let input = self.bytes.get(start..).unwrap_or_default();
        let (stated, write_time_ms, meta) = meta(input, start).map_err(|error| (error, None))?;
        let Some(tf) = input.get(..stated) else {
            let detail = format!("TF is cut: {} of {stated} bytes", input.len());
            let refusal = Refusal::new(start, FaultKind::Truncated, detail);
            return Err((refusal, None));
        };
        let index_at = meta.payload.end - start;
        let mut found = FileTf {
            offset: start,
            bytes: stated,
            write_time_ms,
            meta,
            index: None,
            is_index_good: true,
            blocks: Vec::new(),
        };
        if index_at < tf.len() {
            blocks(&mut found, tf, index_at, findings).map_err(|error| (error, Some(stated)))?;
        }
        Ok(found)
    }

    fn note_order(&mut self, tf: &FileTf, findings: &mut Findings) {
        let now = (tf.run(), tf.counter());
        let Some((run, counter)) = self.before.replace(now) else {
            return;
        };
        if run != now.0 {
            findings.note(tf.offset, NoteKind::OtherRun, || {
                format!("TF of run {} follows one of run {run}", now.0)
            });
        } else if counter == now.1 && counter != 0 {
            findings.note(tf.offset, NoteKind::Again, || {
                format!("TF {counter} comes once more")
            });
        } else if now.1 < counter {
            findings.note(tf.offset, NoteKind::Backwards, || {
                format!("TF {} follows TF {counter}", now.1)
            });
        } else if now.1 - counter > 1 {
            findings.note(tf.offset, NoteKind::Gap, || {
                let missing = now.1 - counter - 1;
                format!("TF {} follows TF {counter}: {missing} missing", now.1)
            });
        }
    }
}

/// Reads index and blocks of `found`, whose bytes are `tf` and whose index begins at its byte `index_at`.
fn blocks(
    found: &mut FileTf,
    tf: &[u8],
    index_at: usize,
    findings: &mut Findings,
) -> Result<(), Refusal> {
    let start = found.offset;
    let block = |at: usize| -> Result<Block, Refusal> {
        let (header, payload) = block_at(tf, at, start)?;
        Ok(Block {
            offset: start + at,
            header,
            payload: start + payload.start..start + payload.end,
        })
    };
    let index = block(index_at)?;
    if index.header.equipment.description != INDEX {
        let detail = format!(
            "block is {}, expected FILE_STF_INDEX",
            index.header.equipment
        );
        return Err(Refusal::new(index.offset, FaultKind::BadHeader, detail));
    }
    let blocks_at = index.payload.end;
    let mut at = blocks_at - start;
    while at < tf.len() {
        let next = block(at)?;
        at = next.payload.end - start;
        found.blocks.push(next);
    }
    let entries = index.payload.start - start..blocks_at - start;
    found.is_index_good = check_index(
        tf.get(entries).unwrap_or_default(),
        index.payload.start,
        blocks_at,
        &found.blocks,
        findings,
    );
    found.index = Some(index);
    Ok(())
}

/// Returns whether `bytes` begin with the first header of a TF.
fn is_tf_start(bytes: &[u8]) -> bool {
    DataHeader::is_at_start_of(bytes) && array(bytes, 32) == Some(META)
}

/// Returns size, write time and description of the TF at the start of `input`, which lies at byte `start`.
fn meta(input: &[u8], start: usize) -> Result<(usize, u64, Block), Refusal> {
    let (header, head) = DataHeader::decode(input).map_err(|error| refused(error, start))?;
    if header.equipment.description != META {
        let detail = format!("block is {}, expected FILE_STF_META", header.equipment);
        return Err(Refusal::new(start, FaultKind::BadHeader, detail));
    }
    if header.payload_bytes != META_BYTES as u64 {
        let detail = format!(
            "FILE_STF_META states {} bytes, expected {META_BYTES}",
            header.payload_bytes
        );
        return Err(Refusal::new(start, FaultKind::BadOffset, detail));
    }
    let number = |at: usize| array(input, head + at).map(u64::from_le_bytes);
    let (Some(version), Some(size), Some(time)) = (number(0), number(8), number(16)) else {
        let detail = format!(
            "FILE_STF_META is cut: {} of {META_BYTES} bytes",
            input.len() - head
        );
        return Err(Refusal::new(start, FaultKind::Truncated, detail));
    };
    if version != FILE_VERSION {
        let detail = format!("TF has file version {version}, expected {FILE_VERSION}");
        return Err(Refusal::new(start, FaultKind::BadVersion, detail));
    }
    let end = head + META_BYTES;
    match usize::try_from(size) {
        Ok(bytes) if bytes >= end => {
            let block = Block {
                offset: start,
                header,
                payload: start + head..start + end,
            };
            Ok((bytes, time, block))
        }
        _ => {
            let detail = format!("TF states a size of {size} bytes, expected at least {end}");
            Err(Refusal::new(start, FaultKind::BadOffset, detail))
        }
    }
}

/// Returns header and payload of the block at byte `at` of `tf`, which lies at byte `start` of the input.
fn block_at(tf: &[u8], at: usize, start: usize) -> Result<(DataHeader, Range<usize>), Refusal> {
    let rest = tf.get(at..).unwrap_or_default();
    let (header, head) = DataHeader::decode(rest).map_err(|error| refused(error, start + at))?;
    let left = rest.len() - head;
    match usize::try_from(header.payload_bytes) {
        Ok(bytes) if bytes <= left => Ok((header, at + head..at + head + bytes)),
        _ => {
            let detail = format!(
                "block {} states {} bytes of payload, its TF has {left} left",
                header.equipment, header.payload_bytes
            );
            Err(Refusal::new(start + at, FaultKind::BadOffset, detail))
        }
    }
}

fn refused(error: HeaderError, offset: usize) -> Refusal {
    let kind = match error {
        HeaderError::Truncated { .. } => FaultKind::Truncated,
        HeaderError::Version { .. } => FaultKind::BadVersion,
        HeaderError::Size { .. } => FaultKind::BadHeaderSize,
        HeaderError::Magic { .. } | HeaderError::Kind { .. } | HeaderError::Stack => {
            FaultKind::BadHeader
        }
    };
    Refusal::new(offset, kind, error.to_string())
}

/// An entry of the index as the blocks make it: equipment, number of blocks, offset behind the index, bytes.
type Entry = (Equipment, u32, u64, u64);

/// Compares `entries`, which begin at byte `offset`, with the blocks, which begin at `blocks_at`, and reports the first
/// difference. Returns whether there is none.
fn check_index(
    entries: &[u8],
    offset: usize,
    blocks_at: usize,
    blocks: &[Block],
    findings: &mut Findings,
) -> bool {
    if !entries.len().is_multiple_of(ENTRY_BYTES) {
        findings.fault(offset, FaultKind::BadIndex, || {
            format!(
                "index has {} bytes, expected a multiple of {ENTRY_BYTES}",
                entries.len()
            )
        });
        return false;
    }
    let expected = grouped(blocks, blocks_at);
    let stated = entries.chunks_exact(ENTRY_BYTES).map(entry);
    let mut stated_count = 0;
    for (index, found) in stated.enumerate() {
        stated_count = index + 1;
        let at = offset + index * ENTRY_BYTES;
        match expected.get(index) {
            Some(expected) if found.as_ref() == Some(expected) => {}
            expected => {
                findings.fault(at, FaultKind::BadIndex, || {
                    let told = |entry: Option<&Entry>| entry.map_or("nothing".to_owned(), describe);
                    format!(
                        "index names {}, its TF has {}",
                        told(found.as_ref()),
                        told(expected)
                    )
                });
                return false;
            }
        }
    }
    if stated_count < expected.len() {
        findings.fault(offset, FaultKind::BadIndex, || {
            format!(
                "index has {stated_count} entries, its TF has {} groups of blocks",
                expected.len()
            )
        });
        return false;
    }
    true
}

fn describe(entry: &Entry) -> String {
    let (equipment, blocks, offset, bytes) = entry;
    format!("{equipment} with {blocks} blocks of {bytes} bytes at {offset}")
}

fn entry(bytes: &[u8]) -> Option<Entry> {
    let equipment = Equipment {
        description: array(bytes, 0)?,
        origin: array(bytes, 16)?,
        subspec: u32_le(bytes, 24)?,
    };
    let number = |at| array(bytes, at).map(u64::from_le_bytes);
    Some((equipment, u32_le(bytes, 20)?, number(32)?, number(40)?))
}

/// Returns the blocks as an index has them: those of one equipment that follow each other make an entry.
fn grouped(blocks: &[Block], blocks_at: usize) -> Vec<Entry> {
    let mut groups: Vec<Entry> = Vec::new();
    for block in blocks {
        let equipment = block.header.equipment;
        let bytes = (block.payload.end - block.offset) as u64;
        match groups.last_mut() {
            Some((last, count, _, sum)) if *last == equipment => {
                *count = count.saturating_add(1);
                *sum += bytes;
            }
            _ => groups.push((equipment, 1, (block.offset - blocks_at) as u64, bytes)),
        }
    }
    groups
}
