//! A file under way: `NAME.part` until it is closed.

use crate::buffer::{BLOCK, Buffer};
use rustix::fs::{FallocateFlags, OFlags, RenameFlags, fallocate, renameat_with};
use sheaf_write::{FileName, Template};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// End of the name of a file that is not closed.
pub(crate) const PART: &str = ".part";

/// Least and most space that is set aside at once.
const ALLOCATE_MIN: u64 = 4 << 20;
const ALLOCATE_MAX: u64 = 64 << 20;

/// Way in which bytes get to a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoMode {
    /// Straight from memory (`O_DIRECT`), without the page cache.
    Direct,
    /// By the page cache.
    Buffered,
}

impl IoMode {
    /// Name in logs, reports and farm files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Buffered => "buffered",
        }
    }
}

/// Tries what `folder` can do with a file that is removed again.
///
/// # Errors
///
/// Error of the operating system if nothing can be written there at all.
pub fn probe(folder: &Path) -> io::Result<IoMode> {
    let path = folder.join(format!(".sheaf-probe-{}{PART}", std::process::id()));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    options.open(&path)?;
    options.custom_flags(direct_flag());
    let mut buffer = Buffer::new();
    buffer.fill(&[0; BLOCK]);
    let written = options.open(&path).and_then(|file| {
        buffer
            .pieces()
            .try_for_each(|(at, piece, _)| file.write_all_at(piece, at))
    });
    std::fs::remove_file(&path)?;
    Ok(match written {
        Ok(()) => IoMode::Direct,
        Err(_) => IoMode::Buffered,
    })
}

fn direct_flag() -> i32 {
    OFlags::DIRECT.bits().cast_signed()
}

/// Open descriptors of a file.
#[derive(Debug)]
struct Handles {
    plain: File,
    direct: Option<File>,
}

/// A file that workers write.
#[derive(Debug)]
pub(crate) struct StreamFile {
    folder: PathBuf,
    mode: IoMode,
    template: Template,
    /// Values of its name; the number is that which was free when it was made.
    name: Mutex<FileName>,
    handles: OnceLock<Handles>,
    /// Held while the file is made, since any of its workers may be the first.
    making: Mutex<()>,
    /// Bytes from the beginning that the disk has set aside; all once it cannot.
    allocated: AtomicU64,
}

impl StreamFile {
    pub(crate) fn new(folder: PathBuf, mode: IoMode, template: Template, name: FileName) -> Self {
        Self {
            folder,
            mode,
            template,
            name: Mutex::new(name),
            handles: OnceLock::new(),
            making: Mutex::new(()),
            allocated: AtomicU64::new(0),
        }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
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

    pub(crate) fn part(&self) -> PathBuf {
        self.folder.join(self.name() + PART)
    }

    pub(crate) fn mode(&self) -> IoMode {
        self.mode
    }

    pub(crate) fn is_made(&self) -> bool {
        self.handles.get().is_some()
    }

    /// Makes the file if no worker has done so, under the first number that no file has and that is not taken.
    /// `made` is called once, before anything is written.
    pub(crate) fn make(
        &self,
        is_taken: impl Fn(&str) -> io::Result<bool>,
        made: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let _alone = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_made() {
            return Ok(());
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        let plain = loop {
            let name = self.name();
            if !is_taken(&name)? && !self.folder.join(&name).try_exists()? {
                match options.open(self.part()) {
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                    opened => break opened?,
                }
            }
            let mut name = self.name.lock().unwrap_or_else(PoisonError::into_inner);
            name.seq += 1;
        };
        let direct = match self.mode {
            IoMode::Buffered => None,
            IoMode::Direct => {
                let mut options = OpenOptions::new();
                options.write(true).custom_flags(direct_flag());
                // A file that has just been made and cannot be opened so is written through the cache.
                options.open(self.part()).ok()
            }
        };
        if let Err(error) = made() {
            // Nothing of it is known anywhere yet.
            drop(plain);
            std::fs::remove_file(self.part())?;
            return Err(error);
        }
        // No other worker makes it meanwhile.
        let _ = self.handles.set(Handles { plain, direct });
        Ok(())
    }

    fn handles(&self) -> io::Result<&Handles> {
        let missing = || io::Error::other("the file was not made");
        self.handles.get().ok_or_else(missing)
    }

    /// Sets space aside up to `end` and beyond, the more the longer the file is. Direct writes into space that a file
    /// has go on side by side; those that make it longer wait for each other.
    fn allocate(&self, end: u64) -> io::Result<()> {
        if end <= self.allocated.load(Ordering::Relaxed) {
            return Ok(());
        }
        let file = &self.handles()?.plain;
        let _alone = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        let from = self.allocated.load(Ordering::Relaxed);
        if end <= from {
            return Ok(());
        }
        let more = from.clamp(ALLOCATE_MIN, ALLOCATE_MAX).max(end - from);
        let allocated = fallocate(file, FallocateFlags::empty(), from, more);
        // A file system that cannot, or has not so much: the writes themselves will show what they can do.
        let until = allocated.map_or(u64::MAX, |()| from + more);
        self.allocated.store(until, Ordering::Relaxed);
        Ok(())
    }

    /// Writes the bytes of a buffer: whole blocks past the cache, the others through it. No block is written both ways.
    pub(crate) fn write_buffer(&self, buffer: &Buffer) -> io::Result<()> {
        self.allocate(buffer.end())?;
        let handles = self.handles()?;
        for (at, piece, is_whole) in buffer.pieces() {
            let direct = handles.direct.as_ref().filter(|_| is_whole);
            direct.unwrap_or(&handles.plain).write_all_at(piece, at)?;
        }
        Ok(())
    }

    /// Writes `slices` one after the other from `offset`, through the cache.
    pub(crate) fn write_slices(&self, slices: &[&[u8]], offset: u64) -> io::Result<()> {
        let handles = self.handles()?;
        let mut at = offset;
        for slice in slices {
            handles.plain.write_all_at(slice, at)?;
            at += slice.len() as u64;
        }
        Ok(())
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.handles()?.plain.sync_data()
    }

    /// Cuts the file behind its last byte: space that was set aside goes back.
    pub(crate) fn cut(&self, bytes: u64) -> io::Result<()> {
        if self.allocated.load(Ordering::Relaxed) > 0 {
            self.handles()?.plain.set_len(bytes)?;
        }
        Ok(())
    }

    /// Gives the file its final name, which no other file has.
    pub(crate) fn rename(&self) -> io::Result<()> {
        rename_new(&self.part(), &self.folder.join(self.name()))
    }
}

/// Renames a file to a name that no file has.
///
/// # Errors
///
/// [`ErrorKind::AlreadyExists`] if there is one: nothing is overwritten.
pub(crate) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    let cwd = rustix::fs::CWD;
    match renameat_with(cwd, from, cwd, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        // A file system without that flag: the name was free when the file was made, and the folder is locked.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) if !to.try_exists()? => {
            std::fs::rename(from, to)
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the bytes that the disk of `folder` has free for this process.
///
/// # Errors
///
/// Error of the operating system.
pub fn free_bytes(folder: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(folder)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Makes names in `folder` survive a cut of power.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
