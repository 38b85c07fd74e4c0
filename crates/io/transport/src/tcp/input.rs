//! Bytes that the kernel has read, and where they lie.

use crate::arena::{Cut, Region};

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

impl<'a> Input<'a> {
    /// Returns the first `bytes` of `region`, which the kernel has read.
    pub(super) fn placed(region: &'a mut Region, bytes: usize) -> Self {
        region.fill(bytes);
        Self::Placed(region)
    }

    /// Returns the first `bytes_max` bytes that are not taken yet, or as many as there are.
    pub(super) fn front(&self, bytes_max: usize) -> &[u8] {
        let rest = self.rest();
        &rest[..bytes_max.min(rest.len())]
    }

    /// Returns all that is not taken yet.
    pub(super) fn rest(&self) -> &[u8] {
        match self {
            Self::Apart(bytes) => bytes,
            Self::Placed(region) => region.rest(),
        }
    }

    /// Takes `bytes` that [`front`](Self::front) gave.
    pub(super) fn skip(&mut self, bytes: usize) {
        match self {
            Self::Apart(rest) => *rest = &rest[bytes..],
            Self::Placed(region) => region.skip(bytes),
        }
    }

    /// Returns a small body of `bytes` that begins here, or its place; `None` if it needs a place elsewhere.
    pub(super) fn cut_body(&mut self, bytes: u64) -> Option<Cut> {
        let Self::Placed(region) = self else {
            return None;
        };
        let bytes = usize::try_from(bytes).ok()?;
        (bytes <= SMALL_MAX).then(|| region.cut(bytes))?
    }
}
