//! Writer of a log into files: a crash at any step leaves a prefix of the requests.

use super::layout::{
    SEGMENT_BYTES, SEGMENT_HEAD, STATE, STATE_NEXT, SYNCED, SegmentHead, put_entry, read_entry,
    read_segment_head, segment_head, segment_name, state_bytes, synced_bytes,
};
use super::scan::{Findings, LEFTOVERS, io_error, scan};
use super::{Disk, HardState, StorageError};
use crate::entry::Entry;
use sheaf_protocol::Term;
use sheaf_protocol::protect;
use std::collections::VecDeque;

/// One operation on the files of a log.
#[derive(Clone, Debug)]
pub enum Op {
    /// The entry follows the last one.
    Append(Entry),
    /// This index and all behind it are removed.
    Truncate(u64),
    /// Segments that are wholly below this index are removed.
    Release(u64),
    /// Everything is removed; the log goes on behind this index, which is of this term.
    Reset(u64, Term),
    /// Term and vote.
    Save(HardState),
}

/// End of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct End {
    segments: Vec<u64>,
    /// Bytes of the last segment.
    bytes: u64,
    index: u64,
    /// Term of the entry at `index`.
    term: Term,
    /// Records in all entries that there ever were.
    records: u64,
}

/// Files of a log that is written.
#[derive(Debug)]
pub struct LogFiles<D> {
    disk: D,
    /// End of the durable part.
    durable: End,
    /// Whether bytes behind the end may be of a failed write.
    is_dirty: bool,
    /// Index for the synced mark: never more than the entries that are durable and stay.
    promised: u64,
    /// Whether the synced mark may be higher: a write of it failed, which may have reached the disk all the same.
    is_mark_unsure: bool,
    segment_bytes: u64,
}

impl<D: Disk> LogFiles<D> {
    /// Opens a directory: scans it and mends the traces of a crash.
    ///
    /// # Errors
    ///
    /// [`StorageError::Corrupt`] if synced data are gone; nothing is changed then.
    pub fn open(disk: D) -> Result<(Self, Findings), StorageError> {
        let found = scan(&disk)?;
        let names = disk.list().map_err(io_error(&disk, "list", ""))?;
        for name in LEFTOVERS {
            disk.remove(name).map_err(io_error(&disk, "remove", name))?;
        }
        let mut files = Self {
            durable: End {
                segments: found.segments.clone(),
                bytes: found.last_bytes,
                index: found.last_index,
                term: found.terms.last().map_or(found.base.1, |(_, term)| *term),
                records: found.records,
            },
            disk,
            is_dirty: true,
            promised: found.synced,
            is_mark_unsure: false,
            segment_bytes: SEGMENT_BYTES,
        };
        files.mend_names(&names)?;
        // A kill leaves whole entries that were never synced. They are read, so they have to last.
        if let Some(first) = files.durable.segments.last().copied() {
            files.write_again(first, found.synced)?;
            files.sync(&segment_name(first))?;
        }
        files.mark(files.durable.index)?;
        Ok((files, found))
    }

    /// Writes again the content of the last segment behind the synced mark. A sync of the life before may have failed
    /// on it: then Linux has dropped it and calls it clean, it can be read, and no sync would ever bring it to the
    /// disk.
    fn write_again(&self, first: u64, synced: u64) -> Result<(), StorageError> {
        let from = match synced < first {
            true => 0,
            false => self.end_at(first, synced + 1)?.bytes,
        };
        let name = segment_name(first);
        let bytes = self.disk.read_at(&name, from, usize::MAX);
        let bytes = bytes.map_err(io_error(&self.disk, "read", &name))?;
        if bytes.is_empty() {
            return Ok(());
        }
        let written = self.disk.write_at(&name, from, &bytes);
        written.map_err(io_error(&self.disk, "write", &name))
    }

    pub(crate) fn set_segment_bytes(&mut self, bytes: u64) {
        self.segment_bytes = bytes;
    }

    pub(crate) fn disk(&self) -> &D {
        &self.disk
    }

    /// Carries out `ops`, and removes the durable ones from it. After an error the rest is to be done again.
    ///
    /// # Errors
    ///
    /// The error of the disk. No byte of operations still in `ops` counts.
    pub fn write(&mut self, ops: &mut VecDeque<Op>) -> Result<(), StorageError> {
        while !ops.is_empty() {
            if self.is_dirty {
                self.mend()?;
            }
            self.is_dirty = true;
            let done = match ops.front() {
                Some(Op::Truncate(from)) => self.truncate(*from).map(|()| 1),
                Some(Op::Release(below)) => self.release(*below).map(|()| 1),
                Some(Op::Reset(index, term)) => self.reset(*index, *term).map(|()| 1),
                _ => self.write_run(ops),
            };
            match done {
                Ok(count) => {
                    ops.drain(..count);
                    self.is_dirty = false;
                }
                Err(error) => {
                    // Now if it can be, otherwise before the next write.
                    self.is_dirty = self.mend().is_err();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Writes and syncs everything up to the next cut; returns the number of operations.
    fn write_run(&mut self, ops: &VecDeque<Op>) -> Result<usize, StorageError> {
        let mut end = self.durable.clone();
        let mut bytes = Vec::new();
        let mut count = 0;
        for op in ops {
            match op {
                Op::Truncate(_) | Op::Release(_) | Op::Reset(..) => break,
                Op::Save(state) => self.save(state)?,
                Op::Append(entry) => {
                    let length = end.bytes + bytes.len() as u64;
                    if end.segments.is_empty() || length >= self.segment_bytes {
                        self.write_out(&mut end, &mut bytes)?;
                        if let Some(last) = end.segments.last() {
                            self.sync(&segment_name(*last))?;
                        }
                        self.begin_segment(&mut end, entry.index)?;
                    }
                    put_entry(&mut bytes, entry, self.durable.index);
                    end.index = entry.index;
                    end.term = entry.term;
                    end.records += entry.record_count();
                }
            }
            count += 1;
        }
        self.write_out(&mut end, &mut bytes)?;
        if end != self.durable {
            if let Some(last) = end.segments.last() {
                self.sync(&segment_name(*last))?;
            }
            self.mark(end.index)?;
            self.durable = end;
        }
        Ok(count)
    }

    fn write_out(&self, end: &mut End, bytes: &mut Vec<u8>) -> Result<(), StorageError> {
        if let Some(last) = end.segments.last()
            && !bytes.is_empty()
        {
            let name = segment_name(*last);
            let written = self.disk.write_at(&name, end.bytes, bytes);
            written.map_err(io_error(&self.disk, "write", &name))?;
            end.bytes += bytes.len() as u64;
            bytes.clear();
        }
        Ok(())
    }

    fn begin_segment(&self, end: &mut End, first: u64) -> Result<(), StorageError> {
        let name = segment_name(first);
        let head = segment_head(SegmentHead {
            first,
            term: end.term,
            records: end.records,
        });
        let written = self.disk.write_at(&name, 0, &head);
        written.map_err(io_error(&self.disk, "write", &name))?;
        // A name that lasts has a head that lasts, so recovery never meets a segment without one in the middle.
        self.sync(&name)?;
        self.sync_names()?;
        end.segments.push(first);
        end.bytes = SEGMENT_HEAD as u64;
        Ok(())
    }

    fn save(&self, state: &HardState) -> Result<(), StorageError> {
        let io = |action| io_error(&self.disk, action, STATE_NEXT);
        self.disk
            .write_at(STATE_NEXT, 0, &state_bytes(state))
            .map_err(io("write"))?;
        self.sync(STATE_NEXT)?;
        self.disk.rename(STATE_NEXT, STATE).map_err(io("rename"))?;
        self.sync_names()
    }

    /// Writes the synced mark. Not synced itself: after a kill it is exact all the same, and after a power failure it
    /// is only older than the truth.
    fn mark(&mut self, index: u64) -> Result<(), StorageError> {
        self.promised = self.promised.min(index);
        let written = self.disk.write_at(SYNCED, 0, &synced_bytes(index));
        self.is_mark_unsure |= written.is_err();
        written.map_err(io_error(&self.disk, "write", SYNCED))?;
        self.promised = index;
        Ok(())
    }

    fn sync(&self, name: &str) -> Result<(), StorageError> {
        protect!(SyncBeforeDurable, else return Ok(()));
        let synced = self.disk.sync(name);
        let outcome = protect!(SyncErrorsFatal, synced, else Ok(()));
        outcome.map_err(io_error(&self.disk, "sync", name))
    }

    fn sync_names(&self) -> Result<(), StorageError> {
        self.disk
            .sync_names()
            .map_err(io_error(&self.disk, "sync", ""))
    }

    fn truncate(&mut self, from: u64) -> Result<(), StorageError> {
        if from > self.durable.index {
            return Ok(());
        }
        // The mark first, and durably: it must never promise entries that are being removed.
        self.mark(from.saturating_sub(1))?;
        self.sync(SYNCED)?;
        while let Some(first) = self
            .durable
            .segments
            .last()
            .copied()
            // The first segment stays: its head holds the point from which the log goes on.
            .filter(|first| *first >= from && self.durable.segments.len() > 1)
        {
            let before = self.durable.segments.iter().rev().nth(1).copied();
            let end = before.map(|before| self.end_at(before, first));
            let end = end.transpose()?;
            let name = segment_name(first);
            self.disk
                .remove(&name)
                .map_err(io_error(&self.disk, "remove", &name))?;
            // One at a time, from the last: the rest is without gaps whenever the power goes.
            self.durable.segments.pop();
            let segments = std::mem::take(&mut self.durable.segments);
            self.durable = End {
                segments,
                ..end.unwrap_or_default()
            };
            self.sync_names()?;
        }
        let mut end = self.durable.clone();
        if let Some(last) = end.segments.last() {
            let name = segment_name(*last);
            end = End {
                segments: end.segments.clone(),
                ..self.end_at(*last, from)?
            };
            let cut = self.disk.truncate(&name, end.bytes);
            cut.map_err(io_error(&self.disk, "truncate", &name))?;
            self.sync(&name)?;
        }
        self.durable = end;
        Ok(())
    }

    /// Removes the segments that are wholly below `below`.
    fn release(&mut self, below: u64) -> Result<(), StorageError> {
        while let [first, second, ..] = self.durable.segments[..]
            && second <= below
        {
            let name = segment_name(first);
            self.disk
                .remove(&name)
                .map_err(io_error(&self.disk, "remove", &name))?;
            // One at a time, from the first: the rest is without gaps whenever the power goes.
            self.sync_names()?;
            self.durable.segments.remove(0);
        }
        Ok(())
    }

    /// Removes everything and starts over behind `index`.
    fn reset(&mut self, index: u64, term: Term) -> Result<(), StorageError> {
        // The mark first, and durably: it must never promise entries that are being removed.
        self.mark(0)?;
        self.sync(SYNCED)?;
        while let Some(last) = self.durable.segments.last().copied() {
            let name = segment_name(last);
            self.disk
                .remove(&name)
                .map_err(io_error(&self.disk, "remove", &name))?;
            self.sync_names()?;
            self.durable.segments.pop();
            self.durable.bytes = match self.durable.segments.last() {
                Some(before) => self.end_at(*before, last)?.bytes,
                None => 0,
            };
        }
        let mut end = End {
            index,
            term,
            ..End::default()
        };
        self.begin_segment(&mut end, index + 1)?;
        self.mark(index)?;
        self.durable = end;
        Ok(())
    }

    /// Returns the end of the log before the entry `index`, or at the end of the segment of `first`, which has it.
    fn end_at(&self, first: u64, index: u64) -> Result<End, StorageError> {
        let name = segment_name(first);
        let bytes = self.disk.read_at(&name, 0, usize::MAX);
        let bytes = bytes.map_err(io_error(&self.disk, "read", &name))?;
        let corrupt = |at: usize, why: &str| StorageError::Corrupt {
            file: self.disk.path(&name),
            offset: at as u64,
            why: why.to_owned(),
        };
        let head = read_segment_head(&bytes, first)
            .ok_or_else(|| corrupt(0, "the head of the segment is wrong"))?;
        let mut end = End {
            segments: Vec::new(),
            bytes: SEGMENT_HEAD as u64,
            index: first.saturating_sub(1),
            term: head.term,
            records: head.records,
        };
        let mut at = SEGMENT_HEAD;
        while end.index + 1 < index && at < bytes.len() {
            let stored = read_entry(&bytes[at..]).map_err(|why| corrupt(at, why))?;
            at += stored.bytes;
            end.bytes = at as u64;
            (end.index, end.term) = (stored.entry.index, stored.entry.term);
            end.records += stored.entry.record_count();
        }
        Ok(end)
    }

    /// Removes the traces of a failed write.
    fn mend(&mut self) -> Result<(), StorageError> {
        if self.is_mark_unsure {
            // Before anything is cut, and durably: a mark that is too high makes a torn write look like a loss.
            self.mark(self.promised)?;
            self.sync(SYNCED)?;
            self.is_mark_unsure = false;
        }
        let names = self.disk.list().map_err(io_error(&self.disk, "list", ""))?;
        self.mend_names(&names)
    }

    fn mend_names(&mut self, names: &[String]) -> Result<(), StorageError> {
        // A segment whose removal failed to become durable is in no list, and comes back with a power failure: behind
        // a log that is cut or written meanwhile it would look like a loss.
        self.sync_names()?;
        let mut stray: Vec<u64> = names
            .iter()
            .filter_map(|name| super::layout::segment_first(name))
            .collect();
        stray.retain(|first| !self.durable.segments.contains(first));
        stray.sort_unstable();
        // Segments before the log go from its begin, those behind it from its end: never a gap.
        let log_first = self.durable.segments.first().copied().unwrap_or(0);
        let behind = stray.partition_point(|first| *first < log_first);
        for first in stray[..behind].iter().chain(stray[behind..].iter().rev()) {
            let name = segment_name(*first);
            self.disk
                .remove(&name)
                .map_err(io_error(&self.disk, "remove", &name))?;
            self.sync_names()?;
        }
        // It is not there if its removal could not be made durable: that is done again.
        let last = self
            .durable
            .segments
            .last()
            .map(|first| segment_name(*first));
        if let Some(name) = last.filter(|name| names.contains(name)) {
            let cut = self.disk.truncate(&name, self.durable.bytes);
            cut.map_err(io_error(&self.disk, "truncate", &name))?;
            // Or stale bytes could come back under new ones after a power failure.
            self.sync(&name)?;
        }
        self.is_dirty = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
