//! The file that is written: parts that are there, noted beside it, so that a further call goes on where one ended.

use super::error::FetchError;
use crate::sums::KINDS;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sheaf_write::{Summing, Sums};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Version of the notes.
const VERSION: u32 = 1;
/// Bytes that are read at once.
const READ_BYTES: u64 = 1 << 20;

/// Version of a file, by which a further call knows that parts of it are still good.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Identity {
    version: u32,
    bytes: u64,
    part_bytes: u64,
    /// Checksums that servers state; where there are none, the tag of the version.
    checksums: BTreeSet<String>,
    etag: Option<String>,
}

impl Identity {
    pub(super) fn new(
        bytes: u64,
        part_bytes: u64,
        checksums: BTreeSet<String>,
        etag: Option<String>,
    ) -> Self {
        Self {
            version: VERSION,
            bytes,
            part_bytes: part_bytes.max(1),
            etag: etag.filter(|_| checksums.is_empty()),
            checksums,
        }
    }

    /// Whether another file of equal size could not be taken for this one.
    fn is_certain(&self) -> bool {
        !self.checksums.is_empty() || self.etag.is_some()
    }

    /// Number of parts.
    pub(super) fn parts(&self) -> usize {
        usize::try_from(self.bytes.div_ceil(self.part_bytes)).unwrap_or(usize::MAX)
    }

    /// First byte of a part, and the one behind its last.
    pub(super) fn range(&self, part: usize) -> std::ops::Range<u64> {
        let start = self.part_bytes * part as u64;
        start..self.bytes.min(start + self.part_bytes)
    }
}

/// Part that is there, as it is noted.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
struct Note {
    part: usize,
    adler32: u32,
    crc32c: Option<u32>,
}

/// File that is written.
#[derive(Debug)]
pub(super) struct Target {
    to: PathBuf,
    part: PathBuf,
    notes_path: PathBuf,
    file: File,
    notes: Mutex<File>,
}

impl Target {
    /// Opens the file, and reads which parts of it are there from a former call.
    pub(super) fn open(
        to: &Path,
        identity: &Identity,
    ) -> Result<(Self, Vec<(usize, Sums)>), FetchError> {
        let part = beside(to, ".part");
        let notes_path = beside(to, ".notes.part");
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| FetchError::Disk { path, source }
        };
        let open = |path: &Path| {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false);
            options.open(path).map_err(failed(path))
        };
        let file = open(&part)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(FetchError::Busy(part)),
            Err(TryLockError::Error(error)) => return Err(failed(&part)(error)),
        }
        let notes = open(&notes_path)?;
        let mut there = Vec::new();
        for note in read_notes(&notes, identity) {
            if let Some(sums) = sums_of(&file, identity, note) {
                there.push((note.part, sums));
            }
        }
        if there.is_empty() {
            file.set_len(0).map_err(failed(&part))?;
        }
        match fallocate(&file, FallocateFlags::empty(), 0, identity.bytes) {
            Err(Errno::NOSPC | Errno::FBIG | Errno::DQUOT) => {
                let source = io::ErrorKind::StorageFull.into();
                return Err(FetchError::Disk { path: part, source });
            }
            // A file system that cannot do this takes the bytes as they come.
            Ok(()) | Err(_) => file.set_len(identity.bytes).map_err(failed(&part))?,
        }
        let target = Self {
            to: to.to_owned(),
            part,
            notes: Mutex::new(notes),
            notes_path,
            file,
        };
        target.begin_notes(identity, &there)?;
        Ok((target, there))
    }

    /// Writes the notes from their beginning: what a former call noted of another version is gone.
    fn begin_notes(&self, identity: &Identity, there: &[(usize, Sums)]) -> Result<(), FetchError> {
        {
            let notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
            let written = notes.set_len(0).and_then(|()| {
                let mut text = serde_json::to_string(identity)?;
                text.push('\n');
                // Appended to: the place of the descriptor is where reading ended.
                notes.write_all_at(text.as_bytes(), 0)?;
                io::Seek::seek(&mut &*notes, io::SeekFrom::End(0)).map(drop)
            });
            written.map_err(|error| self.failed(&self.notes_path, error))?;
        }
        there
            .iter()
            .try_for_each(|&(part, sums)| self.note(part, &sums))
    }

    /// Writes bytes at their place.
    pub(super) fn write(&self, bytes: &[u8], at: u64) -> Result<(), FetchError> {
        let written = self.file.write_all_at(bytes, at);
        written.map_err(|error| self.failed(&self.part, error))
    }

    /// Notes that a part is there.
    pub(super) fn note(&self, part: usize, sums: &Sums) -> Result<(), FetchError> {
        let note = Note {
            part,
            adler32: sums.adler32,
            crc32c: sums.crc32c,
        };
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let text = serde_json::to_string(&note).map_err(io::Error::other);
        let written = text.and_then(|text| notes.write_all(format!("{text}\n").as_bytes()));
        written.map_err(|error| self.failed(&self.notes_path, error))
    }

    /// Forgets all parts, so that a further call begins from nothing.
    pub(super) fn forget(&self) -> Result<(), FetchError> {
        let notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let cut = notes.set_len(0);
        cut.map_err(|error| self.failed(&self.notes_path, error))
    }

    /// Gives the file its name, once it is on the disk.
    pub(super) fn finish(self) -> Result<(), FetchError> {
        let synced = self.file.sync_all();
        synced.map_err(|error| self.failed(&self.part, error))?;
        let renamed = std::fs::rename(&self.part, &self.to);
        renamed.map_err(|error| self.failed(&self.to, error))?;
        // Without a name to go with, notes only take room.
        let _ = std::fs::remove_file(&self.notes_path);
        let folder = self.to.parent().filter(|it| !it.as_os_str().is_empty());
        let folder = File::open(folder.unwrap_or(Path::new(".")));
        let synced = folder.and_then(|folder| folder.sync_all());
        synced.map_err(|error| self.failed(&self.to, error))
    }

    fn failed(&self, path: &Path, source: io::Error) -> FetchError {
        let path = path.to_owned();
        FetchError::Disk { path, source }
    }
}

fn beside(to: &Path, end: &str) -> PathBuf {
    let mut path = OsString::from(to);
    path.push(end);
    path.into()
}

/// Reads the notes of a former call, if they are of this version of the file; of each part the last.
fn read_notes(notes: &File, identity: &Identity) -> Vec<Note> {
    let mut lines = BufReader::new(notes).lines().map_while(Result::ok);
    let first = lines.next().and_then(|it| serde_json::from_str(&it).ok());
    if first.as_ref() != Some(identity) || !identity.is_certain() {
        return Vec::new();
    }
    let mut found = std::collections::BTreeMap::new();
    // A line that was cut by the end of a machine is no note.
    for note in lines.filter_map(|line| serde_json::from_str::<Note>(&line).ok()) {
        if note.part < identity.parts() {
            found.insert(note.part, note);
        }
    }
    found.into_values().collect()
}

/// Reads a part again. Returns its checksums if they are those that were noted.
fn sums_of(file: &File, identity: &Identity, note: Note) -> Option<Sums> {
    let range = identity.range(note.part);
    let mut summing = Summing::new(KINDS);
    let mut at = range.start;
    let mut room = vec![0; usize::try_from(READ_BYTES).ok()?];
    while at < range.end {
        let most = usize::try_from((range.end - at).min(READ_BYTES)).ok()?;
        file.read_exact_at(&mut room[..most], at).ok()?;
        summing.update(&room[..most]);
        at += most as u64;
    }
    let sums = summing.sums();
    (sums.adler32 == note.adler32 && sums.crc32c == note.crc32c).then_some(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(checksum: &str) -> Identity {
        Identity::new(10, 4, BTreeSet::from([checksum.to_owned()]), None)
    }

    fn sums(bytes: &[u8]) -> Sums {
        let mut summing = Summing::new(KINDS);
        summing.update(bytes);
        summing.sums()
    }

    fn there(to: &Path, identity: &Identity) -> Vec<usize> {
        let (_, there) = Target::open(to, identity).unwrap();
        there.into_iter().map(|(part, _)| part).collect()
    }

    #[test]
    fn a_further_call_keeps_the_parts_that_are_good_on_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("a");
        let of = identity("adler32=1");
        assert_eq!((of.parts(), of.range(2)), (3, 8..10));
        let (target, none) = Target::open(&to, &of).unwrap();
        assert!(none.is_empty());
        assert!(matches!(Target::open(&to, &of), Err(FetchError::Busy(_))));
        target.write(b"01234567", 0).unwrap();
        target.note(0, &sums(b"0123")).unwrap();
        target.note(1, &sums(b"4567")).unwrap();
        drop(target);
        assert_eq!(there(&to, &of), [0, 1]);
        std::fs::write(beside(&to, ".part"), b"01234x67__").unwrap();
        assert_eq!(there(&to, &of), [0], "a part that is damaged comes again");
        assert_eq!(there(&to, &identity("adler32=2")), [0_usize; 0]);
        assert_eq!(there(&to, &of), [0_usize; 0], "another version has begun");
        let (target, _) = Target::open(&to, &of).unwrap();
        target.write(b"0123456789", 0).unwrap();
        target.finish().unwrap();
        assert_eq!(std::fs::read(&to).unwrap(), b"0123456789");
        let left = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 1);
    }

    #[test]
    fn without_a_checksum_or_a_tag_nothing_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("a");
        for (etag, kept) in [(None, 0), (Some("\"x\"".to_owned()), 1)] {
            let of = Identity::new(4, 4, BTreeSet::new(), etag);
            let (target, _) = Target::open(&to, &of).unwrap();
            target.write(b"0123", 0).unwrap();
            target.note(0, &sums(b"0123")).unwrap();
            drop(target);
            assert_eq!(there(&to, &of).len(), kept);
        }
    }
}
