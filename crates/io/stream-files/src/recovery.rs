//! Files that a crash has left open: each is cut behind its last whole record and closed.
//!
//! The catalogue has the beginning that was durable at the last sync, with its checksums, so only what lies behind is
//! read. A file without a row is read whole. Nothing is overwritten, and a file that no template of this writer names
//! is left alone. The records of a file with a list beside it are those that are as the list says; the walk of the
//! caller finds those of all other files.

use crate::catalogue::{Catalogue, CatalogueError, FileRow, FileState, Settled};
use crate::durability::wall_ns;
use crate::folder::{Folder, PART, StoredFile, rewrite};
use crate::label::Label;
use crate::record_list::{FoundList, LIST, remove_list};
use sheaf_protect::protect;
use sheaf_write::{FileName, Kinds, Summing, Sums, Template};
use std::fs::File;
use std::io::{self, BufReader, Read};
use thiserror::Error;

/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;

/// Finder of records in files without a list: reads one from the front, checks it, and returns its bytes; `None` if
/// there is no whole one.
///
/// # Errors
///
/// Errors of reading; the end of the file is none.
pub type Walk<'a> = dyn Fn(&mut dyn Read) -> io::Result<Option<u64>> + 'a;

/// A file that was found open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Final name of the file.
    pub file: String,
    /// Records kept; the file is removed if there are none.
    pub records: u64,
    /// Bytes kept.
    pub bytes: u64,
    /// Bytes behind them, which were no whole records.
    pub cut_bytes: u64,
    /// Bytes that had to be read.
    pub read_bytes: u64,
    /// Whether the catalogue had no row of it.
    pub is_adopted: bool,
}

/// Why a folder cannot be recovered.
#[derive(Debug, Error)]
pub enum RecoverError {
    /// A file cannot be read, cut or renamed.
    #[error("cannot recover {file}: {source}")]
    File {
        /// The file.
        file: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The folder cannot be listed, or no commit to the catalogue is possible.
    #[error("cannot recover the folder: {0}")]
    Folder(io::Error),
    /// The catalogue cannot be used.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
}

/// Closes all files in `folder` that a former life of the writer has left open. Files without a row get checksums of
/// `kinds`.
///
/// # Errors
///
/// [`RecoverError`]. What was closed before stays closed; a second call goes on.
pub(crate) fn recover(
    folder: &dyn Folder,
    catalogue: &Catalogue,
    template: &Template,
    kinds: Kinds,
    walk: &Walk<'_>,
) -> Result<Vec<Found>, RecoverError> {
    let mut recovery = Recovery {
        folder,
        walk,
        found: Vec::new(),
        outcomes: Vec::new(),
    };
    for row in catalogue.rows(Some(FileState::Open))? {
        recovery.handle_file(row, false)?;
    }
    for (file, name) in strays(folder, template).map_err(RecoverError::Folder)? {
        let sums = Sums::empty(kinds);
        let row = match catalogue.get(&file)? {
            // A cut of power has taken back a renaming that was not synced.
            Some(row) if !folder.exists(&file).map_err(RecoverError::Folder)? => FileRow {
                records: 0,
                sums,
                ..row
            },
            Some(_) => continue,
            None => {
                let row = FileRow {
                    file,
                    name,
                    state: FileState::Open,
                    opened_ns: wall_ns(),
                    closed_ns: None,
                    records: 0,
                    sums,
                };
                folder.before_commit().map_err(RecoverError::Folder)?;
                catalogue.add(&row)?;
                row
            }
        };
        recovery.handle_file(row, true)?;
    }
    // Names of all files, then their rows, with one sync and one commit.
    if !recovery.outcomes.is_empty() {
        folder.sync().map_err(RecoverError::Folder)?;
        folder.before_commit().map_err(RecoverError::Folder)?;
        catalogue.settle(wall_ns(), &recovery.outcomes)?;
    }
    // A second call would need the list of a file whose row is not settled.
    for (file, _) in &recovery.outcomes {
        remove_list(folder, file).map_err(|source| RecoverError::File {
            file: file.clone(),
            source,
        })?;
    }
    remove_lists(folder, template).map_err(RecoverError::Folder)?;
    Ok(recovery.found)
}

/// Removes lists of files that are closed.
fn remove_lists(folder: &dyn Folder, template: &Template) -> io::Result<()> {
    for name in folder.names()? {
        let file = name.strip_suffix(LIST);
        if file.is_some_and(|file| template.read(file).is_some()) {
            folder.remove(&name)?;
        }
    }
    Ok(())
}

/// Lists files with `.part` in `folder` whose names are of `template`, by their final names.
fn strays(folder: &dyn Folder, template: &Template) -> io::Result<Vec<(String, FileName)>> {
    let names = folder.names()?.into_iter();
    let mut strays: Vec<(String, FileName)> = names
        .filter_map(|name| {
            let file = name.strip_suffix(PART)?;
            Some((file.to_owned(), template.read(file)?))
        })
        .collect();
    strays.sort();
    Ok(strays)
}

/// Recovery under way.
struct Recovery<'a> {
    folder: &'a dyn Folder,
    walk: &'a Walk<'a>,
    found: Vec<Found>,
    /// Files, and what the catalogue is to say of them.
    outcomes: Vec<(String, Settled)>,
}

impl Recovery<'_> {
    fn handle_file(&mut self, row: FileRow, is_adopted: bool) -> Result<(), RecoverError> {
        let folder = self.folder;
        let part = row.file.clone() + PART;
        let failed = |source| RecoverError::File {
            file: row.file.clone(),
            source,
        };
        let is_part = folder.exists(&part).map_err(failed)?;
        // A crash after the renaming leaves the final name and an open row.
        let name = if is_part { &part } else { &row.file };
        if !is_part && !folder.exists(&row.file).map_err(failed)? {
            // The row was there before the file.
            self.outcomes.push((row.file, Settled::Removed));
            return Ok(());
        }
        let file = folder.open(name).map_err(failed)?;
        let list = FoundList::read(folder, &row.file).map_err(failed)?;
        let tail = walk_file(&*file, &row, list.as_ref(), self.walk).map_err(failed)?;
        if tail.records == 0 {
            folder.remove(name).map_err(failed)?;
            self.outcomes.push((row.file.clone(), Settled::Removed));
        } else {
            cut(&*file, &tail).map_err(failed)?;
            if is_part {
                folder.rename_new(&part, &row.file).map_err(failed)?;
            }
            let label = Label {
                file: &row.file,
                name: &row.name,
                records: tail.records,
                sums: &tail.sums,
            };
            folder.label(&label).map_err(failed)?;
            let settled = Settled::Recovered(tail.records, tail.sums);
            self.outcomes.push((row.file.clone(), settled));
        }
        self.found.push(Found {
            file: row.file,
            records: tail.records,
            bytes: tail.sums.bytes,
            cut_bytes: tail.file_bytes - tail.sums.bytes,
            read_bytes: tail.read_bytes,
            is_adopted,
        });
        Ok(())
    }
}

/// Whole records of a file.
struct Walked {
    records: u64,
    sums: Sums,
    /// Bytes that were durable by the catalogue.
    known_bytes: u64,
    file_bytes: u64,
    read_bytes: u64,
}

/// Finds the whole records of a file: those of its row, and what follows them.
fn walk_file(
    file: &dyn StoredFile,
    row: &FileRow,
    list: Option<&FoundList>,
    walk: &Walk<'_>,
) -> io::Result<Walked> {
    let file_bytes = file.bytes()?;
    // A disk that has lost what it said was durable: all of the file is looked at.
    let is_short = file_bytes < row.sums.bytes;
    let kinds = Kinds {
        crc32c: row.sums.crc32c.is_some(),
        xxh3: row.sums.xxh3.is_some(),
    };
    let (mut records, known) = if is_short {
        (0, Sums::empty(kinds))
    } else {
        (row.records, row.sums)
    };
    let at = known.bytes;
    let mut reader = SummingReader::new(FileReader { file, at }, kinds);
    let mut whole = reader.sums();
    let next = |reader: &mut dyn Read, offset| match list {
        Some(list) => list.next(offset, reader),
        None => walk(reader),
    };
    while let Some(bytes) = next(&mut reader, known.bytes + whole.bytes)? {
        let sums = reader.sums();
        if sums.bytes != whole.bytes + bytes {
            return Err(io::Error::other("a record was not read whole"));
        }
        whole = sums;
        records += 1;
    }
    Ok(Walked {
        records,
        sums: known.then(whole),
        known_bytes: known.bytes,
        file_bytes,
        read_bytes: reader.sums().bytes,
    })
}

/// Cuts a file behind its whole records, durably. A sync may have failed before, which no one knows any more: so all
/// that was not known to be durable is written again.
fn cut(file: &dyn StoredFile, tail: &Walked) -> io::Result<()> {
    if protect!(TailCut, when tail.file_bytes != tail.sums.bytes) {
        file.cut(tail.sums.bytes)?;
    }
    let unsynced = tail.known_bytes..tail.sums.bytes;
    if protect!(WrittenAgain, when !unsynced.is_empty()) {
        rewrite(file, unsynced)?;
    }
    file.sync()
}

/// Reader of a file from a place on.
struct FileReader<'a> {
    file: &'a dyn StoredFile,
    at: u64,
}

impl Read for FileReader<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(bytes, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

/// Reader that takes the checksums of what is read.
#[derive(Debug)]
pub struct SummingReader<R = File> {
    inner: BufReader<R>,
    summing: Summing,
}

impl<R: Read> SummingReader<R> {
    /// Reads `file` from where it stands.
    #[must_use]
    pub fn new(file: R, kinds: Kinds) -> Self {
        Self {
            inner: BufReader::with_capacity(READ_BYTES, file),
            summing: Summing::new(kinds),
        }
    }

    /// Returns the checksums of all bytes that were read.
    #[must_use]
    pub fn sums(&self) -> Sums {
        self.summing.sums()
    }
}

impl<R: Read> Read for SummingReader<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(bytes)?;
        self.summing.update(&bytes[..count]);
        Ok(count)
    }
}
