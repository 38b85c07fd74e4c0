//! Buffers for direct writes: their bytes begin where the disk wants them.

use memmap2::{Advice, MmapMut};

/// Unit of direct writes, in the file and in memory: no disk has larger sectors.
pub(crate) const BLOCK: usize = 4096;
/// Bytes of a direct write: those of a large page, of which the kernel pins one instead of 512 small ones.
pub(crate) const WINDOW: usize = 2 << 20;

/// Bytes of a file from `start`, in memory that is aligned as the file is.
#[derive(Debug)]
pub(crate) struct Buffer {
    memory: MmapMut,
    /// Place of the first byte in the file.
    start: u64,
    /// Bytes of the first block in front of `start`.
    skipped: usize,
    filled: usize,
}

impl Buffer {
    /// Creates a buffer of one window.
    ///
    /// # Panics
    ///
    /// If there is no memory for it, as any other allocation ends the process.
    pub(crate) fn new() -> Self {
        let memory = MmapMut::map_anon(WINDOW).expect("memory for a buffer of direct writes");
        // A kernel without large pages, or with none left, takes small ones.
        let _ = memory.advise(Advice::HugePage);
        Self {
            memory,
            start: 0,
            skipped: 0,
            filled: 0,
        }
    }

    /// Empties the buffer for bytes of a file from `start`.
    pub(crate) fn begin(&mut self, start: u64) {
        self.start = start;
        self.skipped = (start % BLOCK as u64) as usize;
        self.filled = 0;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.filled == 0
    }

    pub(crate) fn is_full(&self) -> bool {
        self.skipped + self.filled == WINDOW
    }

    /// Takes bytes from the front of `bytes` until it is full, and returns the others.
    pub(crate) fn fill<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let room = WINDOW - self.skipped - self.filled;
        let (taken, left) = bytes.split_at(bytes.len().min(room));
        let from = self.skipped + self.filled;
        self.memory[from..from + taken.len()].copy_from_slice(taken);
        self.filled += taken.len();
        left
    }

    /// Place in the file behind the last byte.
    pub(crate) fn end(&self) -> u64 {
        self.start + self.filled as u64
    }

    /// Returns the bytes and their place if they are whole blocks and nothing else.
    pub(crate) fn whole(&self) -> Option<(u64, &[u8])> {
        let mut pieces = self.pieces();
        match (pieces.next(), pieces.next()) {
            (Some((at, bytes, true)), None) => Some((at, bytes)),
            _ => None,
        }
    }

    /// Returns the pieces of a write: each with its place in the file, and whether it consists of whole blocks.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (u64, &[u8], bool)> {
        let from = self.skipped;
        let bytes = &self.memory[from..from + self.filled];
        let lead = if self.skipped == 0 {
            0
        } else {
            (BLOCK - self.skipped).min(bytes.len())
        };
        let whole = (bytes.len() - lead) / BLOCK * BLOCK;
        let (lead, rest) = bytes.split_at(lead);
        let (whole, tail) = rest.split_at(whole);
        let mut at = self.start;
        [(lead, false), (whole, true), (tail, false)]
            .into_iter()
            .filter_map(move |(piece, is_whole)| {
                let place = at;
                at += piece.len() as u64;
                (!piece.is_empty()).then_some((place, piece, is_whole))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_are_all_bytes_and_whole_blocks_are_aligned(
            start in 0u64..3 * BLOCK as u64,
            bytes in 0usize..WINDOW + 2 * BLOCK,
        ) {
            let data: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
            let mut buffer = Buffer::new();
            let (mut at, mut rest, mut found) = (start, data.as_slice(), Vec::new());
            while !rest.is_empty() {
                buffer.begin(at);
                rest = buffer.fill(rest);
                prop_assert!(rest.is_empty() || buffer.is_full());
                for (place, piece, is_whole) in buffer.pieces() {
                    prop_assert_eq!(place, start + found.len() as u64);
                    if is_whole {
                        prop_assert_eq!((place % BLOCK as u64, piece.len() % BLOCK), (0, 0));
                        prop_assert_eq!(piece.as_ptr().align_offset(BLOCK), 0);
                    }
                    found.extend_from_slice(piece);
                }
                at = buffer.end();
            }
            prop_assert_eq!(found, data);
        }
    }
}
