//! Reader of ledger directories that it does not own: of a process that runs, was killed, or has ended.

use crate::OsDisk;
use sheaf_verdict_log::LogContent;
use sheaf_verdict_log::storage::StorageError;
use std::ops::Deref;
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

/// Ledger directory of this machine and its content when it was scanned.
#[derive(Debug)]
pub struct LedgerDir {
    folder: PathBuf,
    content: LogContent<OsDisk>,
}

impl LedgerDir {
    /// Returns the directory.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Deref for LedgerDir {
    type Target = LogContent<OsDisk>;

    fn deref(&self) -> &Self::Target {
        &self.content
    }
}

/// Scans the ledger directory `folder`, and changes nothing in it. A torn write at its end is reported in
/// [`torn`](sheaf_verdict_log::storage::Findings::torn); while the writer runs, that may be a write that is going on.
///
/// The log of one member of a majority may end with entries that were never committed; see [`read_newest`].
///
/// # Errors
///
/// [`ReadError::Nothing`] if the folder holds no ledger, [`StorageError::Corrupt`] if synced data are missing or wrong.
pub fn read_dir(folder: &Path) -> Result<LedgerDir, ReadError> {
    for at in 1.. {
        match LogContent::scan(OsDisk::look(folder)) {
            // A follower cuts what its leader does not have; then two looks differ.
            Err(StorageError::Corrupt { .. } | StorageError::Io { .. }) if at < TRIES => {}
            Err(error) => return Err(error.into()),
            Ok(content) if content.is_empty() => break,
            Ok(content) => {
                return Ok(LedgerDir {
                    folder: folder.to_owned(),
                    content,
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
