//! Reader of ledger directories that it does not own: of a process that runs, was killed, or has ended.

use crate::records::Records;
use crate::storage::{Findings, LogReader, OsDisk, StorageError, scan};
use sheaf_protocol::{Record, Term};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Attempts to scan a directory when its writer cuts it meanwhile.
const TRIES: usize = 5;

/// Reason why a ledger directory cannot be read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The directory is corrupt, or the system failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// There is no ledger.
    #[error("{} holds no ledger", .0.display())]
    Nothing(PathBuf),
}

/// Content of a ledger directory when it was scanned.
#[derive(Debug)]
pub struct LedgerDir {
    folder: PathBuf,
    disk: OsDisk,
    /// Segments, terms, torn writes.
    pub findings: Findings,
}

impl LedgerDir {
    /// Returns the directory.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the records with term and index of their entry, oldest first: all of them, or from the first checkpoint
    /// on if the begin was removed. An error ends the sequence.
    pub fn records(
        &self,
    ) -> impl Iterator<Item = Result<(Term, u64, Record), StorageError>> + use<> {
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

/// Scans the ledger directory `folder`, and changes nothing in it. A torn write at its end is reported in
/// [`Findings::torn`]; while the writer runs, that may be a write that is going on.
///
/// The log of one member of a majority may end with entries that were never committed; see [`read_newest`].
///
/// # Errors
///
/// [`ReadError::Nothing`] if the folder holds no ledger, [`StorageError::Corrupt`] if synced data are missing or wrong.
pub fn read_dir(folder: &Path) -> Result<LedgerDir, ReadError> {
    let disk = OsDisk::look(folder);
    for at in 1.. {
        match scan(&disk) {
            // A follower cuts what its leader does not have; then two looks differ.
            Err(StorageError::Corrupt { .. } | StorageError::Io { .. }) if at < TRIES => {}
            Err(error) => return Err(error.into()),
            Ok(findings) if findings.state.is_none() && findings.segments.is_empty() => break,
            Ok(findings) => {
                return Ok(LedgerDir {
                    folder: folder.to_owned(),
                    disk,
                    findings,
                });
            }
        }
    }
    Err(ReadError::Nothing(folder.to_owned()))
}

/// Scans the directories of the members of one majority and returns the one whose log is the newest, as an election
/// between them would choose. If more than half of all members are among `folders`, it holds every committed record in
/// its place; behind them may be some that were not committed, and that the next leader would commit.
///
/// # Errors
///
/// As [`read_dir`], of the first directory that cannot be read.
pub fn read_newest<P: AsRef<Path>>(folders: &[P]) -> Result<LedgerDir, ReadError> {
    let mut newest: Option<LedgerDir> = None;
    for folder in folders {
        let read = read_dir(folder.as_ref())?;
        if newest
            .as_ref()
            .is_none_or(|best| best.newest() < read.newest())
        {
            newest = Some(read);
        }
    }
    newest.ok_or_else(|| ReadError::Nothing(PathBuf::new()))
}
