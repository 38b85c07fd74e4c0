//! Places of the checkpoints of a log.

use crate::entry::{BodyKind, Entry};
use std::collections::VecDeque;

/// The whole checkpoints of a log, oldest first, each with its first and last entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checkpoints {
    whole: VecDeque<(u64, u64)>,
    /// First entry of a checkpoint whose last entry has not come.
    open: Option<u64>,
}

impl Checkpoints {
    /// Adds the next entry of the log.
    pub(crate) fn see(&mut self, entry: &Entry) {
        if entry.begins_checkpoint() {
            self.open = Some(entry.index);
        }
        match entry.kind() {
            Ok(BodyKind::Piece) => {}
            Ok(BodyKind::Whole) => {
                let whole = self.open.take().map(|first| (first, entry.index));
                self.whole.extend(whole);
            }
            // Pieces before a no-op entry are never read.
            Ok(BodyKind::NoOp) | Err(_) => self.open = None,
        }
    }

    /// Cuts off `from` and everything behind it.
    pub(crate) fn cut(&mut self, from: u64) {
        self.whole.retain(|(_, last)| *last < from);
        self.open = self.open.filter(|first| *first < from);
    }

    /// Forgets everything before `first`.
    pub(crate) fn forget_before(&mut self, first: u64) {
        self.whole.retain(|(begin, _)| *begin >= first);
    }

    /// Returns the first entry of the last checkpoint but `skip` that ends at `to` or before.
    pub(crate) fn last(&self, to: u64, skip: usize) -> Option<u64> {
        let ended = self.whole.iter().rev().filter(|(_, last)| *last <= to);
        ended.map(|(first, _)| *first).nth(skip)
    }

    /// Returns the first entry of the first checkpoint.
    pub(crate) fn first(&self) -> Option<u64> {
        self.whole.front().map(|(first, _)| *first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use sheaf_protocol::{Record, Term};

    #[test]
    fn a_checkpoint_counts_when_its_last_piece_is_there() {
        let mut found = Checkpoints::default();
        let mut begin = vec![2, 1, 0, 0, 0];
        Record::Checkpoint(Box::default()).encode_into(&mut begin);
        let entry = |index, body: &[u8]| Entry {
            term: Term(1),
            index,
            body: Bytes::copy_from_slice(body),
        };
        found.see(&entry(1, &begin));
        found.see(&entry(2, &[2, 0, 0, 0, 0]));
        assert_eq!(found.last(9, 0), None);
        found.see(&entry(3, &[1, 0, 0, 0, 0]));
        assert_eq!((found.last(3, 0), found.last(2, 0)), (Some(1), None));
        begin[0] = 1;
        found.see(&entry(4, &begin));
        assert_eq!((found.last(9, 0), found.last(9, 1)), (Some(4), Some(1)));
        // A checkpoint whose leader died in the middle is none.
        begin[0] = 2;
        found.see(&entry(5, &begin));
        found.see(&Entry::no_op(Term(2), 6));
        found.see(&entry(7, &[1, 0, 0, 0, 0]));
        assert_eq!(found.last(9, 0), Some(4));
        found.cut(4);
        assert_eq!((found.last(9, 0), found.first()), (Some(1), Some(1)));
        found.forget_before(2);
        assert_eq!(found.first(), None);
    }
}
