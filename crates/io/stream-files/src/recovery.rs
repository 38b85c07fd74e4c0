//! Files that a crash has left open: each is cut behind its last whole record and closed.
//!
//! The catalogue has the beginning that was durable at the last sync, with its checksums, so only what lies behind is
//! read. A file without a row is read whole. Nothing is overwritten, and a file that no template of this writer names
//! is left alone.

use crate::catalogue::{Catalogue, CatalogueError, FileRow, FileState};
use crate::durability::wall_ns;
use crate::file::{PART, rename_new, sync_folder};
use sheaf_write::{Kinds, Summing, Sums, Template};
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;

/// Finder of records: reads one from the front, checks it, and returns its bytes; `None` if there is no whole one.
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
    #[error("cannot recover {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
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
pub fn recover(
    folder: &Path,
    catalogue: &Catalogue,
    template: &Template,
    kinds: Kinds,
    walk: &Walk<'_>,
) -> Result<Vec<Found>, RecoverError> {
    let mut found = Vec::new();
    for row in catalogue.rows(Some(FileState::Open))? {
        found.extend(recover_file(folder, catalogue, row, false, walk)?);
    }
    for (file, name) in strays(folder, template)? {
        if catalogue.get(&file)?.is_some() {
            continue;
        }
        let row = FileRow {
            file,
            name,
            state: FileState::Open,
            opened_ns: wall_ns(),
            closed_ns: None,
            records: 0,
            sums: Sums::empty(kinds),
        };
        catalogue.add(&row)?;
        found.extend(recover_file(folder, catalogue, row, true, walk)?);
    }
    Ok(found)
}

/// Lists files with `.part` in `folder` whose names are of `template`, by their final names.
fn strays(
    folder: &Path,
    template: &Template,
) -> Result<Vec<(String, sheaf_write::FileName)>, RecoverError> {
    let failed = |source| RecoverError::File {
        path: folder.to_owned(),
        source,
    };
    let mut strays = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let file = name.to_str().and_then(|name| name.strip_suffix(PART));
        let values = file.and_then(|file| Some((file.to_owned(), template.read(file)?)));
        strays.extend(values);
    }
    strays.sort();
    Ok(strays)
}

fn recover_file(
    folder: &Path,
    catalogue: &Catalogue,
    row: FileRow,
    is_adopted: bool,
    walk: &Walk<'_>,
) -> Result<Option<Found>, RecoverError> {
    let (name, part) = (folder.join(&row.file), folder.join(row.file.clone() + PART));
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| RecoverError::File { path, source }
    };
    let is_part = part.try_exists().map_err(failed(&part))?;
    // A crash after the renaming leaves the final name and an open row.
    let path = if is_part { &part } else { &name };
    if !is_part && !name.try_exists().map_err(failed(&name))? {
        // The row was there before the file.
        catalogue.remove(&row.file)?;
        return Ok(None);
    }
    let tail = walk_file(path, &row, walk).map_err(failed(path))?;
    if tail.records == 0 {
        std::fs::remove_file(path).map_err(failed(path))?;
        sync_folder(folder).map_err(failed(folder))?;
        catalogue.remove(&row.file)?;
    } else {
        cut(path, &tail).map_err(failed(path))?;
        if is_part {
            rename_new(&part, &name).map_err(failed(&name))?;
        }
        sync_folder(folder).map_err(failed(folder))?;
        catalogue.close(
            &row.file,
            FileState::Recovered,
            wall_ns(),
            tail.records,
            &tail.sums,
        )?;
    }
    Ok(Some(Found {
        file: row.file,
        records: tail.records,
        bytes: tail.sums.bytes,
        cut_bytes: tail.file_bytes - tail.sums.bytes,
        read_bytes: tail.read_bytes,
        is_adopted,
    }))
}

/// Whole records of a file.
struct Walked {
    records: u64,
    sums: Sums,
    file_bytes: u64,
    read_bytes: u64,
}

/// Finds the whole records of a file: those of its row, and what follows them.
fn walk_file(path: &Path, row: &FileRow, walk: &Walk<'_>) -> io::Result<Walked> {
    let mut file = File::open(path)?;
    let file_bytes = file.metadata()?.len();
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
    file.seek(SeekFrom::Start(known.bytes))?;
    let mut reader = SummingReader::new(file, kinds);
    let mut whole = reader.sums();
    while let Some(bytes) = walk(&mut reader)? {
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
        file_bytes,
        read_bytes: reader.sums().bytes,
    })
}

/// Cuts a file behind its whole records, durably.
fn cut(path: &Path, tail: &Walked) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    if tail.file_bytes != tail.sums.bytes {
        file.set_len(tail.sums.bytes)?;
    }
    file.sync_all()
}

/// Reader that takes the checksums of what is read.
#[derive(Debug)]
pub struct SummingReader {
    inner: BufReader<File>,
    summing: Summing,
}

impl SummingReader {
    /// Reads `file` from where it stands.
    #[must_use]
    pub fn new(file: File, kinds: Kinds) -> Self {
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

impl Read for SummingReader {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(bytes)?;
        self.summing.update(&bytes[..count]);
        Ok(count)
    }
}
