//! Blocks of an arena that small payloads share.

use super::{Arena, Block};
use std::sync::Arc;

/// Bytes of a block that is shared, so large that little is left over at its end.
const SHARED_BYTES: usize = 1 << 20;

/// Parts of a shared block begin at multiples of this, a cache line.
pub(crate) const ALIGNMENT: usize = 64;

/// Cuts places for small payloads out of blocks of an arena.
#[derive(Debug)]
pub struct SharedBlocks {
    /// Rest of the block that is cut now.
    rest: Option<Block>,
    block_bytes: usize,
}

impl SharedBlocks {
    /// Shares blocks of `arena`. In a small arena they leave room for others.
    #[must_use]
    pub fn new(arena: &Arena) -> Self {
        let eighth = usize::try_from(arena.capacity_bytes() / 8).unwrap_or(usize::MAX);
        Self {
            rest: None,
            block_bytes: SHARED_BYTES.min(eighth),
        }
    }

    /// Returns a place for `bytes`, up to `bytes_max`; `None` if there is no room, or if a payload of that size is to
    /// have a block of its own.
    pub fn take(&mut self, arena: &Arc<Arena>, bytes: usize, bytes_max: usize) -> Option<Block> {
        if !(1..=bytes_max.min(self.block_bytes)).contains(&bytes) {
            return None;
        }
        let fits = |block: &Block| block.len() >= bytes;
        if !self.rest.as_ref().is_some_and(fits) {
            // Release the old block first: held here, it would not come back with its last payload.
            self.rest = None;
            self.rest = arena.allocate(self.block_bytes).map(Block::into_parts);
        }
        let rest = self.rest.as_mut()?;
        let block = rest.split_to(bytes);
        align(rest);
        Some(block)
    }

    /// Takes all that is left of a block, or a new one if that is too little to read into; `None` if there is no room.
    pub(crate) fn take_rest(&mut self, arena: &Arc<Arena>) -> Option<Block> {
        // What a short rest is left for, another read would cost.
        let least = self.block_bytes / 16;
        let mut block = match self.rest.take().filter(|block| block.len() > least) {
            Some(block) => block,
            None => arena.allocate(self.block_bytes)?.into_parts(),
        };
        align(&mut block);
        Some(block)
    }

    /// Reclaims what was not used of a block that was taken whole, unless another one has been begun.
    pub(crate) fn give_rest(&mut self, block: Block) {
        self.rest.get_or_insert(block);
    }
}

/// Lets the rest of a shared block begin at a cache line.
fn align(block: &mut Block) {
    let ahead = block.as_ref().as_ptr().align_offset(ALIGNMENT);
    block.advance(ahead.min(block.len()));
}
