//! Reads ledger directories without owning them: of a process that runs, was killed, or has ended.

use crate::entry::Records;
use crate::storage::{Findings, LogReader, OsDisk, StorageError, scan};
use sheaf_protocol::{Record, Term};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// How often a directory is looked through again when its writer cuts it meanwhile.
const TRIES: usize = 5;

/// Why a ledger directory cannot be read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// It is corrupt, or the system failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// There is no ledger.
    #[error("{} holds no ledger", .0.display())]
    Nothing(PathBuf),
}

/// What a ledger directory held when it was looked at.
#[derive(Debug)]
pub struct LedgerDir {
    folder: PathBuf,
    disk: OsDisk,
    /// Segments, terms, torn writes.
    pub findings: Findings,
}

impl LedgerDir {
    /// The directory.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The records with term and index of their entry, oldest first: all of them, or from the first checkpoint on if
    /// the begin was removed. After an error there is nothing more.
    pub fn records(
        &self,
    ) -> impl Iterator<Item = Result<(Term, u64, Record), StorageError>> + use<> {
        let mut reader = LogReader::new(self.disk.clone());
        let last = self.findings.last_index;
        let first = match self.findings.base.0 {
            0 => 1,
            // Without a checkpoint there is nothing that could be read.
            _ => self.findings.checkpoints.first().unwrap_or(last + 1),
        };
        Records::new((first..=last).map(move |index| reader.read(index, last)))
    }

    /// Term of the last entry and its index: of two logs of a majority, the higher one has everything committed.
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

/// Looks through the ledger directory `folder`, and changes nothing in it. Of a torn write at its end it tells in
/// [`Findings::torn`]; while the writer runs, that may be a write that is going on.
///
/// The log of one member of a majority may end with entries that were never committed; see [`read_newest`].
///
/// # Errors
///
/// [`ReadError::Nothing`] if it holds no ledger, [`StorageError::Corrupt`] if what was synced is missing or wrong.
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

/// Of the directories of the members of one majority, the one whose log is the newest, as an election between them
/// would find. If more than half of all members are among `folders`, it holds every committed record in its place;
/// behind them may be some that were not committed, and that the next leader would commit.
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
