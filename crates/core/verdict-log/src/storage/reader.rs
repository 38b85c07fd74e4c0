//! Reader of entries, page by page, where they were written.

use super::layout::{
    ENTRY_HEAD, SEGMENT_HEAD, entry_bytes, read_entry, segment_first, segment_name,
};
use super::scan::io_error;
use super::{Disk, StorageError};
use crate::entry::Entry;

/// Bytes read at once: many entries, and always a whole one.
const READ_BYTES: usize = ENTRY_HEAD + Entry::BODY_BYTES_MAX;

/// Place in a log. Going on from the last one is cheap; jumping looks for the place from the begin of a segment.
#[derive(Debug)]
pub(crate) struct LogReader<D> {
    disk: D,
    /// First index of the segment, and the offset of entry `next` in it.
    place: Option<(u64, u64)>,
    next: u64,
    /// Bytes read from `place` on.
    bytes: Vec<u8>,
    used: usize,
    /// Entry up to which the bytes are final; behind it they may be of a write that is undone.
    settled: u64,
}

impl<D: Disk> LogReader<D> {
    pub(crate) fn new(disk: D) -> Self {
        Self {
            disk,
            place: None,
            next: 1,
            bytes: Vec::new(),
            used: 0,
            settled: 0,
        }
    }

    /// Forgets the bytes read, which a cut of the log has outdated.
    pub(crate) fn forget(&mut self) {
        self.place = None;
        self.bytes.clear();
        self.used = 0;
    }

    /// Returns the entry at `index`, which is durable, as is everything up to `durable`.
    pub(crate) fn read(&mut self, index: u64, durable: u64) -> Result<Entry, StorageError> {
        if self.place.is_none() || index < self.next {
            self.jump(index)?;
        }
        loop {
            let entry = self.step(durable)?;
            if entry.index == index {
                return Ok(entry);
            }
        }
    }

    fn jump(&mut self, index: u64) -> Result<(), StorageError> {
        self.forget();
        let names = self.disk.list().map_err(io_error(&self.disk, "list", ""))?;
        let firsts = names.iter().filter_map(|name| segment_first(name));
        let first = firsts.filter(|first| *first <= index).max();
        let first = first.unwrap_or(index);
        self.place = Some((first, SEGMENT_HEAD as u64));
        self.next = first;
        Ok(())
    }

    /// Returns the next entry of the log.
    fn step(&mut self, durable: u64) -> Result<Entry, StorageError> {
        loop {
            let (first, offset) = self.place.expect("set by jump");
            let rest = &self.bytes[self.used..];
            let is_whole = entry_bytes(rest).is_some_and(|size| rest.len() >= size);
            if !is_whole || self.next > self.settled {
                let name = segment_name(first);
                let read = self.disk.read_at(&name, offset, READ_BYTES);
                self.bytes = read.map_err(io_error(&self.disk, "read", &name))?;
                self.used = 0;
                self.settled = durable;
                if self.bytes.is_empty() && self.next > first {
                    // The end of this segment is the begin of the next.
                    self.place = Some((self.next, SEGMENT_HEAD as u64));
                    continue;
                }
            }
            let rest = &self.bytes[self.used..];
            let corrupt = |why: &str| StorageError::Corrupt {
                file: self.disk.path(&segment_name(first)),
                offset,
                why: why.to_owned(),
            };
            let stored = read_entry(rest).map_err(corrupt)?;
            if stored.entry.index != self.next {
                return Err(corrupt("the index of an entry is not the next one"));
            }
            self.used += stored.bytes;
            self.place = Some((first, offset + stored.bytes as u64));
            self.next += 1;
            return Ok(stored.entry);
        }
    }
}
