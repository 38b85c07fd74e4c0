//! Content of a ledger directory as a reader sees it that changes nothing.

use crate::records::Records;
use crate::storage::{Disk, Findings, LogReader, StorageError, scan};
use sheaf_protocol::{Record, Term};

/// Content of a ledger directory when it was scanned.
#[derive(Debug)]
pub struct LogContent<D> {
    disk: D,
    /// Segments, terms, torn writes.
    pub findings: Findings,
}

impl<D: Disk> LogContent<D> {
    /// Scans `disk`.
    ///
    /// # Errors
    ///
    /// [`StorageError::Corrupt`] if synced data are missing or wrong, [`StorageError::Io`] if the system fails.
    pub fn scan(disk: D) -> Result<Self, StorageError> {
        let findings = scan(&disk)?;
        Ok(Self { disk, findings })
    }

    /// Returns whether no log was ever written there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.findings.state.is_none() && self.findings.segments.is_empty()
    }

    /// Returns the records with term and index of their entry, oldest first: all of them, or from the first checkpoint
    /// on if the begin was removed. An error ends the sequence.
    pub fn records(
        &self,
    ) -> impl Iterator<Item = Result<(Term, u64, Record), StorageError>> + use<D> {
        let mut reader = LogReader::new(self.disk.clone());
        let last = self.findings.last_index;
        let first = match self.findings.base.0 {
            0 => 1,
            // Without a checkpoint no record could be read.
            _ => self.findings.checkpoints.first().unwrap_or(last + 1),
        };
        Records::new((first..=last).map(move |index| reader.read(index, last)))
    }

    /// Returns the term of the last entry and its index: of two logs of a majority, the higher one has everything
    /// committed.
    #[must_use]
    pub fn newest(&self) -> (Term, u64) {
        let term = self
            .findings
            .terms
            .last()
            .map_or(Term(0), |(_, term)| *term);
        (term, self.findings.last_index)
    }
}
