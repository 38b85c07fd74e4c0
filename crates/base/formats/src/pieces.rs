//! Pieces of an input: ranges of its bytes, in the order in which a payload has them.

use std::ops::Range;

/// Returns the bytes of all pieces together.
#[must_use]
pub fn bytes_of(pieces: &[Range<usize>]) -> usize {
    pieces.iter().map(ExactSizeIterator::len).sum()
}

/// Appends `piece` to `pieces`, or lengthens the last one if it follows without a gap.
pub fn join(pieces: &mut Vec<Range<usize>>, piece: Range<usize>) {
    match pieces.last_mut() {
        Some(last) if last.end == piece.start => last.end = piece.end,
        _ => pieces.push(piece),
    }
}
