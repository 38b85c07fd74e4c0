//! TFs of a file in memory, without copying: the parts of each, and its faults.

use super::header::{Block, DataHeader};
use super::walk::TfWalk;
use crate::fault::Findings;

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

/// TFs of an input in their order.
#[derive(Clone, Debug)]
pub struct FileTfs<'a> {
    bytes: &'a [u8],
    walk: TfWalk,
}

impl<'a> FileTfs<'a> {
    /// Returns the TFs in `bytes`, which begins with a TF.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            walk: TfWalk::default(),
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
        self.walk.at
    }

    /// Returns the next whole TF. Anything else is reported to `findings`, and passed over by the size that it states
    /// if a TF or the end is there; if not, the walk ends.
    pub fn next_good(&mut self, findings: &mut Findings) -> Option<FileTf> {
        let (mut view, mut blocks) = (self.bytes, Vec::new());
        let tf = self.walk.next_good(&mut view, &mut blocks, findings)?;
        Some(FileTf {
            offset: tf.offset,
            bytes: tf.bytes,
            write_time_ms: tf.write_time_ms,
            meta: tf.meta,
            index: tf.index,
            is_index_good: tf.is_index_good,
            blocks,
        })
    }
}
