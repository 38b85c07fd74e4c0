//! Files read again, and held against the catalogue.

use crate::catalogue::FileRow;
use crate::recovery::SummingReader;
use sheaf_write::Kinds;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Reads a file of `folder` and compares it with its row: records, bytes and checksums. `next` reads a record from the
/// front and returns whether there was one.
///
/// # Errors
///
/// Difference found first, or the error of reading, with the record that it is at.
pub fn compare_file(
    folder: &Path,
    row: &FileRow,
    mut next: impl FnMut(&mut dyn Read) -> io::Result<bool>,
) -> Result<(), String> {
    let mut reader = open(folder, row)?;
    let mut records = 0;
    while next(&mut reader).map_err(|error| format!("record {records}: {error}"))? {
        records += 1;
    }
    if records != row.records {
        return Err(format!(
            "{records} records, expected {} by the catalogue",
            row.records
        ));
    }
    let same = row.sums.compare(&reader.sums());
    same.map_err(|error| error.to_string())
}

/// Reads a file of `folder` and compares it with its row: bytes and checksums alone, for files in which no record is
/// told from the next one.
///
/// # Errors
///
/// Difference, or the error of reading.
pub fn compare_sums(folder: &Path, row: &FileRow) -> Result<(), String> {
    let mut reader = open(folder, row)?;
    io::copy(&mut reader, &mut io::sink()).map_err(|error| error.to_string())?;
    let same = row.sums.compare(&reader.sums());
    same.map_err(|error| error.to_string())
}

/// Opens a file, to be read with the checksums of its row.
fn open(folder: &Path, row: &FileRow) -> Result<SummingReader, String> {
    let file = File::open(folder.join(&row.file)).map_err(|error| error.to_string())?;
    let kinds = Kinds {
        crc32c: row.sums.crc32c.is_some(),
        xxh3: row.sums.xxh3.is_some(),
    };
    Ok(SummingReader::new(file, kinds))
}
