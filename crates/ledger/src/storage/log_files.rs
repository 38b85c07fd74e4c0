//! Writes a log into files, so that what a crash at any step leaves is a prefix of what was asked.

use super::layout::{
    SEGMENT_BYTES, SEGMENT_HEAD, STATE, STATE_NEXT, SYNCED, put_entry, read_entry, segment_head,
    segment_name, state_bytes, synced_bytes,
};
use super::scan::{Findings, LEFTOVERS, io_error, scan};
use super::{Disk, HardState, StorageError};
use crate::entry::Entry;
use sheaf_frame::mutant::{self, Mutant};
use std::collections::VecDeque;

/// One thing to do.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// The entry follows the last one.
    Append(Entry),
    /// This index and all behind it go.
    Truncate(u64),
    /// Term and vote.
    Save(HardState),
}

/// Where a log ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct End {
    segments: Vec<u64>,
    /// Of the last segment.
    bytes: u64,
    index: u64,
}

/// The files of a log that is written.
#[derive(Debug)]
pub(crate) struct LogFiles<D> {
    disk: D,
    /// Everything up to here is durable.
    durable: End,
    /// What may lie behind it is of a failed write.
    is_dirty: bool,
    segment_bytes: u64,
}

impl<D: Disk> LogFiles<D> {
    /// Opens a directory: looks through it and mends what a crash has left.
    ///
    /// # Errors
    ///
    /// [`StorageError::Corrupt`] if something that was synced is gone; nothing is changed then.
    pub(crate) fn open(disk: D) -> Result<(Self, Findings), StorageError> {
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
            },
            disk,
            is_dirty: true,
            segment_bytes: SEGMENT_BYTES,
        };
        files.mend_names(&names)?;
        // A kill leaves whole entries that were never synced. They are read, so they have to last.
        if let Some(first) = files.durable.segments.last() {
            files.sync(&segment_name(*first))?;
        }
        files.sync_names()?;
        files.mark(files.durable.index)?;
        Ok((files, found))
    }

    #[cfg(test)]
    pub(crate) fn set_segment_bytes(&mut self, bytes: u64) {
        self.segment_bytes = bytes;
    }

    pub(crate) fn disk(&self) -> &D {
        &self.disk
    }

    /// Does what is in `ops`, and takes from it what is durable. After an error the rest is to be done again.
    ///
    /// # Errors
    ///
    /// What the disk says. No byte of what is still in `ops` counts.
    pub(crate) fn write(&mut self, ops: &mut VecDeque<Op>) -> Result<(), StorageError> {
        while !ops.is_empty() {
            if self.is_dirty {
                self.mend()?;
            }
            self.is_dirty = true;
            let done = match ops.front() {
                Some(Op::Truncate(from)) => self.truncate(*from).map(|()| 1),
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

    /// Writes and syncs everything up to the next cut; says how much that was.
    fn write_run(&mut self, ops: &VecDeque<Op>) -> Result<usize, StorageError> {
        let mut end = self.durable.clone();
        let mut bytes = Vec::new();
        let mut count = 0;
        for op in ops {
            match op {
                Op::Truncate(_) => break,
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
        let written = self.disk.write_at(&name, 0, &segment_head(first));
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

    /// Says up to where all is synced. Not synced itself: after a kill it is exact all the same, and after a power
    /// failure it is only older than the truth.
    fn mark(&self, index: u64) -> Result<(), StorageError> {
        let written = self.disk.write_at(SYNCED, 0, &synced_bytes(index));
        written.map_err(io_error(&self.disk, "write", SYNCED))
    }

    fn sync(&self, name: &str) -> Result<(), StorageError> {
        if mutant::is_on(Mutant::LedgerNoSync) {
            return Ok(());
        }
        match self.disk.sync(name) {
            Err(_) if mutant::is_on(Mutant::LedgerSyncErrorIgnored) => Ok(()),
            outcome => outcome.map_err(io_error(&self.disk, "sync", name)),
        }
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
        // The mark first, and for good: it must never promise what is being taken away.
        self.mark(from.saturating_sub(1))?;
        self.sync(SYNCED)?;
        while let Some(first) = self
            .durable
            .segments
            .last()
            .copied()
            .filter(|first| *first >= from)
        {
            let before = self.durable.segments.iter().rev().nth(1).copied();
            let bytes = before
                .map(|before| self.offset_of(before, first))
                .transpose()?;
            let name = segment_name(first);
            self.disk
                .remove(&name)
                .map_err(io_error(&self.disk, "remove", &name))?;
            // One at a time, from the last: what is left is without gaps whenever the power goes.
            self.durable.segments.pop();
            self.durable.bytes = bytes.unwrap_or(0);
            self.durable.index = first - 1;
            self.sync_names()?;
        }
        let mut end = self.durable.clone();
        if let Some(last) = end.segments.last() {
            let name = segment_name(*last);
            end.bytes = self.offset_of(*last, from)?;
            let cut = self.disk.truncate(&name, end.bytes);
            cut.map_err(io_error(&self.disk, "truncate", &name))?;
            self.sync(&name)?;
        }
        end.index = from.saturating_sub(1);
        self.durable = end;
        Ok(())
    }

    /// Where the entry `index` begins in the segment of `first`, or the end of it.
    fn offset_of(&self, first: u64, index: u64) -> Result<u64, StorageError> {
        let name = segment_name(first);
        let bytes = self.disk.read_at(&name, 0, usize::MAX);
        let bytes = bytes.map_err(io_error(&self.disk, "read", &name))?;
        let mut at = SEGMENT_HEAD.min(bytes.len());
        for _ in first..index {
            if at == bytes.len() {
                break;
            }
            at += read_entry(&bytes[at..])
                .map_err(|why| StorageError::Corrupt {
                    file: self.disk.path(&name),
                    offset: at as u64,
                    why: why.to_owned(),
                })?
                .bytes;
        }
        Ok(at as u64)
    }

    /// Takes away what a failed write has left.
    fn mend(&mut self) -> Result<(), StorageError> {
        let names = self.disk.list().map_err(io_error(&self.disk, "list", ""))?;
        self.mend_names(&names)
    }

    fn mend_names(&mut self, names: &[String]) -> Result<(), StorageError> {
        let mut stray: Vec<u64> = names
            .iter()
            .filter_map(|name| super::layout::segment_first(name))
            .collect();
        stray.retain(|first| !self.durable.segments.contains(first));
        stray.sort_unstable();
        for first in stray.iter().rev() {
            let name = segment_name(*first);
            self.disk
                .remove(&name)
                .map_err(io_error(&self.disk, "remove", &name))?;
            self.sync_names()?;
        }
        if let Some(last) = self.durable.segments.last() {
            let name = segment_name(*last);
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
