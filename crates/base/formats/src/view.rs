//! Bytes of an input of any size, of which a few are looked at at a time.
//!
//! Walkers follow headers and leave payloads alone: over a [`View`] they walk a file that is larger than memory.

use sheaf_protocol::Digest;
use std::ops::Range;

/// An input, read mostly from front to back.
pub trait View {
    /// Returns the number of bytes of the input.
    fn end(&self) -> usize;

    /// Returns the `count` bytes from byte `at` on; fewer only where the input ends.
    fn at(&mut self, at: usize, count: usize) -> &[u8];
}

/// Bytes whose digest is taken at a time.
const DIGEST_BYTES: usize = 1 << 16;

/// Returns the CRC-32C of the bytes of `view` in `range`; of fewer if the input ends before.
#[must_use]
pub fn digest_of(view: &mut impl View, range: Range<usize>) -> u32 {
    let mut digest = Digest::default();
    let mut at = range.start;
    while at < range.end {
        let bytes = view.at(at, DIGEST_BYTES.min(range.end - at));
        if bytes.is_empty() {
            break;
        }
        digest.update(bytes);
        at += bytes.len();
    }
    digest.value()
}

impl View for &[u8] {
    fn end(&self) -> usize {
        self.len()
    }

    fn at(&mut self, at: usize, count: usize) -> &[u8] {
        let rest = self.get(at..).unwrap_or_default();
        rest.get(..count).unwrap_or(rest)
    }
}
