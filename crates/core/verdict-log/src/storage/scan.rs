//! Scan of a ledger directory: whole entries, torn writes, corruption.
//!
//! The hard question is the meaning of a bad entry. Behind the last sync it is a torn write, which was never
//! acknowledged, and it is cut. Before, it was promised, and a member that cut it would lie to the others. Two
//! witnesses tell which: the file `synced`, exact after a kill and some seconds old after a power failure, and every
//! entry behind the bad one, which holds the synced index at the time of its writing.

use super::checkpoints::Checkpoints;
use super::layout::{
    ENTRY_HEAD, SEGMENT_HEAD, STATE, STATE_BYTES, STATE_NEXT, SYNCED, SYNCED_BYTES, entry_bytes,
    read_entry, read_segment_head, read_state, read_synced, segment_first, segment_name,
};
use super::{Disk, HardState, StorageError};
use sheaf_protocol::Term;
use std::fmt;
use std::io::ErrorKind;
use std::path::PathBuf;

/// A write that was going on when the log ended. It was never acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    /// The file.
    pub file: PathBuf,
    /// Offset of the write.
    pub offset: u64,
    /// Length of the write.
    pub bytes: u64,
    /// Fault of the write.
    pub why: &'static str,
}

impl fmt::Display for Torn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, offset, bytes) = (self.file.display(), self.offset, self.bytes);
        write!(
            f,
            "{file} ends in a torn write at byte {offset}, {bytes} bytes: {}",
            self.why
        )
    }
}

/// Content of a ledger directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Term and vote, if they were ever saved.
    pub state: Option<HardState>,
    /// The first index of each segment.
    pub segments: Vec<u64>,
    /// The entry that the first one follows, and its term; 0 for a log that has its begin.
    pub base: (u64, Term),
    pub(crate) checkpoints: Checkpoints,
    /// Whether a checkpoint begins with the first entry.
    begins_with_checkpoint: bool,
    /// The last whole entry.
    pub last_index: u64,
    /// Bytes of the last segment that are whole.
    pub last_bytes: u64,
    /// The first index of each run of entries of one term, and that term.
    pub terms: Vec<(u64, Term)>,
    /// Records of all entries.
    pub records: u64,
    /// Index up to which the writer has synced, as far as it could note.
    pub synced: u64,
    /// The torn write at the end.
    pub torn: Option<Torn>,
}

/// Converts an error of the system during a scan.
pub(crate) fn io_error<D: Disk>(
    disk: &D,
    action: &'static str,
    file: &str,
) -> impl FnOnce(std::io::Error) -> StorageError {
    let file = disk.path(file);
    move |source| StorageError::Io {
        action,
        file,
        source,
    }
}

/// Scans the directory; changes nothing.
///
/// # Errors
///
/// [`StorageError::Corrupt`] if synced data are missing or wrong.
pub(crate) fn scan<D: Disk>(disk: &D) -> Result<Findings, StorageError> {
    // The mark first: a log that is being written grows meanwhile.
    let synced = read_small(disk, SYNCED, SYNCED_BYTES)?;
    let synced = synced.as_deref().and_then(read_synced).unwrap_or(0);
    let state = match read_small(disk, STATE, STATE_BYTES)? {
        Some(bytes) => Some(read_state(&bytes).map_err(|why| corrupt(disk, STATE, 0, why))?),
        None => None,
    };
    let names = disk.list().map_err(io_error(disk, "list", ""))?;
    let mut segments: Vec<u64> = names
        .iter()
        .filter_map(|name| segment_first(name))
        .collect();
    segments.sort_unstable();
    let mut found = Findings {
        state,
        synced,
        ..Findings::default()
    };
    for (at, first) in segments.iter().enumerate() {
        let is_last = at + 1 == segments.len();
        read_segment(disk, *first, is_last, &mut found)?;
    }
    if found.last_index < synced {
        let (file, offset) = match found.segments.last() {
            Some(first) => (segment_name(*first), found.last_bytes),
            None => (segment_name(found.base.0 + 1), 0),
        };
        let why = format!("entry {} is missing", found.last_index + 1);
        return Err(corrupt(disk, &file, offset, why));
    }
    let first = found.base.0 + 1;
    let has_begin = first == 1
        || found.last_index < first
        || found.begins_with_checkpoint
        || found.checkpoints.first().is_some();
    if !has_begin && synced == 0 {
        // The log was being replaced by a newer one, and nothing in it is promised any more.
        let torn = Torn {
            file: disk.path(&segment_name(first)),
            offset: 0,
            bytes: found.last_bytes,
            why: "a log without a begin, which was being replaced",
        };
        return Ok(Findings {
            state: found.state,
            torn: Some(torn),
            ..Findings::default()
        });
    }
    if !has_begin {
        let why =
            format!("it begins with entry {first}, and no checkpoint stands for those before");
        return Err(corrupt(disk, &segment_name(first), 0, why));
    }
    if found.state.is_none() && found.last_index > 0 {
        return Err(corrupt(
            disk,
            STATE,
            0,
            "it is missing, and there are entries",
        ));
    }
    Ok(found)
}

/// Names of files without meaning that a crash may leave.
pub(crate) const LEFTOVERS: [&str; 1] = [STATE_NEXT];

fn corrupt<D: Disk>(disk: &D, file: &str, offset: u64, why: impl Into<String>) -> StorageError {
    StorageError::Corrupt {
        file: disk.path(file),
        offset,
        why: why.into(),
    }
}

/// Returns a small file; `None` if there is none.
fn read_small<D: Disk>(
    disk: &D,
    name: &str,
    bytes: usize,
) -> Result<Option<Vec<u8>>, StorageError> {
    match disk.read_at(name, 0, bytes + 1) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error(disk, "read", name)(error)),
    }
}

fn read_segment<D: Disk>(
    disk: &D,
    first: u64,
    is_last: bool,
    found: &mut Findings,
) -> Result<(), StorageError> {
    let name = segment_name(first);
    let bytes = disk
        .read_at(&name, 0, usize::MAX)
        .map_err(io_error(disk, "read", &name))?;
    // A segment begins when the one before is whole and synced. Of a log whose begin was removed, any may be the first.
    let is_first = found.segments.is_empty();
    if first == 0 || !is_first && first != found.last_index + 1 {
        let why = format!(
            "it begins with entry {first}, expected {}",
            found.last_index + 1
        );
        return Err(corrupt(disk, &name, 0, why));
    }
    let mut at = 0;
    let mut wrong = None;
    if let Some(head) = read_segment_head(&bytes, first) {
        at = SEGMENT_HEAD;
        if is_first {
            found.base = (first - 1, head.term);
            found.last_index = first - 1;
            found.records = head.records;
        }
        while at < bytes.len() && wrong.is_none() {
            match read_entry(&bytes[at..]) {
                Ok(stored) if stored.entry.index != found.last_index + 1 => {
                    wrong = Some("the index of an entry is not the next one");
                }
                Ok(stored) => {
                    let (index, term) = (stored.entry.index, stored.entry.term);
                    if found.terms.last().is_none_or(|(_, last)| *last != term) {
                        found.terms.push((index, term));
                    }
                    found.records += stored.entry.record_count();
                    found.checkpoints.see(&stored.entry);
                    if index == found.base.0 + 1 {
                        found.begins_with_checkpoint = stored.entry.begins_checkpoint();
                    }
                    found.last_index = index;
                    at += stored.bytes;
                }
                Err(why) => wrong = Some(why),
            }
        }
    } else {
        wrong = Some("the head of the segment is wrong");
    }
    if let Some(why) = wrong {
        let bad = found.last_index + 1;
        let was_synced = found.synced >= bad || synced_behind(&bytes[at..], bad) >= bad;
        if !is_last || was_synced {
            return Err(corrupt(disk, &name, at as u64, why));
        }
        found.torn = Some(Torn {
            file: disk.path(&name),
            offset: at as u64,
            bytes: (bytes.len() - at) as u64,
            why,
        });
    }
    if at > 0 {
        found.segments.push(first);
        found.last_bytes = at as u64;
    }
    Ok(())
}

/// Returns the highest synced index in entries behind a bad one; 0 if there are none.
///
/// Their place is not known, so every byte may be the first of one.
fn synced_behind(bytes: &[u8], bad: u64) -> u64 {
    let mut best = 0;
    for at in 1..bytes.len().saturating_sub(ENTRY_HEAD) {
        let rest = &bytes[at..];
        let index = rest[16..]
            .first_chunk()
            .map_or(0, |field| u64::from_le_bytes(*field));
        // A cheap look before the checksum: no more entries than bytes.
        let is_near = index > bad && index - bad <= bytes.len() as u64;
        if is_near && entry_bytes(rest).is_some_and(|size| size <= rest.len()) {
            best = best.max(read_entry(rest).map_or(0, |stored| stored.synced));
        }
    }
    best
}
