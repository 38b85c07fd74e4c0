//! Bytes that the kernel has read, and where they lie.

use crate::arena::Block;

/// Bodies above this get a block of their own, which wastes less than a unit; smaller ones share blocks.
pub(super) const SMALL_MAX: usize = 128 << 10;

/// Bytes that were read, taken off at the front.
#[derive(Debug)]
pub(crate) enum Input<'a> {
    /// Bytes in a buffer that is reused: bodies have to be copied to their place.
    Apart(&'a [u8]),
    /// Bytes in memory for bodies, where small bodies stay.
    Placed(&'a mut Region),
}

impl Input<'_> {
    /// Returns the first `bytes_max` bytes that are not taken yet, or as many as there are.
    pub(super) fn front(&self, bytes_max: usize) -> &[u8] {
        let rest = self.rest();
        &rest[..bytes_max.min(rest.len())]
    }

    /// Returns all that is not taken yet.
    pub(super) fn rest(&self) -> &[u8] {
        match self {
            Self::Apart(bytes) => bytes,
            Self::Placed(region) => &region.block.as_ref()[region.taken..region.filled],
        }
    }

    /// Takes `bytes` that [`front`](Self::front) gave.
    pub(super) fn skip(&mut self, bytes: usize) {
        match self {
            Self::Apart(rest) => *rest = &rest[bytes..],
            Self::Placed(region) => region.taken += bytes,
        }
    }

    /// Returns the place of a small body of `bytes` that begins here, and how many of its bytes are there; `None` if
    /// it needs a place elsewhere.
    pub(super) fn cut_body(&mut self, bytes: u64) -> Option<(Block, usize)> {
        let Self::Placed(region) = self else {
            return None;
        };
        let bytes = usize::try_from(bytes).ok()?;
        (bytes <= SMALL_MAX).then(|| region.cut(bytes))?
    }
}

/// Memory for bodies that the kernel reads into. Whole bodies stay where they are, and one that is cut off by the end
/// of a read is continued in place, as long as the region has room.
#[derive(Debug)]
pub(crate) struct Region {
    block: Block,
    /// Bytes at its front that were taken, and those that were read, taken or not.
    taken: usize,
    filled: usize,
}

impl Region {
    /// Creates a region in `block`, which is one of [parts](Block::into_parts).
    pub(super) fn new(block: Block) -> Self {
        Self {
            block,
            taken: 0,
            filled: 0,
        }
    }

    /// Returns the first `bytes_max` bytes, for the kernel to read into, or as many as there are.
    pub(super) fn room(&mut self, bytes_max: usize) -> &mut [u8] {
        let bytes = bytes_max.min(self.block.len());
        &mut self.block.as_mut()[..bytes]
    }

    /// Returns the first `bytes`, which the kernel has read.
    pub(super) fn input(&mut self, bytes: usize) -> Input<'_> {
        debug_assert_eq!(self.taken, self.filled, "what was read before is taken");
        (self.taken, self.filled) = (0, bytes);
        Input::Placed(self)
    }

    /// Returns what is left of its memory. Bytes that are no part of a body are written over by the next read.
    pub(super) fn into_block(self) -> Block {
        self.block
    }

    fn cut(&mut self, bytes: usize) -> Option<(Block, usize)> {
        if self.block.len() - self.taken < bytes {
            return None;
        }
        self.block.advance(self.taken);
        self.filled -= self.taken;
        self.taken = 0;
        let present = bytes.min(self.filled);
        self.filled -= present;
        Some((self.block.split_to(bytes), present))
    }
}
