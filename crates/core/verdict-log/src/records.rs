//! Records of a log, read from its entries in order.

use crate::entry::{BodyError, BodyKind, Entry};
use crate::storage::StorageError;
use sheaf_protocol::{Record, Term};

/// The records of a log in order, each with the term and index of its entry; pieces without their end are left out.
///
/// An error ends the sequence.
pub struct Records<I> {
    entries: I,
    /// Pieces of an append whose last one has not come.
    held: Vec<(Term, u64, Record)>,
    ready: std::vec::IntoIter<(Term, u64, Record)>,
    has_failed: bool,
}

impl<I: Iterator<Item = Result<Entry, StorageError>>> Records<I> {
    /// Returns the records of `entries`, which follow each other without gaps.
    pub fn new(entries: I) -> Self {
        Self {
            entries,
            held: Vec::new(),
            ready: Vec::new().into_iter(),
            has_failed: false,
        }
    }

    fn take(&mut self, entry: &Entry) -> Result<(), BodyError> {
        if self
            .held
            .last()
            .is_some_and(|(term, ..)| *term != entry.term)
        {
            self.held.clear();
        }
        let records = entry.records()?;
        let placed = |record| (entry.term, entry.index, record);
        self.held.extend(records.into_iter().map(placed));
        match entry.kind()? {
            BodyKind::Piece => {}
            BodyKind::NoOp => self.held.clear(),
            BodyKind::Whole => self.ready = std::mem::take(&mut self.held).into_iter(),
        }
        Ok(())
    }
}

impl<I: Iterator<Item = Result<Entry, StorageError>>> Iterator for Records<I> {
    type Item = Result<(Term, u64, Record), StorageError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(record) = self.ready.next() {
                return Some(Ok(record));
            }
            if self.has_failed {
                return None;
            }
            let error = match self.entries.next()? {
                Ok(entry) => match self.take(&entry) {
                    Ok(()) => continue,
                    Err(source) => StorageError::Body {
                        index: entry.index,
                        source,
                    },
                },
                Err(error) => error,
            };
            self.has_failed = true;
            return Some(Err(error));
        }
    }
}
