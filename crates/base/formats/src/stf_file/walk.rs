//! Walk through a file of any size TF by TF: its parts go one by one to a list or a counter.
//!
//! Blocks are believed, the index is held against them. A TF that is cut or whose blocks contradict its size is left
//! out as a whole: part of a TF must not pass for a TF.

use super::equipment::Equipment;
use super::header::{Block, DataHeader, HeaderError};
use super::layout::{ENTRY_BYTES, FILE_VERSION, INDEX, META, META_BYTES};
use crate::fault::{FaultKind, Findings, NoteKind};
use crate::fields::{array, u32_le};
use crate::view::View;
use std::ops::Range;

/// Taker of the blocks of one TF after the other.
pub(crate) trait Blocks {
    /// Forgets the blocks of a TF that turned out not to be whole, or of the one before.
    fn clear(&mut self);

    /// Takes the next block of the TF.
    fn push(&mut self, block: Block);
}

impl Blocks for Vec<Block> {
    fn clear(&mut self) {
        self.clear();
    }

    fn push(&mut self, block: Block) {
        self.push(block);
    }
}

/// Taker that has no use for blocks.
struct NoBlocks;

impl Blocks for NoBlocks {
    fn clear(&mut self) {}

    fn push(&mut self, _: Block) {}
}

/// Returns the places of all whole TFs of `view`. Anything else is reported to `findings`.
pub fn tf_places(view: &mut impl View, findings: &mut Findings) -> Vec<Range<usize>> {
    let mut walk = TfWalk::default();
    let next = || walk.next_good(view, &mut NoBlocks, findings);
    let places = std::iter::from_fn(next).map(|tf| tf.offset..tf.offset + tf.bytes);
    places.collect()
}

/// One whole TF of a file, without its blocks.
#[derive(Clone, Debug)]
pub(crate) struct TfHead {
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
    pub(crate) write_time_ms: u64,
    pub(crate) meta: Block,
    pub(crate) index: Option<Block>,
    pub(crate) is_index_good: bool,
    /// Of run, counter and first orbit the first that is not 0.
    pub(crate) run: u32,
    pub(crate) counter: u32,
    pub(crate) first_orbit: u32,
}

/// Place of a walk over TFs, with run and counter of the last one.
#[derive(Clone, Debug, Default)]
pub(crate) struct TfWalk {
    pub(crate) at: usize,
    before: Option<(u32, u32)>,
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

impl TfWalk {
    /// Returns the next whole TF, whose blocks `blocks` has then. Anything else is reported to `findings`, and passed
    /// over by the size that it states if a TF or the end is there; if not, the walk ends.
    pub(crate) fn next_good(
        &mut self,
        view: &mut impl View,
        blocks: &mut impl Blocks,
        findings: &mut Findings,
    ) -> Option<TfHead> {
        while self.at < view.end() {
            let start = self.at;
            blocks.clear();
            match tf_at(view, start, blocks, findings) {
                Ok(tf) => {
                    self.at = start + tf.bytes;
                    self.note_order(&tf, findings);
                    return Some(tf);
                }
                Err((refusal, stated)) => {
                    let resumed = stated.and_then(|bytes| resume(view, start, bytes));
                    findings.fault(refusal.offset, refusal.kind, || match resumed {
                        Some(at) => format!("{}; the walk goes on at byte {at}", refusal.detail),
                        None => format!("{}; the walk stops here", refusal.detail),
                    });
                    self.at = resumed.unwrap_or(view.end());
                    resumed?;
                }
            }
        }
        None
    }

    fn note_order(&mut self, tf: &TfHead, findings: &mut Findings) {
        let now = (tf.run, tf.counter);
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

/// Returns where the TF behind one of `bytes` bytes at `start` begins, if there is one or the end.
fn resume(view: &mut impl View, start: usize, bytes: usize) -> Option<usize> {
    let next = start
        .checked_add(bytes)
        .filter(|next| *next <= view.end())?;
    let is_good = bytes > 0 && (next == view.end() || is_tf_start(view.at(next, DataHeader::SIZE)));
    is_good.then_some(next)
}

/// Returns whether `bytes` begin with the first header of a TF.
fn is_tf_start(bytes: &[u8]) -> bool {
    DataHeader::is_at_start_of(bytes) && array(bytes, 32) == Some(META)
}

/// Returns the TF that begins at byte `start`, or its fault and the size that it states.
fn tf_at(
    view: &mut impl View,
    start: usize,
    blocks: &mut impl Blocks,
    findings: &mut Findings,
) -> Result<TfHead, (Refusal, Option<usize>)> {
    let (stated, write_time_ms, meta) = meta(view, start).map_err(|error| (error, None))?;
    let left = view.end() - start;
    if stated > left {
        let detail = format!("TF is cut: {left} of {stated} bytes");
        let refusal = Refusal::new(start, FaultKind::Truncated, detail);
        return Err((refusal, None));
    }
    let mut tf = TfHead {
        offset: start,
        bytes: stated,
        write_time_ms,
        meta,
        index: None,
        is_index_good: true,
        run: 0,
        counter: 0,
        first_orbit: 0,
    };
    if tf.meta.payload.end < start + stated {
        read_blocks(view, &mut tf, blocks, findings).map_err(|error| (error, Some(stated)))?;
    }
    Ok(tf)
}

/// Reads index and blocks of `tf`.
fn read_blocks(
    view: &mut impl View,
    tf: &mut TfHead,
    blocks: &mut impl Blocks,
    findings: &mut Findings,
) -> Result<(), Refusal> {
    let end = tf.offset + tf.bytes;
    let index = block_at(view, tf.meta.payload.end, end)?;
    if index.header.equipment.description != INDEX {
        let detail = format!(
            "block is {}, expected FILE_STF_INDEX",
            index.header.equipment
        );
        return Err(Refusal::new(index.offset, FaultKind::BadHeader, detail));
    }
    let mut check = IndexCheck::new(&index);
    let mut at = index.payload.end;
    while at < end {
        let block = block_at(view, at, end)?;
        at = block.payload.end;
        let header = &block.header;
        for (field, value) in [
            (&mut tf.run, header.run),
            (&mut tf.counter, header.tf_counter),
            (&mut tf.first_orbit, header.first_orbit),
        ] {
            if *field == 0 {
                *field = value;
            }
        }
        check.take(view, &block);
        blocks.push(block);
    }
    let problem = check.finish(view);
    tf.is_index_good = problem.is_none();
    if let Some((offset, detail)) = problem {
        findings.fault(offset, FaultKind::BadIndex, || detail);
    }
    tf.index = Some(index);
    Ok(())
}

/// Returns size, write time and description of the TF at byte `start`.
fn meta(view: &mut impl View, start: usize) -> Result<(usize, u64, Block), Refusal> {
    let (header, head) =
        DataHeader::read(view, start, view.end()).map_err(|error| refused(error, start))?;
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
    let fields = view.at(start + head, META_BYTES);
    let number = |at: usize| array(fields, at).map(u64::from_le_bytes);
    let (Some(version), Some(size), Some(time)) = (number(0), number(8), number(16)) else {
        let detail = format!(
            "FILE_STF_META is cut: {} of {META_BYTES} bytes",
            fields.len()
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

/// Returns the block at byte `at` of a TF that ends at byte `end`.
fn block_at(view: &mut impl View, at: usize, end: usize) -> Result<Block, Refusal> {
    let (header, head) = DataHeader::read(view, at, end).map_err(|error| refused(error, at))?;
    let left = end.saturating_sub(at + head);
    match usize::try_from(header.payload_bytes) {
        Ok(bytes) if bytes <= left => Ok(Block {
            offset: at,
            header,
            payload: at + head..at + head + bytes,
        }),
        _ => {
            let detail = format!(
                "block {} states {} bytes of payload, its TF has {left} left",
                header.equipment, header.payload_bytes
            );
            Err(Refusal::new(at, FaultKind::BadOffset, detail))
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

/// Entry of an index as the blocks make it: those of one equipment that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Group {
    equipment: Equipment,
    blocks: u32,
    /// Offset behind the index.
    offset: u64,
    bytes: u64,
}

impl std::fmt::Display for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} with {} blocks of {} bytes at {}",
            self.equipment, self.blocks, self.bytes, self.offset
        )
    }
}

/// Comparison of an index with the blocks, as they come.
struct IndexCheck {
    entries_at: usize,
    /// Bytes of the index, and the entries in it.
    bytes: usize,
    stated: usize,
    blocks_at: usize,
    /// Groups that are complete.
    groups: usize,
    open: Option<Group>,
    /// Place and text of the first difference.
    problem: Option<(usize, String)>,
}

impl IndexCheck {
    fn new(index: &Block) -> Self {
        let bytes = index.payload.len();
        Self {
            entries_at: index.payload.start,
            bytes,
            stated: bytes / ENTRY_BYTES,
            blocks_at: index.payload.end,
            groups: 0,
            open: None,
            problem: None,
        }
    }

    fn take(&mut self, view: &mut impl View, block: &Block) {
        let equipment = block.header.equipment;
        let bytes = (block.payload.end - block.offset) as u64;
        if let Some(open) = &mut self.open
            && open.equipment == equipment
        {
            open.blocks = open.blocks.saturating_add(1);
            open.bytes += bytes;
            return;
        }
        self.close(view);
        self.open = Some(Group {
            equipment,
            blocks: 1,
            offset: (block.offset - self.blocks_at) as u64,
            bytes,
        });
    }

    /// Compares the open group with its entry.
    fn close(&mut self, view: &mut impl View) {
        let Some(group) = self.open.take() else {
            return;
        };
        if self.groups < self.stated && self.problem.is_none() {
            let found = self.entry(view, self.groups);
            if found != Some(group) {
                self.differs(self.groups, found, Some(group));
            }
        }
        self.groups += 1;
    }

    fn differs(&mut self, number: usize, found: Option<Group>, expected: Option<Group>) {
        let told = |group: Option<Group>| group.map_or("nothing".to_owned(), |g| g.to_string());
        let text = format!("index names {}, its TF has {}", told(found), told(expected));
        self.problem = Some((self.entries_at + number * ENTRY_BYTES, text));
    }

    /// Returns the first difference.
    fn finish(mut self, view: &mut impl View) -> Option<(usize, String)> {
        self.close(view);
        if !self.bytes.is_multiple_of(ENTRY_BYTES) {
            let text = format!(
                "index has {} bytes, expected a multiple of {ENTRY_BYTES}",
                self.bytes
            );
            return Some((self.entries_at, text));
        }
        if self.problem.is_none() && self.stated > self.groups {
            let found = self.entry(view, self.groups);
            self.differs(self.groups, found, None);
        }
        if self.problem.is_none() && self.stated < self.groups {
            let text = format!(
                "index has {} entries, its TF has {} groups of blocks",
                self.stated, self.groups
            );
            self.problem = Some((self.entries_at, text));
        }
        self.problem
    }

    fn entry(&self, view: &mut impl View, number: usize) -> Option<Group> {
        let bytes = view.at(self.entries_at + number * ENTRY_BYTES, ENTRY_BYTES);
        let number = |at| array(bytes, at).map(u64::from_le_bytes);
        Some(Group {
            equipment: Equipment {
                description: array(bytes, 0)?,
                origin: array(bytes, 16)?,
                subspec: u32_le(bytes, 24)?,
            },
            blocks: u32_le(bytes, 20)?,
            offset: number(32)?,
            bytes: number(40)?,
        })
    }
}
