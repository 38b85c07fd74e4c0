//! Bytes of an input of any size, of which a few are looked at at a time.
//!
//! Walkers follow headers and leave payloads alone: over a [`View`] they walk a file that is larger than memory.

/// An input, read mostly from front to back.
pub trait View {
    /// Returns the number of bytes of the input.
    fn end(&self) -> usize;

    /// Returns the `count` bytes from byte `at` on; fewer only where the input ends.
    fn at(&mut self, at: usize, count: usize) -> &[u8];
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
