//! A file under way: `NAME.part` until it is closed.

use crate::buffer::Buffer;
use crate::folder::{Folder, PART, StoredFile, rewrite};
use crate::local::IoMode;
use crate::record_list::{RecordList, remove_list};
use sheaf_protect::protect;
use sheaf_write::{FileName, Template};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Least and most space that is set aside at once.
const ALLOCATE_MIN: u64 = 4 << 20;
const ALLOCATE_MAX: u64 = 64 << 20;

/// Bytes of a file after which the kernel is asked to write them out. Without that it waits until the cache is full of
/// dirty pages, and then holds the writer up.
const WRITE_BACK: u64 = 8 << 20;

/// A file that workers write.
#[derive(Debug)]
pub(crate) struct StreamFile {
    folder: Arc<dyn Folder>,
    mode: IoMode,
    template: Template,
    /// Values of its name; the number is that which was free when it was made.
    name: Mutex<FileName>,
    stored: OnceLock<Box<dyn StoredFile>>,
    /// List of its records, if their bytes do not tell where they end.
    list: OnceLock<RecordList>,
    /// Held while the file is made, since any of its workers may be the first.
    making: Mutex<()>,
    /// Bytes from the beginning that the disk has set aside; all once it cannot.
    allocated: AtomicU64,
    /// End of the last byte that a write was begun of.
    written: AtomicU64,
    /// Syncs that have failed.
    failures: AtomicU64,
    synced: Mutex<Synced>,
}

/// Parts of a file that survive a cut of power.
#[derive(Debug, Default)]
struct Synced {
    /// Bytes from the beginning.
    bytes: u64,
    /// Up to here bytes were written when one failed last; they may be in memory alone.
    suspect: u64,
    /// Whether the name does.
    is_named: bool,
}

impl StreamFile {
    pub(crate) fn new(
        folder: Arc<dyn Folder>,
        mode: IoMode,
        template: Template,
        name: FileName,
    ) -> Self {
        Self {
            folder,
            mode,
            template,
            name: Mutex::new(name),
            stored: OnceLock::new(),
            list: OnceLock::new(),
            making: Mutex::new(()),
            allocated: AtomicU64::new(0),
            written: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            synced: Mutex::default(),
        }
    }

    /// Values of the name.
    pub(crate) fn values(&self) -> FileName {
        self.name
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Name that the file has once it is closed.
    pub(crate) fn name(&self) -> String {
        self.template.name(&self.values())
    }

    fn part(&self) -> String {
        self.name() + PART
    }

    pub(crate) fn mode(&self) -> IoMode {
        self.mode
    }

    pub(crate) fn is_made(&self) -> bool {
        self.stored.get().is_some()
    }

    /// Makes the file if no worker has done so, under the first number that no file has and that is not taken.
    /// `made` is called once, before anything is written. `is_listed` says that it needs a list of its records.
    pub(crate) fn make(
        &self,
        is_listed: bool,
        is_taken: impl Fn(&str) -> io::Result<bool>,
        made: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let _alone = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_made() {
            return Ok(());
        }
        let stored = loop {
            let name = self.name();
            if !is_taken(&name)? && !self.folder.exists(&name)? {
                match self
                    .folder
                    .create(&self.part(), self.mode != IoMode::Buffered)
                {
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                    created => break created?,
                }
            }
            let mut name = self.name.lock().unwrap_or_else(PoisonError::into_inner);
            name.seq += 1;
        };
        let list = is_listed.then(|| RecordList::create(&*self.folder, &self.name()));
        let made = list.transpose().and_then(|list| made().map(|()| list));
        let list = match made {
            Ok(list) => list,
            Err(error) => {
                // Nothing of it is known anywhere yet.
                drop(stored);
                self.folder.remove(&self.part())?;
                remove_list(&*self.folder, &self.name())?;
                return Err(error);
            }
        };
        if let Some(list) = list {
            let _ = self.list.set(list); // As for the file itself.
        }
        // No other worker makes it meanwhile.
        let _ = self.stored.set(stored);
        Ok(())
    }

    fn stored(&self) -> io::Result<&dyn StoredFile> {
        let missing = || io::Error::other("the file was not made");
        self.stored.get().map(Box::as_ref).ok_or_else(missing)
    }

    /// Sets space aside up to `end` and beyond, the more the longer the file is. Direct writes into space that a file
    /// has go on side by side; those that make it longer wait for each other.
    fn allocate(&self, end: u64) -> io::Result<()> {
        if end <= self.allocated.load(Ordering::Relaxed) {
            return Ok(());
        }
        let file = self.stored()?;
        let _alone = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        let from = self.allocated.load(Ordering::Relaxed);
        if end <= from {
            return Ok(());
        }
        let more = from.clamp(ALLOCATE_MIN, ALLOCATE_MAX).max(end - from);
        // A file system that cannot, or has not so much: the writes themselves will show what they can do.
        let set_aside = file.set_aside(from, more);
        let until = set_aside.map_or(u64::MAX, |()| from + more);
        self.allocated.store(until, Ordering::Relaxed);
        Ok(())
    }

    /// Sets space aside for a direct write up to `end` that another part of the program does. Returns the descriptor
    /// for it; `None`: the file has to be written through the cache.
    pub(crate) fn begin_direct(&self, end: u64) -> io::Result<Option<BorrowedFd<'_>>> {
        self.allocate(end)?;
        self.written.fetch_max(end, Ordering::Relaxed);
        Ok(self.stored()?.direct())
    }

    /// Writes the bytes of a buffer: whole blocks past the cache, the others through it. No block is written both ways.
    pub(crate) fn write_buffer(&self, buffer: &Buffer) -> io::Result<()> {
        self.allocate(buffer.end())?;
        self.written.fetch_max(buffer.end(), Ordering::Relaxed);
        let stored = self.stored()?;
        for (at, piece, is_whole) in buffer.pieces() {
            stored.write_at(piece, at, is_whole)?;
        }
        Ok(())
    }

    /// Writes `slices` one after the other from `offset`, through the cache.
    pub(crate) fn write_slices(&self, slices: &[&[u8]], offset: u64) -> io::Result<()> {
        let stored = self.stored()?;
        let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
        self.written
            .fetch_max(offset + bytes as u64, Ordering::Relaxed);
        let mut at = offset;
        for slice in slices {
            stored.write_at(slice, at, false)?;
            at += slice.len() as u64;
        }
        // A segment is written in its order by one worker: each stretch of it is full once.
        let (from, to) = (offset / WRITE_BACK, at / WRITE_BACK);
        if from < to {
            stored.begin_write_back(from * WRITE_BACK..to * WRITE_BACK);
        }
        Ok(())
    }

    /// Writes entries of records to the list of the file; it has one.
    pub(crate) fn write_list(&self, entries: &[u8], is_promised: bool) -> io::Result<()> {
        let list = self.list.get();
        list.map_or(Ok(()), |list| list.write(entries, is_promised))
    }

    /// Makes the list of the file durable, if it has one.
    pub(crate) fn sync_list(&self) -> io::Result<()> {
        self.list.get().map_or(Ok(()), RecordList::sync)
    }

    /// Removes the list of a file that is closed: the catalogue has its sums. What cannot be removed goes at the next
    /// start.
    pub(crate) fn drop_list(&self) {
        if self.list.get().is_some() {
            let _ = remove_list(&*self.folder, &self.name());
        }
    }

    /// Returns how many syncs have failed so far.
    pub(crate) fn sync_failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    fn lock_synced(&self) -> MutexGuard<'_, Synced> {
        self.synced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the first `bytes` bytes durable, which are written and which no worker writes any more.
    pub(crate) fn sync_prefix(&self, bytes: u64) -> io::Result<()> {
        let mut synced = self.lock_synced();
        let suspect = synced.bytes..bytes.min(synced.suspect);
        self.sync(&mut synced, suspect)?;
        synced.bytes = bytes;
        Ok(())
    }

    /// Makes a range durable that was written after `failures` syncs had failed, and that no worker writes any more.
    pub(crate) fn sync_range(&self, range: Range<u64>, failures: u64) -> io::Result<()> {
        let mut synced = self.lock_synced();
        let suspect = if self.sync_failures() == failures {
            0..0
        } else {
            range
        };
        self.sync(&mut synced, suspect)
    }

    /// Syncs the file, one call at a time: an error is reported once, to whichever call comes first, and the kernel
    /// takes all that it could not write for written. So after a failure what was written before is written again.
    fn sync(&self, synced: &mut Synced, suspect: Range<u64>) -> io::Result<()> {
        let stored = self.stored()?;
        if protect!(WrittenAgain, when !suspect.is_empty()) {
            rewrite(stored, suspect)?;
        }
        if let Err(error) = stored.sync() {
            self.failures.fetch_add(1, Ordering::Relaxed);
            synced.suspect = self.written.load(Ordering::Relaxed);
            return Err(error);
        }
        if protect!(PartNamed, when !synced.is_named) {
            self.folder.sync()?;
            synced.is_named = true;
        }
        Ok(())
    }

    /// Cuts the file behind its last byte: space that was set aside goes back.
    pub(crate) fn cut(&self, bytes: u64) -> io::Result<()> {
        if self.allocated.load(Ordering::Relaxed) > 0 {
            self.stored()?.cut(bytes)?;
        }
        Ok(())
    }

    /// Gives the file its final name, which no other file has.
    pub(crate) fn rename(&self) -> io::Result<()> {
        self.folder.rename_new(&self.part(), &self.name())
    }
}
