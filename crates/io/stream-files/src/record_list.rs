//! List of the records of an open file whose bytes do not tell where a record ends, and that it is whole.
//!
//! `NAME.records` lies beside `NAME.part` and goes when the file is closed. It has an entry of 24 bytes for each record
//! that was written: place, size, CRC-32C. A recovery keeps the records that are as their entries say. Layout:
//! `docs/reference/stream-files.md`.

use crate::folder::{Folder, StoredFile};
use sheaf_protocol::{Digest, crc32c};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::{Mutex, PoisonError};

/// End of the name of a list.
pub(crate) const LIST: &str = ".records";
/// Bytes of an entry.
const ENTRY: usize = 24;
/// Bytes of an entry that its own CRC-32C is about.
const COVERED: usize = 20;
/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;

/// Entry of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Place of its first byte in the file.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) digest: u32,
}

impl Entry {
    /// Returns the entry of a record at `offset`.
    pub(crate) fn of(offset: u64, slices: &[&[u8]]) -> Self {
        let mut digest = Digest::default();
        slices.iter().for_each(|slice| digest.update(slice));
        Self {
            offset,
            bytes: slices.iter().map(|slice| slice.len() as u64).sum(),
            digest: digest.value(),
        }
    }

    /// Appends the entry to `list`.
    pub(crate) fn encode(&self, list: &mut Vec<u8>) {
        let from = list.len();
        list.extend_from_slice(&self.offset.to_le_bytes());
        list.extend_from_slice(&self.bytes.to_le_bytes());
        list.extend_from_slice(&self.digest.to_le_bytes());
        let own = crc32c(&list[from..]);
        list.extend_from_slice(&own.to_le_bytes());
    }

    /// Reads an entry; `None` if it is damaged, or no record has it.
    fn decode(raw: &[u8; ENTRY]) -> Option<Self> {
        let word = |at: usize| raw[at..].first_chunk().copied().map(u64::from_le_bytes);
        let half = |at: usize| raw[at..].first_chunk().copied().map(u32::from_le_bytes);
        let entry = Self {
            offset: word(0)?,
            bytes: word(8)?,
            digest: half(16)?,
        };
        let is_whole = half(COVERED)? == crc32c(&raw[..COVERED]);
        (is_whole && entry.bytes > 0).then_some(entry)
    }
}

/// List that is being written.
#[derive(Debug)]
pub(crate) struct RecordList {
    file: Box<dyn StoredFile>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    end: u64,
    /// Entries at the end that were not synced, where that is wanted.
    unsynced: Vec<u8>,
    /// Whether the last sync failed: then the kernel takes for written what may be in memory alone.
    has_failed: bool,
}

impl RecordList {
    /// Makes the list of the file `name`.
    pub(crate) fn create(folder: &dyn Folder, name: &str) -> io::Result<Self> {
        let name = name.to_owned() + LIST;
        // Of a file that could not be made: no file under way has this name.
        if folder.exists(&name)? {
            folder.remove(&name)?;
        }
        Ok(Self {
            file: folder.create(&name, false)?,
            state: Mutex::default(),
        })
    }

    /// Writes entries; `is_promised` says that [`sync`](Self::sync) follows. What a write that fails has left is
    /// written over by the next one.
    pub(crate) fn write(&self, entries: &[u8], is_promised: bool) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.file.write_at(entries, state.end, false)?;
        state.end += entries.len() as u64;
        if is_promised {
            state.unsynced.extend_from_slice(entries);
        }
        Ok(())
    }

    /// Makes all entries durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.unsynced.is_empty() {
            return Ok(());
        }
        if state.has_failed {
            let from = state.end - state.unsynced.len() as u64;
            self.file.write_at(&state.unsynced, from, false)?;
        }
        state.has_failed = true;
        self.file.sync()?;
        state.has_failed = false;
        state.unsynced.clear();
        Ok(())
    }
}

/// List that a crash has left: entries by their place in the file.
#[derive(Debug, Default)]
pub(crate) struct FoundList(BTreeMap<u64, Entry>);

impl FoundList {
    /// Reads the list of the file `name`; `None` if it has none.
    pub(crate) fn read(folder: &dyn Folder, name: &str) -> io::Result<Option<Self>> {
        let name = name.to_owned() + LIST;
        if !folder.exists(&name)? {
            return Ok(None);
        }
        let file = folder.open(&name)?;
        let mut raw = Vec::new();
        let mut piece = vec![0; READ_BYTES];
        loop {
            let count = file.read_at(&mut piece, raw.len() as u64)?;
            if count == 0 {
                break;
            }
            raw.extend_from_slice(&piece[..count]);
        }
        Ok(Some(Self::of(&raw)))
    }

    fn of(raw: &[u8]) -> Self {
        let (entries, _) = raw.as_chunks::<ENTRY>();
        let entries = entries.iter().filter_map(Entry::decode);
        Self(entries.map(|entry| (entry.offset, entry)).collect())
    }

    /// Reads the record at `offset` of the file, where `reader` stands. Returns its bytes, or `None` if there is no
    /// entry of it or it is not as its entry says.
    pub(crate) fn next(&self, offset: u64, reader: &mut dyn Read) -> io::Result<Option<u64>> {
        let Some(entry) = self.0.get(&offset) else {
            return Ok(None);
        };
        let mut digest = Digest::default();
        let mut piece = vec![0; READ_BYTES];
        let mut left = entry.bytes;
        while left > 0 {
            let wanted = usize::try_from(left).map_or(READ_BYTES, |left| left.min(READ_BYTES));
            let count = reader.read(&mut piece[..wanted])?;
            if count == 0 {
                return Ok(None);
            }
            digest.update(&piece[..count]);
            left -= count as u64;
        }
        Ok((digest.value() == entry.digest).then_some(entry.bytes))
    }
}

/// Removes the list of the file `name`, if it has one.
pub(crate) fn remove_list(folder: &dyn Folder, name: &str) -> io::Result<()> {
    let name = name.to_owned() + LIST;
    if folder.exists(&name)? {
        folder.remove(&name)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_kept_up_to_the_first_that_is_not_as_its_entry_says() {
        let records: [&[u8]; 3] = [b"abc", b"defgh", b"i"];
        let file = records.concat();
        let (mut list, mut offset) = (Vec::new(), 0);
        for record in records {
            Entry::of(offset, &[record, b""]).encode(&mut list);
            offset += record.len() as u64;
        }
        let kept = |file: &[u8], list: &[u8]| {
            let found = FoundList::of(list);
            let (mut reader, mut kept) = (file, Vec::new());
            let mut offset = 0;
            while let Some(bytes) = found.next(offset, &mut reader).expect("memory") {
                offset += bytes;
                kept.push(bytes);
            }
            kept
        };
        assert_eq!(kept(&file, &list), [3, 5, 1]);
        // The file cut anywhere, and with zeros that were set aside in place of its end.
        for cut in 0..file.len() {
            let whole: &[u64] = match cut {
                0..3 => &[],
                3..8 => &[3],
                _ => &[3, 5],
            };
            assert_eq!(kept(&file[..cut], &list), whole);
            let set_aside = [&file[..cut], &[0; 16]].concat();
            assert_eq!(kept(&set_aside, &list), whole);
        }
        // The list cut or changed anywhere.
        for cut in 0..list.len() {
            assert_eq!(kept(&file, &list[..cut]).len(), cut / ENTRY);
            let mut bad = list.clone();
            bad[cut] ^= 1;
            assert_eq!(kept(&file, &bad).len(), cut / ENTRY);
        }
        assert_eq!(kept(&file, &vec![0; list.len()]), [0; 0]);
    }
}
